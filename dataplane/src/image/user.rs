//! Who the image's program runs as, by the image's own `/etc/passwd` and `/etc/group`.

use std::path::Path;

use super::ImageError;
use super::error::At;
use super::view::View;

/// Most bytes of either file that are read.
const MOST: u64 = 1 << 20;
/// Most groups beside the first.
const MOST_GROUPS: usize = 64;

/// Ids inside the image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub uid: u32,
    /// The first group.
    pub gid: u32,
    /// The other groups that the image's `/etc/group` lists the user in; none if a group was written.
    pub groups: Vec<u32>,
    /// Its folder, if the image's `/etc/passwd` has the user.
    pub home: Option<String>,
}

struct Account {
    name: String,
    uid: u32,
    gid: u32,
    home: String,
}

struct Group {
    name: String,
    gid: u32,
    members: Vec<String>,
}

/// Looks up `USER[:GROUP]`, each a name or a number. A number needs no entry; empty is `0:0`.
pub(super) fn look_up(view: &View, written: &str) -> Result<User, ImageError> {
    let missing = |why: String| ImageError::NoSuchUser { user: super::shown(written.as_bytes()), why };
    let (user, group) = match written.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (written, None),
    };
    let user = if user.is_empty() { "0" } else { user };
    let account = accounts(view)?.into_iter().find(|one| is(user, &one.name, one.uid));
    let groups = groups(view)?;
    let uid = match (&account, user.parse()) {
        (Some(account), _) => account.uid,
        (None, Ok(uid)) => uid,
        (None, Err(_)) => return Err(missing("its /etc/passwd has no such name".to_owned())),
    };
    let mut found = User { uid, home: account.as_ref().map(|one| one.home.clone()), ..User::default() };
    match group.filter(|group| !group.is_empty()) {
        Some(group) => {
            let known = groups.iter().find(|one| is(group, &one.name, one.gid)).map(|one| one.gid);
            found.gid = match known.or_else(|| group.parse().ok()) {
                Some(gid) => gid,
                None => return Err(missing("its /etc/group has no such group".to_owned())),
            };
        }
        None => {
            found.gid = account.as_ref().map_or(0, |account| account.gid);
            let name = account.map(|account| account.name).unwrap_or_default();
            let others = groups.iter().filter(|one| one.gid != found.gid && one.members.contains(&name));
            found.groups = others.map(|one| one.gid).take(MOST_GROUPS).collect();
        }
    }
    Ok(found)
}

/// A written word means the entry of that name, or of that number.
fn is(written: &str, name: &str, id: u32) -> bool {
    written == name || written.parse() == Ok(id)
}

fn accounts(view: &View) -> Result<Vec<Account>, ImageError> {
    Ok(lines(view, "/etc/passwd")?.iter().filter_map(|line| account(line)).collect())
}

fn account(line: &str) -> Option<Account> {
    let parts: Vec<&str> = line.split(':').collect();
    let (uid, gid) = (parts.get(2)?.parse().ok()?, parts.get(3)?.parse().ok()?);
    let home = parts.get(5).copied().unwrap_or_default().to_owned();
    Some(Account { name: parts[0].to_owned(), uid, gid, home })
}

fn groups(view: &View) -> Result<Vec<Group>, ImageError> {
    let read = |line: &String| {
        let parts: Vec<&str> = line.split(':').collect();
        let members = parts.get(3).copied().unwrap_or_default().split(',').map(str::to_owned);
        let members = members.filter(|name| !name.is_empty()).collect();
        Some(Group { name: parts[0].to_owned(), gid: parts.get(2)?.parse().ok()?, members })
    };
    Ok(lines(view, "/etc/group")?.iter().filter_map(read).collect())
}

/// The lines of a file in the image that are text; none if it has no such file.
fn lines(view: &View, path: &str) -> Result<Vec<String>, ImageError> {
    let path = Path::new(path);
    let bytes = view.read(path, MOST).at(path)?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
}
