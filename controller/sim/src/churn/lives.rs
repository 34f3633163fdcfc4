//! How long work lasts, and what arrives when. Time is in ticks: [`LIFE`] of them are the mean life of a task.

use std::path::{Path, PathBuf};

use crate::SimError;
use crate::random::Random;
use crate::trace::{Models, SIZES, TaskList};

/// Ticks of the mean life.
pub const LIFE: u64 = 1_000_000;

/// Where lives come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lives {
    /// Exponential, the same mean for all.
    Exp,
    /// The list's own, drawn with the task, cut at the 99th percentile.
    Trace,
}

/// A task that is offered to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// When, in ticks.
    pub at: u64,
    /// Row of the list, by name.
    pub task: usize,
    /// How long it runs once started, in ticks; at least 1.
    pub life: u64,
}

/// The lives that each row may have, in mean lives.
#[derive(Clone, Debug)]
pub struct Drawer {
    /// Lives to draw from; none is exponential.
    pools: Vec<Vec<f64>>,
    /// Pool of each row.
    pool_of: Vec<usize>,
    /// Mean of GPU x life over the rows, in thousandths of a GPU.
    work: f64,
    longest: f64,
}

impl Drawer {
    /// Lives of `list` as `lives` says. A row without a life of its own draws from the rows of its size class; a list
    /// without any takes them from `openb_pod_list_default.csv` beside it, which `path` is for.
    ///
    /// # Errors
    ///
    /// There is no life to draw.
    pub fn new(list: &TaskList, path: &Path, lives: Lives) -> Result<Self, SimError> {
        let gpu: Vec<f64> = list.tasks.iter().map(|task| task.gpu() as f64).collect();
        if gpu.iter().sum::<f64>() == 0.0 {
            let what = format!("{}: no task asks for a GPU", path.display());
            return Err(SimError::Nothing { what, next: "a load is GPU work; give a list that has some" });
        }
        let rows = list.tasks.len();
        if lives == Lives::Exp {
            let work = gpu.iter().sum::<f64>() / rows as f64;
            return Ok(Self { pools: Vec::new(), pool_of: Vec::new(), work, longest: 0.0 });
        }
        let beside;
        let source = if list.tasks.iter().any(|task| task.life.is_some()) {
            list
        } else {
            beside = default_beside(path)?;
            &beside
        };
        Ok(Self::of_trace(list, source, &gpu))
    }

    fn of_trace(list: &TaskList, source: &TaskList, gpu: &[f64]) -> Self {
        let mut known: Vec<u64> = source.tasks.iter().filter_map(|task| task.life).collect();
        known.sort_unstable();
        let cut = known[(known.len() * 99).div_ceil(100).clamp(1, known.len()) - 1];
        let cut_life = |life: u64| life.min(cut) as f64;
        // One pool a size class, then all, then one for each row with a life of its own.
        let mut pools: Vec<Vec<f64>> = SIZES
            .map(|size| {
                let class = source.tasks.iter().filter(|task| task.size() == size);
                class.filter_map(|task| task.life).map(cut_life).collect()
            })
            .into();
        pools.push(known.iter().map(|life| cut_life(*life)).collect());
        let everything = pools.len() - 1;
        let mut pool_of = Vec::new();
        for task in &list.tasks {
            let class = SIZES.iter().position(|size| *size == task.size()).unwrap_or(everything);
            pool_of.push(match task.life {
                Some(life) => {
                    pools.push(vec![cut_life(life)]);
                    pools.len() - 1
                }
                None if pools[class].is_empty() => everything,
                None => class,
            });
        }
        let mean = |pool: &Vec<f64>| pool.iter().sum::<f64>() / pool.len().max(1) as f64;
        let means: Vec<f64> = pools.iter().map(mean).collect();
        let unit = pool_of.iter().map(|pool| means[*pool]).sum::<f64>() / pool_of.len() as f64;
        for life in pools.iter_mut().flatten() {
            *life /= unit;
        }
        let work = pool_of.iter().zip(gpu).map(|(pool, gpu)| means[*pool] / unit * gpu).sum::<f64>();
        Self { longest: cut as f64 / unit, work: work / gpu.len() as f64, pools, pool_of }
    }

    /// Arrivals in one mean life that make this load on `capacity` thousandths of a GPU.
    pub fn rate(&self, load: f64, capacity: u64) -> f64 {
        load * capacity as f64 / self.work
    }

    fn draw(&self, rows: usize, random: &mut Random) -> (usize, f64) {
        let task = random.below(rows);
        let life = match self.pool_of.get(task) {
            Some(pool) => self.pools[*pool][random.below(self.pools[*pool].len())],
            None => random.exponential(),
        };
        (task, life)
    }

    /// One that is met running at a random moment, with what is left of its life: long ones are met more often.
    fn met(&self, rows: usize, random: &mut Random) -> (usize, f64) {
        if self.pools.is_empty() {
            // What is left of an exponential life is exponential.
            return self.draw(rows, random);
        }
        loop {
            let (task, life) = self.draw(rows, random);
            if random.unit() * self.longest <= life {
                return (task, life * random.unit());
            }
        }
    }

    /// Everything that arrives until `until` mean lives: first, at time 0, what would run on a cluster without limits,
    /// each with what is left of its life; then a Poisson stream of `rate` tasks in a mean life.
    pub fn offers(&self, rows: usize, rate: f64, until: f64, random: &mut Random) -> Vec<Offer> {
        let ticks = |lives: f64| (lives * LIFE as f64) as u64;
        let mut offers = Vec::new();
        // Arrivals in one mean life have the distribution of the number that runs.
        let mut sum = random.exponential();
        while sum < rate {
            let (task, life) = self.met(rows, random);
            offers.push(Offer { at: 0, task, life: ticks(life).max(1) });
            sum += random.exponential();
        }
        let mut at = random.exponential() / rate;
        while at < until {
            let (task, life) = self.draw(rows, random);
            offers.push(Offer { at: ticks(at), task, life: ticks(life).max(1) });
            at += random.exponential() / rate;
        }
        offers
    }
}

fn default_beside(path: &Path) -> Result<TaskList, SimError> {
    let beside: PathBuf = path.with_file_name("openb_pod_list_default.csv");
    let found = if beside.exists() { TaskList::read(&beside, &mut Models::default())?.tasks } else { Vec::new() };
    if found.iter().any(|task| task.life.is_some()) {
        return Ok(TaskList { name: String::new(), tasks: found });
    }
    let what = format!("{}: no `creation_time` and `deletion_time`, and no such list beside it", path.display());
    Err(SimError::Nothing { what, next: "use --lives exp, or put openb_pod_list_default.csv beside it" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Task;

    fn list(rows: &[(u8, Option<u64>)]) -> TaskList {
        let task = |(gpus, life): &(u8, Option<u64>)| Task {
            name: String::new(),
            cpu: 0,
            ram: 0,
            gpus: *gpus,
            milli: if *gpus == 0 { 0 } else { 1000 },
            models: u64::MAX,
            life: *life,
        };
        TaskList { name: String::new(), tasks: rows.iter().map(task).collect() }
    }

    #[test]
    fn the_load_is_the_work_that_arrives_over_the_capacity() {
        let list = list(&[(0, None), (1, None), (2, None)]);
        let drawer = Drawer::new(&list, Path::new("x.csv"), Lives::Exp).unwrap();
        // 1,000 thousandths a task on the mean, a life each: 8 of them fill 8 GPUs.
        assert_eq!(drawer.rate(1.0, 8_000), 8.0);
        assert_eq!(drawer.rate(1.3, 8_000), 10.4);
    }

    #[test]
    fn lives_of_the_list_are_scaled_to_a_mean_of_one_and_drawn_with_their_task() {
        let list = list(&[(1, Some(10)), (4, Some(30))]);
        let drawer = Drawer::new(&list, Path::new("x.csv"), Lives::Trace).unwrap();
        // (1 x 0.5 + 4 x 1.5) / 2 = 3.25 GPU lives a task.
        assert!((drawer.rate(1.0, 3_250) - 1.0).abs() < 1e-9);
        for offer in drawer.offers(2, 20.0, 2.0, &mut Random::new(3, 0)).iter().filter(|offer| offer.at > 0) {
            assert_eq!(offer.life, [LIFE / 2, LIFE * 3 / 2][offer.task]);
        }
    }

    #[test]
    fn a_row_without_a_life_takes_one_of_its_class() {
        let list = list(&[(1, Some(10)), (1, None), (8, Some(70)), (8, None)]);
        let drawer = Drawer::new(&list, Path::new("x.csv"), Lives::Trace).unwrap();
        for offer in drawer.offers(4, 40.0, 2.0, &mut Random::new(3, 0)).iter().filter(|offer| offer.at > 0) {
            assert_eq!(offer.life, if offer.task < 2 { LIFE / 4 } else { LIFE * 7 / 4 });
        }
    }

    #[test]
    fn what_runs_at_the_start_is_as_much_as_the_load_keeps_running() {
        let list = list(&[(1, Some(1)), (1, Some(9))]);
        let drawer = Drawer::new(&list, Path::new("x.csv"), Lives::Trace).unwrap();
        let offers = drawer.offers(2, 20_000.0, 0.0, &mut Random::new(5, 0));
        assert!((19_500..20_500).contains(&offers.len()), "{}", offers.len());
        let long = offers.iter().filter(|offer| offer.task == 1).count() as f64 / offers.len() as f64;
        assert!((long - 0.9).abs() < 0.02, "long ones are met nine times as often: {long}");
    }

    #[test]
    fn a_list_without_times_and_without_the_default_beside_it_says_what_to_do() {
        let error = Drawer::new(&list(&[(1, None)]), Path::new("/nowhere/x.csv"), Lives::Trace).unwrap_err();
        assert!(error.to_string().contains("--lives exp"), "{error}");
    }
}
