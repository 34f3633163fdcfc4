//! One layer to a file, going on where it stopped.

use reqwest::header::CONTENT_RANGE;
use reqwest::{Response, StatusCode};

use super::session::{Failure, Session, Wish, is_page, plain};
use crate::image::manifest::Blob;
use crate::image::{Digest, ImageError, RegistryError};
use crate::source::blocking;

/// Bytes that are hashed and written at a time.
const BATCH: usize = 1 << 20;

/// Where a blob goes. Calls come one at a time, off the async threads.
pub(in crate::image) trait Target: Send + Sized + 'static {
    /// Bytes there are, from the first on.
    fn len(&self) -> u64;
    /// Adds to them.
    fn append(&mut self, bytes: &[u8]) -> Result<(), ImageError>;
    /// Begins anew.
    fn clear(&mut self) -> Result<(), ImageError>;
    /// The digest of what is there.
    fn digest(&self) -> Digest;
}

impl Session {
    /// Fetches what `target` lacks of `blob` and verifies the whole. Each time bytes come, `seen` is told how many there
    /// are now. What came stays in the target if the future is dropped.
    ///
    /// # Errors
    ///
    /// [`ImageError::Registry`]; [`ImageError::WrongSize`]; [`ImageError::WrongDigest`]. What did not come in one piece is
    /// fetched once more before either of the last two is told.
    pub async fn download<T: Target>(&self, blob: &Blob, mut target: T, seen: impl Fn(u64)) -> Result<T, ImageError> {
        let mut resumed = target.len() > 0;
        seen(target.len());
        loop {
            let (back, fault) = self.whole(blob, target, &seen, &mut resumed).await?;
            target = back;
            let fault = match fault {
                Some(fault) => fault,
                None => {
                    let found = target.digest();
                    if found == blob.digest {
                        return Ok(target);
                    }
                    ImageError::WrongDigest { what: "layer", wanted: blob.digest, found }
                }
            };
            target = on(target, Target::clear).await?;
            if !resumed {
                return Err(fault);
            }
            // The piece from before may be the one that is wrong.
            resumed = false;
        }
    }

    /// Fetches until there are as many bytes as declared, or a fault.
    async fn whole<T: Target>(
        &self,
        blob: &Blob,
        mut target: T,
        seen: &impl Fn(u64),
        resumed: &mut bool,
    ) -> Result<(T, Option<ImageError>), ImageError> {
        let url = self.url("blobs", &blob.digest.to_string())?;
        let mut tries = 0;
        while target.len() < blob.size {
            let before = target.len();
            let wish = Wish { accept: "*/*", from: before, elsewhere: true };
            let failure = match self.get(&url, wish, &blob.digest.to_string()).await {
                Ok(answer) => {
                    let (back, failure) = self.take(blob, answer, target, seen).await?;
                    target = back;
                    failure
                }
                Err(failure) => Some(failure),
            };
            match failure {
                Some(Failure::Final(error @ ImageError::WrongSize { .. })) => return Ok((target, Some(error))),
                Some(Failure::Final(error)) => return Err(error),
                Some(Failure::Passing(error, wait)) => {
                    if target.len() > before {
                        tries = 0;
                    }
                    *resumed |= target.len() > 0;
                    self.pause(&mut tries, error, wait).await?;
                }
                None => {}
            }
        }
        if target.len() > blob.size {
            let (digest, declared) = (blob.digest, blob.size);
            return Ok((target, Some(ImageError::WrongSize { what: "layer", digest, declared, found: blob.size + 1 })));
        }
        Ok((target, None))
    }

    /// Takes one answer in: all of it, or until it breaks off.
    async fn take<T: Target>(
        &self,
        blob: &Blob,
        mut answer: Response,
        mut target: T,
        seen: &impl Fn(u64),
    ) -> Result<(T, Option<Failure>), ImageError> {
        if is_page(answer.headers()) {
            let what = "a web page".to_owned();
            return Err(RegistryError::NotARegistry { url: plain(answer.url()), what }.into());
        }
        if !goes_on(&answer, target.len()) {
            target = on(target, Target::clear).await?;
            if answer.status() != StatusCode::OK {
                // It does not know ranges as it should: from the beginning, then.
                let host = self.host.clone();
                let why = "it does not go on where it stopped".to_owned();
                return Ok((target, Some(Failure::Passing(RegistryError::Unreachable { host, why }, None))));
            }
        }
        let mut batch = Vec::with_capacity(BATCH);
        let mut failure = None;
        loop {
            let chunk = match answer.chunk().await {
                Ok(chunk) => chunk,
                Err(error) => {
                    failure = Some(self.failed(error));
                    None
                }
            };
            let over = chunk.is_none();
            batch.extend_from_slice(&chunk.unwrap_or_default());
            if target.len() + batch.len() as u64 > blob.size {
                let (digest, declared) = (blob.digest, blob.size);
                let error = ImageError::WrongSize { what: "layer", digest, declared, found: declared + 1 };
                return Ok((target, Some(Failure::Final(error))));
            }
            if batch.len() >= BATCH || (over && !batch.is_empty()) {
                let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH));
                target = on(target, move |target| target.append(&full)).await?;
                seen(target.len());
            }
            if over {
                break;
            }
        }
        let short = failure.is_none() && target.len() < blob.size;
        if short && answer.status() == StatusCode::OK {
            // It ended as if that were all.
            let (digest, declared, found) = (blob.digest, blob.size, target.len());
            failure = Some(Failure::Final(ImageError::WrongSize { what: "layer", digest, declared, found }));
        } else if short {
            let (host, why) = (self.host.clone(), "it ended in the middle of a layer".to_owned());
            failure = Some(Failure::Passing(RegistryError::Unreachable { host, why }, None));
        }
        Ok((target, failure))
    }
}

/// Whether an answer begins at byte `from`.
fn goes_on(answer: &Response, from: u64) -> bool {
    if from == 0 {
        return answer.status() == StatusCode::OK;
    }
    let range = answer.headers().get(CONTENT_RANGE).and_then(|text| text.to_str().ok()).unwrap_or_default();
    answer.status() == StatusCode::PARTIAL_CONTENT && range.starts_with(&format!("bytes {from}-"))
}

/// Does something with the target off the async threads. It is not lost if the future is dropped meanwhile: it ends there.
async fn on<T: Target>(
    mut target: T,
    work: impl FnOnce(&mut T) -> Result<(), ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    blocking(move || work(&mut target).map(|()| target)).await
}
