//! What the servers among the commands have in common.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Serialize;
use serde_json::Value;

use crate::output::Output;

/// Flags as a layer of configuration: only those that were given.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Flags(BTreeMap<&'static str, Value>);

impl Flags {
    /// Notes a flag, if it was given.
    pub fn set(&mut self, name: &'static str, value: Option<impl Serialize>) -> &mut Self {
        // Flags are numbers, texts, paths and addresses: each has a JSON form unless a path is not UTF-8.
        if let Some(value) = value.and_then(|value| serde_json::to_value(value).ok()) {
            self.0.insert(name, value);
        }
        self
    }
}

/// Says that a server answers: to people a sentence, to programs the line `{"ready":{"address":..,"pid":..}}`.
pub fn ready(out: Output, what: &str, address: SocketAddr) {
    let pid = std::process::id();
    // Nobody may be listening any more; that is no reason not to serve.
    let _ = if out.is_json() {
        out.json(&serde_json::json!({ "ready": { "address": address, "pid": pid } }))
    } else {
        crate::output::line(&format!("{what} answers at http://{address} (pid {pid}); Ctrl-C stops it"))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_that_was_not_given_is_no_layer() {
        let mut flags = Flags::default();
        flags.set("listen", Some("127.0.0.1:1")).set("kubo", None::<String>);
        assert_eq!(serde_json::to_string(&flags).unwrap(), r#"{"listen":"127.0.0.1:1"}"#);
    }
}
