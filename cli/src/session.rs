//! One renter at one pool: profile, key, client.

use std::path::Path;

use selion_api::commit::PoolId;
use selion_client::{Client, LocalWallet};
use selion_contracts::{Pool, Rpc, Signer};

use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::profile::{Home, Profile};

/// What renter commands work with.
pub struct Session {
    /// Where we are.
    pub profile: Profile,
    /// The controller.
    pub client: Client,
}

impl Session {
    /// The session of the profile in use.
    pub fn open() -> Done<Self> {
        Self::of(&Home::find()?)
    }

    /// The session of that profile.
    pub fn of(home: &Home) -> Done<Self> {
        let profile = home.profile()?;
        let client = Client::new(&profile.controller)?;
        match home.api_key()? {
            Some(key) => client.set_api_key(&key),
            None => {
                let detail = format!("{} holds no API key", home.dir().display());
                let suggestion = format!("run: selion login --controller {}", profile.controller);
                return Err(Failure::new(Exit::Auth, "no_login", detail, suggestion));
            }
        }
        Ok(Self { profile, client })
    }

    /// The pool that requests are signed for.
    pub fn pool_id(&self) -> PoolId {
        PoolId { chain_id: self.profile.chain_id, controller: self.profile.pool }
    }

    /// The account's key, for requests.
    pub fn wallet(&self) -> Done<LocalWallet> {
        wallet(&self.profile.key_file)
    }

    /// The account's key and the pool's contracts, for money.
    pub async fn money(&self) -> Done<(Signer, Pool)> {
        let url = self.profile.chain_rpc.as_deref().ok_or_else(|| {
            let suggestion = format!("run: selion login --controller {} --chain-rpc URL", self.profile.controller);
            Failure::usage("the profile names no chain, and money moves on chain only", suggestion)
        })?;
        let signer = signer(&self.profile.key_file)?;
        let pool = Pool::open(Rpc::new(url)?, self.profile.pool).await?;
        if pool.chain_id != self.profile.chain_id {
            let detail = format!("{url} is chain {}, the pool is on chain {}", pool.chain_id, self.profile.chain_id);
            return Err(Failure::usage(detail, "log in again with the --chain-rpc of the pool's chain"));
        }
        Ok((signer, pool))
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

/// Logs in at `controller` with the key in `key_file`, and keeps profile and API key in `home`.
pub async fn login(home: &Home, controller: &str, chain_rpc: Option<String>, key_file: &Path) -> Done<Profile> {
    let client = Client::new(controller)?;
    let key_file = std::path::absolute(key_file).map_err(|error| Failure::file(key_file, &error))?;
    home.make()?;
    Signer::open_or_create(&key_file)?;
    let wallet = wallet(&key_file)?;
    let pool = client.pool().await?;
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let key = client.login(&wallet, &format!("selion on {}", host.as_deref().unwrap_or("this machine"))).await?;
    let profile = Profile {
        controller: controller.trim_end_matches('/').to_owned(),
        chain_id: pool.pool.chain_id,
        pool: pool.pool.controller,
        chain_rpc,
        key_file,
    };
    home.save(&profile, &key.api_key)?;
    Ok(profile)
}
