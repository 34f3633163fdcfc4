//! One renter at one pool: profile, login, client.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use selion_api::commit::PoolId;
use selion_api::rest::Whoami;
use selion_audit::KeptPromise;
use selion_client::{Client, LocalWallet, Trouble, Trust};
use selion_contracts::{BlockTag, Pool, Rpc, Signer};
use tokio::runtime::Handle;

use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::output::notice;
use crate::profile::{Credentials, Home, Profile};

/// What renter commands work with.
pub struct Session {
    /// Where we are.
    pub profile: Profile,
    /// The controller.
    pub client: Client,
    /// `None` where nobody has one, as in a container with an empty environment.
    home: Option<Home>,
}

impl Session {
    /// The session that the environment names whole, or else that of the profile in use.
    pub fn open() -> Done<Self> {
        match from_environment() {
            Some((controller, api_key)) => Self::of_environment(&controller, &api_key),
            None => Self::of(&Home::find()?),
        }
    }

    /// Pool and login by the environment alone. A profile of the same controller adds what it knows besides: its chain,
    /// and the account's key.
    fn of_environment(controller: &str, api_key: &str) -> Done<Self> {
        let home = Home::find().ok();
        let same = |profile: &Profile| profile.controller.trim_end_matches('/') == controller.trim_end_matches('/');
        let kept = home.as_ref().and_then(|home| home.read().ok().flatten()).filter(same);
        let client = Client::new(controller)?;
        tell_of_trouble(&client);
        client.set_api_key(api_key);
        let profile = match kept {
            Some(profile) => profile,
            None => {
                let chain_rpc = variable("SELION_CHAIN_RPC");
                // Every command opens its session first and waits for nothing else.
                let asked = Handle::current();
                tokio::task::block_in_place(|| asked.block_on(profile(&client, chain_rpc, None)))?
            }
        };
        Ok(Self { profile, client, home })
    }

    /// The session of that profile.
    pub fn of(home: &Home) -> Done<Self> {
        let profile = home.profile()?;
        let client = Client::new(&profile.controller)?;
        tell_of_trouble(&client);
        let credentials = match variable("SELION_API_KEY") {
            Some(api_key) => Some(Credentials::Key { api_key }),
            None => home.credentials()?,
        };
        match credentials {
            Some(Credentials::Key { api_key }) => client.set_api_key(&api_key),
            Some(Credentials::Session(session)) => {
                client.set_session(&session);
                client.set_keeper(Arc::new(home.clone()));
            }
            None => {
                let detail = format!("{} holds no login", home.dir().display());
                let suggestion = format!("run: selion login --controller {}", profile.controller);
                return Err(Failure::new(Exit::Auth, "no_login", detail, suggestion));
            }
        }
        Ok(Self { profile, client, home: Some(home.clone()) })
    }

    /// From now on promises that come with answers are checked. The authority is the chain's if the profile names a
    /// chain, else the controller's own word: what is kept is checked against the chain by an audit.
    pub async fn expect_promises(&self) -> Done {
        let account = match &self.profile.key_file {
            Some(path) => signer(path)?.account(),
            None => match self.client.whoami().await? {
                Whoami::Renter { account, .. } => account,
                // A node's agent is promised nothing.
                Whoami::Node { .. } => return Ok(()),
            },
        };
        let pool = self.pool_id();
        let authority = match &self.profile.chain_rpc {
            Some(url) => Pool::open(Rpc::new(url)?, pool.controller).await?.authority(BlockTag::Latest).await?,
            None => self.client.pool().await?.authority,
        };
        self.client.expect_promises(Trust { pool, authority, account });
        Ok(())
    }

    /// Puts the promises that came into the profile's folder, for `selion audit --proof`.
    pub fn keep_promises(&self) -> Done {
        let pool = self.pool_id();
        let promises = self.client.take_promises().into_iter().map(|signed| KeptPromise { pool, signed });
        match &self.home {
            Some(home) => home.keep_promises(promises),
            // Who has no place for evidence goes without.
            None => Ok(()),
        }
    }

    /// The pool that requests are signed for.
    pub fn pool_id(&self) -> PoolId {
        PoolId { chain_id: self.profile.chain_id, controller: self.profile.pool }
    }

    /// From now on what the account says is signed, where its key is at hand: releases, pauses, reclaims.
    pub fn sign_words(&self) -> Done {
        if let Some(wallet) = self.wallet()? {
            self.client.sign_with(wallet, self.pool_id());
        }
        Ok(())
    }

    /// The account's key, for requests; `None` where the login came without it.
    pub fn wallet(&self) -> Done<Option<LocalWallet>> {
        self.profile.key_file.as_deref().map(wallet).transpose()
    }

    /// The account's key, for the chain.
    pub fn signer(&self) -> Done<Signer> {
        let path = self.profile.key_file.as_deref().ok_or_else(|| {
            let detail = "this login came without the account's key, and money moves by its signature only";
            Failure::usage(detail, "do it where the key is, or run `selion login --key-file FILE`")
        })?;
        signer(path)
    }

    /// The account's key and the pool's contracts, for money.
    pub async fn money(&self) -> Done<(Signer, Pool)> {
        let url = self.profile.chain_rpc.as_deref().ok_or_else(|| {
            let suggestion = format!("run: selion login --controller {} --chain-rpc URL", self.profile.controller);
            Failure::usage("the profile names no chain, and money moves on chain only", suggestion)
        })?;
        let signer = self.signer()?;
        let pool = Pool::open(Rpc::new(url)?, self.profile.pool).await?;
        if pool.chain_id != self.profile.chain_id {
            let detail = format!("{url} is chain {}, the pool is on chain {}", pool.chain_id, self.profile.chain_id);
            return Err(Failure::usage(detail, "log in again with the --chain-rpc of the pool's chain"));
        }
        Ok((signer, pool))
    }
}

/// People are told while a call or a stream waits for a controller that does not answer, and of what is said unsigned.
fn tell_of_trouble(client: &Client) {
    let gone = AtomicBool::new(false);
    client.set_watcher(move |trouble| match trouble {
        Trouble::Slow { gives_up } => {
            notice(&format!("the controller has not answered yet; giving up after {} s", gives_up.as_secs()));
        }
        Trouble::Lost { why, gives_up } if !gone.swap(true, Ordering::Relaxed) => notice(&format!(
            "the controller is gone ({why}); trying again for {} s; what runs goes on",
            gives_up.as_secs()
        )),
        Trouble::Lost { .. } => {}
        Trouble::Back if gone.swap(false, Ordering::Relaxed) => notice("the controller is back"),
        Trouble::Back => {}
        Trouble::Unsigned { why } => notice(&format!("said without a signature, since the clocks differ: {why}")),
    });
}

/// Controller and API key, where the environment names both: then no profile is needed.
fn from_environment() -> Option<(String, String)> {
    variable("SELION_CONTROLLER").zip(variable("SELION_API_KEY"))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The controller in use: of the environment, or else of the profile.
pub fn controller() -> Done<String> {
    match variable("SELION_CONTROLLER") {
        Some(controller) => Ok(controller),
        None => Ok(Home::find()?.profile()?.controller),
    }
}

/// The key in a file that must be there.
pub fn signer(path: &Path) -> Done<Signer> {
    if !path.exists() {
        let detail = format!("there is no key file {}", path.display());
        return Err(Failure::usage(detail, "restore it, or run `selion login` with another --key-file"));
    }
    Ok(Signer::open_or_create(path)?)
}

/// The same key, as the client signs with it.
pub fn wallet(path: &Path) -> Done<LocalWallet> {
    // Its checks of form and permissions come first.
    let account = signer(path)?.account();
    let text = std::fs::read_to_string(path).map_err(|error| Failure::file(path, &error))?;
    let digits = text.trim();
    let wallet: Option<LocalWallet> = digits.strip_prefix("0x").unwrap_or(digits).parse().ok();
    wallet
        .filter(|wallet| selion_client::account_of(wallet) == account)
        .ok_or_else(|| Failure::usage(format!("{} is not a key file", path.display()), "it must hold 64 hex digits"))
}

/// Logs in at `controller` with the key in `key_file`, and keeps profile and session in `home`.
pub async fn login(home: &Home, controller: &str, chain_rpc: Option<String>, key_file: &Path) -> Done<Profile> {
    let client = Client::new(controller)?;
    let key_file = std::path::absolute(key_file).map_err(|error| Failure::file(key_file, &error))?;
    home.make()?;
    if key_file.exists() {
        signer(&key_file)?;
    }
    // A key is made only where a pool answers, so that the login that works is the one that tells of it.
    let profile = profile(&client, chain_rpc, Some(key_file.clone())).await?;
    Signer::open_or_create(&key_file)?;
    let wallet = wallet(&key_file)?;
    let session = client.login(&wallet, &format!("selion on {}", machine())).await?;
    home.save(&profile, &Credentials::Session(session))?;
    Ok(profile)
}

/// The profile of the pool behind `client`.
pub async fn profile(client: &Client, chain_rpc: Option<String>, key_file: Option<PathBuf>) -> Done<Profile> {
    let pool = client.pool().await?.pool;
    let controller = client.base_url().trim_end_matches('/').to_owned();
    Ok(Profile { controller, chain_id: pool.chain_id, pool: pool.controller, chain_rpc, key_file })
}

/// What this machine calls itself.
pub fn machine() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.unwrap_or_else(|| "this machine".to_owned())
}
