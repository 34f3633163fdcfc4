//! What several tests need.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use axum::Router;
use bytes::Bytes;
use selion_dataplane::{Cid, Source, SourceError, Store};
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// Bytes that repeat with a prime period, so that no two chunks are alike.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

pub fn store() -> (TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store")).unwrap();
    (dir, store)
}

/// The file of the block in the store under `dir`.
pub fn block_file(dir: &Path, cid: &Cid) -> PathBuf {
    let hash = hex::encode(cid.hash().to_bytes());
    dir.join("store/blocks").join(&hash[hash.len() - 2..]).join(hash)
}

/// Flips one bit in the middle of a file.
pub fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// A router on a real socket of this machine, until dropped.
pub struct Server {
    pub url: String,
    task: JoinHandle<()>,
}

impl Server {
    pub async fn start(router: Router) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, task }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A store that counts what it is asked, and changes some answers.
pub struct Tampering {
    pub store: Store,
    pub lie: Lie,
    pub asked: AtomicU64,
    pub asked_for: Mutex<Vec<Cid>>,
}

pub enum Lie {
    /// None: the honest truth.
    Nothing,
    /// One bit of this block is flipped.
    Flip(Cid),
    /// This block is answered with the bytes of another.
    Swap(Cid, Cid),
    /// After so many answers the source is gone.
    DieAfter(u64),
    /// The first so many answers fail in a way that may pass.
    StumbleUntil(u64),
}

impl Tampering {
    pub fn new(store: &Store, lie: Lie) -> Self {
        Self { store: store.clone(), lie, asked: AtomicU64::new(0), asked_for: Mutex::default() }
    }

    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Source for Tampering {
    fn name(&self) -> String {
        "tampering".to_owned()
    }

    async fn block(&self, cid: &Cid) -> Result<Bytes, SourceError> {
        let before = self.asked.fetch_add(1, Ordering::SeqCst);
        self.asked_for.lock().unwrap().push(*cid);
        match &self.lie {
            Lie::Flip(target) if target == cid => {
                let mut bytes = self.store.get(cid)?.to_vec();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                Ok(bytes.into())
            }
            Lie::Swap(target, other) if target == cid => Ok(self.store.get(other)?),
            Lie::DieAfter(answers) if before >= *answers => Err(SourceError::Absent),
            Lie::StumbleUntil(answers) if before < *answers => Err(SourceError::Failed("stumbled".to_owned())),
            _ => self.store.block(cid).await,
        }
    }
}
