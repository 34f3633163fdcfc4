//! Sandbox `namespaces`: user, mount, pid, ipc, uts and net namespaces.

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{ForkResult, Pid, fork, geteuid, getppid};

use super::confine::{self, Witness};
use super::nat::Nat;
use super::parts::Parts;
use super::plan::{Plan, Refusal, View};
use super::{
    FAILED, STOP, Talk, Trouble, command, die_with_parent, ids, is_hung_up, life_line, loopback, supervise, view,
};

/// Every process of the sandbox but init.
const EVERYBODY: Pid = Pid::from_raw(-1);

/// Brings the sandbox up, runs the command in it to its end; its exit code.
pub(super) fn run(plan: &Plan, shown: &View, talk: &mut Talk) -> Result<i32, Refusal> {
    // Keeper and NAT stay in the machine's namespaces.
    let mut nat = shown.network.as_ref().map(|net| Nat::start(net, talk)).transpose()?;
    // Root can pass folders of the machine that the root of a user namespace cannot; others have rights to make
    // mounts only once they are inside.
    let early = geteuid().is_root().then(|| take_as_root(shown)).transpose()?;
    enter(shown, nat.as_mut())?;
    let parts = match early {
        Some(parts) => parts,
        None => Parts::open(shown)?,
    };
    let watch = life_line()?;
    // SAFETY: this process has one thread.
    match unsafe { fork() }.map_err(|errno| format!("fork init: {errno}"))? {
        ForkResult::Parent { child: init } => {
            talk.close();
            drop(parts);
            let code = supervise::supervise(init, |signal| {
                let signal = if signal == STOP { STOP } else { Signal::SIGKILL };
                // Init may have ended just now.
                let _ = kill(init, signal);
            });
            if let Some(nat) = nat {
                nat.end();
            }
            Ok(code)
        }
        ForkResult::Child => {
            // The copy of the helper's end would keep the line up.
            // SAFETY: closes a descriptor that nothing in this process owns.
            unsafe { libc::close(watch.alive) };
            let code = inside(plan, shown, parts, talk, &watch.watch).unwrap_or_else(|refusal| {
                talk.refuse(&refusal);
                FAILED
            });
            std::process::exit(code)
        }
    }
}

/// Takes the parts with the machine's own rights, where nobody else sees what is mounted meanwhile.
fn take_as_root(shown: &View) -> Result<Parts, Trouble> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(|errno| format!("new mount namespace: {errno}"))?;
    Parts::open(shown)
}

fn enter(shown: &View, nat: Option<&mut Nat>) -> Result<(), Trouble> {
    let agent = getppid();
    let network = nat.and_then(Nat::take_space);
    let alone = network.is_none();
    let mut spaces = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    if alone {
        spaces |= CloneFlags::CLONE_NEWNET;
    }
    ids::map_around(&shown.ids, network, || unshare(spaces).map_err(|errno| format!("new namespaces: {errno}")))?;
    // The change of credentials cleared it.
    die_with_parent(Signal::SIGKILL)?;
    if getppid() != agent {
        return Err("the agent is gone".into());
    }
    if alone { loopback::switch_on() } else { Ok(()) }
}

/// Init: builds the view, puts up the walls, under which it is itself, starts the command, reaps until it ends.
fn inside(
    plan: &Plan,
    shown: &View,
    parts: Parts,
    talk: &mut Talk,
    watch: &std::os::fd::OwnedFd,
) -> Result<i32, Refusal> {
    die_with_parent(Signal::SIGKILL)?;
    if is_hung_up(watch) {
        return Err(Refusal::Failed("the helper is gone".into()));
    }
    let witness = Witness::take()?;
    ids::become_root(&shown.ids)?;
    die_with_parent(Signal::SIGKILL)?;
    view::build(&parts)?;
    if parts.own_root {
        view::working_directory(&plan.cwd, &shown.ids)?;
    }
    drop(parts);
    confine::bar_capabilities()?;
    ids::become_renter(&shown.ids)?;
    die_with_parent(Signal::SIGKILL)?;
    confine::confine()?;
    // SAFETY: this process has one thread.
    match unsafe { fork() }.map_err(|errno| format!("fork: {errno}"))? {
        ForkResult::Child => {
            talk.refuse(&command::become_command(plan, Some(&witness)));
            std::process::exit(FAILED)
        }
        ForkResult::Parent { child } => {
            talk.close();
            drop(witness);
            Ok(supervise::supervise(child, |signal| {
                // Everybody inside, also who left the command's session. They may be gone.
                let _ = kill(EVERYBODY, if signal == STOP { Signal::SIGTERM } else { Signal::SIGKILL });
            }))
        }
    }
}
