use super::*;

const NOW: TimeMs = TimeMs(1_800_000_000_000);
const LEAST: Amount = Amount(100);

fn facts() -> Facts {
    Facts { owed: LEAST, thaws: None, dead_from: None, epoch_until: TimeMs(u64::MAX), waits_since: NOW }
}

fn says(facts: Facts) -> Option<Peril> {
    peril(&facts, LEAST, NOW)
}

#[test]
fn a_voucher_is_claimed_when_money_key_or_epoch_are_about_to_end_or_nobody_claims_it() {
    let (near, far) = (NOW.plus(NEAR_MS), NOW.plus(NEAR_MS + 1));
    assert_eq!(says(facts()), None);
    assert_eq!(says(Facts { thaws: Some(near), ..facts() }), Some(Peril::Thaw));
    assert_eq!(says(Facts { thaws: Some(TimeMs(1)), ..facts() }), Some(Peril::Thaw), "it may leave at any moment");
    assert_eq!(says(Facts { dead_from: Some(near), ..facts() }), Some(Peril::Revoked));
    assert_eq!(says(Facts { epoch_until: near, ..facts() }), Some(Peril::Epoch));
    assert_eq!(says(Facts { waits_since: TimeMs(NOW.0 - LONG_MS), ..facts() }), Some(Peril::Alone));
    assert_eq!(says(Facts { thaws: Some(far), dead_from: Some(far), epoch_until: far, ..facts() }), None);
    assert_eq!(says(Facts { waits_since: TimeMs(NOW.0 - LONG_MS + 1), ..facts() }), None);
}

#[test]
fn dust_and_what_is_lost_already_burn_no_gas() {
    let near = Some(NOW.plus(1));
    assert_eq!(says(Facts { owed: Amount(99), thaws: near, ..facts() }), None);
    assert_eq!(peril(&Facts { owed: Amount::ZERO, thaws: near, ..facts() }, Amount::ZERO, NOW), None);
    assert_eq!(says(Facts { dead_from: Some(NOW), thaws: near, ..facts() }), None);
    assert_eq!(says(Facts { epoch_until: NOW, thaws: near, ..facts() }), None);
}
