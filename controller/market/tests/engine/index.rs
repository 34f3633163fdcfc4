//! The index alone, under a judge made of a table of numbers.

use proptest::prelude::*;
use selion_market::engine::index::{Best, Entry, Index, Judge, Ways};

/// Keys by class and rank, and offsets by group.
#[derive(Clone, Debug)]
struct Table {
    ranks: u32,
    ways: Vec<Vec<Ways>>,
    offsets: Vec<i32>,
    judged: u64,
}

impl Judge for Table {
    fn ways(&mut self, class: u32, rank: u32) -> Ways {
        self.judged += 1;
        self.ways[class as usize][rank as usize]
    }

    fn offset(&self, class: u32, group: u16) -> i32 {
        self.offsets[usize::from(group)] * if class == 0 { 1 } else { 3 }
    }
}

impl Table {
    fn scan(&self, class: u32, charge: impl Fn(u32, Entry) -> i32) -> Option<Best> {
        let mut best: Option<Best> = None;
        for rank in 0..self.ranks {
            for entry in self.ways[class as usize][rank as usize].into_iter().flatten() {
                let score = entry.key - self.offset(class, entry.group) - charge(rank, entry);
                if best.is_none_or(|best| score > best.score) {
                    best = Some(Best { rank, score });
                }
            }
        }
        best
    }
}

/// A charge that depends on the node and on what the judge noted.
fn charge(rank: u32, entry: Entry) -> i32 {
    (i32::try_from(rank).unwrap() * 7 + i32::from(entry.note)) % 5
}

fn entry() -> impl Strategy<Value = Option<Entry>> {
    // Few keys, so that there are many ties; few groups, so that they are large.
    let entry = (0_u16..4, -3_i32..4, 0_u16..6).prop_map(|(group, key, note)| Entry { group, key, note });
    prop::option::weighted(0.8, entry)
}

#[derive(Clone, Debug)]
enum Step {
    Change { class: u32, rank: u32, ways: Ways },
    Offset { group: u16, offset: i32 },
    Forget,
    Ask { class: u32 },
    AskCharged { class: u32 },
    Count { class: u32 },
}

const CLASSES: u32 = 4;

fn step(ranks: u32) -> impl Strategy<Value = Step> {
    let class = 0..CLASSES;
    prop_oneof![
        12 => (class.clone(), 0..ranks, entry(), entry())
            .prop_map(|(class, rank, one, two)| Step::Change { class, rank, ways: [one, two] }),
        2 => (0_u16..4, -2_i32..5).prop_map(|(group, offset)| Step::Offset { group, offset }),
        1 => Just(Step::Forget),
        6 => class.clone().prop_map(|class| Step::Ask { class }),
        3 => class.clone().prop_map(|class| Step::AskCharged { class }),
        1 => class.prop_map(|class| Step::Count { class }),
    ]
}

fn run(ranks: u32, limit: usize, first: &[Ways], steps: &[Step]) {
    let rows =
        (0..CLASSES as usize).map(|class| (0..ranks as usize).map(move |rank| first[(rank * 3 + class) % first.len()]));
    let mut table = Table { ranks, ways: rows.map(Iterator::collect).collect(), offsets: vec![0; 4], judged: 0 };
    // Two ways of one group are one way, the better: the judge's part here, so that the scan agrees.
    let plain = |ways: Ways| match ways {
        [Some(one), Some(two)] if one.group == two.group => [Some(if two.key > one.key { two } else { one }), None],
        ways => ways,
    };
    table.ways.iter_mut().flatten().for_each(|ways| *ways = plain(*ways));
    let mut index = Index::new(ranks, limit);
    for step in steps {
        match step {
            Step::Change { class, rank, ways } => {
                table.ways[*class as usize][*rank as usize] = plain(*ways);
                index.touch(*rank);
            }
            Step::Offset { group, offset } => table.offsets[usize::from(*group)] = *offset,
            Step::Forget => index.forget(),
            Step::Ask { class } => {
                assert_eq!(index.best(*class, &mut table), table.scan(*class, |_, _| 0), "class {class}");
            }
            Step::AskCharged { class } => {
                let found = index.best_charged(*class, &mut table, |_, rank, entry| charge(rank, entry));
                assert_eq!(found, table.scan(*class, charge), "class {class}, charged");
            }
            Step::Count { class } => {
                let able: Vec<u32> = (0..ranks)
                    .filter(|rank| table.ways[*class as usize][*rank as usize].iter().any(Option::is_some))
                    .collect();
                assert_eq!(index.count(*class, &mut table), able.len());
                for (n, rank) in able.iter().enumerate() {
                    assert_eq!(index.nth(*class, n, &mut table), Some(*rank));
                }
                assert_eq!(index.nth(*class, able.len(), &mut table), None);
            }
        }
        assert!(index.active() <= limit.max(1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_index_finds_what_judging_every_node_finds(
        (ranks, first, steps) in (1_u32..40).prop_flat_map(|ranks| (
            Just(ranks),
            prop::collection::vec([entry(), entry()], 1..60),
            prop::collection::vec(step(ranks), 1..200),
        )),
        limit in 1_usize..5,
    ) {
        run(ranks, limit, &first, &steps);
    }

    #[test]
    fn so_it_does_when_a_group_is_larger_than_what_it_keeps_in_order(
        first in prop::collection::vec([entry(), entry()], 1..60),
        steps in prop::collection::vec(step(900), 100..400),
    ) {
        run(900, 4, &first, &steps);
    }
}

#[test]
fn a_new_price_judges_no_node() {
    let way = |key| [Some(Entry { group: u16::try_from(key).unwrap(), key, note: 0 }), None];
    let mut table = Table { ranks: 2, ways: vec![vec![way(1), way(2)]], offsets: vec![0; 4], judged: 0 };
    let mut index = Index::new(2, 1);
    assert_eq!(index.best(0, &mut table), Some(Best { rank: 1, score: 2 }));
    let judged = table.judged;
    table.offsets[2] = 5;
    assert_eq!(index.best(0, &mut table), Some(Best { rank: 0, score: 1 }));
    assert_eq!(table.judged, judged);
}

#[test]
fn a_node_that_changed_many_times_is_judged_once() {
    let way = [Some(Entry { group: 0, key: 0, note: 0 }), None];
    let mut table = Table { ranks: 3, ways: vec![vec![way; 3]], offsets: vec![0; 4], judged: 0 };
    let mut index = Index::new(3, 1);
    index.best(0, &mut table);
    let judged = table.judged;
    (0..100).for_each(|_| index.touch(2));
    index.best(0, &mut table);
    assert_eq!(table.judged, judged + 1);
}
