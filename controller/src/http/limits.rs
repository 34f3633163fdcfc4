//! How often one subject may ask: GCRA by account, node or, before it is known who calls, peer address.
//!
//! Every answer says where the caller stands (`RateLimit`, `RateLimit-Policy`:
//! draft-ietf-httpapi-ratelimit-headers-10, still a draft).

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};

use super::Problem;
use super::caller::Subject;

/// The window in seconds.
const WINDOW: u64 = 60;
/// Subjects that have their whole allowance again are forgotten after this many requests.
const SWEEP_EVERY: u32 = 10_000;

type Governor<C> = RateLimiter<Subject, DashMapStateStore<Subject>, C, StateInformationMiddleware>;

/// The allowance of every subject.
pub(super) struct Limits<C: Clock = DefaultClock> {
    governor: Governor<C>,
    clock: C,
    per_minute: NonZeroU32,
    since_sweep: AtomicU32,
}

/// Where a subject stands after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// Requests it may still make at once.
    pub remaining: u32,
    /// Seconds until it has its whole allowance again.
    pub reset_s: u64,
    /// Seconds until its next request is accepted; `None` if this one was.
    pub wait_s: Option<u64>,
}

impl<C: Clock + Clone> Limits<C> {
    /// `per_minute` requests a minute and subject, all at once if he likes; 0 counts as 1.
    pub fn new(per_minute: u32, clock: C) -> Self {
        let per_minute = NonZeroU32::new(per_minute).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_minute(per_minute);
        let governor =
            RateLimiter::dashmap_with_clock(quota, clock.clone()).with_middleware::<StateInformationMiddleware>();
        Self { governor, clock, per_minute, since_sweep: AtomicU32::new(0) }
    }

    /// Counts one request of `subject`.
    pub fn count(&self, subject: Subject) -> Standing {
        if self.since_sweep.fetch_add(1, Ordering::Relaxed) >= SWEEP_EVERY {
            self.since_sweep.store(0, Ordering::Relaxed);
            self.governor.retain_recent();
        }
        match self.governor.check_key(&subject) {
            Ok(snapshot) => {
                let remaining = snapshot.remaining_burst_capacity();
                Standing { remaining, reset_s: self.refill(remaining), wait_s: None }
            }
            Err(until) => {
                let wait = until.wait_time_from(self.clock.now());
                Standing { remaining: 0, reset_s: WINDOW, wait_s: Some(whole_seconds(wait).max(1)) }
            }
        }
    }

    fn refill(&self, remaining: u32) -> u64 {
        let quota = u64::from(self.per_minute.get());
        (quota.saturating_sub(u64::from(remaining)) * WINDOW).div_ceil(quota)
    }

    fn mark(&self, response: &mut Response, standing: Standing) {
        let policy = format!("\"minute\";q={};w={WINDOW}", self.per_minute);
        let limit = format!("\"minute\";r={};t={}", standing.remaining, standing.reset_s);
        for (name, text) in [("ratelimit-policy", policy), ("ratelimit", limit)] {
            if let Ok(value) = HeaderValue::from_str(&text) {
                response.headers_mut().insert(name, value);
            }
        }
    }
}

fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// Middleware: refuses with 429 whoever is over his allowance. Goes inside `identify`.
pub(super) async fn limit<C>(State(limits): State<Arc<Limits<C>>>, request: Request, next: Next) -> Response
where
    C: Clock + Clone + Send + Sync + 'static,
{
    let subject = request.extensions().get::<Subject>().copied().unwrap_or(Subject::Peer(None));
    let standing = limits.count(subject);
    let mut response = match standing.wait_s {
        None => next.run(request).await,
        Some(seconds) => Problem::RateLimited(seconds).into_response(),
    };
    limits.mark(&mut response, standing);
    response
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use governor::clock::FakeRelativeClock;
    use selion_api::Account;

    use super::*;
    use crate::network::Network;

    #[test]
    fn the_allowance_is_a_subjects_own_and_comes_back_with_time() {
        let clock = FakeRelativeClock::default();
        let limits = Limits::new(2, clock.clone());
        let me = Subject::Renter(Account([1; 20]));
        assert_eq!(limits.count(me), Standing { remaining: 1, reset_s: 30, wait_s: None });
        assert_eq!(limits.count(me), Standing { remaining: 0, reset_s: 60, wait_s: None });
        assert_eq!(limits.count(me), Standing { remaining: 0, reset_s: 60, wait_s: Some(30) });
        let peer = Subject::Peer(Some(Network::of(IpAddr::V4(Ipv4Addr::LOCALHOST))));
        assert_eq!(limits.count(peer).wait_s, None);
        clock.advance(Duration::from_secs(30));
        assert_eq!(limits.count(me).wait_s, None);
        assert_eq!(limits.count(me).wait_s, Some(30));
    }

    #[test]
    fn a_limit_of_zero_still_lets_one_request_through() {
        let limits = Limits::new(0, FakeRelativeClock::default());
        assert_eq!(limits.count(Subject::Peer(None)).wait_s, None);
        assert_eq!(limits.count(Subject::Peer(None)).wait_s, Some(60));
    }
}
