//! Secrets of a lease: read here, sealed here to the nodes that were found for it, and given to the controller as ciphertext.

mod registry_auth;

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use selion_api::lease::LeaseState;
use selion_api::rest::{GiveSecrets, KeptSecret, NewLease, SecretsView};
use selion_api::seal::{MAX_SECRET, REGISTRY, Secret, is_secret_name};
use selion_api::{LeaseId, NodeId};
use selion_client::seal_for;
use selion_contracts::{BlockTag, Pool, Rpc};

use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::output::Output;
use crate::session::Session;

/// First and longest pause between two looks at whom to seal to.
const FIRST_LOOK: Duration = Duration::from_millis(100);
/// The longest: a repaired member waits so much longer at most.
pub const LAST_LOOK: Duration = Duration::from_secs(2);

/// What only the command is to read.
#[derive(Debug, Default, clap::Args)]
pub struct Secrets {
    /// A secret in /run/secrets/NAME, out of a file (- is standard input) or, without one, out of the variable NAME of your own
    /// environment; may be repeated. It is sealed to the node, the pool cannot read it
    #[arg(long = "secret", value_name = "NAME[=FILE]", value_parser = source)]
    secrets: Vec<Source>,
    /// Credentials for the image's registry, sealed like a secret: a file with USER:PASSWORD, or a docker config.json;
    /// - is standard input
    #[arg(long, value_name = "FILE")]
    registry_auth: Option<PathBuf>,
}

/// Where a secret comes from.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    file: Option<PathBuf>,
}

fn source(text: &str) -> Result<Source, String> {
    let (name, file) = match text.split_once('=') {
        Some((name, file)) => (name, Some(file)),
        None => (text, None),
    };
    if !is_secret_name(name) || name == REGISTRY {
        // What may have been meant as the secret itself is not repeated here.
        let form = "1 to 64 letters, digits, `.`, `_` and `-`, the first no `.`";
        return Err(format!("the name before `=` is none of a secret ({form}); write NAME or NAME=FILE"));
    }
    if file == Some("") {
        return Err(format!("no file is named for secret `{name}`; write {name}=FILE, or {name} alone"));
    }
    Ok(Source { name: name.to_owned(), file: file.map(PathBuf::from) })
}

impl Secrets {
    /// The secrets themselves, for a lease in that image. A file that two of them name is read twice, standard input once.
    pub fn read(&self, image: Option<&str>) -> Done<Vec<Secret>> {
        let inputs = self.secrets.iter().filter_map(|one| one.file.as_deref()).chain(self.registry_auth.as_deref());
        if inputs.filter(|file| *file == Path::new("-")).count() > 1 {
            return Err(Failure::usage("standard input is named twice", "give all secrets but one another way"));
        }
        let mut all = Vec::new();
        for Source { name, file } in &self.secrets {
            let value = match file {
                Some(file) => bytes(file)?,
                None => variable(name)?,
            };
            all.push(Secret { name: name.clone(), value });
        }
        if let Some(file) = &self.registry_auth {
            let image = image.ok_or_else(|| {
                Failure::usage(
                    "--registry-auth is for the image of a registry, and there is no --image",
                    "leave it away",
                )
            })?;
            let value = registry_auth::read(&Secret { name: REGISTRY.to_owned(), value: bytes(file)? }, image)?;
            all.push(Secret { name: REGISTRY.to_owned(), value });
        }
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Secret::check(&all)
            .map_err(|error| Failure::usage(error, "give fewer, shorter or differently named secrets"))?;
        Ok(all)
    }

    /// The names that a request says, without reading any.
    pub fn names(&self) -> Vec<String> {
        let registry = self.registry_auth.as_ref().map(|_| REGISTRY.to_owned());
        self.secrets.iter().map(|one| one.name.clone()).chain(registry).collect()
    }
}

/// Names the image of a request by digest, as the controller cannot ask a registry that wants credentials.
pub async fn pin_image(request: &mut NewLease, secrets: &[Secret]) -> Done {
    match (secrets.iter().find(|secret| secret.name == REGISTRY), &mut request.image) {
        (Some(secret), Some(image)) => registry_auth::pin(image, secret).await,
        _ => Ok(()),
    }
}

/// At most a little more than a secret may have: what is longer is refused by its length.
fn bytes(file: &Path) -> Done<Vec<u8>> {
    let mut value = Vec::new();
    let most = MAX_SECRET as u64 + 1;
    let read = if file == Path::new("-") {
        std::io::stdin().take(most).read_to_end(&mut value)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(most).read_to_end(&mut value))
    };
    read.map_err(|error| Failure::file(file, &error))?;
    Ok(value)
}

fn variable(name: &str) -> Done<Vec<u8>> {
    std::env::var_os(name).map(std::ffi::OsString::into_encoded_bytes).ok_or_else(|| {
        let detail = format!("secret `{name}` names no file, and your environment has no variable {name}");
        Failure::usage(detail, format!("set {name}, or write --secret {name}=FILE"))
    })
}

/// Seals the secrets of one lease, as often as its members need them.
pub struct Sealer<'a> {
    session: &'a Session,
    out: Output,
    id: LeaseId,
    secrets: Vec<Secret>,
    /// Nodes that the chain names.
    known: BTreeSet<NodeId>,
}

impl<'a> Sealer<'a> {
    /// For this lease.
    pub fn new(session: &'a Session, out: Output, id: LeaseId, secrets: Vec<Secret>) -> Self {
        Self { session, out, id, secrets, known: BTreeSet::new() }
    }

    /// Whether there is anything to seal.
    pub fn is_needed(&self) -> bool {
        !self.secrets.is_empty()
    }

    /// One look: seals for every member that has no secrets of its run yet. True once there is nobody left to seal for, and
    /// somebody was sealed for.
    pub async fn pass(&mut self) -> Done<bool> {
        if self.secrets.is_empty() {
            return Ok(true);
        }
        let view = match self.session.client.secrets(self.id).await {
            // The controller may be starting again; what runs goes on.
            Err(error) if error.is_retryable() => return Ok(false),
            other => other?,
        };
        self.fits(&view)?;
        if view.pool_may_keep {
            return self.hand_over(&view).await;
        }
        let pool = self.session.pool_id();
        let mut left = view.members.len();
        for member in &view.members {
            let Some(key) = member.key else { continue };
            if member.sealed_to != Some(key.key) {
                self.is_of_the_pool(member.node).await?;
                let Some(sealed) = seal_for(&pool, self.id, member, &self.secrets)? else { continue };
                let given = GiveSecrets { sealed: vec![sealed], kept: Vec::new() };
                match self.session.client.give_secrets(self.id, &given).await {
                    Ok(_) => {
                        self.out.note(format!("{} rank {}: secrets sealed to {}", self.id, member.rank, member.node))
                    }
                    // It started, failed or moved on meanwhile: the next look tells.
                    Err(error) if matches!(error.code(), Some("bad_fields" | "not_live")) => continue,
                    Err(error) => return Err(error.into()),
                }
            }
            left -= 1;
        }
        Ok(left == 0 && !view.members.is_empty())
    }

    /// Seals until every member of the run that begins has its secrets.
    pub async fn until_sealed(&mut self) -> Done {
        let mut pause = FIRST_LOOK;
        let mut told = false;
        while !self.pass().await? {
            let lease = self.session.client.lease(self.id).await?;
            if lease.state == LeaseState::Ended {
                super::lease::verdict(&lease)?;
                let detail = format!("{} is over, and nobody waits for its secrets", self.id);
                return Err(Failure::new(
                    Exit::Conflict,
                    "not_live",
                    detail,
                    "ask for a new lease if you still need it",
                ));
            }
            if lease.state > LeaseState::Preparing {
                return Ok(());
            }
            if lease.state == LeaseState::Waiting && !told {
                told = true;
                let id = self.id;
                self.out.note(format!(
                    "{id} waits for a place, to whose node its secrets are sealed; Ctrl-C leaves it waiting, then \
                     `selion lease seal {id}` with the same secrets does it"
                ));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_LOOK);
        }
        Ok(())
    }

    fn fits(&self, view: &SecretsView) -> Done {
        let ours: Vec<&str> = self.secrets.iter().map(|secret| secret.name.as_str()).collect();
        if ours == view.names {
            return Ok(());
        }
        let what = if view.names.is_empty() { "no secrets".to_owned() } else { view.names.join(", ") };
        let detail = format!("{} needs {what}, and {} were given", self.id, ours.join(", "));
        Err(Failure::usage(detail, "give exactly the secrets that the request named"))
    }

    async fn hand_over(&self, view: &SecretsView) -> Done<bool> {
        if !view.kept {
            let of = |one: &Secret| KeptSecret { name: one.name.clone(), value: STANDARD.encode(&one.value) };
            let given = GiveSecrets { sealed: Vec::new(), kept: self.secrets.iter().map(of).collect() };
            self.session.client.give_secrets(self.id, &given).await?;
            self.out
                .note(format!("{}: the pool keeps its secrets, as was said, and seals them for every run", self.id));
        }
        Ok(true)
    }

    /// Asks the chain, where the profile names one: a controller could show a node of its own making.
    async fn is_of_the_pool(&mut self, node: NodeId) -> Done {
        let Some(url) = self.session.profile.chain_rpc.as_deref().filter(|_| !self.known.contains(&node)) else {
            return Ok(());
        };
        let pool = Pool::open(Rpc::new(url)?, self.session.profile.pool).await?;
        if pool.node(node, BlockTag::Latest).await?.provider.is_none() {
            let detail = format!("the controller placed {} on {node}, which is no node of the pool on chain", self.id);
            let suggestion = format!("nothing was sealed; run: selion lease release {}", self.id);
            return Err(Failure::new(Exit::Server, "unknown_node", detail, suggestion));
        }
        self.known.insert(node);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_named_and_read_and_what_may_be_one_is_not_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, b"hunter2\n").unwrap();
        let named = |text: &str| Secrets { secrets: vec![source(text).unwrap()], registry_auth: None };
        let read = named(&format!("token={}", file.display())).read(None).unwrap();
        assert_eq!((read[0].name.as_str(), read[0].value.as_slice()), ("token", &b"hunter2\n"[..]));
        for bad in ["hunter 2", "a/b=x", "../x", ".x=y", ".registry=y", "", "=x"] {
            let told = source(bad).unwrap_err();
            assert!(told.contains("NAME=FILE") && (bad.is_empty() || !told.contains(bad)), "{told}");
        }
        assert!(source("a=").unwrap_err().contains("a=FILE"));
        let gone = named("SELION_TEST_NO_SUCH_VARIABLE").read(None).unwrap_err();
        assert!(gone.body().detail.contains("no variable"), "{:?}", gone.body());
        std::fs::write(&file, vec![0; MAX_SECRET + 1]).unwrap();
        let long = named(&format!("token={}", file.display())).read(None).unwrap_err();
        assert!(long.body().detail.contains("at most 65536"), "{:?}", long.body());
        let twice = Secrets { secrets: vec![source("a=-").unwrap(), source("b=-").unwrap()], registry_auth: None };
        assert!(twice.read(None).unwrap_err().body().detail.contains("twice"));
    }
}
