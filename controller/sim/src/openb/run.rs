//! One run: arrivals only, nothing departs, what does not fit is dropped and counts as arrived.

use crate::trace::Task;

/// Unallocated GPU of one run, in per cent of the cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Mean over all arrivals at which the arrived load rounds to 100 %; `None` if the list never comes so far.
    pub at_100: Option<f64>,
    /// After the last arrival.
    pub at_end: f64,
}

/// Offers the tasks of `order` one by one to `place`, which says whether it placed them. `capacity` is the cluster's
/// GPU in thousandths, and not 0.
pub fn run(tasks: &[Task], order: &[usize], capacity: u64, mut place: impl FnMut(usize) -> bool) -> Reading {
    let per_cent = |milli: u64| milli as f64 * 100.0 / capacity as f64;
    let (mut arrived, mut allocated) = (0, 0);
    let (mut sum, mut readings) = (0.0, 0u32);
    for at in order {
        let gpu = tasks[*at].gpu();
        arrived += gpu;
        if place(*at) {
            allocated += gpu;
        }
        if per_cent(arrived).round() as u64 == 100 {
            sum += per_cent(allocated);
            readings += 1;
        }
    }
    Reading { at_100: (readings > 0).then(|| 100.0 - sum / f64::from(readings)), at_end: 100.0 - per_cent(allocated) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(millis: &[u16]) -> Vec<Task> {
        let task = |milli: &u16| Task {
            name: String::new(),
            cpu: 0,
            ram: 0,
            gpus: 1,
            milli: *milli,
            models: u64::MAX,
            life: None,
        };
        millis.iter().map(task).collect()
    }

    #[test]
    fn the_reading_is_the_mean_over_the_arrivals_that_round_to_it() {
        // A cluster of 1,000: arrived 600, 997, 1,003, 1,300; the third is dropped.
        let tasks = tasks(&[600, 397, 6, 297]);
        let reading = run(&tasks, &[0, 1, 2, 3], 1000, |at| at != 2);
        // 99.7 and 100.3 round to 100, both with 997 allocated.
        assert!((reading.at_100.unwrap() - 0.3).abs() < 1e-9, "{reading:?}");
        assert!((reading.at_end - (100.0 - 129.4)).abs() < 1e-9, "{reading:?}");
    }

    #[test]
    fn a_list_that_stays_below_has_no_reading() {
        let reading = run(&tasks(&[500]), &[0], 1000, |_| true);
        assert_eq!(reading, Reading { at_100: None, at_end: 50.0 });
    }
}
