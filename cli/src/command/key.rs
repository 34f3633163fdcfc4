//! `selion key`: API keys, for programs that act for the account.

use selion_api::TimeMs;
use selion_api::rest::{ApiKeyView, NewApiKey, Scope};
use selion_client::PageQuery;

use crate::failure::Done;
use crate::output::Output;
use crate::session::Session;
use crate::unit::{duration, show_time};

/// Makes, lists and revokes API keys.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// A new key, shown this once
    Create {
        /// What it may do: lease:read, lease:write, data:read, data:write, money:read, node:write; may be repeated
        #[arg(long = "scope", value_name = "SCOPE", required = true, value_parser = scope)]
        scopes: Vec<Scope>,
        /// A name, to know it by later
        #[arg(long, default_value = "")]
        name: String,
        /// Ends by itself after so long, e.g. 30d [default: never]
        #[arg(long, value_name = "TIME", value_parser = duration)]
        expires: Option<u64>,
    },
    /// The keys that are live, and when they were last used
    List,
    /// Ends a key, and every token made of it
    Revoke {
        /// Its id
        id: u64,
    },
}

fn scope(text: &str) -> Result<Scope, String> {
    let all: Vec<&str> = Scope::ALL.into_iter().filter(|scope| *scope != Scope::Login).map(Scope::code).collect();
    let scope = Scope::of(text).filter(|scope| *scope != Scope::Login);
    scope.ok_or_else(|| format!("`{text}` is not a scope of API keys; use {}", all.join(", ")))
}

/// Runs the sub-command.
pub async fn main(out: Output, command: Command) -> Done {
    let session = Session::open()?;
    let client = &session.client;
    match command {
        Command::Create { scopes, name, expires } => {
            let expires_ms = expires.map(|after| selion_controller::wall_clock().plus(after));
            let key = client.create_api_key(&NewApiKey { name, scopes, expires_ms }).await?;
            out.show(&key, |key| key.api_key.clone())?;
            out.note(format!(
                "this is key {}; it is not shown again. To use it: SELION_API_KEY, or login --api-key-file",
                key.id
            ));
            Ok(())
        }
        Command::List => list(out, &session).await,
        Command::Revoke { id } => {
            client.revoke_api_key(id).await?;
            out.show(&serde_json::json!({ "revoked": id }), |_| format!("key {id} opens nothing any more"))
        }
    }
}

async fn list(out: Output, session: &Session) -> Done {
    let (mut keys, mut page) = (Vec::new(), PageQuery { page_size: Some(500), page_token: None });
    loop {
        let mut answer = session.client.api_keys(&page).await?;
        keys.append(&mut answer.api_keys);
        page.page_token = answer.next_page_token;
        if page.page_token.is_none() {
            break;
        }
    }
    out.show(&serde_json::json!({ "api_keys": keys }), |_| {
        let rows = keys.iter().map(row).collect();
        out.table(
            ["KEY", "NAME", "MAY", "MADE", "LAST USED", "ENDS"],
            rows,
            "no API keys; `selion key create` makes one",
        )
    })
}

fn row(key: &ApiKeyView) -> [String; 6] {
    let scopes: Vec<&str> = key.scopes.iter().map(|scope| scope.code()).collect();
    let time = |time: Option<TimeMs>| time.map_or_else(|| "never".to_owned(), show_time);
    [
        key.id.to_string(),
        key.name.clone(),
        scopes.join(" "),
        show_time(key.created_ms),
        time(key.used_ms),
        time(key.expires_ms),
    ]
}
