//! `selion run`: asks for a lease, follows it, and ends as its command ends.

use std::time::Duration;

use futures::StreamExt;
use selion_api::LeaseId;
use selion_api::lease::LeaseState;
use selion_api::outputs::OutputState;
use selion_api::rest::{Lease, LeaseEvent, LeaseOutput};
use selion_client::LogQuery;
use selion_controller::wall_clock;
use tokio::time::{Instant, sleep_until};

use super::ask::Ask;
use super::lease::{quote, verdict};
use super::lease_view;
use super::log_view::Printer;
use super::secrets::{LAST_LOOK as LOOK_AGAIN, Sealer};
use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::output::Output;
use crate::session::Session;
use crate::stop::{Stop, Stops};
use crate::unit::{show_elapsed, show_money};

/// First and longest pause between two looks at outputs that are being sent.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LAST_LOOK: Duration = Duration::from_secs(2);

/// Leases slices, runs a command on them, shows what it prints, and ends with its exit code; with 10 if that is 0 and not
/// all of its outputs were kept.
///
/// Ctrl-C gives the slices back 2 s later; a second one within that time leaves the lease running. SIGTERM gives them
/// back at once. A terminal that is closed (SIGHUP) leaves the lease running. Our own failures are exit code 255.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    ask: Ask,
    /// Ctrl-C leaves the lease running at once
    #[arg(long)]
    keep: bool,
    /// What the command prints comes byte by byte, also to a terminal; members of a gang are not told apart
    #[arg(long)]
    raw: bool,
    /// Tells what the lease would get and cost, and runs nothing
    #[arg(long)]
    dry_run: bool,
}

/// How long a Ctrl-C can be taken back by another.
const SECOND_THOUGHT: Duration = Duration::from_secs(2);

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
    session.sign_words()?;
    let mut stops = Stops::new()?;
    let (lease, secrets) = tokio::select! {
        lease = args.ask.create(out, &session) => lease?,
        () = stops.next() => {
            out.note("interrupted while asking; `selion lease list` shows whether a lease was made");
            return Err(Failure::remote(Exit::Interrupted.code()));
        }
    };
    let run = Run { out, session: &session, id: lease.id, gang: lease.wants.len() > 1, keep: args.keep, raw: args.raw };
    let sealer = Sealer::new(&session, out, lease.id, secrets);
    let stopped = run.watch(sealer, &mut stops).await?;
    run.finish(stopped, &mut stops).await
}

struct Run<'a> {
    out: Output,
    session: &'a Session,
    id: LeaseId,
    gang: bool,
    keep: bool,
    raw: bool,
}

/// How far the end that somebody asked for has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    NotAsked,
    /// The slices are given back at this time, unless that is taken back.
    Asked(Instant),
    GivenBack,
}

impl Run<'_> {
    /// Shows everything until the lease is over. True if the slices were given back because we were asked to stop.
    async fn watch(&self, mut sealer: Sealer<'_>, stops: &mut Stops) -> Done<bool> {
        let client = &self.session.client;
        let mut lines = client.logs(self.id, &LogQuery::default());
        let mut events = client.events(self.id, None);
        let mut printer = Printer::new(self.out, self.gang, self.raw);
        let (mut more_lines, mut more_events, mut ending) = (true, true, Ending::NotAsked);
        let mut unsealed = None;
        // A node states its key beside the log, and a repair has no change of state: so we look again.
        let mut looks = tokio::time::interval(LOOK_AGAIN);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while more_lines || more_events {
            let release_at = match ending {
                Ending::Asked(at) => Some(at),
                Ending::NotAsked | Ending::GivenBack => None,
            };
            tokio::select! {
                biased;
                stop = stops.which() => ending = self.asked_to_stop(stop, ending).await?,
                () = sleep_until(release_at.unwrap_or_else(Instant::now)), if release_at.is_some() => {
                    ending = self.give_back().await?;
                }
                next = lines.next(), if more_lines => match next {
                    Some(line) => {
                        if let Err(gone) = printer.print(&line.map_err(|error| self.lost(error.into()))?) {
                            // Nobody reads us any more: the command works for nobody.
                            self.release().await?;
                            return Err(gone);
                        }
                    }
                    None => {
                        more_lines = false;
                        printer.finish()?;
                    }
                },
                next = events.next(), if more_events => match next {
                    Some(event) => {
                        self.tell(&event.map_err(|error| self.lost(error.into()))?).await?;
                        looks.reset_immediately();
                    }
                    None => more_events = false,
                },
                _ = looks.tick(), if more_events && sealer.is_needed() => {
                    self.seal(&mut sealer, &mut unsealed).await;
                }
            }
        }
        Ok(ending == Ending::GivenBack)
    }

    async fn asked_to_stop(&self, stop: Stop, ending: Ending) -> Done<Ending> {
        match (stop, ending) {
            (_, Ending::GivenBack) => Err(self.stop_watching()),
            (_, _) if self.keep => Err(self.detach()),
            (Stop::Terminate, _) => self.give_back().await,
            (Stop::Interrupt, Ending::Asked(_)) => Err(self.detach()),
            (Stop::Interrupt, Ending::NotAsked) => {
                let seconds = SECOND_THOUGHT.as_secs();
                self.out.note(format!("giving {} back in {seconds} s; Ctrl-C again leaves it running", self.id));
                Ok(Ending::Asked(Instant::now() + SECOND_THOUGHT))
            }
        }
    }

    async fn give_back(&self) -> Done<Ending> {
        self.out.note(format!("{} is being given back; Ctrl-C stops watching", self.id));
        self.release().await?;
        Ok(Ending::GivenBack)
    }

    async fn tell(&self, event: &LeaseEvent) -> Done {
        if self.out.is_json() {
            return self.out.json(&serde_json::json!({ "event": event }));
        }
        if event.state == LeaseState::Waiting {
            // Most are placed by now; then there is nothing to say about waiting.
            let lease = self.session.client.lease(self.id).await.ok();
            if let Some(waiting) = lease.and_then(|lease| lease.waiting) {
                self.out.note(format!("{} {}", self.id, lease_view::waiting(&waiting, wall_clock())));
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

    /// Seals for whoever waits. What does not work is told once and tried again: a lease that gets no secrets ends by itself.
    async fn seal(&self, sealer: &mut Sealer<'_>, told: &mut Option<String>) {
        let failed = sealer.pass().await.err().map(|failure| failure.body().detail.clone());
        if failed.is_some() && failed != *told {
            self.out.note(format!(
                "{}: its secrets are not sealed: {}",
                self.id,
                failed.as_deref().unwrap_or_default()
            ));
        }
        *told = failed;
    }

    fn detach(&self) -> Failure {
        let id = self.id;
        self.out.note(format!(
            "{id} goes on; return with `selion lease logs {id}`, end it with `selion lease release {id}`"
        ));
        Failure::remote(Exit::Interrupted.code())
    }

    fn stop_watching(&self) -> Failure {
        let id = self.id;
        self.out.note(format!("{id} was given back and ends by itself; see `selion lease show {id}`"));
        Failure::remote(Exit::Interrupted.code())
    }

    /// We cannot follow any more; the lease may well go on.
    fn lost(&self, failure: Failure) -> Failure {
        let id = self.id;
        self.out.note(format!("{id} may go on; see `selion lease show {id}`, end it with `selion lease release {id}`"));
        failure
    }

    async fn finish(&self, stopped: bool, stops: &mut Stops) -> Done {
        if let Err(failure) = self.session.keep_promises() {
            self.out.note(format!("the promise of a release could not be kept: {}", failure.body().detail));
        }
        let lease = self.session.client.lease(self.id).await?;
        self.out.note(summary(&lease));
        let lease = if stopped { lease } else { self.sent(lease, stops).await? };
        if self.out.is_json() {
            self.out.json(&serde_json::json!({ "lease": lease }))?;
        }
        lease_view::told(&lease).into_iter().for_each(|line| self.out.note(line));
        if stopped {
            return Err(Failure::remote(Exit::Interrupted.code()));
        }
        verdict(&lease)?;
        if is_whole(&lease) { Ok(()) } else { Err(Failure::remote(Exit::Outputs.code())) }
    }

    /// The lease once its outputs are with the pool, or lost, or once we are asked to stop waiting: they go on alone.
    async fn sent(&self, mut lease: Lease, stops: &mut Stops) -> Done<Lease> {
        let mut pause = FIRST_LOOK;
        let is_on_its_way = |lease: &Lease, one: &LeaseOutput| {
            one.state == OutputState::Uploading && lease_view::is_of_last_run(lease, one)
        };
        let uploads = |lease: &Lease| lease.outputs.iter().any(|one| is_on_its_way(lease, one));
        while uploads(&lease) {
            if pause == FIRST_LOOK {
                self.out.note("the outputs are being sent, unbilled; Ctrl-C leaves that to the node");
            }
            tokio::select! {
                biased;
                () = stops.next() => break,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(LAST_LOOK);
            lease = self.session.client.lease(self.id).await?;
        }
        Ok(lease)
    }
}

/// Whether everything that its last run left was kept. What is still on its way is not lost.
fn is_whole(lease: &Lease) -> bool {
    let gone = |one: &LeaseOutput| matches!(one.state, OutputState::Partial | OutputState::Lost);
    !lease.outputs.iter().any(|one| gone(one) && lease_view::is_of_last_run(lease, one))
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
