//! The last steps of the command's own process.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::{AccessFlags, access, chdir, execve, setsid};

use super::confine::Witness;
use super::plan::{Plan, Refusal};
use super::{die_with_parent, supervise};

/// Becomes the command; in a sandbox only if the kernel, by this witness, says that its walls stand. Returns only with
/// what went wrong.
pub(super) fn become_command(plan: &Plan, witness: Option<&Witness>) -> Refusal {
    match attempt(plan, witness) {
        Ok(never) => match never {},
        Err(refusal) => refusal,
    }
}

fn attempt(plan: &Plan, witness: Option<&Witness>) -> Result<std::convert::Infallible, Refusal> {
    let step = |what: &'static str| move |errno: Errno| Refusal::Failed(format!("{what}: {errno}"));
    // A session of its own: signals to its group reach nobody else's process.
    setsid().map_err(step("new session"))?;
    die_with_parent(Signal::SIGKILL)?;
    chdir(&plan.cwd).map_err(step("enter the working directory"))?;
    let program = find_program(plan).ok_or(Refusal::NoSuchProgram)?;
    let zero = |_| Refusal::Failed("a word of the command or its environment holds a zero byte".into());
    let path = CString::new(program.as_os_str().as_encoded_bytes()).map_err(zero)?;
    let words: Result<Vec<CString>, _> = plan.command.iter().map(|word| CString::new(word.as_str())).collect();
    let env: Result<Vec<CString>, _> =
        plan.env.iter().map(|(name, value)| CString::new(format!("{name}={value}"))).collect();
    let (words, env) = (words.map_err(zero)?, env.map_err(zero)?);
    supervise::unblock().map_err(step("unblock signals"))?;
    witness.map_or(Ok(()), Witness::confirm)?;
    execve(&path, &words, &env).map_err(|errno| match errno {
        Errno::ENOENT if !program.exists() => Refusal::NoSuchProgram,
        Errno::ENOENT => Refusal::Failed(format!("cannot execute {}: its interpreter is missing", program.display())),
        errno => Refusal::Failed(format!("cannot execute {}: {errno}", program.display())),
    })
}

/// The program's path, looked for as a shell would, on the command's own `PATH` and in its own view.
fn find_program(plan: &Plan) -> Option<PathBuf> {
    let program = plan.command.first().filter(|program| !program.is_empty())?;
    if program.contains('/') {
        return Some(PathBuf::from(program));
    }
    let path = plan.env.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value.as_str());
    let mut places =
        path.split(':').filter(|folder| folder.starts_with('/')).map(|folder| Path::new(folder).join(program));
    places.find(|place| access(place, AccessFlags::X_OK).is_ok() && place.is_file())
}
