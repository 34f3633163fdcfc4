use alloc::vec::Vec;

use super::super::stock;
use super::*;
use crate::engine::view::View;

const ANY: u64 = u64::MAX;

fn want(shape: Shape, cpu: u32, models: u64) -> Want {
    Want { shape, cpu, ram: 0, models }
}

/// FGD's definition, word for word, over the usual wants of the table.
fn by_definition(mix: &Mix, view: &View<'_>) -> i64 {
    let total: i64 = view.left.iter().map(|&left| i64::from(left)).sum();
    usual(mix)
        .iter()
        .map(|usual| {
            let (num, milli) = match usual.want.shape {
                Shape::Share(milli) => (1, milli),
                Shape::Whole(num) => (usize::from(num), WHOLE),
                _ => (0, 0),
            };
            let hosts = view.left.iter().filter(|&&left| left >= milli).count() >= num
                && view.cpu >= usual.want.cpu
                && usual.want.models >> view.model & 1 == 1;
            let lost = if num == 0 || !hosts {
                total
            } else {
                view.left.iter().filter(|&&left| left < milli).map(|&left| i64::from(left)).sum()
            };
            lost * i64::from(usual.weight)
        })
        .sum()
}

fn mixed() -> Mix {
    Mix::oracle(&[
        (want(Shape::None, 2000, ANY), 10),
        (want(Shape::Share(500), 4000, ANY), 30),
        (want(Shape::Share(810), 8000, ANY), 20),
        (want(Shape::Whole(1), 12_000, 0b01), 20),
        (want(Shape::Whole(2), 16_000, ANY), 8),
        (want(Shape::Whole(8), 64_000, 0b10), 6),
    ])
}

#[test]
fn the_table_says_what_the_definition_says_on_every_node() {
    let mix = mixed();
    let frag = Frag::of(&mix);
    let mut seed = 7_u64;
    for _ in 0..5000 {
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let devices = draw(10) as usize;
        let left: Vec<u16> =
            (0..devices).map(|_| [0, 190, 500, 810, 1000, draw(1001) as u16][draw(6) as usize]).collect();
        let view = View { model: draw(3) as u8, cpu: draw(70) as u32 * 1000, ram: 0, left: &left };
        let stock = Stock::of(&view);
        assert_eq!(frag.value(&stock), by_definition(&mix, &view), "{view:?}");
        let share = want(Shape::Share(300), 4000, ANY);
        if stock::fits(&view, &share) {
            let drops = frag.drops(&stock, &share);
            for &device in left.iter().filter(|&&device| device >= 300) {
                let after = stock.after(&share, device);
                assert_eq!(drops.share(device, 300), frag.value(&stock) - frag.value(&after));
            }
        }
        let whole = want(Shape::Whole(2), 4000, ANY);
        if stock::fits(&view, &whole) {
            let after = stock.after(&whole, 0);
            assert_eq!(frag.drops(&stock, &whole).whole(2), frag.value(&stock) - frag.value(&after));
        }
        let host = want(Shape::None, 4000, ANY);
        if stock::fits(&view, &host) {
            assert_eq!(frag.drops(&stock, &host).host(), frag.value(&stock) - frag.value(&stock.after(&host, 0)));
        }
    }
}

#[test]
fn a_device_that_only_half_of_the_wants_can_use_is_half_lost() {
    let mix = Mix::oracle(&[(want(Shape::Share(200), 1000, ANY), 1), (want(Shape::Whole(1), 1000, ANY), 1)]);
    let frag = Frag::of(&mix);
    let stock = Stock::of(&View { model: 0, cpu: 1000, ram: 0, left: &[400] });
    assert_eq!(frag.value(&stock), 200 * i64::from(UNIT));
    let spent = Stock::of(&View { model: 0, cpu: 999, ram: 0, left: &[400] });
    assert_eq!(frag.value(&spent), 400 * i64::from(UNIT), "without CPU nothing is of use");
}

#[test]
fn the_usual_wants_stop_where_they_cover_ninety_five_percent_and_ignore_memory() {
    let share = want(Shape::Share(1), 0, ANY);
    let other = |milli| want(Shape::Share(milli), 0, ANY);
    let kinds = [(share, 40), (Want { ram: 9, ..share }, 40), (other(2), 15), (other(3), 4), (other(4), 1)];
    let usual = usual(&Mix::oracle(&kinds));
    assert_eq!(usual.iter().map(|usual| usual.want).collect::<Vec<_>>(), [share, other(2)]);
    assert_eq!(usual.iter().map(|usual| usual.weight).sum::<u32>(), UNIT);
}

#[test]
fn an_empty_mix_and_a_huge_node_do_not_overflow() {
    let huge = [1000_u16; 64];
    let stock = Stock::of(&View { model: 63, cpu: u32::MAX, ram: u32::MAX, left: &huge });
    assert_eq!(Frag::of(&Mix::default()).value(&stock), 64_000 * i64::from(UNIT));
    let all = want(Shape::Whole(64), u32::MAX, ANY);
    let frag = Frag::of(&Mix::oracle(&[(all, u64::MAX / 2048)]));
    assert_eq!(frag.value(&stock), 0);
    assert_eq!(frag.drops(&stock, &all).whole(64), 0);
}
