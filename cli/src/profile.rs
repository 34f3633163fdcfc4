//! The renter's profile: which pool, and with which key. A folder with `profile.toml` and `credentials`.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use figment::Figment;
use figment::providers::{Format, Toml};
use selion_api::Address;
use serde::{Deserialize, Serialize};

use crate::exit::Exit;
use crate::failure::{Done, Failure};

/// What `profile.toml` holds. Nothing in it is secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Base URL of the controller.
    pub controller: String,
    /// EIP-155 id of the pool's chain.
    pub chain_id: u64,
    /// The pool's Controller contract: what requests are signed for.
    pub pool: Address,
    /// JSON-RPC of the chain, for moving money.
    pub chain_rpc: Option<String>,
    /// The account's key.
    pub key_file: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Credentials {
    api_key: String,
}

/// A profile's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home(PathBuf);

impl Home {
    /// `$SELION_HOME`, or `selion` in `$XDG_CONFIG_HOME`, or `~/.config/selion`.
    pub fn find() -> Done<Self> {
        Self::from_env(|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)).ok_or_else(
            || Failure::usage("there is no home directory for the profile", "set SELION_HOME to a folder of your own"),
        )
    }

    fn from_env(var: impl Fn(&str) -> Option<PathBuf>) -> Option<Self> {
        var("SELION_HOME")
            .or_else(|| var("XDG_CONFIG_HOME").map(|dir| dir.join("selion")))
            .or_else(|| var("HOME").map(|dir| dir.join(".config/selion")))
            .map(Self)
    }

    /// The profile in this folder.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self(dir.into())
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// Where a key is made when none is named.
    pub fn default_key_file(&self) -> PathBuf {
        self.0.join("key")
    }

    fn profile_file(&self) -> PathBuf {
        self.0.join("profile.toml")
    }

    fn credentials_file(&self) -> PathBuf {
        self.0.join("credentials")
    }

    /// The profile, if there is one.
    pub fn read(&self) -> Done<Option<Profile>> {
        read_toml(&self.profile_file())
    }

    /// The profile, or how to get one.
    pub fn profile(&self) -> Done<Profile> {
        self.read()?.ok_or_else(|| {
            Failure::new(
                Exit::Auth,
                "no_profile",
                format!("there is no profile at {}", self.profile_file().display()),
                "run `selion login --controller URL` for a pool, or `selion up` for one of your own",
            )
        })
    }

    /// The cached API key, if there is one. Refused if others can read it.
    pub fn api_key(&self) -> Done<Option<String>> {
        let path = self.credentials_file();
        let mode = match fs::metadata(&path) {
            Ok(meta) => meta.permissions().mode() & 0o777,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::file(&path, &error)),
        };
        if mode & 0o077 != 0 {
            let detail = format!("{} can be read by others (mode {mode:o})", path.display());
            let suggestion = format!("run: chmod 600 {}; if somebody did, log in again", path.display());
            return Err(Failure::new(Exit::Auth, "open_credentials", detail, suggestion));
        }
        Ok(read_toml::<Credentials>(&path)?.map(|credentials| credentials.api_key))
    }

    /// Writes both files, each whole or not at all. The folder and the key are for this user alone.
    pub fn save(&self, profile: &Profile, api_key: &str) -> Done {
        self.make()?;
        let mut text = String::from("# Written by `selion login`.\n");
        let mut put = |name: &str, value: &str| text.push_str(&format!("{name} = {value}\n"));
        put("controller", &quoted(&profile.controller));
        put("chain_id", &profile.chain_id.to_string());
        put("pool", &quoted(&profile.pool.to_string()));
        if let Some(rpc) = &profile.chain_rpc {
            put("chain_rpc", &quoted(rpc));
        }
        let key_file = profile.key_file.to_str().ok_or_else(|| {
            Failure::usage(format!("{} is not UTF-8", profile.key_file.display()), "name the key file in UTF-8")
        })?;
        put("key_file", &quoted(key_file));
        write_private(&self.credentials_file(), &format!("api_key = {}\n", quoted(api_key)))?;
        write_private(&self.profile_file(), &text)
    }

    /// Makes the folder.
    pub fn make(&self) -> Done {
        make_private(&self.0)
    }
}

/// Makes a folder and those above it, for this user alone. One that is there stays as it is.
pub fn make_private(dir: &Path) -> Done {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| Failure::file(dir, &error))
}

/// Writes a file that only this user can read, whole or not at all.
pub fn write_private(path: &Path, text: &str) -> Done {
    let failed = |error| Failure::file(path, &error);
    let draft = path.with_extension(format!("draft-{}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&draft).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&draft, path).map_err(failed)
}

/// A TOML basic string. JSON's escapes are among TOML's.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn read_toml<T: for<'de> Deserialize<'de>>(path: &Path) -> Done<Option<T>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::file(path, &error)),
        Ok(_) => {}
    }
    Figment::from(Toml::file_exact(path)).extract().map(Some).map_err(|error| {
        let suggestion = "correct the file, or run `selion login` to write it anew";
        Failure::usage(format!("{}: {error}", path.display()), suggestion)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        Profile {
            controller: "http://127.0.0.1:7070/".into(),
            chain_id: 31_337,
            pool: Address([7; 20]),
            chain_rpc: None,
            key_file: "/somewhere/a \"quoted\" key".into(),
        }
    }

    fn home(dir: &Path) -> Home {
        Home::at(dir.join("profile"))
    }

    #[test]
    fn a_profile_reads_back_and_only_its_owner_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        home.save(&profile(), "sk_1_secret").unwrap();
        assert_eq!(home.profile().unwrap(), profile());
        assert_eq!(home.api_key().unwrap().as_deref(), Some("sk_1_secret"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&home.0), 0o700);
        assert_eq!(mode(&home.0.join("credentials")), 0o600);
        assert!(!fs::read_to_string(home.0.join("profile.toml")).unwrap().contains("secret"));
    }

    #[test]
    fn credentials_that_others_can_read_are_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        home.save(&profile(), "sk_1_secret").unwrap();
        let path = home.0.join("credentials");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let failure = home.api_key().unwrap_err();
        assert!(failure.body().suggestion.contains("chmod 600"), "{failure:?}");
        assert!(!format!("{failure:?}").contains("secret"));
    }

    #[test]
    fn a_missing_profile_names_both_ways_to_get_one() {
        let dir = tempfile::tempdir().unwrap();
        let failure = home(dir.path()).profile().unwrap_err();
        let next = &failure.body().suggestion;
        assert!(next.contains("selion login") && next.contains("selion up"), "{next}");
        assert_eq!(failure.body().exit, Exit::Auth.code());
    }

    #[test]
    fn the_nearest_of_the_three_places_wins() {
        let find = |set: &[(&str, &str)]| {
            let set: Vec<(String, PathBuf)> =
                set.iter().map(|(name, dir)| ((*name).into(), PathBuf::from(dir))).collect();
            Home::from_env(|name| set.iter().find(|(known, _)| known == name).map(|(_, dir)| dir.clone()))
        };
        let all = [("SELION_HOME", "/a"), ("XDG_CONFIG_HOME", "/b"), ("HOME", "/c")];
        assert_eq!(find(&all), Some(Home::at("/a")));
        assert_eq!(find(&all[1..]), Some(Home::at("/b/selion")));
        assert_eq!(find(&all[2..]), Some(Home::at("/c/.config/selion")));
        assert_eq!(find(&[]), None);
    }
}
