//! The list as filters for the kernel, for the sandbox of our own.
//!
//! One filter knows two answers and three are needed, so there are two. The first lets the allowed calls pass and says
//! `EPERM` to all others. The second, installed last, lets every call pass that the list names and says `ENOSYS` to all
//! others. The kernel asks both and takes the error of the filter that was installed last.

use seccompiler::{BpfProgram, TargetArch, apply_filter, compile_from_json};
use serde_json::{Value, json};

use super::table::{ALLOWED, Arch, CONDITIONAL, Conditional, Is, REFUSED, Test};

/// Both filters, in the order in which they are installed.
#[derive(Debug)]
pub(crate) struct Filters {
    pub(super) permits: BpfProgram,
    pub(super) knows: BpfProgram,
}

impl Filters {
    /// Makes them for an architecture. A process of another (a 32-bit program, say) is killed at its first call.
    ///
    /// # Errors
    ///
    /// A name in the list that is no call of the architecture, in words.
    pub(crate) fn make(arch: Arch) -> Result<Self, String> {
        let target = match arch {
            Arch::X86_64 => TargetArch::x86_64,
            Arch::Aarch64 => TargetArch::aarch64,
        };
        let filters = json!({
            "permits": { "match_action": "allow", "mismatch_action": { "errno": libc::EPERM }, "filter": permitted(arch) },
            "knows": { "match_action": "allow", "mismatch_action": { "errno": libc::ENOSYS }, "filter": known(arch) },
        });
        let mut made = compile_from_json(filters.to_string().as_bytes(), target)
            .map_err(|error| format!("the list of system calls: {error}"))?;
        let mut take =
            |name: &str| made.remove(name).ok_or_else(|| format!("the list of system calls: no filter {name}"));
        Ok(Self { permits: take("permits")?, knows: take("knows")? })
    }

    /// Puts the calling thread, and whatever it starts, under both for good. Needs no right; sets that no privileges can
    /// be gained.
    ///
    /// # Errors
    ///
    /// The kernel's, in words.
    pub(crate) fn install(&self) -> Result<(), String> {
        for filter in [&self.permits, &self.knows] {
            apply_filter(filter).map_err(|error| format!("install the filter of system calls: {error}"))?;
        }
        Ok(())
    }
}

/// Rules of the first filter.
fn permitted(arch: Arch) -> Vec<Value> {
    let free = ALLOWED.of(arch).map(any);
    let bound = CONDITIONAL.of(arch).flat_map(rules);
    free.chain(bound).collect()
}

/// Rules of the second.
fn known(arch: Arch) -> Vec<Value> {
    let conditional = CONDITIONAL.of(arch).map(|conditional| conditional.call);
    ALLOWED.of(arch).chain(conditional).chain(REFUSED.of(arch)).map(any).collect()
}

fn any(call: &str) -> Value {
    json!({ "syscall": call })
}

fn rules(conditional: &'static Conditional) -> impl Iterator<Item = Value> {
    conditional.rows.iter().map(|row| {
        let tests: Vec<Value> = row.iter().flat_map(comparisons).collect();
        json!({ "syscall": conditional.call, "args": tests })
    })
}

/// A test in comparisons that all have to be true.
fn comparisons(test: &Test) -> Vec<Value> {
    let compare = |op: Value, value: u32| json!({ "index": test.argument, "type": "dword", "op": op, "val": value });
    match test.is {
        Is::Masked(mask, value) => vec![compare(json!({ "masked_eq": mask }), value)],
        Is::Not(values) => values.iter().map(|value| compare(json!("ne"), *value)).collect(),
    }
}
