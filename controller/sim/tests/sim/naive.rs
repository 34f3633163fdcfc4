//! FGD a second time, straight from its definition, in floats and without an index: what the engine must equal.

use std::collections::BTreeMap;

use selion_sim::trace::{Node, Task};

#[derive(Clone)]
struct Left {
    cpu: u32,
    ram: u32,
    model: u8,
    gpus: Vec<u16>,
}

/// A type of task, and its part of all.
struct Typical {
    task: Task,
    part: f64,
}

/// A cluster under FGD that knows the whole list.
pub struct Naive {
    nodes: Vec<Left>,
    typical: Vec<Typical>,
}

fn same_type(task: &Task) -> (u32, u8, u16, u64) {
    (task.cpu, task.gpus, task.milli, task.models)
}

impl Naive {
    /// The most popular types until they are 95 % of the tasks.
    pub fn new(nodes: &[Node], tasks: &[Task]) -> Self {
        let mut counts: BTreeMap<_, (usize, &Task)> = BTreeMap::new();
        for task in tasks {
            counts.entry(same_type(task)).or_insert((0, task)).0 += 1;
        }
        let mut types: Vec<(usize, &Task)> = counts.into_values().collect();
        types.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let mut typical: Vec<Typical> = Vec::new();
        let mut sum = 0;
        for (count, task) in types {
            if sum * 100 >= tasks.len() * 95 {
                break;
            }
            sum += count;
            typical.push(Typical { task: task.clone(), part: count as f64 });
        }
        typical.iter_mut().for_each(|one| one.part /= sum as f64);
        let left = |node: &Node| Left {
            cpu: node.cpu,
            ram: node.ram,
            model: node.model,
            gpus: vec![1000; usize::from(node.gpus)],
        };
        Self { nodes: nodes.iter().map(left).collect(), typical }
    }

    /// Places a task if it fits: the node, and how much GPU it got there.
    pub fn place(&mut self, task: &Task) -> Option<usize> {
        let mut best: Option<(i64, usize, Left)> = None;
        for (at, node) in self.nodes.iter().enumerate() {
            for after in node.ways(task) {
                let drop = self.frag(node) - self.frag(&after);
                let score = (100.0 / (1.0 + (-drop / 1000.0).exp())).floor() as i64;
                if best.as_ref().is_none_or(|(most, _, _)| score > *most) {
                    best = Some((score, at, after));
                }
            }
        }
        let (_, at, after) = best?;
        self.nodes[at] = after;
        Some(at)
    }

    fn frag(&self, node: &Left) -> f64 {
        let total: f64 = node.gpus.iter().map(|left| f64::from(*left)).sum();
        let of = |task: &Task| {
            let able = node.gpus.iter().filter(|left| **left >= task.milli).count();
            let hosts = task.gpus > 0 && node.allows(task) && able >= usize::from(task.gpus) && node.cpu >= task.cpu;
            let small = node.gpus.iter().filter(|left| **left < task.milli);
            if hosts { small.map(|left| f64::from(*left)).sum() } else { total }
        };
        self.typical.iter().map(|one| one.part * of(&one.task)).sum()
    }
}

impl Left {
    fn allows(&self, task: &Task) -> bool {
        task.models >> self.model & 1 == 1
    }

    /// What would be left, for each device that can be chosen.
    fn ways(&self, task: &Task) -> Vec<Self> {
        if self.cpu < task.cpu || self.ram < task.ram || (task.gpus > 0 && !self.allows(task)) {
            return Vec::new();
        }
        let rest = Self { cpu: self.cpu - task.cpu, ram: self.ram - task.ram, ..self.clone() };
        let able: Vec<usize> = (0..self.gpus.len()).filter(|device| self.gpus[*device] >= task.milli).collect();
        match task.gpus {
            0 => vec![rest],
            1 if task.milli < 1000 => able.iter().map(|device| rest.with(&[*device], task.milli)).collect(),
            gpus if able.len() < usize::from(gpus) => Vec::new(),
            gpus => vec![rest.with(&able[..usize::from(gpus)], task.milli)],
        }
    }

    fn with(&self, devices: &[usize], milli: u16) -> Self {
        let mut after = self.clone();
        devices.iter().for_each(|device| after.gpus[*device] -= milli);
        after
    }
}
