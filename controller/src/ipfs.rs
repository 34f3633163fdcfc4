//! A Kubo on this machine: where blocks that are not here may be, and, only if the operator says so, where datasets are
//! pinned once more: a Kubo announces and serves what it has to everybody.

use std::sync::Arc;

use selion_dataplane::{Cid, Kubo, KuboError, Source, Store, fetch};
use tokio::task::JoinHandle;

/// The operator's Kubo, if there is one; cheap to clone. The pool works the same without it.
#[derive(Clone)]
pub struct Ipfs {
    content: Store,
    kubo: Option<Arc<Kubo>>,
    publish: bool,
}

impl Ipfs {
    /// The Kubo whose RPC is at `url`, or none; datasets are made public by it only with `publish`.
    ///
    /// # Errors
    ///
    /// [`KuboError::BadUrl`] unless the URL is on this machine.
    pub fn new(content: Store, url: Option<&str>, publish: bool) -> Result<Self, KuboError> {
        let kubo = url.map(Kubo::new).transpose()?.map(Arc::new);
        Ok(Self { content, kubo, publish })
    }

    /// Asks Kubo for what is missing under `root`; every block is verified before it is kept. What is still missing
    /// afterwards is for the caller to name.
    pub async fn bring(&self, root: &Cid) {
        let Some(kubo) = &self.kubo else { return };
        let source: Arc<dyn Source> = kubo.clone();
        match fetch(&self.content, root, vec![source]).await {
            Ok(got) => tracing::debug!(%root, blocks = got.fetched_blocks, "fetched from Kubo"),
            Err(error) => tracing::info!(%root, %error, "Kubo could not bring all of it"),
        }
    }

    /// Pins `root` in Kubo too, in the background, if datasets are to be public; `None` if they are not. A failure is told
    /// and costs nothing: the pool has the blocks.
    pub fn share(&self, root: Cid) -> Option<JoinHandle<()>> {
        let kubo = self.kubo.clone().filter(|_| self.publish)?;
        let content = self.content.clone();
        Some(tokio::spawn(async move {
            match kubo.import(&content, &root).await {
                Ok(pushed) => tracing::info!(%root, blocks = pushed.sent_blocks, "pinned in Kubo"),
                Err(error) => tracing::warn!(%root, %error, "not pinned in Kubo"),
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;

    use super::*;

    #[tokio::test]
    async fn a_dataset_is_published_only_if_the_operator_says_so() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let kubo = Router::new().fallback(move || {
            count.fetch_add(1, Ordering::SeqCst);
            async { "{}" }
        });
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, kubo).await });

        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("in.txt"), "private").unwrap();
        let content = Store::open(dir.path().join("content")).unwrap();
        let root = content.add_path(dir.path().join("in.txt")).unwrap();
        let ipfs = |publish| Ipfs::new(content.clone(), Some(&url), publish).unwrap();
        assert!(ipfs(false).share(root).is_none());
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        ipfs(true).share(root).unwrap().await.unwrap();
        assert!(asked.load(Ordering::SeqCst) > 0);
    }
}
