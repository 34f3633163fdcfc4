//! Results: what a member left in its output folder, from the end of its command to the pool.
//!
//! 1. Before the command runs, a record is opened on the [`shelf`]: whatever ends the agent, its next life knows that
//!    there may be outputs.
//! 2. When the command is over, its folder is moved aside and its rooms are free for the next member.
//! 3. What can be kept of it is added to the content store ([`collect`]); then the folder goes.
//! 4. The blocks are sent to the controller's gateway, again and again for up to [`GIVE_UP`] ([`upload`]).
//! 5. The controller has the last word down; the record goes.
//!
//! A kill between any two steps costs nothing: the next start of the agent goes on from the record. The end of the member
//! is reported after step 2; steps 3 and 4 are unbilled and keep no slot.

mod collect;
mod shelf;
mod upload;

use std::time::Duration;

use selion_api::agent::{MemberEvent, Outputs};
use selion_api::commit::salted;
use selion_api::{Hash32, Reason};

pub(crate) use shelf::{Ended, Record, Shelf, ShelfError};
pub(crate) use upload::{Parts, Uploads, lines};

/// How long the report of a member's end may wait for its outputs: small ones are with the pool when the lease ends, and
/// no slot is kept longer for large ones.
pub(crate) const TOGETHER: Duration = Duration::from_secs(1);
/// How long outputs are offered to a pool that does not take them; then the node's disk is worth more to its owner.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The last event of a member that ran: with a commitment to its outputs, as far as their CID is known.
pub(crate) fn event(ended: &Ended, salt: &Hash32, said: Option<&Outputs>) -> MemberEvent {
    let cid = said.and_then(|said| said.cid.as_ref());
    let outputs = cid.map(|cid| salted(salt, cid.as_bytes()));
    match *ended {
        Ended { failed: true, .. } => MemberEvent::Failed { reason: Reason::RuntimeFailed },
        Ended { limit: Some(reason), .. } => MemberEvent::Limited { reason, outputs },
        Ended { code: Some(code), .. } => MemberEvent::Exited { code, outputs },
        Ended { code: None, .. } => MemberEvent::Stopped { outputs },
    }
}
