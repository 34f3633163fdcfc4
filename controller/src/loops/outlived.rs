//! Lets go of the content of outputs that were kept for their time. Their rows stay; collecting the blocks is the content
//! store's.

use selion_api::TimeMs;
use selion_dataplane::Store as Content;

use crate::store::{Store, output};

/// Rows of one pass: a pass that finds more goes on at once.
const BATCH: u32 = 256;

/// Lets go of what is over at `now`; tells how many.
///
/// # Errors
///
/// Of the database or of the content store, as text; the next pass goes on.
pub async fn pass(store: &Store, content: &Content, now: TimeMs) -> Result<usize, String> {
    let mut done = 0;
    loop {
        let old = output::outlived(&store.readers, now, BATCH).await.map_err(|error| error.to_string())?;
        for told in &old {
            output::let_go(&store.writer, &told.outputs).await.map_err(|error| error.to_string())?;
            // Another run of the lease may have left the same.
            if !output::is_wanted(&store.readers, &told.outputs).await.map_err(|error| error.to_string())? {
                unpin(content.clone(), told).await?;
            }
        }
        done += old.len();
        if old.len() < BATCH as usize {
            return Ok(done);
        }
    }
}

async fn unpin(content: Content, told: &output::Told) -> Result<(), String> {
    let Some(root) = told.outputs.cid.as_ref().and_then(|cid| cid.parse().ok()) else {
        return Ok(());
    };
    let owner = output::pin_owner(told.outputs.lease);
    let unpinned = tokio::task::spawn_blocking(move || content.unpin(&owner, &root)).await;
    unpinned.map_err(|error| error.to_string())?.map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use selion_api::outputs::{OutputState, Outputs};
    use selion_api::{Account, LeaseId, NodeId};

    use super::*;

    #[tokio::test]
    async fn content_is_kept_for_its_time_and_as_long_as_any_run_left_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let content = Content::open(dir.path().join("content")).unwrap();
        let (lease, root) = (LeaseId { seq: 1, index: 0 }, content.add_bytes(b"weights").unwrap());
        content.pin(&output::pin_owner(lease), &root).unwrap();
        for (attempt, at) in [(1, 10), (2, 20)] {
            let said = Outputs {
                lease,
                attempt,
                member: 0,
                state: OutputState::Kept,
                cid: Some(root.to_string()),
                bytes: 7,
                files: 1,
                skipped: 0,
                named: Vec::new(),
                why: None,
            };
            output::put(&store.writer, Account([1; 20]), NodeId([2; 20]), &said, TimeMs(at)).await.unwrap();
        }
        let after = |at| TimeMs(at + output::KEPT_MS + 1);
        assert_eq!(pass(&store, &content, TimeMs(20)).await, Ok(0));
        assert_eq!(pass(&store, &content, after(10)).await, Ok(1));
        assert_eq!(content.list().unwrap().len(), 1, "the second run left the same");
        assert_eq!(pass(&store, &content, after(20)).await, Ok(1));
        assert_eq!(content.list().unwrap().len(), 0);
        assert_eq!(output::of_lease(&store.readers, lease).await.unwrap().len(), 2, "they stay listed");
    }
}
