//! From an event to a signed report on disk.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use selion_api::agent::{Assignment, MemberEvent, Outputs, Report, SignedReport};
use selion_api::commit::PoolId;
use selion_api::{Account, Reason};

use crate::book::{Book, Outbox, OutboxError};
use crate::event::{Event, word};
use crate::keys;
use crate::member_key::MemberKey;
use crate::staging::blocking;

/// Told of every event.
pub(crate) type OnEvent = Arc<dyn Fn(Event) + Send + Sync>;

/// Why a report was not made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// It cannot be kept.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    /// No controller was ever met, so no pool is known in which a signature would count.
    #[error("no pool is known yet")]
    NoPool,
}

/// Makes reports. Clones share the outbox.
#[derive(Clone)]
pub(crate) struct Reporter {
    book: Arc<Book>,
    /// Whose stake answers for what is stated.
    provider: Account,
    on_event: OnEvent,
    /// Members that are being ended at their renter's account, and why.
    evicted: Arc<Mutex<BTreeMap<MemberKey, Eviction>>>,
}

/// Why a member is ended that would run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// It filled the node's disk: stated as its command's end at that limit.
    FullDisk,
    /// Nothing covers its use: stated as a failure for want of payment.
    Unpaid,
}

/// A full disk is tried again after this long, and at most this often: meanwhile whoever filled it is ended.
const FULL: (Duration, u32) = (Duration::from_millis(500), 120);

impl Reporter {
    pub(crate) fn new(book: Arc<Book>, provider: Account, on_event: OnEvent) -> Self {
        Self { book, provider, on_event, evicted: Arc::default() }
    }

    /// The stop of this member is not its node's owner's: it will be stated as `why` says. False if that was said before.
    pub(crate) fn evict(&self, member: MemberKey, why: Eviction) -> bool {
        match self.evicted.lock().unwrap_or_else(PoisonError::into_inner).entry(member) {
            Entry::Vacant(vacant) => {
                vacant.insert(why);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// What is stated of a stop, if the member was evicted.
    fn judged(&self, member: MemberKey, event: MemberEvent) -> MemberEvent {
        let mut evicted = self.evicted.lock().unwrap_or_else(PoisonError::into_inner);
        if !event.is_last() {
            return event;
        }
        match (event, evicted.remove(&member)) {
            (MemberEvent::Stopped { outputs }, Some(Eviction::FullDisk)) => {
                MemberEvent::Limited { reason: Reason::DiskFull, outputs }
            }
            (MemberEvent::Stopped { .. }, Some(Eviction::Unpaid)) => {
                MemberEvent::Failed { reason: Reason::PaymentRequired }
            }
            (last, _) => last,
        }
    }

    /// States `event` about the member of `assignment`; on return the statement is on disk and on its way.
    pub(crate) async fn report(
        &self,
        assignment: &Assignment,
        event: MemberEvent,
        metered_ms: u64,
        outputs: Option<Outputs>,
    ) -> Result<(), ReportError> {
        let report = Report {
            node: keys::node_of(self.book.node_key()),
            provider: self.provider,
            seq: 0,
            fence: self.book.seen().fence,
            lease: assignment.lease,
            attempt: assignment.attempt,
            member: assignment.member,
            gpus: assignment.gpus.clone(),
            slot: assignment.slot.clone(),
            event,
            metered_ms,
        };
        self.make(report, outputs).await
    }

    /// The same for a report that is complete but for its number and fence.
    pub(crate) async fn make(&self, mut report: Report, outputs: Option<Outputs>) -> Result<(), ReportError> {
        let seen = self.book.seen();
        let pool = seen.pool.ok_or(ReportError::NoPool)?;
        report.fence = seen.fence;
        report.event = self.judged(MemberKey::of_report(&report), report.event);
        let told = Event::Member {
            member: MemberKey::of_report(&report),
            what: word(&report.event),
            metered_ms: report.metered_ms,
        };
        let mut tries = 0;
        while let Err(error) = self.keep(pool, report.clone(), outputs.clone()).await {
            if !Outbox::is_full(&error) || tries == FULL.1 {
                return Err(error.into());
            }
            tries += 1;
            tracing::warn!(tries, "the disk is full: a report cannot be kept; trying again");
            tokio::time::sleep(FULL.0).await;
        }
        (self.on_event)(told);
        Ok(())
    }

    /// Has the report signed and on disk.
    async fn keep(&self, pool: PoolId, report: Report, outputs: Option<Outputs>) -> Result<(), OutboxError> {
        let book = Arc::clone(&self.book);
        blocking(move || {
            book.outbox().add(report, outputs, |report| {
                let signature = keys::sign(book.node_key(), &pool, "report", report);
                Ok(SignedReport { report: report.clone(), signature: signature.map_err(|error| error.to_string())? })
            })
        })
        .await
        .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use selion_api::{Address, LeaseId, NodeId, Slot};

    use super::*;

    fn stopped(lease: u64) -> Report {
        Report {
            node: NodeId([1; 20]),
            provider: Account([2; 20]),
            seq: 0,
            fence: Default::default(),
            lease: LeaseId { seq: lease, index: 0 },
            attempt: 0,
            member: 0,
            gpus: Vec::new(),
            slot: Slot::Whole,
            event: MemberEvent::Stopped { outputs: None },
            metered_ms: 9,
        }
    }

    #[tokio::test]
    async fn the_stop_of_a_member_that_filled_the_disk_or_is_not_paid_for_is_not_stated_as_its_owners() {
        let dir = tempfile::tempdir().unwrap();
        let book = Arc::new(Book::open(dir.path()).unwrap());
        book.pin_pool(PoolId { chain_id: 1, controller: Address([7; 20]) }).unwrap();
        let reporter = Reporter::new(Arc::clone(&book), Account([2; 20]), Arc::new(|_| {}));
        let key = MemberKey::of_report(&stopped(1));
        let full = |key| reporter.evict(key, Eviction::FullDisk);
        assert!(full(key) && !full(key), "said once");
        assert!(reporter.evict(MemberKey::of_report(&stopped(3)), Eviction::Unpaid));
        reporter.make(stopped(1), None).await.unwrap();
        reporter.make(stopped(2), None).await.unwrap();
        reporter.make(stopped(3), None).await.unwrap();
        let events: Vec<MemberEvent> =
            book.outbox().after(0).into_iter().map(|(_, messages)| event(&messages)).collect();
        let own = MemberEvent::Limited { reason: Reason::DiskFull, outputs: None };
        let unpaid = MemberEvent::Failed { reason: Reason::PaymentRequired };
        assert_eq!(events, [own, MemberEvent::Stopped { outputs: None }, unpaid]);
    }

    fn event(messages: &[selion_api::agent::ToController]) -> MemberEvent {
        match messages {
            [selion_api::agent::ToController::Report(signed)] => signed.report.event.clone(),
            other => panic!("{other:?}"),
        }
    }
}
