//! The renter's profile: which pool, and with which login. A folder with `profile.toml` and `credentials`.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use figment::Figment;
use figment::providers::{Format, Toml};
use selion_api::Address;
use selion_api::rest::Session;
use selion_audit::KeptPromise;
use selion_client::{Keeper, Turn};
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
    /// The account's key; none where a device or an API key logged in.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
}

/// What a profile logs in with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Credentials {
    /// A session, renewed as needed.
    Session(Session),
    /// An API key.
    Key {
        /// The key.
        api_key: String,
    },
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

    /// Where promises are kept, one a line.
    fn promises_file(&self) -> PathBuf {
        self.0.join("promises.jsonl")
    }

    /// Adds promises to those kept. They are on disk on return.
    pub fn keep_promises(&self, promises: impl IntoIterator<Item = KeptPromise>) -> Done {
        let lines: Vec<String> = promises.into_iter().filter_map(|kept| serde_json::to_string(&kept).ok()).collect();
        if lines.is_empty() {
            return Ok(());
        }
        self.make()?;
        let path = self.promises_file();
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        // One write of whole lines: commands that run at one time do not mix theirs.
        let text = lines.join("\n") + "\n";
        let written = options.open(&path).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|error| Failure::file(&path, &error))
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
                "run `selion login --controller URL` for a pool, or `selion up` for one of your own; with \
                 SELION_CONTROLLER and SELION_API_KEY both set no profile is needed",
            )
        })
    }

    /// The login that is kept, if there is one. Refused if others can read it.
    pub fn credentials(&self) -> Done<Option<Credentials>> {
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
        read_toml(&path)
    }

    /// Writes both files, each whole or not at all. The folder and the login are for this user alone.
    pub fn save(&self, profile: &Profile, credentials: &Credentials) -> Done {
        self.make()?;
        let mut text = String::from("# Written by `selion login`.\n");
        let mut put = |name: &str, value: &str| text.push_str(&format!("{name} = {value}\n"));
        put("controller", &quoted(&profile.controller));
        put("chain_id", &profile.chain_id.to_string());
        put("pool", &quoted(&profile.pool.to_string()));
        if let Some(rpc) = &profile.chain_rpc {
            put("chain_rpc", &quoted(rpc));
        }
        if let Some(path) = &profile.key_file {
            let path = path.to_str().ok_or_else(|| {
                Failure::usage(format!("{} is not UTF-8", path.display()), "name the key file in UTF-8")
            })?;
            put("key_file", &quoted(path));
        }
        self.keep(credentials)?;
        write_private(&self.profile_file(), &text)
    }

    /// Writes the login.
    fn keep(&self, credentials: &Credentials) -> Done {
        let text = match credentials {
            Credentials::Key { api_key } => format!("api_key = {}\n", quoted(api_key)),
            Credentials::Session(session) => format!(
                "account = {}\ntoken = {}\nexpires_ms = {}\nrefresh_token = {}\nrefresh_expires_ms = {}\n",
                quoted(&session.account.to_string()),
                quoted(&session.token),
                session.expires_ms.0,
                quoted(&session.refresh_token),
                session.refresh_expires_ms.0,
            ),
        };
        write_private(&self.credentials_file(), &text)
    }

    /// Forgets the login; the profile stays.
    pub fn forget(&self) -> Done {
        let path = self.credentials_file();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Failure::file(&path, &error)),
            _ => Ok(()),
        }
    }

    /// A folder for what a command needs while it runs: below the profile's, or where the system has such, if there is
    /// no profile.
    pub fn scratch(name: &str) -> PathBuf {
        let name = format!("{name}-{}", std::process::id());
        match Self::find() {
            Ok(home) => home.0.join(name),
            Err(_) => std::env::temp_dir().join(format!("selion-{name}")),
        }
    }

    /// Makes the folder.
    pub fn make(&self) -> Done {
        make_private(&self.0)
    }
}

/// Commands that run at one time share a session: whoever renews it locks `credentials.lock`.
impl Keeper for Home {
    fn turn(&self) -> Result<Box<dyn Turn>, String> {
        let path = self.credentials_file().with_extension("lock");
        let open = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let locked = open.and_then(|file| file.lock().map(|()| file));
        let lock = locked.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Box::new(HomeTurn { home: self.clone(), _lock: lock }))
    }
}

struct HomeTurn {
    home: Home,
    /// Closing the file ends the turn.
    _lock: File,
}

impl Turn for HomeTurn {
    fn kept(&self) -> Option<Session> {
        match self.home.credentials() {
            Ok(Some(Credentials::Session(session))) => Some(session),
            _ => None,
        }
    }

    fn keep(&self, session: &Session) -> Result<(), String> {
        self.home.keep(&Credentials::Session(session.clone())).map_err(|failure| failure.body().detail.clone())
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
            key_file: Some("/somewhere/a \"quoted\" key".into()),
        }
    }

    fn key() -> Credentials {
        Credentials::Key { api_key: "sk_1_secret".to_owned() }
    }

    fn session(refresh_token: &str) -> Session {
        Session {
            account: selion_api::Account([3; 20]),
            token: "a.b.c".to_owned(),
            expires_ms: selion_api::TimeMs(7),
            refresh_token: refresh_token.to_owned(),
            refresh_expires_ms: selion_api::TimeMs(9),
        }
    }

    #[test]
    fn commands_renew_a_session_in_turns_and_see_what_the_other_made_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        home.save(&profile(), &Credentials::Session(session("rt_1"))).unwrap();
        let turn = home.turn().unwrap();
        assert_eq!(turn.kept(), Some(session("rt_1")));
        let (other, (done, ended)) = (home.clone(), std::sync::mpsc::channel());
        let waiting = std::thread::spawn(move || {
            let kept = other.turn().unwrap().kept();
            done.send(()).unwrap();
            kept
        });
        assert!(ended.try_recv().is_err(), "the other waits");
        turn.keep(&session("rt_2")).unwrap();
        drop(turn);
        assert_eq!(waiting.join().unwrap(), Some(session("rt_2")));
        home.forget().unwrap();
        home.forget().unwrap();
        assert_eq!(home.credentials().unwrap(), None);
        assert_eq!(home.profile().unwrap(), profile());
    }

    fn home(dir: &Path) -> Home {
        Home::at(dir.join("profile"))
    }

    #[test]
    fn a_profile_reads_back_and_only_its_owner_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        home.save(&profile(), &key()).unwrap();
        assert_eq!(home.profile().unwrap(), profile());
        assert_eq!(home.credentials().unwrap(), Some(key()));
        let bare = Profile { key_file: None, ..profile() };
        home.save(&bare, &Credentials::Session(session("rt_secret"))).unwrap();
        assert_eq!(home.profile().unwrap(), bare);
        assert_eq!(home.credentials().unwrap(), Some(Credentials::Session(session("rt_secret"))));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&home.0), 0o700);
        assert_eq!(mode(&home.0.join("credentials")), 0o600);
        assert!(!fs::read_to_string(home.0.join("profile.toml")).unwrap().contains("secret"));
    }

    #[test]
    fn promises_are_added_line_by_line_and_read_back_as_an_audit_reads_them() {
        use selion_api::agent::{Fence, Promise, SignedPromise};
        use selion_api::commit::PoolId;
        use selion_api::{Account, Hash32, Signature};
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        home.make().unwrap();
        let kept = |seq| {
            let promise = Promise { account: Account([9; 20]), seq, leaf: Hash32([3; 32]), fence: Fence::default() };
            let signed = SignedPromise { promise, signature: Signature([1; 65]) };
            KeptPromise { pool: PoolId { chain_id: 1, controller: Address([7; 20]) }, signed }
        };
        home.keep_promises([kept(1), kept(2)]).unwrap();
        home.keep_promises([]).unwrap();
        home.keep_promises([kept(3)]).unwrap();
        let text = fs::read_to_string(home.promises_file()).unwrap();
        assert_eq!(selion_audit::read_promises(&text).unwrap(), [kept(1), kept(2), kept(3)]);
    }

    #[test]
    fn credentials_that_others_can_read_are_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        home.save(&profile(), &key()).unwrap();
        let path = home.0.join("credentials");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let failure = home.credentials().unwrap_err();
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
