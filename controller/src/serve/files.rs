//! Open files of the process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What is counted on where the system does not tell.
const UNKNOWN: u64 = 1024;

/// Raises the soft limit of open files to the hard one, as every connection takes one; returns the limit in force.
pub fn raise_file_limit() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return UNKNOWN };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(error) => {
            tracing::warn!(%error, soft, hard, "the limit of open files stays as it is");
            soft
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_as_high_as_the_system_lets_it_be() {
        let raised = raise_file_limit();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!((raised, soft), (hard, hard));
    }
}
