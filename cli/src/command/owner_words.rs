//! What an owner is told: before an act, after it, and of what stands in its way.

use selion_agent::{Act, Holdings, Obstacle, OwnerError};
use selion_api::{Amount, NodeId};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::unit::{show_duration, show_money, show_time};

fn tokens(amount: Amount) -> String {
    format!("{} tokens", show_money(amount.0))
}

/// Who is paid; the owner, where nobody was named.
fn payee(has: &Holdings) -> String {
    has.payee.map_or_else(|| has.provider.to_string(), |payee| payee.to_string())
}

fn node(has: &Holdings) -> String {
    has.node.map_or_else(|| "the node".to_owned(), |held| format!("node {}", held.node))
}

/// What becomes of leases on a node that takes no new ones.
fn running(leased: Option<usize>) -> String {
    match leased {
        Some(0) => "nothing is leased on it".to_owned(),
        Some(1) => "1 slot of it is leased, and runs on and is paid while its agent runs".to_owned(),
        Some(slots) => format!("{slots} slots of it are leased, and run on and are paid while its agent runs"),
        None => "leases on it run on and are paid while its agent runs".to_owned(),
    }
}

/// What an act will do. `leased`: slots of the node, if that is known.
pub fn before(act: Act, has: &Holdings, leased: Option<usize>) -> String {
    match act {
        Act::CloseOffer => format!(
            "{} goes off offer: no new leases; {}. `selion agent up` offers it again",
            node(has),
            running(leased)
        ),
        Act::Retire => format!(
            "{} is unbound from {}, and its offer closed: no new leases; {}. `selion agent up` binds and offers it again",
            node(has),
            has.provider,
            running(leased)
        ),
        Act::Unbond(amount) => {
            let time = show_duration(u64::from(has.unbond_s) * 1_000);
            let more = match has.unbonding {
                Amount::ZERO => String::new(),
                before => format!("; {} on their way back already wait as long again", tokens(before)),
            };
            let all = if amount == has.stake { "; without stake no node of yours takes leases" } else { "" };
            let asked = tokens(amount);
            format!("{asked} of stake come free in {time}, and stay at stake until they are taken{more}{all}")
        }
        Act::WithdrawStake => format!("{} of stake go to {}", tokens(has.unbonding), payee(has)),
        Act::CashOut => format!("{} of earnings go to {}", tokens(has.unpaid()), payee(has)),
        Act::SetPayout(to) => format!(
            "earnings and stake of {} go to {to} from then on, and only {to} can name another account; what is paid to a wrong \
             address is lost",
            has.provider
        ),
    }
}

/// What an act did.
pub fn after(act: Act, had: &Holdings, has: &Holdings) -> String {
    match act {
        Act::CloseOffer => format!("{} is off offer", node(has)),
        Act::Retire => format!("{} is bound to nobody", node(has)),
        Act::Unbond(_) => {
            let (amount, when) = (tokens(has.unbonding), show_time(has.ready_ms));
            format!("{amount} of stake come free at {when}; then run: selion agent withdraw-stake")
        }
        Act::WithdrawStake => format!("{} of stake paid to {}", tokens(had.unbonding), payee(had)),
        Act::CashOut => format!("{} of earnings paid to {}", tokens(had.unpaid()), payee(had)),
        Act::SetPayout(_) => format!("{} is paid for {}", payee(has), has.provider),
    }
}

/// What is left to do, or to wait for, on the way out.
pub fn left(has: &Holdings, dir: &str) -> String {
    let mut lines = Vec::new();
    if has.unbonding > Amount::ZERO {
        let (amount, when) = (tokens(has.unbonding), show_time(has.ready_ms));
        lines.push(format!(
            "{amount} of stake come free at {when}, and stay at stake until they are taken: run `selion agent leave` again then"
        ));
    }
    if has.stake > Amount::ZERO {
        let others = names(&has.others);
        lines.push(format!(
            "{} of stake stay: other nodes of yours are on offer{others}; run `selion agent leave` with the --state-dir of each",
            tokens(has.stake)
        ));
    }
    if has.unpaid() > Amount::ZERO {
        let amount = tokens(has.unpaid());
        lines.push(format!(
            "{amount} of earnings wait in the vault: taken with the stake, or now by `selion agent cash-out`"
        ));
    }
    if has.unclaimed > Amount::ZERO {
        lines.push(format!(
            "{}, before the operator's fee, are in vouchers of {dir} that nobody has claimed: the pool's controller claims them \
             by itself, or you do by `selion agent claim`; then `selion agent cash-out`",
            tokens(has.unclaimed)
        ));
    }
    if lines.is_empty() {
        lines.push(format!("nothing of {} is left in the pool; earned in all: {}", has.provider, tokens(has.earned)));
    }
    lines.join("\n")
}

/// Where a way out has no step now.
pub fn nothing_to_do(has: &Holdings, dir: &str) -> String {
    format!("nothing to do now\n{}", left(has, dir))
}

fn names(nodes: &[NodeId]) -> String {
    let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
}

/// All that an owner has.
pub fn table(out: Output, has: &Holdings) -> String {
    let money = |amount: Amount| show_money(amount.0);
    let back = match has.unbonding {
        Amount::ZERO => money(Amount::ZERO),
        amount => format!("{}, to be taken from {}", money(amount), show_time(has.ready_ms)),
    };
    let node = has.node.map_or_else(
        || "none in the state directory".to_owned(),
        |held| {
            let whose = match held.provider {
                Some(owner) if owner == has.provider => "yours".to_owned(),
                Some(owner) => format!("bound to {owner}"),
                None => "bound to nobody".to_owned(),
            };
            let offer = if held.on_offer { "on offer" } else { "not on offer" };
            format!("{}, {whose}, {offer}", held.node)
        },
    );
    let paid = has.payee.map_or_else(|| "nobody: not registered".to_owned(), |payee| payee.to_string());
    let row = |name: &str, value: String| [name.to_owned(), value];
    let rows = vec![
        row("account", has.provider.to_string()),
        row("is paid", paid),
        row("stake", format!("{}, the pool's least is {}", money(has.stake), money(has.min_stake))),
        row("stake on its way back", back),
        row("node", node),
        row("offers of all your nodes", has.offers.to_string()),
        row("earned", money(has.earned)),
        row("operator's fee beside it", money(has.fee)),
        row("paid out", money(has.paid_out)),
        row("to be cashed out", money(has.unpaid())),
        row("in vouchers that nobody claimed", money(has.unclaimed)),
    ];
    out.table(["OWNER", ""], rows, "")
}

/// Code of an obstacle, and what to do.
fn remedy(obstacle: &Obstacle) -> (&'static str, String) {
    let known = "`selion agent show` has the amounts";
    match obstacle {
        Obstacle::NoNode => ("no_node", "name it by --node, or the agent's own folder by --state-dir".to_owned()),
        Obstacle::NotBound { owner: Some(owner), .. } => ("not_bound", format!("use the key of {owner}")),
        Obstacle::NotBound { owner: None, .. } => ("not_bound", "there is nothing to unbind".to_owned()),
        Obstacle::NoOffer { .. } => ("no_offer", "there is nothing to close".to_owned()),
        Obstacle::OffersStand { nodes, .. } => {
            let close = |node: &NodeId| format!("selion agent close-offer --node {node}");
            let first: Vec<String> = nodes.iter().map(close).collect();
            let first = if first.is_empty() { "selion agent close-offer".to_owned() } else { first.join("; ") };
            ("offers_stand", format!("first run: {first}"))
        }
        Obstacle::LeavesTooLittle { least, .. } => {
            ("stake_too_low", format!("leave {} or more, or take all: selion agent unbond", tokens(*least)))
        }
        Obstacle::StakeTooLow { .. } => ("stake_too_low", format!("ask for less; {known}")),
        Obstacle::NoStake { .. } => ("no_stake", known.to_owned()),
        Obstacle::NothingUnbonds { stake: Amount::ZERO } => ("nothing_unbonds", known.to_owned()),
        Obstacle::NothingUnbonds { .. } => ("nothing_unbonds", "first run: selion agent unbond".to_owned()),
        Obstacle::NotReady { .. } => ("still_unbonding", "run this again after that".to_owned()),
        Obstacle::NothingDue { .. } => {
            ("nothing_due", "wait until vouchers are claimed, or run: selion agent claim".into())
        }
        Obstacle::NotRegistered { .. } => ("not_registered", "check --pool and --state-dir".to_owned()),
        Obstacle::SamePayee { .. } => ("same_payee", "there is nothing to do".to_owned()),
        Obstacle::NotPayee { payee, .. } => (
            "not_payee",
            format!(
                "name the key of {payee} by --key-file, or call `setPayout` of the Controller contract from its wallet"
            ),
        ),
        Obstacle::KeyElsewhere { provider, .. } => (
            "key_elsewhere",
            format!("do it with the wallet of {provider}, or name the folder with its provider.key by --state-dir"),
        ),
    }
}

impl From<Obstacle> for Failure {
    fn from(obstacle: Obstacle) -> Self {
        let (code, suggestion) = remedy(&obstacle);
        let exit = if obstacle == Obstacle::NoNode { Exit::Usage } else { Exit::Conflict };
        match obstacle {
            Obstacle::NotReady { amount, ready } => {
                let detail = format!("{} of stake come free at {}", tokens(amount), show_time(ready));
                Self::new(exit, code, detail, suggestion)
            }
            other => Self::new(exit, code, other, suggestion),
        }
    }
}

impl From<OwnerError> for Failure {
    fn from(error: OwnerError) -> Self {
        match error {
            OwnerError::Obstacle(obstacle) => obstacle.into(),
            OwnerError::Join(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use selion_agent::Held;
    use selion_api::{Account, Address, TimeMs};

    use super::*;

    const NODE: NodeId = NodeId([2; 20]);
    const OWNER: Account = Account([1; 20]);

    fn has() -> Holdings {
        Holdings {
            provider: OWNER,
            payee: Some(Address([7; 20])),
            stake: Amount(3_000_000),
            min_stake: Amount(1_000_000),
            unbond_s: 604_800,
            node: Some(Held { node: NODE, provider: Some(OWNER), on_offer: true }),
            ..Holdings::default()
        }
    }

    #[test]
    fn who_unbonds_is_told_when_it_comes_free_what_waits_again_and_what_ends() {
        let part = before(Act::Unbond(Amount(1_000_000)), &has(), Some(0));
        assert_eq!(part, "1.00 tokens of stake come free in 7d, and stay at stake until they are taken");
        let more = Holdings { unbonding: Amount(500_000), ..has() };
        let told = before(Act::Unbond(Amount(3_000_000)), &more, Some(0));
        assert!(told.contains("0.50 tokens on their way back already wait as long again"), "{told}");
        assert!(told.ends_with("without stake no node of yours takes leases"), "{told}");
    }

    #[test]
    fn leases_under_a_node_that_goes_are_said_to_run_on_as_many_as_are_known() {
        for (leased, words) in
            [(Some(0), "nothing is leased"), (Some(1), "1 slot"), (Some(4), "4 slots"), (None, "leases on it")]
        {
            for act in [Act::CloseOffer, Act::Retire] {
                let told = before(act, &has(), leased);
                assert!(told.contains(words), "{told}");
                assert_eq!(told.contains("paid while its agent runs"), leased != Some(0), "{told}");
            }
        }
    }

    #[test]
    fn what_is_left_is_told_with_its_time_and_its_command_and_in_the_end_nothing_is() {
        let out =
            Holdings { stake: Amount(0), node: None, earned: Amount(9_000_000), paid_out: Amount(9_000_000), ..has() };
        assert_eq!(left(&out, "d"), format!("nothing of {OWNER} is left in the pool; earned in all: 9.00 tokens"));
        let waits = Holdings { unbonding: Amount(3_000_000), ready_ms: TimeMs(951_782_400_000), ..out.clone() };
        assert!(left(&waits, "d").contains("come free at 2000-02-29 00:00:00Z"));
        assert!(left(&waits, "d").contains("`selion agent leave` again then"));
        let owed = Holdings { unclaimed: Amount(10), paid_out: Amount(8_000_000), ..out };
        let told = left(&owed, "d");
        assert!(told.contains("1.00 tokens of earnings wait") && told.contains("0.00001 tokens, before"), "{told}");
        assert!(told.contains("vouchers of d that nobody") && told.contains("`selion agent claim`"), "{told}");
        let other = Holdings { others: vec![NODE], ..has() };
        assert!(left(&other, "d").contains(&format!("other nodes of yours are on offer ({NODE})")));
    }

    #[test]
    fn an_obstacle_of_time_is_told_as_a_date_and_one_of_offers_with_a_command_for_each() {
        let early = Failure::from(Obstacle::NotReady { amount: Amount(1_000_000), ready: TimeMs(951_782_400_000) });
        assert_eq!(early.body().detail, "1.00 tokens of stake come free at 2000-02-29 00:00:00Z");
        assert_eq!((early.body().exit, early.body().code.as_str()), (5, "still_unbonding"));
        let other = NodeId([3; 20]);
        let offers = Failure::from(Obstacle::OffersStand { count: 2, nodes: vec![NODE, other] });
        let each =
            format!("first run: selion agent close-offer --node {NODE}; selion agent close-offer --node {other}");
        assert_eq!(offers.body().suggestion, each);
        assert!(offers.body().detail.starts_with("2 nodes ("), "{}", offers.body().detail);
        let unknown = Failure::from(Obstacle::OffersStand { count: 1, nodes: vec![] });
        assert!(unknown.body().detail.starts_with("1 node is on offer"), "{}", unknown.body().detail);
    }
}
