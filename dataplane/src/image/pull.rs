//! From a name to an image in the cache.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::OwnedMutexGuard;

use super::cache::{Inner, LayerHold, Part, Record, Reservation};
use super::compose::Stack;
use super::digest::Hashing;
use super::error::At;
use super::local::{self, Local, Region, Wanted};
use super::manifest::{self, Blob, Document};
use super::platform::{choose, wrong};
use super::registry::Session;
use super::unpack::{self, Sums};
use super::{
    Credentials, Devices, Digest, Fault, Image, ImageCache, ImageConfig, ImageError, ImageLimits, Pinned, Platform,
    Registry,
};
use crate::Stop;
use crate::source::blocking;

/// Layers of a local image that are worked on at a time.
const LOCAL_PARALLEL: usize = 2;

/// Told how far a pull is. Called often, from several threads, one call at a time or not: it must be quick.
pub type OnProgress = Arc<dyn Fn(PullProgress) + Send + Sync>;

/// How far one image is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PullProgress {
    /// Bytes of layers, as they are sent, that are here. Those of layers that the cache has count.
    pub bytes_done: u64,
    /// Bytes of all layers as they are sent.
    pub bytes_total: u64,
    /// Layers unpacked.
    pub layers_done: u64,
    /// All layers.
    pub layers_total: u64,
}

/// What is pulled, and how much at most.
#[derive(Clone)]
pub struct PullRules {
    /// What it has to run on.
    pub platform: Platform,
    /// How much at most. Depth, names and attributes count when a layer is unpacked, everything else always.
    pub limits: ImageLimits,
    /// What becomes of device nodes.
    pub devices: Devices,
    /// Longest time for the whole. What has come by then is kept for the next pull.
    pub deadline: Duration,
    /// Who is told.
    pub progress: Option<OnProgress>,
}

/// This machine, two hours, nobody told.
impl Default for PullRules {
    fn default() -> Self {
        Self {
            platform: Platform::of_this_machine(),
            limits: ImageLimits::default(),
            devices: Devices::default(),
            deadline: Duration::from_secs(2 * 3600),
            progress: None,
        }
    }
}

impl fmt::Debug for PullRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { platform, limits, devices, deadline, .. } = self;
        let mut shown = f.debug_struct("PullRules");
        shown.field("platform", platform).field("limits", limits).field("devices", devices).field("deadline", deadline);
        shown.finish_non_exhaustive()
    }
}

/// What an image is made of, before any of its layers is here.
struct Parcel {
    names: Vec<String>,
    manifests: Vec<Digest>,
    config: Vec<u8>,
    layers: Vec<Source>,
    session: Option<Session>,
}

/// Where a layer comes from.
#[derive(Clone)]
enum Source {
    Remote(Blob),
    Local(Option<Digest>, Region),
}

impl Source {
    fn bytes(&self) -> u64 {
        match self {
            Self::Remote(blob) => blob.size,
            Self::Local(_, region) => region.len(),
        }
    }
}

/// What all layers of a pull share.
struct Work<'a> {
    inner: &'a Arc<Inner>,
    session: Option<&'a Session>,
    rules: &'a PullRules,
    sums: Arc<Sums>,
    meter: Meter,
    /// Says so once nobody waits for the pull any more.
    stop: Stop,
}

impl ImageCache {
    /// Gets an image from a registry: what of it is not here is fetched, verified and unpacked. The registry is asked for
    /// the manifest also if everything is here, so that nobody gets an image who may not have it. If the future is dropped,
    /// the work stops; what has come stays for the next pull. Pulls of one image at a time do the work once.
    ///
    /// # Errors
    ///
    /// [`ImageError`]: every variant says what to do. Nothing half made is visible after any.
    pub async fn pull(
        &self,
        registry: &Registry,
        image: &Pinned,
        credentials: &Credentials,
        rules: &PullRules,
    ) -> Result<Image, ImageError> {
        let work = async {
            let session = registry.session(&image.reference, credentials);
            let parcel = ask(session, image, rules).await?;
            self.assemble(parcel, rules).await
        };
        in_time(rules, work).await
    }

    /// [`pull`](Self::pull) of the image in the folder or tar archive at `path`: an OCI image layout, or what
    /// `docker save` wrote. With `name`, the one of that name.
    ///
    /// # Errors
    ///
    /// As [`pull`](Self::pull).
    pub async fn load(
        &self,
        path: impl AsRef<Path>,
        name: Option<&str>,
        rules: &PullRules,
    ) -> Result<Image, ImageError> {
        let work = async {
            let (path, name) = (path.as_ref().to_owned(), name.map(str::to_owned));
            let (platform, limits) = (rules.platform.clone(), rules.limits);
            let found = blocking(move || {
                local::find(&path, &Wanted { name: name.as_deref(), platform: &platform, limits: &limits })
            });
            let Local { manifests, names, config, layers } = found.await?;
            let layers = layers.into_iter().map(|(digest, region)| Source::Local(digest, region)).collect();
            self.assemble(Parcel { names, manifests, config, layers, session: None }, rules).await
        };
        in_time(rules, work).await
    }

    async fn assemble(&self, parcel: Parcel, rules: &PullRules) -> Result<Image, ImageError> {
        let id = Digest::of(&parcel.config);
        let config = ImageConfig::read(&parcel.config)?;
        if rules.platform.suits(&config.platform).is_none() {
            return Err(wrong(&rules.platform, vec![super::shown(config.platform.to_string().as_bytes())]));
        }
        let (layers, diff_ids) = (parcel.layers.len(), config.diff_ids.len());
        if layers != diff_ids {
            let why = format!("it has {layers} layers and the configuration names {diff_ids}");
            return Err(ImageError::Malformed { what: "the image".to_owned(), why });
        }
        let _alone = self.inner.images.lock(&id).await;
        let stop = Stop::default();
        let _gone = stop.on_drop();
        let meter = Meter::new(rules, &parcel.layers);
        let (inner, session) = (&self.inner, parcel.session.as_ref());
        let work = Work { inner, session, rules, sums: Arc::default(), meter, stop: stop.clone() };
        let parallel = session.map_or(LOCAL_PARALLEL, Session::parallel);
        let all = config.diff_ids.iter().zip(&parcel.layers).map(|(diff_id, source)| work.layer(diff_id, source));
        // Collected first: an iterator that borrows would not be known to be `Send`.
        let all: Vec<_> = all.collect();
        let holds: Vec<LayerHold> = stream::iter(all).buffered(parallel).try_collect().await?;
        let (inner, Parcel { names, manifests, config: bytes, .. }) = (self.inner.clone(), parcel);
        blocking(move || finish(&inner, &id, &bytes, config, &holds, &names, &manifests, &stop)).await
    }
}

async fn in_time(
    rules: &PullRules,
    work: impl Future<Output = Result<Image, ImageError>>,
) -> Result<Image, ImageError> {
    let late = |_| ImageError::TooLate { after: rules.deadline };
    tokio::time::timeout(rules.deadline, work).await.map_err(late)?
}

/// Asks the registry what the image is made of.
async fn ask(session: Session, image: &Pinned, rules: &PullRules) -> Result<Parcel, ImageError> {
    let most = rules.limits.document_bytes;
    let first = image.digest;
    let (bytes, _) = session.manifest(&first.to_string(), Some(first), None, most).await?;
    let mut manifests = vec![first];
    let manifest = match manifest::read(&bytes, &rules.limits)? {
        Document::Image(manifest) => manifest,
        Document::Index(index) => {
            let blob = Blob::of(choose(&index, &rules.platform)?)?;
            manifests.push(blob.digest);
            let wanted = blob.digest.to_string();
            let (bytes, _) = session.manifest(&wanted, Some(blob.digest), Some(blob.size), most).await?;
            match manifest::read(&bytes, &rules.limits)? {
                Document::Image(manifest) => manifest,
                Document::Index(_) => return Err(local::nested(&blob.digest)),
            }
        }
    };
    let config = session.small("configuration", &manifest.config, most).await?;
    let layers = manifest.layers.into_iter().map(Source::Remote).collect();
    Ok(Parcel { names: vec![image.reference.to_string()], manifests, config, layers, session: Some(session) })
}

impl Work<'_> {
    /// Has one layer in the cache, and holds it.
    async fn layer(&self, diff_id: &Digest, source: &Source) -> Result<LayerHold, ImageError> {
        let alone = self.inner.layers.lock(diff_id).await;
        if let Some(hold) = LayerHold::of(self.inner, diff_id) {
            self.known(&hold)?;
            self.meter.bytes(source.bytes());
            self.meter.layer();
            return Ok(hold);
        }
        let (region, part) = match source {
            Source::Remote(blob) => {
                let part = self.fetch(blob).await?;
                (part.region()?, Some(part))
            }
            Source::Local(digest, region) => {
                if let Some(digest) = digest {
                    self.verify(*digest, region.clone()).await?;
                }
                self.meter.bytes(region.len());
                (region.clone(), None)
            }
        };
        let hold = self.unpack(diff_id, region, part, alone).await?;
        self.meter.layer();
        Ok(hold)
    }

    /// Holds a layer that was unpacked before to the rules of this pull.
    fn known(&self, hold: &LayerHold) -> Result<(), ImageError> {
        let record = hold.record();
        self.sums.add(record.bytes, record.entries, &self.rules.limits)?;
        match record.special {
            Some(path) if self.rules.devices == Devices::Refuse => {
                Err(ImageError::Entry { layer: hold.diff_id, path, fault: Fault::Device })
            }
            _ => Ok(()),
        }
    }

    async fn fetch(&self, blob: &Blob) -> Result<Part, ImageError> {
        let Some(session) = self.session else { return Err(ImageError::Gone { id: blob.digest }) };
        let alone = self.inner.parts.lock(&blob.digest).await;
        let (inner, wanted) = (self.inner.clone(), *blob);
        let part = blocking(move || Part::open(&inner, &wanted, alone)).await?;
        let seen = AtomicU64::new(0);
        session
            .download(blob, part, |now| {
                let before = seen.swap(now, Ordering::Relaxed);
                self.meter.moved(before, now);
            })
            .await
    }

    /// Holds a layer in a file to the digest that names it.
    async fn verify(&self, digest: Digest, region: Region) -> Result<(), ImageError> {
        let stop = self.stop.clone();
        blocking(move || {
            let mut hashing = Hashing::new(unpack::Stoppable::new(region.reader(), &stop));
            io::copy(&mut hashing, &mut io::sink()).map_err(|error| super::error::of_read(error, &digest))?;
            let (found, _) = hashing.finish();
            if found == digest { Ok(()) } else { Err(ImageError::WrongDigest { what: "layer", wanted: digest, found }) }
        })
        .await
    }

    async fn unpack(
        &self,
        diff_id: &Digest,
        region: Region,
        part: Option<Part>,
        alone: OwnedMutexGuard<()>,
    ) -> Result<LayerHold, ImageError> {
        let permit = self.inner.unpacks.clone().acquire_owned().await.map_err(|_| ImageError::Stopped)?;
        let (inner, sums, diff_id) = (self.inner.clone(), self.sums.clone(), *diff_id);
        let (limits, devices, stop) = (self.rules.limits, self.rules.devices, self.stop.clone());
        blocking(move || {
            // All of these are held until the layer is there or its debris is gone, also if nobody waits any more.
            let _held = (alone, permit);
            let mut room = Reservation::new(&inner);
            let work = inner.workspace()?;
            let dest = work.path().join("root");
            std::fs::create_dir(&dest).at(&dest)?;
            let mut order = unpack::Order {
                diff_id,
                compressed: region.len(),
                limits: &limits,
                owners: &inner.rules.owners,
                devices,
                sums: &sums,
                stop: &stop,
                reserve: &mut |bytes| room.take(bytes),
            };
            let unpacked = unpack::unpack(region.reader(), &dest, &mut order);
            if let Some(part) = part
                && !matches!(
                    unpacked,
                    Err(ImageError::Stopped | ImageError::CacheFull { .. } | ImageError::Full { .. })
                )
            {
                part.remove();
            }
            inner.publish_layer(work, &diff_id, unpacked?, room)
        })
        .await
    }
}

/// Lays the layers over each other and makes the image visible.
#[expect(clippy::too_many_arguments, reason = "what was gathered comes together here, once")]
fn finish(
    inner: &Arc<Inner>,
    id: &Digest,
    bytes: &[u8],
    config: ImageConfig,
    holds: &[LayerHold],
    names: &[String],
    manifests: &[Digest],
    stop: &Stop,
) -> Result<Image, ImageError> {
    if let Some(known) = inner.known_image(id, names, manifests)? {
        return Ok(Image::of(inner, id, known));
    }
    let stack = Stack::of(inner, holds)?;
    stack.check(stop)?;
    let work = inner.workspace()?;
    let seam = work.path().join("seam");
    std::fs::create_dir(&seam).at(&seam)?;
    let disk = stack.seam(&seam, &inner.rules.owners, stop)?;
    if disk == 0 {
        std::fs::remove_dir(&seam).at(&seam)?;
    }
    let mut record =
        Record { config, layers: stack.layers(), names: Vec::new(), manifests: Vec::new(), seam: disk > 0, disk };
    record.call(names, manifests);
    let record = inner.publish_image(work, id, bytes, record)?;
    Ok(Image::of(inner, id, record))
}

/// Adds up how far a pull is.
struct Meter {
    now: std::sync::Mutex<PullProgress>,
    told: Option<OnProgress>,
}

impl Meter {
    fn new(rules: &PullRules, layers: &[Source]) -> Self {
        let bytes_total = layers.iter().map(Source::bytes).fold(0, u64::saturating_add);
        let now = PullProgress { bytes_total, layers_total: layers.len() as u64, ..PullProgress::default() };
        let meter = Self { now: std::sync::Mutex::new(now), told: rules.progress.clone() };
        meter.change(|_| {});
        meter
    }

    fn change(&self, change: impl FnOnce(&mut PullProgress)) {
        let now = {
            let mut now = self.now.lock().unwrap_or_else(|poison| poison.into_inner());
            change(&mut now);
            *now
        };
        if let Some(told) = &self.told {
            told(now);
        }
    }

    fn bytes(&self, more: u64) {
        self.change(|now| now.bytes_done += more);
    }

    /// From so many bytes of a layer to so many: fewer where it began anew.
    fn moved(&self, before: u64, after: u64) {
        self.change(|now| now.bytes_done = (now.bytes_done + after).saturating_sub(before));
    }

    fn layer(&self) {
        self.change(|now| now.layers_done += 1);
    }
}
