//! Users inside of a box and outside.
//!
//! Root gives every box the same range of the machine's ids, which are nobody's: image layers are unpacked once and belong
//! to them. An ordinary user has one id to give, its own; whoever the command is inside is that one.

use std::io;
use std::os::unix::fs::chown;
use std::path::Path;

use selion_dataplane::image::{IdRange, Owners};
use serde::{Deserialize, Serialize};

/// First of the machine's ids that root gives to boxes: above those that systemd gives to containers, which end here.
const FIRST: u32 = 0x7000_0000;
/// How many.
const COUNT: u32 = 1 << 16;
/// Whom a command is where nobody says it.
const NOBODY: u32 = 65_534;

/// A user as a box knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// The user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Further groups; none where the agent is not root.
    pub groups: Vec<u32>,
}

impl Person {
    /// Of a command that runs among the machine's own programs: nobody, or the ordinary user itself.
    #[must_use]
    pub fn of_the_machine() -> Self {
        let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
        let (uid, gid) = if uid.is_root() { (NOBODY, NOBODY) } else { (uid.as_raw(), gid.as_raw()) };
        Self { uid, gid, groups: Vec::new() }
    }
}

/// Who a command is, and whose ids those are outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ids {
    pub(super) person: Person,
    pub(super) uids: IdRange,
    pub(super) gids: IdRange,
}

impl Ids {
    /// What this process can give to somebody.
    pub(super) fn of(mut person: Person) -> Self {
        let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
        if uid.is_root() {
            let all = IdRange { inside: 0, outside: FIRST, count: COUNT };
            return Self { person, uids: all, gids: all };
        }
        person.groups.clear();
        let one = |inside, outside| IdRange { inside, outside, count: 1 };
        Self { uids: one(person.uid, uid.as_raw()), gids: one(person.gid, gid.as_raw()), person }
    }

    /// Gives a folder to the command.
    pub(super) fn give(&self, folder: &Path) -> io::Result<()> {
        self.give_to(folder, self.person.uid, self.person.gid)
    }

    /// Gives a folder to the root inside, where there is one; else to the command.
    pub(super) fn give_to_root(&self, folder: &Path) -> io::Result<()> {
        if self.uids.inside == 0 { self.give_to(folder, 0, 0) } else { self.give(folder) }
    }

    fn give_to(&self, folder: &Path, uid: u32, gid: u32) -> io::Result<()> {
        let (uid, gid) = (outside(&self.uids, uid)?, outside(&self.gids, gid)?);
        chown(folder, Some(uid), Some(gid))
    }
}

fn outside(range: &IdRange, id: u32) -> io::Result<u32> {
    let step = id.checked_sub(range.inside).filter(|step| *step < range.count);
    step.map(|step| range.outside + step).ok_or_else(|| {
        let most = range.inside + (range.count - 1);
        io::Error::other(format!("a box has the ids {} to {most}, and {id} is none of them", range.inside))
    })
}

/// Whose the files of images become here.
#[must_use]
pub fn owners() -> Owners {
    if nix::unistd::geteuid().is_root() {
        let all = vec![IdRange { inside: 0, outside: FIRST, count: COUNT }];
        Owners::Mapped { users: all.clone(), groups: all }
    } else {
        Owners::Own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_a_box_does_not_have_is_refused_and_others_are_told_apart() {
        let range = IdRange { inside: 0, outside: FIRST, count: COUNT };
        assert_eq!((outside(&range, 0).unwrap(), outside(&range, 1_000).unwrap()), (FIRST, FIRST + 1_000));
        assert!(outside(&range, COUNT).unwrap_err().to_string().contains("65536 is none of them"));
        let own = IdRange { inside: 1_000, outside: 5, count: 1 };
        assert_eq!(outside(&own, 1_000).unwrap(), 5);
        assert!(outside(&own, 0).is_err());
    }
}
