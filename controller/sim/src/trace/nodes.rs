//! The list of nodes.

use std::path::Path;

use crate::SimError;
use crate::csv::{Row, Table};

/// GPU models in the order in which they were met. The engine knows them by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Models(Vec<String>);

/// A node of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name (`sn`).
    pub name: String,
    /// CPU, in thousandths of a core.
    pub cpu: u32,
    /// Memory, in MiB.
    pub ram: u32,
    /// GPUs.
    pub gpus: u8,
    /// Number of its GPU model.
    pub model: u8,
}

/// A cluster: its GPU nodes sorted by name, and their models.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Nodes by name.
    pub nodes: Vec<Node>,
    /// GPU models met, nodes' first.
    pub models: Models,
}

impl Models {
    /// How many models are told apart: a set of them is one 64-bit word.
    pub const LIMIT: usize = 64;

    /// The number of `name`, which may be new. `row` is what a fault is told with.
    ///
    /// # Errors
    ///
    /// It is new, and there are [`Models::LIMIT`] others.
    pub fn number(&mut self, table: &Table, row: Row<'_>, name: &str) -> Result<u8, SimError> {
        let known = self.0.iter().position(|model| model == name);
        if known.is_none() && self.0.len() >= Self::LIMIT {
            return Err(SimError::Models {
                path: table.path().to_owned(),
                row: row.line(),
                model: name.to_owned(),
                limit: Self::LIMIT,
            });
        }
        let at = known.unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        });
        // Below LIMIT, which is below 256.
        Ok(at as u8)
    }

    /// The model of that number.
    pub fn name(&self, number: u8) -> &str {
        self.0.get(usize::from(number)).map_or("", String::as_str)
    }

    /// How many were met.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl Cluster {
    /// Reads a list of GPU nodes: `sn`, `cpu_milli`, `memory_mib`, `gpu`, `model`. Nodes without GPUs are left out.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not such a list; it holds no GPU.
    pub fn read(path: &Path) -> Result<Self, SimError> {
        let table = Table::read(path)?;
        let (sn, cpu, ram) = (table.column("sn")?, table.column("cpu_milli")?, table.column("memory_mib")?);
        let (gpu, model) = (table.column("gpu")?, table.column("model")?);
        let mut models = Models::default();
        let mut nodes = Vec::new();
        for row in table.rows() {
            let gpus = row.number(gpu, "a count of GPUs from 0 to 64", |gpus: u8| gpus <= 64)?;
            let node = Node {
                name: row.text(sn).to_owned(),
                cpu: row.number(cpu, "thousandths of a core below 4294967296", |_| true)?,
                ram: row.number(ram, "MiB below 4294967296", |_| true)?,
                gpus,
                model: if gpus == 0 { 0 } else { models.number(&table, row, row.text(model))? },
            };
            if gpus > 0 {
                nodes.push(node);
            }
        }
        if nodes.is_empty() {
            let what = format!("{}: no node has a GPU", path.display());
            return Err(SimError::Nothing { what, next: "give the list of GPU nodes" });
        }
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { nodes, models })
    }

    /// All GPUs, in thousandths.
    pub fn capacity(&self) -> u64 {
        self.nodes.iter().map(|node| u64::from(node.gpus) * 1000).sum()
    }
}
