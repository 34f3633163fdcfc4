//! The renter of `selion up`: a profile that is ready to use, with play money where the chain is for play.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use selion_api::Amount;
use selion_client::ClientError;
use selion_contracts::{BlockTag, Pool};
use selion_controller::wall_clock;

use super::child::Crew;
use crate::dev::{give_tokens, is_dev_chain};
use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::output::Output;
use crate::profile::{Home, Profile};
use crate::session::{Session, login};

/// Play money: 1,000 tokens.
const DEPOSIT: Amount = Amount(1_000_000_000);
/// For how long the controller may sign vouchers, and when that is renewed, in milliseconds.
const GRANT_MS: u64 = 30 * 86_400_000;
const RENEW_MS: u64 = 7 * 86_400_000;
/// How long a new node or deposit may take until it counts.
const PATIENCE: Duration = Duration::from_secs(60);
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Where the profile is: the usual place, unless another pool's profile is there.
pub fn home(dir: &Path) -> Done<Home> {
    let usual = Home::find()?;
    let free = usual.read()?.is_none_or(|profile| profile.key_file == Some(key_file(dir)));
    Ok(if free { usual } else { Home::at(dir.join("profile")) })
}

fn key_file(dir: &Path) -> PathBuf {
    dir.join("renter.key")
}

/// Logs in, unless the profile is good already.
pub async fn log_in(dir: &Path, home: &Home, controller: &str, chain_rpc: &str, pool: &Pool) -> Done<Session> {
    let wanted = Profile {
        controller: controller.to_owned(),
        chain_id: pool.chain_id,
        pool: pool.at.controller,
        chain_rpc: Some(chain_rpc.to_owned()),
        key_file: Some(key_file(dir)),
    };
    if home.read()? == Some(wanted) && home.credentials()?.is_some() {
        let session = Session::of(home)?;
        match session.client.whoami().await {
            Ok(_) => return Ok(session),
            Err(ClientError::Problem(problem)) if problem.status == 401 => {}
            Err(error) => return Err(error.into()),
        }
    }
    login(home, controller, Some(chain_rpc.to_owned()), &key_file(dir)).await?;
    Session::of(home)
}

/// On a development chain: a deposit and a grant, where they are missing, until the pool counts them.
pub async fn fund(out: Output, session: &Session, pool: &Pool, crew: &mut Crew) -> Done {
    if !is_dev_chain(pool.chain_id) {
        return Ok(());
    }
    let signer = session.signer()?;
    let delegate = session.client.pool().await?.delegate;
    let (account, key) = futures::try_join!(
        pool.account(signer.account(), BlockTag::Latest),
        pool.key(signer.account(), delegate, BlockTag::Latest)
    )?;
    if account.balance == Amount::ZERO {
        out.note("giving the local renter 1000 test tokens ...");
        give_tokens(pool, &signer, DEPOSIT).await?;
        pool.send(&signer, pool.approve_vault()).await?;
        pool.send(&signer, pool.deposit(DEPOSIT)).await?;
    }
    let lapses = key.as_ref().map_or(0, |key| key.until.since(wall_clock()));
    let cap_left = key.map_or(Amount::ZERO, |key| key.cap_left);
    if lapses < RENEW_MS || cap_left == Amount::ZERO {
        let until = wall_clock().plus(GRANT_MS);
        pool.send(&signer, pool.grant(delegate, cap_left.max(DEPOSIT), until)).await?;
    }
    until("the deposit to count", crew, async || {
        let view = session.client.account().await?;
        Ok(view.free > Amount::ZERO && view.delegated > Amount::ZERO || view.reserved > Amount::ZERO)
    })
    .await
}

/// Waits until a node can be leased.
pub async fn wait_for_node(session: &Session, crew: &mut Crew) -> Done {
    until("a node to become schedulable", crew, async || {
        let page = session.client.nodes(&selion_client::PageQuery::default()).await?;
        Ok(page.nodes.iter().any(|node| node.schedulable))
    })
    .await
}

async fn until(what: &str, crew: &mut Crew, reached: impl AsyncFn() -> Result<bool, ClientError>) -> Done {
    let until = Instant::now() + PATIENCE;
    while !reached().await? {
        crew.check()?;
        if Instant::now() >= until {
            let detail = format!("waited {} s for {what}", PATIENCE.as_secs());
            let suggestion = "read controller.log and agent.log in the data directory; `selion node list` has reasons";
            return Err(Failure::new(Exit::Timeout, "not_up", detail, suggestion));
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
    Ok(())
}
