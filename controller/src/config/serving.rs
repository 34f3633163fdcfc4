//! Limits of connections, as the operator writes them.

use serde::{Deserialize, Serialize};

use super::BadConfig;

/// How many connections there may be, and how long one is held for nothing. Times in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServingConfig {
    /// Until the head of a request has come whole, counted from the opening of the connection or the answer before.
    pub head_ms: u64,
    /// Between two pieces of a request's body.
    pub body_ms: u64,
    /// Until a reader takes something of an answer that waits for it.
    pub write_ms: u64,
    /// Connections at a time; fewer if the system allows fewer open files.
    pub connections: usize,
    /// Connections at a time of one address, or of one /64 of IPv6. Agents, proxies and tunnels count too.
    pub connections_per_address: usize,
}

impl Default for ServingConfig {
    fn default() -> Self {
        Self { head_ms: 30_000, body_ms: 30_000, write_ms: 30_000, connections: 8_192, connections_per_address: 1_024 }
    }
}

impl ServingConfig {
    /// Whether it can be.
    ///
    /// # Errors
    ///
    /// [`BadConfig`] naming a limit of 0.
    pub fn check(&self) -> Result<(), BadConfig> {
        let counts = [("connections", self.connections), ("connections_per_address", self.connections_per_address)];
        let times = [("head_ms", self.head_ms), ("body_ms", self.body_ms), ("write_ms", self.write_ms)];
        let nothing = counts.iter().filter(|(_, count)| *count == 0).map(|(name, _)| name);
        let at_once = times.iter().filter(|(_, time)| *time == 0).map(|(name, _)| name);
        match nothing.chain(at_once).next() {
            None => Ok(()),
            Some(name) => {
                Err(BadConfig { what: format!("serving.{name} is 0, which would answer nobody; give at least 1") })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_that_lets_nobody_in_is_named() {
        assert_eq!(ServingConfig::default().check(), Ok(()));
        let none = ServingConfig { connections: 0, ..ServingConfig::default() };
        assert!(none.check().unwrap_err().what.contains("serving.connections is 0"));
        let hasty = ServingConfig { head_ms: 0, ..ServingConfig::default() };
        assert!(hasty.check().unwrap_err().what.contains("serving.head_ms is 0"));
    }
}
