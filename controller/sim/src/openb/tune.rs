//! The arrivals of one seed: every task once in shuffled order, then tuned to the target load.

use crate::random::Random;
use crate::trace::Task;

/// Indices into `tasks` (sorted by name) in order of arrival, with about `target` thousandths of a GPU in all.
///
/// Below the target, clones drawn from the whole list follow the shuffled tasks until the next draw would pass it;
/// that test adds the draw's thousandths of one device, not of all its devices, as the published experiment does.
/// Above the target, tasks drawn from all are left out until the sum is at most the target.
pub fn arrivals(tasks: &[Task], target: u64, random: &mut Random) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    random.shuffle(&mut order);
    let mut sum: u64 = tasks.iter().map(Task::gpu).sum();
    while sum > target {
        let gone = order.remove(random.below(order.len()));
        sum -= tasks[gone].gpu();
    }
    // A list without GPU work has no load to tune.
    if order.len() < tasks.len() || sum == 0 {
        return order;
    }
    loop {
        let drawn = random.below(tasks.len());
        if sum + u64::from(tasks[drawn].milli) > target {
            return order;
        }
        sum += tasks[drawn].gpu();
        order.push(drawn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(gpus: u8, milli: u16) -> Task {
        Task { name: String::new(), cpu: 0, ram: 0, gpus, milli, models: u64::MAX, life: None }
    }

    fn sum(tasks: &[Task], order: &[usize]) -> u64 {
        order.iter().map(|at| tasks[*at].gpu()).sum()
    }

    #[test]
    fn clones_follow_the_whole_list() {
        let tasks: Vec<Task> = (1..=10).map(|milli| task(1, milli * 100)).collect();
        let order = arrivals(&tasks, 20_000, &mut Random::new(1, 0));
        let mut first = order[..10].to_vec();
        first.sort_unstable();
        assert_eq!(first, (0..10).collect::<Vec<_>>());
        assert!((19_000..=20_000).contains(&sum(&tasks, &order)), "{}", sum(&tasks, &order));
    }

    #[test]
    fn the_stop_test_sees_one_device_only() {
        let tasks = [task(8, 1000)];
        // 8,000 there; each clone is tested as 1,000 and adds 8,000: 16,000 + 1,000 is the first to pass.
        assert_eq!(arrivals(&tasks, 16_500, &mut Random::new(1, 0)).len(), 2);
        assert_eq!(arrivals(&tasks, 17_000, &mut Random::new(1, 0)).len(), 3);
    }

    #[test]
    fn too_long_a_list_loses_tasks_until_it_is_under_the_target() {
        let tasks: Vec<Task> = (0..100).map(|_| task(1, 1000)).collect();
        let order = arrivals(&tasks, 30_500, &mut Random::new(1, 0));
        assert_eq!(order.len(), 30);
    }

    #[test]
    fn a_list_without_gpu_work_stays_as_it_is() {
        assert_eq!(arrivals(&[task(0, 0), task(0, 0)], 1_000, &mut Random::new(1, 0)).len(), 2);
    }
}
