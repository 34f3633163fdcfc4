//! The supervisor's own process.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use zeroize::Zeroizing;

use super::record::{Ended, Page, Record, Why};
use super::ring::Ring;
use super::{DRAINED, ENDED, HEARD, Locked, Order, PRINTED, RECORD, SOCKET, STREAMS, VERSION, WORD, Word, clock, lock};
use crate::runtime::SANDBOX_COMMAND;
use crate::runtime::helper::{END, FAILED, Plan, Refusal, STOP, Talk};

/// Longest wait for a helper to take its plan, and again for it to say that the command runs.
const SETUP: Duration = Duration::from_secs(20);
/// Longest answer of a helper in bytes.
const LONGEST: u64 = 16 << 10;
/// Bytes read at once.
const READ: usize = 64 << 10;
/// A command that prints waits so long for an agent, as it does for a controller; then the oldest that waits is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// So long after a lease's time an agent may still end it: it may just be hearing of more time.
const LATE: Duration = Duration::from_secs(2);
/// How long pipes may stay open after the box is gone.
const DRAIN: Duration = Duration::from_secs(1);
/// Tries to take a folder, and the time between them: the kernel tells of no lock that is let go.
const TAKE: (u32, Duration) = (100, Duration::from_millis(20));
/// Between two tries to write down an end.
const AGAIN: Duration = Duration::from_secs(1);

/// Body of the supervisor; its exit code. The socket to the agent is closed without a word once the command runs.
pub(in crate::runtime) fn main(mut talk: Talk) -> i32 {
    // Out of the agent's session: what ends that, or its terminal, does not end this.
    if let Err(errno) = nix::unistd::setsid() {
        talk.refuse(&Refusal::Failed(format!("new session: {errno}")));
        return FAILED;
    }
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    match talk.hear::<Order>().map_err(Refusal::from).and_then(|order| Supervisor::start(order, &mut talk)) {
        Ok(supervisor) => {
            supervisor.keep();
            0
        }
        Err(refusal) => {
            talk.refuse(&refusal);
            FAILED
        }
    }
}

/// A box that runs, and everything that is held for it.
struct Supervisor {
    helper: Child,
    shared: Arc<Shared>,
    /// Held as long as this process lives.
    _lock: super::Lock,
}

/// What the threads share.
struct Shared {
    page: Page,
    began: Instant,
    began_ms: u64,
    grace: Duration,
    alone: Duration,
    helper: Pid,
    now: Mutex<Now>,
    /// Something of [`Now`] changed.
    changed: Condvar,
}

struct Now {
    record: Record,
    /// The agent that is there.
    agent: Option<Arc<UnixStream>>,
    /// Since when none is.
    alone_since: Instant,
    /// When it was asked to end, and why.
    stopped: Option<(Instant, Why)>,
    killed: bool,
    /// Nobody may signal the helper any more.
    over: bool,
    /// Streams that have not ended, and those of them that wait for room.
    streams: usize,
    waiting: usize,
    drained: bool,
}

impl Supervisor {
    /// Takes the lease's folder and brings its box up. On an error nothing of it is left.
    fn start(order: Order, talk: &mut Talk) -> Result<Self, Refusal> {
        if order.version != VERSION {
            return Err(Refusal::Failed(format!(
                "the agent speaks version {}, its supervisor {VERSION}",
                order.version
            )));
        }
        let at = |what: &str| {
            let what = format!("{}: {what}", order.base.display());
            move |error: io::Error| Refusal::Failed(format!("{what}: {error}"))
        };
        let held = take(&order.base).map_err(at("lock"))?;
        let [out, err] = STREAMS.map(|name| Ring::make(&order.base.join(name)).map_err(at(name)));
        let (rings, boot) = ([out?, err?], clock::boot().map_err(at("boot id"))?);
        let mut record = Record {
            version: VERSION,
            supervisor: nix::unistd::getpid().as_raw(),
            boot,
            began_ms: None,
            head: 0,
            run_ms: None,
            ended: None,
        };
        let page = Page::make(&order.base.join(RECORD), &record).map_err(at(RECORD))?;
        let listener = listen(&order.base).map_err(at(SOCKET))?;
        let mut helper = bring_up(&order)?;
        record.head = i32::try_from(helper.id()).unwrap_or_default();
        record.began_ms = Some(clock::now_ms());
        if let Err(error) = page.write(&record) {
            end(&mut helper, END);
            return Err(at(RECORD)(error));
        }
        let pipes = (helper.stdout.take().map(OwnedFd::from), helper.stderr.take().map(OwnedFd::from));
        let shared = Arc::new(Shared::new(&order, page, record, &helper));
        let [out, err] = rings;
        let pump = |pipe: Option<OwnedFd>, ring: Ring| {
            let shared = Arc::clone(&shared);
            spawn(move || pipe.map_or((), |pipe| shared.pump(File::from(pipe), &ring)))
        };
        let (listening, timing) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads = pump(pipes.0, out)
            .and_then(|_| pump(pipes.1, err))
            .and_then(|_| spawn(move || listening.listen(&listener)))
            .and_then(|_| spawn(move || timing.time()));
        if let Err(error) = threads {
            end(&mut helper, END);
            return Err(at("threads")(error));
        }
        talk.close();
        Ok(Self { helper, shared, _lock: held })
    }

    /// Keeps the box to its end, and until all that it printed is in the streams.
    fn keep(mut self) {
        // Not reaped yet: its number is no other process's.
        while waitid(Id::Pid(self.shared.helper), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)
            .is_err_and(|errno| errno == nix::errno::Errno::EINTR)
        {}
        let ran_ms = clock::now_ms().saturating_sub(self.shared.began_ms);
        self.shared.now().over = true;
        let code = self.helper.wait().map_or(FAILED, code);
        self.shared.ended(code, ran_ms);
        self.shared.drained();
    }
}

impl Shared {
    fn new(order: &Order, page: Page, record: Record, helper: &Child) -> Self {
        let began = Instant::now();
        Self {
            page,
            began,
            began_ms: record.began_ms.unwrap_or_default(),
            grace: Duration::from_millis(order.grace_ms),
            alone: Duration::from_millis(order.alone_ms),
            helper: Pid::from_raw(i32::try_from(helper.id()).unwrap_or_default()),
            now: Mutex::new(Now {
                record,
                agent: None,
                alone_since: began,
                stopped: None,
                killed: false,
                over: false,
                streams: STREAMS.len(),
                waiting: 0,
                drained: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, now: &Now, signal: Signal) {
        if !now.over {
            let _ = kill(self.helper, signal);
        }
    }

    /// Has it end; the first reason counts.
    fn stop(&self, now: &mut Now, why: Why) {
        if now.stopped.is_none() {
            now.stopped = Some((Instant::now(), why));
            self.signal(now, STOP);
        }
        self.changed.notify_all();
    }

    fn kill(&self, now: &mut Now, why: Why) {
        now.stopped.get_or_insert((Instant::now(), why));
        now.killed = true;
        self.signal(now, END);
        self.changed.notify_all();
    }

    /// Writes down the end and tells the agent. A full disk cannot be in the way: the room is there.
    fn ended(&self, code: i32, ran_ms: u64) {
        let mut now = self.now();
        let why = now.stopped.map_or(Why::Itself, |(_, why)| why);
        now.record.ended = Some(Ended { code, ran_ms, why });
        while self.page.write(&now.record).is_err() {
            drop(now);
            std::thread::sleep(AGAIN);
            now = self.now();
        }
        tell(&now, ENDED);
        self.changed.notify_all();
    }

    /// Waits until all that was printed is in the streams. A pipe that somebody holds open is not waited for.
    fn drained(&self) {
        let until = Instant::now() + DRAIN;
        let mut now = self.now();
        while now.streams > 0 && (now.waiting > 0 || Instant::now() < until) {
            now = self.changed.wait_timeout(now, DRAIN).unwrap_or_else(PoisonError::into_inner).0;
        }
        now.drained = true;
        tell(&now, DRAINED);
    }

    /// From the pipe into the stream, to the pipe's end.
    fn pump(&self, mut pipe: File, ring: &Ring) {
        let mut buffer = vec![0; READ];
        loop {
            match pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => self.put(ring, &buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A pipe that fails is over.
                Err(_) => break,
            }
        }
        self.now().streams -= 1;
        self.changed.notify_all();
    }

    /// Puts `bytes` into the stream. While an agent is there it makes room, or says that nobody waits; without one the oldest
    /// makes room after a while. A stream that cannot be written loses what is printed, and the command goes on.
    fn put(&self, ring: &Ring, mut bytes: &[u8]) {
        let mut now = self.now();
        while !bytes.is_empty() {
            let Ok(took) = ring.append(bytes) else { return };
            bytes = &bytes[took..];
            if took > 0 {
                tell(&now, PRINTED);
                continue;
            }
            let left = (now.alone_since + PATIENCE).saturating_duration_since(Instant::now());
            if now.agent.is_none() && left.is_zero() {
                if ring.give_up(bytes.len()).is_err() {
                    return;
                }
                continue;
            }
            let wait = if now.agent.is_some() { PATIENCE } else { left };
            now.waiting += 1;
            now = self.changed.wait_timeout(now, wait).unwrap_or_else(PoisonError::into_inner).0;
            now.waiting -= 1;
        }
    }

    /// Ends what goes beyond its time, what is left alone for too long, and what does not end though it was asked to.
    fn time(&self) {
        let mut now = self.now();
        while !now.over {
            let at = Instant::now();
            let due = self.due(&now, at);
            match due {
                Some((when, act)) if when <= at => match act {
                    Act::Stop(why) => self.stop(&mut now, why),
                    Act::Kill => self.kill(&mut now, Why::Asked),
                },
                due => {
                    let wait = due.map_or(PATIENCE, |(when, _)| when - at);
                    now = self.changed.wait_timeout(now, wait).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// What is to be done next, and when.
    fn due(&self, now: &Now, at: Instant) -> Option<(Instant, Act)> {
        if now.killed {
            return None;
        }
        if let Some((since, _)) = now.stopped {
            return Some((since + self.grace, Act::Kill));
        }
        let far = at + Duration::from_secs(86_400);
        let time = now.record.run_ms.and_then(|ms| self.began.checked_add(Duration::from_millis(ms)));
        // A machine that slept has a clock that did not.
        let slept =
            Duration::from_millis(clock::now_ms().saturating_sub(self.began_ms)).saturating_sub(at - self.began);
        let time = time.map(|end| (end.checked_sub(slept).unwrap_or(at) + LATE, Act::Stop(Why::Time)));
        let alone = now.agent.is_none().then(|| (now.alone_since + self.alone, Act::Stop(Why::Alone)));
        time.into_iter().chain(alone).min_by_key(|(when, _)| *when).filter(|(when, _)| *when < far)
    }

    /// Takes agents, one at a time: the newest counts.
    fn listen(self: Arc<Self>, listener: &UnixListener) {
        for agent in listener.incoming().flatten() {
            let agent = Arc::new(agent);
            {
                let mut now = self.now();
                if let Some(before) = now.agent.replace(Arc::clone(&agent)) {
                    let _ = before.shutdown(Shutdown::Both);
                }
                tell(&now, HEARD);
                if now.record.ended.is_some() {
                    tell(&now, ENDED);
                }
                if now.drained {
                    tell(&now, DRAINED);
                }
                self.changed.notify_all();
            }
            let this = Arc::clone(&self);
            // An agent that gets no thread is not heard, and comes again.
            if spawn(move || this.hear(&agent)).is_err() {
                self.now().agent = None;
            }
        }
    }

    /// Obeys an agent until it goes.
    fn hear(&self, agent: &Arc<UnixStream>) {
        let mut word = [0; WORD];
        let mut from: &UnixStream = agent;
        while from.read_exact(&mut word).is_ok() {
            let mut now = self.now();
            match Word::read(word) {
                Some(Word::Stop) => self.stop(&mut now, Why::Asked),
                Some(Word::End) => self.kill(&mut now, Why::Asked),
                Some(Word::Taken) => self.changed.notify_all(),
                Some(Word::Run(ms)) => {
                    now.record.run_ms = Some(ms);
                    // What is not written down holds in this process all the same.
                    let _ = self.page.write(&now.record);
                    self.changed.notify_all();
                }
                None => break,
            }
        }
        let mut now = self.now();
        if now.agent.as_ref().is_some_and(|there| Arc::ptr_eq(there, agent)) {
            now.agent = None;
            now.alone_since = Instant::now();
            self.changed.notify_all();
        }
    }
}

/// Takes the lease's folder. Who had it last may be on its way out: it told of its end before it was gone.
fn take(base: &Path) -> io::Result<super::Lock> {
    for _ in 0..TAKE.0 {
        if let Locked::Ours(held) = lock(base)? {
            return Ok(held);
        }
        std::thread::sleep(TAKE.1);
    }
    Err(io::Error::other("another supervisor has this lease's folder"))
}

/// What becomes due.
#[derive(Clone, Copy)]
enum Act {
    Stop(Why),
    Kill,
}

/// Says a byte to the agent, if one is there. It never waits: an agent that does not read looks when it does, and is told of the
/// end by that of the connection.
fn tell(now: &Now, byte: u8) {
    let Some(agent) = &now.agent else { return };
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the byte lives through the call.
    let _ = unsafe { libc::send(agent.as_raw_fd(), (&raw const byte).cast(), 1, flags) };
}

fn spawn(body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().stack_size(256 << 10).spawn(body)
}

/// Where agents come.
fn listen(base: &Path) -> io::Result<UnixListener> {
    let folder = File::open(base)?;
    let _ = fs::remove_file(base.join(SOCKET));
    UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))
}

/// Starts a helper and has its command run.
fn bring_up(order: &Order) -> Result<Child, Refusal> {
    let failed = |error: io::Error| Refusal::Failed(format!("start the helper: {error}"));
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    ours.set_write_timeout(Some(SETUP)).and_then(|()| ours.set_read_timeout(Some(SETUP))).map_err(failed)?;
    let mut command = Command::new(&order.helper);
    command.arg(SANDBOX_COMMAND).env_clear().current_dir("/").stdin(OwnedFd::from(theirs));
    let mut helper = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    // It holds the other end as well until it is dropped.
    drop(command);
    // It waits for its plan: whatever it starts is in the groups.
    let up = enter(order, &helper).and_then(|()| match converse(ours, &order.plan) {
        Ok(None) => Ok(()),
        Ok(Some(refusal)) => Err(refusal),
        Err(error) => Err(Refusal::Failed(error.to_string())),
    });
    match up {
        Ok(()) => Ok(helper),
        Err(refusal) => {
            end(&mut helper, Signal::SIGKILL);
            Err(refusal)
        }
    }
}

fn enter(order: &Order, helper: &Child) -> Result<(), Refusal> {
    order.groups.iter().try_for_each(|group| {
        let file = group.join("cgroup.procs");
        let put = fs::write(&file, helper.id().to_string());
        put.map_err(|error| Refusal::Limits(format!("{}: {error}", file.display())))
    })
}

/// Tells a helper its plan; `None` once the command runs.
fn converse(mut socket: UnixStream, plan: &Plan) -> io::Result<Option<Refusal>> {
    let plan = Plan { agent: nix::unistd::getpid().as_raw(), ..plan.clone() };
    socket.write_all(&Zeroizing::new(serde_json::to_vec(&plan)?))?;
    socket.shutdown(Shutdown::Write)?;
    let mut said = Vec::new();
    socket.take(LONGEST).read_to_end(&mut said)?;
    if said.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&said).map(Some).map_err(io::Error::other)
}

/// Ends a helper that is of no use, and whatever it started; one that is up by [`END`].
fn end(helper: &mut Child, by: Signal) {
    let _ = kill(Pid::from_raw(i32::try_from(helper.id()).unwrap_or_default()), by);
    let _ = helper.wait();
}

/// Exit code as a shell tells it: 128 + n for signal n.
fn code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255)
}
