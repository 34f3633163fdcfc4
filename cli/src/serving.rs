//! What the servers among the commands have in common.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Serialize;
use serde_json::Value;

use crate::failure::{Done, Failure};
use crate::output::Output;

/// Flags as a layer of configuration: only those that were given.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Flags(BTreeMap<&'static str, Value>);

impl Flags {
    /// Notes a flag, if it was given.
    ///
    /// # Errors
    ///
    /// Usage, if its value has no JSON form: a path that is not UTF-8.
    pub fn set(&mut self, name: &'static str, value: Option<impl Serialize>) -> Done<&mut Self> {
        if let Some(value) = value {
            let value = serde_json::to_value(value).map_err(|error| {
                let flag = name.replace('_', "-");
                Failure::usage(format!("--{flag}: {error}"), "name it in UTF-8")
            })?;
            self.0.insert(name, value);
        }
        Ok(self)
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
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_flag_that_was_not_given_is_no_layer() {
        let mut flags = Flags::default();
        flags.set("listen", Some("127.0.0.1:1")).unwrap().set("kubo", None::<String>).unwrap();
        assert_eq!(serde_json::to_string(&flags).unwrap(), r#"{"listen":"127.0.0.1:1"}"#);
    }

    #[test]
    fn a_flag_whose_value_has_no_form_is_an_error_and_never_left_out() {
        let path = PathBuf::from(OsStr::from_bytes(b"/keys/\xff.key"));
        let failure = Flags::default().set("authority_key", Some(path)).unwrap_err();
        assert!(failure.body().detail.starts_with("--authority-key: "), "{failure:?}");
        assert_eq!(failure.body().exit, 2);
    }
}
