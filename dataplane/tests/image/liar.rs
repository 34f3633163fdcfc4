//! A registry that does what it is told, good or bad.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use selion_dataplane::image::{Reference, Registry, RegistryRules};

use crate::built::Built;

/// What is wrong with a registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lie {
    #[default]
    None,
    /// A manifest with a byte more than its digest says.
    Manifest,
    /// It names another digest for a tag than the manifest has.
    TagDigest,
    /// Other bytes of a layer, as many as declared.
    Layer,
    /// Half of a layer, as if that were all.
    ShortLayer,
    /// Zeros without end in place of a layer.
    LayerFlood,
    /// Zeros without end in place of a manifest.
    ManifestFlood,
    /// No answer.
    Hang,
    /// A byte now and then, without end.
    Trickle,
    /// A page for people.
    Page,
    /// It sends us to the machine's metadata service.
    Redirect,
    /// It fails, and repeats what it was shown.
    Echo,
    /// Wants this user and password.
    Wants(&'static str),
}

pub struct Liar {
    pub host: String,
    asked: Arc<Mutex<HashMap<String, usize>>>,
}

struct Served {
    built: Built,
    lie: Lie,
    asked: Arc<Mutex<HashMap<String, usize>>>,
}

impl Liar {
    pub async fn serve(built: &Built, lie: Lie) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let asked = Arc::<Mutex<HashMap<String, usize>>>::default();
        let served = Arc::new(Served { built: built.clone(), lie, asked: asked.clone() });
        let router = Router::new().fallback(answer).with_state(served);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { host, asked }
    }

    pub fn reference(&self, tail: &str) -> Reference {
        format!("{}/a/b{tail}", self.host).parse().unwrap()
    }

    /// How often paths that end so were asked for.
    pub fn asked(&self, end: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|(path, _)| path.ends_with(end)).map(|(_, count)| count).sum()
    }

    pub fn client(&self) -> Registry {
        client(&self.host)
    }
}

/// A client that may call the registry on this machine and waits for nobody long.
pub fn client(host: &str) -> Registry {
    Registry::new(RegistryRules {
        plain_http: vec![host.to_owned()],
        private: vec!["127.0.0.1".to_owned()],
        silence: Duration::from_millis(400),
        document: Duration::from_millis(1500),
        connect: Duration::from_millis(200),
        tries: 2,
        ..RegistryRules::default()
    })
    .unwrap()
}

fn zeros() -> Body {
    Body::from_stream(stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[0; 4096]))))
}

/// A byte every 100 ms.
fn trickle() -> Body {
    let ticks = stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        Some((Ok::<_, std::io::Error>(Bytes::from_static(b" ")), ()))
    });
    Body::from_stream(ticks.boxed())
}

async fn answer(State(served): State<Arc<Served>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    *served.asked.lock().unwrap().entry(path.clone()).or_default() += 1;
    match served.lie {
        Lie::Hang => std::future::pending().await,
        Lie::Page => ([("content-type", "text/html")], "<html>log in</html>").into_response(),
        Lie::Redirect => (StatusCode::FOUND, [("location", "http://169.254.169.254/latest/meta-data")]).into_response(),
        Lie::Wants(user) if !lets_in(request.headers(), user) => wants(request.headers()),
        Lie::Echo if request.headers().contains_key("authorization") => wants_or_echo(request.headers()),
        Lie::Echo => (StatusCode::UNAUTHORIZED, [("www-authenticate", "Basic realm=\"x\"")]).into_response(),
        _ if path.contains("/manifests/") => manifest(&served),
        _ => blob(&served, path.rsplit('/').next().unwrap_or_default()),
    }
}

fn lets_in(headers: &HeaderMap, user: &str) -> bool {
    use base64::Engine;
    let wanted = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(user));
    headers.get("authorization").is_some_and(|value| value == wanted.as_str())
}

fn wants(_: &HeaderMap) -> Response {
    (StatusCode::UNAUTHORIZED, [("www-authenticate", "Basic realm=\"x\"")]).into_response()
}

fn wants_or_echo(headers: &HeaderMap) -> Response {
    let shown = headers["authorization"].to_str().unwrap_or_default();
    let body = format!(r#"{{"errors":[{{"message":"no: {shown}"}}]}}"#);
    (StatusCode::INTERNAL_SERVER_ERROR, body).into_response()
}

fn manifest(served: &Served) -> Response {
    let kind = [("content-type", "application/vnd.oci.image.manifest.v1+json")];
    let mut bytes = served.built.manifest.clone();
    match served.lie {
        Lie::ManifestFlood => return (kind, zeros()).into_response(),
        Lie::Trickle => return (kind, trickle()).into_response(),
        Lie::Manifest => bytes.push(b' '),
        Lie::TagDigest => {
            let other = selion_dataplane::image::Digest::of(b"other").to_string();
            return (kind, [("docker-content-digest", other)], bytes).into_response();
        }
        _ => {}
    }
    (kind, bytes).into_response()
}

fn blob(served: &Served, digest: &str) -> Response {
    let Some(bytes) = served.built.blobs.get(digest) else { return StatusCode::NOT_FOUND.into_response() };
    let mut bytes = bytes.clone();
    if !bytes.starts_with(b"{") {
        let half = bytes.len() / 2;
        match served.lie {
            Lie::LayerFlood => return zeros().into_response(),
            Lie::ShortLayer => bytes.truncate(half),
            Lie::Layer => bytes[half] ^= 1,
            _ => {}
        }
    }
    bytes.into_response()
}
