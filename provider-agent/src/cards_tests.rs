use selion_api::agent::MemberEvent;
use selion_api::{Account, LeaseId, NodeId, Slot};

use super::*;
use crate::gpus::Simulated;

fn three() -> Vec<GpuFacts> {
    let models = ["A100 80GB", "H100 80GB", "T4 16GB"].map(str::to_owned);
    Simulated::new(&models, b"node").unwrap().facts().cloned().collect()
}

fn choice(cards: &[&str], except: &[&str]) -> Result<Vec<u32>, String> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let config = Config { cards: names(cards), except: names(except), ..Config::default() };
    let chosen = choose(&config, &three()).map_err(|error| error.to_string())?;
    Ok(chosen.iter().map(|facts| facts.index).collect())
}

#[test]
fn cards_are_chosen_and_left_out_by_index_and_by_uuid() {
    let last = three()[2].gpu.to_string();
    assert_eq!(choice(&[], &[]), Ok(vec![0, 1, 2]));
    assert_eq!(choice(&["0", &last], &[]), Ok(vec![0, 2]));
    assert_eq!(choice(&[], &["1"]), Ok(vec![0, 2]));
    assert_eq!(choice(&["0", "1"], &["1"]), Ok(vec![0]));
}

#[test]
fn a_name_of_no_card_is_refused_with_those_there_are_and_so_is_an_empty_choice() {
    let first = three()[0].gpu;
    for (cards, except, name) in [(&["3"][..], &[][..], "cards names \"3\""), (&[], &["H100"], "except names \"H100\"")]
    {
        let said = choice(cards, except).unwrap_err();
        assert!(said.contains(name) && said.contains(&format!("0 {first} (A100 80GB), 1 ")), "{said}");
    }
    let said = choice(&["1"], &["1"]).unwrap_err();
    assert!(said.contains("leave no card to offer"), "{said}");
}

fn running_on(gpu: GpuId) -> Report {
    Report {
        node: NodeId([1; 20]),
        provider: Account([2; 20]),
        seq: 1,
        fence: selion_api::agent::Fence::default(),
        lease: LeaseId { seq: 7, index: 0 },
        attempt: 0,
        member: 0,
        gpus: vec![gpu],
        slot: Slot::Whole,
        event: MemberEvent::Running,
        metered_ms: 0,
    }
}

fn indexes(cards: &[Card]) -> Vec<u32> {
    cards.iter().map(|card| card.index).collect()
}

#[test]
fn what_changed_at_a_start_is_told() {
    let all = three();
    let (_, first) = settle(all[..2].to_vec(), &all, None, &[]);
    assert_eq!((indexes(&first.offered), indexes(&first.left_out)), (vec![0, 1], vec![2]));
    assert!(first.added.is_empty() && first.removed.is_empty(), "nothing was there before: {first:?}");
    let (offered, then) = settle(all[1..].to_vec(), &all, Some(&first.offered), &[]);
    assert_eq!((indexes(&then.added), indexes(&then.removed), indexes(&then.left_out)), (vec![2], vec![0], vec![0]));
    assert_eq!(offered.len(), 2);
    // A card that is gone from the machine is told too.
    let (_, gone) = settle(all[2..].to_vec(), &all[2..], Some(&then.offered), &[]);
    assert_eq!(indexes(&gone.removed), [1]);
}

#[test]
fn a_card_with_a_running_lease_is_drained_and_not_cut() {
    let all = three();
    let (_, before) = settle(all[..2].to_vec(), &all, None, &[]);
    let open = [running_on(all[0].gpu)];
    let (offered, told) = settle(all[1..].to_vec(), &all, Some(&before.offered), &open);
    assert_eq!(indexes(&told.offered), [0, 1], "the offer is what it was, so that the lease's link holds");
    assert_eq!(offered.iter().map(|facts| facts.index).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((told.draining[0].card.index, told.draining[0].member.lease), (0, LeaseId { seq: 7, index: 0 }));
    // A lease on a card that stays holds nothing up.
    let open = [running_on(all[1].gpu)];
    let (_, told) = settle(all[1..].to_vec(), &all, Some(&before.offered), &open);
    assert_eq!((indexes(&told.offered), told.draining), (vec![1, 2], vec![]));
}
