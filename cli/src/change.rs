//! Changes as people write them: `price=+10%`, `weight.0xab..=3`, `max_rate=0.80`.

use selion_api::lease::Priority;
use selion_api::slice::IsolationClass;
use selion_api::{Account, NodeId};
use selion_sim::from_log::{Change, PolicyField, Scale};
use selion_sim::why::If;

use crate::unit::{duration, rate};

/// What [`change`] reads.
pub const CHANGES: &str = "write price=+10%, price.NODE=-20%, weight.ACCOUNT=3, or a number of the policy: hold=10s, \
     prepare=10m, start=30s, ending=15s, voucher=1m or min_run=5m";
/// What [`if_asked`] reads.
pub const IFS: &str = "write max_rate=0.80, max_rate=+10%, max_rate=any, duration=2h, wait=1h, model=NAME, model=any, \
     node=any, min_nodes=1, class=any, or priority=interruptible|standard|firm";

/// Something that was otherwise in the whole pool.
pub fn change(text: &str) -> Result<Change, String> {
    let bad = || format!("`{text}` is not a change; {CHANGES}");
    let (name, value) = text.split_once('=').ok_or_else(bad)?;
    if name == "price" {
        return scale(value).map(|scale| Change::Price(None, scale)).ok_or_else(bad);
    }
    if let Some(node) = name.strip_prefix("price.") {
        let node: NodeId = node.parse().map_err(|error| format!("{error}"))?;
        return scale(value).map(|scale| Change::Price(Some(node), scale)).ok_or_else(bad);
    }
    if let Some(account) = name.strip_prefix("weight.") {
        let account: Account = account.parse().map_err(|error| format!("{error}"))?;
        let weight = value.parse().ok().filter(|weight| *weight > 0).ok_or_else(bad)?;
        return Ok(Change::Weight(account, weight));
    }
    let named = PolicyField::ALL.into_iter().find(|(field, _)| field.strip_suffix("_ms") == Some(name));
    let (_, field) = named.ok_or_else(bad)?;
    duration(value).map(|ms| Change::Policy(field, ms)).map_err(|error| error.to_string())
}

/// Something that one request could have said instead.
pub fn if_asked(text: &str) -> Result<If, String> {
    let bad = || format!("`{text}` is not something to ask otherwise; {IFS}");
    let (name, value) = text.split_once('=').ok_or_else(bad)?;
    let span = || duration(value).map_err(|error| error.to_string());
    match (name, value) {
        ("max_rate", "any") => Ok(If::MaxRate(None)),
        ("max_rate", _) => match scale(value) {
            Some(scale) => Ok(If::MaxRateBy(scale)),
            None => rate(value).map(|rate| If::MaxRate(Some(rate))).map_err(|error| error.to_string()),
        },
        ("duration", _) => span().map(If::Duration),
        ("wait", _) => span().map(If::Wait),
        ("model", "any") => Ok(If::Model(None)),
        ("model", _) => Ok(If::Model(Some(value.to_owned()))),
        ("node", "any") => Ok(If::AnyNode),
        ("min_nodes", _) => value.parse().map(If::MinNodes).map_err(|_| bad()),
        ("priority", _) => {
            let all = [Priority::Interruptible, Priority::Standard, Priority::Firm];
            all.into_iter().find(|priority| priority.code() == value).map(If::Priority).ok_or_else(bad)
        }
        ("class", "any") => Ok(If::Classes(IsolationClass::ALL.iter().fold(0, |set, class| set | class.bit()))),
        _ => Err(bad()),
    }
}

/// `+10%` or `-20%`, in whole percent.
fn scale(text: &str) -> Option<Scale> {
    let digits = text.strip_suffix('%')?;
    let (up, digits) = match digits.strip_prefix('+') {
        Some(digits) => (true, digits),
        None => (false, digits.strip_prefix('-')?),
    };
    let percent: u32 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    let permille = percent.checked_mul(10)?;
    Some(Scale { permille: if up { 1_000_u32.checked_add(permille)? } else { 1_000_u32.checked_sub(permille)? } })
}

#[cfg(test)]
mod tests {
    use selion_api::Rate;

    use super::*;

    #[test]
    fn changes_are_read_as_people_write_them() {
        assert_eq!(change("price=+10%"), Ok(Change::Price(None, Scale { permille: 1_100 })));
        let node = format!("price.0x{}=-20%", "01".repeat(20));
        assert_eq!(change(&node), Ok(Change::Price(Some(NodeId([1; 20])), Scale { permille: 800 })));
        let weight = format!("weight.0x{}=3", "02".repeat(20));
        assert_eq!(change(&weight), Ok(Change::Weight(Account([2; 20]), 3)));
        assert_eq!(change("hold=5s"), Ok(Change::Policy(PolicyField::HoldMs, 5_000)));
        assert_eq!(if_asked("max_rate=0.80"), Ok(If::MaxRate(Some(Rate(800_000)))));
        assert_eq!(if_asked("max_rate=+10%"), Ok(If::MaxRateBy(Scale { permille: 1_100 })));
        assert_eq!(if_asked("wait=1h"), Ok(If::Wait(3_600_000)));
    }

    #[test]
    fn a_wrong_change_is_named_with_what_is_right() {
        for bad in ["price", "price=10", "price=-101%", "price=+99999999999%", "weight.0x01=3", "mood=good"] {
            assert!(change(bad).is_err(), "{bad}");
        }
        let zero = change(&format!("weight.0x{}=0", "02".repeat(20))).unwrap_err();
        assert!(zero.contains("write price=+10%"), "{zero}");
        for bad in ["max_rate=dear", "class=gold", "duration=4hours", "min_nodes=-1"] {
            assert!(if_asked(bad).is_err(), "{bad}");
        }
    }
}
