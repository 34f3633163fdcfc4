//! `/metrics`: what an operator watches, in OpenMetrics. Labels are few and from fixed sets: no ids, no addresses.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use selion_api::Reason;
use selion_api::lease::LeaseState;

use super::Problem;
use super::route::system;
use crate::App;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Routed {
    route: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Why {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Standing {
    state: &'static str,
}

/// Counters and gauges of one controller.
pub struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    durations: Family<Routed, Histogram, fn() -> Histogram>,
    refusals: Family<Why, Counter>,
    bad_messages: Family<Why, Counter>,
    leases: Family<Standing, Gauge>,
    linked: Gauge,
    entries: Gauge<u64, AtomicU64>,
    lag: Gauge,
    silent: Gauge<f64, AtomicU64>,
    block_age: Gauge<f64, AtomicU64>,
    ready: Gauge,
}

/// 1 ms to about 33 s.
fn buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 16))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("selion");
        let requests = Family::default();
        let durations = Family::new_with_constructor(buckets as fn() -> Histogram);
        let refusals = Family::default();
        let bad_messages = Family::default();
        let leases = Family::default();
        let linked = Gauge::default();
        let entries = Gauge::default();
        let lag = Gauge::default();
        let silent = Gauge::default();
        let block_age = Gauge::default();
        let ready = Gauge::default();
        registry.register("http_requests", "Answers by route and status", requests.clone());
        registry.register_with_unit(
            "http_request_duration",
            "Time to the head of the answer, by route",
            Unit::Seconds,
            durations.clone(),
        );
        registry.register("refusals", "Lease requests turned away, by reason", refusals.clone());
        registry.register(
            "agent_messages_rejected",
            "Messages of agents that were not taken, by cause",
            bad_messages.clone(),
        );
        registry.register("leases", "Leases by state", leases.clone());
        registry.register("nodes_linked", "Nodes whose link is up", linked.clone());
        registry.register("log_entries", "Entries in the log", entries.clone());
        registry.register(
            "chain_head_lag_blocks",
            "Newest block seen less last final block dealt with; -1 while the chain does not answer",
            lag.clone(),
        );
        registry.register("chain_silent_seconds", "Since the chain does not answer; 0 while it does", silent.clone());
        registry.register("chain_seconds_since_block", "Since the newest block was first seen", block_age.clone());
        registry.register("ready", "1 while GET /readyz answers 200, else 0", ready.clone());
        Self {
            registry,
            requests,
            durations,
            refusals,
            bad_messages,
            leases,
            linked,
            entries,
            lag,
            silent,
            block_age,
            ready,
        }
    }
}

impl Metrics {
    /// Counts an answer. `route` is the pattern, never the path.
    pub fn answered(&self, route: &str, status: u16, took: Duration) {
        self.requests.get_or_create(&Answered { route: route.to_owned(), status }).inc();
        self.durations.get_or_create(&Routed { route: route.to_owned() }).observe(took.as_secs_f64());
    }

    /// Counts a lease request that was turned away.
    pub fn refused(&self, reason: Reason) {
        self.refusals.get_or_create(&Why { reason: reason.code() }).inc();
    }

    /// What the links counted: messages of agents that were not taken, by cause.
    fn bad_messages(&self, reason: &'static str, count: u64) {
        self.bad_messages.get_or_create(&Why { reason }).inner().store(count, Ordering::Relaxed);
    }

    fn page(&self) -> Result<String, std::fmt::Error> {
        let mut page = String::new();
        text::encode(&mut page, &self.registry)?;
        Ok(page)
    }
}

const STATES: [LeaseState; 7] = [
    LeaseState::Waiting,
    LeaseState::Held,
    LeaseState::Preparing,
    LeaseState::Starting,
    LeaseState::Active,
    LeaseState::Ending,
    LeaseState::Ended,
];

/// Metrics in the OpenMetrics text format: for whoever asks on the controller's machine, and for an operator's login.
#[utoipa::path(get, path = "/metrics", operation_id = "get_metrics", tag = "system",
    responses((status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text")))]
pub(super) async fn metrics(State(app): State<App>) -> Result<Response, Problem> {
    let (counts, linked, entries) = app.log.read(|state| {
        let count = |wanted| state.leases.values().filter(|lease| lease.state == wanted).count();
        let linked = state.nodes.values().filter(|node| node.linked).count();
        (STATES.map(count), linked, state.next_seq)
    });
    let metrics = &app.metrics;
    for (state, count) in STATES.iter().zip(counts) {
        metrics.leases.get_or_create(&Standing { state: state.code() }).set(gauge(count as u64));
    }
    metrics.linked.set(gauge(linked as u64));
    metrics.entries.set(entries);
    for (cause, count) in app.hub.live().bad {
        metrics.bad_messages(cause, count);
    }
    let mirror = app.mirror.status();
    metrics.lag.set(mirror.lag().map_or(-1, gauge));
    metrics.silent.set(mirror.silent_for().map_or(0.0, |time| time.as_secs_f64()));
    metrics.block_age.set(mirror.newest_at.map_or(0.0, |at| at.elapsed().as_secs_f64()));
    metrics.ready.set(system::missing(&app).await.is_none().into());
    let page = metrics.page().map_err(|_| Problem::Internal("metrics could not be written".to_owned()))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, kind)], page).into_response())
}

fn gauge(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_every_figure_with_its_unit() {
        let metrics = Metrics::default();
        metrics.answered("/v1/leases/{id}", 200, Duration::from_millis(3));
        metrics.refused(Reason::PoolFull);
        metrics.bad_messages("unsigned", 4);
        let page = metrics.page().unwrap();
        for line in [
            r#"selion_http_requests_total{route="/v1/leases/{id}",status="200"} 1"#,
            r#"selion_refusals_total{reason="pool_full"} 1"#,
            r#"selion_agent_messages_rejected_total{reason="unsigned"} 4"#,
            r#"selion_http_request_duration_seconds_count{route="/v1/leases/{id}"} 1"#,
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }
}
