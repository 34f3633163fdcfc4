//! Puts rules into a box's network, by the system's `nft`.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::space::{self, Space};
use super::{Trouble, child};

/// Puts them in place, all at once or not at all. For the administrator of the network.
pub(super) fn load(space: &Space, rules: &str) -> Result<(), Trouble> {
    let failed = |error: std::io::Error| format!("run nft: {error}");
    let mut command = Command::new(child::program("nft")?);
    command.args(["-f", "-"]).env_clear().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let net = space.net().try_clone_to_owned().map_err(failed)?;
    // SAFETY: one system call, and nothing that another thread could hold, as there is none.
    unsafe { command.pre_exec(move || space::enter(std::os::fd::AsFd::as_fd(&net))) };
    let mut nft = command.spawn().map_err(failed)?;
    if let Some(mut input) = nft.stdin.take() {
        // One that ends early says why.
        let _ = input.write_all(rules.as_bytes());
    }
    let ended = nft.wait_with_output().map_err(failed)?;
    if ended.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&ended.stderr);
    Err(format!("the packet filter takes no rules: {}", why.lines().next().unwrap_or("nft says nothing")))
}
