//! `selion offers`: what can be leased now.

use selion_api::Rate;
use selion_api::rest::Offer;
use selion_client::OfferQuery;

use crate::failure::Done;
use crate::output::Output;
use crate::session::Session;
use crate::slice::show_class;
use crate::unit;

/// Shows what can be leased now, and its price.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this slice: whole, share, or a MIG profile such as 1g.10gb
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
    let mut query = OfferQuery {
        slice: args.slice,
        model: args.model,
        max_rate: args.max_rate,
        page_size: Some(500),
        page_token: None,
    };
    let mut offers = Vec::new();
    loop {
        let page = session.client.offers(&query).await?;
        offers.extend(page.offers);
        match page.next_page_token {
            Some(token) => query.page_token = Some(token),
            None => break,
        }
    }
    out.show(&serde_json::json!({ "offers": offers }), |_| table(out, &offers))
}

fn table(out: Output, offers: &[Offer]) -> String {
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
    out.table(
        ["SLICE", "MODEL", "CLASS", "MEMORY", "FREE", "PER HOUR", "NODE"],
        rows.collect(),
        "nothing is on offer; `selion node list` shows the nodes, and why they cannot be leased",
    )
}
