//! `selion offers`: what can be leased now.

use std::collections::BTreeSet;

use selion_api::rest::Offer;
use selion_api::{Rate, SliceWant};
use selion_client::OfferQuery;

use crate::failure::{Done, Failure};
use crate::output::Output;
use crate::session::Session;
use crate::slice::show_class;
use crate::unit;

/// Most names that are told where a filter matches nothing.
const MAX_NAMES: usize = 16;

/// Shows what can be leased now, and its price. FREE is how many slices of that kind there is room for on that GPU: rows of
/// one GPU exclude each other, and CPU and memory beside them are not counted.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this slice, written as for a lease: whole, share, share:PERMILLE:MEMORY, or a MIG profile such as 1g.10gb
    #[arg(long)]
    slice: Option<String>,
    /// Only GPUs of this model
    #[arg(long)]
    model: Option<String>,
    /// Only up to this price, in tokens per hour
    #[arg(long, value_name = "RATE", value_parser = unit::rate)]
    max_rate: Option<Rate>,
}

/// Lists every page.
pub async fn main(out: Output, args: Args) -> Done {
    let session = Session::open()?;
    let (kind, least) = kind_of(args.slice.as_deref())?;
    let query = OfferQuery { slice: kind, model: args.model, max_rate: args.max_rate, ..OfferQuery::default() };
    let mut offers = all(&session, query.clone()).await?;
    if let Some((permille, mem_bytes)) = least {
        offers.retain(|offer| offer.available >= permille && offer.mem_bytes >= mem_bytes);
    }
    let filtered = query != OfferQuery::default();
    let anyhow = if offers.is_empty() && filtered { all(&session, OfferQuery::default()).await? } else { Vec::new() };
    let asked = Asked { slice: args.slice, model: query.model, max_rate: args.max_rate };
    out.show(&serde_json::json!({ "offers": offers }), |_| table(out, &offers, &asked.unmatched(&anyhow)))
}

/// Least compute in permille, and least memory in bytes.
type Least = (u64, u64);

/// The kind of slice that is asked for, and for a share of a size the least of it.
fn kind_of(slice: Option<&str>) -> Done<(Option<String>, Option<Least>)> {
    let Some(text) = slice else {
        return Ok((None, None));
    };
    if !text.starts_with("share:") {
        return Ok((Some(text.to_owned()), None));
    }
    match crate::slice::slice(text) {
        Ok(SliceWant::Share { compute_permille, mem_bytes }) => {
            Ok((Some("share".to_owned()), Some((compute_permille.into(), mem_bytes))))
        }
        _ => Err(Failure::usage(
            format!("`{text}` is not a slice"),
            "write share:PERMILLE:MEMORY, such as share:250:4GiB",
        )),
    }
}

async fn all(session: &Session, query: OfferQuery) -> Done<Vec<Offer>> {
    let mut query = OfferQuery { page_size: Some(500), ..query };
    let mut offers = Vec::new();
    loop {
        let page = session.client.offers(&query).await?;
        offers.extend(page.offers);
        match page.next_page_token {
            Some(token) => query.page_token = Some(token),
            None => return Ok(offers),
        }
    }
}

/// The filters, as they were written.
struct Asked {
    slice: Option<String>,
    model: Option<String>,
    max_rate: Option<Rate>,
}

impl Asked {
    /// Which filter matches nothing of what is on offer, and what there is; of several that only together match nothing,
    /// all are named.
    fn unmatched(&self, anyhow: &[Offer]) -> String {
        const NONE: &str = "nothing is on offer; `selion node list` shows the nodes, and why they cannot be leased";
        if anyhow.is_empty() {
            return NONE.to_owned();
        }
        let names = |of: fn(&Offer) -> String| -> String {
            let names: BTreeSet<String> = anyhow.iter().map(of).collect();
            names.into_iter().take(MAX_NAMES).collect::<Vec<_>>().join(", ")
        };
        let kind = self.slice.as_deref().map(|text| text.split(':').next().unwrap_or(text));
        if let Some(kind) = kind.filter(|kind| anyhow.iter().all(|offer| offer.slice != *kind)) {
            return format!("no slice `{kind}` is free; there are: {}", names(|offer| offer.slice.clone()));
        }
        if let Some(model) = self.model.as_deref().filter(|model| anyhow.iter().all(|offer| offer.model != *model)) {
            return format!("no GPU of model `{model}` is free; there are: {}", names(|offer| offer.model.clone()));
        }
        let least = anyhow.iter().map(|offer| offer.rate).min();
        if let Some((least, max)) = least.zip(self.max_rate).filter(|(least, max)| least > max) {
            let (least, max) = (unit::show_money(least.0), unit::show_money(max.0));
            return format!("nothing is free at {max} an hour or less; the lowest price is {least}");
        }
        format!("nothing matches all filters together; without them there are {} offers", anyhow.len())
    }
}

fn table(out: Output, offers: &[Offer], empty: &str) -> String {
    let rows = offers.iter().map(|offer| {
        let is_share = offer.slice == "share";
        let free = if is_share { format!("{}‰", offer.available) } else { offer.available.to_string() };
        [
            offer.slice.clone(),
            offer.model.clone(),
            show_class(offer.class).to_owned(),
            unit::show_size(offer.mem_bytes),
            free,
            unit::show_money(offer.rate.0),
            offer.node.to_string(),
        ]
    });
    out.table(["SLICE", "MODEL", "CLASS", "MEMORY", "FREE", "PER HOUR", "NODE"], rows.collect(), empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use selion_api::slice::IsolationClass;
    use selion_api::{Account, GpuId, NodeId};

    fn offer(slice: &str, model: &str, rate: u64) -> Offer {
        Offer {
            node: NodeId::ZERO,
            provider: Account::ZERO,
            gpu: GpuId([0; 16]),
            model: model.to_owned(),
            slice: slice.to_owned(),
            class: IsolationClass::Whole,
            rate: Rate(rate),
            mem_bytes: 1 << 30,
            available: 1,
            region: String::new(),
        }
    }

    #[test]
    fn a_filter_that_matches_nothing_is_named_with_what_there_is() {
        let there = [offer("whole", "A100 80GB", 900_000), offer("1g.10gb", "A100 80GB", 100_000)];
        let said = |slice: Option<&str>, model: Option<&str>, max_rate: Option<u64>| {
            let (slice, model) = (slice.map(str::to_owned), model.map(str::to_owned));
            Asked { slice, model, max_rate: max_rate.map(Rate) }.unmatched(&there)
        };
        assert_eq!(said(Some("foo"), None, None), "no slice `foo` is free; there are: 1g.10gb, whole");
        assert_eq!(said(Some("share:250:4GiB"), None, None), "no slice `share` is free; there are: 1g.10gb, whole");
        assert!(said(None, Some("H100"), None).ends_with("there are: A100 80GB"));
        assert!(said(None, None, Some(50_000)).contains("the lowest price is 0.10"));
        assert!(said(Some("whole"), Some("A100 80GB"), Some(100_000)).contains("2 offers"));
        assert!(Asked { slice: None, model: None, max_rate: None }.unmatched(&[]).contains("node list"));
    }

    #[test]
    fn a_share_of_a_size_is_asked_for_as_it_is_for_a_lease() {
        assert_eq!(kind_of(Some("share:250:4GiB")).unwrap(), (Some("share".to_owned()), Some((250, 4 << 30))));
        assert_eq!(kind_of(Some("share")).unwrap(), (Some("share".to_owned()), None));
        assert!(kind_of(Some("share:x")).is_err());
    }
}
