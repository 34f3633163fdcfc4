//! Who is let in: the `Host` and `Origin` of a request, the secret in its path, and the methods that it may call.

use axum::http::{
    HeaderMap, StatusCode,
    header::{HOST, ORIGIN},
    uri::Authority,
};
use revm::primitives::{B256, hex, keccak256};
use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write},
    net::{IpAddr, SocketAddr},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    str::FromStr,
};

/// File of the secret in the data directory.
const TOKEN_FILE: &str = "token";
/// File of the whole URL in the data directory, written at each start.
const URL_FILE: &str = "url";
/// Length of the secret in bytes: nobody guesses 128 bits.
const TOKEN_BYTES: usize = 16;

/// Which methods beyond those of a real chain's node are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DevMethods {
    /// None: history and balances change by transactions alone.
    #[default]
    Off,
    /// `anvil_setBalance`: whoever reaches the port can make coins.
    Coins,
    /// Also `dev_reorg`, `anvil_*` and `evm_*`: whoever reaches the port can rewrite history and set the clock.
    All,
}

impl DevMethods {
    /// Whether `method` is answered.
    pub(crate) fn allow(self, method: &str) -> bool {
        let of_development = ["dev_", "anvil_", "evm_"].iter().any(|prefix| method.starts_with(prefix));
        match self {
            Self::Off => !of_development,
            Self::Coins => !of_development || method == "anvil_setBalance",
            Self::All => true,
        }
    }
}

impl fmt::Display for DevMethods {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Off => "off",
            Self::Coins => "coins",
            Self::All => "all",
        })
    }
}

impl FromStr for DevMethods {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Off, Self::Coins, Self::All];
        let found = all.into_iter().find(|methods| methods.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is none of off, coins and all"))
    }
}

/// What a request must show to be answered.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    /// Whether the port is bound to loopback.
    loopback: bool,
    /// Hash of the only path that is served; `None` serves `/`. Hashes are compared, so that the time of an answer
    /// tells nothing of the secret.
    path: Option<B256>,
}

impl Door {
    /// The door of a port. With a token only `/TOKEN` is served.
    pub(crate) fn new(bound: SocketAddr, token: Option<&str>) -> Self {
        let path = token.map(|token| keccak256(format!("/{token}")));
        Self { loopback: bound.ip().is_loopback(), path }
    }

    /// Lets a request in, or says why not.
    ///
    /// A page in a browser may send requests to this machine under a name that its owner points here (DNS rebinding):
    /// so a name other than `localhost` is refused, and so is whatever comes from a page.
    pub(crate) fn admit(&self, path: &str, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        if headers.contains_key(ORIGIN) {
            return Err((StatusCode::FORBIDDEN, "web pages may not call the dev chain\n"));
        }
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).and_then(|host| host.parse().ok());
        if !host.is_some_and(|host: Authority| self.is_own(host.host())) {
            return Err((StatusCode::FORBIDDEN, "call the dev chain by its IP address or as localhost\n"));
        }
        if self.path.is_none_or(|served| served == keccak256(path)) {
            return Ok(());
        }
        Err((
            StatusCode::NOT_FOUND,
            "this dev chain has a secret in its URL: see the file `url` in its data directory\n",
        ))
    }

    fn is_own(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback() || !self.loopback,
            Err(_) => bare.eq_ignore_ascii_case("localhost"),
        }
    }
}

/// The secret of a data directory, made at the first start.
pub(crate) fn token(dir: &Path) -> io::Result<String> {
    let path = dir.join(TOKEN_FILE);
    match fs::read_to_string(&path) {
        Ok(text) if text.len() == 2 * TOKEN_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit()) => Ok(text),
        Ok(_) => Err(io::Error::new(ErrorKind::InvalidData, format!("{} holds no token; remove it", path.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mut bytes = [0; TOKEN_BYTES];
            getrandom::fill(&mut bytes).map_err(io::Error::other)?;
            let token = hex::encode(bytes);
            write_private(&path, &token)?;
            Ok(token)
        }
        Err(error) => Err(error),
    }
}

/// Writes where the chain is, for those who may read the directory.
pub(crate) fn write_url(dir: &Path, bound: SocketAddr, token: &str) -> io::Result<()> {
    write_private(&dir.join(URL_FILE), &format!("http://{bound}/{token}\n"))
}

/// Writes a file for this user alone, whole or not at all.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("draft");
    let mut file: File = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn said(door: &Door, path: &str, host: Option<&'static str>, origin: Option<&'static str>) -> u16 {
        let mut headers = HeaderMap::new();
        for (name, value) in [(HOST, host), (ORIGIN, origin)] {
            headers.extend(value.map(|value| (name, HeaderValue::from_static(value))));
        }
        door.admit(path, &headers).map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    #[test]
    fn a_name_that_anybody_may_point_here_is_refused_and_so_is_every_page() {
        let here = Door::new(([127, 0, 0, 1], 8545).into(), None);
        for host in ["127.0.0.1:8545", "localhost", "LOCALHOST:1", "[::1]:8545", "127.9.9.9"] {
            assert_eq!(said(&here, "/", Some(host), None), 200, "{host}");
            assert_eq!(said(&here, "/", Some(host), Some("http://localhost:3000")), 403, "{host}");
        }
        for host in
            ["evil.example", "evil.example:8545", "localhost.evil.example", "203.0.113.7", "127.0.0.1.nip.io", ""]
        {
            assert_eq!(said(&here, "/", Some(host), None), 403, "{host}");
        }
        assert_eq!(said(&here, "/", None, None), 403);
        let wide = Door::new(([0, 0, 0, 0], 8545).into(), None);
        assert_eq!(said(&wide, "/", Some("203.0.113.7:8545"), None), 200);
        assert_eq!(said(&wide, "/", Some("evil.example"), None), 403);
    }

    #[test]
    fn a_private_chain_answers_at_its_secret_path_alone() {
        let door = Door::new(([127, 0, 0, 1], 1).into(), Some("5ec7e7"));
        assert_eq!(said(&door, "/5ec7e7", Some("localhost"), None), 200);
        for path in ["/", "/5ec7e", "/5ec7e7/", "/5ec7e71", "//5ec7e7"] {
            assert_eq!(said(&door, path, Some("localhost"), None), 404, "{path}");
        }
    }

    #[test]
    fn methods_that_change_history_or_balances_are_off_unless_asked_for() {
        for method in ["dev_reorg", "anvil_reorg", "anvil_mine", "evm_mine", "evm_increaseTime", "anvil_anything"] {
            assert!(!DevMethods::Off.allow(method) && !DevMethods::Coins.allow(method), "{method}");
            assert!(DevMethods::All.allow(method), "{method}");
        }
        assert!(!DevMethods::Off.allow("anvil_setBalance") && DevMethods::Coins.allow("anvil_setBalance"));
        assert!(DevMethods::Off.allow("eth_call"));
        assert_eq!("coins".parse(), Ok(DevMethods::Coins));
        assert!("some".parse::<DevMethods>().unwrap_err().contains("off, coins and all"));
    }

    #[test]
    fn the_secret_is_made_once_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let made = token(dir.path()).unwrap();
        assert_eq!(token(dir.path()).unwrap(), made);
        write_url(dir.path(), ([127, 0, 0, 1], 7).into(), &made).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join(URL_FILE)).unwrap(), format!("http://127.0.0.1:7/{made}\n"));
        for file in [TOKEN_FILE, URL_FILE] {
            let mode = fs::metadata(dir.path().join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        fs::write(dir.path().join(TOKEN_FILE), "../../etc").unwrap();
        assert!(token(dir.path()).is_err());
    }
}
