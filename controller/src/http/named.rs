//! What renters call their leases, at the door: one live lease of an account has a name.

use std::sync::Arc;

use selion_api::rest::{Called, LeaseRef};
use selion_api::{Account, LeaseId};
use tokio::sync::{Mutex, MutexGuard};

use super::Problem;
use crate::App;
use crate::store::called;

/// Accounts that share a turn. Who asks by name waits for the commits of those only.
const TURNS: usize = 64;

/// Turns of accounts that ask for a lease by name: between the look at a name and the commit of its lease nobody else of
/// the account asks for one.
#[derive(Clone, Debug)]
pub struct Names(Arc<[Mutex<()>]>);

impl Default for Names {
    fn default() -> Self {
        Self((0..TURNS).map(|_| Mutex::new(())).collect())
    }
}

impl Names {
    /// Waits for the turn of an account; none is needed for a lease without a name.
    pub(super) async fn turn(&self, account: Account, called: &Called) -> Option<MutexGuard<'_, ()>> {
        called.name.as_ref()?;
        let at = account.0.iter().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into())) % TURNS;
        Some(self.0.get(at)?.lock().await)
    }
}

/// Refuses a name that a live lease of the account has.
///
/// # Errors
///
/// [`Problem::Fields`], with the lease.
pub(super) async fn is_free(app: &App, account: Account, called: &Called) -> Result<(), Problem> {
    let Some(name) = &called.name else {
        return Ok(());
    };
    match called::named(&app.store.readers, account, name).await? {
        Some((id, true)) => {
            let why = format!("{id} of this account is called `{name}` and lives: release it, or take another name");
            Err(Problem::field("/name", "name_taken", why))
        }
        _ => Ok(()),
    }
}

/// Which lease is meant: by name the live one of the account that is called so, else the newest that was.
///
/// # Errors
///
/// [`Problem::NotFound`].
pub(super) async fn resolve(app: &App, account: Account, lease: LeaseRef) -> Result<LeaseId, Problem> {
    match lease {
        LeaseRef::Id(id) => Ok(id),
        LeaseRef::Name(name) => {
            let found = called::named(&app.store.readers, account, &name).await?;
            found.map(|(id, _)| id).ok_or_else(|| Problem::NotFound("lease of this account that is called", name))
        }
    }
}
