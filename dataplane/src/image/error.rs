//! Why an image was not had.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Digest;

/// Why an image was not fetched, unpacked or kept. Nothing half done is visible after any of these.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// What names an image does not parse.
    #[error("{text:?} names no image: {why}; write [HOST[:PORT]/]NAME[:TAG][@sha256:DIGEST]")]
    BadReference {
        /// As given, shortened.
        text: String,
        /// What is wrong.
        why: String,
    },
    /// The registry said no, or nothing that can be used.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// Bytes that are not those that were named.
    #[error("{what} {wanted} has other bytes: they are {found}; the source is damaged or lies, use another")]
    WrongDigest {
        /// Manifest, configuration, layer, unpacked layer.
        what: &'static str,
        /// As it was named.
        wanted: Digest,
        /// As it is.
        found: Digest,
    },
    /// Bytes of another number than was declared.
    #[error(
        "{what} {digest} was declared with {declared} bytes and has {found}; the source is damaged or lies, use another"
    )]
    WrongSize {
        /// Manifest, configuration, layer.
        what: &'static str,
        /// Which.
        digest: Digest,
        /// Bytes declared.
        declared: u64,
        /// Bytes there are; where more than declared come, the count at which reading stopped.
        found: u64,
    },
    /// A document or an archive that does not follow its format.
    #[error("{what} is malformed: {why}; build the image again")]
    Malformed {
        /// Which.
        what: String,
        /// What is wrong.
        why: String,
    },
    /// A format that exists and that this program does not take.
    #[error("{what} {value:?} is not taken here: {help}")]
    Unsupported {
        /// Of what.
        what: &'static str,
        /// The value.
        value: String,
        /// What to do.
        help: &'static str,
    },
    /// There is no image for this machine.
    #[error("there is no image for {wanted}; there is one for: {}; take another tag, or build for {wanted}", there.join(", "))]
    WrongPlatform {
        /// The platform of the node.
        wanted: String,
        /// What there is.
        there: Vec<String>,
    },
    /// Several images, and no word which.
    #[error("there are several images; name one of: {}", there.join(", "))]
    Ambiguous {
        /// Their names.
        there: Vec<String>,
    },
    /// There is no image of that name in a folder or archive.
    #[error("there is no image {wanted:?}; there is: {}", there.join(", "))]
    NoSuchName {
        /// As asked for.
        wanted: String,
        /// The names there are.
        there: Vec<String>,
    },
    /// A file that has to be there is not.
    #[error("{}: {name} is not there; is it an OCI image layout or what docker save wrote?", path.display())]
    NotThere {
        /// The folder or archive.
        path: PathBuf,
        /// The file in it.
        name: String,
    },
    /// More than the limits allow.
    #[error("{what}: more than the {limit} allowed; make the image smaller, or raise the limit")]
    OverLimit {
        /// Of what.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// An entry of a layer that is refused.
    #[error("layer {layer} holds {path:?}, {fault}")]
    Entry {
        /// The layer, by its unpacked digest.
        layer: Digest,
        /// The path as it is written in the layer.
        path: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A layer that ends in the middle.
    #[error("layer {layer} ends in the middle: fetch or build it again")]
    Truncated {
        /// The layer, by its unpacked digest.
        layer: Digest,
    },
    /// The whole took too long.
    #[error("the image was not here after {} s: try again, what has come is kept", after.as_secs())]
    TooLate {
        /// The time allowed.
        after: Duration,
    },
    /// Nobody waits for it any more.
    #[error("stopped: nobody waits for it any more")]
    Stopped,
    /// The cache is full of what is in use.
    #[error(
        "the image cache has {limit} bytes, {held} of them in use, and {wanted} more are needed: raise its limit, or end leases"
    )]
    CacheFull {
        /// Bytes that were to be added.
        wanted: u64,
        /// Bytes of the cache.
        limit: u64,
        /// Bytes that cannot be evicted.
        held: u64,
    },
    /// No room on the disk.
    #[error("no room left on the disk of {}: free some space and try again", path.display())]
    Full {
        /// What was being written.
        path: PathBuf,
    },
    /// Another process has the cache open.
    #[error("the image cache {} is in use by another process: end that one, or choose another folder", path.display())]
    InUse {
        /// The cache's folder.
        path: PathBuf,
    },
    /// The cache was made for other owners of files, or by another release.
    #[error("the image cache {} was made {made} and is now asked for {asked}: remove the folder, or choose another", path.display())]
    OtherCache {
        /// The cache's folder.
        path: PathBuf,
        /// How it was made.
        made: String,
        /// How it is asked for.
        asked: String,
    },
    /// A file system on which layers cannot lie.
    #[error("the file system of {} does not take {what}, which layers need: choose a folder on ext4, xfs or btrfs", path.display())]
    UnfitDisk {
        /// The cache's folder.
        path: PathBuf,
        /// What it does not take.
        what: &'static str,
        /// The system's word.
        #[source]
        source: io::Error,
    },
    /// An owner of pins that cannot be a folder name.
    #[error("pin owner {owner:?} must be 1 to 128 of a-z, A-Z, 0-9, '.', '_', '-', and not start with '.'")]
    BadOwner {
        /// The owner as given.
        owner: String,
    },
    /// The image is not in the cache.
    #[error("image {id} is not in the cache: pull it again")]
    Gone {
        /// The image.
        id: Digest,
    },
    /// A user that the image's configuration, or the caller, names and the image does not have.
    #[error("the image has no user {user:?}: {why}; set another user")]
    NoSuchUser {
        /// As written.
        user: String,
        /// What is missing.
        why: String,
    },
    /// Neither the image nor the lease says what to run.
    #[error("neither the image nor the lease names a program: give a command")]
    NoCommand,
    /// A word of the lease that no program can be started with. The value is not repeated: it may be secret.
    #[error("the {what} cannot be used: {why}; write it anew")]
    BadOverride {
        /// Which.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
    /// Anything else the system refused.
    #[error("{}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Why a registry gave nothing. Carries no credentials and no query of a URL.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// No connection, or one that broke, after all tries.
    #[error("registry {host} cannot be reached: {why}; check the name and the network")]
    Unreachable {
        /// The registry.
        host: String,
        /// The last failure.
        why: String,
    },
    /// It has connected and says nothing.
    #[error("registry {host} did not answer for {} s: try again, or use another registry", after.as_secs())]
    Silent {
        /// The registry.
        host: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// It answers with something that no registry sends.
    #[error(
        "{url} is no registry's answer ({what}): check the registry's name; a web page or a proxy's login may be in between"
    )]
    NotARegistry {
        /// What was asked for.
        url: String,
        /// What came.
        what: String,
    },
    /// It sends us somewhere else.
    #[error("{from} sends us to {to}, which is not followed: {why}")]
    Redirected {
        /// What was asked for.
        from: String,
        /// Where it leads.
        to: String,
        /// Why, and what to do.
        why: &'static str,
    },
    /// An address that an image may not make us call.
    #[error(
        "{host} is an address of a private network, which images are not fetched from: name the host in the rules to allow it"
    )]
    PrivateAddress {
        /// The host.
        host: String,
    },
    /// It wants credentials, and there are none.
    #[error(
        "{host} wants credentials for {repository}: give a user and password, or a token; a private image may also not exist"
    )]
    CredentialsWanted {
        /// The registry.
        host: String,
        /// The repository.
        repository: String,
    },
    /// It does not take the credentials.
    #[error("{host} refused the credentials for {repository}: check user, password and their expiry")]
    CredentialsRefused {
        /// The registry.
        host: String,
        /// The repository.
        repository: String,
    },
    /// The credentials are good and the image is not for them.
    #[error("{host} does not let these credentials read {repository}: ask its owner for the right to pull")]
    Forbidden {
        /// The registry.
        host: String,
        /// The repository.
        repository: String,
    },
    /// Its way to ask for credentials is none that is known here.
    #[error("{host} asks for credentials in a way not known here ({scheme}): basic and bearer are")]
    UnknownChallenge {
        /// The registry.
        host: String,
        /// The scheme.
        scheme: String,
    },
    /// It does not have what was asked for.
    #[error("{host} has no {what}: check name and tag")]
    NotFound {
        /// The registry.
        host: String,
        /// Repository and tag or digest.
        what: String,
    },
    /// Any other status.
    #[error("{url} answered with status {status}: {why}")]
    Refused {
        /// What was asked for.
        url: String,
        /// HTTP status.
        status: u16,
        /// What it said, shortened.
        why: String,
    },
    /// Credentials that no header can carry.
    #[error("the credentials have characters that no HTTP header may carry")]
    BadCredentials,
    /// The HTTP client could not start.
    #[error("cannot start the HTTP client: {0}")]
    Client(String),
}

/// What is wrong with an entry of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its path begins at the root.
    Absolute,
    /// Its path has `..` in it.
    Parent,
    /// Its path is empty, or has a byte that no name may have.
    BadName,
    /// A name, or the path, is longer than allowed.
    TooLong,
    /// Its path has more names than allowed.
    TooDeep,
    /// A part of its path is a symbolic link, of this layer or one below.
    ThroughLink(String),
    /// A part of its path is no folder.
    ThroughFile(String),
    /// A hard link whose target is outside of the layer, or not in it.
    LinkOutside(String),
    /// A hard link to what is neither a file nor a link.
    LinkToOther(String),
    /// A device node or a pipe, and the caller refuses them.
    Device,
    /// It takes the place of a folder that is not empty.
    ReplacesFolder,
    /// Its owner is not in the caller's map.
    Unmapped(u64),
    /// Its extended attributes are larger than allowed, or than the file system takes.
    Attributes,
    /// Its sparse map contradicts itself.
    Sparse,
    /// A kind of entry that is not known here.
    UnknownKind(u8),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absolute => write!(f, "an absolute path, which would leave the image"),
            Self::Parent => write!(f, "a path with '..', which would leave the image"),
            Self::BadName => write!(f, "which is no name of a file"),
            Self::TooLong => write!(f, "whose name or path is too long"),
            Self::TooDeep => write!(f, "whose path is too deep"),
            Self::ThroughLink(link) => write!(f, "which would be written through the link {link:?}"),
            Self::ThroughFile(file) => write!(f, "which lies below {file:?}, and that is no folder"),
            Self::LinkOutside(target) => write!(f, "a hard link to {target:?}, which is not in the layer"),
            Self::LinkToOther(target) => write!(f, "a hard link to {target:?}, which is no file"),
            Self::Device => write!(f, "a device node or pipe, which are refused"),
            Self::ReplacesFolder => write!(f, "which takes the place of a folder that is not empty"),
            Self::Unmapped(id) => write!(f, "of user or group {id}, which is not in the node's map"),
            Self::Attributes => write!(f, "whose extended attributes are too large"),
            Self::Sparse => write!(f, "whose sparse map contradicts itself"),
            Self::UnknownKind(kind) => write!(f, "an entry of unknown kind {kind}"),
        }
    }
}

/// An error on its way through a [`io::Read`].
pub(super) fn through(error: ImageError) -> io::Error {
    io::Error::other(error)
}

/// What a read of a layer failed with: an error of ours that passed [`through`] it, a source that is at its end, or one
/// that does not follow its format.
pub(super) fn of_read(error: io::Error, layer: &Digest) -> ImageError {
    match error.downcast::<ImageError>() {
        Ok(ours) => ours,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => ImageError::Truncated { layer: *layer },
        Err(error) => ImageError::Malformed { what: format!("layer {layer}"), why: error.to_string() },
    }
}

/// Says where an I/O error happened.
pub(super) trait At<T> {
    fn at(self, path: &Path) -> Result<T, ImageError>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, path: &Path) -> Result<T, ImageError> {
        self.map_err(|error| at(path, error))
    }
}

pub(super) fn at(path: &Path, source: impl Into<io::Error>) -> ImageError {
    let (path, source) = (path.to_owned(), source.into());
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ImageError::Full { path },
        _ => ImageError::Io { path, source },
    }
}
