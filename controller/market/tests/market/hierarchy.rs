//! The published cases of hierarchical fairness, T1 and T2 of Bhattacharya et al. (SoCC 2013): what the rule of the
//! paper gives, at once and after long churn, and how the simpler rules that it replaces fail.

use std::cmp::Ordering;

use crate::filling::Filling;

/// What a parent counts its children as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// The tree under test.
    Paper,
    /// The sum of what they hold.
    PlainSum,
    /// Scaled to the least of them, blocked or not.
    NoBlocked,
}

/// Users of one task of one unit each: (group, if any; which resource).
struct Case {
    filling: Filling<2>,
    users: Vec<(Option<usize>, usize)>,
}

const CPU: usize = 0;
const GPU: usize = 1;

impl Case {
    fn new(capacity: u128, users: &[(Option<usize>, usize)]) -> Self {
        let mut filling = Filling::new([capacity; 2]);
        let mut groups = Vec::new();
        for (group, resource) in users {
            let parent = match group {
                Some(group) if *group == groups.len() => {
                    groups.push(filling.tree.add(filling.tree.root(), 1));
                    groups[*group]
                }
                Some(group) => groups[*group],
                None => filling.tree.root(),
            };
            let mut task = [0; 2];
            task[*resource] = 1;
            filling.user(parent, 1, task);
        }
        Self { filling, users: users.to_vec() }
    }

    fn serve(&mut self, rule: Rule) -> bool {
        if rule == Rule::Paper {
            return self.filling.serve().is_some();
        }
        let open = |at: &usize| self.filling.fits(&self.filling.users[*at]);
        let first = (0..self.users.len()).filter(open).min_by(|a, b| self.simpler(*a, *b, rule));
        first.inspect(|first| self.filling.change(*first, true)).is_some()
    }

    /// The turns by a simpler rule: the parent's share, then one's own.
    fn simpler(&self, a: usize, b: usize, rule: Rule) -> Ordering {
        let top = |at: usize| self.users[at].0.map_or(self.filling.share(at), |group| self.parent(group, rule));
        let own = |at: usize| self.users[at].0.map_or(0.0, |_| self.filling.share(at));
        (top(a), own(a)).partial_cmp(&(top(b), own(b))).unwrap()
    }

    fn parent(&self, group: usize, rule: Rule) -> f64 {
        let children = || (0..self.users.len()).filter(|at| self.users[*at].0 == Some(group));
        let least = children().map(|at| self.filling.share(at)).fold(1.0, f64::min);
        let mut sums = [0.0; 2];
        for at in children() {
            let share = self.filling.share(at);
            sums[self.users[at].1] += if rule == Rule::NoBlocked { least.min(share) } else { share };
        }
        f64::max(sums[CPU], sums[GPU])
    }

    fn fill(&mut self, rule: Rule) {
        while self.serve(rule) {}
    }

    /// Random tasks end, one at a time, and what they free is given out again.
    fn churn(&mut self, rule: Rule, seed: u64) {
        let mut state = seed;
        for _ in 0..5000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let running: usize = self.filling.tasks().iter().sum();
            let mut which = (state >> 33) as usize % running;
            let ends = self.filling.tasks().iter().position(|tasks| {
                let here = which < *tasks;
                which = which.saturating_sub(*tasks);
                here
            });
            self.filling.change(ends.unwrap(), false);
            self.fill(rule);
        }
    }

    fn is_about(&self, expected: &[f64]) {
        let got: Vec<f64> = (0..self.users.len()).map(|at| self.filling.share(at)).collect();
        let near = got.iter().zip(expected).all(|(got, expected)| (got - expected).abs() <= 0.02);
        assert!(near && got.len() == expected.len(), "{got:?} is not about {expected:?}");
    }
}

/// n1 wants GPU; n2 has n21, which wants CPU, and n22, which wants GPU.
fn t1() -> Case {
    Case::new(100, &[(None, GPU), (Some(0), CPU), (Some(0), GPU)])
}

/// n1 and n2 want CPU; n3 has n31, which wants CPU, and n32, which wants GPU; n4 wants GPU.
fn t2() -> Case {
    Case::new(300, &[(None, CPU), (None, CPU), (Some(0), CPU), (Some(0), GPU), (None, GPU)])
}

#[test]
fn t1_a_sibling_that_took_all_cpu_costs_nobody_his_gpus_even_after_churn() {
    for seed in 0..3 {
        let mut case = t1();
        case.fill(Rule::Paper);
        case.is_about(&[0.5, 1.0, 0.5]);
        case.churn(Rule::Paper, seed);
        case.is_about(&[0.5, 1.0, 0.5]);
    }
}

#[test]
fn t1_the_plain_sum_starves_the_sibling() {
    let mut case = t1();
    case.fill(Rule::PlainSum);
    case.is_about(&[0.51, 1.0, 0.49]);
    case.churn(Rule::PlainSum, 1);
    case.is_about(&[1.0, 1.0, 0.0]);
}

#[test]
fn t2_a_parent_is_not_served_twice_for_a_blocked_child_even_after_churn() {
    let third = 1.0 / 3.0;
    for seed in 0..3 {
        let mut case = t2();
        case.fill(Rule::Paper);
        case.is_about(&[third, third, third, 0.5, 0.5]);
        case.churn(Rule::Paper, seed);
        case.is_about(&[third, third, third, 0.5, 0.5]);
    }
}

#[test]
fn t2_the_simpler_rules_fail_as_published() {
    let third = 1.0 / 3.0;
    let mut scaled = t2();
    scaled.fill(Rule::NoBlocked);
    scaled.is_about(&[third, third, third, 2.0 * third, third]);
    let mut plain = t2();
    plain.fill(Rule::PlainSum);
    plain.churn(Rule::PlainSum, 1);
    plain.is_about(&[0.5, 0.5, 0.0, 0.5, 0.5]);
}

#[test]
fn a_large_family_gets_no_more_turns_than_a_single_user() {
    let mut filling = Filling::new([16]);
    let family = filling.tree.add(filling.tree.root(), 1);
    for _ in 0..16 {
        filling.user(family, 1, [1]);
    }
    let single = filling.user(filling.tree.root(), 1, [1]);
    filling.fill();
    assert_eq!(filling.users[single].tasks, 8, "{:?}", filling.tasks());
}

#[test]
fn weights_count_at_every_level() {
    let mut filling = Filling::new([1200]);
    let (big, small) = (filling.tree.add(filling.tree.root(), 3), filling.tree.add(filling.tree.root(), 1));
    for (parent, weight) in [(big, 2), (big, 1), (small, 1), (small, 1)] {
        filling.user(parent, weight, [1]);
    }
    filling.fill();
    assert_eq!(filling.tasks(), [600, 300, 150, 150]);
}

#[test]
fn four_levels_are_told_from_each_other_and_an_empty_tree_is_nobody() {
    let mut filling = Filling::new([80, 80]);
    let lab = filling.tree.add(filling.tree.root(), 1);
    let vision = filling.tree.add(lab, 1);
    let depth = filling.tree.add(vision, 1);
    let deep = filling.user(depth, 1, [1, 0]);
    let beside = filling.user(vision, 1, [1, 0]);
    let above = filling.user(lab, 1, [1, 0]);
    let alone = filling.user(filling.tree.root(), 1, [1, 0]);
    filling.fill();
    let of = |at: usize| filling.users[at].tasks;
    assert_eq!([of(alone), of(above), of(beside), of(deep)], [40, 20, 10, 10]);
    assert_eq!(Filling::<1>::new([0]).fill(), Vec::<usize>::new());
}
