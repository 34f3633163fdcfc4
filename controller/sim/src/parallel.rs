//! Runs of different seeds side by side; answers stay in the order of the jobs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Does `jobs` on up to `threads` threads. The answers are in the order of the jobs, whoever did them.
pub fn map<J: Sync, A: Send>(jobs: &[J], threads: usize, work: impl Fn(&J) -> A + Sync) -> Vec<A> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(Vec::with_capacity(jobs.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                while let Some((at, job)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(at).map(|job| (at, job))
                } {
                    let answer = work(job);
                    answers.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((at, answer));
                }
            });
        }
    });
    let mut answers = answers.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    answers.sort_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..50).collect();
        for threads in [0, 1, 2, 8] {
            assert_eq!(map(&jobs, threads, |job| job * 2), (0..50).map(|job| job * 2).collect::<Vec<_>>());
        }
        assert!(map(&[] as &[u64], 2, |job| *job).is_empty());
    }
}
