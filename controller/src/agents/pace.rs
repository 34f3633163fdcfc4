//! How fast an agent may talk: whoever says more than an honest agent ever needs is read later, not refused.

use std::time::Duration;

use tokio::time::Instant;

/// A bucket of tokens that fills with time.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    /// Time in which one token comes.
    each: Duration,
    /// Time in which the empty bucket fills.
    full: Duration,
    /// When the bucket would be full again; in the past, it is full.
    owed_until: Instant,
}

impl Bucket {
    /// A full bucket of `size` tokens, into which `each` brings one.
    pub(super) fn new(size: u32, each: Duration, now: Instant) -> Self {
        Self { each, full: each.saturating_mul(size), owed_until: now }
    }

    /// Takes tokens, more than there are if need be: then it is not free for a while.
    pub(super) fn take(&mut self, tokens: u32, now: Instant) {
        self.owed_until = self.owed_until.max(now) + self.each.saturating_mul(tokens);
    }

    /// How long until there is a token.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.owed_until.saturating_duration_since(now).saturating_sub(self.full)
    }

    /// Takes one token, or tells how long until there is one.
    pub(super) fn try_take(&mut self, now: Instant) -> Result<(), Duration> {
        let after = self.owed_until.max(now) + self.each;
        let wait = after.saturating_duration_since(now).saturating_sub(self.full);
        if wait > Duration::ZERO {
            return Err(wait);
        }
        self.take(1, now);
        Ok(())
    }
}

/// Messages at once: the reports of a node full of small slices, all at the end of an outage.
const MESSAGES: u32 = 4_000;
/// Between two messages of one link, in the long run: 500 a second.
const MESSAGE_EACH: Duration = Duration::from_millis(2);
/// KiB at once: what an agent keeps of log lines for some members.
const KIB: u32 = 16 << 10;
/// Between two KiB of one link, in the long run: 8 MiB a second.
const KIB_EACH: Duration = Duration::from_micros(122);

/// The pace of one link.
pub(super) struct Pace {
    messages: Bucket,
    kib: Bucket,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { messages: Bucket::new(MESSAGES, MESSAGE_EACH, now), kib: Bucket::new(KIB, KIB_EACH, now) }
    }

    /// A message of so many bytes was read.
    pub(super) fn read(&mut self, bytes: usize, now: Instant) {
        self.messages.take(1, now);
        self.kib.take(u32::try_from(bytes >> 10).unwrap_or(u32::MAX), now);
    }

    /// When the next message may be read.
    pub(super) fn free_at(&self, now: Instant) -> Instant {
        now + self.messages.wait(now).max(self.kib.wait(now))
    }
}

/// Hellos of one node at once.
const HELLOS: u32 = 30;
/// Between two hellos of one node, in the long run.
const HELLO_EACH: Duration = Duration::from_millis(500);
/// Times at once that a node's link enters the log as up.
const LINKS: u32 = 20;
/// Between two such entries of one node, in the long run: a node that comes and goes all day makes 17,280 entries at most,
/// half of them its losses.
const LINK_EACH: Duration = Duration::from_secs(10);

/// The pace at which one node connects.
pub(super) struct Arrivals {
    /// Every hello that was signed by the node.
    pub(super) hellos: Bucket,
    /// Those that enter the log.
    pub(super) links: Bucket,
}

impl Arrivals {
    pub(super) fn new(now: Instant) -> Self {
        Self { hellos: Bucket::new(HELLOS, HELLO_EACH, now), links: Bucket::new(LINKS, LINK_EACH, now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_what_it_holds_at_once_and_then_one_at_a_time() {
        let mut now = Instant::now();
        let mut bucket = Bucket::new(3, Duration::from_secs(10), now);
        for _ in 0..3 {
            bucket.try_take(now).unwrap();
        }
        assert_eq!(bucket.try_take(now), Err(Duration::from_secs(10)));
        now += Duration::from_secs(10);
        bucket.try_take(now).unwrap();
        assert_eq!(bucket.try_take(now), Err(Duration::from_secs(10)));
        now += Duration::from_secs(1_000);
        for _ in 0..3 {
            bucket.try_take(now).unwrap();
        }
        assert!(bucket.try_take(now).is_err(), "it never holds more than it is large");
    }

    #[test]
    fn an_agent_that_sends_more_than_it_may_is_read_later() {
        let mut now = Instant::now();
        let began = now;
        let mut pace = Pace::new(now);
        for _ in 0..MESSAGES + 500 {
            now = pace.free_at(now);
            pace.read(100, now);
        }
        assert!(now - began >= Duration::from_millis(990), "{:?}", now - began);
        let began = now;
        for _ in 0..256 {
            now = pace.free_at(now);
            pace.read(256 << 10, now);
        }
        assert!(now - began > Duration::from_secs(5), "64 MiB in {:?}", now - began);
    }
}
