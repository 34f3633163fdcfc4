//! Quotes for people, and what stands in the way of a lease.

use selion_api::blocking::{Blocking, Constraint};
use selion_api::rest::{Quote, QuotedPlace, QuotedPrice, StagedView};

use crate::output::{Output, nearest};
use crate::slice::{show_class, show_gpus, show_places};
use crate::unit::{show_money, show_time};

/// What a request would get.
pub fn quote(out: Output, quote: &Quote) -> String {
    match quote {
        Quote::Start { price, places } => {
            format!("would start at once, for {}\n{}", cost(price), self::places(out, places))
        }
        Quote::Wait { price, position, reason, nearest: near, starts_ms, blocking } => {
            let why = reason.text().trim_end_matches('.');
            let mut text = format!("would wait at position {position}: {why} ({reason})\n");
            if let Some(near) = near {
                text.push_str(&format!("nearest: {}\n", nearest(near)));
            }
            if let Some(at) = starts_ms {
                text.push_str(&format!("expected to start by {}\n", show_time(*at)));
            }
            if let Some(blocking) = blocking {
                text.push_str(&format!("{}\n", self::blocking(blocking)));
            }
            text.push_str(&format!("costs at least {}", cost(price)));
            text
        }
    }
}

fn cost(price: &QuotedPrice) -> String {
    format!(
        "{} tokens in all, {} an hour; {} of it the operator's; {} are reserved until it ends",
        show_money(price.total.0),
        show_money(price.hourly.0),
        show_money(price.operator_fee.0),
        show_money(price.reserve.0)
    )
}

fn places(out: Output, places: &[QuotedPlace]) -> String {
    let rows = places.iter().map(|place| {
        let effect = &place.fragmentation;
        let charged = match effect.charged {
            true => format!("{} charged", show_money(place.surcharge.0)),
            false => "not charged".to_owned(),
        };
        [
            place.rank.to_string(),
            format!("{} ({})", show_places(place.gpus.len(), &place.slot), show_class(place.class)),
            show_money(place.rate.0),
            format!("{}/{}", effect.destroys, effect.of),
            format!("{} ({charged})", show_money(effect.shadow_rate.0)),
            staged(place.datasets),
            show_gpus(&place.gpus),
            place.node.to_string(),
        ]
    });
    out.table(["MEMBER", "SLICE", "PER HOUR", "DESTROYS", "SHADOW PRICE", "DATA", "GPU", "NODE"], rows.collect(), "")
}

/// How many datasets are there already, of how many; nothing if none are asked for.
pub fn staged(datasets: StagedView) -> String {
    if datasets.of == 0 { String::new() } else { format!("{}/{} there", datasets.staged, datasets.of) }
}

/// What of a request stands in its way.
pub fn blocking(blocking: &Blocking) -> String {
    if blocking.constraints.is_empty() {
        return "there is room for it as it is: it waits for something else".to_owned();
    }
    let words: Vec<&str> = blocking.constraints.iter().copied().map(constraint).collect();
    let what = words.join(" and ");
    match blocking.now {
        true => format!("in the way: {what}; without that it would fit now"),
        false => format!("in the way: {what}; as it is it fits nowhere even when nothing is leased"),
    }
}

fn constraint(constraint: Constraint) -> &'static str {
    match constraint {
        Constraint::MaxRate => "its price limit (--max-rate)",
        Constraint::Classes => "its isolation classes (--class)",
        Constraint::Needs => "what the boxes of its nodes have to give and hold (--enforced, --image, --root)",
        Constraint::Models => "the models (--model)",
        Constraint::Node => "the node it is pinned to (--node)",
        Constraint::Gpu => "the GPU it is pinned to (--gpu)",
        Constraint::Regions => "the regions (--region)",
        Constraint::NearData => "that its data is there already (--near-data)",
        Constraint::MaxLatency => "how near its nodes are to each other (--max-latency)",
        Constraint::Within => "that its nodes belong together (--within)",
        Constraint::MinNodes => "the number of nodes (--min-nodes)",
        Constraint::Cpu => "its CPU (--cpu)",
        Constraint::Ram => "its memory (--ram)",
        Constraint::Disk => "its disk (--disk)",
        Constraint::Net => "its network bandwidth (--net)",
        Constraint::Slice => "the slice (--slice)",
        Constraint::Gpus => "how many GPUs it wants on one node (--gpus)",
        Constraint::Licence => "its licence, of which no seat is free (--licence)",
        Constraint::Room => "what other leases hold or have booked",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_the_way_is_told_with_the_flag_that_changes_it() {
        let both = Blocking { now: true, constraints: vec![Constraint::MaxRate, Constraint::Room] };
        let text = blocking(&both);
        assert!(text.contains("--max-rate") && text.contains("other leases") && text.contains("fit now"), "{text}");
        let never = blocking(&Blocking { now: false, constraints: vec![Constraint::Models] });
        let near = blocking(&Blocking { now: true, constraints: vec![Constraint::NearData] });
        assert!(near.contains("--near-data"), "{near}");
        assert_eq!(staged(StagedView { staged: 1, of: 2 }), "1/2 there");
        assert!(never.contains("--model") && never.contains("nowhere"), "{never}");
        let free = blocking(&Blocking { now: true, constraints: Vec::new() });
        assert!(free.contains("something else"), "{free}");
    }
}
