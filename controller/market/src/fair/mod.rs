//! Weighted hierarchical dominant resource fairness in integers: whose turn it is in a tree of accounts.
//!
//! The rule is that of Bhattacharya et al., "Hierarchical Scheduling for Diverse Datacenter Workloads" (SoCC 2013).
//! The share of a leaf is the largest of its parts of any resource, over its weight. The share of an inner twig is made
//! from its children: those that can get more (*open*) are scaled down to the least of them, those that cannot
//! (*blocked*) count as they are, and resources that are saturated do not count. Without the scaling a child that
//! wants little else starves beside one that took much; without the blocked rule the parent of a blocked child is
//! served twice.
//!
//! Tasks here are few and large where the paper's are endlessly small. An open child that holds nothing yet would
//! scale its whole family to nothing until it is served, and a family of sixteen would take sixteen turns against
//! one. So an open child counts as holding at least one of its next tasks when the least is sought: in the limit of
//! small tasks that is the paper's rule.

mod decay;
mod part;
mod tree;

pub use decay::{decay, mean};
pub use part::{ONE, part};
pub use tree::{DEPTH, Path, Tree, Twig};
