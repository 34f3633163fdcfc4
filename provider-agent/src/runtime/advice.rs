//! Why a machine may refuse namespaces, and what its owner can do.

use std::fs;

/// Settings of the kernel that keep ordinary users, or everybody, from making user namespaces: file, the value that does
/// so, and the setting that does not.
const SETTINGS: [(&str, &str, &str); 3] = [
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
    ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
];

/// What the owner of this machine can do to have a sandbox, in a sentence or two.
#[must_use]
pub fn advice() -> String {
    let set = |file: &str| fs::read_to_string(file).map(|text| text.trim().to_owned()).unwrap_or_default();
    let wrong = SETTINGS.iter().filter(|(file, bad, _)| set(file) == *bad);
    let commands: Vec<String> = wrong.map(|(_, _, good)| format!("`sysctl -w {good}`")).collect();
    let rest =
        "without a sandbox, as an ordinary user, commands run only if you say --sandbox none and the pool allows it";
    if commands.is_empty() {
        return format!(
            "It needs Linux 5.12 or newer with user namespaces; a container has to allow them (docker run \
             --privileged). Else run the agent on the machine itself; {rest}"
        );
    }
    format!("Let it have user namespaces: {}; {rest}", commands.join(" and "))
}
