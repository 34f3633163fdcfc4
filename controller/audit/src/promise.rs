//! Promises that parties kept: every input that the authority said stands in the log does.

use std::collections::BTreeMap;

use selion_api::agent::{Promise, SignedPromise};
use selion_api::commit::PoolId;
use selion_api::{Account, Hash32};
use selion_contracts::signer::recover_text;

use crate::finding::Finding;

/// A promise with the pool in which it counts: one line of the file that `selion run` keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct KeptPromise {
    /// The pool.
    pub pool: PoolId,
    /// As it was answered.
    #[serde(flatten)]
    pub signed: SignedPromise,
}

/// The promises in a text of JSON lines.
///
/// # Errors
///
/// Of the first line that is none, with its number from 1.
pub fn read_promises(text: &str) -> Result<Vec<KeptPromise>, (usize, serde_json::Error)> {
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    lines.map(|(line, number)| serde_json::from_str(line).map_err(|error| (number, error))).collect()
}

/// Whether the log with these leaves has what its authorities, by epoch, promised. `leaves` and `authorities` are what
/// the log itself says.
///
/// # Errors
///
/// The first promise that is broken, or that nobody of this pool gave.
pub(crate) fn check(
    pool: &PoolId,
    leaves: &[Hash32],
    authorities: &BTreeMap<u32, Account>,
    promises: &[KeptPromise],
) -> Result<String, Finding> {
    for kept in promises {
        let Promise { account, seq, leaf, fence } = kept.signed.promise;
        let digest = kept.signed.promise.digest_to_sign(&kept.pool);
        let by = recover_text(&digest.0, &kept.signed.signature);
        let who = by.map_or_else(|| "nobody".to_owned(), |by| by.to_string());
        if kept.pool != *pool || by.is_none() || authorities.get(&fence.epoch) != by.as_ref() {
            let (chain, at) = (kept.pool.chain_id, kept.pool.controller);
            let why = format!(
                "the promise of entry {seq} to {account} is signed by {who} for pool {at} on chain {chain}: no authority \
                 of this pool in epoch {}",
                fence.epoch
            );
            return Err(Finding::plain(why));
        }
        let here = usize::try_from(seq).ok().and_then(|at| leaves.get(at));
        if here == Some(&leaf) {
            continue;
        }
        let why = match here {
            Some(here) => format!("the log has another one there, of leaf {here}"),
            None => format!("the log has {} entries: it was cut, or this copy is older than the promise", leaves.len()),
        };
        return Err(Finding::at(seq, format!("{who} promised {account} entry {seq} of leaf {leaf}: {why}")));
    }
    Ok(format!("{} promises that parties kept hold in this log", promises.len()))
}

#[cfg(test)]
mod tests {
    use selion_api::Address;
    use selion_api::agent::Fence;
    use selion_contracts::Signer;

    use super::*;

    const POOL: PoolId = PoolId { chain_id: 31_337, controller: Address([1; 20]) };

    fn key(byte: u8) -> Signer {
        Signer::from_bytes(&[byte; 32]).unwrap()
    }

    fn kept(by: &Signer, pool: PoolId, seq: u64, leaf: u8) -> KeptPromise {
        let fence = Fence { epoch: 1, term: 1 };
        let promise = Promise { account: Account([9; 20]), seq, leaf: Hash32([leaf; 32]), fence };
        let signature = by.sign_text(&promise.digest_to_sign(&pool).0).unwrap();
        KeptPromise { pool, signed: SignedPromise { promise, signature } }
    }

    fn said(promises: &[KeptPromise]) -> Result<String, Finding> {
        let leaves = [Hash32([0; 32]), Hash32([1; 32])];
        check(&POOL, &leaves, &BTreeMap::from([(1, key(5).account())]), promises)
    }

    #[test]
    fn promises_that_the_log_keeps_pass() {
        let both = [kept(&key(5), POOL, 0, 0), kept(&key(5), POOL, 1, 1)];
        assert!(said(&both).unwrap().starts_with("2 promises"));
    }

    #[test]
    fn a_log_with_another_entry_there_or_none_is_named_with_the_signer() {
        let broken = said(&[kept(&key(5), POOL, 0, 0), kept(&key(5), POOL, 1, 7)]).unwrap_err();
        assert_eq!(broken.entry, Some(1));
        assert!(broken.detail.contains(&key(5).account().to_string()), "{}", broken.detail);
        let cut = said(&[kept(&key(5), POOL, 2, 2)]).unwrap_err();
        assert!(cut.entry == Some(2) && cut.detail.contains("has 2 entries"), "{}", cut.detail);
    }

    #[test]
    fn a_promise_of_another_pool_of_a_stranger_or_altered_accuses_nobody() {
        let foreign = PoolId { chain_id: 1, ..POOL };
        let mut altered = kept(&key(5), POOL, 1, 1);
        altered.signed.promise.leaf = Hash32([7; 32]);
        for one in [kept(&key(5), foreign, 0, 0), kept(&key(6), POOL, 0, 0), altered] {
            let refused = said(&[one]).unwrap_err();
            assert!(refused.entry.is_none() && refused.detail.contains("no authority"), "{}", refused.detail);
        }
    }

    #[test]
    fn a_file_of_promises_reads_back_and_a_line_that_is_none_is_named() {
        let both = [kept(&key(5), POOL, 0, 0), kept(&key(5), POOL, 1, 1)];
        let lines: Vec<String> = both.iter().map(|one| serde_json::to_string(one).unwrap()).collect();
        assert_eq!(read_promises(&format!("{}\n\n", lines.join("\n"))).unwrap(), both);
        assert_eq!(read_promises(&format!("{}\n{{}}", lines[0])).unwrap_err().0, 2);
    }
}
