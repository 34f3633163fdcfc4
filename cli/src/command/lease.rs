//! `selion lease`: slices held, one by one.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures::StreamExt;
use selion_api::lease::LeaseState;
use selion_api::rest::{Lease, LeaseRef, Quote};
use selion_api::{LeaseId, TimeMs};
use selion_client::{ClientError, LeaseQuery, LogQuery};
use selion_controller::wall_clock;

use super::ask::{Ask, label};
use super::log_view::Printer;
use super::secrets::{Sealer, Secrets};
use super::{lease_outputs, lease_view, quote_view};
use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::output::{Output, line};
use crate::session::Session;
use crate::unit;

/// Asks for, watches and gives back slices.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Asks for a lease and returns at once; with secrets, once they are sealed
    Create {
        #[command(flatten)]
        ask: Box<Ask>,
        /// Tells what the lease would get and cost, and asks for none
        #[arg(long)]
        dry_run: bool,
    },
    /// The newest leases
    List {
        /// At most so many, 1 or more; they are asked for in pages of 500
        #[arg(long, value_name = "N", default_value_t = 50, allow_negative_numbers = true,
            value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        /// Only leases that are or were called so
        #[arg(long)]
        name: Option<String>,
        /// Only leases with this label
        #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
        label: Option<(String, String)>,
    },
    /// Everything about one lease
    Show {
        /// Its id or name
        lease: LeaseRef,
    },
    /// Waits until a lease is in a state
    Wait {
        /// Its id or name
        lease: LeaseRef,
        /// waiting, held, preparing, starting, active, ending or ended
        #[arg(long, default_value = "active", value_parser = state)]
        state: LeaseState,
        /// How long
        #[arg(long, value_name = "TIME", default_value = "10m", value_parser = unit::duration, allow_hyphen_values = true)]
        timeout: u64,
    },
    /// What the members print, live; of a lease that is over, what they printed in every run
    Logs {
        /// The lease's id or name
        lease: LeaseRef,
        /// Only the last so many of the lines kept
        #[arg(long, value_name = "N")]
        tail: Option<usize>,
        /// Ends after the lines kept
        #[arg(long)]
        no_follow: bool,
        /// Every byte as it was printed, also to a terminal; members of a gang are not told apart
        #[arg(long)]
        raw: bool,
    },
    /// What the members left in $SELION_OUTPUT_DIR, of every run
    Outputs {
        /// The lease's id or name
        lease: LeaseRef,
        /// Writes them to this folder, which must not exist: of several members each to a folder of its rank
        #[arg(long, value_name = "DEST")]
        get: Option<PathBuf>,
        /// Of this run [default with --get: the newest that left any]
        #[arg(long, value_name = "RUN")]
        attempt: Option<u32>,
        /// Of this member only
        #[arg(long)]
        rank: Option<u16>,
    },
    /// What the members use now, and the most memory that they used
    Top {
        /// The lease's id or name
        lease: LeaseRef,
    },
    /// Lets it last longer, whether it waits or runs; what that costs is reserved at once
    Extend {
        /// The lease's id or name
        lease: LeaseRef,
        /// By so much: all in all it may last 30d
        #[arg(long = "for", value_name = "TIME", value_parser = unit::lease_duration, allow_hyphen_values = true)]
        for_ms: u64,
    },
    /// Seals the secrets of a lease to the nodes of its members that wait for them: once it is held, and after a repair
    Seal {
        /// The lease's id or name
        lease: LeaseRef,
        #[command(flatten)]
        secrets: Secrets,
        /// The image that --registry-auth is for
        #[arg(long, value_name = "IMAGE", requires = "registry_auth")]
        image: Option<String>,
    },
    /// Gives the slices back
    Release {
        /// The lease's id or name
        lease: LeaseRef,
    },
    /// Why it is, or is not, where it is: every GPU judged
    Explain {
        /// The lease's id or name
        lease: LeaseRef,
    },
    /// Every change, live
    Events {
        /// The lease's id or name
        lease: LeaseRef,
        /// Ends after the changes so far
        #[arg(long)]
        no_follow: bool,
    },
}

/// Longest single question to the controller.
const ONE_WAIT: Duration = Duration::from_secs(60);

fn state(text: &str) -> Result<LeaseState, String> {
    serde_json::from_value(text.into()).map_err(|_| {
        format!("`{text}` is not a state; write waiting, held, preparing, starting, active, ending or ended")
    })
}

impl Command {
    /// Whether results come one by one on stdout, so that an error does not belong among them.
    pub fn streams(&self) -> bool {
        matches!(self, Self::Logs { .. } | Self::Events { .. })
    }
}

/// Runs the sub-command.
pub async fn main(out: Output, command: Command) -> Done {
    let session = Session::open()?;
    let client = &session.client;
    let detail = |lease: &Lease| lease_view::detail(out, lease, wall_clock());
    match command {
        Command::Create { ask, dry_run: true } => quote(out, &session, *ask).await,
        Command::Create { ask, dry_run: false } => {
            let (lease, secrets) = ask.create(out, &session).await?;
            if secrets.is_empty() {
                return out.show(&lease, detail);
            }
            let id = lease.id;
            Sealer::new(&session, out, id, secrets).until_sealed().await?;
            out.show(&client.lease(id).await?, detail)
        }
        Command::Seal { lease, secrets, image } => {
            let secrets = secrets.read(image.as_deref())?;
            if secrets.is_empty() {
                let next = "write --secret NAME=FILE for each that the lease named";
                return Err(Failure::usage("no secret was given", next));
            }
            let id = client.lease_id(&lease).await?;
            Sealer::new(&session, out, id, secrets).until_sealed().await?;
            out.show(&client.lease(id).await?, detail)
        }
        Command::List { limit, name, label } => {
            let label = label.map(|(key, value)| format!("{key}:{value}"));
            let query = LeaseQuery { name, label, ..LeaseQuery::default() };
            list(out, &session, usize::try_from(limit).unwrap_or(usize::MAX), query).await
        }
        Command::Show { lease } => out.show(&client.lease_called(&lease).await?, detail),
        Command::Wait { lease, state, timeout } => {
            let lease = client.lease_id(&lease).await?;
            out.show(&wait(&session, lease, state, Duration::from_millis(timeout)).await?, detail)
        }
        Command::Logs { lease, tail, no_follow, raw } => {
            let lease = client.lease_id(&lease).await?;
            logs(out, &session, lease, LogQuery { tail, follow: Some(!no_follow) }, raw).await
        }
        Command::Top { lease } => {
            let lease = client.lease(client.lease_id(&lease).await?).await?;
            out.show(&lease, |lease| lease_view::top(out, lease))
        }
        Command::Extend { lease, for_ms } => {
            session.expect_promises().await?;
            session.sign_words()?;
            let lease = client.lease_id(&lease).await?;
            let lease = client.extend(lease, &selion_client::fresh_key()?, for_ms).await?;
            session.keep_promises()?;
            out.show(&lease, detail)
        }
        Command::Release { lease } => {
            session.expect_promises().await?;
            session.sign_words()?;
            let lease = client.lease_id(&lease).await?;
            let lease = client.release(lease).await?;
            session.keep_promises()?;
            out.show(&lease, detail)
        }
        Command::Outputs { lease, get, attempt, rank } => {
            let lease = client.lease_id(&lease).await?;
            let asked = lease_outputs::Asked { lease, attempt, rank };
            lease_outputs::main(out, &session, asked, get.as_deref()).await
        }
        Command::Explain { lease } => explain(out, &session, client.lease_id(&lease).await?).await,
        Command::Events { lease, no_follow } => events(out, &session, client.lease_id(&lease).await?, !no_follow).await,
    }
}

/// Every change so far, then those that come.
async fn events(out: Output, session: &Session, id: LeaseId, follow: bool) -> Done {
    let mut events = session.client.events_so_far(id, None, follow);
    while let Some(event) = events.next().await {
        let event = event?;
        if out.is_json() { out.json(&event)? } else { line(&lease_view::event(&event))? }
    }
    Ok(())
}

async fn list(out: Output, session: &Session, limit: usize, mut page: LeaseQuery) -> Done {
    let mut leases = Vec::new();
    while leases.len() < limit {
        page.page_size = u32::try_from((limit - leases.len()).min(500)).ok();
        let answer = session.client.find_leases(&page).await?;
        leases.extend(answer.leases);
        match answer.next_page_token {
            Some(token) => page.page_token = Some(token),
            None => break,
        }
    }
    out.show(&serde_json::json!({ "leases": leases }), |_| lease_view::list(out, &leases))
}

/// Waits for a state, asking again as often as needed.
pub async fn wait(session: &Session, id: LeaseId, state: LeaseState, timeout: Duration) -> Done<Lease> {
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match session.client.wait(id, state, left.min(ONE_WAIT)).await {
            Err(ClientError::Problem(problem)) if problem.code == "wait_timeout" && left > ONE_WAIT => {}
            Err(error) => return Err(error.into()),
            Ok(lease) => return Ok(lease),
        }
    }
}

async fn logs(out: Output, session: &Session, id: LeaseId, query: LogQuery, raw: bool) -> Done {
    let gang = session.client.lease(id).await?.wants.len() > 1;
    let mut lines = session.client.logs(id, &query);
    let mut printer = Printer::new(out, gang, raw);
    while let Some(one) = lines.next().await {
        printer.print(&one?)?;
    }
    printer.finish()
}

/// What `ask` would get: see `--dry-run`.
pub async fn quote(out: Output, session: &Session, ask: Ask) -> Done {
    let request = ask.request();
    let told = session.client.quote(&request).await?;
    out.show(&told, |told| {
        format!("{}{}", quote_view::quote(out, told), gives_up_first(told, request.wait_ms, wall_clock()))
    })
}

/// What to say of a request that would not wait long enough.
fn gives_up_first(told: &Quote, wait_ms: u64, now: TimeMs) -> String {
    match told {
        Quote::Wait { starts_ms: Some(at), .. } if at.since(now) > wait_ms => format!(
            "\nit will have given up by then: it waits {}; add --wait {} or more",
            unit::show_duration(wait_ms),
            unit::show_duration(at.since(now).div_ceil(60_000) * 60_000)
        ),
        _ => String::new(),
    }
}

async fn explain(out: Output, session: &Session, id: LeaseId) -> Done {
    let (lease, placement) = futures::try_join!(session.client.lease(id), session.client.placement(id))?;
    let both = serde_json::json!({ "lease": lease, "placement": placement });
    out.show(&both, |_| {
        let (lease, of) = (lease_view::detail(out, &lease, wall_clock()), lease.state);
        format!("{lease}\n{}{}", lease_view::judged(of), lease_view::placement(out, &placement))
    })
}

/// How a lease that is over ended, as a result: the command's own exit code, or why there is none.
pub fn verdict(lease: &Lease) -> Done {
    use selion_api::{Party, Reason};
    match lease.reason {
        Some(Reason::Completed) => Ok(()),
        Some(Reason::CommandFailed) => {
            let codes = lease.members.iter().filter_map(|member| member.exit_code);
            let code = codes.into_iter().find(|code| *code != 0).unwrap_or(1);
            Err(Failure::remote(u8::try_from(code).unwrap_or(Exit::Failure.code())))
        }
        Some(reason) => {
            let suggestion = match reason.party() {
                Party::Renter => format!("`selion lease show {}` has the whole story", lease.id),
                Party::Provider if reason == Reason::RuntimeFailed => {
                    "check the program's name first: it is looked for on the node, and one that is not there ends so; \
                     else run it again: the pool places it elsewhere"
                        .to_owned()
                }
                Party::Provider => {
                    "run it again: the pool places it elsewhere; nothing was billed past the evidence".to_owned()
                }
                Party::Pool | Party::Chain => {
                    format!("`selion lease explain {}` shows what stood in the way", lease.id)
                }
            };
            let detail = format!("{} ended: {}", lease.id, reason.text());
            Err(Failure::new(Exit::Conflict, reason.code(), detail, suggestion))
        }
        None => {
            let detail = format!("{} is {}", lease.id, lease.state.code());
            Err(Failure::new(Exit::Conflict, "not_ended", detail, format!("selion lease show {}", lease.id)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_says_when_the_request_will_have_given_up() {
        let told: Quote = serde_json::from_value(serde_json::json!({
            "would": "wait", "position": 1, "reason": "pool_full", "nearest": null, "starts_ms": 1_000_000 + 90_000,
            "blocking": null, "price": { "total": "1", "reserve": "1", "hourly": "1", "operator_fee": "0" },
        }))
        .unwrap();
        let text = gives_up_first(&told, 15_000, TimeMs(1_000_000));
        assert_eq!(text, "\nit will have given up by then: it waits 15s; add --wait 2m or more");
        assert_eq!(gives_up_first(&told, 90_000, TimeMs(1_000_000)), "");
    }
}
