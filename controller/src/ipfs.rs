//! A Kubo on this machine: where blocks that are not here may be, and, only if the operator says so, where datasets are
//! pinned once more: a Kubo announces and serves what it has to everybody.

use std::sync::Arc;

use selion_dataplane::{Cid, Kubo, KuboError, Source, Store, fetch};

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

    /// Pins `root` in Kubo too, in the background, if datasets are to be public. A failure is told and costs nothing: the pool has the blocks.
    pub fn share(&self, root: Cid) {
        let Some(kubo) = self.kubo.clone().filter(|_| self.publish) else { return };
        let content = self.content.clone();
        tokio::spawn(async move {
            match kubo.import(&content, &root).await {
                Ok(pushed) => tracing::info!(%root, blocks = pushed.sent_blocks, "pinned in Kubo"),
                Err(error) => tracing::warn!(%root, %error, "not pinned in Kubo"),
            }
        });
    }
}
