//! Made classes and nodes in the shape of openb: which part of the tasks asks for what, and how popular classes are.

use selion_market::engine::{NodeShape, Shape, Want};

use crate::random::Random;

/// A made class and how often it is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// What it asks of a node.
    pub want: Want,
    /// Its weight.
    pub weight: f64,
}

/// A kind of class: openb's default list has these types and tasks of it.
struct Kind {
    types: usize,
    tasks: f64,
    gpus: u8,
    share: bool,
}

const KINDS: [Kind; 6] = [
    Kind { types: 39, tasks: 3078.0, gpus: 1, share: true },
    Kind { types: 29, tasks: 3911.0, gpus: 1, share: false },
    Kind { types: 10, tasks: 1088.0, gpus: 0, share: false },
    Kind { types: 5, tasks: 44.0, gpus: 8, share: false },
    Kind { types: 5, tasks: 16.0, gpus: 2, share: false },
    Kind { types: 3, tasks: 15.0, gpus: 4, share: false },
];

/// So many distinct classes: kinds in openb's proportions, popularity within a kind falling as 1 / rank^1.3.
pub fn classes(count: usize) -> Vec<Class> {
    let mut random = Random::new(91, 0);
    let mut classes: Vec<Class> = Vec::new();
    let mut ranks = [0u32; KINDS.len()];
    let types: usize = KINDS.iter().map(|kind| kind.types).sum();
    // Kinds interleaved, so that a few classes already hold the common ones.
    let mut kinds = (0..).flat_map(|step: usize| {
        let due = move |kind: &Kind| step % types * kind.types / types != (step % types + 1) * kind.types / types;
        (0..KINDS.len()).filter(move |at| due(&KINDS[*at]))
    });
    let mut tries = 0;
    while classes.len() < count {
        let Some(at) = kinds.next() else { break };
        let want = draw(&KINDS[at], &mut random, tries);
        tries += 1;
        if classes.iter().any(|class| class.want == want) {
            continue;
        }
        ranks[at] += 1;
        classes.push(Class { want, weight: f64::from(ranks[at]).powf(-1.3) });
    }
    normalise(&mut classes);
    classes
}

/// So many distinct small classes, all equally popular: a share of up to `most` milli of a GPU, and up to the same part
/// of the 12 cores that a node has for each.
pub fn shares(count: usize, most: u16) -> Vec<Class> {
    let mut random = Random::new(92, 0);
    let mut classes: Vec<Class> = Vec::new();
    while classes.len() < count {
        let milli = 1 + random.below(usize::from(most)) as u16;
        // In steps of 10 thousandths of a core, so that small shares make enough classes too.
        let cpu = 10 * (1 + random.below(usize::from(most) * 12 / 10)) as u32;
        let want = Want { shape: Shape::Share(milli), cpu, ram: cpu * 4, models: u64::MAX };
        if classes.iter().all(|class| class.want != want) {
            classes.push(Class { want, weight: 1.0 });
        }
    }
    classes
}

/// Scales the weights so that each kind has its part of the tasks, as far as it has classes.
fn normalise(classes: &mut [Class]) {
    for kind in &KINDS {
        let same = |want: &Want| match want.shape {
            Shape::None => kind.gpus == 0,
            Shape::Share(_) => kind.share,
            Shape::Whole(gpus) => !kind.share && gpus == kind.gpus,
            Shape::Mig { .. } => false,
        };
        let sum: f64 = classes.iter().filter(|class| same(&class.want)).map(|class| class.weight).sum();
        for class in classes.iter_mut().filter(|class| same(&class.want)) {
            class.weight *= kind.tasks / sum;
        }
    }
}

/// One of the kind. With many tries the grain gets finer, so that any number of classes can be had.
fn draw(kind: &Kind, random: &mut Random, tries: usize) -> Want {
    let grain = if tries < 1_000 { 500 } else { 1 };
    let cores =
        |low: u32, high: u32, random: &mut Random| low + random.below(((high - low) / grain) as usize) as u32 * grain;
    let (shape, cpu) = match kind.gpus {
        0 => (Shape::None, cores(8_000, 32_000, random)),
        _ if kind.share => (Shape::Share(50 + 10 * random.below(91) as u16), cores(3_000, 12_000, random)),
        1 => (Shape::Whole(1), cores(3_000, 16_000, random)),
        gpus => (Shape::Whole(gpus), cores(6_000, 12_000, random) * u32::from(gpus)),
    };
    Want { shape, cpu, ram: cpu * 4, models: u64::MAX }
}

/// So many nodes with so many GPUs in all: nodes of 8 and of 2 as openb has, where that adds up, else evenly. Nodes
/// of 8 have 12 cores a GPU, those of 2 have 52; racks in turn.
pub fn nodes(nodes: usize, gpus: usize, racks: u32) -> Vec<NodeShape> {
    let mixed = (2 * nodes..=8 * nodes).contains(&gpus);
    // Of 8 first, then one that makes it even, then of 2; shuffled below.
    let eights = if mixed { (gpus - 2 * nodes) / 6 } else { 0 };
    let rest = if mixed { (gpus - 2 * nodes) % 6 } else { 0 };
    let gpus_of = |at: usize| match (mixed, at) {
        (true, at) if at < eights => 8,
        (true, at) if at == eights => 2 + rest,
        (true, _) => 2,
        (false, at) => gpus / nodes + usize::from(at < gpus % nodes),
    };
    let mut sizes: Vec<usize> = (0..nodes).map(gpus_of).collect();
    Random::new(8, 0).shuffle(&mut sizes);
    let shape = |(at, gpus): (usize, &usize)| {
        let (model, cores) = if *gpus > 2 { (0, 12_000) } else { (1, 52_000) };
        let cpu = cores * (*gpus).max(1) as u32;
        NodeShape { domain: at as u32 % racks.max(1), ..NodeShape::new(model, cpu, cpu * 5, *gpus as u8) }
    };
    sizes.iter().enumerate().map(shape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classes_have_openbs_proportions() {
        for count in [1, 10, 91, 400] {
            let classes = classes(count);
            assert_eq!(classes.len(), count);
            assert!(classes.iter().all(|class| class.weight > 0.0));
        }
        let classes = classes(91);
        let all: f64 = classes.iter().map(|class| class.weight).sum();
        let part = |wanted: fn(&Shape) -> bool| {
            classes.iter().filter(|class| wanted(&class.want.shape)).map(|class| class.weight).sum::<f64>() / all
        };
        assert!((part(|shape| *shape == Shape::None) - 0.133).abs() < 0.001);
        assert!((part(|shape| matches!(shape, Shape::Share(_))) - 0.378).abs() < 0.001);
        assert!((part(|shape| *shape == Shape::Whole(8)) - 0.0054).abs() < 0.0001);
    }

    #[test]
    fn the_nodes_have_exactly_the_gpus_asked_for() {
        for (count, gpus) in [(1_213, 6_212), (19_408, 99_392), (3, 24), (3, 7), (5, 1), (4, 100)] {
            let nodes = nodes(count, gpus, 50);
            assert_eq!(nodes.len(), count);
            assert_eq!(nodes.iter().map(|node| usize::from(node.gpus)).sum::<usize>(), gpus);
        }
    }
}
