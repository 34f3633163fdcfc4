//! The pool's court: what is told it, and how it names a case. What each proof needs, and why an honest authority cannot
//! lose, is in `solidity/src/interfaces/ICourt.sol`.

use ethers_core::abi::{AbiDecode as _, AbiEncode as _};
use ethers_core::types::U256;
use ethers_core::utils::keccak256;
use selion_api::agent::{Promise, Shown, SignedHead, SignedPromise, SignedVoucher};
use selion_api::{Account, Address, Amount, Hash32, LeaseId};

use crate::abi::court;
use crate::abi::vault::Item2;
use crate::pool::Pool;
use crate::read::CaseRecord;
use crate::signer::compact;
use crate::voucher::item2;
use crate::word::h160;
use crate::write::Call;

const OVER_BILL: u8 = 4;
const DOUBLE_LEASE: u8 = 5;
/// Words of a grant's leaf; the first is 1.
const GRANT_WORDS: usize = 14;
/// Bytes of the leaf of a voucher that is due; the first is 5.
const VOUCHER_DUE_BYTES: usize = 57;

/// One member of one run of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The lease.
    pub lease: LeaseId,
    /// Which run of it.
    pub attempt: u32,
    /// Its rank.
    pub member: u16,
}

impl Run {
    /// The run that a grant's leaf is about; `None` if the leaf is no grant.
    #[must_use]
    pub fn of_grant(leaf: &[u8]) -> Option<Self> {
        let (words, []) = leaf.as_chunks::<32>() else { return None };
        let number = |at: usize| words.get(at).and_then(|word| u64::try_from(U256::from_big_endian(word)).ok());
        if words.len() != GRANT_WORDS || number(0)? != 1 {
            return None;
        }
        let lease = LeaseId { seq: number(1)?, index: number(2)?.try_into().ok()? };
        Some(Self { lease, attempt: number(3)?.try_into().ok()?, member: number(4)?.try_into().ok()? })
    }

    /// The leaf that says that the run's slots were freed.
    #[must_use]
    pub fn freed_leaf(&self) -> Vec<u8> {
        let Self { lease, attempt, member } = self;
        let (seq, index) = (lease.seq.to_le_bytes(), lease.index.to_le_bytes());
        [&[2][..], &seq, &index, &attempt.to_le_bytes(), &member.to_le_bytes()].concat()
    }

    /// member(16) | attempt(32) | lease index(32) | lease seq(64)
    fn word(&self) -> U256 {
        let high = U256::from(self.member) << 128 | U256::from(self.attempt) << 96;
        high | U256::from(self.lease.index) << 64 | U256::from(self.lease.seq)
    }
}

/// Renter, provider and total of the leaf that says that a voucher is due; `None` if it is another.
#[must_use]
pub fn voucher_due(leaf: &[u8]) -> Option<(Account, Account, Amount)> {
    let (kind, rest) = leaf.split_first()?;
    let (renter, rest) = rest.split_first_chunk()?;
    let (provider, rest) = rest.split_first_chunk()?;
    let (total, _) = rest.split_first_chunk()?;
    (leaf.len() == VOUCHER_DUE_BYTES && *kind == 5)
        .then(|| (Account(*renter), Account(*provider), Amount(u64::from_le_bytes(*total))))
}

/// How a case stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The court does not know it.
    Unknown,
    /// It waits for an answer, or for somebody to convict.
    Open,
    /// The authority lost.
    Punished,
    /// The authority answered.
    Acquitted,
}

impl CaseRecord {
    /// How the case stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match self.state {
            1 => Standing::Open,
            2 => Standing::Punished,
            3 => Standing::Acquitted,
            _ => Standing::Unknown,
        }
    }

    /// Entries of the two grants of a double lease; zeros for other cases.
    #[must_use]
    pub fn between(&self) -> (u64, u64) {
        let places = U256::from_big_endian(&self.places); // seq(64) | order(64) each
        (places.0[3], places.0[1])
    }
}

/// Name of the case that `authority` countersigned, by a delegated key, more than the bills.
#[must_use]
pub fn over_bill_case(authority: Account, renter: Account, provider: Account, cumulative: Amount) -> Hash32 {
    let offence = (OVER_BILL, h160(authority), h160(renter), h160(provider), cumulative.0);
    Hash32(keccak256(offence.encode()))
}

/// Name of the case that `authority` leased to both runs what only one can have.
#[must_use]
pub fn double_lease_case(authority: Account, earlier: &Run, later: &Run) -> Hash32 {
    Hash32(keccak256((DOUBLE_LEASE, h160(authority), earlier.word(), later.word()).encode()))
}

/// Whether this is an answer to an accusation.
#[must_use]
pub fn is_answer(calldata: &[u8]) -> bool {
    court::AnswerOverBillCall::decode(calldata).is_ok() || court::AnswerDoubleLeaseCall::decode(calldata).is_ok()
}

impl Pool {
    fn to_court(&self, data: Vec<u8>) -> Call {
        Call { to: self.at.court, data }
    }

    /// Puts the caller's money at stake for what the caller signs as an authority.
    #[must_use]
    pub fn put_bond(&self, amount: Amount) -> Call {
        self.to_court(court::BondCall { amount: amount.0 }.encode())
    }

    /// Asks for a part of the caller's bond back.
    #[must_use]
    pub fn unbond_bond(&self, amount: Amount) -> Call {
        self.to_court(court::UnbondCall { amount: amount.0 }.encode())
    }

    /// Takes what has unbonded of the caller's bond.
    #[must_use]
    pub fn withdraw_bond(&self, to: Address) -> Call {
        self.to_court(court::WithdrawBondCall { to: h160(to) }.encode())
    }

    /// Takes what the court credited the caller with.
    #[must_use]
    pub fn collect(&self, to: Address) -> Call {
        self.to_court(court::CollectCall { to: h160(to) }.encode())
    }

    /// Shows that one authority signed two heads of one size.
    #[must_use]
    pub fn prove_two_heads(&self, one: &SignedHead, other: &SignedHead) -> Call {
        self.to_court(court::ProveTwoHeadsCall { one: abi_head(one), other: abi_head(other) }.encode())
    }

    /// Shows that a promised entry is another one in a head of the same authority: `leaf` with its RFC 9162 path.
    #[must_use]
    pub fn prove_broken_promise(
        &self,
        promise: &SignedPromise,
        head: &SignedHead,
        leaf: Hash32,
        path: &[Hash32],
    ) -> Call {
        let (r, vs) = compact(&promise.signature);
        let Promise { account, seq, leaf: promised, fence } = promise.promise;
        let promised = court::SignedPromise {
            account: h160(account),
            seq,
            leaf: promised.0,
            epoch: fence.epoch,
            term: fence.term,
            r,
            vs,
        };
        let path = path.iter().map(|hash| hash.0).collect();
        self.to_court(court::ProveBrokenPromiseCall { promised, head: abi_head(head), leaf: leaf.0, path }.encode())
    }

    /// Shows that two heads of one authority have different leaves at `index`: each leaf with its RFC 9162 path.
    #[must_use]
    pub fn prove_fork(
        &self,
        index: u64,
        (one, leaf_of_one, path_in_one): (&SignedHead, Hash32, &[Hash32]),
        (other, leaf_of_other, path_in_other): (&SignedHead, Hash32, &[Hash32]),
    ) -> Call {
        let call = court::ProveForkCall {
            one: abi_head(one),
            other: abi_head(other),
            index,
            leaf_of_one: leaf_of_one.0,
            path_in_one: abi_path(path_in_one),
            leaf_of_other: leaf_of_other.0,
            path_in_other: abi_path(path_in_other),
        };
        self.to_court(call.encode())
    }

    /// Shows that the present authority countersigned more for one renter than he has. Any order of vouchers.
    #[must_use]
    pub fn prove_over_promise(&self, vouchers: &[SignedVoucher]) -> Call {
        let mut vouchers: Vec<&SignedVoucher> = vouchers.iter().collect();
        vouchers.sort_by_key(|voucher| voucher.provider);
        let owed =
            |voucher: &&SignedVoucher| court::Owed { provider: h160(voucher.provider), voucher: abi_voucher(voucher) };
        self.to_court(court::ProveOverPromiseCall { vouchers: vouchers.iter().map(owed).collect() }.encode())
    }

    /// Accuses: a voucher by a delegated key is above what the log says is due. The caller's deposit is held.
    #[must_use]
    pub fn accuse_over_bill(&self, voucher: &SignedVoucher) -> Call {
        let call = court::AccuseOverBillCall { provider: h160(voucher.provider), voucher: abi_voucher(voucher) };
        self.to_court(call.encode())
    }

    /// Answers: this effect says that at least `cumulative` was due.
    #[must_use]
    pub fn answer_over_bill(&self, cumulative: Amount, head: &SignedHead, due: &Shown) -> Call {
        let (cumulative, head, due) = (cumulative.0, abi_head(head), abi_shown(due));
        self.to_court(court::AnswerOverBillCall { cumulative, head, due }.encode())
    }

    /// Accuses: two grants of one place. The caller's deposit is held.
    #[must_use]
    pub fn accuse_double_lease(&self, head: &SignedHead, first: &Shown, second: &Shown) -> Call {
        let (first, second) = (abi_shown(first), abi_shown(second));
        self.to_court(court::AccuseDoubleLeaseCall { head: abi_head(head), first, second }.encode())
    }

    /// Answers: this effect says that the earlier run was freed before `second` was granted.
    #[must_use]
    pub fn answer_double_lease(&self, second: &Run, head: &SignedHead, freed: &Shown) -> Call {
        let (second, freed) = (second.word(), abi_shown(freed));
        self.to_court(court::AnswerDoubleLeaseCall { second, head: abi_head(head), freed }.encode())
    }

    /// Ends a case that was not answered in time.
    #[must_use]
    pub fn convict(&self, case: Hash32) -> Call {
        self.to_court(court::ConvictCall { case: case.0 }.encode())
    }
}

fn abi_head(signed: &SignedHead) -> court::SignedHead {
    let (r, vs) = compact(&signed.signature);
    let head = &signed.head;
    let (epoch, term) = (head.fence.epoch, head.fence.term);
    court::SignedHead { size: head.size, root: head.root.0, digest: head.digest.0, epoch, term, r, vs }
}

fn abi_path(path: &[Hash32]) -> Vec<[u8; 32]> {
    path.iter().map(|hash| hash.0).collect()
}

fn abi_shown(shown: &Shown) -> court::Shown {
    court::Shown {
        entry: shown.entry.clone().into(),
        path: abi_path(&shown.path),
        effect: shown.effect.clone().into(),
        index: shown.index,
        count: shown.count,
        effect_path: abi_path(&shown.effect_path),
    }
}

fn abi_voucher(signed: &SignedVoucher) -> court::Item2 {
    let Item2 { a, b, r, vs, ar, avs } = item2(signed);
    court::Item2 { a, b, r, vs, ar, avs }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Run =
        Run { lease: LeaseId { seq: 0x0102_0304_0506_0708, index: 9 }, attempt: 0x0a0b_0c0d, member: 0x0e0f };

    fn grant() -> Vec<u8> {
        let mut words = vec![[0_u8; 32]; GRANT_WORDS];
        for (at, value) in [(0, 1), (1, RUN.lease.seq), (2, 9), (3, u64::from(RUN.attempt)), (4, u64::from(RUN.member))]
        {
            words[at][24..].copy_from_slice(&value.to_be_bytes());
        }
        words.concat()
    }

    #[test]
    fn a_run_reads_from_its_grant_and_nothing_else() {
        assert_eq!(Run::of_grant(&grant()), Some(RUN));
        let mut bill = grant();
        bill[31] = 3;
        assert_eq!(Run::of_grant(&bill), None);
        assert_eq!(Run::of_grant(&grant()[32..]), None);
        assert_eq!(Run::of_grant(&RUN.freed_leaf()), None);
    }

    #[test]
    fn what_is_due_reads_from_its_leaf_and_nothing_else() {
        let leaf = [&[5][..], &[1; 20], &[2; 20], &7_u64.to_le_bytes(), &8_u64.to_le_bytes()].concat();
        assert_eq!(voucher_due(&leaf), Some((Account([1; 20]), Account([2; 20]), Amount(7))));
        assert_eq!(voucher_due(&leaf[..56]), None);
        assert_eq!(voucher_due(&[&[2][..], &leaf[1..]].concat()), None);
        assert_eq!(voucher_due(&[]), None);
    }
}
