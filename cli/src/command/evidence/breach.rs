//! Files that show anybody that a log breaks its rules.

use std::path::Path;

use selion_api::commit::PoolId;
use selion_api::{Account, LeaseId};
use selion_audit::breach::{Breach, Offence, breach, breaches};
use selion_audit::evidence::NoEvidence;
use selion_audit::{AuditError, LogSource, fetch};
use serde::Serialize;

use super::{Of, none, print};
use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::logged;
use crate::output::Output;

/// What a file shows.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    offence: Offence,
    shows: String,
    signed_by: Account,
}

/// Prints what shows that two leases had one place.
pub(super) async fn double_lease(out: Output, leases: (LeaseId, LeaseId), log: &str, of: &Of) -> Done {
    let (one, other) = leases;
    let both = [one, other];
    let which = |offence: &Offence| match offence {
        Offence::DoubleLease { one, other } => one != other && both.contains(one) && both.contains(other),
        _ => false,
    };
    let found = breach(&of.id()?, &logged::published(log).await?, which).map_err(none)?;
    print(out, &found.ok_or_else(|| none(NoEvidence::NoDoubleLease { one, other }))?)
}

/// Prints the first offence of each kind, one a line.
pub(super) async fn all(out: Output, log: &str, of: &Of) -> Done {
    let found = breaches(&of.id()?, &logged::published(log).await?).map_err(none)?;
    found.iter().try_for_each(|breach| print(out, breach))
}

/// Writes the first offence of each kind in an audited log to a file, one a line, and says so; or why there is nothing to write.
pub async fn write(pool: &PoolId, log: &LogSource, path: &Path) -> Done<String> {
    let found = match breaches(pool, &fetch(log).await.map_err(AuditError::from)?) {
        Ok(found) => found,
        Err(none) => return Ok(format!("no file shows it to who has no log: {none}")),
    };
    let lines: Result<Vec<String>, _> = found.iter().map(serde_json::to_string).collect();
    let lines = lines.map_err(|error| Failure::new(Exit::Failure, "internal", error, "report this"))?;
    std::fs::write(path, lines.join("\n") + "\n").map_err(|error| Failure::file(path, &error))?;
    let (kinds, path) = (lines.len(), path.display());
    Ok(format!("{path} shows {kinds} of its offences to anybody: selion evidence verify {path}"))
}

/// Verifies each line of a file.
pub(super) fn verify(out: Output, file: &Path, authority: Account, of: &Of) -> Done {
    let text = std::fs::read_to_string(file).map_err(|error| Failure::file(file, &error))?;
    let pool = of.id()?;
    let broken = |why: String| {
        let detail = format!("{}: {why}", file.display());
        Failure::new(
            Exit::Failure,
            "proof_broken",
            detail,
            "ask who gave it to you, and the chain who the authority is",
        )
    };
    let mut shown = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let breach: Breach = serde_json::from_str(line).map_err(|error| {
            let detail = format!("{}: {error}", file.display());
            Failure::usage(detail, "a file of `selion evidence breach` or `selion evidence double-lease`")
        })?;
        if breach.pool != pool {
            let (chain, controller) = (breach.pool.chain_id, breach.pool.controller);
            return Err(broken(format!("it is about pool {controller} on chain {chain}")));
        }
        let shows = breach.verify(authority).map_err(|why| broken(why.to_string()))?;
        shown.push(Shown { offence: breach.offence, shows, signed_by: authority });
    }
    if shown.is_empty() {
        return Err(broken("it is empty".into()));
    }
    out.show(&shown, |shown| {
        let lines: Vec<String> = shown.iter().map(|one| one.shows.clone()).collect();
        format!("{}\nin a log that {authority} signed", lines.join("\n"))
    })
}
