//! What members left: listed, and mounted by a later lease.

use selion_api::LeaseId;
use selion_api::outputs::{OutputState, Outputs};
use serde_json::json;

use super::*;
use crate::store::output;

/// What rank 0 of run `attempt` left, as its node told it.
async fn left(pool: &Pool, lease: &str, attempt: u32, state: OutputState, cid: &str) {
    let said = Outputs {
        lease: lease.parse::<LeaseId>().unwrap(),
        attempt,
        member: 0,
        state,
        cid: Some(cid.to_owned()),
        bytes: 7,
        files: 1,
        skipped: u64::from(state == OutputState::Partial),
        named: Vec::new(),
        why: None,
    };
    output::put(&pool.app.store.writer, ALICE, NODE, &said, NOW).await.unwrap();
}

#[tokio::test]
async fn outputs_of_every_run_are_listed_and_to_their_renter_alone() {
    let (_dir, pool) = pool().await;
    let lease = pool.lease(&pool.alice(), "k").await;
    let id = text(&lease, "id");
    left(&pool, id, 1, OutputState::Partial, "first").await;
    left(&pool, id, 2, OutputState::Uploading, "second").await;
    let path = format!("/v1/leases/{id}/outputs");
    let listed = pool.get(&pool.alice(), &path).await.json();
    let seen: Vec<_> =
        listed["outputs"].as_array().unwrap().iter().map(|one| (&one["attempt"], &one["state"])).collect();
    assert_eq!(seen, [(&json!(1), &json!("partial")), (&json!(2), &json!("uploading"))]);
    assert_eq!(pool.get(&pool.alice(), &format!("/v1/leases/{id}")).await.json()["outputs"], listed["outputs"]);
    assert_eq!(pool.get(&pool.alice(), "/v1/leases").await.json()["leases"][0]["outputs"], listed["outputs"]);
    assert_eq!(pool.get(&pool.bob(), &path).await.fault(), (403, "not_yours".to_owned()));
}

#[tokio::test]
async fn what_a_lease_left_is_mounted_by_its_cid_or_by_its_lease() {
    let (_dir, pool) = pool().await;
    let lease = pool.lease(&pool.alice(), "k").await;
    let id = text(&lease, "id");
    let cid = pool.app.content.add_bytes(b"weights").unwrap().to_string();
    left(&pool, id, 1, OutputState::Kept, &cid).await;
    let shown = pool.get(&pool.alice(), &format!("/v1/datasets/{cid}")).await;
    assert_eq!(shown.status.as_u16(), 200, "a request that is signed names its tag: {}", shown.text());
    assert_eq!(pool.get(&pool.bob(), &format!("/v1/datasets/{cid}")).await.status.as_u16(), 404);
    for (key, named) in [("by-cid", cid.clone()), ("by-lease", id.to_owned()), ("by-run", format!("{id}:1:0"))] {
        let mut body = want();
        body["datasets"] = json!([{"cid": named, "mount": "model"}]);
        let asked = pool.post(&pool.alice(), "/v1/leases", &[("idempotency-key", key)], &body).await;
        assert_eq!(asked.status.as_u16(), 201, "{named}: {}", asked.text());
        // To others it is nobody's.
        let stranger = pool.post(&pool.bob(), "/v1/leases", &[("idempotency-key", key)], &body).await;
        assert!([403, 422].contains(&stranger.fault().0), "{named}: {}", stranger.text());
    }
    let mut body = want();
    body["datasets"] = json!([{"cid": format!("{id}:9"), "mount": "model"}]);
    let none = pool.post(&pool.alice(), "/v1/leases", &[("idempotency-key", "none")], &body).await;
    assert_eq!(none.fault().0, 422);
    assert!(none.text().contains("left no outputs in run 9"), "{}", none.text());
}

#[tokio::test]
async fn results_are_read_as_files_ranges_and_tar() {
    let (dir, pool) = pool().await;
    let lease = pool.lease(&pool.alice(), "k").await;
    let id = text(&lease, "id");
    let folder = dir.path().join("left");
    std::fs::create_dir_all(folder.join("run/deep")).unwrap();
    std::fs::write(folder.join("run/answer.txt"), "forty-two\n").unwrap();
    let cid = pool.app.content.add_path(&folder).unwrap().to_string();
    left(&pool, id, 1, OutputState::Kept, &cid).await;
    left(&pool, id, 2, OutputState::Uploading, &cid).await;
    let (alice, base) = (pool.alice(), format!("/v1/leases/{id}/outputs/0"));

    let file = pool.get(&alice, &format!("{base}/run/answer.txt")).await;
    assert_eq!((file.status.as_u16(), file.body.as_slice()), (200, &b"forty-two\n"[..]));
    let ranged = ask(Method::GET, &alice, &format!("{base}/run/answer.txt"), &[("range", "bytes=6-8")], Body::empty());
    let part = pool.send(ranged).await;
    assert_eq!((part.status.as_u16(), part.body.as_slice()), (206, &b"two"[..]));
    assert_eq!(part.header("content-range"), "bytes 6-8/10");
    let behind = ask(Method::GET, &alice, &format!("{base}/run/answer.txt"), &[("range", "bytes=10-")], Body::empty());
    assert_eq!(pool.send(behind).await.fault(), (416, "bad_range".to_owned()));

    for tar in [format!("{base}?format=tar"), format!("{base}/run?format=tar&attempt=1")] {
        let archive = pool.get(&alice, &tar).await;
        assert_eq!(archive.status.as_u16(), 200, "{tar}");
        assert!(archive.body.windows(10).any(|bytes| bytes == b"forty-two\n"), "{tar}");
    }
    assert_eq!(pool.get(&alice, &format!("{base}/run")).await.fault().1, "bad_query", "a folder is no file");
    for absent in ["/run/nothing", "/../0", "/run/answer.txt?attempt=2", "/run/answer.txt?attempt=9"] {
        assert!([404, 422].contains(&pool.get(&alice, &format!("{base}{absent}")).await.fault().0), "{absent}");
    }
    assert_eq!(pool.get(&pool.bob(), &format!("{base}/run/answer.txt")).await.fault(), (403, "not_yours".to_owned()));
}
