//! Published results that lie beside a list: `fgd_published.csv`.

use std::path::Path;

use serde::Serialize;

use crate::SimError;
use crate::csv::Table;

/// What the authors of FGD published for one list and policy: mean unallocated GPU, in per cent of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Published {
    /// When the arrived load is 100 % of the cluster.
    pub at_100: f64,
    /// At the end, at 130 %.
    pub at_end: f64,
}

/// The result published under `policy` for the list in the file `pods`, if the table lies beside it.
///
/// # Errors
///
/// The table is there and cannot be read.
pub fn published(pods: &Path, list: &str, policy: &str) -> Result<Option<Published>, SimError> {
    let path = pods.with_file_name("fgd_published.csv");
    if !path.exists() {
        return Ok(None);
    }
    let table = Table::read(&path)?;
    let (workload, by) = (table.column("workload")?, table.column("policy")?);
    let (at_100, at_end) = (table.column("unalloc_pct_at_100_mean")?, table.column("unalloc_pct_at_130_mean")?);
    let found = table.rows().find(|row| row.text(workload) == list && row.text(by) == policy);
    let Some(row) = found else { return Ok(None) };
    let number = |column| row.number(column, "per cent", |value: f64| value.is_finite());
    Ok(Some(Published { at_100: number(at_100)?, at_end: number(at_end)? }))
}
