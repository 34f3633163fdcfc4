//! The promise on every answer to an input that entered the log: it stands there, at this number, for ever. Who keeps it
//! can prove a log wrong that leaves his input out.

use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use selion_api::Account;
use selion_api::agent::{Promise, SignedPromise};
use selion_api::rest::PROMISE_HEADER;
use selion_log::Entry;

use crate::App;
use crate::store::entry;

/// `answer`, with the promise to `account` that entry `seq` stays. It is made from the log, so that a repeat carries the
/// same one. What is committed is answered even if no promise can be made of it.
pub(super) async fn promised(app: &App, account: Account, seq: u64, answer: impl IntoResponse) -> Response {
    let mut response = answer.into_response();
    match promise(app, account, seq).await {
        Ok(Some(signed)) => {
            let text = hex::encode(selion_api::commit::canonical(&signed));
            if let Ok(value) = HeaderValue::from_str(&text) {
                response.headers_mut().insert(HeaderName::from_static(PROMISE_HEADER), value);
            }
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, seq, "the answer carries no promise: the entry could not be read"),
    }
    response
}

async fn promise(app: &App, account: Account, seq: u64) -> sqlx::Result<Option<SignedPromise>> {
    let bytes = entry::bytes(&app.store.readers, seq, 1).await?;
    let Some(entry) = bytes.first().and_then(|bytes| Entry::read(bytes).ok()) else {
        return Ok(None);
    };
    // An entry of another epoch was another authority's to promise, and was promised then.
    let ours = entry.fence.epoch == app.log.position().fence.epoch;
    let promise = Promise { account, seq, leaf: entry.leaf(), fence: entry.fence };
    Ok(ours.then(|| app.pen.promise(promise)))
}
