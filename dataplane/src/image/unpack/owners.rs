//! Whose files an image's files become.

use nix::unistd::{Gid, Uid};
use serde::{Deserialize, Serialize};

use crate::image::Fault;

/// Ids inside of an image that become ids of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    /// The first inside.
    pub inside: u32,
    /// The first of the machine.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// Whose files an image's files become. A cache has one of these for all its layers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owners {
    /// The process's own, all of them: the only way without privileges.
    #[default]
    Own,
    /// By these ranges, as of a user namespace. What is in none of them is refused.
    Mapped {
        /// Users.
        users: Vec<IdRange>,
        /// Groups.
        groups: Vec<IdRange>,
    },
}

/// The user and group to give a file to; `None` where it is the process's own anyway.
pub(super) type Owner = Option<(Uid, Gid)>;

impl Owners {
    pub(super) fn of(&self, uid: u64, gid: u64) -> Result<Owner, Fault> {
        let Self::Mapped { users, groups } = self else { return Ok(None) };
        let uid = outside(users, uid).ok_or(Fault::Unmapped(uid))?;
        let gid = outside(groups, gid).ok_or(Fault::Unmapped(gid))?;
        Ok(Some((Uid::from_raw(uid), Gid::from_raw(gid))))
    }
}

fn outside(ranges: &[IdRange], id: u64) -> Option<u32> {
    let id = u32::try_from(id).ok()?;
    ranges.iter().find_map(|range| {
        let step = id.checked_sub(range.inside).filter(|step| *step < range.count)?;
        range.outside.checked_add(step)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_outside_of_every_range_is_refused() {
        let range = |inside, outside, count| IdRange { inside, outside, count };
        let users = vec![range(0, 100_000, 1000), range(1000, 5, 1)];
        let owners = Owners::Mapped { users: users.clone(), groups: users };
        let id = |raw| owners.of(raw, 0).map(|owner| owner.unwrap().0.as_raw());
        assert_eq!([id(0), id(999), id(1000)], [Ok(100_000), Ok(100_999), Ok(5)]);
        assert_eq!(id(1001), Err(Fault::Unmapped(1001)));
        assert_eq!(id(1 << 40), Err(Fault::Unmapped(1 << 40)));
        assert_eq!(Owners::Own.of(1 << 40, 0), Ok(None));
    }
}
