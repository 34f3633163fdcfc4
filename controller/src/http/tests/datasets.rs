//! Bringing data.

use serde_json::json;

use super::*;

async fn upload(pool: &Pool, token: &str, bytes: &[u8]) -> Reply {
    let headers = [("content-type", "application/octet-stream")];
    let request = ask(Method::POST, token, "/v1/datasets?name=mnist", &headers, Body::from(bytes.to_vec()));
    pool.send(request).await
}

#[tokio::test]
async fn a_file_becomes_a_dataset_that_its_owner_mounts_and_no_other() {
    let (dir, pool) = pool().await;
    let (alice, bob) = (pool.alice(), pool.bob());
    let bytes = vec![7; 3 << 20];
    let added = upload(&pool, &alice, &bytes).await;
    assert_eq!(added.status.as_u16(), 201, "{}", added.text());
    let dataset = added.json();
    assert_eq!((&dataset["name"], &dataset["bytes"]), (&json!("mnist"), &json!(3 << 20)));
    assert_eq!(dir.path().join("uploads").read_dir().unwrap().count(), 0, "the draft is gone");
    let cid = dataset["cid"].as_str().unwrap();
    assert_eq!(pool.app.content.list().unwrap()[0].owner, ALICE.to_string());

    let again = upload(&pool, &alice, &bytes).await.json();
    assert_eq!(again, dataset, "again is the same as once");
    assert_eq!(pool.get(&alice, "/v1/datasets").await.json()["datasets"], json!([dataset]));
    assert_eq!(pool.get(&alice, &format!("/v1/datasets/{cid}")).await.json(), dataset);
    assert_eq!(pool.get(&bob, &format!("/v1/datasets/{cid}")).await.fault().0, 404);

    let mut body = want();
    body["datasets"] = json!([{"cid": cid, "mount": "mnist"}]);
    let mounted = pool.post(&alice, "/v1/leases", &[("idempotency-key", "k")], &body).await;
    assert_eq!(mounted.status.as_u16(), 201, "{}", mounted.text());
    let refused = pool.post(&bob, "/v1/leases", &[("idempotency-key", "k")], &body).await;
    assert_eq!(refused.json()["errors"][0]["code"], json!("unknown_dataset"));
    // The public log holds the tag and nothing that leads back to the CID.
    let entries = pool.get("", "/v1/log/entries").await.text();
    assert!(entries.contains(dataset["tag"].as_str().unwrap().trim_start_matches("0x")));
    assert!(!entries.contains(&hex::encode(cid)));
}

#[tokio::test]
async fn a_dataset_counts_only_when_every_block_is_here_and_the_missing_one_is_named() {
    let (_dir, pool) = pool().await;
    let alice = pool.alice();
    let elsewhere = tempfile::tempdir().unwrap();
    let source = selion_dataplane::Store::open(elsewhere.path()).unwrap();
    let root = source.add_bytes(&vec![5; 5 << 20]).unwrap();
    let blocks = source.blocks(&root, &selion_dataplane::Limits::default()).unwrap();
    assert!(blocks.len() > 1);
    let body = json!({"cid": root.to_string(), "name": "five"});
    for block in &blocks {
        let reply = pool.post(&alice, "/v1/datasets", &[], &body).await;
        assert_eq!(reply.fault(), (422, "block_missing".to_owned()));
        assert!(reply.json()["detail"].as_str().unwrap().contains("baf"), "{}", reply.text());
        let bytes = source.get(block).unwrap();
        let path = format!("/ipfs/{block}");
        let put = pool.send(ask(Method::PUT, &alice, &path, &[], Body::from(bytes.clone()))).await;
        assert_eq!(put.status.as_u16(), 201, "{}", put.text());
        let raw = pool.get(&pool.token(Caller::Node(NODE)), &format!("{path}?format=raw")).await;
        assert_eq!(raw.body, bytes, "an agent reads it back");
    }
    let added = pool.post(&alice, "/v1/datasets", &[], &body).await;
    assert_eq!(added.status.as_u16(), 201, "{}", added.text());
    assert_eq!(added.json()["bytes"], json!(5 << 20));
}

#[tokio::test]
async fn a_flipped_byte_is_refused_and_a_cid_that_is_none_is_named() {
    let (_dir, pool) = pool().await;
    let alice = pool.alice();
    let elsewhere = tempfile::tempdir().unwrap();
    let source = selion_dataplane::Store::open(elsewhere.path()).unwrap();
    let cid = source.add_bytes(b"hello").unwrap();
    let put = pool.send(ask(Method::PUT, &alice, &format!("/ipfs/{cid}"), &[], Body::from("hellp"))).await;
    assert_eq!(put.fault(), (422, "hash_mismatch".to_owned()));
    for bad in ["", "hello", "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG2"] {
        let reply = pool.post(&alice, "/v1/datasets", &[], &json!({"cid": bad})).await;
        assert_eq!(reply.json()["errors"][0]["pointer"], json!("/cid"), "{bad}");
    }
}

#[tokio::test]
async fn an_upload_over_the_operators_limit_leaves_nothing() {
    let (dir, mut pool) = pool().await;
    let config = Config { upload_limit_bytes: 100, ..(*pool.app.config).clone() };
    pool.app.config = Arc::new(config);
    pool.router = router(pool.app.clone());
    let reply = upload(&pool, &pool.alice(), &[1; 101]).await;
    assert_eq!(reply.fault(), (413, "too_large".to_owned()));
    assert_eq!(dir.path().join("uploads").read_dir().unwrap().count(), 0);
    assert_eq!(pool.app.content.usage().unwrap().blocks, 0);
    assert_eq!(upload(&pool, &pool.alice(), &[1; 100]).await.status.as_u16(), 201);
}

#[tokio::test]
async fn the_same_bytes_brought_by_another_account_find_no_one_in_the_log() {
    let (_dir, pool) = pool().await;
    let (alice, bob) = (pool.alice(), pool.bob());
    let bytes = b"the weights of a public model";
    let hers = upload(&pool, &alice, bytes).await.json();
    let mut body = want();
    body["datasets"] = json!([{"cid": hers["cid"], "mount": "w"}]);
    let leased = pool.post(&alice, "/v1/leases", &[("idempotency-key", "k")], &body).await;
    assert_eq!(leased.status.as_u16(), 201, "{}", leased.text());
    let his = upload(&pool, &bob, bytes).await.json();
    assert_eq!(his["cid"], hers["cid"]);
    let tag = |dataset: &Value| dataset["tag"].as_str().unwrap().trim_start_matches("0x").to_owned();
    let entries = pool.get("", "/v1/log/entries").await.text();
    assert!(entries.contains(&tag(&hers)), "the log names her dataset by her tag");
    assert!(!entries.contains(&tag(&his)), "his tag finds her");
}

#[tokio::test]
async fn an_account_without_a_deposit_brings_little_and_one_that_removes_a_dataset_has_room_again() {
    let (_dir, mut pool) = pool().await;
    let stranger = pool.token(Caller::Renter(Account([0x77; 20])));
    let block = vec![1_u8; 2 << 20];
    let put = async |number: u8| {
        let mut block = block.clone();
        block[0] = number;
        let cid = selion_dataplane::dag::leaf(&block).cid;
        pool.send(ask(Method::PUT, &stranger, &format!("/ipfs/{cid}"), &[], Body::from(block))).await
    };
    for number in 0..32 {
        assert_eq!(put(number).await.status.as_u16(), 201);
    }
    let refused = put(32).await;
    assert_eq!(refused.fault(), (413, "storage_allowance".to_owned()));
    assert_eq!(put(0).await.status.as_u16(), 200, "what is here costs nothing");
    let refused = upload(&pool, &stranger, &[9; 10]).await;
    assert_eq!(refused.fault(), (413, "storage_allowance".to_owned()));

    let config = Config { storage_bytes: 1000, ..(*pool.app.config).clone() };
    pool.app.config = Arc::new(config);
    pool.router = router(pool.app.clone());
    let alice = pool.alice();
    let cid = upload(&pool, &alice, &[1; 900]).await.json()["cid"].as_str().unwrap().to_owned();
    assert_eq!(upload(&pool, &alice, &[2; 900]).await.fault(), (413, "storage_allowance".to_owned()));
    let path = format!("/v1/datasets/{cid}");
    let remove = |token: &str| pool.send(ask(Method::DELETE, token, &path, &[], Body::empty()));
    assert_eq!(remove(&pool.bob()).await.fault().0, 404, "it is another's");
    assert_eq!(remove(&alice).await.status.as_u16(), 204);
    assert_eq!(remove(&alice).await.fault().0, 404);
    assert_eq!(pool.get(&alice, "/v1/datasets").await.json()["datasets"], json!([]));
    let gone = pool.app.content.collect(std::time::Duration::ZERO, &selion_dataplane::Stop::default()).unwrap();
    assert!(gone.blocks > 0);
    assert_eq!(upload(&pool, &alice, &[2; 900]).await.status.as_u16(), 201);
}

/// A leaf that is linked eight million times by path was hashed as often, for hours, whether or not anybody waited.
#[tokio::test]
async fn a_dag_that_unfolds_without_end_is_verified_block_by_block() {
    let (_dir, pool) = pool().await;
    let alice = pool.alice();
    let leaf = vec![5_u8; 1 << 20];
    let mut part = selion_dataplane::dag::leaf(&leaf);
    let put = async |cid: selion_dataplane::Cid, bytes: Vec<u8>| {
        let put = pool.send(ask(Method::PUT, &alice, &format!("/ipfs/{cid}"), &[], Body::from(bytes))).await;
        assert_eq!(put.status.as_u16(), 201, "{}", put.text());
    };
    put(part.cid, leaf).await;
    for _ in 0..2 {
        let (block, parent) = selion_dataplane::dag::file_node(&[part; 700], None);
        put(block.cid, block.bytes).await;
        part = parent;
    }
    let began = std::time::Instant::now();
    let added = pool.post(&alice, "/v1/datasets", &[], &json!({"cid": part.cid.to_string(), "name": "bomb"})).await;
    assert_eq!(added.status.as_u16(), 201, "{}", added.text());
    assert_eq!((&added.json()["bytes"], &added.json()["blocks"]), (&json!(490_000_u64 << 20), &json!(3)));
    assert!(began.elapsed().as_secs() < 20, "half a million readings of a mebibyte take minutes");
}
