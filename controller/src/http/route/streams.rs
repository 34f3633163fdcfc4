//! Server-sent events: a lease's log lines and its changes, resumable by `Last-Event-ID`.

use std::convert::Infallible;
use std::str::FromStr;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt, stream};
use selion_api::LeaseId;
use selion_api::agent::LogSource;
use selion_api::lease::LeaseState;
use selion_api::rest::{LeaseEvent, LeaseRef, LogLine};

use super::leases::own;
use super::wait::touched;
use crate::App;
use crate::agents::logs::{Begin, Kept, Record};
use crate::http::Problem;
use crate::http::caller::Renter;
use crate::http::input::{Path, Query};
use crate::http::named::resolve;
use crate::store::rows;

/// A comment is sent this often, so that proxies and readers know that the stream lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Most lines that `tail` gives.
const MAX_TAIL: usize = 10_000;
const LAST_EVENT_ID: &str = "last-event-id";

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct LogQuery {
    /// Of the kept lines only the last so many, up to 10000, and of the last 16 MiB; all if absent.
    tail: Option<usize>,
    /// `false` ends the stream after the kept lines; `true`, the default, when the lease has ended.
    follow: Option<bool>,
}

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct EventQuery {
    /// `false` ends the stream after the changes so far; `true`, the default, when the lease has ended.
    follow: Option<bool>,
}

/// The id of a line on the wire: `attempt.member.line`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LineId {
    attempt: u32,
    member: u16,
    line: u64,
}

impl FromStr for LineId {
    type Err = Problem;
    fn from_str(text: &str) -> Result<Self, Problem> {
        let bad = || Problem::Header("Last-Event-ID", "is attempt.member.line, as in the `id` of an event");
        let mut parts = text.split('.');
        let mut part = || parts.next().ok_or_else(bad);
        let id = Self {
            attempt: part()?.parse().map_err(|_| bad())?,
            member: part()?.parse().map_err(|_| bad())?,
            line: part()?.parse().map_err(|_| bad())?,
        };
        parts.next().is_none().then_some(id).ok_or_else(bad)
    }
}

impl LineId {
    fn of(record: &Record) -> Self {
        Self { attempt: record.attempt, member: record.member, line: record.number }
    }

    /// Whether `record` proves that the one of this id came before it: a later one of the member, or a later run.
    fn is_before(self, record: &Record) -> bool {
        let Record { attempt, member, number, .. } = *record;
        attempt > self.attempt || attempt == self.attempt && member == self.member && number > self.line
    }
}

/// What the members print, live.
#[utoipa::path(get, path = "/v1/leases/{id}/logs", operation_id = "stream_logs", tag = "leases", params(("id" = String, Path, description = "Id or name of the lease"), LogQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "Go on after this event")),
    security(("bearer" = [])), responses((status = 200, body = LogLine, content_type = "text/event-stream",
        description = "Events `line`, id `attempt.member.line`, data a LogLine; at the end one event `end`")))]
pub(in crate::http) async fn logs(
    State(app): State<App>,
    renter: Renter,
    Path(id): Path<LeaseRef>,
    Query(query): Query<LogQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = resolve(&app, renter.account, id).await?;
    own(&app, renter.account, id).await?;
    if query.tail.is_some_and(|tail| tail > MAX_TAIL) {
        return Err(Problem::Query(format!("tail is at most {MAX_TAIL}")));
    }
    let last = last_event_id(&headers)?.map(LineId::from_str).transpose()?;
    let from = match (query.tail, last) {
        (Some(lines), None) => Begin::Tail(lines),
        _ => Begin::Start,
    };
    let kept = app.hub.logs(renter.account, id, from, query.follow.unwrap_or(true)).await;
    let events = after(kept, last).map(|kept| log_event(&kept));
    Ok(sse(events.chain(stream::iter([end()]))))
}

/// What was printed has an id to go on from; a note in the place of what was dropped has none.
fn log_event(kept: &Kept) -> Event {
    match kept {
        Kept::Record(record) => {
            let LineId { attempt, member, line } = LineId::of(record);
            json_event("line", Some(format!("{attempt}.{member}.{line}")), &record.line())
        }
        Kept::LeftOut { records, attempt, member, before } => {
            let text = format!("{records} lines were left out here: the pool keeps the first and the last of a lease");
            let (source, attempt, member, line) = (LogSource::Agent, *attempt, *member, before.saturating_sub(1));
            json_event(
                "line",
                None,
                &LogLine { attempt, member, line, source, text, partial: false, bytes_base64: None },
            )
        }
    }
}

/// What is behind `last`. What is kept comes in one order always, so what came before it then comes before it now.
fn after(kept: impl Stream<Item = Kept>, last: Option<LineId>) -> impl Stream<Item = Kept> {
    let mut skipping = last;
    kept.filter(move |kept| {
        let give = match (skipping, kept) {
            (None, _) => true,
            (Some(last), Kept::Record(record)) if LineId::of(record) == last => {
                skipping = None;
                false
            }
            (Some(last), Kept::Record(record)) if last.is_before(record) => {
                skipping = None;
                true
            }
            (Some(_), _) => false,
        };
        futures::future::ready(give)
    })
}

/// How the lease changes, from its beginning or from `Last-Event-ID` on.
#[utoipa::path(get, path = "/v1/leases/{id}/events", operation_id = "stream_events", tag = "leases",
    params(("id" = String, Path, description = "Id or name of the lease"), EventQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "Go on after this log entry")),
    security(("bearer" = [])), responses((status = 200, body = LeaseEvent, content_type = "text/event-stream",
        description = "Events `lease`, id the log entry, data a LeaseEvent; after `ended` one event `end`")))]
pub(in crate::http) async fn events(
    State(app): State<App>,
    renter: Renter,
    Path(id): Path<LeaseRef>,
    Query(query): Query<EventQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = resolve(&app, renter.account, id).await?;
    own(&app, renter.account, id).await?;
    let follow = query.follow.unwrap_or(true);
    let bad = |_| Problem::Header("Last-Event-ID", "is the number of a log entry, as in the `id` of an event");
    let after = last_event_id(&headers)?.map(str::parse).transpose().map_err(bad)?;
    let batches = app.log.subscribe();
    let start = Some((app, batches, after, false));
    let groups = stream::unfold(start, move |at| async move {
        let (app, mut batches, after, wait) = at?;
        if wait && !touched(&mut batches, id).await {
            return None;
        }
        match rows::lease_events(&app.store.readers, id, after).await {
            Ok(events) => {
                let over = match events.last() {
                    _ if !follow => true,
                    Some(event) => event.state == LeaseState::Ended,
                    // Resumed behind the last event: the lease itself says whether more will come.
                    None => ended(&app, id).await,
                };
                let after = events.last().map(|event| event.entry).or(after);
                let mut group = with_ids(&events);
                group.extend(over.then(end));
                Some((group, (!over).then_some((app, batches, after, true))))
            }
            Err(error) => {
                tracing::error!(%error, %id, "the lease's events could not be read");
                None
            }
        }
    });
    Ok(sse(groups.flat_map(stream::iter)))
}

async fn ended(app: &App, id: LeaseId) -> bool {
    matches!(rows::lease(&app.store.readers, id).await, Ok(Some(lease)) if lease.state == LeaseState::Ended)
}

/// One entry may cause several events. Only the last of them has the id, so that who resumes misses none.
fn with_ids(events: &[LeaseEvent]) -> Vec<Event> {
    let next = events.iter().skip(1).map(|event| Some(event.entry)).chain([None]);
    events
        .iter()
        .zip(next)
        .map(|(event, next)| {
            let id = (next != Some(event.entry)).then(|| event.entry.to_string());
            json_event("lease", id, event)
        })
        .collect()
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let bad = |_| Problem::Header("Last-Event-ID", "is not readable text");
    headers.get(LAST_EVENT_ID).map(|value| value.to_str().map_err(bad)).transpose()
}

fn json_event<T: serde::Serialize>(kind: &str, id: Option<String>, data: &T) -> Event {
    // Our own structs always serialise, and JSON has no line breaks.
    let text = serde_json::to_string(data).unwrap_or_default();
    let event = Event::default().event(kind).data(text);
    match id {
        Some(id) => event.id(id),
        None => event,
    }
}

/// The stream is complete. One that merely broke off lacks this, and its reader resumes.
fn end() -> Event {
    Event::default().event("end").data("{}")
}

fn sse(events: impl Stream<Item = Event> + Send + 'static) -> Response {
    let headers = [("x-accel-buffering", "no"), ("cache-control", "no-store")];
    let stream = events.map(Ok::<_, Infallible>);
    (headers, Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(attempt: u32, member: u16, number: u64) -> Record {
        Record { attempt, member, number, source: LogSource::Stdout, bytes: Vec::new() }
    }

    async fn given(last: &str) -> Vec<(u32, u16, u64)> {
        let all = [record(1, 0, 0), record(1, 1, 0), record(1, 0, 1), record(1, 1, 1), record(2, 0, 0)];
        let last = last.parse().ok();
        let given = after(stream::iter(all.map(Kept::Record)), last);
        let id = |kept| match kept {
            Kept::Record(record) => (record.attempt, record.member, record.number),
            Kept::LeftOut { .. } => panic!("nothing is left out"),
        };
        given.map(id).collect().await
    }

    #[tokio::test]
    async fn a_resumed_reader_gets_every_later_line_of_every_member_once() {
        assert_eq!(given("1.0.1").await, [(1, 1, 1), (2, 0, 0)]);
        assert_eq!(given("1.1.0").await, [(1, 0, 1), (1, 1, 1), (2, 0, 0)]);
        assert_eq!(given("2.0.0").await, []);
        assert_eq!(given("nonsense").await.len(), 5);
    }

    #[tokio::test]
    async fn a_line_that_is_no_longer_kept_is_passed_by_the_next_one() {
        assert_eq!(given("0.7.7").await.len(), 5);
        assert_eq!(given("1.7.7").await, [(2, 0, 0)]);
    }

    #[test]
    fn only_the_last_event_of_an_entry_moves_the_readers_place() {
        let event = |entry| LeaseEvent {
            entry,
            at_ms: selion_api::TimeMs(0),
            state: LeaseState::Held,
            reason: None,
            attempt: 1,
            peers: Vec::new(),
        };
        let text: Vec<String> =
            with_ids(&[event(3), event(3), event(4)]).iter().map(|event| format!("{event:?}")).collect();
        assert!(!text[0].contains("id: 3") && text[1].contains("id: 3") && text[2].contains("id: 4"), "{text:?}");
    }

    #[test]
    fn what_was_left_out_is_told_without_an_id() {
        let note = Kept::LeftOut { records: 12, attempt: 1, member: 0, before: 40 };
        let text = format!("{:?}", log_event(&note));
        assert!(text.contains("12 lines were left out here") && !text.contains("id: "), "{text}");
        let line = format!("{:?}", log_event(&Kept::Record(record(1, 2, 3))));
        assert!(line.contains("id: 1.2.3"), "{line}");
    }
}
