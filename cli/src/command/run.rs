//! `selion run`: asks for a lease, follows it, and ends as its command ends.

use futures::StreamExt;
use selion_api::LeaseId;
use selion_api::lease::LeaseState;
use selion_api::rest::{Lease, LeaseEvent};
use selion_client::LogQuery;

use super::ask::Ask;
use super::lease::{print, quote, verdict};
use super::lease_view;
use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::output::Output;
use crate::session::Session;
use crate::stop::Stops;
use crate::unit::{show_elapsed, show_money};

/// Leases slices, runs a command on them, shows what it prints, and ends with its exit code.
///
/// Ctrl-C gives the slices back; a second one leaves them and says how to return. Our own failures are exit code 255.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    ask: Ask,
    /// Ctrl-C leaves the lease running at once
    #[arg(long)]
    keep: bool,
    /// Tells what the lease would get and cost, and runs nothing
    #[arg(long)]
    dry_run: bool,
}

/// Runs it.
pub async fn main(out: Output, args: Args) -> Done {
    follow(out, args).await.map_err(
        |failure| {
            if failure.is_silent() { failure } else { failure.with_exit(Exit::RunFailed) }
        },
    )
}

async fn follow(out: Output, args: Args) -> Done {
    let session = Session::open()?;
    if args.dry_run {
        return quote(out, &session, args.ask).await;
    }
    let mut stops = Stops::new()?;
    let lease = tokio::select! {
        lease = args.ask.create(out, &session) => lease?,
        () = stops.next() => {
            out.note("interrupted while asking; `selion lease list` shows whether a lease was made");
            return Err(Failure::remote(Exit::Interrupted.code()));
        }
    };
    let run = Run { out, session: &session, id: lease.id, gang: lease.wants.len() > 1, keep: args.keep };
    let stopped = run.watch(&mut stops).await?;
    run.finish(stopped).await
}

struct Run<'a> {
    out: Output,
    session: &'a Session,
    id: LeaseId,
    gang: bool,
    keep: bool,
}

impl Run<'_> {
    /// Shows everything until the lease is over. True if we were asked to stop.
    async fn watch(&self, stops: &mut Stops) -> Done<bool> {
        let client = &self.session.client;
        let mut lines = client.logs(self.id, &LogQuery::default());
        let mut events = client.events(self.id, None);
        let (mut more_lines, mut more_events, mut stopped) = (true, true, false);
        while more_lines || more_events {
            tokio::select! {
                biased;
                () = stops.next() => {
                    if stopped || self.keep {
                        return Err(self.detach());
                    }
                    stopped = true;
                    self.out.note(format!("giving {} back; Ctrl-C again leaves it running", self.id));
                    self.release().await?;
                }
                next = lines.next(), if more_lines => match next {
                    Some(line) => {
                        if let Err(gone) = print(self.out, &line.map_err(|error| self.lost(error.into()))?, self.gang) {
                            // Nobody reads us any more: the command works for nobody.
                            self.release().await?;
                            return Err(gone);
                        }
                    }
                    None => more_lines = false,
                },
                next = events.next(), if more_events => match next {
                    Some(event) => self.tell(&event.map_err(|error| self.lost(error.into()))?).await?,
                    None => more_events = false,
                },
            }
        }
        Ok(stopped)
    }

    async fn tell(&self, event: &LeaseEvent) -> Done {
        if self.out.is_json() {
            return self.out.json(&serde_json::json!({ "event": event }));
        }
        if event.state == LeaseState::Waiting {
            // Most are placed by now; then there is nothing to say about waiting.
            let lease = self.session.client.lease(self.id).await.ok();
            if let Some(waiting) = lease.and_then(|lease| lease.waiting) {
                self.out.note(format!("{} {}", self.id, lease_view::waiting(&waiting)));
            }
            return Ok(());
        }
        let why = event.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        self.out.note(format!("{} {}{why}", self.id, event.state.code()));
        Ok(())
    }

    /// A lease that ended by itself meanwhile needs no release.
    async fn release(&self) -> Done {
        match self.session.client.release(self.id).await {
            Err(error) if error.code() == Some("not_live") => Ok(()),
            other => other.map(drop).map_err(|error| self.lost(error.into())),
        }
    }

    fn detach(&self) -> Failure {
        let id = self.id;
        self.out.note(format!(
            "{id} goes on; return with `selion lease logs {id}`, end it with `selion lease release {id}`"
        ));
        Failure::remote(Exit::Interrupted.code())
    }

    /// We cannot follow any more; the lease may well go on.
    fn lost(&self, failure: Failure) -> Failure {
        let id = self.id;
        self.out.note(format!("{id} may go on; see `selion lease show {id}`, end it with `selion lease release {id}`"));
        failure
    }

    async fn finish(&self, stopped: bool) -> Done {
        if let Err(failure) = self.session.keep_promises() {
            self.out.note(format!("the promise of a release could not be kept: {}", failure.body().detail));
        }
        let lease = self.session.client.lease(self.id).await?;
        if self.out.is_json() {
            self.out.json(&serde_json::json!({ "lease": lease }))?;
        }
        self.out.note(summary(&lease));
        for (rank, cid) in &lease.outputs {
            self.out.note(format!("output of member {rank}: selion data get {cid} DEST"));
        }
        if stopped { Err(Failure::remote(Exit::Interrupted.code())) } else { verdict(&lease) }
    }
}

fn summary(lease: &Lease) -> String {
    let billed = lease.members.iter().map(|member| member.billable_ms).max().unwrap_or_default();
    let why = lease.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!(
        "{} {}{why}: {} billed, {} tokens",
        lease.id,
        lease.state.code(),
        show_elapsed(billed),
        show_money(lease.amount.0)
    )
}
