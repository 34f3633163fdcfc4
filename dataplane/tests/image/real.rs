//! Debian's `docker-registry` on loopback, with images made and pushed here.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use selion_dataplane::image::{Credentials, Digest, ImageError, PullRules, Reference, RegistryError};
use tempfile::TempDir;

use crate::archive::Tar;
use crate::built::{Built, Place, gzip, plain, text, zstd};
use crate::liar::client;

/// `robot` with `open sesame`, as bcrypt.
const USERS: &str = "robot:$2b$05$abcdefghijklmnopqrstuupx2xBUC4954936wVIjyyPHmUBFu0wCW\n";
const PASSWORD: &str = "open sesame";

struct Running {
    process: Child,
    host: String,
    http: reqwest::Client,
    closed: bool,
    _dir: TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A registry of its own; `None` where there is none installed.
fn start(closed: bool) -> Option<Running> {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    // A port that was free a moment ago: the registry takes no listening socket.
    let host = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    std::fs::write(at("users"), USERS).unwrap();
    let auth = if closed {
        format!("auth:\n  htpasswd:\n    realm: here\n    path: {}\n", at("users"))
    } else {
        String::new()
    };
    let text = format!(
        "version: 0.1\nlog:\n  level: info\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {host}\n{auth}",
        at("data")
    );
    std::fs::write(at("c.yml"), text).unwrap();
    let spawned = Command::new("docker-registry")
        .args(["serve", &at("c.yml")])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    let Ok(mut process) = spawned else {
        println!("skipped: docker-registry is not installed");
        return None;
    };
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let listens = lines.by_ref().map(Result::unwrap).any(|line| line.contains("listening on"));
    assert!(listens, "the registry ended");
    std::thread::spawn(move || lines.for_each(drop));
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    Some(Running { process, host, http, closed, _dir: dir })
}

impl Running {
    fn asked(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        if self.closed { request.basic_auth("robot", Some(PASSWORD)) } else { request }
    }

    async fn push(&self, built: &Built, tag: &str) {
        let base = format!("http://{}/v2/a/b", self.host);
        for (digest, bytes) in &built.blobs {
            let begun = self.asked(self.http.post(format!("{base}/blobs/uploads/"))).send().await.unwrap();
            let place = begun.headers()["location"].to_str().unwrap().to_owned();
            let put = self.http.put(format!("{place}&digest={digest}")).body(bytes.clone());
            assert_eq!(self.asked(put).send().await.unwrap().status(), 201);
        }
        let put = self.http.put(format!("{base}/manifests/{tag}")).body(built.manifest.clone());
        let put = put.header("content-type", "application/vnd.oci.image.manifest.v1+json");
        assert_eq!(self.asked(put).send().await.unwrap().status(), 201);
    }

    fn reference(&self, tail: &str) -> Reference {
        format!("{}/a/b{tail}", self.host).parse().unwrap()
    }
}

fn built(content: &[u8]) -> Built {
    let base = Tar::default().file("base", b"base").file("gone", b"gone");
    let top = Tar::default().file("a", content).file(".wh.gone", b"");
    Built::of(&[gzip(base.end()), zstd(top.end()), plain(Tar::default().file("last", b"last").end())])
}

#[tokio::test]
async fn a_tag_is_frozen_when_it_is_resolved_and_a_digest_stays_what_it_is() {
    let Some(running) = start(false) else { return };
    let (first, second) = (built(b"first"), built(b"second"));
    running.push(&first, "1").await;
    let (registry, nobody, rules) = (client(&running.host), Credentials::Anonymous, PullRules::default());
    let frozen = registry.resolve(&running.reference(":1"), &nobody).await.unwrap();
    running.push(&second, "1").await;
    let place = Place::new();
    let image = place.cache.pull(&registry, &frozen, &nobody, &rules).await.unwrap();
    assert_eq!((text(&image, "/a").as_deref(), text(&image, "/gone")), (Some("first"), None));
    assert_eq!(image.manifests(), [first.digest()]);
    let moved = registry.resolve(&running.reference(":1"), &nobody).await.unwrap();
    assert_eq!(moved.digest(), second.digest());
    let by_digest = registry.resolve(&running.reference(&format!("@{}", first.digest())), &nobody).await.unwrap();
    assert_eq!(place.cache.pull(&registry, &by_digest, &nobody, &rules).await.unwrap().id(), image.id());
    let none = registry.resolve(&running.reference(":none"), &nobody).await.unwrap_err();
    assert!(matches!(none, ImageError::Registry(RegistryError::NotFound { .. })), "{none}");
    let none = running.reference(&format!("@{}", Digest::of(b"none")));
    assert!(registry.resolve(&none, &nobody).await.is_err());
}

#[tokio::test]
async fn a_closed_registry_lets_in_who_has_the_password() {
    let Some(running) = start(true) else { return };
    let image = built(b"private");
    running.push(&image, "1").await;
    let registry = client(&running.host);
    let basic = |password: &str| Credentials::Basic { user: "robot".to_owned(), password: password.to_owned() };
    let (reference, place) = (running.reference(":1"), Place::new());
    let pinned = registry.resolve(&reference, &basic(PASSWORD)).await.unwrap();
    let taken = place.cache.pull(&registry, &pinned, &basic(PASSWORD), &PullRules::default()).await.unwrap();
    assert_eq!(text(&taken, "/a").as_deref(), Some("private"));
    let wrong = registry.resolve(&reference, &basic("guess")).await.unwrap_err();
    assert!(matches!(wrong, ImageError::Registry(RegistryError::CredentialsRefused { .. })), "{wrong}");
    // Also who asks for what the node has by now.
    let stranger =
        place.cache.pull(&registry, &pinned, &Credentials::Anonymous, &PullRules::default()).await.unwrap_err();
    assert!(matches!(stranger, ImageError::Registry(RegistryError::CredentialsWanted { .. })), "{stranger}");
}
