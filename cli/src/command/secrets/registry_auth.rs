//! Credentials of a registry: out of a file, for the image's host alone.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use selion_api::seal::Secret;
use selion_dataplane::image::{Credentials, Reference, Registry, RegistryRules};

use crate::exit::Exit;
use crate::failure::{Done, Failure, chain};

/// Host of Docker Hub, and what `docker login` calls it.
const DOCKER_HUB: (&str, [&str; 2]) = ("registry-1.docker.io", ["https://index.docker.io/v1/", "docker.io"]);

fn reference(image: &str) -> Done<Reference> {
    image.parse().map_err(|error| Failure::usage(chain(&error), "write HOST/NAME:TAG or HOST/NAME@sha256:HEX"))
}

/// `USER:PASSWORD` out of that, or out of a docker `config.json`. No failure repeats what was read.
pub(super) fn read(file: &Secret, image: &str) -> Done<Vec<u8>> {
    let host = reference(image)?.host().to_owned();
    let bad =
        |why: String| Failure::usage(format!("--registry-auth: {why}"), "give USER:PASSWORD, or a docker config.json");
    let text = std::str::from_utf8(&file.value).map_err(|_| bad("it is no text".to_owned()))?.trim();
    let pair = if text.starts_with('{') { of_docker(text, &host).map_err(bad)? } else { text.as_bytes().to_vec() };
    if !pair.split(|byte| *byte == b':').next().is_some_and(|user| !user.is_empty() && user.len() < pair.len()) {
        return Err(bad("it has no user and no password with a `:` between them".to_owned()));
    }
    Ok(pair)
}

/// What `docker login` wrote for the host.
fn of_docker(text: &str, host: &str) -> Result<Vec<u8>, String> {
    let config: serde_json::Value = serde_json::from_str(text).map_err(|_| "it is no JSON".to_owned())?;
    let (hub, aliases) = DOCKER_HUB;
    let plain = [host.to_owned(), format!("https://{host}"), format!("https://{host}/v1/")];
    let mut names = plain.into_iter().chain(aliases.into_iter().filter(|_| host == hub).map(str::to_owned));
    let entry = names.find_map(|name| config.get("auths")?.get(&name));
    let entry = entry.ok_or_else(|| format!("`auths` has nothing for {host}; a credential helper is not asked"))?;
    let encoded = entry.get("auth").and_then(serde_json::Value::as_str).filter(|auth| !auth.is_empty());
    let encoded =
        encoded.ok_or_else(|| format!("`auths` has no `auth` for {host}; a credential helper is not asked"))?;
    STANDARD.decode(encoded).map_err(|_| format!("`auth` of {host} is no Base64"))
}

/// Asks the registry which digest a tag stands for: only who has the credentials can.
pub(super) async fn pin(image: &mut String, secret: &Secret) -> Done {
    let reference = reference(image)?;
    if let Some(pinned) = reference.pinned() {
        *image = pinned.to_string();
        return Ok(());
    }
    let host = reference.host().to_owned();
    let name = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name).to_owned();
    let is_near = name == "localhost"
        || name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    // It is the renter's own network from which is asked, and the renter who named the host.
    let rules = RegistryRules {
        plain_http: is_near.then_some(host.clone()).into_iter().collect(),
        private: vec![name],
        ..RegistryRules::default()
    };
    let text = String::from_utf8_lossy(&secret.value).into_owned();
    let (user, password) = text.split_once(':').unwrap_or_default();
    let credentials = Credentials::Basic { user: user.to_owned(), password: password.to_owned() };
    let failed = |error| {
        let suggestion = "check --image and --registry-auth, or name the image by digest";
        Failure::new(Exit::Failure, "no_image", chain(&error), suggestion)
    };
    let registry = Registry::new(rules).map_err(failed)?;
    *image = registry.resolve(&reference, &credentials).await.map_err(failed)?.to_string();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str, image: &str) -> Result<String, String> {
        let file = Secret { name: "f".into(), value: text.as_bytes().to_vec() };
        read(&file, image).map(|pair| String::from_utf8(pair).unwrap()).map_err(|failure| failure.body().detail.clone())
    }

    #[test]
    fn credentials_come_out_of_a_pair_or_of_what_docker_wrote_for_the_host() {
        assert_eq!(given("ann:pw:x\n", "h.example/a:1").as_deref(), Ok("ann:pw:x"));
        let docker = serde_json::json!({ "auths": {
            "h.example": { "auth": STANDARD.encode("ann:one") },
            "https://index.docker.io/v1/": { "auth": STANDARD.encode("ann:two") },
            "helper.example": {},
            "odd.example": { "auth": "hunter2!" },
        }})
        .to_string();
        assert_eq!(given(&docker, "h.example/a:1").as_deref(), Ok("ann:one"));
        assert_eq!(given(&docker, "ubuntu").as_deref(), Ok("ann:two"));
        assert!(given(&docker, "other.example/a").unwrap_err().contains("nothing for other.example"));
        assert!(given(&docker, "helper.example/a").unwrap_err().contains("credential helper"));
        let odd = given(&docker, "odd.example/a").unwrap_err();
        assert!(odd.contains("no Base64") && !odd.contains("hunter2"), "{odd}");
    }

    #[test]
    fn what_is_wrong_is_told_and_never_repeated() {
        for bad in ["hunter2", ":hunter2", "{hunter2", "", "\u{0}"] {
            let told = given(bad, "h.example/a:1").unwrap_err();
            assert!(told.contains("--registry-auth") && !told.contains("hunter2"), "{told}");
        }
    }
}
