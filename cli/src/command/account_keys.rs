//! `selion account keys`, `revoke` and `own-key`: which keys may sign vouchers for a renter.

use selion_api::{Account, Address, Amount, TimeMs};
use selion_contracts::read::{AccountRecord, KeyRecord};
use selion_contracts::{BlockTag, Pool, PoolError, Receipt, Signer};
use selion_controller::wall_clock;
use serde::Serialize;

use super::account::{Wait, counts, courier};
use crate::consent::agreed;
use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::output::Output;
use crate::session::Session;
use crate::unit::{self, show_duration, show_money, show_time};

/// How a key is ended while the pool's controller does not say which it has.
const BY_NAME: &str =
    "name the key: `selion account revoke KEY` needs no controller, and `selion account keys` lists them";

/// Which key ends.
#[derive(Debug, clap::Args)]
pub struct Revoke {
    /// The key [default: the pool's controller's, which signs for your leases]
    #[arg(value_name = "KEY")]
    key: Option<Address>,
    /// Without asking
    #[arg(long)]
    yes: bool,
    /// Has the pool's controller send it even if the account has gas; without gas it is tried anyway
    #[arg(long)]
    relay: bool,
    #[command(flatten)]
    wait: Wait,
}

/// Which key is the renter's own.
#[derive(Debug, clap::Args)]
pub struct OwnKey {
    /// The key's address; a former own key stays claimable for the pool's thaw time
    #[arg(value_name = "KEY", value_parser = unit::payee::<Address>)]
    key: Address,
    /// It signs for use within this time from now; that end can only move out
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = unit::duration)]
    until: u64,
    /// Puts so many tokens in the vault with it
    #[arg(long, value_name = "AMOUNT", value_parser = unit::amount)]
    deposit: Option<Amount>,
    /// Without asking
    #[arg(long)]
    yes: bool,
    /// Has the pool's controller send it even if the account has gas; without gas it is tried anyway
    #[arg(long)]
    relay: bool,
    #[command(flatten)]
    wait: Wait,
}

/// What a key is to the renter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// The own session key: all of the deposit, to anybody.
    Own,
    /// A former own one.
    Former,
    /// A cap, to providers of the pool.
    Delegated,
}

/// A key that may sign, or might.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Key {
    key: Address,
    kind: Kind,
    /// Whether the pool's controller has it; absent if the controller does not answer.
    of_controller: Option<bool>,
    /// What is left of a delegated key's cap.
    cap_left: Option<Amount>,
    until_ms: TimeMs,
    /// From when its vouchers count no more, if it was revoked.
    dead_from_ms: Option<TimeMs>,
}

impl Key {
    /// The key as the vault has it; `None` if it is none of the renter's.
    fn of(key: Address, own: &AccountRecord, record: Option<KeyRecord>, delegate: Option<Address>) -> Option<Self> {
        let of_controller = delegate.map(|delegate| delegate == key);
        if own.key == key && key != Address::ZERO {
            let (kind, until_ms) = (Kind::Own, own.until);
            return Some(Self { key, kind, of_controller, cap_left: None, until_ms, dead_from_ms: None });
        }
        let KeyRecord { cap_left, until, dead_from, delegated } = record?;
        let (kind, cap_left) = if delegated { (Kind::Delegated, Some(cap_left)) } else { (Kind::Former, None) };
        Some(Self { key, kind, of_controller, cap_left, until_ms: until, dead_from_ms: dead_from })
    }

    /// Asks the vault.
    async fn ask(
        pool: &Pool,
        renter: Account,
        key: Address,
        delegate: Option<Address>,
    ) -> Result<Option<Self>, PoolError> {
        let own = pool.account(renter, BlockTag::Latest).await?;
        Ok(Self::of(key, &own, pool.key(renter, key, BlockTag::Latest).await?, delegate))
    }

    fn standing(&self, now: TimeMs) -> String {
        match self.dead_from_ms {
            Some(dead) if dead <= now => format!("dead since {}", show_time(dead)),
            Some(dead) => format!("revoked: claimable until {}", show_time(dead)),
            None if self.until_ms < now => "over: signs for no new use".to_owned(),
            None => "signs".to_owned(),
        }
    }

    fn kind(&self) -> String {
        let kind = match self.kind {
            Kind::Own => "own",
            Kind::Former => "former own",
            Kind::Delegated => "delegated",
        };
        if self.of_controller == Some(true) { format!("{kind}, the pool's controller's") } else { kind.to_owned() }
    }
}

/// Shows every key that the renter ever had or let sign.
pub async fn keys(out: Output, session: &Session) -> Done {
    let (signer, pool) = session.money().await?;
    let (renter, delegate) = (signer.account(), session.client.pool().await.ok().map(|pool| pool.delegate));
    let mut keys = Vec::new();
    for key in pool.keys_of(renter).await? {
        keys.extend(Key::ask(&pool, renter, key, delegate).await?);
    }
    out.show(&serde_json::json!({ "account": renter, "keys": keys }), |_| {
        let now = wall_clock();
        let rows = keys.iter().map(|key| {
            let cap = key.cap_left.map_or_else(|| "-".to_owned(), |cap| show_money(cap.0));
            [key.key.to_string(), key.kind(), cap, show_time(key.until_ms), key.standing(now)]
        });
        out.table(["KEY", "IS", "CAP LEFT", "FOR USE UNTIL", "STANDING"], rows.collect(), "no key ever signed for you")
    })
}

/// Ends a key.
pub async fn revoke(out: Output, session: &Session, args: Revoke) -> Done {
    let Revoke { key, yes, relay, wait } = args;
    let (signer, pool) = session.money().await?;
    // A key that is named can be ended without the controller.
    let delegate = match (session.client.pool().await, key) {
        (Ok(view), _) => Some(view.delegate),
        (Err(error), None) => return Err(Failure::from(error).suggesting(BY_NAME)),
        (Err(_), Some(_)) => None,
    };
    let Some(key) = key.or(delegate) else { return Err(no_such_key(Address::ZERO, None)) };
    let known = Key::ask(&pool, signer.account(), key, delegate).await?;
    let Some(known) = known.filter(|known| known.kind != Kind::Former && known.dead_from_ms.is_none()) else {
        return Err(no_such_key(key, known));
    };
    let thaw_s = pool.terms(BlockTag::Latest).await?.thaw_delay_s;
    let leases = if known.of_controller == Some(true) { leases(session, signer.account()).await } else { None };
    out.note(what_follows(&known, leases, thaw_s));
    agreed(out, yes, "end it?")?;
    let receipt = courier(session, &pool, &signer, relay).send(pool.revoke(key)).await?;
    let ended = Key::ask(&pool, signer.account(), key, delegate).await?;
    let dead = ended.and_then(|ended| ended.dead_from_ms).unwrap_or_default();
    let what = format!("{key} is revoked: what it signed can be claimed until {}, and never after", show_time(dead));
    let counts = if delegate.is_some() { counts(out, session, &pool, &receipt, wait).await? } else { String::new() };
    show(out, &format!("{what}\n{counts}"), &receipt, &ended)
}

/// Leases of the account that run and that wait; `None` if the controller does not say.
async fn leases(session: &Session, renter: Account) -> Option<(u64, u64)> {
    let shares = session.client.shares().await.ok()?;
    let own = shares.shares.iter().find(|share| share.account == renter);
    Some(own.map_or((0, 0), |own| (own.live, own.waiting)))
}

/// What comes of a revocation, in words.
fn what_follows(key: &Key, leases: Option<(u64, u64)>, thaw_s: u32) -> String {
    let thaw = show_duration(u64::from(thaw_s) * 1_000);
    let kept = match key.cap_left {
        Some(cap) => format!("vouchers of {} stay claimable for {thaw}, up to {} tokens", key.key, show_money(cap.0)),
        None => format!("vouchers of {} stay claimable for {thaw}", key.key),
    };
    let again = "after that it is dead; from then on it can be granted anew";
    if key.of_controller != Some(true) {
        return format!("{kept}; {again}. No lease in this pool is paid by it, unless it is the controller's");
    }
    let run = match leases {
        Some((0, 0)) => "no lease of yours runs or waits".to_owned(),
        Some((live, waiting)) => format!(
            "leases of yours that run ({live}) end with payment_required, and those that wait ({waiting}) do not begin"
        ),
        None => "leases of yours that run end with payment_required, and those that wait do not begin".to_owned(),
    };
    format!(
        "{run}. What ran until then is paid: {kept}; {again} (`selion account grant`). What nobody claims stays in your deposit"
    )
}

/// Why a key cannot be revoked.
fn no_such_key(key: Address, known: Option<Key>) -> Failure {
    let detail = match known.and_then(|known| known.dead_from_ms) {
        Some(dead) => format!("key {key} is revoked already: what it signed can be claimed until {}", show_time(dead)),
        None => format!("key {key} may not sign for this account"),
    };
    Failure::new(Exit::Conflict, "no_such_key", detail, "`selion account keys` lists those that may")
}

/// Registers an own session key, or moves its end out.
pub async fn own_key(out: Output, session: &Session, args: OwnKey) -> Done {
    let OwnKey { key, until, deposit, yes, relay, wait } = args;
    let (signer, pool) = session.money().await?;
    let (renter, until) = (signer.account(), wall_clock().plus(until));
    let own = pool.account(renter, BlockTag::Latest).await?;
    let record = pool.key(renter, key, BlockTag::Latest).await?;
    let delegate = session.client.pool().await?.delegate;
    may_be_own(key, until, &own, record, delegate)?;
    let thaw = show_duration(u64::from(pool.terms(BlockTag::Latest).await?.thaw_delay_s) * 1_000);
    let former = match own.key {
        Address::ZERO => String::new(),
        former if former == key => String::new(),
        former => format!(" {former} is your own key no more; what it signed stays claimable for {thaw}."),
    };
    out.note(format!(
        "with the pool's countersignature {key} pays anybody, and up to all of your deposit: it has no cap.{former} No lease is \
         paid by an own key: the pool's controller signs by its own key, under `selion account grant`"
    ));
    agreed(out, yes, "register it?")?;
    let amount = deposit.unwrap_or(Amount::ZERO);
    let courier = courier(session, &pool, &signer, relay);
    if amount > Amount::ZERO {
        courier.allow(pool.at.vault, amount, pool.approve_vault()).await?;
    }
    let receipt = courier.send(pool.enter(amount, key, until)).await?;
    let counts = counts(out, session, &pool, &receipt, wait).await?;
    let entered = Key::ask(&pool, renter, key, Some(delegate)).await?;
    show(out, &format!("{key} is your own key, for use until {}; {counts}", show_time(until)), &receipt, &entered)
}

/// Whether a key can become the own one, and should.
fn may_be_own(key: Address, until: TimeMs, own: &AccountRecord, record: Option<KeyRecord>, delegate: Address) -> Done {
    let refused =
        |code: &str, detail: String, suggestion: String| Err(Failure::new(Exit::Conflict, code, detail, suggestion));
    if key == delegate {
        let detail = format!("{key} is the key of the pool's controller: as your own key it would sign without a cap");
        return refused("key_of_controller", detail, "run: selion account grant CAP".to_owned());
    }
    // The contract counts in whole seconds.
    if own.key == key && until.0 / 1_000 < own.until.0 / 1_000 {
        let detail = format!("{key} may sign for use until {}, and that can only move out", show_time(own.until));
        return refused("until_falls", detail, format!("to end it sooner run: selion account revoke {key}"));
    }
    match record {
        Some(KeyRecord { delegated: true, dead_from: None, cap_left, .. }) => refused(
            "capped_key",
            format!(
                "{key} may sign for {} tokens by a grant: as your own key it would sign without a cap",
                show_money(cap_left.0)
            ),
            format!("first run: selion account revoke {key}"),
        ),
        _ => Ok(()),
    }
}

/// Whether the controller's key can be granted anything now.
pub async fn may_be_granted(pool: &Pool, signer: &Signer, delegate: Address) -> Done {
    let record = pool.key(signer.account(), delegate, BlockTag::Latest).await?;
    let dead = record.and_then(|record| record.dead_from).filter(|dead| *dead > wall_clock());
    let Some(dead) = dead else { return Ok(()) };
    let detail = format!("{delegate} was revoked, and can be granted anew from {}", show_time(dead));
    Err(Failure::new(Exit::Conflict, "key_not_dead", detail, "run this again after that"))
}

fn show(out: Output, what: &str, receipt: &Receipt, key: &Option<Key>) -> Done {
    let result = serde_json::json!({
        "transaction": receipt.tx,
        "block_number": receipt.block_number,
        "gas_used": receipt.gas_used,
        "key": key,
    });
    out.show(&result, |_| format!("{}\ntransaction {} in block {}", what.trim_end(), receipt.tx, receipt.block_number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Address = Address([1; 20]);
    const OTHER: Address = Address([2; 20]);
    const CONTROLLERS: Address = Address([3; 20]);
    const GRANTED: KeyRecord =
        KeyRecord { cap_left: Amount(5_000_000), until: TimeMs(9_000), dead_from: None, delegated: true };

    fn own(key: Address) -> AccountRecord {
        AccountRecord { key, balance: Amount(1), until: TimeMs(50_000) }
    }

    fn code(done: Done) -> String {
        done.err().map_or_else(String::new, |failure| failure.body().code.clone())
    }

    #[test]
    fn a_key_becomes_the_own_one_unless_that_would_take_a_cap_off_it_or_its_end_would_fall() {
        let asked = |key, until, record| code(may_be_own(key, TimeMs(until), &own(KEY), record, CONTROLLERS));
        assert_eq!(asked(OTHER, 1_000, None), "");
        assert_eq!(asked(KEY, 50_999, None), "", "the contract counts whole seconds");
        assert_eq!(asked(KEY, 49_999, None), "until_falls");
        assert_eq!(asked(CONTROLLERS, 90_000, None), "key_of_controller");
        assert_eq!(asked(OTHER, 90_000, Some(GRANTED)), "capped_key");
        let revoked = KeyRecord { dead_from: Some(TimeMs(1)), ..GRANTED };
        assert_eq!(asked(OTHER, 90_000, Some(revoked)), "");
        assert_eq!(asked(OTHER, 90_000, Some(KeyRecord { delegated: false, ..GRANTED })), "");
    }

    #[test]
    fn a_key_is_told_by_what_it_is_now() {
        let key = |key, record| Key::of(key, &own(KEY), record, Some(CONTROLLERS));
        assert_eq!(key(OTHER, None), None);
        assert_eq!(Key::of(Address::ZERO, &own(Address::ZERO), None, None), None, "no key is no key");
        // A former own key that returned is the own one.
        let former = KeyRecord { delegated: false, dead_from: Some(TimeMs(70)), ..GRANTED };
        assert_eq!(key(KEY, Some(former)).unwrap().kind, Kind::Own);
        assert_eq!(key(OTHER, Some(former)).unwrap().kind, Kind::Former);
        let granted = key(CONTROLLERS, Some(GRANTED)).unwrap();
        assert_eq!(
            (granted.kind().as_str(), granted.cap_left),
            ("delegated, the pool's controller's", Some(Amount(5_000_000)))
        );
        assert_eq!(granted.standing(TimeMs(9_000)), "signs");
        assert_eq!(granted.standing(TimeMs(9_001)), "over: signs for no new use");
        let dying = Key { dead_from_ms: Some(TimeMs(60_000)), ..granted };
        assert_eq!(dying.standing(TimeMs(59_999)), "revoked: claimable until 1970-01-01 00:01:00Z");
        assert_eq!(dying.standing(TimeMs(60_000)), "dead since 1970-01-01 00:01:00Z");
    }

    #[test]
    fn what_a_revocation_brings_is_said_for_leases_and_for_keys_that_pay_for_none() {
        let granted = Key::of(CONTROLLERS, &own(KEY), Some(GRANTED), Some(CONTROLLERS)).unwrap();
        let told = what_follows(&granted, Some((2, 1)), 259_200);
        for words in ["run (2) end with payment_required", "wait (1)", "for 3d, up to 5.00 tokens", "account grant"] {
            assert!(told.contains(words), "`{words}` is not in: {told}");
        }
        assert!(what_follows(&granted, None, 60).contains("leases of yours that run end with payment_required"));
        let own = Key::of(KEY, &own(KEY), None, Some(CONTROLLERS)).unwrap();
        let told = what_follows(&own, None, 60);
        assert!(told.contains("for 1m;") && told.contains("No lease in this pool is paid by it"), "{told}");
    }
}
