//! What an image says about how it is run.

use std::collections::BTreeMap;
use std::str::FromStr;

use nix::sys::signal::Signal;
use oci_spec::image::ImageConfiguration;

use super::platform::Platform;
use super::{Digest, ImageError, shown};

/// An image's own defaults. All of it is the image's word: a lease may override it, and nothing of it is a right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageConfig {
    /// What it was built for.
    pub platform: Platform,
    /// The program and its first arguments; empty if the image names none.
    pub entrypoint: Vec<String>,
    /// Arguments after the entrypoint, or the whole command where there is none.
    pub cmd: Vec<String>,
    /// Names and values.
    pub env: Vec<(String, String)>,
    /// An absolute path, `/` if the image names none.
    pub working_dir: String,
    /// `USER`, `UID`, `USER:GROUP`, `UID:GID` and mixtures; empty is the superuser. See
    /// [`Image::user`](super::Image::user).
    pub user: String,
    /// Notes of whoever built it.
    pub labels: BTreeMap<String, String>,
    /// Ports that the program is said to listen at. What does not parse is left out.
    pub exposed_ports: Vec<Port>,
    /// Number of the signal that ends the program; `None` is the caller's own.
    pub stop_signal: Option<i32>,
    /// The layers by their unpacked digests, the lowest first.
    pub(super) diff_ids: Vec<Digest>,
}

/// A port of the image's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// The number.
    pub number: u16,
    /// What is spoken at it.
    pub protocol: Protocol,
}

/// Of a [`Port`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl ImageConfig {
    /// Reads a configuration whose digest is verified.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, ImageError> {
        let read: ImageConfiguration = serde_json::from_slice(bytes).map_err(|error| malformed(error.to_string()))?;
        let platform = Platform {
            os: read.os().to_string(),
            architecture: read.architecture().to_string(),
            variant: read.variant().clone(),
        };
        let diff_ids = read.rootfs().diff_ids().iter().map(|id| id.parse()).collect::<Result<_, _>>()?;
        let config = read.config().clone().unwrap_or_default();
        let signal = config.stop_signal().as_deref().filter(|text| !text.is_empty());
        let mut ports: Vec<Port> = config.exposed_ports().iter().flatten().filter_map(|text| port(text)).collect();
        ports.sort_unstable();
        ports.dedup();
        let read = Self {
            platform,
            entrypoint: config.entrypoint().clone().unwrap_or_default(),
            cmd: config.cmd().clone().unwrap_or_default(),
            env: config.env().iter().flatten().map(|pair| variable(pair)).collect(),
            working_dir: absolute(config.working_dir().as_deref().unwrap_or_default()),
            user: config.user().clone().unwrap_or_default(),
            labels: config.labels().iter().flatten().map(|(name, value)| (name.clone(), value.clone())).collect(),
            exposed_ports: ports,
            stop_signal: signal.map(signal_number).transpose()?,
            diff_ids,
        };
        read.without_nul()
    }

    /// What a system call takes ends at a NUL: such words would be read differently here and there.
    fn without_nul(self) -> Result<Self, ImageError> {
        let words = self.entrypoint.iter().chain(&self.cmd).chain([&self.working_dir, &self.user]);
        let env = self.env.iter().flat_map(|(name, value)| [name, value]);
        if words.chain(env).any(|word| word.contains('\0')) {
            return Err(malformed("a word in it has a NUL".to_owned()));
        }
        if self.env.iter().any(|(name, _)| name.is_empty()) {
            return Err(malformed("a variable has no name".to_owned()));
        }
        Ok(self)
    }
}

fn malformed(why: String) -> ImageError {
    ImageError::Malformed { what: "the image's configuration".to_owned(), why }
}

fn variable(pair: &str) -> (String, String) {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    (name.to_owned(), value.to_owned())
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn port(text: &str) -> Option<Port> {
    let (number, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let protocol = match protocol {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        _ => return None,
    };
    number.parse().ok().filter(|number| *number != 0).map(|number| Port { number, protocol })
}

/// `15`, `SIGTERM`, `TERM`, `SIGRTMIN+3`.
fn signal_number(text: &str) -> Result<i32, ImageError> {
    /// Of Linux, as libraries leave it to programs.
    const RTMIN: i32 = 34;
    const MOST: i32 = 64;
    let bad = || ImageError::Unsupported {
        what: "stop signal",
        value: shown(text.as_bytes()),
        help: "write a name such as SIGTERM, or a number from 1 to 64",
    };
    let upper = text.to_uppercase();
    let full = if upper.starts_with("SIG") { upper.clone() } else { format!("SIG{upper}") };
    let number = if let Ok(number) = text.parse() {
        Some(number)
    } else if let Some(rest) = full.strip_prefix("SIGRTMIN") {
        if rest.is_empty() { Some(RTMIN) } else { rest.parse::<i32>().ok().and_then(|more| RTMIN.checked_add(more)) }
    } else {
        Signal::from_str(&full).ok().map(|signal| signal as i32)
    };
    number.filter(|number| (1..=MOST).contains(number)).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_of_everyday_is_read() {
        let id = Digest::of(b"layer");
        let text = format!(
            r#"{{"architecture":"amd64","os":"linux","created":"2026-01-01T00:00:00Z","config":{{
            "Entrypoint":["/bin/sh","-c"],"Cmd":null,"Env":["PATH=/bin","EMPTY","A=b=c"],"WorkingDir":"","User":"1000:100",
            "Labels":{{"a":"b"}},"ExposedPorts":{{"80/tcp":{{}},"53/udp":{{}},"9":{{}},"x/tcp":{{}}}},
            "StopSignal":"SIGRTMIN+3","Volumes":null,"OnBuild":null,"Healthcheck":{{"Test":["NONE"]}}}},
            "rootfs":{{"type":"layers","diff_ids":["{id}"]}},"history":[{{"created_by":"x","empty_layer":true}}]}}"#
        );
        let read = ImageConfig::read(text.as_bytes()).unwrap();
        assert_eq!((read.entrypoint.len(), read.cmd.len(), read.working_dir.as_str()), (2, 0, "/"));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read.env, [pair("PATH", "/bin"), pair("EMPTY", ""), pair("A", "b=c")]);
        let port = |number, protocol| Port { number, protocol };
        let ports = [port(9, Protocol::Tcp), port(53, Protocol::Udp), port(80, Protocol::Tcp)];
        assert_eq!(read.exposed_ports, ports);
        assert_eq!((read.stop_signal, read.diff_ids.as_slice()), (Some(37), [id].as_slice()));
    }

    #[test]
    fn a_configuration_without_defaults_is_read() {
        let text = r#"{"architecture":"arm64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}"#;
        let read = ImageConfig::read(text.as_bytes()).unwrap();
        assert_eq!((read.working_dir.as_str(), read.user.as_str(), read.stop_signal), ("/", "", None));
    }

    #[test]
    fn stop_signals_are_names_and_numbers() {
        let number = |text| signal_number(text).unwrap();
        assert_eq!([number("SIGTERM"), number("int"), number("9"), number("SIGRTMIN")], [15, 2, 9, 34]);
        for bad in ["0", "65", "-1", "SIGNOTHING", "SIGRTMIN+99", "SIGRTMIN+2147483647"] {
            assert!(signal_number(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_word_with_a_nul_is_refused() {
        let text = r#"{"architecture":"amd64","os":"linux","config":{"Cmd":["a\u0000b"]},
            "rootfs":{"type":"layers","diff_ids":[]}}"#;
        assert!(ImageConfig::read(text.as_bytes()).is_err());
    }
}
