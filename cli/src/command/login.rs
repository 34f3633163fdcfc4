//! `selion login`, `logout`, `whoami` and `approve`.

use std::io::Read;
use std::path::{Path, PathBuf};

use selion_api::rest::{Device, LoginView, Role, Scope, Whoami};
use selion_client::Client;

use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::output::Output;
use crate::profile::{Credentials, Home, Profile};
use crate::session::{Session, login, machine, profile};
use crate::unit::show_time;

/// Logs in at a pool and keeps a profile of it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Base URL of the pool's controller; http:// may be left out for this machine
    #[arg(long, value_name = "URL", env = "SELION_CONTROLLER", value_parser = with_scheme)]
    controller: String,
    /// JSON-RPC of the pool's chain, for deposits and withdrawals
    #[arg(long, value_name = "URL", env = "SELION_CHAIN_RPC", value_parser = with_scheme)]
    chain_rpc: Option<String>,
    /// File with the account's key; made if it is not there [default: `key` in the profile's folder]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Without a key on this machine: shows a code to approve elsewhere, in a browser or with `selion approve`
    #[arg(long, conflicts_with = "key_file")]
    device: bool,
    /// With an API key instead: the file that holds it, or - for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key_file", "device"])]
    api_key_file: Option<PathBuf>,
    /// Takes a controller without TLS beyond this machine: whoever is on the way can read tokens and act for the account
    #[arg(long)]
    insecure: bool,
}

/// Ends the login.
#[derive(Debug, clap::Args)]
pub struct LogoutArgs {
    /// Ends every login of the account, on all machines; API keys stay
    #[arg(long)]
    all: bool,
}

/// Lets a device in that shows a code.
#[derive(Debug, clap::Args)]
pub struct ApproveArgs {
    /// The code that the device shows
    code: String,
    /// Refuse it instead
    #[arg(long)]
    deny: bool,
    /// Only show who asks
    #[arg(long, conflicts_with = "deny")]
    look: bool,
}

/// A URL as given, or of this machine without its scheme: `localhost:7070`. To another machine the choice between http
/// and https is not ours.
#[expect(clippy::unnecessary_wraps, reason = "the form of a value parser")]
fn with_scheme(text: &str) -> Result<String, std::convert::Infallible> {
    let host = text.split(['/', ':']).next().unwrap_or_default();
    let here = ["localhost", "127.0.0.1"].contains(&host) || text.starts_with("[::1]");
    Ok(if here { format!("http://{text}") } else { text.to_owned() })
}

/// Logs in. What the old profile of the same pool knows is kept.
pub async fn main(out: Output, args: Args) -> Done {
    if selion_client::is_exposed(&args.controller) && !args.insecure {
        let detail = format!("{} is reached without TLS beyond this machine", args.controller);
        let next = "use its https:// address, or --insecure if you trust everybody on the way";
        return Err(Failure::new(Exit::Usage, "insecure", detail, next));
    }
    let home = Home::find()?;
    let same = |old: &Profile| old.controller.trim_end_matches('/') == args.controller.trim_end_matches('/');
    let old = home.read()?;
    let before = old.as_ref().and_then(|old| old.key_file.clone());
    let old = old.filter(same);
    let chain_rpc = args.chain_rpc.or(old.and_then(|old| old.chain_rpc));
    if args.device {
        return by_device(out, &home, &args.controller, chain_rpc).await;
    }
    if let Some(file) = args.api_key_file {
        return by_api_key(out, &home, &args.controller, chain_rpc, &file).await;
    }
    let key_file = args.key_file.unwrap_or_else(|| home.default_key_file());
    let new_key = !key_file.exists();
    let profile = login(&home, &args.controller, chain_rpc, &key_file).await?;
    let account = crate::session::signer(&key_file)?.account();
    if let Some(before) = before.filter(|before| *before != key_file) {
        out.note(format!(
            "this profile used another key before; to return to it, log in with --key-file {}",
            before.display()
        ));
    }
    let result = serde_json::json!({ "account": account, "profile": profile, "new_key": new_key });
    out.show(&result, |_| {
        let key = key_file.display();
        let made = if new_key { format!("a new key was made in {key}: keep a copy of it\n") } else { String::new() };
        format!("{made}account {account} is logged in at {}\nnext: selion offers", profile.controller)
    })
}

async fn by_device(out: Output, home: &Home, controller: &str, chain_rpc: Option<String>) -> Done {
    let client = Client::new(controller)?;
    let profile = profile(&client, chain_rpc, None).await?;
    let plain: String =
        machine().chars().filter(|letter| letter.is_ascii_graphic() && *letter != '\'').take(40).collect();
    let device = client.start_device(&format!("selion on {plain}")).await?;
    let Device { user_code, verification_uri, verification_uri_complete, expires_in, .. } = &device;
    if out.is_json() {
        let (uri, complete) = (verification_uri, verification_uri_complete);
        out.json(&serde_json::json!({ "device": {
            "user_code": user_code, "verification_uri": uri, "verification_uri_complete": complete, "expires_in": expires_in,
        } }))?;
    }
    out.note(format!(
        "open {verification_uri_complete} and approve the code {user_code}\nor type on a machine that is logged in: \
         selion approve {user_code}\nwaiting, {} minutes at most ...",
        expires_in / 60,
    ));
    let session = client.await_device(&device).await?;
    let account = session.account;
    home.save(&profile, &Credentials::Session(session))?;
    shown(out, &profile, &serde_json::json!({ "account": account, "profile": profile, "new_key": false }), account)
}

async fn by_api_key(out: Output, home: &Home, controller: &str, chain_rpc: Option<String>, file: &Path) -> Done {
    let failed = |error| Failure::file(file, &error);
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
    } else {
        text = std::fs::read_to_string(file).map_err(failed)?;
    }
    let api_key = text.trim().to_owned();
    let client = Client::new(controller)?;
    client.set_api_key(&api_key);
    let Whoami::Renter { account, .. } = client.whoami().await? else {
        return Err(Failure::usage("the key is not an account's", "make one with `selion key create`"));
    };
    let profile = profile(&client, chain_rpc, None).await?;
    home.save(&profile, &Credentials::Key { api_key })?;
    shown(out, &profile, &serde_json::json!({ "account": account, "profile": profile, "new_key": false }), account)
}

fn shown(out: Output, profile: &Profile, result: &serde_json::Value, account: selion_api::Account) -> Done {
    out.show(result, |_| format!("account {account} is logged in at {}\nnext: selion offers", profile.controller))
}

/// Ends the session, and forgets it even where the controller knows it no more.
pub async fn logout(out: Output, args: LogoutArgs) -> Done {
    let home = Home::find()?;
    let session = Session::of(&home)?;
    let ended = if args.all {
        session.client.logout_all().await.map(|ended| ended.sessions)
    } else {
        match session.client.logout().await {
            Err(error)
                if ["bad_refresh_token", "refresh_token_reused", "token_revoked"]
                    .contains(&error.code().unwrap_or_default()) =>
            {
                Ok(0)
            }
            other => other.map(|()| 1),
        }
    }?;
    home.forget()?;
    out.show(&serde_json::json!({ "sessions": ended }), |_| {
        format!("{ended} ended; the profile stays: selion login --controller {}", session.profile.controller)
    })
}

/// Shows a device, then lets it in or refuses it.
pub async fn approve(out: Output, args: ApproveArgs) -> Done {
    let session = Session::open()?;
    let device = session.client.look_at_device(&args.code).await?;
    out.note(format!("`{}` asked from {} at {}", device.name, device.from, show_time(device.asked_ms)));
    if args.deny {
        session.client.deny_device(&args.code).await?;
    } else if !args.look {
        session.client.approve_device(&args.code).await?;
    }
    let done = if args.look {
        "waits"
    } else if args.deny {
        "was denied"
    } else {
        "was let in"
    };
    out.show(&device, |device| format!("the device {} {done}", device.user_code))
}

/// Shows whom the pool takes us for, and what this login may do.
pub async fn whoami(out: Output) -> Done {
    let session = Session::open()?;
    let who = session.client.whoami().await?;
    let Profile { controller, pool, chain_id, .. } = &session.profile;
    out.show(&who, |who| match who {
        Whoami::Renter { account, roles, scopes, login } => {
            let roles: Vec<&str> = roles.iter().map(|role| role_name(*role)).collect();
            let scopes: Vec<&str> = scopes.iter().map(|scope| Scope::code(*scope)).collect();
            let login = match login {
                LoginView::Session { id } => format!("session {id}"),
                LoginView::ApiKey { id } => format!("API key {id}"),
            };
            format!(
                "account {account} at {controller}, pool {pool} on chain {chain_id}\n{} by {login}, may: {}",
                roles.join(", "),
                scopes.join(" ")
            )
        }
        Whoami::Node { node } => format!("node {node} at {controller}"),
    })
}

const fn role_name(role: Role) -> &'static str {
    match role {
        Role::Renter => "renter",
        Role::Provider => "provider",
        Role::Operator => "operator",
    }
}
