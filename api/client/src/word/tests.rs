//! What is posted, as a controller sees it that refuses everything.

use std::sync::Mutex;

use selion_api::rest::{FieldError, Problem, Session};
use selion_api::{Address, GpuId, Hash32, Signature};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const POOL: PoolId = PoolId { chain_id: 31_337, controller: Address([1; 20]) };
const LEASE: LeaseId = LeaseId { seq: 12, index: 3 };
const NODE: NodeId = NodeId([2; 20]);

fn wallet() -> LocalWallet {
    LocalWallet::from_bytes(&[7; 32]).unwrap()
}

/// A refusal; where it is a body's, the code is of its one field.
fn refusal(code: &str, field: Option<&str>) -> Problem {
    let error =
        |code: &str| FieldError { pointer: "/said_ms".into(), code: code.into(), detail: "here it is 9".into() };
    Problem {
        kind: format!("urn:selion:problem:{code}"),
        title: "The word was signed for another time.".into(),
        status: 422,
        detail: "d".into(),
        code: code.into(),
        errors: field.map(error).into_iter().collect(),
        retryable: false,
        suggestion: "s".into(),
        nearest: None,
        blocking: None,
        unmatched: Vec::new(),
        means: None,
        trace_id: None,
    }
}

/// A controller that gives this answer to everything; bodies and troubles, as they came.
struct Deaf {
    client: Client,
    bodies: Arc<Mutex<Vec<serde_json::Value>>>,
    told: Arc<Mutex<Vec<Trouble>>>,
}

impl Deaf {
    async fn start(answer: &Problem) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let (bodies, told): (Arc<Mutex<Vec<_>>>, Arc<Mutex<Vec<_>>>) = Default::default();
        let (seen, text) = (Arc::clone(&bodies), serde_json::to_string(answer).unwrap());
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let body = read_body(&mut socket).await;
                seen.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                let head = "HTTP/1.1 422 No\r\ncontent-type: application/problem+json\r\nconnection: close\r\n";
                let reply = format!("{head}content-length: {}\r\n\r\n{text}", text.len());
                socket.write_all(reply.as_bytes()).await.unwrap();
            }
        });
        let never = TimeMs(u64::MAX);
        client.set_session(&Session {
            account: account_of(&wallet()),
            token: "t".into(),
            expires_ms: never,
            refresh_token: "r".into(),
            refresh_expires_ms: never,
        });
        let troubles = Arc::clone(&told);
        client.set_watcher(move |trouble| troubles.lock().unwrap().push(trouble.clone()));
        Self { client, bodies, told }
    }

    /// The bodies since the last call.
    fn heard(&self) -> Vec<serde_json::Value> {
        std::mem::take(&mut *self.bodies.lock().unwrap())
    }
}

async fn read_body(socket: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0, "the request broke off");
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        let Some((head, _)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let body = &bytes[head.len() + 4..];
        if body.len() == length.parse::<usize>().unwrap() {
            return body.to_vec();
        }
    }
}

/// The one signed body, which the account signed as this statement for the time in it.
async fn assert_signed<S: Statement>(bodies: &[serde_json::Value], statement: impl Fn(Account, TimeMs) -> S) {
    let [body] = bodies else { panic!("said once: {bodies:?}") };
    let said_ms: TimeMs = serde_json::from_value(body["said_ms"].clone()).unwrap();
    assert!(now().since(said_ms) < 60_000, "by this machine's clock");
    let digest: Hash32 = statement(account_of(&wallet()), said_ms).digest(&POOL);
    let signature: Signature = serde_json::from_value(body["signature"].clone()).unwrap();
    assert_eq!(signature, sign_digest(&digest, &wallet()).await.unwrap());
}

#[tokio::test]
async fn each_word_is_signed_whole_and_one_that_is_refused_for_its_signature_is_never_said_unsigned() {
    for (code, field) in [("bad_signature", None), ("bad_fields", Some("repeated")), ("not_yours", None)] {
        let deaf = Deaf::start(&refusal(code, field)).await;
        deaf.client.sign_with(wallet(), POOL);
        deaf.client.release(LEASE).await.unwrap_err();
        assert_signed(&deaf.heard(), |renter, said_ms| said::Release { renter, lease: LEASE, said_ms }).await;
        for paused in [true, false] {
            deaf.client.set_paused(NODE, paused).await.unwrap_err();
            let statement = |provider, said_ms| said::SetPaused { provider, node: NODE, paused, said_ms };
            assert_signed(&deaf.heard(), statement).await;
        }
        let gpu = Some(GpuId([4; 16]));
        deaf.client.reclaim_node(NODE, &Reclaim { gpu, notice_ms: 7, ..Reclaim::default() }).await.unwrap_err();
        let statement = |provider, said_ms| said::Reclaim { provider, node: NODE, gpu, notice_ms: 7, said_ms };
        assert_signed(&deaf.heard(), statement).await;
        assert_eq!(*deaf.told.lock().unwrap(), [], "{code}");
    }
}

#[tokio::test]
async fn a_word_that_another_clock_refuses_is_said_again_unsigned_and_that_is_told() {
    let late = "The word was signed for another time.";
    for (code, field, why) in [("bad_fields", Some("stale"), "here it is 9"), ("stale_word", None, late)] {
        let deaf = Deaf::start(&refusal(code, field)).await;
        deaf.client.sign_with(wallet(), POOL);
        deaf.client.release(LEASE).await.unwrap_err();
        let bodies = deaf.heard();
        assert_signed(&bodies[..1], |renter, said_ms| said::Release { renter, lease: LEASE, said_ms }).await;
        let unsigned = serde_json::json!({ "said_ms": null, "signature": null });
        assert_eq!(bodies[1..], [unsigned], "once, and not for ever");
        assert_eq!(*deaf.told.lock().unwrap(), [Trouble::Unsigned { why: why.to_owned() }]);
    }
}

#[tokio::test]
async fn without_the_accounts_key_a_word_is_said_unsigned_once() {
    let deaf = Deaf::start(&refusal("bad_fields", Some("stale"))).await;
    deaf.client.pause_node(NODE).await.unwrap_err();
    assert_eq!(deaf.heard(), [serde_json::json!({ "said_ms": null, "signature": null })]);
    assert_eq!(*deaf.told.lock().unwrap(), []);
}
