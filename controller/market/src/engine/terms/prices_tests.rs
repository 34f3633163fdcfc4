use super::super::stock::Stock;
use super::*;
use crate::engine::view::View;

fn want(shape: Shape, models: u64) -> Want {
    Want { shape, cpu: 0, ram: 0, models }
}

/// `nodes` nodes of 8 free devices per model in turn.
fn fleet(nodes: &[u32]) -> Sums {
    let mut sums = Sums::default();
    let mut rank = 0;
    for (model, &count) in (0_u8..).zip(nodes) {
        for _ in 0..count {
            let stock = Stock::of(&View { model, cpu: 1000, ram: 0, left: &[1000; 8] });
            sums.set(rank, Some((&stock, 8, 0)));
            rank += 1;
        }
    }
    sums
}

const ANY: u64 = u64::MAX;

#[test]
fn a_slot_costs_the_fourth_power_of_its_scarcity() {
    // Half of the arrivals want 8 devices and half one: 9 GPUs per two arrivals. 10 nodes of 8: 80 GPUs, so 80/9 more
    // wants of 8 are expected until the fleet is full, for 10 slots: 0.889, to the fourth 0.624 of 8 GPUs.
    let mix = Mix::oracle(&[(want(Shape::Whole(8), ANY), 1), (want(Shape::Whole(1), ANY), 1)]);
    let prices = Prices::of(&Weights::FILL, &mix, &fleet(&[10]));
    let milli = prices.slot(3) / MILLI;
    assert!((4985..=4995).contains(&milli), "{milli}");
    assert_eq!((prices.slot(1), prices.slot(2)), (0, 0), "nobody wants 2 or 4");
}

#[test]
fn a_fixed_horizon_does_not_look_at_what_is_left() {
    let mix = Mix::oracle(&[(want(Shape::Whole(2), ANY), 1), (want(Shape::None, ANY), 99)]);
    let weights = Weights { horizon: Horizon::Arrivals(2000), ..Weights::MARKET };
    // 20 wants of two are ahead, 40 slots of two are left: a half to the fourth of two GPUs.
    let prices = Prices::of(&weights, &mix, &fleet(&[10]));
    assert_eq!(prices.slot(1), 2000 * MILLI / 16);
    let short = Prices::of(&weights, &mix, &fleet(&[1]));
    assert_eq!(short.slot(1), 2000 * MILLI, "never more than its GPUs");
}

#[test]
fn models_in_balance_have_no_price() {
    let mix = Mix::oracle(&[(want(Shape::Whole(1), 0b01), 1), (want(Shape::Whole(1), 0b10), 1)]);
    let prices = Prices::of(&Weights::MARKET, &mix, &fleet(&[5, 5]));
    assert_eq!((prices.model(0), prices.model(1)), (0, 0));
}

#[test]
fn a_model_that_inflexible_wants_need_gets_dear_and_flexible_wants_can_leave_it() {
    // Model 0 is a fifth of the fleet, a sixth of the demand wants only it, the rest is free to choose.
    let mix = Mix::oracle(&[(want(Shape::Whole(1), 0b01), 1), (want(Shape::Whole(1), ANY), 5)]);
    let prices = Prices::of(&Weights::MARKET, &mix, &fleet(&[2, 8]));
    assert!(prices.model(0) > 0);
    assert_eq!(prices.model(1), 0);
    // By hand: at balance model 1 takes all its load from the free set, q1 = (c0 q0 + c1 q1) / d. With c = .2, .8 and
    // d = 1/6, 5/6: s1 = d/Z, s0 = s1 + (1/6)/(.2 q0), q = 1/s. Then q0/q1 = 1/6: ln 6 = 1.79, times 400.
    let milli = prices.model(0) / MILLI;
    assert!((650..=720).contains(&milli), "{milli}");
}

#[test]
fn the_model_price_stops_at_its_cap_and_absent_models_have_none() {
    let mix = Mix::oracle(&[(want(Shape::Whole(1), 0b01), 1000), (want(Shape::Whole(1), ANY), 1)]);
    let prices = Prices::of(&Weights::MARKET, &mix, &fleet(&[1, 99]));
    assert_eq!(prices.model(0), 1600 * MILLI);
    assert_eq!((prices.model(1), prices.model(2)), (0, 0));
}

#[test]
fn a_price_counts_the_broken_slots_and_the_gpus_taken() {
    let prices = Prices { slot: [10 * MILLI, 20 * MILLI, 30 * MILLI], model: [100 * MILLI; MODELS] };
    let share = want(Shape::Share(500), ANY);
    assert_eq!(prices.of_group(&share, Group::of(0, 8, 0)), 50 * MILLI);
    assert_eq!(prices.of_group(&share, Group::of(0, 8, 1)), (50 + 60) * MILLI);
    assert_eq!(prices.of_group(&share, Group::of(0, 6, 1)), (50 + 10) * MILLI);
    assert_eq!(prices.of_group(&want(Shape::Whole(4), ANY), Group::of(0, 8, 4)), (400 + 20 + 20 + 30) * MILLI);
    assert_eq!(prices.of_group(&want(Shape::None, ANY), Group::of(0, 8, 0)), 0);
}

#[test]
fn nothing_learned_nothing_left_and_huge_counts_are_priced_without_overflow() {
    let empty = Prices::of(&Weights::FILL, &Mix::default(), &Sums::default());
    assert_eq!((empty.slot(3), empty.model(0)), (0, 0));
    let mix =
        Mix::oracle(&[(want(Shape::Whole(255), 1), u64::MAX / 2048), (want(Shape::Whole(8), 2), u64::MAX / 2048)]);
    for weights in [Weights::FILL, Weights::MARKET] {
        let prices = Prices::of(&weights, &mix, &fleet(&[1, 2, 3]));
        assert!(prices.slot(3) <= 8000 * MILLI);
        let most = prices.of_group(&want(Shape::Whole(64), ANY), Group::of(1, 64, 64));
        assert!((0..=64 * (3 * 1000 + 1600) * MILLI).contains(&most));
    }
}
