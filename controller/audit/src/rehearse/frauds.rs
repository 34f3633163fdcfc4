//! The frauds: one function each. Each changes a copy of an honest book and says which check has to see it, and where.

use selion_api::agent::{Promise, SignedPromise};
use selion_api::commit::PoolId;
use selion_api::lease::{BillLine, LeaseState};
use selion_api::rest::LoggedEntry;
use selion_api::{Account, Hash32, LeaseId, Rate};
use selion_log::{Entry, leaf_hash};
use selion_market::{Effect, Grant, Input, Pocket, Transfer};

use super::book::sign;
use super::{Book, Lie, RehearseError};
use crate::entries::Log;
use crate::heads::Anchor;
use crate::promise::KeptPromise;
use crate::proof::Proof;

/// What the frauds start from.
struct Stage<'a> {
    book: &'a Book,
    sealed: &'a [LoggedEntry],
    pool: &'a PoolId,
    leases: [LeaseId; 3],
}

type Told = Result<Lie, RehearseError>;

/// Plants each of them in a copy of its own.
pub(super) fn all(
    book: &Book,
    sealed: &[LoggedEntry],
    pool: &PoolId,
    leases: [LeaseId; 3],
) -> Result<Vec<Lie>, RehearseError> {
    let stage = Stage { book, sealed, pool, leases };
    [
        stage.favoured_renter(),
        stage.hidden_request(),
        stage.broken_promise(),
        stage.double_lease(),
        stage.altered_price(),
        stage.inflated_bill(),
        stage.stretched_bill(),
        stage.inflated_voucher(),
        stage.forged_report(),
        stage.forged_request(),
        stage.forged_head(),
        stage.false_state(),
        stage.forked_log(),
        stage.altered_entry(),
        stage.dropped_entry(),
        stage.heads_left_out(),
        stage.newest_head_left_out(),
        stage.entry_appended(),
    ]
    .into_iter()
    .collect()
}

pub(super) fn missing(what: &str) -> RehearseError {
    RehearseError::Story(format!("it has no {what}"))
}

impl Stage<'_> {
    /// The book changed and sealed.
    fn sealed(
        &self,
        fraud: &'static str,
        (check, entry): (&'static str, usize),
        planted: impl Into<String>,
        change: impl FnOnce(&mut Book) -> Result<(), RehearseError>,
    ) -> Told {
        let mut book = self.book.clone();
        change(&mut book)?;
        Ok(Self::lie(fraud, (check, Some(entry)), planted, book.seal()?))
    }

    fn lie(
        fraud: &'static str,
        (check, entry): (&'static str, Option<usize>),
        planted: impl Into<String>,
        log: Vec<LoggedEntry>,
    ) -> Lie {
        let planted = planted.into();
        let (anchors, proofs, promises) = (Vec::new(), Vec::new(), Vec::new());
        Lie { fraud, planted, check, entry, log, anchors, proofs, promises, chain: None }
    }

    fn grant(&self, lease: LeaseId) -> Result<(usize, usize, Grant), RehearseError> {
        let is_it = |effect: &Effect| matches!(effect, Effect::Granted(grant) if grant.lease == lease);
        let (entry, at) = self.book.find(is_it).ok_or_else(|| missing("grant"))?;
        match self.book.drafts.get(entry).and_then(|draft| draft.effects.get(at)) {
            Some(Effect::Granted(grant)) => Ok((entry, at, grant.clone())),
            _ => Err(missing("grant")),
        }
    }

    fn bill(&self) -> Result<(usize, usize, BillLine), RehearseError> {
        let first = self.leases[0];
        let is_it = |effect: &Effect| matches!(effect, Effect::Billed(line) if line.lease == first);
        let (entry, at) = self.book.find(is_it).ok_or_else(|| missing("bill"))?;
        match self.book.drafts.get(entry).and_then(|draft| draft.effects.get(at)) {
            Some(Effect::Billed(line)) => Ok((entry, at, line.clone())),
            _ => Err(missing("bill")),
        }
    }

    fn renter(&self, which: usize) -> Account {
        self.book.cast.renters.get(which).map_or(Account([0; 20]), |renter| renter.account())
    }

    fn favoured_renter(&self) -> Told {
        let [_, second, third] = self.leases;
        let (entry, ..) = self.grant(second)?;
        let (owner, other) = (self.renter(1), self.renter(2));
        let planted = format!("the GPU goes to {third}, who asked after {second}");
        self.sealed("favoured_renter", ("decisions_checked", entry), planted, |book| {
            for effect in book.effects(entry)? {
                match effect {
                    Effect::Moved { lease, .. } if *lease == second => *lease = third,
                    Effect::Granted(grant) if grant.lease == second => (grant.lease, grant.renter) = (third, other),
                    Effect::Moneyed(transfer) if transfer.to == Pocket::Reserved(owner) => {
                        (transfer.from, transfer.to) = (Pocket::Free(other), Pocket::Reserved(other));
                    }
                    _ => {}
                }
            }
            Ok(())
        })
    }

    /// The controller answers a request, and then writes a history in which it never came.
    fn hidden_request(&self) -> Told {
        let [_, second, _] = self.leases;
        let proof = Proof::of(&Log::read(self.sealed), self.pool, second)
            .map_err(|error| RehearseError::Story(error.to_string()))?;
        let (entry, log) = self.without(second)?;
        let planted = format!("the request of {second} was answered, and left out of the log");
        let lie = Self::lie("hidden_request", ("proofs_kept", Some(entry)), planted, log);
        Ok(Lie { proofs: vec![proof], ..lie })
    }

    /// The same, and all that the renter has is the promise that he was answered with.
    fn broken_promise(&self) -> Told {
        let [_, second, _] = self.leases;
        let (entry, log) = self.without(second)?;
        let promised = self.sealed.get(entry).and_then(|logged| hex::decode(&logged.entry).ok());
        let bytes = promised.ok_or_else(|| missing("request"))?;
        let fence = Entry::read(&bytes).map_err(|_| missing("request"))?.fence;
        let promise = Promise { account: self.renter(1), seq: second.seq, leaf: leaf_hash(&bytes), fence };
        let signature = self.book.cast.authority.sign_text(&promise.digest_to_sign(self.pool).0)?;
        let kept = KeptPromise { pool: *self.pool, signed: SignedPromise { promise, signature } };
        let planted = format!("entry {entry} was promised to the renter of {second}, and is another one in the log");
        let lie = Self::lie("broken_promise", ("promises_kept", Some(entry)), planted, log);
        Ok(Lie { promises: vec![kept], ..lie })
    }

    /// A history in which a lease was never asked for, and the entry that it was asked for in.
    fn without(&self, lease: LeaseId) -> Result<(usize, Vec<LoggedEntry>), RehearseError> {
        let entry = usize::try_from(lease.seq).map_err(|_| missing("request"))?;
        let other = self.book.again(|inputs| {
            inputs.remove(entry);
        });
        Ok((entry, other.seal()?))
    }

    fn double_lease(&self) -> Told {
        let [_, second, third] = self.leases;
        let (entry, at, grant) = self.grant(second)?;
        let planted = format!("the slot of {second} is given to {third} as well");
        self.sealed("double_lease", ("no_slot_twice", entry), planted, |book| {
            let twin = Effect::Granted(Grant { lease: third, renter: self.renter(2), ..grant });
            book.effects(entry)?.insert(at + 1, twin);
            Ok(())
        })
    }

    fn altered_price(&self) -> Told {
        let second = self.leases[1];
        let (entry, at, grant) = self.grant(second)?;
        let (rate, owner) = (Rate(grant.rate.0 * 2), self.renter(1));
        let planted = format!("{second} is granted at {rate} an hour, the ask is {}", grant.rate);
        self.sealed("altered_price", ("decisions_checked", entry), planted, |book| {
            for effect in book.effects(entry)? {
                if let Effect::Moneyed(Transfer { to, amount, .. }) = effect
                    && *to == Pocket::Reserved(owner)
                {
                    *amount = amount.saturating_add(*amount);
                }
            }
            book.set(entry, at, Effect::Granted(Grant { rate, ..grant }))
        })
    }

    fn inflated_bill(&self) -> Told {
        let (entry, at, mut line) = self.bill()?;
        line.amount.0 += 1;
        let planted = format!("the bill of {} is a unit too high", line.lease);
        self.sealed("inflated_bill", ("bills_recomputed", entry), planted, |book| {
            book.set(entry, at, Effect::Billed(line))
        })
    }

    fn stretched_bill(&self) -> Told {
        let (entry, at, mut line) = self.bill()?;
        line.billable_ms += 1;
        line.amount = line.rate.bill(line.billable_ms);
        let planted = format!("{} is billed for a millisecond that its node did not sign for", line.lease);
        self.sealed("stretched_bill", ("bills_recomputed", entry), planted, |book| {
            book.set(entry, at, Effect::Billed(line))
        })
    }

    fn inflated_voucher(&self) -> Told {
        let first = self.leases[0];
        let is_end = |effect: &Effect| matches!(effect, Effect::Moved { lease, state: LeaseState::Ended, .. } if *lease == first);
        let (entry, _) = self.book.find(is_end).ok_or_else(|| missing("end"))?;
        let planted = "a voucher is called for that is a unit above the bills";
        self.sealed("inflated_voucher", ("claims_covered", entry), planted, |book| {
            let due = book.effects(entry)?.iter_mut().find_map(|effect| match effect {
                Effect::VoucherDue(due) => Some(due),
                _ => None,
            });
            due.ok_or_else(|| missing("voucher"))?.cumulative.0 += 1;
            Ok(())
        })
    }

    fn forged_report(&self) -> Told {
        let first = self.leases[0];
        let is_it = |input: &Input| matches!(input, Input::Report(signed) if signed.report.lease == first);
        let entry = self.book.drafts.iter().position(|draft| is_it(&draft.input)).ok_or_else(|| missing("report"))?;
        let planted = "the controller signs a node's report with a key of its own";
        self.sealed("forged_report", ("signatures", entry), planted, |book| {
            let key = book.cast.authority.clone();
            if let Some(Input::Report(signed)) = book.drafts.get_mut(entry).map(|draft| &mut draft.input) {
                *signed = sign(self.pool, &key, signed.report.clone())?;
            }
            Ok(())
        })
    }

    fn forged_request(&self) -> Told {
        let entry = usize::try_from(self.leases[2].seq).map_err(|_| missing("request"))?;
        let planted = "a request is entered under a renter's name that he did not sign";
        self.sealed("forged_request", ("signatures", entry), planted, |book| {
            if let Some(Input::Request(asked)) = book.drafts.get_mut(entry).map(|draft| &mut draft.input) {
                asked.signature = Some(selion_api::Signature([7; 65]));
            }
            Ok(())
        })
    }

    fn forged_head(&self) -> Told {
        let entry = self.book.drafts.iter().position(|draft| draft.digest.is_some()).ok_or_else(|| missing("head"))?;
        let planted = "the heads are signed by somebody else";
        self.sealed("forged_head", ("heads_signed", entry), planted, |book| {
            book.cast.authority = book.cast.node.clone();
            Ok(())
        })
    }

    fn false_state(&self) -> Told {
        let entry = self.book.drafts.len().checked_sub(1).ok_or_else(|| missing("entry"))?;
        let planted = "the head promises a State that the rules do not give";
        self.sealed("false_state", ("state_digests", entry), planted, |book| {
            if let Some(draft) = book.drafts.get_mut(entry) {
                draft.digest = Some(Hash32([1; 32]));
            }
            Ok(())
        })
    }

    /// A log that is right in itself, and not the one of which a head was anchored.
    fn forked_log(&self) -> Told {
        let entry = self.book.drafts.len().checked_sub(1).ok_or_else(|| missing("entry"))?;
        let head = self.sealed.get(entry).and_then(|last| last.head).ok_or_else(|| missing("head"))?.head;
        let other = self.book.again(|inputs| {
            if let Some((stamp, _)) = inputs.last_mut() {
                stamp.at_ms = stamp.at_ms.plus(1);
            }
        });
        let planted = "another history than the one whose head is anchored on chain";
        let lie = Self::lie("forked_log", ("anchors_match", Some(entry)), planted, other.seal()?);
        let anchor = Anchor {
            block: self.book.state.block.map_or(0, |block| block.number),
            epoch: head.fence.epoch,
            size: head.size,
            root: head.root,
            digest: head.digest,
        };
        Ok(Lie { anchors: vec![anchor], ..lie })
    }

    /// Without the authority's key: one entry of the copy is changed after it was signed.
    fn altered_entry(&self) -> Told {
        let entry = self.sealed.len().checked_sub(1).ok_or_else(|| missing("entry"))?;
        let mut log = self.sealed.to_vec();
        let published = log.get_mut(entry).ok_or_else(|| missing("entry"))?;
        let bytes = hex::decode(&published.entry).map_err(|_| missing("entry"))?;
        let mut read = Entry::read(&bytes).map_err(|_| missing("entry"))?;
        read.at_ms = read.at_ms.plus(1);
        published.entry = hex::encode(read.bytes());
        let planted = "the time of the newest entry of a published copy is changed after it was signed";
        Ok(Self::lie("altered_entry", ("heads_signed", Some(entry)), planted, log))
    }

    fn dropped_entry(&self) -> Told {
        let entry = usize::try_from(self.leases[0].seq).map_err(|_| missing("request"))?;
        let mut log = self.sealed.to_vec();
        log.remove(entry);
        let planted = format!("entry {entry} is left out of the published copy");
        Ok(Self::lie("dropped_entry", ("entries_canonical", Some(entry)), planted, log))
    }

    fn heads_left_out(&self) -> Told {
        let mut log = self.sealed.to_vec();
        log.iter_mut().for_each(|entry| entry.head = None);
        let planted = "every signed head is left out of the published copy";
        Ok(Self::lie("heads_left_out", ("covered_by_heads", Some(0)), planted, log))
    }

    fn newest_head_left_out(&self) -> Told {
        let mut log = self.sealed.to_vec();
        log.last_mut().ok_or_else(|| missing("entry"))?.head = None;
        let covered = log.iter().rposition(|entry| entry.head.is_some()).map_or(0, |last| last + 1);
        let planted = "the newest signed head is left out of the published copy";
        Ok(Self::lie("newest_head_left_out", ("covered_by_heads", Some(covered)), planted, log))
    }

    /// Without any key: a pause of somebody's node, that follows the rules and that nobody asked for.
    fn entry_appended(&self) -> Told {
        let mut book = self.book.clone();
        let entry = book.drafts.len();
        let spec = book.cast.spec();
        book.enter(Input::SetPaused { provider: spec.provider, node: spec.node, paused: true, said: None });
        let mut log = book.seal()?;
        log.iter_mut().skip(entry).for_each(|entry| entry.head = None);
        let planted = format!("a pause of node {} is appended to the published copy, with no head over it", spec.node);
        Ok(Self::lie("entry_appended", ("covered_by_heads", Some(entry)), planted, log))
    }
}

impl Book {
    fn effects(&mut self, entry: usize) -> Result<&mut Vec<Effect>, RehearseError> {
        let draft = self.drafts.get_mut(entry).ok_or_else(|| missing("such entry"))?;
        Ok(&mut draft.effects)
    }

    fn set(&mut self, entry: usize, at: usize, effect: Effect) -> Result<(), RehearseError> {
        *self.effects(entry)?.get_mut(at).ok_or_else(|| missing("such effect"))? = effect;
        Ok(())
    }
}
