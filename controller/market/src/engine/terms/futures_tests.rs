use super::super::draws::ALL;
use super::super::memo::rounded;
use super::*;
use crate::engine::view::{Shape, View, Want};

fn want(shape: Shape, cpu: u32, ram: u32, models: u64) -> Want {
    Want { shape, cpu, ram, models }
}

fn stock(model: u8, cpu: u32, left: &[u16]) -> Stock {
    Stock::of(&View { model, cpu, ram: 1 << 20, left })
}

fn mixed() -> Mix {
    Mix::oracle(&[
        (want(Shape::None, 2000, 4096, u64::MAX), 12),
        (want(Shape::Share(110), 500, 1024, u64::MAX), 9),
        (want(Shape::Share(500), 4000, 8192, u64::MAX), 30),
        (want(Shape::Share(810), 8000, 30_000, 0b101), 20),
        (want(Shape::Whole(1), 12_000, 65_536, u64::MAX), 25),
        (want(Shape::Whole(2), 16_000, 65_536, 0b01), 8),
        (want(Shape::Whole(8), 64_000, 262_144, 0b10), 6),
    ])
}

/// The rule read draw by draw, without words of bits.
fn by_definition(mix: &Mix, start: &Stock) -> u32 {
    let (draws, device) = (draw(mix, ALL), Device::of(mix));
    let mut sum = 0;
    for future in draws.chunks(LENGTH) {
        let mut node = *start;
        for pair in future.chunks(2) {
            if node.total() == 0 || node.cpu < SPENT {
                break;
            }
            let fits = |node: &Stock, draw: &Draw| {
                draw.models >> node.model & 1 == 1
                    && node.cpu >= draw.cpu
                    && node.ram >= draw.ram
                    && match (draw.num, draw.milli) {
                        (0, _) => true,
                        (num, WHOLE) => node.full >= num,
                        (_, milli) => node.full > 0 || node.parts().iter().any(|&left| left >= milli),
                    }
            };
            let lone = |node: &Stock, draw: &Draw| {
                node.parts().iter().copied().find(|&left| left >= draw.milli).unwrap_or(WHOLE)
            };
            if pair[0].num == 0 && fits(&node, &pair[0]) {
                node.cpu -= pair[0].cpu;
                node.ram -= pair[0].ram;
            }
            let cheapest = pair.iter().filter(|draw| draw.num > 0 && fits(&node, draw)).min_by_key(|draw| {
                if draw.milli == WHOLE {
                    -i32::from(draw.num) * device.left(WHOLE)
                } else {
                    let left = lone(&node, draw);
                    device.left(left - draw.milli) - device.left(left)
                }
            });
            if let Some(draw) = cheapest {
                let shape = if draw.milli == WHOLE { Shape::Whole(draw.num) } else { Shape::Share(draw.milli) };
                node = node.after(&want(shape, draw.cpu, draw.ram, draw.models), lone(&node, draw));
            }
        }
        sum += node.total();
    }
    sum
}

#[test]
fn jumping_to_the_next_fitting_draw_fills_a_node_as_reading_every_draw_does() {
    let mix = mixed();
    let futures = Futures::of(&mix, ALL);
    let mut seed = 11_u64;
    for _ in 0..3000 {
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let devices = draw(13) as usize;
        let left: Vec<u16> =
            (0..devices).map(|_| [0, 190, 500, 1000, 1000, draw(1001) as u16][draw(6) as usize]).collect();
        let view =
            View { model: draw(3) as u8, cpu: draw(130) as u32 * 1000, ram: draw(60) as u32 * 8192, left: &left };
        let start = Stock::of(&view);
        assert_eq!(futures.left(&start), by_definition(&mix, &start), "{view:?}");
    }
}

#[test]
fn a_node_without_cpu_keeps_all_it_has_and_a_plentiful_one_is_filled() {
    let futures = Futures::of(&Mix::oracle(&[(want(Shape::Share(250), 1000, 0, u64::MAX), 1)]), ALL);
    let each = SEQUENCES as u32;
    assert_eq!(futures.left(&stock(0, 999, &[1000, 300])), 1300 * each);
    assert_eq!(futures.left(&stock(0, 64_000, &[1000, 300])), 50 * each, "1000 is filled, 300 leaves 50");
    assert_eq!(futures.left(&stock(0, 2500, &[1000, 300])), (750 + 50) * each, "CPU for two: the fullest device first");
}

#[test]
fn of_a_pair_the_one_that_fills_the_device_better_is_placed() {
    let mix = Mix::oracle(&[
        (want(Shape::Share(300), 1000, 0, u64::MAX), 1),
        (want(Shape::Share(400), 1000, 0, u64::MAX), 1),
    ]);
    let left = Futures::of(&mix, ALL).left(&stock(0, 64_000, &[400]));
    // Only a pair of two 300s leaves 100: a quarter of the futures.
    assert_eq!(left % 100, 0);
    assert!((100..=800).contains(&left), "{left}");
}

#[test]
fn an_empty_mix_loses_nothing_and_extremes_do_not_overflow() {
    let huge = [1000_u16; 64];
    let most = stock(63, u32::MAX, &huge);
    assert_eq!(Futures::default().left(&most), 0);
    assert_eq!(Futures::of(&Mix::default(), ALL).left(&most), 0);
    let all = Mix::oracle(&[(want(Shape::Whole(255), u32::MAX, u32::MAX, u64::MAX), u64::MAX / 2048)]);
    assert_eq!(Futures::of(&all, ALL).left(&most), 64_000 * SEQUENCES as u32);
    let halves = [999_u16; 64];
    assert!(Futures::of(&mixed(), ALL).left(&stock(0, u32::MAX, &halves)) <= 64_000 * SEQUENCES as u32);
}

#[test]
fn what_no_future_can_touch_is_left_as_it_is() {
    let tiny = Mix::oracle(&[
        (want(Shape::None, 40, 100, u64::MAX), 1),
        (want(Shape::Share(7), 30, 90, u64::MAX), 3),
        (want(Shape::Share(31), 250, 70, u64::MAX), 4),
    ]);
    let some = Mix::oracle(&[
        (want(Shape::Share(333), 100, 0, u64::MAX), 9),
        (want(Shape::Share(20), 100, 0, u64::MAX), 90),
        (want(Shape::Whole(2), 100, 0, u64::MAX), 1),
    ]);
    let mut seed = 5_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    for mix in [tiny, some, mixed()] {
        let futures = Futures::of(&mix, ALL);
        let mut less = 0;
        for _ in 0..1500 {
            let left: Vec<u16> = (0..draw(12)).map(|_| [1000, 1000, draw(1001) as u16][draw(3) as usize]).collect();
            let (cpu, ram) = (draw(60) as u32 * 1000, draw(10) as u32 * 8192);
            let start = Stock::of(&View { model: draw(3) as u8, cpu, ram, left: &left });
            let (touched, rest) = futures.touched(&start);
            // The memory of values rounds it down after that.
            let value = futures.left(&rounded(&touched)) + rest;
            assert_eq!(value, futures.left(&start), "{start:?}");
            less += usize::from(touched != start);
        }
        assert_eq!(less > 0, mix != mixed(), "a future of large wants touches all of a node");
    }
}
