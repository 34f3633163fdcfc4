//! Changes as people write them: `price=+10%`, `quota.lab=25%`, `max_rate=0.80`. One list, whoever asks.

use selion_api::lease::Priority;
use selion_api::slice::IsolationClass;
use selion_api::{Account, Address, BoxFeatures};
use selion_sim::from_log::{Asked, Asks, Change, MAX_GROUP_DEPTH, PolicyChange, PolicyField, Scale};
use selion_sim::why::If;

use crate::unit::{duration, rate};

/// What [`rule`] reads.
const RULES: &str = "a number of the policy: hold=10s, prepare=10m, start=30s, ending=15s, voucher=1m, min_run=5m, \
     half_life=7d, bookings=false, weighting=market|fill|fgd|best-fit|random, shadow=50%, weight.ACCOUNT=3, \
     weight.GROUP=3, quota.GROUP=25% or group.ACCOUNT=PATH";
/// What [`change`] reads beside that.
const PRICES: &str = "write price=+10%, price.ADDRESS=-20% (of a node or a provider), price.MODEL=-20%, or";
/// What [`if_asked`] reads beside that.
const ASKED: &str = "for the request, write max_rate=0.80, max_rate=+10%, max_rate=any, duration=2h, wait=1h, \
     model=NAME, model=any, node=any, min_nodes=1, class=any, needs=any, or priority=interruptible|standard|firm; for the pool,";

/// Something that was otherwise in the whole pool.
pub fn change(text: &str) -> Result<Change, String> {
    of_pool(text)?.ok_or_else(|| format!("`{text}` is not a change; {PRICES} {RULES}"))
}

/// Something that the operator had set otherwise.
pub fn rule(text: &str) -> Result<Change, String> {
    let found = of_pool(text)?.filter(|change| matches!(change, Change::Policy(_)));
    found.ok_or_else(|| format!("`{text}` is not a change of the policy; write {RULES}"))
}

/// Something that one request could have said instead, or that could have been otherwise in the pool.
pub fn if_asked(text: &str) -> Result<If, String> {
    if let Some(asked) = of_request(text)? {
        return Ok(If::Asked(asked));
    }
    let pool = of_pool(text)?.map(If::Pool);
    pool.ok_or_else(|| format!("`{text}` is not something that could be otherwise; {ASKED} {PRICES} {RULES}"))
}

/// `None` if it is no change of a pool, or its value is none of those that the message for that names.
fn of_pool(text: &str) -> Result<Option<Change>, String> {
    let Some((name, value)) = text.split_once('=') else {
        return Ok(None);
    };
    let (kind, whose) = name.strip_prefix("policy.").unwrap_or(name).split_once('.').unzip();
    let name = kind.unwrap_or_else(|| name.strip_prefix("policy.").unwrap_or(name));
    let account = |text: &str| text.parse::<Account>().map_err(|error| error.to_string());
    let weight = || value.parse().ok().filter(|weight| *weight > 0);
    let policy = match (name, whose) {
        ("price", whose) => {
            let asks = match whose {
                None => Asks::All,
                Some(id) if id.starts_with("0x") => Asks::Of(id.parse::<Address>().map_err(|error| error.to_string())?),
                Some(model) => Asks::Model(model.to_owned()),
            };
            return Ok(scale(value).map(|scale| Change::Price(asks, scale)));
        }
        ("weight", Some(id)) if id.starts_with("0x") => {
            let account = account(id)?;
            weight().map(|weight| PolicyChange::Weight(account, weight))
        }
        ("weight", Some(path)) => {
            let path = group(path)?;
            weight().map(|weight| PolicyChange::GroupWeight(path, weight))
        }
        ("quota", Some(path)) => {
            let path = group(path)?;
            permille(value).map(|permille| PolicyChange::Quota(path, permille))
        }
        ("group", Some(id)) => {
            let path = if value.is_empty() { String::new() } else { group(value)? };
            Some(PolicyChange::Seat(account(id)?, path))
        }
        ("weighting", None) => value.parse().ok().map(PolicyChange::Weighting),
        ("shadow", None) => permille(value).map(PolicyChange::Shadow),
        ("bookings", None) => value.parse().ok().map(PolicyChange::Bookings),
        (name, None) => {
            let named = PolicyField::ALL.into_iter().find(|(field, _)| field.strip_suffix("_ms") == Some(name));
            let time = named.map(|(_, field)| duration(value).map(|ms| PolicyChange::Time(field, ms)));
            time.transpose().map_err(|error| error.to_string())?
        }
        _ => None,
    };
    Ok(policy.map(Change::Policy))
}

/// `None` if it is not what a request says, or its value is none of those that the message for that names.
fn of_request(text: &str) -> Result<Option<Asked>, String> {
    let Some((name, value)) = text.split_once('=') else {
        return Ok(None);
    };
    let span = || duration(value).map_err(|error| error.to_string());
    Ok(match (name, value) {
        ("max_rate", "any") => Some(Asked::MaxRate(None)),
        ("max_rate", _) => Some(match scale(value) {
            Some(scale) => Asked::MaxRateBy(scale),
            None => Asked::MaxRate(Some(rate(value).map_err(|error| error.to_string())?)),
        }),
        ("duration", _) => Some(Asked::Duration(span()?)),
        ("wait", _) => Some(Asked::Wait(span()?)),
        ("model", "any") => Some(Asked::Model(None)),
        ("model", _) => Some(Asked::Model(Some(value.to_owned()))),
        ("node", "any") => Some(Asked::AnyNode),
        ("min_nodes", _) => value.parse().ok().map(Asked::MinNodes),
        ("priority", _) => {
            let all = [Priority::Interruptible, Priority::Standard, Priority::Firm];
            all.into_iter().find(|priority| priority.code() == value).map(Asked::Priority)
        }
        ("class", "any") => Some(Asked::Classes(IsolationClass::ALL.iter().fold(0, |set, class| set | class.bit()))),
        ("needs", "any") => Some(Asked::Needs(BoxFeatures::NONE)),
        _ => None,
    })
}

/// The path of a group: one to three names.
pub fn group(text: &str) -> Result<String, String> {
    let names = text.split('/').count();
    if names > MAX_GROUP_DEPTH || text.split('/').any(|name| name.trim().is_empty()) {
        return Err(format!(
            "`{text}` is not the path of a group; write one to {MAX_GROUP_DEPTH} names, as lab/vision"
        ));
    }
    Ok(text.to_owned())
}

/// `25%` or `12.5%`: a part of a whole.
pub fn permille(text: &str) -> Option<u16> {
    let (whole, tenth) = text.strip_suffix('%').map(|text| text.split_once('.').unwrap_or((text, "0")))?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u16>().ok())?;
    let tenth = digits(tenth).filter(|_| tenth.len() == 1)?;
    let permille = digits(whole)?.checked_mul(10)?.checked_add(tenth)?;
    (permille <= 1_000).then_some(permille)
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
    use selion_sim::Weighting;

    use super::*;

    const ACCOUNT: Account = Account([2; 20]);

    fn policy(text: &str) -> PolicyChange {
        match change(text) {
            Ok(Change::Policy(change)) => change,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn changes_are_read_as_people_write_them() {
        let less = Scale { permille: 800 };
        assert_eq!(change("price=+10%"), Ok(Change::Price(Asks::All, Scale { permille: 1_100 })));
        let node = format!("price.0x{}=-20%", "01".repeat(20));
        assert_eq!(change(&node), Ok(Change::Price(Asks::Of(Address([1; 20])), less)));
        let model = Change::Price(Asks::Model("H100 80GB".into()), less);
        assert_eq!(change("price.H100 80GB=-20%"), Ok(model.clone()));
        assert_eq!(policy(&format!("weight.{ACCOUNT}=3")), PolicyChange::Weight(ACCOUNT, 3));
        assert_eq!(policy(&format!("group.{ACCOUNT}=lab/vision")), PolicyChange::Seat(ACCOUNT, "lab/vision".into()));
        assert_eq!(policy("weight.lab=2"), PolicyChange::GroupWeight("lab".into(), 2));
        assert_eq!(policy("quota.lab/vision=12.5%"), PolicyChange::Quota("lab/vision".into(), 125));
        assert_eq!(policy("hold=5s"), PolicyChange::Time(PolicyField::HoldMs, 5_000));
        assert_eq!(policy("policy.half_life=1d"), PolicyChange::Time(PolicyField::HalfLifeMs, 86_400_000));
        assert_eq!(policy("policy.weighting=best-fit"), PolicyChange::Weighting(Weighting::BestFit));
        assert_eq!(policy("shadow=50%"), PolicyChange::Shadow(500));
        assert_eq!(policy("policy.bookings=false"), PolicyChange::Bookings(false));
        assert_eq!(if_asked("max_rate=0.80"), Ok(If::Asked(Asked::MaxRate(Some(Rate(800_000))))));
        assert_eq!(if_asked("max_rate=+10%"), Ok(If::Asked(Asked::MaxRateBy(Scale { permille: 1_100 }))));
        assert_eq!(if_asked("needs=any"), Ok(If::Asked(Asked::Needs(BoxFeatures::NONE))));
        assert_eq!(if_asked("wait=1h"), Ok(If::Asked(Asked::Wait(3_600_000))));
        assert_eq!(if_asked("price.H100 80GB=-20%"), Ok(If::Pool(model)));
        assert_eq!(rule("quota.lab=25%"), change("policy.quota.lab=25%"));
    }

    #[test]
    fn a_wrong_change_is_named_with_what_is_right() {
        for bad in ["price", "price=10", "price=-101%", "price=+99999999999%", "weight.0x01=3", "mood=good", "hold"] {
            assert!(change(bad).is_err(), "{bad}");
        }
        for bad in ["quota.lab=100.1%", "quota.lab=25", "quota.lab=1.25%", "quota=5%", "quota.a/b/c/d=5%", "weight.=2"]
        {
            assert!(change(bad).is_err(), "{bad}");
        }
        let zero = change(&format!("weight.{ACCOUNT}=0")).unwrap_err();
        assert!(zero.contains("write price=+10%"), "{zero}");
        for bad in [
            "max_rate=dear",
            "class=gold",
            "duration=4hours",
            "min_nodes=-1",
            "bookings=maybe",
            "weighting=fit",
            "shadow=500",
            "hold=5",
        ] {
            assert!(if_asked(bad).is_err(), "{bad}");
        }
        assert!(rule("price=+10%").unwrap_err().contains("is not a change of the policy"));
        assert!(change("max_rate=any").is_err(), "there is no request in question");
    }
}
