//! What can be wrong with an experiment's inputs. Each says its part, its value and what would be right.

use std::path::PathBuf;

/// Why an experiment cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A list without a column that is needed.
    #[error("{}: no column `{column}`; it has {found}", path.display())]
    NoColumn {
        /// Which file.
        path: PathBuf,
        /// The missing column.
        column: String,
        /// The columns that are there.
        found: String,
    },
    /// A row that is not as long as the header.
    #[error("{}, row {row}: {cells} cells, the header has {columns}", path.display())]
    Ragged {
        /// Which file.
        path: PathBuf,
        /// Line of the file, the header being 1.
        row: usize,
        /// Cells found.
        cells: usize,
        /// Cells wanted.
        columns: usize,
    },
    /// A cell that cannot be meant.
    #[error("{}, row {row}: `{value}` in column `{column}`; it must be {wanted}", path.display())]
    Cell {
        /// Which file.
        path: PathBuf,
        /// Line of the file, the header being 1.
        row: usize,
        /// Its column.
        column: String,
        /// What stands there.
        value: String,
        /// What may stand there.
        wanted: &'static str,
    },
    /// A list without rows.
    #[error("{}: no rows under the header", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
    },
    /// More GPU models than the engine tells apart.
    #[error("{}, row {row}: `{model}` is one GPU model more than the {limit} that are told apart", path.display())]
    Models {
        /// Which file.
        path: PathBuf,
        /// Line of the file, the header being 1.
        row: usize,
        /// The model too many.
        model: String,
        /// How many there may be.
        limit: usize,
    },
    /// An option with a value that makes no experiment.
    #[error("{option} is {value}; it must be {wanted}")]
    Setting {
        /// Which option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        wanted: &'static str,
    },
    /// A list that asks for nothing that can be measured.
    #[error("{what}; {next}")]
    Nothing {
        /// What is missing.
        what: String,
        /// What to do.
        next: &'static str,
    },
}
