//! bubblewrap as the sandbox.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::Launch;

/// Finds `bwrap` on the agent's `PATH`.
pub(super) fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("bwrap")).find(|bwrap| bwrap.is_file())
}

/// Arguments for `bwrap`, up to and with the command. `uid` is whom the command runs as inside.
pub(super) fn arguments(launch: &Launch, uid: u32) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    let mut add = |words: &[&std::ffi::OsStr]| args.extend(words.iter().map(|word| (*word).to_owned()));
    let flag = |text: &'static str| std::ffi::OsStr::new(text);
    for word in ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"] {
        add(&[flag(word)]);
    }
    add(&[flag("--die-with-parent"), flag("--new-session"), flag("--cap-drop"), flag("ALL")]);
    let uid = OsString::from(uid.to_string());
    add(&[flag("--uid"), &uid, flag("--gid"), &uid]);
    add(&[flag("--ro-bind"), flag("/"), flag("/"), flag("--dev"), flag("/dev"), flag("--proc"), flag("/proc")]);
    for device in &launch.devices {
        add(&[flag("--dev-bind"), device.as_os_str(), device.as_os_str()]);
    }
    for folder in ["/tmp", "/var/tmp", "/run", "/home", "/root"] {
        if is_real_folder(Path::new(folder)) {
            add(&[flag("--tmpfs"), flag(folder)]);
        }
    }
    for folder in &launch.hidden {
        add(&[flag("--tmpfs"), folder.as_os_str()]);
    }
    let rooms = &launch.rooms;
    add(&[flag("--bind"), rooms.work.as_os_str(), rooms.work.as_os_str()]);
    add(&[flag("--ro-bind"), rooms.data.as_os_str(), rooms.data.as_os_str()]);
    add(&[flag("--bind"), rooms.output.as_os_str(), rooms.output.as_os_str()]);
    add(&[flag("--chdir"), rooms.work.as_os_str(), flag("--")]);
    args.extend(launch.command.iter().map(OsString::from));
    args
}

/// Whether `path` is a folder and no link to one: only that can be mounted over.
pub(super) fn is_real_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_dir())
}
