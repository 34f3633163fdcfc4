//! The honest renter: asks for a slice, runs a command on it, and takes the time.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use selion_api::Reason;
use selion_api::commit::PoolId;
use selion_api::lease::LeaseState;
use selion_api::slice::SliceWant;
use selion_client::fresh_key;
use selion_tests::{PATIENCE, Renter, want};

/// About so many entries a lap makes: the request, reports of its member, a tick or two.
pub const ENTRIES_A_LAP: u64 = 12;

/// Times of a renter's laps.
pub struct Honest<'a> {
    renter: &'a Renter,
    pool: PoolId,
    took: Vec<Duration>,
    /// How often a call was refused as too many or too busy, and made again.
    pub again: u32,
}

impl<'a> Honest<'a> {
    pub fn new(renter: &'a Renter, pool: PoolId) -> Self {
        Self { renter, pool, took: Vec::new(), again: 0 }
    }

    /// One lease from the request to its end, and a look at the list of leases.
    ///
    /// # Errors
    ///
    /// The lease was refused, or did not complete.
    pub async fn lap(&mut self) -> Result<()> {
        let client = &self.renter.client;
        let mut ask = want(SliceWant::Mig { profile: "1g.10gb".into() }, &["sh", "-c", "true"]);
        let start = Instant::now();
        // The same key each time: however often it is sent, it is one lease.
        let key = fresh_key()?;
        let asked = loop {
            match client.create_signed_lease(&self.renter.wallet, &self.pool, &key, &mut ask).await {
                Ok(lease) => break lease,
                Err(error) if is_busy(&error) && start.elapsed() < PATIENCE => {
                    self.again += 1;
                    tokio::task::yield_now().await;
                }
                Err(error) => return Err(error.into()),
            }
        };
        let ended = client.wait(asked.id, LeaseState::Ended, PATIENCE).await?;
        ensure!(ended.reason == Some(Reason::Completed), "{ended:?}");
        self.took.push(start.elapsed());
        client.leases(&Default::default()).await?;
        Ok(())
    }

    pub fn laps(&self) -> u64 {
        self.took.len() as u64
    }

    /// The time within which so many of a hundred laps were done; zero if there were none.
    pub fn percentile(&self, of_hundred: usize) -> Duration {
        let mut sorted = self.took.clone();
        sorted.sort();
        let at = (sorted.len() * of_hundred).div_ceil(100).saturating_sub(1);
        sorted.get(at).copied().unwrap_or_default()
    }
}

fn is_busy(error: &selion_client::ClientError) -> bool {
    matches!(error, selion_client::ClientError::Problem(problem) if problem.retryable)
}
