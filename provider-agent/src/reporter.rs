//! From an event to a signed report on disk.

use std::sync::Arc;

use selion_api::agent::{Assignment, MemberEvent, Outputs, Report, SignedReport};

use crate::book::{Book, OutboxError};
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
    on_event: OnEvent,
}

impl Reporter {
    pub(crate) fn new(book: Arc<Book>, on_event: OnEvent) -> Self {
        Self { book, on_event }
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
        let told = Event::Member {
            member: MemberKey::of_report(&report),
            what: word(&report.event),
            metered_ms: report.metered_ms,
        };
        let book = Arc::clone(&self.book);
        blocking(move || {
            book.outbox().add(report, outputs, |report| {
                let signature = keys::sign(book.node_key(), &pool, "report", report);
                Ok(SignedReport { report: report.clone(), signature: signature.map_err(|error| error.to_string())? })
            })
        })
        .await?;
        (self.on_event)(told);
        Ok(())
    }
}
