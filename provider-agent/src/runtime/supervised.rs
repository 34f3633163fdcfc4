//! A command that runs, by its supervisor.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use selion_api::agent::LogSource;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, Interest, duplex};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::time::timeout;

use super::cgroup::{Group, GroupUse};
use super::keep::{self, DRAINED, ENDED, HEARD, Record, Ring, Word, clock};
use super::network::{self, COUNTS, Gang, Traffic};
use super::{Exit, Running};
use crate::staging::blocking;

/// Longest wait for a supervisor to say that it hears.
const HEARS: Duration = Duration::from_secs(5);
/// Longest wait for the rest of a box whose supervisor was killed.
const FALL: Duration = Duration::from_secs(10);
/// Bytes of a stream that are read at once.
const READ: usize = 64 << 10;

/// How far a box is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    #[default]
    Runs,
    /// The command has ended.
    Ended,
    /// And all that it printed is in the streams.
    Drained,
}

/// What was heard of a supervisor.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    printed: u64,
    stage: Stage,
}

/// A supervisor and, below it, a helper and its command.
pub(super) struct Supervised {
    base: PathBuf,
    grace: Duration,
    record: Record,
    /// None once it is over.
    to: Option<Arc<OwnedWriteHalf>>,
    seen: watch::Receiver<Seen>,
    streams: [Arc<Ring>; 2],
    /// Of the helper: it can be read once that has ended.
    head: Option<AsyncFd<OwnedFd>>,
    exit: Option<Exit>,
    group: Option<Group>,
    /// What the group had used at the end.
    last: Option<GroupUse>,
    /// The agent goes, and its boxes stay.
    stays: Arc<AtomicBool>,
}

/// One stream of what a command prints.
pub struct Outlet {
    ring: Arc<Ring>,
    seen: watch::Receiver<Seen>,
    to: Option<Arc<OwnedWriteHalf>>,
}

impl Outlet {
    /// Bytes that an agent has noted as kept, and the number of its log record after them.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub fn taken(&self) -> io::Result<(u64, u64)> {
        self.ring.taken()
    }

    /// Notes what is kept from now on: the bytes up to `upto`, before the log record of this number. The supervisor has their room.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub fn take(&self, upto: u64, record: u64) -> io::Result<()> {
        self.ring.take(upto, record)?;
        if let Some(to) = &self.to {
            // One that has so much to read has this news, or is gone.
            let _ = to.try_write(&Word::Taken.bytes());
        }
        Ok(())
    }

    /// Reads the stream from byte `at` on to its end, and how many bytes of it were given up while no agent was there.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub fn read_from(&self, at: u64) -> io::Result<(DuplexStream, u64)> {
        let from = at.max(self.ring.first()?);
        let (ours, theirs) = duplex(READ);
        tokio::spawn(pump(Arc::clone(&self.ring), from, self.seen.clone(), ours));
        Ok((theirs, from - at))
    }
}

/// From the stream to whoever reads, to its end.
async fn pump(ring: Arc<Ring>, mut at: u64, mut seen: watch::Receiver<Seen>, mut to: DuplexStream) {
    let mut buffer = vec![0; READ];
    loop {
        // Before the look: what is said later is another look's.
        let stage = seen.borrow_and_update().stage;
        match ring.read(at, &mut buffer) {
            Ok(0) if stage == Stage::Drained || seen.changed().await.is_err() => return,
            Ok(0) => {}
            Ok(read) => {
                at += read as u64;
                if to.write_all(&buffer[..read]).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "what a command prints cannot be read");
                return;
            }
        }
    }
}

impl Supervised {
    /// Connects to the supervisor in the folder `base`.
    ///
    /// # Errors
    ///
    /// The system's: there is none, it does not hear, or it speaks another version.
    pub(super) async fn connect(base: &Path, grace: Duration, stays: Arc<AtomicBool>) -> io::Result<Self> {
        let socket = keep::connect(base)?;
        socket.set_nonblocking(true)?;
        let (mut from, to) = UnixStream::from_std(socket)?.into_split();
        match timeout(HEARS, from.read_u8()).await {
            Ok(Ok(HEARD)) => {}
            Ok(Err(error)) => return Err(error),
            Ok(Ok(_)) | Err(_) => return Err(io::Error::other("its supervisor does not hear")),
        }
        let (told, seen) = watch::channel(Seen::default());
        tokio::spawn(listen(from, told));
        let mut this = Self::of(base, grace, seen, stays)?;
        if this.record.version != keep::VERSION {
            let (theirs, ours) = (this.record.version, keep::VERSION);
            let why = format!("it speaks version {theirs}, this agent {ours}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        (this.to, this.head) = (Some(Arc::new(to)), process(this.record.head).ok());
        Ok(this)
    }

    /// What is left of a box whose supervisor is gone, if that noted its end.
    pub(super) fn over(base: &Path, grace: Duration) -> Option<Self> {
        let (told, seen) = watch::channel(Seen { printed: 0, stage: Stage::Drained });
        drop(told);
        let this = Self::of(base, grace, seen, Arc::default()).ok()?;
        this.record.ended.is_some().then_some(this)
    }

    fn of(base: &Path, grace: Duration, seen: watch::Receiver<Seen>, stays: Arc<AtomicBool>) -> io::Result<Self> {
        let record = keep::record(base).ok_or_else(|| io::Error::other("its supervisor's record is damaged"))?;
        let streams = keep::streams(base)?.map(Arc::new);
        let base = base.to_owned();
        Ok(Self {
            base,
            grace,
            record,
            to: None,
            seen,
            streams,
            head: None,
            exit: None,
            group: None,
            last: None,
            stays,
        })
    }

    /// The group that it is in.
    pub(super) fn in_group(mut self, group: Option<Group>) -> Self {
        self.group = group;
        self
    }

    async fn say(&self, word: Word) {
        let Some(to) = &self.to else { return };
        // A word goes whole or not at all; one that is gone obeys no more.
        while to.writable().await.is_ok() {
            match to.try_write(&word.bytes()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    }

    /// Waits until nothing of a box is left whose supervisor was killed: the helper falls with it.
    async fn fall(&self) {
        // Kept: whoever waits may stop waiting, and wait again.
        let Some(head) = &self.head else { return };
        if timeout(FALL, head.readable()).await.is_err() {
            tracing::warn!(head = self.record.head, "a box outlived its supervisor; it is killed");
            // The descriptor names the process, so the number is its own.
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.record.head), nix::sys::signal::Signal::SIGKILL);
        }
    }
}

/// Follows what a supervisor says, to its end.
async fn listen(mut from: OwnedReadHalf, told: watch::Sender<Seen>) {
    while let Ok(said) = from.read_u8().await {
        told.send_modify(|seen| match said {
            ENDED => seen.stage = seen.stage.max(Stage::Ended),
            DRAINED => seen.stage = Stage::Drained,
            _ => seen.printed += 1,
        });
    }
    told.send_modify(|seen| seen.stage = Stage::Drained);
}

#[async_trait]
impl Running for Supervised {
    fn outlet(&self, source: LogSource) -> Option<Outlet> {
        let ring = match source {
            LogSource::Stdout => &self.streams[0],
            LogSource::Stderr => &self.streams[1],
            LogSource::Agent => return None,
        };
        Some(Outlet { ring: Arc::clone(ring), seen: self.seen.clone(), to: self.to.clone() })
    }

    fn ran_ms(&self) -> u64 {
        let now = || self.record.began_ms.map_or(0, |began| clock::now_ms().saturating_sub(began));
        self.exit.map_or_else(now, |exit| exit.ran_ms)
    }

    fn run_ms(&self) -> Option<u64> {
        self.record.run_ms
    }

    async fn may_run(&mut self, ms: u64) {
        self.record.run_ms = Some(ms);
        self.say(Word::Run(ms)).await;
    }

    async fn wait(&mut self) -> io::Result<Exit> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        // A sender that is gone said before that all is over.
        let _ = self.seen.wait_for(|seen| seen.stage >= Stage::Ended).await;
        let base = self.base.clone();
        let record = blocking(move || keep::record(&base)).await;
        let Some(ended) = record.and_then(|record| record.ended) else {
            self.fall().await;
            self.last = self.group.take().map(|group| group.used());
            return Err(io::Error::other("its supervisor was killed, and the box fell with it"));
        };
        let exit = Exit { code: ended.code, ran_ms: ended.ran_ms, why: ended.why };
        self.exit = Some(exit);
        // Nobody is in it any more: it goes.
        self.last = self.group.take().map(|group| group.used());
        Ok(exit)
    }

    async fn stop(&mut self) -> io::Result<Exit> {
        self.say(Word::Stop).await;
        let grace = self.grace;
        if let Ok(exit) = timeout(grace, self.wait()).await {
            return exit;
        }
        self.kill().await
    }

    async fn kill(&mut self) -> io::Result<Exit> {
        self.say(Word::End).await;
        self.wait().await
    }

    fn used(&self) -> Option<GroupUse> {
        self.group.as_ref().map(Group::used).or(self.last)
    }

    fn head(&self) -> i32 {
        self.record.head
    }

    async fn meet(&mut self, gang: Gang) -> io::Result<()> {
        let folder = self.base.clone();
        blocking(move || if folder.join(COUNTS).exists() { network::tell(&folder, &gang) } else { Ok(()) }).await
    }

    fn traffic(&self) -> Option<Traffic> {
        let counts = self.base.join(COUNTS);
        if self.exit.is_some() {
            return serde_json::from_slice(&std::fs::read(counts).ok()?).ok();
        }
        // The helper is in its box's network.
        let read = || std::fs::read_to_string(format!("/proc/{}/net/dev", self.record.head)).ok();
        counts.exists().then(read)?.and_then(|text| Traffic::read(&text))
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        if self.exit.is_some() {
            return;
        }
        if self.stays.load(Ordering::Acquire) {
            if let Some(group) = self.group.take() {
                group.leave();
            }
            return;
        }
        if let Some(to) = &self.to {
            let _ = to.try_write(&Word::End.bytes());
        }
    }
}

/// A descriptor of a process, which can be read once it has ended.
///
/// # Errors
///
/// The system's: there is no such process.
pub(crate) fn process(id: i32) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: opened just now, for us alone; it is closed by what owns it here, after it was waited for.
    unsafe { AsyncFd::register_with_interest(OwnedFd::from_raw_fd(fd), Interest::READABLE) }.map_err(Into::into)
}
