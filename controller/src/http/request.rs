//! From a `POST /v1/leases` body to the input that enters the log: everything that can be judged without the market.

use std::collections::BTreeSet;

use selion_api::commit::signing_digest;
use selion_api::rest::{DatasetMount, NewLease, OutputRef};
use selion_api::{Account, Hash32};
use selion_dataplane::Cid;
use selion_market::{Input, RequestLease};

use super::Problem;
use super::recover::signed_by;
use super::route::leases::own;
use crate::App;
use crate::sequencer::Private;
use crate::store::{dataset, output};

/// Most bytes of command, environment and mounts: they must fit a message to the agent with room to spare.
const MAX_WORK: usize = 256 << 10;
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
    let tags = tags(app, renter, &body.datasets).await?;
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

fn check_work(body: &NewLease) -> Result<(), Problem> {
    if body.command.first().is_none_or(String::is_empty) {
        return Err(Problem::field("/command", "bad_value", "command names at least a program"));
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
    let mut tags = Vec::with_capacity(mounts.len());
    for (index, mount) in mounts.iter().enumerate() {
        let pointer = format!("/datasets/{index}/cid");
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
