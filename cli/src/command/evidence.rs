//! `selion evidence`: brings what shows that an authority lied before the pool's court.

use std::path::{Path, PathBuf};

use selion_api::agent::{SignedHead, SignedPromise, SignedVoucher};
use selion_api::{Account, Amount, Hash32, LeaseId, TimeMs};
use selion_audit::evidence::{NoEvidence, against, double_lease, fork};
use selion_contracts::court::{Run, Standing, double_lease_case, over_bill_case};
use selion_contracts::write::Call;
use selion_contracts::{BlockTag, Pool, Signer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::onchain::{Act, Where};
use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::logged;
use crate::output::Output;
use crate::unit;

/// Brings evidence against an authority before the pool's court: what it loses goes to the harmed or is burnt.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Two signed heads of one size that differ
    Heads {
        /// A signed head as JSON, as `GET /v1/log/head` gives it
        #[arg(value_name = "FILE")]
        one: PathBuf,
        /// The other
        #[arg(value_name = "FILE")]
        other: PathBuf,
        #[command(flatten)]
        by: Act,
    },
    /// A signed promise, and a log that has another entry there
    Promise {
        /// The promise as JSON
        #[arg(value_name = "FILE")]
        promise: PathBuf,
        /// The log: a controller's URL, or a file with one published entry a line
        #[arg(long, value_name = "URL|FILE")]
        log: String,
        #[command(flatten)]
        by: Act,
    },
    /// Two logs of which one authority signed both, and which differ
    Fork {
        /// A log: a controller's URL, a file with one published entry a line, or a data directory
        #[arg(value_name = "LOG")]
        one: String,
        /// The other
        #[arg(value_name = "LOG")]
        other: String,
        #[command(flatten)]
        by: Act,
    },
    /// Countersigned vouchers of one renter, one for each provider, that are together above his deposit
    OverPromise {
        /// Vouchers as JSON, as agents keep them in their state folder
        #[arg(value_name = "FILE", required = true)]
        vouchers: Vec<PathBuf>,
        #[command(flatten)]
        by: Act,
    },
    /// Accuses: a voucher by a delegated key is above the bills. A tenth of the penalty is held until the case ends
    OverBill {
        /// The voucher as JSON
        #[arg(value_name = "FILE")]
        voucher: PathBuf,
        #[command(flatten)]
        by: Act,
    },
    /// Accuses: two leases were given one place. A tenth of the penalty is held until the case ends
    DoubleLease {
        /// A lease
        one: LeaseId,
        /// The other
        other: LeaseId,
        /// The log: a controller's URL, a file with one published entry a line, or a data directory
        #[arg(long, value_name = "LOG")]
        log: String,
        #[command(flatten)]
        by: Act,
    },
    /// How a case stands
    Case {
        /// As the accusation said
        case: Hash32,
        #[command(flatten)]
        at: Where,
    },
    /// Ends a case that was not answered in time
    Convict {
        /// As the accusation said
        case: Hash32,
        #[command(flatten)]
        by: Act,
    },
    /// Takes what the court credited the account with
    Collect {
        #[command(flatten)]
        by: Act,
    },
}

/// A signed head: in the answer that it came with, or by itself.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum HeadFile {
    Answer { newest: SignedHead },
    Head(SignedHead),
}

/// What came of it.
#[derive(Debug, Serialize)]
struct Outcome {
    tx: Hash32,
    authority: Account,
    bond_left: Amount,
    credit: Amount,
}

/// Sends it and says what came of it.
pub async fn main(out: Output, command: Command) -> Done {
    match command {
        Command::Heads { one, other, by } => {
            let (HeadFile::Answer { newest: one } | HeadFile::Head(one)) = read(&one)?;
            let (HeadFile::Answer { newest: other } | HeadFile::Head(other)) = read(&other)?;
            bring(out, &by, |pool, _| pool.prove_two_heads(&one, &other)).await
        }
        Command::Promise { promise, log, by } => {
            let promise: SignedPromise = read(&promise)?;
            let found = against(&logged::published(&log).await?, &promise).map_err(none)?;
            bring(out, &by, |pool, _| pool.prove_broken_promise(&promise, &found.head, found.leaf, &found.path)).await
        }
        Command::Fork { one, other, by } => {
            let (one, other) = (logged::published(&one).await?, logged::published(&other).await?);
            let (index, one, other) = fork(&one, &other).map_err(none)?;
            let sides = ((&one.head, one.leaf, &*one.path), (&other.head, other.leaf, &*other.path));
            bring(out, &by, |pool, _| pool.prove_fork(index, sides.0, sides.1)).await
        }
        Command::OverPromise { vouchers, by } => {
            let vouchers = vouchers.iter().map(|path| read(path)).collect::<Done<Vec<SignedVoucher>>>()?;
            bring(out, &by, |pool, _| pool.prove_over_promise(&vouchers)).await
        }
        Command::OverBill { voucher, by } => {
            let voucher: SignedVoucher = read(&voucher)?;
            let name = |authority| over_bill_case(authority, voucher.renter, voucher.provider, voucher.cumulative);
            accuse(out, &by, voucher.epoch, name, |pool| pool.accuse_over_bill(&voucher)).await
        }
        Command::DoubleLease { one, other, log, by } => {
            let (head, first, second) = double_lease(&logged::published(&log).await?, one, other).map_err(none)?;
            let runs = Run::of_grant(&first.effect).zip(Run::of_grant(&second.effect));
            let (earlier, later) = runs.ok_or_else(|| none(NoEvidence::NoDoubleLease { one, other }))?;
            let name = |authority| double_lease_case(authority, &earlier, &later);
            accuse(out, &by, head.head.fence.epoch, name, |pool| pool.accuse_double_lease(&head, &first, &second)).await
        }
        Command::Case { case, at } => show_case(out, &at.open().await?, case).await,
        Command::Convict { case, by } => bring(out, &by, |pool, _| pool.convict(case)).await,
        Command::Collect { by } => bring(out, &by, |pool, signer| pool.collect(signer.address())).await,
    }
}

fn none(why: NoEvidence) -> Failure {
    let suggestion =
        "evidence is two statements of an authority that cannot both be true; `selion audit` looks for all";
    Failure::new(Exit::Failure, "no_evidence", why, suggestion)
}

fn read<T: DeserializeOwned>(path: &Path) -> Done<T> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::file(path, &error))?;
    serde_json::from_str(&text).map_err(|error| {
        let suggestion = "JSON: a head as `GET /v1/log/head` gives it, a line of promises.jsonl, or a voucher of an agent's state folder";
        Failure::usage(format!("{}: {error}", path.display()), suggestion)
    })
}

async fn bring(out: Output, by: &Act, call: impl Fn(&Pool, &Signer) -> Call) -> Done {
    let (signer, tx) = by.send(|pool, signer| vec![call(pool, signer)]).await?;
    let pool = by.at.open().await?;
    let authority = pool.authority(BlockTag::Latest).await?;
    let outcome = Outcome {
        tx,
        authority,
        bond_left: pool.bond(authority, BlockTag::Latest).await?.bond,
        credit: pool.credit(signer.account(), BlockTag::Latest).await?,
    };
    out.show(&outcome, |outcome| {
        format!(
            "done in transaction {}: the bond of {} is {} now, {} stands to the sender's credit",
            outcome.tx,
            outcome.authority,
            unit::show_money(outcome.bond_left.0),
            unit::show_money(outcome.credit.0)
        )
    })
}

/// Sends an accusation, for which the court takes the deposit, and shows the case.
async fn accuse(
    out: Output,
    by: &Act,
    epoch: u32,
    name: impl Fn(Account) -> Hash32,
    call: impl Fn(&Pool) -> Call,
) -> Done {
    by.send(|pool, _| vec![pool.approve_court(), call(pool)]).await?;
    let pool = by.at.open().await?;
    let (authority, _) = pool.authority_of(epoch, BlockTag::Latest).await?;
    show_case(out, &pool, name(authority)).await
}

const OPEN: &str = "open";

/// How a case stands.
#[derive(Debug, Serialize)]
struct CaseView {
    case: Hash32,
    standing: &'static str,
    authority: Account,
    accuser: Account,
    answer_by_ms: TimeMs,
}

async fn show_case(out: Output, pool: &Pool, case: Hash32) -> Done {
    let record = pool.case(case, BlockTag::Latest).await?;
    let standing = match record.standing() {
        Standing::Open => OPEN,
        Standing::Punished => "punished",
        Standing::Acquitted => "acquitted",
        Standing::Unknown => {
            let detail = format!("the court of this pool knows no case {case}");
            return Err(Failure::new(Exit::Failure, "no_such_case", detail, "check the case's name and --pool"));
        }
    };
    let view =
        CaseView { case, standing, authority: record.authority, accuser: record.accuser, answer_by_ms: record.by };
    out.show(&view, |view| {
        let time = match view.standing {
            OPEN => format!("; an answer before {} is sure to count", unit::show_time(view.answer_by_ms)),
            _ => String::new(),
        };
        format!("case {} against {} is {}{time}", view.case, view.authority, view.standing)
    })
}

#[cfg(test)]
mod tests {
    use selion_api::agent::{Fence, Head};
    use selion_api::{Hash32, Signature};

    use super::*;

    #[test]
    fn a_head_is_read_as_the_controller_gives_it_and_by_itself() {
        let fence = Fence { epoch: 1, term: 2 };
        let head = Head { size: 7, root: Hash32([1; 32]), digest: Hash32([2; 32]), fence };
        let signed = SignedHead { head, signature: Signature([3; 65]) };
        for file in [serde_json::json!(signed), serde_json::json!({ "newest": signed, "anchored_size": 5 })] {
            let (HeadFile::Answer { newest: read } | HeadFile::Head(read)) = serde_json::from_value(file).unwrap();
            assert_eq!(read, signed);
        }
        assert!(serde_json::from_str::<HeadFile>("{\"newest\":null,\"anchored_size\":0}").is_err());
    }
}
