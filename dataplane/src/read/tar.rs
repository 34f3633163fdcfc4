//! A folder as a tar archive: POSIX ustar, with a pax header before each entry that does not fit in one.

use bytes::{BufMut, Bytes, BytesMut};
use cid::Cid;

use super::leaves::Leaves;
use super::{Chunks, Found, Pieces, ReadError, chunks, find};
use crate::dag::{DagError, Entry, FILE_MODE, FOLDER_MODE, Kind, Limits, Node};
use crate::source::blocking;
use crate::store::{Store, StoreError};

const BLOCK: usize = 512;
/// Largest size that the twelve bytes of the field hold.
const MAX_SIZE: u64 = 0o77_777_777_777;

/// The folder or file at `path` below `root` as a tar stream: paths, modes, links. Its entries are below `name`. Times
/// are those of 1970, since none are kept, and the owner is nobody: equal content makes equal archives.
///
/// # Errors
///
/// [`ReadError`]; later, in the stream, those of the store, and of a tree deeper or larger than `limits` by path.
pub async fn tar(store: &Store, root: &Cid, path: &str, name: &str, limits: Limits) -> Result<Chunks, ReadError> {
    let (finder, root, wanted) = (store.clone(), *root, path.to_owned());
    let cid = match blocking(move || find(&finder, &root, &wanted)).await? {
        Found::File { cid, .. } | Found::Folder { cid } => cid,
    };
    let top = Entry { name: name.to_owned(), cid, tsize: 0 };
    let archive =
        Archive { root: cid, limits, entries: 0, bytes: 0, stack: vec![Level::of(vec![top])], state: State::Next };
    Ok(chunks(store.clone(), archive))
}

/// An archive being made.
struct Archive {
    root: Cid,
    limits: Limits,
    entries: u64,
    bytes: u64,
    stack: Vec<Level>,
    state: State,
}

/// A folder some of whose entries are still to come.
struct Level {
    path: String,
    /// The next one last.
    rest: Vec<Entry>,
}

enum State {
    /// The next entry comes.
    Next,
    /// A file is under way; bytes that fill its last block come after it.
    File(Leaves, usize),
    Over,
}

impl Level {
    fn of(mut entries: Vec<Entry>) -> Self {
        entries.reverse();
        Self { path: String::new(), rest: entries }
    }
}

impl Pieces for Archive {
    fn next(&mut self, store: &Store) -> Result<Option<Bytes>, StoreError> {
        match &mut self.state {
            State::Over => Ok(None),
            State::File(leaves, fill) => {
                if let Some(bytes) = leaves.next(store)? {
                    return Ok(Some(bytes));
                }
                let fill = vec![0; *fill];
                self.state = State::Next;
                // An empty chunk is nothing to send, and no end.
                if fill.is_empty() { self.next_entry(store) } else { Ok(Some(fill.into())) }
            }
            State::Next => self.next_entry(store),
        }
    }
}

impl Archive {
    fn next_entry(&mut self, store: &Store) -> Result<Option<Bytes>, StoreError> {
        let (entry, path) = loop {
            let Some(level) = self.stack.last_mut() else {
                self.state = State::Over;
                return Ok(Some(Bytes::from_static(&[0; 2 * BLOCK])));
            };
            match level.rest.pop() {
                Some(entry) => {
                    let path = format!("{}{}", level.path, entry.name);
                    break (entry, path);
                }
                None => drop(self.stack.pop()),
            }
        };
        let node = store.node(&entry.cid)?;
        self.count(&node)?;
        let mut out = BytesMut::new();
        let (size, mode) = (node.size(), node.mode);
        match node.kind {
            Kind::Link(target) => header(&mut out, &path, b'2', 0o777, 0, &target),
            Kind::Folder(entries) => {
                let path = format!("{path}/");
                header(&mut out, &path, b'5', mode.unwrap_or(FOLDER_MODE), 0, "");
                if self.stack.len() >= self.limits.depth {
                    return Err(DagError::TooDeep { cid: entry.cid.into(), limit: self.limits.depth }.into());
                }
                self.stack.push(Level { path, ..Level::of(entries) });
            }
            Kind::Leaf(_) | Kind::File(_) => {
                let size = size.unwrap_or(0);
                header(&mut out, &path, b'0', mode.unwrap_or(FILE_MODE), size, "");
                let fill = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
                self.state = State::File(Leaves::new(entry.cid, size, 0, size), fill as usize);
            }
        }
        Ok(Some(out.freeze()))
    }

    /// A small DAG can unfold into a tree without end: both are counted by path.
    fn count(&mut self, node: &Node) -> Result<(), DagError> {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(node.size().unwrap_or(0));
        let (root, limits) = (Box::new(self.root), &self.limits);
        if self.entries > limits.entries {
            return Err(DagError::TooManyEntries { root, limit: limits.entries });
        }
        if self.bytes > limits.bytes {
            return Err(DagError::TooLarge { root, limit: limits.bytes });
        }
        Ok(())
    }
}

fn header(out: &mut BytesMut, path: &str, kind: u8, mode: u32, size: u64, target: &str) {
    let mut records = String::new();
    for (key, value) in [("path", path), ("linkpath", target)] {
        if value.len() > 100 || !value.is_ascii() {
            record(&mut records, key, value);
        }
    }
    if size > MAX_SIZE {
        record(&mut records, "size", &size.to_string());
    }
    if !records.is_empty() {
        ustar(out, "pax", b'x', 0o644, records.len() as u64, "");
        out.extend_from_slice(records.as_bytes());
        let fill = (BLOCK - records.len() % BLOCK) % BLOCK;
        out.put_bytes(0, fill);
    }
    ustar(out, path, kind, mode, size.min(MAX_SIZE), target);
}

/// One pax record: its length in decimal, which counts itself.
fn record(out: &mut String, key: &str, value: &str) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    out.push_str(&format!("{length} {key}={value}\n"));
}

fn ustar(out: &mut BytesMut, path: &str, kind: u8, mode: u32, size: u64, target: &str) {
    let mut block = [0_u8; BLOCK];
    let mut put = |at: usize, bytes: &[u8], room: usize| {
        let length = bytes.len().min(room);
        block[at..at + length].copy_from_slice(&bytes[..length]);
    };
    put(0, path.as_bytes(), 100);
    put(100, format!("{mode:07o}").as_bytes(), 7);
    put(108, b"0000000", 7);
    put(116, b"0000000", 7);
    put(124, format!("{size:011o}").as_bytes(), 11);
    put(136, b"00000000000", 11);
    put(148, b"        ", 8);
    put(156, &[kind], 1);
    put(157, target.as_bytes(), 100);
    put(257, b"ustar\x0000", 8);
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.extend_from_slice(&block);
}
