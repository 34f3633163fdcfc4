//! The list in the words of an OCI runtime, which makes a filter of it.
//!
//! Comparisons there are of 64 bits, while the kernel looks at 32 of these arguments; so all are under a mask. Two
//! comparisons of one argument in one rule mean *or* to some runtimes and *and* to others; so a rule has one for each
//! argument, and *none of these* is told as several rules.

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Arch as OciArch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder, LinuxSeccompBuilder,
    LinuxSeccompOperator, LinuxSyscallBuilder,
};

use super::table::{ALLOWED, Arch, CONDITIONAL, Conditional, Is, REFUSED, Test};

/// `linux.seccomp` for an architecture: what is not named gets `ENOSYS`, and so does a call whose condition fails.
///
/// # Errors
///
/// None that is known: the builders ask for fields that are all given.
pub(crate) fn profile(arch: Arch) -> Result<LinuxSeccomp, OciSpecError> {
    let names = |calls: &mut dyn Iterator<Item = &'static str>| calls.map(str::to_owned).collect::<Vec<_>>();
    let allow = || LinuxSyscallBuilder::default().action(LinuxSeccompAction::ScmpActAllow);
    let mut rules = vec![
        allow().names(names(&mut ALLOWED.of(arch))).build()?,
        LinuxSyscallBuilder::default()
            .action(LinuxSeccompAction::ScmpActErrno)
            .errno_ret(libc::EPERM.cast_unsigned())
            .names(names(&mut REFUSED.of(arch)))
            .build()?,
    ];
    for conditional in CONDITIONAL.of(arch) {
        for row in rows(conditional) {
            let args = row.into_iter().map(masked).collect::<Result<Vec<_>, _>>()?;
            rules.push(allow().names(vec![conditional.call.to_owned()]).args(args).build()?);
        }
    }
    LinuxSeccompBuilder::default()
        .default_action(LinuxSeccompAction::ScmpActErrno)
        .default_errno_ret(libc::ENOSYS.cast_unsigned())
        .architectures(vec![match arch {
            Arch::X86_64 => OciArch::ScmpArchX86_64,
            Arch::Aarch64 => OciArch::ScmpArchAarch64,
        }])
        .syscalls(rules)
        .build()
}

/// An argument, a mask and the value under it.
type Comparison = (u8, u32, u32);

fn masked((argument, mask, value): Comparison) -> Result<LinuxSeccompArg, OciSpecError> {
    LinuxSeccompArgBuilder::default()
        .index(usize::from(argument))
        .op(LinuxSeccompOperator::ScmpCmpMaskedEq)
        .value(u64::from(mask))
        .value_two(u64::from(value))
        .build()
}

/// The rows with one comparison for each argument.
fn rows(conditional: &Conditional) -> Vec<Vec<Comparison>> {
    let each = |row: &&[Test]| {
        row.iter().fold(vec![Vec::new()], |rows: Vec<Vec<Comparison>>, test| {
            let ways = ways(test);
            rows.iter().flat_map(|row| ways.iter().map(|way| [row.as_slice(), &[*way]].concat())).collect()
        })
    };
    conditional.rows.iter().flat_map(each).collect()
}

/// Comparisons of which one is true where the test passes.
fn ways(test: &Test) -> Vec<Comparison> {
    let pairs = match test.is {
        Is::Masked(mask, value) => vec![(mask, value)],
        Is::Not(values) => {
            let mut pairs = Vec::new();
            outside(values, 0, 0, &mut pairs);
            pairs
        }
    };
    pairs.into_iter().map(|(mask, value)| (test.argument, mask, value)).collect()
}

/// Adds the fewest disjoint masks and values that cover all words which begin with these bits and are none of `values`.
fn outside(values: &[u32], mask: u32, beginning: u32, found: &mut Vec<(u32, u32)>) {
    if !values.iter().any(|value| value & mask == beginning) {
        found.push((mask, beginning));
        return;
    }
    // The next bit, from the highest; the recursion ends with the last.
    let bit = (mask >> 1 | 1 << 31) & !mask;
    if bit != 0 {
        outside(values, mask | bit, beginning, found);
        outside(values, mask | bit, beginning | bit, found);
    }
}
