//! Configuration in layers: defaults, then file, then environment, then flags. Later ones win, value by value.

use std::path::Path;

use figment::providers::{Env, Format, Serialized, Toml};
use figment::{Figment, Provider};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{Done, Failure};

/// The configuration of `T`. `prefix` is that of its environment variables, in which `__` goes one level down:
/// `SELION_CONTROLLER_POLICY__HOLD_MS`. Flags that were not given must not appear in `flags` at all.
///
/// # Errors
///
/// Usage, naming the value, the layer it came from, and what it should be.
pub fn layered<T: Default + Serialize + DeserializeOwned>(
    file: Option<&Path>,
    prefix: &str,
    flags: &impl Serialize,
) -> Done<T> {
    join(file, Env::prefixed(prefix).split("__"), flags)
}

fn join<T: Default + Serialize + DeserializeOwned>(
    file: Option<&Path>,
    env: impl Provider,
    flags: &impl Serialize,
) -> Done<T> {
    let mut layers = Figment::from(Serialized::defaults(T::default()));
    if let Some(path) = file {
        // A file that was named and is not there is an error, not an empty layer.
        std::fs::File::open(path).map_err(|error| {
            Failure::usage(format!("configuration {}: {error}", path.display()), "check the path after --config")
        })?;
        layers = layers.merge(Toml::file_exact(path));
    }
    layers.merge(env).merge(Serialized::defaults(flags)).extract().map_err(|error| refuse(&error))
}

fn refuse(error: &figment::Error) -> Failure {
    let what: Vec<String> = error.clone().into_iter().map(|one| one.to_string()).collect();
    Failure::usage(
        format!("configuration: {}", what.join("; ")),
        "correct it where the message says it came from: the file, the environment or a flag",
    )
}

#[cfg(test)]
mod tests {
    use selion_controller::config::Config;
    use serde_json::{Value, json};

    use super::*;

    fn config(file: &str, env: Value, flags: Value) -> Done<Config> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        std::fs::write(&path, file).unwrap();
        join(Some(&path), Serialized::defaults(env), &flags)
    }

    #[test]
    fn a_later_layer_wins_value_by_value() {
        let file = "poll_ms = 1\nanchor_ms = 1\nclaim_ms = 1\n[policy]\nhold_ms = 7\n";
        let env = json!({ "anchor_ms": 2, "claim_ms": 2, "policy": { "prepare_ms": 8 } });
        let made = config(file, env, json!({ "claim_ms": 3 })).unwrap();
        assert_eq!((made.poll_ms, made.anchor_ms, made.claim_ms), (1, 2, 3));
        assert_eq!((made.policy.hold_ms, made.policy.prepare_ms), (7, 8));
        assert_eq!(made.listen, Config::default().listen);
    }

    #[test]
    fn an_unknown_value_and_a_missing_file_are_named() {
        let failure = config("pol_ms = 1\n", json!({}), json!({})).unwrap_err();
        assert!(failure.body().detail.contains("pol_ms") && failure.body().exit == 2, "{failure:?}");
        let failure = layered::<Config>(Some(Path::new("/no/such.toml")), "SELION_TEST_", &json!({})).unwrap_err();
        assert!(failure.body().detail.contains("/no/such.toml"), "{failure:?}");
    }
}
