//! From a `POST /v1/leases` body to the input that enters the log: everything that can be judged without the market.

use std::collections::BTreeSet;

use selion_api::commit::signing_digest;
use selion_api::rest::{DatasetMount, ImageView, NewLease, OutputRef, PlainRoot};
use selion_api::seal::{REGISTRY, check_names};
use selion_api::{Account, Amount, BoxFeature, Hash32};
use selion_dataplane::Cid;
use selion_market::{Input, RequestLease, State};

use super::Problem;
use super::recover::signed_by;
use super::route::leases::own;
use crate::App;
use crate::registry::ResolveError;
use crate::sequencer::Private;
use crate::store::{dataset, output};

/// Most bytes of command, environment and mounts: they must fit a message to the agent with room to spare.
const MAX_WORK: usize = 256 << 10;
/// Most bytes of what is said of an image.
const MAX_IMAGE_WORDS: usize = 64 << 10;
/// Longest name of a mount.
const MAX_MOUNT: usize = 128;

/// What is submitted, and under which name its first answer is found.
pub(super) struct Prepared {
    pub idem: Hash32,
    pub input: Input,
    pub private: Private,
}

/// Judges `body` and makes the input of it. Equal bodies under one key make equal inputs.
///
/// # Errors
///
/// [`Problem::Fields`] with the pointer of the first fault; [`Problem::BadSignature`].
pub(super) async fn prepare(app: &App, renter: Account, key: &str, body: &NewLease) -> Result<Prepared, Problem> {
    check_work(body)?;
    let called = body.called();
    called.check().map_err(|(pointer, why)| Problem::field(pointer, "bad_value", why))?;
    let named = name_outputs(app, renter, body).await?;
    let body = named.as_ref().unwrap_or(body);
    let mut tags = tags(app, renter, &body.datasets).await?;
    let named;
    let body = match &body.image {
        None => body,
        Some(image) => {
            let view = name_image(app, renter, image, "/image").await?;
            if body.signature.is_some() && view.image != *image {
                let detail = format!("a signed request names what it runs by digest: write {}", view.image);
                return Err(Problem::field("/image", "bad_value", detail));
            }
            tags.push(view.tag);
            named = NewLease { image: Some(view.image), ..body.clone() };
            &named
        }
    };
    let salt = match (body.salt, body.signature) {
        (Some(salt), _) => salt,
        (None, None) => app.secrets.salt(renter, key),
        (None, Some(_)) => {
            return Err(Problem::field("/salt", "missing_field", "a signed request names the salt it was signed with"));
        }
    };
    let request = body.request(renter, key, &salt, tags);
    if let Err((field, why)) = request.check() {
        return Err(Problem::field(format!("/{field}"), "bad_value", why));
    }
    if let Some(signature) = &body.signature {
        let digest = signing_digest(&app.pool, "lease", &request);
        if !signed_by(renter, &digest, signature) {
            return Err(Problem::BadSignature("/signature"));
        }
    }
    let private = Private::Work { commitment: request.work, salt, work: body.work(), called };
    let idem = request.idem;
    Ok(Prepared { idem, input: Input::Request(RequestLease { request, signature: body.signature }), private })
}

/// An image as agents take it, and its tag: a CID that the renter may mount, or a name in a registry, by digest.
///
/// # Errors
///
/// [`Problem::Fields`] with `pointer`; [`Problem::Overloaded`] if registries are asked for many others now.
pub(super) async fn name_image(app: &App, renter: Account, image: &str, pointer: &str) -> Result<ImageView, Problem> {
    if image.parse::<Cid>().is_ok() {
        let mounted = DatasetMount { cid: image.to_owned(), mount: String::new() };
        let mut tags = tags_at(app, renter, std::slice::from_ref(&mounted), |_| pointer.to_owned()).await?;
        return Ok(ImageView { image: image.to_owned(), tag: tags.pop().unwrap_or_default() });
    }
    // Asking a registry is work for somebody who pays, or may.
    let has_paid = |state: &State| {
        let books = state.books.get(&renter).filter(|books| books.deposited != Amount::ZERO);
        books.map(drop).ok_or(())
    };
    if app.log.judge(has_paid).await.is_err() {
        let why = "an account that never deposited cannot run images of registries; deposit first";
        return Err(Problem::field(pointer, "payment_required", why));
    }
    let image = app.registries.resolve(image).await.map_err(|error| match error {
        ResolveError::Busy => Problem::Overloaded,
        ResolveError::Image(error) => Problem::field(pointer, "no_image", whole(&error)),
    })?;
    Ok(ImageView { tag: app.secrets.dataset_tag(renter, &image), image })
}

/// An error with what caused it, in one line.
fn whole(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// What can be said of an image in itself.
fn check_image(body: &NewLease) -> Result<(), Problem> {
    let words = body.entrypoint.iter().flatten().chain(&body.working_dir).chain(&body.user).chain(&body.image);
    if let Some(word) = words.clone().find(|word| word.contains('\0')) {
        return Err(Problem::field("/image", "bad_value", format!("{word:?} has a zero byte")));
    }
    let bytes: usize = words.map(String::len).sum();
    if bytes > MAX_IMAGE_WORDS {
        let detail = format!("image, entrypoint, working_dir and user have {bytes} bytes; at most {MAX_IMAGE_WORDS}");
        return Err(Problem::field("/entrypoint", "too_large", detail));
    }
    if body.working_dir.as_ref().is_some_and(|dir| !dir.starts_with('/')) {
        return Err(Problem::field("/working_dir", "bad_value", "working_dir is an absolute path inside"));
    }
    let said = [("/entrypoint", body.entrypoint.is_some()), ("/user", body.user.is_some())];
    if let Some((pointer, _)) = said.into_iter().find(|(_, said)| *said && body.image.is_none()) {
        return Err(Problem::field(pointer, "bad_value", "this goes over what an image says, and there is no image"));
    }
    if body.image.is_some() && body.root != PlainRoot::Base {
        return Err(Problem::field("/root", "bad_value", "an image is the root: leave one of both away"));
    }
    let limits = [BoxFeature::Cpu, BoxFeature::Memory, BoxFeature::Pids, BoxFeature::Disk, BoxFeature::Net];
    if let Some(other) = body.enforced.iter().find(|one| !limits.contains(one)) {
        let detail = format!("{} is no limit; use cpu, memory, pids, disk, net", other.code());
        return Err(Problem::field("/enforced", "bad_value", detail));
    }
    Ok(())
}

/// What can be said of the names of secrets.
fn check_secrets(body: &NewLease) -> Result<(), Problem> {
    check_names(&body.secrets).map_err(|(at, why)| Problem::field(format!("/secrets/{at}"), "bad_value", why))?;
    let named = |image: &String| image.contains('@') || image.parse::<Cid>().is_err();
    if body.secrets.iter().any(|name| name == REGISTRY) && !body.image.as_ref().is_some_and(named) {
        let why = format!("`{REGISTRY}` is for the image of a registry, and this lease has none");
        return Err(Problem::field("/secrets", "bad_value", why));
    }
    if body.pool_may_keep_secrets && body.secrets.is_empty() {
        let why = "this is about secrets, and the request names none";
        return Err(Problem::field("/pool_may_keep_secrets", "bad_value", why));
    }
    Ok(())
}

fn check_work(body: &NewLease) -> Result<(), Problem> {
    check_image(body)?;
    check_secrets(body)?;
    if body.image.is_none() && body.command.first().is_none_or(String::is_empty) {
        return Err(Problem::field("/command", "bad_value", "command names at least a program, where no image does"));
    }
    let mut texts = body.command.iter().chain(body.env.keys()).chain(body.env.values());
    if texts.any(|text| text.contains('\0')) {
        return Err(Problem::field("/command", "bad_value", "command and env have no zero bytes"));
    }
    if let Some(name) = body.env.keys().find(|name| name.is_empty() || name.contains('=')) {
        let detail = format!("`{name}` is not the name of an environment variable");
        return Err(Problem::field("/env", "bad_value", detail));
    }
    let bytes: usize = body.command.iter().chain(body.env.keys()).chain(body.env.values()).map(String::len).sum();
    if bytes > MAX_WORK {
        let detail = format!("command and env have {bytes} bytes; at most {MAX_WORK}; bring large input as a dataset");
        return Err(Problem::field("/command", "too_large", detail));
    }
    let mut mounts = BTreeSet::new();
    for (index, data) in body.datasets.iter().enumerate() {
        let pointer = format!("/datasets/{index}/mount");
        let good = (1..=MAX_MOUNT).contains(&data.mount.len())
            && !data.mount.starts_with('.')
            && data.mount.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if !good {
            let detail = format!("`{}` is not a folder name of letters, digits, `.`, `_` and `-`", data.mount);
            return Err(Problem::field(pointer, "bad_value", detail));
        }
        if !mounts.insert(&data.mount) {
            return Err(Problem::field(pointer, "duplicate", format!("`{}` is mounted twice", data.mount)));
        }
    }
    Ok(())
}

/// The same request with CIDs where it names outputs by lease, run and rank; `None` where it names none so.
async fn name_outputs(app: &App, renter: Account, body: &NewLease) -> Result<Option<NewLease>, Problem> {
    if !body.datasets.iter().any(|data| OutputRef::is_meant(&data.cid)) {
        return Ok(None);
    }
    let mut named = body.clone();
    for (index, data) in named.datasets.iter_mut().enumerate().filter(|(_, data)| OutputRef::is_meant(&data.cid)) {
        let pointer = || format!("/datasets/{index}/cid");
        let meant: OutputRef = data.cid.parse().map_err(|why| Problem::field(pointer(), "bad_value", why))?;
        let lease = own(app, renter, meant.lease).await?;
        let chosen = meant.choose(&lease.outputs).map_err(|why| Problem::field(pointer(), "no_outputs", why))?;
        data.cid = chosen.cid.clone().unwrap_or_default();
    }
    Ok(Some(named))
}

/// The keyed tags of the datasets, in order. A renter mounts what he added and what his leases left, nothing else.
async fn tags(app: &App, renter: Account, mounts: &[DatasetMount]) -> Result<Vec<Hash32>, Problem> {
    tags_at(app, renter, mounts, |index| format!("/datasets/{index}/cid")).await
}

async fn tags_at(
    app: &App,
    renter: Account,
    mounts: &[DatasetMount],
    pointer: impl Fn(usize) -> String,
) -> Result<Vec<Hash32>, Problem> {
    let mut tags = Vec::with_capacity(mounts.len());
    for (index, mount) in mounts.iter().enumerate() {
        let pointer = pointer(index);
        let cid = parse_cid(&mount.cid, &pointer)?;
        // The agent is sent the text as given, and commits to it: one spelling only.
        if cid.to_string() != mount.cid {
            return Err(Problem::field(pointer, "bad_value", format!("write this CID as {cid}")));
        }
        match dataset::get(&app.store.readers, renter, &mount.cid).await? {
            Some(known) => tags.push(known.tag),
            None if output::left_by(&app.store.readers, renter, &mount.cid).await?.is_some() => {
                tags.push(app.secrets.dataset_tag(renter, &mount.cid));
            }
            None => {
                let detail = format!(
                    "this account added no dataset {cid}, and none of its leases left it; POST /v1/datasets first"
                );
                return Err(Problem::field(pointer, "unknown_dataset", detail));
            }
        }
    }
    Ok(tags)
}

/// A CID that this pool can store, or the fault at `pointer`.
pub(super) fn parse_cid(text: &str, pointer: &str) -> Result<Cid, Problem> {
    let cid: Cid = text
        .parse()
        .map_err(|error| Problem::field(pointer, "bad_value", format!("`{text}` is not a CID: {error}")))?;
    selion_dataplane::dag::check_cid(&cid).map_err(|error| Problem::field(pointer, "bad_value", error.to_string()))?;
    Ok(cid)
}
