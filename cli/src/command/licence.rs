//! `selion licence`: seats of issuers' products.

use selion_api::Account;
use selion_api::licence::Licence;
use selion_api::rest::LicenceView;
use selion_client::PageQuery;
use selion_controller::wall_clock;

use super::onchain::Act;
use crate::failure::{Done, Failure};
use crate::output::Output;
use crate::session::Session;
use crate::unit::{self, show_time};

/// Shows licences with seats.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Those that the account holds or issued, and how many of their seats are taken
    List,
    /// Lets an account use a product of the caller's, on chain
    Set(Set),
}

/// What for whom.
#[derive(Debug, clap::Args)]
pub struct Set {
    /// The caller's account, and its product
    #[arg(value_name = "ISSUER/PRODUCT")]
    licence: Licence,
    /// Who may use it
    #[arg(long, value_name = "ACCOUNT")]
    holder: Account,
    /// Processes at once; 0 takes the licence back
    #[arg(long, value_name = "N")]
    seats: u32,
    /// No process begins after that time from now
    #[arg(long = "for", value_name = "TIME", default_value = "30d", value_parser = unit::duration)]
    term_ms: u64,
    #[command(flatten)]
    act: Act,
}

/// Runs the sub-command.
pub async fn main(out: Output, command: Command) -> Done {
    match command {
        Command::List => list(out).await,
        Command::Set(set) => set_licence(out, set).await,
    }
}

async fn set_licence(out: Output, set: Set) -> Done {
    let Set { licence, holder, seats, term_ms, act } = set;
    let signer = act.signer()?.account();
    if signer != licence.issuer {
        let detail = format!("{licence} is a product of {}, the key is that of {signer}", licence.issuer);
        return Err(Failure::usage(detail, "an issuer licenses what is its own: name its key, or another issuer"));
    }
    let until = wall_clock().plus(term_ms);
    let (_, tx) = act.send(|pool, _| vec![pool.set_licence(holder, licence.product, seats, until)]).await?;
    out.show(&serde_json::json!({ "tx": tx, "until_ms": until }), |_| {
        format!("{holder} has {seats} seats of {licence} until {}: transaction {tx}", show_time(until))
    })
}

async fn list(out: Output) -> Done {
    let client = Session::open()?.client;
    let mut query = PageQuery { page_size: Some(500), page_token: None };
    let mut licences = Vec::new();
    loop {
        let page = client.licences(&query).await?;
        licences.extend(page.licences);
        match page.next_page_token {
            Some(token) => query.page_token = Some(token),
            None => break,
        }
    }
    out.show(&serde_json::json!({ "licences": licences }), |_| table(out, &licences))
}

fn table(out: Output, licences: &[LicenceView]) -> String {
    let rows = licences.iter().map(|row| {
        let until = show_time(row.until_ms);
        [
            row.licence.to_string(),
            row.holder.to_string(),
            format!("{} of {}", row.used, row.seats),
            if row.over { format!("over since {until}") } else { until },
        ]
    });
    out.table(["LICENCE", "HOLDER", "TAKEN", "UNTIL"], rows.collect(), "no licences; an issuer sets them on chain")
}
