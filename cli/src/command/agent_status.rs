//! `selion agent status`: what the running agent of a state directory is at.

use selion_agent::runtime::sandbox_name;
use selion_agent::status::{
    Gauge, InForce, LinkStatus, MemberStatus, Status as Said, StatusError, Use, ask, last_events,
};
use selion_api::TimeMs;

use super::agent::Place;
use super::agent_cards;
use crate::exit::Exit;
use crate::failure::{Done, Failure, chain};
use crate::output::{Output, printable};
use crate::unit::{show_elapsed, show_money, show_size, show_when};

/// Events that are shown where no agent runs.
const EVENTS: usize = 10;

/// Whose.
#[derive(Debug, clap::Args)]
pub struct Status {
    #[command(flatten)]
    place: Place,
    /// As JSON: the same as --output json
    #[arg(long)]
    pub json: bool,
}

/// Runs it.
pub async fn main(out: Output, status: Status) -> Done {
    let dir = status.place.config()?.state_dir;
    match ask(&dir).await? {
        Some(said) => out.show(&said, |said| text(out, said)),
        None => {
            for event in last_events(&dir, EVENTS) {
                out.note(printable(&event));
            }
            let why = format!("no agent runs on {}", dir.display());
            let next = "start one by `selion agent up` or `systemctl start selion-agent`; its lines are in \
                        `journalctl -u selion-agent`; name another folder with --state-dir";
            Err(Failure::new(Exit::Failure, "no_agent", why, next))
        }
    }
}

fn text(out: Output, said: &Said) -> String {
    let spec = &said.spec;
    let features: Vec<&str> = spec.features.iter().map(|feature| feature.code()).collect();
    let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
    [
        format!("agent       {}, pid {}, up since {}", said.version, said.pid, show_when(said.since_ms, said.at_ms)),
        format!("node        {} of provider {}", spec.node, spec.provider),
        format!("controller  {}", printable(&said.controller)),
        format!("link        {}", link(&said.link, said.at_ms)),
        format!("sandbox     {}; features: {features}", sandbox_name(spec.sandbox)),
        format!("cards       {}", printable(&agent_cards::sentence(&said.cards))),
        String::new(),
        cards(out, said),
        String::new(),
        members(out, said),
        String::new(),
        money(said),
    ]
    .join("\n")
}

fn link(link: &LinkStatus, now: TimeMs) -> String {
    let since = show_when(link.since_ms, now);
    if link.linked {
        return format!("up since {since}");
    }
    let refused = link.refused.map_or_else(String::new, |reason| format!(" ({reason}: {})", reason.text()));
    let why = link.why.as_deref().unwrap_or("not up yet");
    format!("DOWN since {since}: {}{refused}", printable(why))
}

fn cards(out: Output, said: &Said) -> String {
    let rows = said.spec.gpus.iter().map(|gpu| {
        let found =
            said.readings.iter().find(|(id, _)| *id == gpu.gpu).map(|(_, reading)| *reading).unwrap_or_default();
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let note = if gpu.simulated { "simulated" } else { "" };
        [
            gpu.gpu.to_string(),
            gpu.model.clone(),
            or_none(gpu.whole.map(|rate| show_money(rate.0))),
            or_none(found.temperature_c.map(|celsius| format!("{celsius} C"))),
            or_none(found.busy_percent.map(|percent| format!("{percent} %"))),
            or_none(found.mem_used_bytes.map(|used| format!("{} of {}", show_size(used), show_size(gpu.mem_bytes)))),
            or_none(found.power_mw.map(|power| format!("{} W", power / 1_000))),
            note.to_owned(),
        ]
    });
    out.table(["GPU", "MODEL", "ASK", "TEMPERATURE", "BUSY", "MEMORY", "POWER", ""], rows.collect(), "no card on offer")
}

fn members(out: Output, said: &Said) -> String {
    let rows = said.members.iter().map(|member| {
        let uses = member.uses.unwrap_or_default();
        let MemberStatus { limits, .. } = member;
        [
            format!("{} member {}", member.member.lease, member.member.member),
            format!("{} for {}", member.phase, show_elapsed(said.at_ms.since(member.since_ms))),
            member.slot.clone(),
            cpu(&uses, limits),
            of(uses.memory_bytes, limits.memory_bytes.map(show_size), show_size),
            of(uses.disk_bytes, limits.disk_bytes.map(show_size), show_size),
            of(uses.pids, limits.pids.map(|most| most.to_string()), |pids| pids.to_string()),
            network(&uses, limits),
            show_elapsed(member.metered_ms),
        ]
    });
    let head = ["LEASE", "PHASE", "SLOT", "CPU", "MEMORY", "DISK", "PROCESSES", "NETWORK", "METERED"];
    out.table(head, rows.collect(), "nothing is leased here")
}

/// `now (peak PEAK) of LIMIT`; a limit that nothing holds is said so.
fn of(gauge: Option<Gauge>, limit: Option<String>, show: impl Fn(u64) -> String) -> String {
    let limit = limit.map_or_else(|| "no limit".to_owned(), |limit| format!("of {limit}"));
    match gauge {
        Some(gauge) => format!("{} (peak {}) {limit}", show(gauge.now), show(gauge.peak)),
        None => format!("- {limit}"),
    }
}

fn cpu(uses: &Use, limits: &InForce) -> String {
    let cores = |milli: u64| format!("{}.{:03}", milli / 1_000, milli % 1_000);
    of(uses.cpu_milli, limits.cpu_milli.map(|milli| cores(milli.into())), cores)
}

fn network(uses: &Use, limits: &InForce) -> String {
    let limit = limits.net_mbps.map(|mbps| format!("{mbps} Mbit/s"));
    let way = |word: &str, rate: Option<Gauge>, bytes: Option<u64>| {
        let rate = rate.unwrap_or_default();
        let [now, peak] = [rate.now, rate.peak].map(|rate| format!("{}/s", show_size(rate)));
        bytes.map(|bytes| format!("{word} {} in all, {now} (peak {peak})", show_size(bytes)))
    };
    let ways = [way("out", uses.sent_rate, uses.sent_bytes), way("in", uses.received_rate, uses.received_bytes)];
    let ways: Vec<String> = ways.into_iter().flatten().collect();
    if ways.is_empty() {
        return "-".into();
    }
    let limit = limit.map_or_else(|| "no limit".to_owned(), |limit| format!("of {limit}"));
    format!("{}; {limit}", ways.join(", "))
}

fn money(said: &Said) -> String {
    let earnings = &said.earnings;
    let held = format!(
        "vouchers    {} held, which promise {} tokens in all; {} of use here is not covered by one yet",
        earnings.vouchers,
        show_money(earnings.promised.0),
        show_money(earnings.unsigned.0)
    );
    let claimed = match &earnings.claimed {
        Some(on_chain) => format!(
            "claimed     {} tokens and {} of fee; {} of it taken out",
            show_money(on_chain.earned.0),
            show_money(on_chain.fee.0),
            show_money(on_chain.paid_out.0)
        ),
        None => "claimed     not known: the agent's chain node did not answer, or it was never linked".to_owned(),
    };
    format!("{held}\n{claimed}")
}

impl From<StatusError> for Failure {
    fn from(error: StatusError) -> Self {
        Self::new(Exit::Failure, "status", chain(&error), "run this as the agent's own user")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_is_shown_beside_its_peak_and_the_limit_that_holds() {
        let gauge = Some(Gauge { now: 1 << 20, peak: 2 << 20 });
        assert_eq!(of(gauge, Some("4MiB".into()), show_size), "1MiB (peak 2MiB) of 4MiB");
        assert_eq!(of(gauge, None, show_size), "1MiB (peak 2MiB) no limit");
        assert_eq!(of(None, Some("4MiB".into()), show_size), "- of 4MiB");
        let uses = Use { cpu_milli: Some(Gauge { now: 250, peak: 1_500 }), ..Use::default() };
        let limits = InForce { cpu_milli: Some(2_000), ..InForce::default() };
        assert_eq!(cpu(&uses, &limits), "0.250 (peak 1.500) of 2.000");
        assert_eq!(network(&uses, &limits), "-");
    }

    #[test]
    fn a_link_that_is_down_says_why_and_cannot_move_the_cursor() {
        let down = LinkStatus {
            linked: false,
            since_ms: TimeMs(0),
            why: Some("no\u{1b}[2J\nanswer".into()),
            refused: Some(selion_api::Reason::UnknownNode),
        };
        let said = link(&down, TimeMs(1_000));
        assert!(said.starts_with("DOWN since 1970") && said.contains("unknown_node"), "{said}");
        assert!(!said.contains(['\u{1b}', '\n']), "{said:?}");
    }
}
