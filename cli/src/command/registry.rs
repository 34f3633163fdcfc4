//! `selion registry`: what the log knows of the chain.

use crate::failure::Done;
use crate::output::Output;
use crate::session::Session;
use crate::unit::{show_money, show_time};

/// Shows components and providers, as of the last final block in the log.
pub async fn main(out: Output) -> Done {
    let view = Session::open()?.client.registry().await?;
    out.show(&view, |view| {
        let newest =
            view.unconfirmed_block.map(|block| format!("; block {block} is seen, not final")).unwrap_or_default();
        let components = view.components.iter().map(|component| {
            let kind = format!("{:?}", component.kind).to_lowercase();
            [kind, component.endpoint.clone(), component.owner.to_string(), show_time(component.until_ms)]
        });
        let providers = view.providers.iter().map(|provider| {
            let nodes: Vec<String> = provider.nodes.iter().map(ToString::to_string).collect();
            [provider.provider.to_string(), show_money(provider.stake.0), nodes.join(" ")]
        });
        format!(
            "as of block {} {}{newest}\n\n{}\n\n{}",
            view.block_number,
            view.block_hash,
            out.table(["COMPONENT", "ENDPOINT", "OWNER", "UNTIL"], components.collect(), "no components"),
            out.table(["PROVIDER", "STAKE", "NODES"], providers.collect(), "no providers"),
        )
    })
}
