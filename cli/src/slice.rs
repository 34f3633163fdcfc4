//! Slices as people write them: `1g.10gb`, `whole`, `share:250:4GiB`.

use selion_api::slice::{IsolationClass, SliceWant, Slot};
use selion_api::{GpuId, MemberWant};

use crate::unit::{memory, show_memory};

/// A slice: a MIG profile, `whole`, or `share:PERMILLE:MEMORY`, in small or capital letters. A profile may be written
/// as `mig:PROFILE` too, as in `SELION_SLICE`.
pub fn slice(written: &str) -> Result<SliceWant, String> {
    let bad = |why: &str| format!("`{written}` is not a slice: {why}; write 1g.10gb, whole or share:250:4GiB");
    let text = written.to_ascii_lowercase();
    let text = text.strip_prefix("mig:").unwrap_or(&text);
    if text == "whole" {
        return Ok(SliceWant::Whole);
    }
    if text.contains('@') {
        return Err(bad("the pool chooses the place on the GPU, so `@` and what follows are left out"));
    }
    if let Some(rest) = text.strip_prefix("share:") {
        let (permille, size) = rest.split_once(':').ok_or_else(|| bad("a share has two parts"))?;
        let compute_permille = permille.parse().ok().filter(|value| (1..=1000).contains(value));
        let compute_permille = compute_permille.ok_or_else(|| bad("compute is 1 to 1000 thousandths of a GPU"))?;
        let mem_bytes = memory(size).map_err(|error| bad(&error.to_string()))?;
        if mem_bytes == 0 {
            return Err(bad("a share has some memory"));
        }
        return Ok(SliceWant::Share { compute_permille, mem_bytes });
    }
    let is_profile = text.split_once("g.").is_some_and(|(compute, mem)| {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let size = mem.split_once("gb").map(|(size, _)| size);
        digits(compute) && size.is_some_and(digits)
    });
    if is_profile && text.len() <= 32 {
        return Ok(SliceWant::Mig { profile: text.to_owned() });
    }
    Err(bad("it is neither a MIG profile, nor `whole`, nor a share"))
}

/// The text that [`slice()`] reads.
pub fn show_want(want: &SliceWant) -> String {
    match want {
        SliceWant::Whole => "whole".to_owned(),
        SliceWant::Mig { profile } => profile.clone(),
        SliceWant::Share { compute_permille, mem_bytes } => {
            format!("share:{compute_permille}:{}", show_memory(*mem_bytes))
        }
    }
}

/// What a member asks for: `whole`, `4 GPUs`, `1g.10gb`.
pub fn show_member(want: &MemberWant) -> String {
    if want.gpus > 1 { format!("{} GPUs", want.gpus) } else { show_want(&want.slice) }
}

/// What a member has: so many whole GPUs, or its place on one.
pub fn show_places(gpus: usize, slot: &Slot) -> String {
    if gpus > 1 { format!("{gpus} GPUs") } else { show_slot(slot) }
}

/// GPUs by their ids.
pub fn show_gpus(gpus: &[GpuId]) -> String {
    gpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A place on a GPU: a MIG instance with its memory slices, `whole`, or a share.
pub fn show_slot(slot: &Slot) -> String {
    match slot {
        Slot::Whole => "whole".to_owned(),
        Slot::Mig { profile, start, size } => {
            format!("{profile} at {start}..{}", u16::from(*start) + u16::from(*size))
        }
        Slot::Share { compute_permille, mem_bytes } => {
            format!("share:{compute_permille}:{}", show_memory(*mem_bytes))
        }
    }
}

/// An isolation class by its word.
pub fn class(text: &str) -> Result<IsolationClass, String> {
    let found = IsolationClass::ALL.into_iter().find(|class| show_class(*class) == text);
    found.ok_or_else(|| {
        let words = IsolationClass::ALL.map(show_class).join(", ");
        format!("`{text}` is not an isolation class; write one of {words}")
    })
}

/// The class's word.
pub fn show_class(class: IsolationClass) -> &'static str {
    match class {
        IsolationClass::Mig => "mig",
        IsolationClass::Capped => "capped",
        IsolationClass::Mps => "mps",
        IsolationClass::Shared => "shared",
        IsolationClass::Whole => "whole",
        IsolationClass::Simulated => "simulated",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_share_reads_back_as_it_was_written(permille in 1_u16..=1000, bytes in 1_u64..) {
            let want = SliceWant::Share { compute_permille: permille, mem_bytes: bytes };
            prop_assert_eq!(slice(&show_want(&want)), Ok(want));
        }
    }

    #[test]
    fn the_three_forms_are_read() {
        assert_eq!(slice("whole"), Ok(SliceWant::Whole));
        assert_eq!(slice("1g.10gb"), Ok(SliceWant::Mig { profile: "1g.10gb".into() }));
        assert_eq!(slice("1g.12gb+me"), Ok(SliceWant::Mig { profile: "1g.12gb+me".into() }));
        assert_eq!(slice("WHOLE"), Ok(SliceWant::Whole));
        assert_eq!(slice("mig:1g.10gb"), slice("1g.10gb"));
        assert!(slice("mig:1g.10gb@2").unwrap_err().contains("the pool chooses the place"));
        assert_eq!(slice("share:250:4GiB"), Ok(SliceWant::Share { compute_permille: 250, mem_bytes: 4 << 30 }));
    }

    #[test]
    fn several_gpus_are_told_by_their_number() {
        let want = |gpus| MemberWant { gpus, ..MemberWant::of(SliceWant::Whole) };
        assert_eq!((show_member(&want(1)), show_member(&want(4))), ("whole".into(), "4 GPUs".into()));
        assert_eq!((show_places(1, &Slot::Whole), show_places(2, &Slot::Whole)), ("whole".into(), "2 GPUs".into()));
        let ids = [1, 2].map(|id| GpuId([id; 16]));
        assert_eq!(show_gpus(&ids), format!("{}, {}", ids[0], ids[1]));
        assert_eq!(show_gpus(&[]), "");
    }

    #[test]
    fn a_wrong_slice_names_the_right_forms() {
        for bad in [
            "",
            "half",
            "share:0:4GiB",
            "share:1001:4GiB",
            "share:250",
            "share:250:4G",
            "share:1:0B",
            "g.gb",
            "mig:",
            "mig:1g.10gb@2",
        ] {
            let error = slice(bad).unwrap_err();
            assert!(error.contains("write 1g.10gb, whole or share:250:4GiB"), "{error}");
        }
    }

    #[test]
    fn a_class_is_known_by_its_word() {
        for known in IsolationClass::ALL {
            assert_eq!(class(show_class(known)), Ok(known));
            let word = serde_json::to_value(known).unwrap();
            assert_eq!(word, show_class(known));
        }
        assert!(class("bare").unwrap_err().contains("mig, capped"));
    }
}
