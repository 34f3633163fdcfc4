//! One pass over a tree on disk. Iterative: a frame and a descriptor for each level, and levels are limited.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use cid::Cid;

use super::add::open_lone;
use super::added::{AddRules, Added, Faults, Links, MAX_NAMED, Skipped};
use super::error::At;
use super::links::inside;
use super::{Store, StoreError};
use crate::beneath::{Folder, Kind};
use crate::dag::{self, CHUNK, Entry, MAX_BLOCK};

/// Bytes that a name costs in the node of its folder, besides itself: a CID, a size and the marks around them.
const ENTRY_BYTES: usize = 60;
/// Characters of a path that a message shows.
const MAX_SHOWN: usize = 300;

/// A pass.
pub(super) struct Tree<'a> {
    store: &'a Store,
    rules: &'a AddRules,
    watch: &'a mut dyn FnMut(&Added),
    added: Added,
}

/// A folder of which some entries are still to come.
struct Frame {
    folder: Folder,
    name: OsString,
    mode: Option<u32>,
    rest: std::vec::IntoIter<OsString>,
    entries: Vec<Entry>,
}

/// Why an entry is not kept.
enum Fault {
    /// Something about the entry.
    Entry(String),
    /// It passes a limit.
    Limit(u64, &'static str),
    /// The store failed, or the system has run out of something: nothing goes on.
    Store(StoreError),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl<'a> Tree<'a> {
    pub fn new(store: &'a Store, rules: &'a AddRules, watch: &'a mut dyn FnMut(&Added)) -> Self {
        let added = Added { cid: Cid::default(), bytes: 0, files: 0, others: 0, skipped: Vec::new(), skipped_total: 0 };
        Self { store, rules, watch, added }
    }

    pub fn into_added(self, cid: Cid) -> Added {
        Added { cid, ..self.added }
    }

    /// A root that is no folder.
    pub fn lone(&mut self, path: &Path) -> Result<Cid, StoreError> {
        let refuse = |why: String| {
            let faults = vec![Skipped { path: ".".to_owned(), why }];
            StoreError::NotAddable { path: path.to_owned(), faults, total: 1 }
        };
        let (file, length, mode) = open_lone(path)?.map_err(|kind| refuse(it_is(kind)))?;
        match self.file(&file, length, mode) {
            Ok((cid, _)) => Ok(cid),
            Err(Fault::Entry(why)) => Err(refuse(why)),
            Err(Fault::Limit(limit, what)) => Err(StoreError::OverLimit { path: path.to_owned(), limit, what }),
            Err(Fault::Store(error)) => Err(error),
        }
    }

    /// A root that is a folder, and everything below it.
    pub fn folder(&mut self, root: Folder, path: &Path) -> Result<Cid, StoreError> {
        let mut stack = Vec::new();
        match self.open(root, OsString::new(), &stack) {
            Ok(frame) => stack.push(frame),
            Err(Fault::Entry(why)) => return Err(io::Error::other(why)).at(path),
            Err(fault) => self.fault(fault, &stack, OsStr::new("."))?,
        }
        while let Some(top) = stack.last_mut() {
            let Some(name) = top.rest.next() else {
                let Some(done) = stack.pop() else { break };
                let name = done.name.clone();
                let (cid, tsize) = self.close(done)?;
                match stack.last_mut() {
                    None => return Ok(cid),
                    // The name was checked when the folder was entered.
                    Some(parent) => {
                        parent.entries.push(Entry { name: name.to_string_lossy().into_owned(), cid, tsize });
                    }
                }
                continue;
            };
            match self.entry(&mut stack, &name) {
                Ok(()) => {}
                Err(fault) => self.fault(fault, &stack, &name)?,
            }
            (self.watch)(&self.added);
        }
        Err(io::Error::other("the walk ended without a root")).at(path)
    }

    /// One name of the folder on top of `stack`; a folder is put on top.
    fn entry(&mut self, stack: &mut Vec<Frame>, name: &OsStr) -> Result<(), Fault> {
        let depth = stack.len();
        let Some(top) = stack.last_mut() else { return Ok(()) };
        let text = name.to_str().ok_or_else(|| Fault::Entry("its name is not UTF-8".to_owned()))?;
        dag::check_name(text).map_err(|error| Fault::Entry(error.to_string()))?;
        self.room(self.added.files + self.added.others + 1, self.rules.limits.entries, "files and folders")?;
        let look = top.folder.look(name).map_err(unread)?;
        let (cid, tsize) = match look.kind {
            Kind::File => {
                let (file, look) = top.folder.file(name).map_err(unread)?;
                self.file(&file, look.bytes, look.mode)?
            }
            Kind::Link => {
                let target = top.folder.link(name).map_err(unread)?;
                let target = self.target(&target, depth - 1)?;
                let (block, tsize) = dag::link_node(&target).map_err(|error| Fault::Entry(error.to_string()))?;
                self.store.write_block(&block)?;
                self.added.others += 1;
                (block.cid, tsize)
            }
            Kind::Folder => {
                let most = self.rules.limits.depth.min(dag::FOLDER_LEVELS);
                self.room(depth as u64 + 1, most as u64, "levels of folders")?;
                let folder = top.folder.folder(name).map_err(unread)?;
                let frame = self.open(folder, name.to_owned(), stack)?;
                stack.push(frame);
                return Ok(());
            }
            kind => return Err(Fault::Entry(it_is(kind))),
        };
        top.entries.push(Entry { name: text.to_owned(), cid, tsize });
        Ok(())
    }

    /// Lists a folder, as far as limits let it.
    fn open(&mut self, folder: Folder, name: OsString, above: &[Frame]) -> Result<Frame, Fault> {
        let limit = self.rules.limits.entries;
        self.added.others += 1;
        let left = limit.saturating_sub(self.added.files + self.added.others);
        let mode = folder.itself().map_err(unread)?.mode;
        let (mut names, more) = folder.names(usize::try_from(left).unwrap_or(usize::MAX)).map_err(unread)?;
        if more {
            self.fault(Fault::Limit(limit, "files and folders"), above, &name)?;
        }
        // The node sorts for itself; here the order decides which entries are the first to be named or left out.
        names.sort_unstable();
        let mut bytes = 0;
        let fit = names.iter().take_while(|name| {
            bytes += ENTRY_BYTES + name.len();
            bytes < MAX_BLOCK
        });
        let fit = fit.count();
        for name in names.drain(fit..) {
            let why = "its folder has more names than fit in one block of 2 MiB: spread them over subfolders";
            self.fault(Fault::Entry(why.to_owned()), above, &name)?;
        }
        let mode = dag::folder_mode(mode).filter(|_| self.rules.modes);
        Ok(Frame { folder, name, mode, rest: names.into_iter(), entries: Vec::new() })
    }

    fn close(&self, frame: Frame) -> Result<(Cid, u64), StoreError> {
        let (block, tsize) = dag::folder_node(frame.entries, frame.mode)?;
        self.store.write_block(&block)?;
        Ok((block.cid, tsize))
    }

    fn file(&mut self, file: &File, length: u64, mode: u32) -> Result<(Cid, u64), Fault> {
        self.room(self.added.bytes.saturating_add(length), self.rules.limits.bytes, "bytes")?;
        let count = usize::try_from(length.div_ceil(CHUNK as u64).max(1)).unwrap_or(usize::MAX);
        let mode = dag::file_mode(mode).filter(|_| self.rules.modes);
        let root = self.store.add_file(count, mode, |index, leaf: &dyn Fn(&[u8]) -> Result<(), Fault>| {
            let offset = index as u64 * CHUNK as u64;
            let want = (length - offset).min(CHUNK as u64) as usize;
            let mut bytes = vec![0; want];
            file.read_exact_at(&mut bytes, offset).map_err(unread)?;
            leaf(&bytes)
        })?;
        if file.metadata().map_err(unread)?.len() != length {
            return Err(changed());
        }
        self.added.bytes += length;
        self.added.files += 1;
        Ok((root.cid, root.tsize))
    }

    /// What a link of a folder `depth` levels below the root says in the tree.
    fn target(&self, target: &OsStr, depth: usize) -> Result<String, Fault> {
        let Some(text) = target.to_str() else {
            return Err(Fault::Entry("it is a symbolic link whose target is not UTF-8".to_owned()));
        };
        match &self.rules.links {
            Links::Any => Ok(text.to_owned()),
            Links::Inside(seen_as) => inside(text, depth, seen_as)
                .ok_or_else(|| Fault::Entry("it is a symbolic link that leaves the folder".to_owned())),
        }
    }

    fn room(&self, have: u64, limit: u64, what: &'static str) -> Result<(), Fault> {
        if have <= limit { Ok(()) } else { Err(Fault::Limit(limit, what)) }
    }

    /// Notes a fault of `name` in the folder on top of `stack`, and goes on, or not.
    fn fault(&mut self, fault: Fault, stack: &[Frame], name: &OsStr) -> Result<(), StoreError> {
        let why = match fault {
            Fault::Store(error) => return Err(error),
            Fault::Limit(limit, what) if self.rules.faults == Faults::Refuse => {
                return Err(StoreError::OverLimit { path: shown(stack, name).into(), limit, what });
            }
            Fault::Limit(limit, what) => format!("more than the {limit} {what} allowed"),
            Fault::Entry(why) => why,
        };
        self.added.skipped_total += 1;
        if self.added.skipped.len() < MAX_NAMED {
            self.added.skipped.push(Skipped { path: shown(stack, name), why });
        }
        Ok(())
    }
}

/// The path below the root; of a very long one the end.
fn shown(stack: &[Frame], name: &OsStr) -> String {
    let mut path = Vec::new();
    for part in stack.iter().skip(1).map(|frame| frame.name.as_os_str()).chain([name]) {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(part.as_bytes());
    }
    // A terminal must not obey what a file is called.
    let path: String = String::from_utf8_lossy(&path)
        .chars()
        .flat_map(|one| if one.is_control() { one.escape_default().collect() } else { vec![one] })
        .collect();
    match path.char_indices().rev().nth(MAX_SHOWN) {
        None => path,
        Some((start, _)) => format!("...{}", &path[start..]),
    }
}

fn it_is(kind: Kind) -> String {
    let what = match kind {
        Kind::File => "a file",
        Kind::Folder => "a folder",
        Kind::Link => "a symbolic link",
        Kind::Pipe => "a pipe",
        Kind::Socket => "a socket",
        Kind::Device => "a device",
    };
    format!("it is {what}")
}

fn changed() -> Fault {
    Fault::Entry("it changed while it was read".to_owned())
}

/// An entry that cannot be read is left out; a system that has run out of descriptors or memory ends the pass.
fn unread(error: io::Error) -> Fault {
    use nix::libc;
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => {
            Fault::Store(StoreError::Io { path: "the tree".into(), source: error })
        }
        // What was a file or a folder a moment ago is now something else.
        Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP) => changed(),
        _ if error.kind() == io::ErrorKind::UnexpectedEof => changed(),
        _ => Fault::Entry(format!("it cannot be read: {error}")),
    }
}
