//! The file in which a member reads where the members of its gang are. It is renamed into place at the start and at each
//! change, so a reader sees the old or the new one. The folder is the member's own: what it puts in the way harms itself.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use selion_api::agent::Peer;

use super::Rooms;

/// Its name in the working directory.
const FILE: &str = ".selion-peers";

/// `SELION_PEERS_FILE`.
#[must_use]
pub fn path(rooms: &Rooms) -> PathBuf {
    rooms.work.join(FILE)
}

/// One line a member, by rank: `rank host:port attempt`. A higher attempt at a rank is another process than before.
#[must_use]
pub fn text(peers: &[Peer]) -> String {
    let mut peers: Vec<&Peer> = peers.iter().collect();
    peers.sort_by_key(|peer| peer.rank);
    peers.into_iter().map(|peer| format!("{} {} {}\n", peer.rank, peer.address, peer.attempt)).collect()
}

/// Puts the file in place.
///
/// # Errors
///
/// The file system's: a full disk, or something of the member's own that stands in the way.
pub fn write(rooms: &Rooms, peers: &[Peer]) -> io::Result<()> {
    let new = rooms.work.join(format!("{FILE}.new"));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Made anew, so that no link of the member's is followed.
    let mut file = OpenOptions::new().write(true).create_new(true).open(&new)?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.write_all(text(peers).as_bytes())?;
    fs::rename(new, path(rooms))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(rank: u16, attempt: u32) -> Peer {
        Peer { rank, address: format!("10.0.0.{rank}:1"), attempt }
    }

    #[test]
    fn the_file_is_replaced_whole_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let rooms = Rooms::make(&dir.path().join("rooms")).unwrap();
        write(&rooms, &[peer(1, 1), peer(0, 1)]).unwrap();
        let read = || fs::read_to_string(path(&rooms)).unwrap();
        assert_eq!(read(), "0 10.0.0.0:1 1\n1 10.0.0.1:1 1\n");
        let foreign = dir.path().join("foreign");
        fs::write(&foreign, "mine").unwrap();
        for name in [FILE.to_owned(), format!("{FILE}.new")] {
            let _ = fs::remove_file(rooms.work.join(&name));
            std::os::unix::fs::symlink(&foreign, rooms.work.join(name)).unwrap();
        }
        write(&rooms, &[peer(0, 1), peer(1, 2)]).unwrap();
        assert_eq!(read(), "0 10.0.0.0:1 1\n1 10.0.0.1:1 2\n");
        assert_eq!(fs::read_to_string(&foreign).unwrap(), "mine");
        fs::create_dir(rooms.work.join(format!("{FILE}.new"))).unwrap();
        assert!(write(&rooms, &[]).is_err(), "what stands in the way is told");
    }
}
