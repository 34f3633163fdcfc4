//! The code of the pool's contracts, against the committed one: every constructor runs once more, in an EVM of the
//! auditor's own, with the terms that the pool was opened with. What it leaves is the code that has to be there, to the byte.

use selion_api::Address;
use selion_contracts::code::Unmade;
use selion_contracts::rpc::BlockTag;
use selion_contracts::{Pool, PoolError};
use selion_devchain::construct;

use super::Facts;
use crate::finding::{Check, Finding};

/// That forwarder, reader, vault, controller and court have the code of this release, and the terms that were told.
///
/// # Errors
///
/// The node does not answer.
pub(super) async fn check(pool: &Pool, facts: &Facts) -> Result<Check, PoolError> {
    const NAME: &str = "code_committed";
    let Some(opened) = &facts.opened else {
        let why = "no event tells with which terms the pool was opened";
        return Ok(Check::of(NAME, Err::<String, _>(Finding::plain(why))));
    };
    let at = facts.last_hash.map_or(BlockTag::Number(facts.last), BlockTag::Hash);
    let mut seen = Vec::new();
    for unmade in pool.unmade(opened, at).await? {
        match look(pool, unmade).await? {
            Ok(said) => seen.push(said),
            Err(finding) => return Ok(Check::of(NAME, Err::<String, _>(finding))),
        }
    }
    let said = format!("{} have the code of this release's contracts, made with the pool's terms", seen.join(", "));
    Ok(Check::of(NAME, Ok::<_, Finding>(said)))
}

/// Compares one contract, and what its constructor made beside it.
async fn look(pool: &Pool, unmade: Unmade) -> Result<Result<String, Finding>, PoolError> {
    let Unmade { name, at, creation, maker, around } = unmade;
    let around = around.into_iter().map(|(at, code)| (at.0, code)).collect();
    let (code, beside) = match construct(pool.chain_id, (at.0, maker.0), creation, around) {
        Ok(made) => made,
        Err(error) => {
            return Ok(Err(Finding::plain(format!("the {name} cannot be made of what the chain tells: {error}"))));
        }
    };
    let parts = beside.into_iter().map(|(at, code)| (Address(at), code));
    for (at, expected) in [(at, code)].into_iter().chain(parts) {
        let held = pool.rpc.code(at).await?;
        if held != expected {
            return Ok(Err(Finding::plain(format!(
                "the {name} at {at} has {} bytes of code that are not the {} of this release's contracts with the pool's \
                 terms: use the release that the pool was made with; if it was this one, the pool follows other rules",
                held.len(),
                expected.len()
            ))));
        }
    }
    Ok(Ok(name.to_owned()))
}
