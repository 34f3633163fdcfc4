//! `selion evidence`: brings two statements that contradict each other before the pool's court, and shows what nobody
//! punishes.

pub mod breach;

use std::path::{Path, PathBuf};

use selion_agent::book::Outbox;
use selion_api::agent::{SignedHead, SignedPromise, SignedReport};
use selion_api::commit::PoolId;
use selion_api::{Account, Address, Amount, Hash32, LeaseId};
use selion_audit::evidence::{NoEvidence, ReportFile, against, contradicting, contradiction, fork, report_at};
use selion_contracts::court::{LeafIn, Stated};
use selion_contracts::write::Call;
use selion_contracts::{BlockTag, Pool};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::onchain::Act;
use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::logged;
use crate::output::Output;
use crate::profile::Home;
use crate::unit;

/// Brings before the pool's court what somebody signed twice and differently: he loses all that he has at stake, a tenth
/// of it to the payee.
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
        by: Bring,
    },
    /// A signed head of the size of its epoch's last anchor, or of that of the epoch before, which differs from it
    Anchor {
        /// The signed head as JSON
        #[arg(value_name = "FILE")]
        head: PathBuf,
        #[command(flatten)]
        by: Bring,
    },
    /// A signed promise, and a log that has another entry there
    Promise {
        /// The promise as JSON
        #[arg(value_name = "FILE")]
        promise: PathBuf,
        /// The log: a controller's URL, a file with one published entry a line, or a data directory
        #[arg(long, value_name = "LOG")]
        log: String,
        #[command(flatten)]
        by: Bring,
    },
    /// Two logs that one authority signed or anchored, and which differ
    Fork {
        /// A log: a controller's URL, a file with one published entry a line, or a data directory
        #[arg(value_name = "LOG")]
        one: String,
        /// The other
        #[arg(value_name = "LOG")]
        other: String,
        #[command(flatten)]
        by: Bring,
    },
    /// Two reports of one node and one number that differ: costs its provider the stake
    Reports {
        /// A signed report as JSON, as `evidence report` gives it
        #[arg(value_name = "FILE")]
        one: PathBuf,
        /// The other
        #[arg(value_name = "FILE")]
        other: PathBuf,
        #[command(flatten)]
        by: Bring,
    },
    /// Prints the signed report that an entry of a log holds, or the one that contradicts a report that you hold
    Report {
        /// Number of the entry
        #[arg(required_unless_present = "held", conflicts_with = "held")]
        seq: Option<u64>,
        /// A signed report as JSON: looks for another one of the same node and number
        #[arg(long, value_name = "FILE")]
        held: Option<PathBuf>,
        /// The log: a controller's URL, a file with one published entry a line, or a data directory
        #[arg(long, value_name = "LOG")]
        log: String,
        #[command(flatten)]
        of: Of,
    },
    /// Prints, one a line, the signed reports that an agent keeps because no controller has taken them yet
    Kept {
        /// The agent's state directory; it may be running
        #[arg(value_name = "DIR")]
        state: PathBuf,
    },
    /// Prints what shows that a log gave two leases one place. No court takes it: it is for people
    DoubleLease {
        /// A lease
        one: LeaseId,
        /// The other
        other: LeaseId,
        /// The log: a controller's URL, a file with one published entry a line, or a data directory
        #[arg(long, value_name = "LOG")]
        log: String,
        #[command(flatten)]
        of: Of,
    },
    /// Prints, one a line, what shows that a log leases a place twice, bills or vouches too much, or promises more than a
    /// deposit holds: the first of each kind. No court takes it: it is for people
    Breach {
        /// The log: a controller's URL, a file with one published entry a line, or a data directory
        #[arg(long, value_name = "LOG")]
        log: String,
        #[command(flatten)]
        of: Of,
    },
    /// Verifies a file of `evidence double-lease` or `evidence breach`, with nothing else at hand
    Verify {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Who must have signed it: the pool's authority, by the chain
        #[arg(long, value_name = "ADDRESS")]
        authority: Account,
        #[command(flatten)]
        of: Of,
    },
}

/// Whose signatures count.
#[derive(Debug, clap::Args)]
pub struct Of {
    /// The pool's Controller contract; the profile's without it
    #[arg(long, value_name = "ADDRESS", requires = "chain_id")]
    pool: Option<Address>,
    /// EIP-155 id of its chain
    #[arg(long, value_name = "ID", requires = "pool")]
    chain_id: Option<u64>,
}

impl Of {
    fn id(&self) -> Done<PoolId> {
        if let (Some(chain_id), Some(controller)) = (self.chain_id, self.pool) {
            return Ok(PoolId { chain_id, controller });
        }
        let profile = Home::find()?.profile()?;
        Ok(PoolId { chain_id: profile.chain_id, controller: profile.pool })
    }
}

/// As whom, and who is paid.
#[derive(Debug, clap::Args)]
pub struct Bring {
    #[command(flatten)]
    act: Act,
    /// Who gets a tenth of what is taken [default: the account of the key file]
    #[arg(long, value_name = "ADDRESS")]
    payee: Option<Address>,
}

/// A signed head: in the answer that it came with, or by itself.
#[derive(Debug, serde::Deserialize)]
#[serde(untagged)]
enum HeadFile {
    Answer { newest: SignedHead },
    Head(SignedHead),
}

/// What came of it.
#[derive(Debug, Serialize)]
struct Outcome {
    tx: Hash32,
    taken: Amount,
    payee: Address,
}

/// Sends it and says what came of it.
pub async fn main(out: Output, command: Command) -> Done {
    match command {
        Command::Heads { one, other, by } => {
            let (one, other) = (Stated::Head(head(&one)?), Stated::Head(head(&other)?));
            bring(out, &by, |pool, payee| pool.prove_fork(&one, &other, None, payee)).await
        }
        Command::Anchor { head: file, by } => {
            let signed = head(&file)?;
            let anchors = by.act.at.open().await?.last_anchors().await?;
            let against = anchors.into_iter().find(|anchor| {
                let (epoch, size, root, digest) = anchor.says();
                let answers = epoch == signed.head.fence.epoch || epoch.checked_add(1) == Some(signed.head.fence.epoch);
                answers && size == signed.head.size && (root, digest) != (signed.head.root, signed.head.digest)
            });
            let against = against.ok_or_else(|| {
                let detail = "no last anchor of the head's epoch or the one before is of its size and differs";
                Failure::new(Exit::Failure, "no_evidence", detail, "for heads of other sizes: `selion evidence fork`")
            })?;
            bring(out, &by, |pool, payee| pool.prove_fork(&against, &Stated::Head(signed), None, payee)).await
        }
        Command::Promise { promise, log, by } => {
            let promise: SignedPromise = read(&promise)?;
            let anchors = by.act.at.open().await?.last_anchors().await?;
            let found = against(&logged::published(&log).await?, &anchors, &promise).map_err(none)?;
            let there = LeafIn { leaf: found.leaf, path: &found.path };
            bring(out, &by, |pool, payee| pool.prove_broken_promise(&promise, &found.head, there, payee)).await
        }
        Command::Fork { one, other, by } => {
            let anchors = by.act.at.open().await?.last_anchors().await?;
            let (one, other) = (logged::published(&one).await?, logged::published(&other).await?);
            let (index, one, other) = fork(&one, &other, &anchors).map_err(none)?;
            let leaves =
                (index, LeafIn { leaf: one.leaf, path: &one.path }, LeafIn { leaf: other.leaf, path: &other.path });
            bring(out, &by, |pool, payee| pool.prove_fork(&one.head, &other.head, Some(leaves), payee)).await
        }
        Command::Reports { one, other, by } => {
            let (one, other) = (report(&one)?, report(&other)?);
            contradiction(&one, &other).map_err(none)?;
            bring(out, &by, |pool, payee| pool.prove_two_reports(&one, &other, payee)).await
        }
        Command::Report { seq: Some(seq), log, .. } => {
            let file = ReportFile::from(&report_at(&logged::published(&log).await?, seq).map_err(none)?);
            print(out, &file)
        }
        Command::Report { seq: None, held: Some(held), log, of } => {
            let (pool, mine) = (of.id()?, report(&held)?);
            let (entry, other) = contradicting(&pool, &logged::published(&log).await?, &mine).map_err(none)?;
            let (node, number, held) = (mine.report.node, mine.report.seq, held.display());
            out.note(format!(
                "entry {entry} contradicts it: node {node} signed report {number} twice. Keep what is printed in a file, and bring \
                 both before the court: selion evidence reports {held} FILE"
            ));
            print(out, &ReportFile::from(&other))
        }
        Command::Kept { state } => {
            let refused =
                |error| Failure::usage(error, "name the folder that `selion agent up` was given with --state-dir");
            let kept = Outbox::kept(&state.join("outbox")).map_err(refused)?;
            kept.iter().try_for_each(|signed| print(out, &ReportFile::from(signed)))
        }
        Command::Report { .. } => {
            Err(Failure::usage("ENTRY or --held is needed", "see: selion evidence report --help"))
        }
        Command::DoubleLease { one, other, log, of } => breach::double_lease(out, (one, other), &log, &of).await,
        Command::Breach { log, of } => breach::all(out, &log, &of).await,
        Command::Verify { file, authority, of } => breach::verify(out, &file, authority, &of),
    }
}

/// JSON whatever the output: it is for a file.
fn print<T: Serialize>(out: Output, evidence: &T) -> Done {
    let text = serde_json::to_string(evidence).map_err(|error| {
        Failure::new(Exit::Failure, "internal", error, "this is a bug: please report it with the command")
    })?;
    out.show(evidence, |_| text)
}

fn none(why: NoEvidence) -> Failure {
    let suggestion = "evidence is two statements of one signer that cannot both be true; `selion audit` looks for all";
    Failure::new(Exit::Failure, "no_evidence", why, suggestion)
}

fn head(path: &Path) -> Done<SignedHead> {
    let (HeadFile::Answer { newest: head } | HeadFile::Head(head)) = read(path)?;
    Ok(head)
}

fn report(path: &Path) -> Done<SignedReport> {
    let file: ReportFile = read(path)?;
    file.read().map_err(|why| {
        let suggestion = "a signed report as `selion evidence report` prints it";
        Failure::usage(format!("{}: {why}", path.display()), suggestion)
    })
}

fn read<T: DeserializeOwned>(path: &Path) -> Done<T> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::file(path, &error))?;
    serde_json::from_str(&text).map_err(|error| {
        let suggestion = "JSON: a head as `GET /v1/log/head` gives it, a line of promises.jsonl, or a report as \
                          `selion evidence report` prints it";
        Failure::usage(format!("{}: {error}", path.display()), suggestion)
    })
}

async fn bring(out: Output, by: &Bring, call: impl Fn(&Pool, Address) -> Call) -> Done {
    let pool = by.act.at.open().await?;
    let before = gone(&pool).await?;
    let payee = match by.payee {
        Some(payee) => payee,
        None => by.act.signer()?.address(),
    };
    let (_, tx) = by.act.send(|pool, _| vec![call(pool, payee)]).await?;
    // What was burnt is nine tenths, rounded up.
    let burnt = gone(&pool).await?.saturating_sub(before);
    let outcome = Outcome { tx, taken: Amount(burnt.0.saturating_add(burnt.0 / 9)), payee };
    out.show(&outcome, |outcome| {
        format!(
            "convicted in transaction {}: about {} tokens were taken, a tenth of them for {}",
            outcome.tx,
            unit::show_money(outcome.taken.0),
            outcome.payee
        )
    })
}

/// What was burnt of bonds and stakes so far.
async fn gone(pool: &Pool) -> Done<Amount> {
    let (bonds, stakes) = (pool.burnt(BlockTag::Latest).await?, pool.stakes_burnt(BlockTag::Latest).await?);
    Ok(bonds.saturating_add(stakes))
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
