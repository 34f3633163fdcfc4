//! The index under a judge that tells at a glance where a class cannot go, and which nodes are alike.

use proptest::prelude::*;
use selion_market::engine::index::{Best, Entry, Index, Judge, Ways};

const CLASSES: u32 = 70; // more than one word of bits
const RANKS: u32 = 30;

/// By rank, what is left; by class, what it needs. A key is what would be left.
#[derive(Clone, Debug)]
struct Table {
    left: Vec<i32>,
    /// True for a node that fits at a glance and is judged not to.
    barred: Vec<bool>,
    judged: Vec<(u32, u32)>,
}

fn need(class: u32) -> i32 {
    i32::try_from(class % 10).unwrap()
}

impl Table {
    fn way(&self, class: u32, rank: u32) -> Option<Entry> {
        let rest = self.left[rank as usize] - need(class);
        let fits = rest >= 0 && !self.barred[rank as usize];
        fits.then(|| Entry { group: u16::try_from(rest % 3).unwrap(), key: -rest, note: 0 })
    }

    fn scan(&self, class: u32) -> Option<Best> {
        let ways = (0..RANKS).filter_map(|rank| Some(Best { rank, score: self.way(class, rank)?.key }));
        ways.reduce(|best, next| if next.score > best.score { next } else { best })
    }
}

impl Judge for Table {
    fn ways(&mut self, class: u32, rank: u32) -> Ways {
        self.judged.push((class, rank));
        [self.way(class, rank), None]
    }

    fn offset(&self, _: u32, _: u16) -> i32 {
        0
    }

    fn may(&self, rank: u32) -> impl Fn(u32) -> bool {
        let left = self.left[rank as usize];
        move |class| left >= need(class)
    }

    fn alike(&self, rank: u32) -> Option<u16> {
        (self.left[rank as usize] == 9 && !self.barred[rank as usize]).then_some(2)
    }
}

proptest! {
    #[test]
    fn it_finds_what_judging_every_node_finds(
        steps in prop::collection::vec((0..RANKS, -1_i32..10, prop::bool::weighted(0.2), 0..CLASSES), 1..300),
        limit in prop_oneof![Just(2_usize), Just(100)],
    ) {
        let mut table = Table { left: vec![9; RANKS as usize], barred: vec![false; RANKS as usize], judged: vec![] };
        let mut index = Index::new(RANKS, limit);
        for (rank, left, barred, class) in steps {
            table.left[rank as usize] = left;
            table.barred[rank as usize] = barred;
            index.touch(rank);
            let asked = class / 7 * 7; // some classes are asked often and some never
            prop_assert_eq!(index.best(asked, &mut table), table.scan(asked), "class {}", asked);
        }
        for class in 0..CLASSES {
            prop_assert_eq!(index.best(class, &mut table), table.scan(class), "class {}", class);
        }
    }
}

fn ask_all(index: &mut Index, table: &mut Table) {
    for class in 0..CLASSES {
        index.best(class, table);
    }
}

#[test]
fn a_change_is_judged_for_those_it_could_concern_before_or_after_and_for_no_other() {
    let mut table = Table { left: vec![0; RANKS as usize], barred: vec![false; RANKS as usize], judged: vec![] };
    let mut index = Index::new(RANKS, 100);
    ask_all(&mut index, &mut table);
    let mut changed = |left, concerned: fn(i32) -> bool| {
        table.left[3] = left;
        index.touch(3);
        table.judged.clear();
        ask_all(&mut index, &mut table);
        let expected: Vec<_> = (0..CLASSES).filter(|class| concerned(need(*class))).map(|class| (class, 3)).collect();
        assert_eq!(table.judged, expected, "{left} left");
    };
    changed(2, |need| need <= 2);
    changed(6, |need| need <= 6);
    changed(1, |need| need <= 6);
    changed(-1, |need| need <= 1);
    changed(-1, |_| false);
}

#[test]
fn of_nodes_that_are_alike_one_is_judged() {
    let mut table = Table { left: vec![9; RANKS as usize], barred: vec![false; RANKS as usize], judged: vec![] };
    table.left[7] = 5;
    let mut index = Index::new(RANKS, 100);
    assert_eq!(index.best(1, &mut table), Some(Best { rank: 7, score: -4 }));
    assert_eq!(table.judged, [(1, 0), (1, 7)]);
}
