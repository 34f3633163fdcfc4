//! Secrets from a renter's terminal to a box, through real processes: what is between sees none of them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use selion_api::lease::LeaseState;
use selion_api::rest::Lease;
use selion_api::slice::SliceWant;
use selion_api::{Amount, LeaseId, NodeId, Reason};
use selion_client::{LogQuery, OfferQuery, PageQuery, fresh_key};
use selion_contracts::Signer;
use selion_dataplane::image::{Ingredient, Recipe};
use selion_tests::{Controller, PATIENCE, Part, Pool, Renter, run, until, want};
use tempfile::TempDir;

const DEPOSIT: Amount = Amount(10_000_000_000);
const CANARY: &str = "canary-77aa-secret";
const ENV_CANARY: &str = "canary-77aa-environment";
/// Fails without its secret.
const PROGRAM: &str = "test \"$(cat /run/secrets/token)\" = canary-77aa-secret || exit 9; echo found";

struct Story {
    pool: Pool,
    _controller: Controller,
    agents: Vec<(NodeId, Part)>,
    renter: Renter,
    /// Where the renter has what only the command is to read.
    own: TempDir,
}

impl Story {
    async fn begin(agents: &[&str], more: &[&str]) -> Result<Self> {
        let pool = Pool::open().await?;
        let controller = pool.controller(&pool.path("controller"), "127.0.0.1:0").await?;
        let mut running = Vec::new();
        for name in agents {
            let mut args = pool.agent_args(&controller.url, &pool.path(name), "A100 80GB");
            args.extend(more.iter().map(ToString::to_string));
            let mut part = Part::start(pool.home(), name, args)?;
            while part.said("event").await? != "linked" {}
            let node = NodeId(Signer::open_or_create(&pool.path(name).join("node.key"))?.account().0);
            running.push((node, part));
        }
        let renter = Renter::funded(&pool, &controller.url, "ada", DEPOSIT).await?;
        until("all offers", async || {
            let offers = renter.client.offers(&OfferQuery::default()).await?.offers;
            let nodes: BTreeSet<NodeId> = offers.iter().map(|offer| offer.node).collect();
            Ok((nodes.len() == agents.len()).then_some(()))
        })
        .await?;
        let login = ["login", "--controller", &controller.url, "--chain-rpc", &pool.rpc, "--key-file", "ada.key"];
        run(pool.home(), login).await?.json()?;
        Ok(Self { pool, _controller: controller, agents: running, renter, own: tempfile::tempdir()? })
    }

    /// A file of the renter's own with this in it.
    fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.own.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// `--secret` of the token's file.
    fn token(&self) -> Result<String> {
        Ok(format!("--secret=token={}", self.file("token", CANARY)?.display()))
    }

    /// Starts `selion` as the renter would.
    fn selion(&self, args: &[&str]) -> Result<Part> {
        Part::start(self.pool.home(), "terminal", args)
    }

    /// The newest lease, once there are so many.
    async fn newest(&self, count: usize) -> Result<LeaseId> {
        let all = PageQuery { page_size: Some(100), page_token: None };
        until("the lease", async || {
            let leases = self.renter.client.leases(&all).await?.leases;
            Ok((leases.len() == count).then(|| leases[0].id))
        })
        .await
    }

    async fn ended(&self, id: LeaseId) -> Result<Lease> {
        Ok(self.renter.client.wait(id, LeaseState::Ended, PATIENCE).await?)
    }

    /// What the members printed and what was said of them.
    async fn said(&self, id: LeaseId) -> Result<String> {
        use futures::StreamExt;
        let lines = self.renter.client.logs(id, &LogQuery { tail: None, follow: Some(false) });
        let lines: Vec<_> = lines.collect::<Vec<_>>().await.into_iter().collect::<Result<_, _>>()?;
        Ok(lines.iter().map(|line| format!("{}\n", line.text)).collect())
    }

    /// Looks at every file of controller, agents and profile, logs included.
    fn nothing_in_the_clear(&self, canary: &str) -> Result<()> {
        let all = files(self.pool.home())?;
        ensure!(all.len() > 10, "too few files to be all");
        for file in all {
            // What is gone meanwhile holds nothing.
            let Ok(bytes) = std::fs::read(&file) else { continue };
            let there = bytes.windows(canary.len()).any(|part| part == canary.as_bytes());
            ensure!(!there, "{canary} is in {}", file.display());
        }
        Ok(())
    }
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir)?.flatten() {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            all.extend(files(&entry.path())?);
        } else if kind.is_file() {
            all.push(entry.path());
        }
    }
    Ok(all)
}

#[tokio::test]
async fn a_secret_reaches_its_command_and_nobody_between_has_it() -> Result<()> {
    let story = Story::begin(&["one"], &[]).await?;
    let (token, env) = (story.token()?, format!("--env=PLAIN={ENV_CANARY}"));
    let program = format!("{PROGRAM}; test \"$PLAIN\" = {ENV_CANARY} || exit 8; until test -e go; do sleep 0.1; done");
    let mut terminal = story.selion(&["run", "--slice", "whole", &token, &env, "--", "sh", "-c", &program])?;
    let id = story.newest(1).await?;
    story.renter.client.wait(id, LeaseState::Active, PATIENCE).await?;
    story.nothing_in_the_clear(CANARY)?;
    // The pool reads the environment, and does not have it on its disk so.
    for file in files(&story.pool.path("controller"))? {
        let bytes = std::fs::read(&file).unwrap_or_default();
        ensure!(!bytes.windows(ENV_CANARY.len()).any(|part| part == ENV_CANARY.as_bytes()), "{}", file.display());
    }
    let view = story.renter.client.secrets(id).await?;
    assert_eq!((view.names, view.members.len()), (vec!["token".to_owned()], 0), "nobody waits for secrets any more");
    story.renter.client.release(id).await?;
    let ended = story.ended(id).await?;
    assert_eq!(ended.reason, Some(Reason::Released), "{}", story.said(id).await?);
    assert!(story.said(id).await?.contains("found"));
    terminal.ended().await?;
    story.nothing_in_the_clear(CANARY)?;
    Ok(())
}

#[tokio::test]
async fn secrets_are_sealed_by_hand_or_kept_by_the_pool_that_was_told_it_may() -> Result<()> {
    let story = Story::begin(&["one"], &[]).await?;
    let mut request = want(SliceWant::Whole, &["sh", "-c", PROGRAM]);
    request.secrets = vec!["token".to_owned()];
    let client = &story.renter.client;
    let id = client.create_signed_lease(&story.renter.wallet, &story.pool.id(), &fresh_key()?, &mut request).await?.id;
    client.wait(id, LeaseState::Preparing, PATIENCE).await?;
    let (token, name) = (story.token()?, id.to_string());
    let other = format!("--secret=other={}", story.file("other", CANARY)?.display());
    let refused = run(story.pool.home(), ["lease", "seal", &name, &other]).await?;
    ensure!(refused.code == Some(2) && refused.said().contains("needs token, and other were given"), "{refused:?}");
    run(story.pool.home(), ["lease", "seal", &name, &token]).await?.json()?;
    assert_eq!(story.ended(id).await?.reason, Some(Reason::Completed), "{}", story.said(id).await?);

    let args = ["lease", "create", "--slice", "whole", &token, "--pool-may-keep-secrets", "--", "sh", "-c", PROGRAM];
    run(story.pool.home(), args).await?.json()?;
    let id = story.newest(2).await?;
    assert_eq!(story.ended(id).await?.reason, Some(Reason::Completed), "{}", story.said(id).await?);
    story.nothing_in_the_clear(CANARY)
}

#[tokio::test]
async fn a_repaired_member_has_its_secrets_sealed_anew_by_who_follows_the_lease() -> Result<()> {
    let mut story = Story::begin(&["one", "two", "three"], &[]).await?;
    let token = story.token()?;
    // Apart: all nodes are on this machine, and have the same ports to pass on.
    let program = format!("{PROGRAM}; sleep 60");
    let flags = ["run", "--slice", "whole", "--count", "2", "--min-count", "1", "--network", "apart", &token];
    let args: Vec<&str> = flags.into_iter().chain(["--on-node-loss", "repair", "--", "sh", "-c", &program]).collect();
    let _terminal = story.selion(&args)?;
    let id = story.newest(1).await?;
    let before = story.renter.client.wait(id, LeaseState::Active, PATIENCE).await?;
    let lost = before.members[1].node;
    let at = story.agents.iter().position(|(node, _)| *node == lost).context("the agent under member 1")?;
    story.agents[at].1.kill().await?;
    let client = &story.renter.client;
    until("the repaired member to run with its secret", async || {
        let lease = client.lease(id).await?;
        ensure!(lease.state == LeaseState::Active, "{lease:?}");
        let repaired = &lease.members[1];
        Ok((repaired.attempt == 2 && repaired.billable_ms > 0).then_some(()))
    })
    .await?;
    story.nothing_in_the_clear(CANARY)?;
    client.release(id).await?;
    story.ended(id).await?;
    Ok(())
}

/// `robot` with `open sesame`, as bcrypt.
const USERS: &str = "robot:$2b$05$abcdefghijklmnopqrstuupx2xBUC4954936wVIjyyPHmUBFu0wCW\n";
const PASSWORD: &str = "open sesame";

/// A registry that lets nobody in without a password.
struct Registry {
    process: Child,
    host: String,
    dir: TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Registry {
    /// `None` where none is installed.
    fn start() -> Result<Option<Self>> {
        let dir = tempfile::tempdir()?;
        let at = |name: &str| dir.path().join(name).display().to_string();
        // A port that was free a moment ago: the registry takes no listening socket.
        let host = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        std::fs::write(at("users"), USERS)?;
        let (data, users) = (at("data"), at("users"));
        let text = format!(
            "version: 0.1\nlog:\n  level: info\nstorage:\n  filesystem:\n    rootdirectory: {data}\nhttp:\n  addr: {host}\n\
             auth:\n  htpasswd:\n    realm: here\n    path: {users}\n"
        );
        std::fs::write(at("c.yml"), text)?;
        let started = Command::new("docker-registry")
            .args(["serve", &at("c.yml")])
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        let Ok(mut process) = started else {
            println!("skipped: docker-registry is not installed");
            return Ok(None);
        };
        let mut lines = BufReader::new(process.stderr.take().context("stderr is piped")?).lines();
        let listens = lines.by_ref().map_while(Result::ok).any(|line| line.contains("listening on"));
        ensure!(listens, "the registry ended");
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Some(Self { process, host, dir }))
    }

    /// Pushes an image of a shell as `HOST/a/b:1`; its digest.
    async fn push(&self) -> Result<String> {
        let mut recipe = Recipe::default();
        for (name, from) in [("bin/sh", "/bin/sh"), ("bin/cat", "/bin/cat")] {
            recipe.entries.insert(name.into(), Ingredient::Copy(from.into(), 0o755));
        }
        for library in ["/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6"] {
            let inside = library.trim_start_matches('/').to_owned();
            recipe.entries.insert(inside, Ingredient::Copy(library.into(), 0o755));
        }
        let layout = self.dir.path().join("layout");
        let digest = recipe.write(&layout)?.to_string();
        let http = reqwest::Client::builder().no_proxy().build()?;
        let base = format!("http://{}/v2/a/b", self.host);
        for blob in std::fs::read_dir(layout.join("blobs/sha256"))?.flatten() {
            let (name, bytes) = (format!("sha256:{}", blob.file_name().to_string_lossy()), std::fs::read(blob.path())?);
            if name == digest {
                continue;
            }
            let begun = http.post(format!("{base}/blobs/uploads/")).basic_auth("robot", Some(PASSWORD)).send().await?;
            let place = begun.headers()["location"].to_str()?.to_owned();
            let put = http.put(format!("{place}&digest={name}")).basic_auth("robot", Some(PASSWORD)).body(bytes);
            ensure!(put.send().await?.status() == 201, "{name} was not taken");
        }
        let manifest = std::fs::read(layout.join("blobs/sha256").join(digest.trim_start_matches("sha256:")))?;
        let put = http.put(format!("{base}/manifests/1")).basic_auth("robot", Some(PASSWORD)).body(manifest);
        let put = put.header("content-type", "application/vnd.oci.image.manifest.v1+json");
        ensure!(put.send().await?.status() == 201, "the manifest was not taken");
        Ok(digest)
    }
}

#[tokio::test]
async fn a_private_image_is_pulled_with_credentials_that_only_its_node_has() -> Result<()> {
    let Some(registry) = Registry::start()? else { return Ok(()) };
    let digest = registry.push().await?;
    let config = tempfile::tempdir()?;
    let file = config.path().join("agent.toml");
    let host = &registry.host;
    std::fs::write(&file, format!("[registries]\nplain_http = [\"{host}\"]\nprivate = [\"127.0.0.1\"]\n"))?;
    let story = Story::begin(&["one"], &["--config", &file.display().to_string()]).await?;
    let good = format!("--registry-auth={}", story.file("good", &format!("robot:{PASSWORD}\n"))?.display());
    let wrong = format!("--registry-auth={}", story.file("wrong", "robot:canary-77aa-wrong")?.display());
    let (tag, pinned) = (format!("{host}/a/b:1"), format!("{host}/a/b@{digest}"));
    let program = ["--", "/bin/sh", "-c", "echo inside"];
    let ran = async |image: &str, auth: &str| {
        let args = ["run", "--slice", "whole", "--image", image, auth].into_iter().chain(program);
        run(story.pool.home(), args).await
    };
    let inside = ran(&tag, &good).await?;
    ensure!(inside.code == Some(0) && inside.out.contains("inside"), "{}", inside.said());
    // The image is on the node by now; who may not have it gets it no more than before.
    let refused = ran(&tag, &wrong).await?;
    ensure!(refused.code == Some(255) && refused.said().contains("no_image"), "{}", refused.said());
    let failed = ran(&pinned, &wrong).await?;
    ensure!(failed.code == Some(255) && failed.said().contains("staging_failed"), "{}", failed.said());
    let said = story.said(story.newest(2).await?).await?;
    ensure!(said.contains("credentials"), "{said}");
    for text in [refused.said(), failed.said(), said] {
        ensure!(!text.contains("canary-77aa-wrong"), "{text}");
    }
    story.nothing_in_the_clear("canary-77aa-wrong")?;
    story.nothing_in_the_clear(PASSWORD)
}
