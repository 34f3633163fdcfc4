//! Which system calls a box may make: one reviewed list (`table`), rendered as filters for the sandbox of our own
//! (`bpf`) and as a profile for an OCI runtime (`oci`).

mod bpf;
mod oci;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use bpf::Filters;
pub(crate) use oci::profile;
pub(crate) use table::Arch;
