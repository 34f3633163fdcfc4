//! Follows a lease's log as it comes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use selion_api::LeaseId;
use selion_api::rest::LogLine;
use selion_client::{Client, LogQuery};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::fault::{Fault, Told, until};

/// Lines so far. Dropping stops following.
pub(crate) struct Tail {
    lease: LeaseId,
    heard: Arc<Mutex<Vec<LogLine>>>,
    task: JoinHandle<()>,
}

impl Tail {
    /// Follows from the first line; the client connects again where the stream breaks.
    pub fn follow(client: &Client, lease: LeaseId) -> Self {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let mut lines = client.logs(lease, &LogQuery::default());
        let into = heard.clone();
        let task = tokio::spawn(async move {
            // The stream's own end or its last error; whoever waits for a line says what is missing.
            while let Some(Ok(line)) = lines.next().await {
                into.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Self { lease, heard, task }
    }

    /// Everything so far.
    pub fn lines(&self) -> Vec<LogLine> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the lines so far answer a question.
    pub async fn find<T>(
        &self,
        patience: Duration,
        expected: &str,
        answer: impl Fn(&[LogLine]) -> Option<T>,
    ) -> Told<T> {
        let found = until(patience, expected, async || {
            let lines = self.lines();
            Ok(answer(&lines).ok_or_else(|| self.last_of(&lines)))
        });
        found.await
    }

    fn last_of(&self, lines: &[LogLine]) -> String {
        let last: Vec<&str> = lines.iter().rev().take(3).map(|line| line.text.as_str()).collect();
        let over = if self.task.is_finished() { ", and the stream is over" } else { "" };
        format!("{} lines of {} so far{over}, the last: {}", lines.len(), self.lease, last.join(" / "))
    }

    /// All lines, once the lease's last has come.
    pub async fn whole(&self, patience: Duration) -> Told<Vec<LogLine>> {
        let end = Instant::now() + patience;
        while !self.task.is_finished() {
            if Instant::now() > end {
                return Err(Fault::new("the log to end with its lease", self.last_of(&self.lines())));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(self.lines())
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.task.abort();
    }
}
