//! Typed REST client of a Selion controller: log in with a wallet, lease slices, follow logs, bring data, read money.
//!
//! ```no_run
//! # async fn example(wallet: selion_client::LocalWallet) -> Result<(), selion_client::ClientError> {
//! use futures::StreamExt;
//! let pool = selion_client::Client::new("http://127.0.0.1:7070")?;
//! pool.login(&wallet, "laptop").await?;
//! for offer in pool.offers(&Default::default()).await?.offers {
//!     println!("{} {} {}", offer.model, offer.slice, offer.rate);
//! }
//! # let id = "lease-1-0".parse().expect("an id");
//! let mut lines = pool.logs(id, &Default::default());
//! while let Some(line) = lines.next().await {
//!     println!("{}", line?.text);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Tokens are fetched and renewed as needed. Streams reconnect where they broke off. Nothing that the controller
//! answers is trusted to be well-formed: what is not comes back as [`ClientError::Protocol`].

mod call;
mod error;
mod exposed;
mod login;
mod promise;
mod query;
mod routes;
mod secrets;
mod sign;
mod sse;
mod stream;
mod trouble;
mod word;

pub use call::Client;
pub use error::ClientError;
pub use ethers_signers::LocalWallet;
pub use exposed::is_exposed;
pub use login::{Keeper, Turn};
pub use promise::Trust;
pub use query::{LeaseQuery, LogQuery, OfferQuery, PageQuery};
pub use secrets::seal_for;
pub use sign::{account_of, fresh_key, sign_lease};
pub use trouble::Trouble;
