//! The lists that experiments read: GPU nodes, tasks, and published results beside them.

mod nodes;
mod published;
mod tasks;

pub use nodes::{Cluster, Models, Node};
pub use published::{Published, published};
pub use tasks::{SIZES, Size, Task, TaskList};
