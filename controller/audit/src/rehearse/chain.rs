//! Frauds with facts of the chain: the log says otherwise than the chain, or the chain otherwise than the bills.

use std::collections::BTreeMap;

use selion_api::chain::{Block, ChainEvent};
use selion_api::{Account, Amount, Hash32, LeaseId};
use selion_market::{Effect, Input};

use super::frauds::missing;
use super::{Book, Lie, RehearseError};
use crate::chain::Facts;

type Told = Result<Lie, RehearseError>;

/// Blocks of the made chain that are final, and hold nothing, after the last with events.
const QUIET: u64 = 10;

/// Plants each of them in a copy of its own.
pub(super) fn all(book: &Book, leases: [LeaseId; 3]) -> Result<Vec<Lie>, RehearseError> {
    Ok(vec![dropped_event(book)?, foreign_block(book)?, invented_block(book)?, claim_above_bill(book, leases[0])?])
}

/// The chain that a book tells truly.
pub(super) fn told(book: &Book) -> Facts {
    let blocks: BTreeMap<u64, Block> = book
        .drafts
        .iter()
        .filter_map(|draft| match &draft.input {
            Input::Block(block) => Some((block.number, block.clone())),
            _ => None,
        })
        .collect();
    let last = blocks.keys().next_back().map_or(0, |last| last + QUIET);
    Facts { last, ..Facts::told(blocks) }
}

fn lie(fraud: &'static str, (check, entry): (&'static str, usize), planted: String, book: &Book, chain: Facts) -> Told {
    let (log, chain) = (book.seal()?, Some(chain));
    let (anchors, proofs, promises) = (Vec::new(), Vec::new(), Vec::new());
    Ok(Lie { fraud, planted, check, entry: Some(entry), log, anchors, proofs, promises, chain })
}

/// The last entry that brings a block with several events.
fn last_block(book: &Book) -> Result<usize, RehearseError> {
    let several = |input: &Input| matches!(input, Input::Block(block) if block.events.len() > 1);
    book.drafts.iter().rposition(|draft| several(&draft.input)).ok_or_else(|| missing("block with several events"))
}

/// The same history with a block in it changed: right in itself.
fn with_block(book: &Book, entry: usize, change: impl FnOnce(&mut Block)) -> Book {
    book.again(|inputs| {
        if let Some((_, Input::Block(block))) = inputs.get_mut(entry) {
            change(block);
        }
    })
}

fn dropped_event(book: &Book) -> Told {
    let entry = last_block(book)?;
    let other = with_block(book, entry, |block| drop(block.events.pop()));
    let planted = format!("entry {entry} leaves out an event of its block, and the rest is right in itself");
    lie("dropped_event", ("chain_blocks_in_log", entry), planted, &other, told(book))
}

fn foreign_block(book: &Book) -> Told {
    let entry = last_block(book)?;
    let other = with_block(book, entry, |block| block.hash = Hash32([0xfe; 32]));
    let planted = format!("the block of entry {entry} is one of another chain, with the same events");
    lie("foreign_block", ("chain_blocks_in_log", entry), planted, &other, told(book))
}

fn invented_block(book: &Book) -> Told {
    let mut other = book.clone();
    let renter = other.cast.renters[0].account();
    let entry = other.drafts.len();
    other.block(vec![ChainEvent::Deposited { renter, amount: Amount(1_000_000) }]);
    let planted = "a deposit is credited from a block that the chain does not have".to_owned();
    lie("invented_block", ("chain_blocks_in_log", entry), planted, &other, told(book))
}

/// The chain pays a voucher that the log never billed, as it does for two stolen keys; the log tells it truly.
fn claim_above_bill(book: &Book, lease: LeaseId) -> Told {
    let (mut other, (renter, provider, billed)) = (book.clone(), billed(book, lease)?);
    let cumulative = Amount(billed.0 + 1);
    let entry = other.drafts.len();
    other.block(vec![ChainEvent::Claimed { provider, renter, cumulative, paid: cumulative, key: None }]);
    let planted = format!("{cumulative} is claimed on chain, {billed} was billed");
    lie("claim_above_bill", ("claims_covered", entry), planted, &other, told(&other))
}

/// Who owes whom by the bill of a lease, and what.
fn billed(book: &Book, lease: LeaseId) -> Result<(Account, Account, Amount), RehearseError> {
    let bill = book.drafts.iter().flat_map(|draft| &draft.effects).find_map(|effect| match effect {
        Effect::Billed(line) if line.lease == lease => Some((line.renter, line.provider, line.amount)),
        _ => None,
    });
    bill.ok_or_else(|| missing("bill"))
}
