//! A list of tasks.

use std::collections::BTreeSet;
use std::path::Path;

use selion_market::engine::view::{Shape, Want};
use serde::Serialize;

use super::Models;
use crate::SimError;
use crate::csv::{Column, Row, Table};

/// A task of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// CPU asked, in thousandths of a core.
    pub cpu: u32,
    /// Memory asked, in MiB.
    pub ram: u32,
    /// Devices asked, all on one node.
    pub gpus: u8,
    /// Thousandths of each device; below 1000 only for one device.
    pub milli: u16,
    /// GPU models allowed, one bit each; `u64::MAX` is any.
    pub models: u64,
    /// Seconds from creation to deletion, where the list has both and they are in order.
    pub life: Option<u64>,
}

/// A list of tasks, sorted by name.
#[derive(Clone, Debug)]
pub struct TaskList {
    /// The file's name without what all lists of the family share.
    pub name: String,
    /// Tasks by name.
    pub tasks: Vec<Task>,
}

/// Classes by which waiting and acceptance are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// CPU and memory only.
    CpuOnly,
    /// A part of one device.
    Share,
    /// One device.
    One,
    /// Two devices.
    Two,
    /// Three or four.
    Four,
    /// Five and more.
    Eight,
}

/// All of them, smallest first.
pub const SIZES: [Size; 6] = [Size::CpuOnly, Size::Share, Size::One, Size::Two, Size::Four, Size::Eight];

impl Size {
    /// In words for a table.
    pub fn words(self) -> &'static str {
        match self {
            Self::CpuOnly => "CPU only",
            Self::Share => "share",
            Self::One => "1 GPU",
            Self::Two => "2 GPUs",
            Self::Four => "3-4 GPUs",
            Self::Eight => "5-8 GPUs",
        }
    }
}

impl Task {
    /// GPU asked in all, in thousandths.
    pub fn gpu(&self) -> u64 {
        u64::from(self.gpus) * u64::from(self.milli)
    }

    /// Its size class.
    pub fn size(&self) -> Size {
        match (self.gpus, self.milli) {
            (0, _) => Size::CpuOnly,
            (1, ..1000) => Size::Share,
            (1, _) => Size::One,
            (2, _) => Size::Two,
            (3 | 4, _) => Size::Four,
            _ => Size::Eight,
        }
    }

    /// What it asks of a node, in the engine's words.
    pub fn want(&self) -> Want {
        let shape = match (self.gpus, self.milli) {
            (0, _) => Shape::None,
            (1, share @ ..1000) => Shape::Share(share),
            (gpus, _) => Shape::Whole(gpus),
        };
        Want { shape, cpu: self.cpu, ram: self.ram, models: self.models }
    }
}

impl TaskList {
    /// Reads a list of tasks: `cpu_milli`, `memory_mib`, `num_gpu`, `gpu_milli` and `name`; `gpu_spec` and the times
    /// where they are there. Models that no node has are added to `models`.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not such a list.
    pub fn read(path: &Path, models: &mut Models) -> Result<Self, SimError> {
        let table = Table::read(path)?;
        let columns = Columns::of(&table)?;
        let mut tasks = Vec::new();
        for row in table.rows() {
            tasks.push(columns.task(&table, row, models)?);
        }
        tasks.sort_by(|a: &Task, b| a.name.cmp(&b.name));
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let name = stem.strip_prefix("openb_pod_list_").unwrap_or(&stem).to_owned();
        Ok(Self { name, tasks })
    }

    /// GPU asked by all tasks, in thousandths.
    pub fn gpu(&self) -> u64 {
        self.tasks.iter().map(Task::gpu).sum()
    }

    /// Distinct types as the published experiment counts them: memory does not tell them apart.
    pub fn types(&self) -> Vec<(Want, u64)> {
        let mut counts = std::collections::BTreeMap::new();
        for task in &self.tasks {
            *counts.entry(Want { ram: 0, ..task.want() }).or_insert(0) += 1;
        }
        counts.into_iter().collect()
    }

    /// Distinct wants, memory included.
    pub fn wants(&self) -> BTreeSet<Want> {
        self.tasks.iter().map(Task::want).collect()
    }
}

struct Columns {
    name: Column<'static>,
    cpu: Column<'static>,
    ram: Column<'static>,
    gpus: Column<'static>,
    milli: Column<'static>,
    spec: Option<Column<'static>>,
    times: Option<(Column<'static>, Column<'static>)>,
}

impl Columns {
    fn of(table: &Table) -> Result<Self, SimError> {
        Ok(Self {
            name: table.column("name")?,
            cpu: table.column("cpu_milli")?,
            ram: table.column("memory_mib")?,
            gpus: table.column("num_gpu")?,
            milli: table.column("gpu_milli")?,
            spec: table.find("gpu_spec"),
            times: table.find("creation_time").zip(table.find("deletion_time")),
        })
    }

    fn task(&self, table: &Table, row: Row<'_>, models: &mut Models) -> Result<Task, SimError> {
        let gpus: u8 = row.number(self.gpus, "a count of GPUs from 0 to 64", |gpus: u8| gpus <= 64)?;
        let milli = match gpus {
            0 => row.number(self.milli, "0 where num_gpu is 0", |milli| milli == 0)?,
            1 => row.number(self.milli, "from 1 to 1000", |milli| (1..=1000).contains(&milli))?,
            _ => row.number(self.milli, "1000 where num_gpu is above 1", |milli| milli == 1000)?,
        };
        let mut mask = 0;
        for model in self.spec.map(|spec| row.text(spec)).unwrap_or_default().split('|') {
            if !model.is_empty() {
                mask |= 1 << models.number(table, row, model)?;
            }
        }
        Ok(Task {
            name: row.text(self.name).to_owned(),
            cpu: row.number(self.cpu, "thousandths of a core below 4294967296", |_| true)?,
            ram: row.number(self.ram, "MiB below 4294967296", |_| true)?,
            gpus,
            milli,
            models: if mask == 0 { u64::MAX } else { mask },
            life: self.life(row)?,
        })
    }

    /// A task that was never deleted, or has one time only, has no life.
    fn life(&self, row: Row<'_>) -> Result<Option<u64>, SimError> {
        let Some((created, deleted)) = self.times else { return Ok(None) };
        if row.text(created).is_empty() || row.text(deleted).is_empty() {
            return Ok(None);
        }
        let seconds = |column| row.number::<u64>(column, "seconds, or empty", |_| true);
        Ok(seconds(deleted)?.checked_sub(seconds(created)?).filter(|life| *life > 0))
    }
}
