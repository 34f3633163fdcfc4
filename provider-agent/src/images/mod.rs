//! The root file systems of leases: images of registries, of the pool's content, and the node's own base.

mod base;
mod contents;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;

use selion_api::commit::{Root, Work};
use selion_dataplane::Cid;
use selion_dataplane::image::{
    CacheRules, Credentials, Digest, Image, ImageCache, ImageError, OnProgress, Overrides, PullProgress, PullRules,
    Reference, Registry, RegistryRules, Start,
};
use serde::{Deserialize, Serialize};

use crate::config::Registries;
use crate::runtime::{self, Person, RootFs, remove_tree};
use crate::staging::blocking;

use base::Base;
pub use base::recipe;
use contents::Contents;

/// Owner of the pin of the base.
const BASE: &str = "base";
/// File in the cache's folder that names the base.
const BASE_FILE: &str = "base.json";
/// Folder in the cache's folder that says which image content is.
const CONTENTS: &str = "contents";

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum ImagesError {
    /// The image.
    #[error("image")]
    Image(#[from] ImageError),
    /// The machine has not what the base is made of.
    #[error("the root of leases without an image cannot be made: {0}")]
    Base(String),
    /// The lease asks for what this node does not give.
    #[error("{0}")]
    NotHere(&'static str),
    /// The file system.
    #[error("{}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What.
        #[source]
        source: io::Error,
    },
}

/// Which base was made of what.
#[derive(Serialize, Deserialize)]
struct Made {
    fingerprint: String,
    id: String,
}

/// The images of a node.
#[derive(Clone, Debug)]
pub struct Images {
    cache: ImageCache,
    contents: Contents,
    registry: Registry,
    base: Image,
    machine: bool,
}

impl Images {
    /// Opens the cache in `dir`, and makes the base if the machine's programs are others than when it was made. With `machine`
    /// the owner shows leases the machine's own programs.
    ///
    /// # Errors
    ///
    /// [`ImagesError`].
    pub async fn open(dir: &Path, bytes: u64, registries: &Registries, machine: bool) -> Result<Self, ImagesError> {
        let rules = CacheRules { bytes, owners: runtime::owners() };
        let path = dir.to_owned();
        let cache = blocking(move || ImageCache::open(path, rules)).await?;
        let registry = Registry::new(RegistryRules {
            plain_http: registries.plain_http.clone(),
            private: registries.private.clone(),
            ..RegistryRules::default()
        })?;
        let base = base_image(&cache, dir).await?;
        let path = dir.join(CONTENTS);
        let contents = Contents::open(path.clone()).map_err(|source| ImagesError::Io { path, source })?;
        Ok(Self { cache, contents, registry, base, machine })
    }

    /// Withdraws the pins of members of an earlier life, but of those that may run on.
    ///
    /// # Errors
    ///
    /// [`ImagesError::Image`].
    pub fn forget_members_but(&self, stay: &[String]) -> Result<(), ImagesError> {
        for pin in self.cache.pins() {
            if pin.owner != BASE && !stay.contains(&pin.owner) {
                self.cache.unpin(&pin.owner, &pin.id)?;
            }
        }
        Ok(())
    }

    /// The base as the root of a command, of its own user in the box's own folder.
    ///
    /// # Errors
    ///
    /// [`ImagesError::Image`].
    pub fn base_root(&self) -> Result<RootFs, ImagesError> {
        let user = self.base.user(&self.base.config().user)?;
        let person = Person { uid: user.uid, gid: user.gid, groups: user.groups };
        Ok(RootFs::Image { lower: self.base.lower(), person, cwd: runtime::WORK.into() })
    }

    /// The image of a work; `None` if it runs among the machine's own programs. A registry is shown `credentials`;
    /// `archive` brings content to a path, unless it is here as an image. `say` is told how far it is.
    ///
    /// # Errors
    ///
    /// [`ImagesError`]; what came of the image is kept for the next pull.
    pub async fn bring<E: From<ImagesError>>(
        &self,
        work: &Work,
        credentials: &Credentials,
        archive: impl AsyncFnOnce(&str) -> Result<PathBuf, E>,
        say: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<Option<Image>, E> {
        let say = Arc::new(say);
        let rules = PullRules { progress: Some(progress(Arc::clone(&say))), ..PullRules::default() };
        let image = match &work.root {
            Root::Machine if self.machine => return Ok(None),
            Root::Machine => {
                let why = "this node does not show its own programs to leases; name an image, or leave --root away";
                return Err(ImagesError::NotHere(why).into());
            }
            Root::Base => return Ok(Some(self.base.clone())),
            Root::Registry(name) => self.pull(name, credentials, &rules).await?,
            Root::Content(cid) => match self.known(cid).await {
                Some(image) => image,
                None => {
                    let path = archive(cid).await?;
                    self.load(cid, path, &rules).await?
                }
            },
        };
        say(format!("image {} is here, every layer verified", image.id()));
        Ok(Some(image))
    }

    /// The image that this content is, if it is here.
    async fn known(&self, cid: &str) -> Option<Image> {
        let cid: Cid = cid.parse().ok()?;
        let (contents, cache) = (self.contents.clone(), self.cache.clone());
        blocking(move || contents.image(&cid, &cache)).await
    }

    /// Reads the image out of content that lies at `path`, which goes.
    async fn load(&self, cid: &str, path: PathBuf, rules: &PullRules) -> Result<Image, ImagesError> {
        let loaded = self.cache.load(&path, None, rules).await;
        let gone = blocking(move || remove_tree(&path)).await;
        gone.map_err(|source| ImagesError::Io { path: self.dir(), source })?;
        let image = loaded?;
        if let Ok(cid) = cid.parse::<Cid>() {
            let (contents, cache, known) = (self.contents.clone(), self.cache.clone(), image.clone());
            if let Err(error) = blocking(move || contents.remember(&cid, &known, &cache)).await {
                tracing::warn!(%cid, %error, "the image is fetched again for the next lease");
            }
        }
        Ok(image)
    }

    async fn pull(&self, name: &str, credentials: &Credentials, rules: &PullRules) -> Result<Image, ImagesError> {
        let reference: Reference = name.parse()?;
        if reference.digest().is_none() {
            return Err(ImagesError::NotHere("the lease names an image by a tag, which may move; nothing was run"));
        }
        let pinned = self.registry.resolve(&reference, credentials).await?;
        Ok(self.cache.pull(&self.registry, &pinned, credentials, rules).await?)
    }

    /// Keeps the image for a member, over restarts of the agent.
    ///
    /// # Errors
    ///
    /// [`ImagesError::Image`].
    pub fn pin(&self, member: &str, image: &Image) -> Result<(), ImagesError> {
        Ok(self.cache.pin(member, &image.id())?)
    }

    /// Withdraws whatever was kept for a member.
    ///
    /// # Errors
    ///
    /// [`ImagesError::Image`].
    pub fn unpin(&self, member: &str) -> Result<(), ImagesError> {
        for pin in self.cache.pins().into_iter().filter(|pin| pin.owner == member) {
            self.cache.unpin(member, &pin.id)?;
        }
        Ok(())
    }

    fn dir(&self) -> PathBuf {
        self.base.lower().first().cloned().unwrap_or_default()
    }
}

/// What is executed in the image, with the work's words over the image's. Reads files of the image.
///
/// # Errors
///
/// [`ImageError`]: no program is named, or no such user is in the image.
pub fn start(image: &Image, work: &Work) -> Result<Start, ImageError> {
    image.start(&Overrides {
        entrypoint: work.over.entrypoint.clone(),
        args: (!work.command.is_empty()).then(|| work.command.clone()),
        env: Vec::new(),
        working_dir: work.over.working_dir.clone(),
        user: work.over.user.clone(),
    })
}

async fn base_image(cache: &ImageCache, dir: &Path) -> Result<Image, ImagesError> {
    let file = dir.join(BASE_FILE);
    let base = blocking(Base::of_this_machine).await.map_err(ImagesError::Base)?;
    let made = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice::<Made>(&text).ok());
    let known =
        made.filter(|made| made.fingerprint == base.fingerprint).and_then(|made| made.id.parse::<Digest>().ok());
    if let Some(image) = known.map(|id| cache.get(&id)).transpose()?.flatten() {
        return Ok(image);
    }
    let layout = dir.join("base");
    let fault = |path: &Path| {
        let path = path.to_owned();
        move |source| ImagesError::Io { path, source }
    };
    remove_tree(&layout).map_err(fault(&layout))?;
    let (recipe, place) = (base.recipe, layout.clone());
    blocking(move || recipe.write(&place)).await?;
    let image = cache.load(&layout, None, &PullRules::default()).await?;
    remove_tree(&layout).map_err(fault(&layout))?;
    cache.pin(BASE, &image.id())?;
    for pin in cache.pins().into_iter().filter(|pin| pin.owner == BASE && pin.id != image.id()) {
        cache.unpin(BASE, &pin.id)?;
    }
    let made = Made { fingerprint: base.fingerprint, id: image.id().to_string() };
    let text = serde_json::to_vec(&made).map_err(|error| fault(&file)(io::Error::other(error)))?;
    std::fs::write(&file, text).map_err(fault(&file))?;
    Ok(image)
}

/// Tells of a pull in some ten lines.
fn progress(say: Arc<impl Fn(String) + Send + Sync + 'static>) -> OnProgress {
    let told = Mutex::new(None);
    Arc::new(move |now: PullProgress| {
        let tenth = (now.bytes_done * 10).checked_div(now.bytes_total).unwrap_or(10);
        let step = (tenth, now.layers_done == now.layers_total);
        let mut told = told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *told != Some(step) {
            *told = Some(step);
            say(format!(
                "image: {} of {} bytes, {} of {} layers unpacked",
                now.bytes_done, now.bytes_total, now.layers_done, now.layers_total
            ));
        }
    })
}
