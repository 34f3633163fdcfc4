//! Published effects, read back from their leaves. Grants and bill lines have a fixed ABI width (see
//! `selion_market::effect::abi`); this is the reading that a contract would do in a dispute.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use selion_api::{Account, Amount, GpuId, IsolationClass, LeaseId, NodeId, Rate};
use selion_market::Effect;

/// Words of a grant and of a bill line.
const GRANT_WORDS: usize = 14;
const BILL_WORDS: usize = 10;

/// One member of one run.
pub(crate) type Run = (LeaseId, u32, u16);

/// Where a grant stands on its GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Whole,
    Mig { start: u64, size: u64 },
    Share { permille: u64, mem_bytes: u64 },
}

/// A grant of one GPU, as its leaf tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrantSeen {
    pub run: Run,
    pub renter: Account,
    pub provider: Account,
    pub node: NodeId,
    pub gpu: GpuId,
    pub place: Place,
    pub class: IsolationClass,
    pub rate: Rate,
}

/// Notes a grant. A member of several GPUs has one for each: what it costs is their sum.
pub(crate) fn add_up(runs: &mut BTreeMap<Run, GrantSeen>, grant: GrantSeen) {
    match runs.entry(grant.run) {
        Entry::Vacant(none) => {
            none.insert(grant);
        }
        Entry::Occupied(mut first) => first.get_mut().rate = first.get().rate.saturating_add(grant.rate),
    }
}

/// A bill line, as its leaf tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BillSeen {
    pub run: Run,
    pub renter: Account,
    pub provider: Account,
    pub rate: Rate,
    pub billable_ms: u64,
    pub amount: Amount,
}

/// An effect, as its leaf tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Grant(GrantSeen),
    Bill(BillSeen),
    Other(Box<Effect>),
}

impl Seen {
    /// The effect of a leaf; `None` if it is none.
    pub(crate) fn read(leaf: &[u8]) -> Option<Self> {
        let words: Vec<&[u8; 32]> = leaf.as_chunks::<32>().0.iter().collect();
        match (leaf.len() / 32, leaf.len() % 32) {
            (GRANT_WORDS, 0) => grant(&words).map(Self::Grant),
            (BILL_WORDS, 0) => bill(&words).map(Self::Bill),
            _ => borsh::from_slice(leaf).ok().map(|effect| Self::Other(Box::new(effect))),
        }
    }
}

fn number(words: &[&[u8; 32]], at: usize) -> Option<u64> {
    let (high, low) = words.get(at)?.split_last_chunk::<8>()?;
    high.iter().all(|byte| *byte == 0).then(|| u64::from_be_bytes(*low))
}

fn tail<const N: usize>(words: &[&[u8; 32]], at: usize) -> Option<[u8; N]> {
    let (high, low) = words.get(at)?.split_last_chunk::<N>()?;
    high.iter().all(|byte| *byte == 0).then_some(*low)
}

fn run(words: &[&[u8; 32]]) -> Option<Run> {
    let lease = LeaseId { seq: number(words, 1)?, index: number(words, 2)?.try_into().ok()? };
    let attempt = number(words, 3)?.try_into().ok()?;
    Some((lease, attempt, number(words, 4)?.try_into().ok()?))
}

fn grant(words: &[&[u8; 32]]) -> Option<GrantSeen> {
    let (a, b) = (number(words, 10)?, number(words, 11)?);
    let place = match number(words, 9)? {
        0 => Place::Whole,
        1 => Place::Mig { start: a, size: b },
        2 => Place::Share { permille: a, mem_bytes: b },
        _ => return None,
    };
    (number(words, 0)? == 1).then_some(())?;
    Some(GrantSeen {
        run: run(words)?,
        renter: Account(tail(words, 5)?),
        provider: Account(tail(words, 6)?),
        node: NodeId(tail(words, 7)?),
        gpu: GpuId(tail(words, 8)?),
        place,
        class: *IsolationClass::ALL.get(usize::try_from(number(words, 12)?).ok()?)?,
        rate: Rate(number(words, 13)?),
    })
}

fn bill(words: &[&[u8; 32]]) -> Option<BillSeen> {
    (number(words, 0)? == 3).then_some(())?;
    Some(BillSeen {
        run: run(words)?,
        renter: Account(tail(words, 5)?),
        provider: Account(tail(words, 6)?),
        rate: Rate(number(words, 7)?),
        billable_ms: number(words, 8)?,
        amount: Amount(number(words, 9)?),
    })
}

/// The effect in words.
pub(crate) fn in_words(leaf: &[u8]) -> String {
    match Seen::read(leaf) {
        Some(Seen::Grant(grant)) => {
            let place = match grant.place {
                Place::Whole => "the whole GPU".to_owned(),
                Place::Mig { start, size } => format!("memory slices {start}..{}", start + size),
                Place::Share { permille, mem_bytes } => format!("a share of {permille} permille and {mem_bytes} bytes"),
            };
            let (lease, attempt, member) = grant.run;
            format!(
                "grant of {lease} attempt {attempt} member {member}: {place} on {} of node {} at {} an hour",
                grant.gpu, grant.node, grant.rate
            )
        }
        Some(Seen::Bill(bill)) => {
            let (lease, attempt, member) = bill.run;
            format!(
                "bill of {lease} attempt {attempt} member {member}: {} ms at {} an hour = {}",
                bill.billable_ms, bill.rate, bill.amount
            )
        }
        Some(Seen::Other(effect)) => format!("{effect:?}"),
        None => format!("no effect ({} bytes)", leaf.len()),
    }
}

#[cfg(test)]
mod tests {
    use selion_api::lease::BillLine;
    use selion_api::{Reason, Slot};
    use selion_market::Grant;

    use super::*;

    #[test]
    fn a_leaf_reads_back_as_the_effect_it_was_made_from() {
        let lease = LeaseId { seq: 7, index: 1 };
        let grant = Grant {
            lease,
            attempt: 2,
            member: 3,
            renter: Account([1; 20]),
            provider: Account([2; 20]),
            node: NodeId([3; 20]),
            gpu: GpuId([4; 16]),
            slot: Slot::Mig { profile: "1g.10gb".into(), start: 2, size: 1 },
            class: IsolationClass::Mig,
            rate: Rate(9),
        };
        let Some(Seen::Grant(seen)) = Seen::read(&Effect::Granted(grant).leaf()) else {
            panic!("no grant was read");
        };
        assert_eq!(seen.run, (lease, 2, 3));
        assert_eq!(seen.place, Place::Mig { start: 2, size: 1 });
        assert_eq!((seen.gpu, seen.class, seen.rate), (GpuId([4; 16]), IsolationClass::Mig, Rate(9)));
        let line = BillLine {
            lease,
            attempt: 2,
            member: 3,
            renter: Account([1; 20]),
            provider: Account([2; 20]),
            rate: Rate(9),
            billable_ms: 5,
            amount: Amount(6),
        };
        let Some(Seen::Bill(seen)) = Seen::read(&Effect::Billed(line).leaf()) else {
            panic!("no bill was read");
        };
        assert_eq!((seen.billable_ms, seen.amount), (5, Amount(6)));
        let moved = Effect::NodeChanged { node: NodeId([3; 20]), reason: Some(Reason::NodeLost) };
        assert_eq!(Seen::read(&moved.leaf()), Some(Seen::Other(Box::new(moved))));
    }
}
