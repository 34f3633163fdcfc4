//! Whom an experiment tells how far it is.

/// Told about every run of an experiment, from any thread.
pub trait Progress: Sync {
    /// So many runs will follow.
    fn begin(&self, runs: u64);
    /// One run is done; `line` says what came out.
    fn done(&self, line: &str);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _runs: u64) {}
    fn done(&self, _line: &str) {}
}
