//! Secrets on their way to nodes: what clients sealed is passed on as it is; what the pool was given, it seals itself.

use selion_api::agent::{Assignment, Phase, ToAgent};
use selion_api::commit::{PoolId, sha256_of};
use selion_api::seal::{Addressee, Sealed, SignedSealKey, seal};
use selion_api::{Account, Hash32, NodeId};
use selion_contracts::signer::recover_text;

use super::core::{Core, CoreError};
use crate::store::secret::Run;

/// A member that waits for its secrets, as its node was told of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    run: Run,
    pool_may_keep: bool,
    /// Names what was sent last.
    sent: Option<Hash32>,
}

/// Whether the node said so itself.
pub(super) fn is_stated_by(pool: &PoolId, node: NodeId, signed: &SignedSealKey) -> bool {
    let digest = signed.key.digest_to_sign(pool);
    signed.key.node == node && recover_text(&digest.0, &signed.signature) == Some(Account(node.0))
}

/// The members among these that wait for secrets; `before` are those of the desired state before.
pub(super) fn waiting(node: NodeId, assignments: &[Assignment], before: &[Waits]) -> Vec<Waits> {
    let waits = |one: &&Assignment| one.phase == Phase::Prepare && !one.work.secrets.names.is_empty();
    let of = |one: &Assignment| {
        let run = Run { lease: one.lease, attempt: one.attempt, member: one.member, node };
        let sent = before.iter().find(|waits| waits.run == run).and_then(|waits| waits.sent);
        Waits { run, pool_may_keep: one.work.secrets.pool_may_keep, sent }
    };
    assignments.iter().filter(waits).map(of).collect()
}

impl Waits {
    /// What is to be sent to it now: nothing if nothing came, or it was sent already.
    pub(super) async fn due(
        &mut self,
        core: &dyn Core,
        pool: &PoolId,
        key: Option<SignedSealKey>,
    ) -> Result<Option<ToAgent>, CoreError> {
        let (mark, sealed) = match core.sealed(&self.run).await? {
            Some(sealed) => (sha256_of(&sealed), Some(sealed)),
            None if self.pool_may_keep => match key {
                Some(key) => (key.key.key, self.seal_kept(core, pool, key.key.key).await?),
                None => return Ok(None),
            },
            None => return Ok(None),
        };
        let Some(sealed) = sealed.filter(|_| self.sent != Some(mark)) else { return Ok(None) };
        self.sent = Some(mark);
        let Run { lease, attempt, member, .. } = self.run;
        Ok(Some(ToAgent::Secrets { lease, attempt, member, sealed }))
    }

    async fn seal_kept(&self, core: &dyn Core, pool: &PoolId, to: Hash32) -> Result<Option<Sealed>, CoreError> {
        if self.sent == Some(to) {
            return Ok(None);
        }
        let Some(secrets) = core.kept_secrets(self.run.lease).await? else { return Ok(None) };
        let Run { lease, attempt, member, node } = self.run;
        let of = Addressee { pool: *pool, lease, attempt, member, node };
        seal(&to, &of, &secrets).map(Some).map_err(|error| CoreError(format!("sealing for {node}: {error}")))
    }
}
