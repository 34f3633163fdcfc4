//! What is left on every node and device, and the only two operations that change it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;

use super::terms::mig::Layout;
use super::view::{Shape, View, WHOLE, Want};

/// Most devices of a node: they are bits of a `u64`.
pub const MAX_DEVICES: u8 = 64;

/// A node as it joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeShape {
    /// Interned GPU model, below 64.
    pub model: u8,
    /// CPU, in thousandths of a core.
    pub cpu: u32,
    /// Memory, in MiB.
    pub ram: u32,
    /// Devices, at most 64.
    pub gpus: u8,
    /// Number of the MIG table of its devices, if they can be partitioned: 0 is the 8-slice family, 1 the 4-slice one.
    pub table: Option<u8>,
    /// The topology domain it is in, such as a rack.
    pub domain: u32,
}

impl NodeShape {
    /// A node in domain 0 whose devices cannot be partitioned.
    #[must_use]
    pub const fn new(model: u8, cpu: u32, ram: u32, gpus: u8) -> Self {
        Self { model, cpu, ram, gpus, table: None, domain: 0 }
    }
}

/// A place for one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choice {
    /// Rank of the node.
    pub node: u32,
    /// The devices, one bit each; none for CPU-only work.
    pub devices: u64,
    /// First memory slice of a MIG instance, else 0.
    pub start: u8,
}

impl Choice {
    /// The lowest device.
    #[must_use]
    pub fn device(&self) -> Option<u8> {
        (self.devices != 0).then(|| u8::try_from(self.devices.trailing_zeros()).unwrap_or(0))
    }
}

/// Why a choice cannot be taken or released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// No class has that number.
    NoClass(u32),
    /// No node has that rank.
    NoNode(u32),
    /// There is not that much left on the node.
    NoRoom(Choice),
    /// Nothing like it was taken there.
    NotTaken(Choice),
}

impl fmt::Display for Misfit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoClass(class) => write!(out, "no class {class}: intern the request first"),
            Self::NoNode(rank) => write!(out, "no node of rank {rank}"),
            Self::NoRoom(at) => write!(out, "node {} has no room for it on devices {:#b}", at.node, at.devices),
            Self::NotTaken(at) => {
                write!(out, "nothing like it is taken on node {}, devices {:#b}", at.node, at.devices)
            }
        }
    }
}

impl core::error::Error for Misfit {}

const NO_TABLE: u8 = u8::MAX;
/// The kind of nodes of which there are too many kinds.
const NO_KIND: u16 = u16::MAX;

/// Devices whose thousandths are kept with the node.
const NEAR: usize = 8;

/// Half a cache line: what judging a request reads first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(32))]
pub(super) struct Node {
    pub model: u8,
    pub table: u8,
    pub devices: u8,
    /// Wholly free devices.
    pub free: u8,
    pub cpu: u32,
    pub ram: u32,
    /// Sum of what is left on the devices: at most 64,000.
    pub total: u16,
    /// What is left on the device that has most.
    pub most: u16,
    /// Thousandths left on each device, if there are at most so many.
    near: [u16; NEAR],
}

impl Node {
    /// A node as it is seen. What is near is not filled in.
    pub(super) fn seen(view: &View<'_>) -> Self {
        let free = view.left.iter().filter(|left| **left == WHOLE).count();
        Self {
            model: view.model,
            table: NO_TABLE,
            devices: u8::try_from(view.left.len()).unwrap_or(u8::MAX),
            free: u8::try_from(free).unwrap_or(u8::MAX),
            cpu: view.cpu,
            ram: view.ram,
            total: view.left.iter().fold(0, |sum, left| sum.saturating_add(*left)),
            most: view.left.iter().copied().max().unwrap_or(0),
            near: [0; NEAR],
        }
    }
}

/// What a device has left, and its MIG slices, after a change for a request at that MIG start; `None` if it cannot be.
type Next = fn(&Nodes, (u32, &Node), &Want, u8, usize) -> Option<(u16, u8)>;

/// All nodes, by rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    nodes: Vec<Node>,
    shapes: Vec<NodeShape>,
    /// By rank, a number that nodes of one shape have in common, wherever they are.
    kinds: Vec<u16>,
    /// Where the devices of each node begin in what follows.
    firsts: Vec<usize>,
    /// Thousandths left on each device of each node that has too many to keep near; of others it is not kept up.
    far: Vec<u16>,
    /// MIG slices taken on each device of each node.
    mask: Vec<u8>,
    /// Ranks of nodes that take nothing new.
    closed: BTreeSet<u32>,
    tables: Vec<Layout>,
}

impl Nodes {
    /// Empty nodes. Of a node with more than 64 devices the first 64 count; models from 64 on count as 63.
    #[must_use]
    pub fn new(shapes: &[NodeShape], tables: Vec<Layout>) -> Self {
        let mut all = Self {
            nodes: Vec::new(),
            shapes: Vec::new(),
            kinds: Vec::new(),
            firsts: Vec::new(),
            far: Vec::new(),
            mask: Vec::new(),
            closed: BTreeSet::new(),
            tables,
        };
        let mut kinds = BTreeMap::new();
        for shape in shapes {
            let shape = NodeShape { gpus: shape.gpus.min(MAX_DEVICES), model: shape.model.min(63), ..*shape };
            all.firsts.push(all.far.len());
            all.nodes.push(Node {
                model: shape.model,
                table: shape.table.unwrap_or(NO_TABLE),
                devices: shape.gpus,
                free: shape.gpus,
                cpu: shape.cpu,
                ram: shape.ram,
                total: u16::from(shape.gpus) * WHOLE,
                most: if shape.gpus == 0 { 0 } else { WHOLE },
                near: [WHOLE; NEAR],
            });
            all.far.resize(all.far.len() + usize::from(shape.gpus), WHOLE);
            all.mask.resize(all.far.len(), 0);
            all.shapes.push(shape);
            let next = u16::try_from(kinds.len()).unwrap_or(NO_KIND);
            all.kinds.push(*kinds.entry(NodeShape { domain: 0, ..shape }).or_insert(next));
        }
        all
    }

    /// How many nodes.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The node as it joined.
    #[must_use]
    pub fn shape(&self, rank: u32) -> Option<&NodeShape> {
        self.shapes.get(rank as usize)
    }

    pub(super) fn node(&self, rank: u32) -> Option<&Node> {
        self.nodes.get(rank as usize)
    }

    fn range(&self, rank: u32) -> core::ops::Range<usize> {
        let first = self.firsts.get(rank as usize).copied().unwrap_or(usize::MAX);
        first..first.saturating_add(self.node(rank).map_or(0, |node| node.devices.into()))
    }

    pub(super) fn ranked(&self) -> impl Iterator<Item = (u32, &Node)> {
        (0..).zip(&self.nodes)
    }

    pub(super) fn left<'a>(&'a self, rank: u32, node: &'a Node) -> &'a [u16] {
        match node.near.get(..usize::from(node.devices)) {
            Some(near) => near,
            None => self.far.get(self.range(rank)).unwrap_or(&[]),
        }
    }

    fn masks(&self, rank: u32) -> &[u8] {
        self.mask.get(self.range(rank)).unwrap_or(&[])
    }

    /// What is left on a node.
    #[must_use]
    pub fn view(&self, rank: u32) -> Option<View<'_>> {
        let node = self.node(rank)?;
        Some(View { model: node.model, cpu: node.cpu, ram: node.ram, left: self.left(rank, node) })
    }

    /// The MIG slices taken on each device of a node.
    #[must_use]
    pub fn mig(&self, rank: u32) -> Option<&[u8]> {
        self.node(rank).map(|_| self.masks(rank))
    }

    /// The MIG table of that number.
    #[must_use]
    pub fn table(&self, number: u8) -> Option<&Layout> {
        self.tables.get(usize::from(number))
    }

    /// The MIG tables, by number.
    #[must_use]
    pub fn tables(&self) -> &[Layout] {
        &self.tables
    }

    /// Thousandths of all devices.
    #[must_use]
    pub fn capacity_milli(&self) -> u64 {
        self.far.len() as u64 * u64::from(WHOLE)
    }

    /// Thousandths of all devices that are not taken; free slices of a partitioned device count by their share of it.
    #[must_use]
    pub fn free_milli(&self) -> u64 {
        let of = |(rank, node): (u32, &Node)| {
            let slices = |mask: &u8| match self.table(node.table) {
                Some(table) if *mask != 0 => table.free(*mask) * u64::from(WHOLE) / u64::from(table.slices.max(1)),
                _ => 0,
            };
            u64::from(node.total) + self.masks(rank).iter().map(slices).sum::<u64>()
        };
        self.ranked().map(of).sum()
    }

    /// Closes a node, so that it takes nothing new, or opens it. What runs there is not touched.
    pub(super) fn close(&mut self, rank: u32, closed: bool) {
        if closed {
            self.closed.insert(rank);
        } else {
            self.closed.remove(&rank);
        }
    }

    pub(super) fn is_closed(&self, rank: u32) -> bool {
        !self.closed.is_empty() && self.closed.contains(&rank)
    }

    /// The number of the node's kind if it is open and nothing of it is taken. Nodes of one kind are equal then.
    pub(super) fn empty(&self, rank: u32) -> Option<u16> {
        let (node, shape) = (self.node(rank)?, self.shape(rank)?);
        let empty = node.free == node.devices && (node.cpu, node.ram) == (shape.cpu, shape.ram);
        let kind = self.kinds.get(rank as usize).copied().filter(|kind| *kind != NO_KIND);
        kind.filter(|_| empty && !self.is_closed(rank))
    }

    /// True if the node is open, and CPU, memory and model allow the request on it.
    pub(super) fn hosts(&self, rank: u32, node: &Node, want: &Want) -> bool {
        !self.is_closed(rank)
            && node.cpu >= want.cpu
            && node.ram >= want.ram
            && want.models >> (node.model & 63) & 1 == 1
    }

    /// The MIG slices that the choice is about; all for what is no MIG instance.
    pub(super) fn slices(&self, want: &Want, choice: &Choice) -> u8 {
        let taken = match want.shape {
            Shape::Mig { table, profile } => self.table(table).and_then(|table| table.taken(profile, choice.start)),
            _ => None,
        };
        taken.unwrap_or(u8::MAX)
    }

    /// What a device of the node has left, and its MIG slices, once the request takes it; `None` if it cannot.
    fn taken(&self, (rank, node): (u32, &Node), want: &Want, start: u8, device: usize) -> Option<(u16, u8)> {
        let (left, mask) = (*self.left(rank, node).get(device)?, *self.masks(rank).get(device)?);
        match want.shape {
            Shape::None => None,
            Shape::Share(milli) => Some((left.checked_sub(milli)?, mask)),
            Shape::Whole(_) => Some((left.checked_sub(WHOLE)?, mask)),
            Shape::Mig { table, profile } => {
                let bits = self.table(table).filter(|_| node.table == table)?.taken(profile, start)?;
                let open = mask != 0 || left == WHOLE;
                (open && bits & mask == 0).then_some((0, bits | mask))
            }
        }
    }

    /// The same once it gives the device back; `None` if it did not have it.
    fn freed(&self, (rank, node): (u32, &Node), want: &Want, start: u8, device: usize) -> Option<(u16, u8)> {
        let (left, mask) = (*self.left(rank, node).get(device)?, *self.masks(rank).get(device)?);
        let add = |milli: u16| left.checked_add(milli).filter(|left| *left <= WHOLE && mask == 0);
        match want.shape {
            Shape::None => None,
            Shape::Share(milli) => Some((add(milli)?, mask)),
            Shape::Whole(_) => Some((add(WHOLE)?, mask)),
            Shape::Mig { table, profile } => {
                let bits = self.table(table).filter(|_| node.table == table)?.taken(profile, start)?;
                let rest = (bits & mask == bits).then_some(mask & !bits)?;
                Some((if rest == 0 { WHOLE } else { 0 }, rest))
            }
        }
    }

    fn set(&mut self, rank: u32, device: usize, (left, mask): (u16, u8)) {
        let range = self.range(rank);
        let Some(node) = self.nodes.get_mut(rank as usize) else { return };
        let lefts = match node.near.get_mut(..usize::from(node.devices)) {
            Some(near) => near,
            None => self.far.get_mut(range.clone()).unwrap_or(&mut []),
        };
        let masks = self.mask.get_mut(range).unwrap_or(&mut []);
        if let (Some(old_left), Some(old_mask)) = (lefts.get_mut(device), masks.get_mut(device)) {
            (*old_left, *old_mask) = (left, mask);
        }
        node.total = lefts.iter().copied().fold(0, u16::saturating_add);
        node.most = lefts.iter().copied().max().unwrap_or(0);
        node.free = u8::try_from(lefts.iter().filter(|left| **left == WHOLE).count()).unwrap_or(u8::MAX);
    }

    /// Sets the devices of the choice as `next` has them, if it has all of them and they are as many as asked for.
    fn change(&mut self, want: &Want, choice: &Choice, next: Next) -> Option<()> {
        let node = self.node(choice.node)?;
        let able = |device| next(self, (choice.node, node), want, choice.start, device).is_some();
        (choice.devices.count_ones() == devices_of(want.shape) && bits(choice.devices).all(able)).then_some(())?;
        for device in bits(choice.devices) {
            let after = next(self, (choice.node, self.node(choice.node)?), want, choice.start, device)?;
            self.set(choice.node, device, after);
        }
        Some(())
    }

    /// Takes the request's devices, CPU and memory.
    ///
    /// # Errors
    ///
    /// [`Misfit::NoRoom`] if there is not that much left; nothing is changed then.
    pub fn take(&mut self, want: &Want, choice: &Choice) -> Result<(), Misfit> {
        let hosts = self.node(choice.node).is_some_and(|node| self.hosts(choice.node, node, want));
        let taken = if hosts { self.change(want, choice, Self::taken) } else { None };
        taken.ok_or(Misfit::NoRoom(*choice))?;
        if let Some(node) = self.nodes.get_mut(choice.node as usize) {
            node.cpu = node.cpu.saturating_sub(want.cpu);
            node.ram = node.ram.saturating_sub(want.ram);
        }
        Ok(())
    }

    /// Gives them back.
    ///
    /// # Errors
    ///
    /// [`Misfit::NotTaken`] if more would be free than there is; nothing is changed then.
    pub fn release(&mut self, want: &Want, choice: &Choice) -> Result<(), Misfit> {
        let within = |(node, shape): (&Node, &NodeShape)| {
            let cpu = node.cpu.checked_add(want.cpu).is_some_and(|cpu| cpu <= shape.cpu);
            cpu && node.ram.checked_add(want.ram).is_some_and(|ram| ram <= shape.ram)
        };
        let held = self.node(choice.node).zip(self.shape(choice.node)).is_some_and(within);
        let freed = if held { self.change(want, choice, Self::freed) } else { None };
        freed.ok_or(Misfit::NotTaken(*choice))?;
        if let Some(node) = self.nodes.get_mut(choice.node as usize) {
            node.cpu = node.cpu.saturating_add(want.cpu);
            node.ram = node.ram.saturating_add(want.ram);
        }
        Ok(())
    }
}

/// How many devices of a node a request takes.
fn devices_of(shape: Shape) -> u32 {
    match shape {
        Shape::None => 0,
        Shape::Share(_) | Shape::Mig { .. } => 1,
        Shape::Whole(count) => count.into(),
    }
}

/// The bits that are set, ascending.
pub(super) fn bits(mut devices: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let device = (devices != 0).then_some(devices.trailing_zeros() as usize)?;
        devices &= devices - 1;
        Some(device)
    })
}
