//! Streams of log lines and lease events that go on where they broke off.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt, stream};
use reqwest::header::ACCEPT;
use reqwest::{Method, Response};
use selion_api::LeaseId;
use selion_api::rest::{LeaseEvent, LogLine};
use serde::de::DeserializeOwned;

use crate::call::{As, TIMEOUT};
use crate::sse::{Event, Parser};
use crate::trouble::Trouble;
use crate::{Client, ClientError, LogQuery};

/// Waits between two tries: doubles from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// A stream that could not be opened again for so long gives up.
const PATIENCE: Duration = Duration::from_secs(90);
/// The controller sends at least a comment every 15 s.
const SILENCE: Duration = Duration::from_secs(45);

impl Client {
    /// `GET /v1/leases/{id}/logs`: lines as they come, each once. Reconnects; ends after the lease's last line.
    pub fn logs(
        &self,
        id: LeaseId,
        query: &LogQuery,
    ) -> impl Stream<Item = Result<LogLine, ClientError>> + Send + Unpin + use<> {
        let mut pairs = Vec::new();
        pairs.extend(query.tail.map(|tail| ("tail", tail.to_string())));
        pairs.extend(query.follow.map(|follow| ("follow", follow.to_string())));
        self.follow(id, "logs", pairs)
    }

    /// `GET /v1/leases/{id}/events`: every change from the first, or from the one behind log entry `after`. Reconnects
    /// (and may then repeat events of one entry); ends after `ended`.
    pub fn events(
        &self,
        id: LeaseId,
        after: Option<u64>,
    ) -> impl Stream<Item = Result<LeaseEvent, ClientError>> + Send + Unpin + use<> {
        self.events_so_far(id, after, true)
    }

    /// The same; without `follow` it ends after the changes so far.
    pub fn events_so_far(
        &self,
        id: LeaseId,
        after: Option<u64>,
        follow: bool,
    ) -> impl Stream<Item = Result<LeaseEvent, ClientError>> + Send + Unpin + use<> {
        let query = if follow { Vec::new() } else { vec![("follow", "false".to_owned())] };
        self.follow_from(id, "events", query, after.map(|entry| entry.to_string()))
    }

    fn follow<T: DeserializeOwned + Send>(
        &self,
        id: LeaseId,
        what: &'static str,
        query: Vec<(&'static str, String)>,
    ) -> impl Stream<Item = Result<T, ClientError>> + Send + Unpin + use<T> {
        self.follow_from(id, what, query, None)
    }

    fn follow_from<T: DeserializeOwned + Send>(
        &self,
        id: LeaseId,
        what: &'static str,
        query: Vec<(&'static str, String)>,
        last_id: Option<String>,
    ) -> impl Stream<Item = Result<T, ClientError>> + Send + Unpin + use<T> {
        let reader = Reader {
            client: self.clone(),
            path: ["v1".to_owned(), "leases".to_owned(), id.to_string(), what.to_owned()],
            query,
            last_id,
            open: None,
            ready: VecDeque::new(),
            failures: 0,
            failing_since: None,
        };
        stream::unfold(Some(reader), |reader| async {
            let mut reader = reader?;
            match reader.next().await {
                Ok(Some(event)) => {
                    let item = serde_json::from_str(&event.data).map_err(|error| ClientError::Protocol {
                        url: reader.client.base_url().to_owned(),
                        what: format!("an event that cannot be read: {error}"),
                    });
                    let rest = item.is_ok().then_some(reader);
                    Some((item, rest))
                }
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed()
    }
}

struct Reader {
    client: Client,
    path: [String; 4],
    query: Vec<(&'static str, String)>,
    last_id: Option<String>,
    open: Option<(Response, Parser)>,
    ready: VecDeque<Event>,
    failures: u32,
    failing_since: Option<Instant>,
}

impl Reader {
    /// The next event; `None` after the stream's own end.
    async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                if event.kind == "end" {
                    return Ok(None);
                }
                if event.id.is_some() {
                    self.last_id.clone_from(&event.id);
                }
                return Ok(Some(event));
            }
            if let Err(error) = self.fill().await {
                self.open = None;
                self.failures += 1;
                let since = *self.failing_since.get_or_insert_with(Instant::now);
                if !error.is_retryable() || since.elapsed() > PATIENCE {
                    return Err(error);
                }
                let why = match &error {
                    ClientError::Unreachable { why, .. } => why.clone(),
                    other => other.to_string(),
                };
                self.client.watcher().tell(&Trouble::Lost { why, gives_up: PATIENCE });
                let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(8)).min(LAST_PAUSE);
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Connects, or reads what comes next.
    async fn fill(&mut self) -> Result<(), ClientError> {
        let Some((response, parser)) = &mut self.open else {
            self.open = Some((self.connect().await?, Parser::default()));
            return Ok(());
        };
        let url = response.url().to_string();
        let broke =
            |why: String| ClientError::Unreachable { url: url.clone(), why, remedy: "the stream broke off: try again" };
        match tokio::time::timeout(SILENCE, response.chunk()).await {
            Err(_) => Err(broke(format!("no sign of life for {} s", SILENCE.as_secs()))),
            Ok(Err(error)) => Err(broke(error.to_string())),
            Ok(Ok(None)) => Err(broke("the stream ended without its last event".to_owned())),
            Ok(Ok(Some(bytes))) => {
                // A comment is a sign of life too.
                if self.failing_since.take().is_some() {
                    self.failures = 0;
                    self.client.watcher().tell(&Trouble::Back);
                }
                let events = parser.feed(&bytes).map_err(|_| ClientError::Protocol {
                    url: url.clone(),
                    what: "an event line has no end".to_owned(),
                })?;
                self.ready.extend(events);
                Ok(())
            }
        }
    }

    async fn connect(&self) -> Result<Response, ClientError> {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        // A stream that goes on does not begin with its tail again.
        let query: Vec<_> = self.query.iter().filter(|(name, _)| *name != "tail" || self.last_id.is_none()).collect();
        let make = || {
            let request = self.client.request(Method::GET, &path).query(&query).header(ACCEPT, "text/event-stream");
            match &self.last_id {
                Some(id) => request.header("Last-Event-ID", id),
                None => request,
            }
        };
        let url = || make().build().map(|request| request.url().to_string()).unwrap_or_default();
        match tokio::time::timeout(TIMEOUT, self.client.ask(As::Me, &make)).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::Unreachable {
                url: url(),
                why: format!("no answer for {} s", TIMEOUT.as_secs()),
                remedy: "check that the controller runs",
            }),
        }
    }
}
