//! The secrets of a command: files in memory that only it reads, in a file system of their own, which ends with the box.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::Path;

use nix::mount::{MsFlags, mount};

use super::Trouble;
use super::plan::{SecretFile, View};
use super::tree::{self, NODEV, NOSUID, RDONLY};
use super::view::{folder, told};
use crate::runtime::SECRETS;

/// A page of memory in bytes, where a kernel has the largest: a file takes whole ones.
const PAGE: u64 = 64 << 10;

/// What is put there, and whose it becomes.
#[derive(Debug)]
pub(super) struct Secrets {
    files: Vec<SecretFile>,
    uid: u32,
    gid: u32,
}

impl Secrets {
    /// Those of a view, for its command's person.
    pub(super) fn of(view: &View) -> Self {
        let person = &view.ids.person;
        Self { files: view.secrets.clone(), uid: person.uid, gid: person.gid }
    }

    /// Puts them at their place; without any there is none. What an image has there is covered.
    pub(super) fn put(&self) -> Result<(), Trouble> {
        if self.files.is_empty() {
            return Ok(());
        }
        let place = folder(Path::new(SECRETS))?;
        self.memory(&place)?;
        for file in &self.files {
            let path = place.join(&file.name);
            let made = OpenOptions::new().write(true).create_new(true).mode(0o400).open(&path);
            made.and_then(|mut made| made.write_all(&file.value)).map_err(|error| told("write", &path, &error))?;
            chown(&path, Some(self.uid), Some(self.gid)).map_err(|error| told("give away", &path, &error))?;
        }
        tree::restrict(&place, RDONLY | NOSUID | NODEV).map_err(|error| told("restrict", &place, &error))
    }

    /// A file system in memory. Its pages are the lease's: one whose memory is held has no swap, so neither have they. The kernel
    /// takes `noswap` of no mount in a user namespace.
    fn memory(&self, place: &Path) -> Result<(), Trouble> {
        let pages: u64 = self.files.iter().map(|file| (file.value.len() as u64).div_ceil(PAGE) + 1).sum();
        let inodes = self.files.len() + 1;
        let options = format!("mode=0755,size={},nr_inodes={inodes}", (pages + 1) * PAGE);
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let made = mount(Some("tmpfs"), place, Some("tmpfs"), flags, Some(options.as_str()));
        made.map_err(|errno| format!("mount tmpfs at {}: {errno}", place.display()))
    }
}
