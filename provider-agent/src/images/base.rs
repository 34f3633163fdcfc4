//! The root of leases that name no image: a shell and the usual tools, copied from the machine's own distribution with the
//! libraries that they load. Nothing else of the machine is in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::UNIX_EPOCH;

use selion_dataplane::image::{Digest, Ingredient, Recipe};

use crate::runtime::{DATA, OUTPUT, WORK};

/// Raised when the recipe changes for equal programs.
const RECIPE: u32 = 1;
/// Where programs are looked for.
const PLACES: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];
/// Programs without which there is no base.
const NEEDED: [&str; 3] = ["sh", "cat", "ls"];
/// What is there if the machine has it.
const PROGRAMS: [&str; 90] = [
    "sh",
    "bash",
    "cat",
    "ls",
    "cp",
    "mv",
    "rm",
    "ln",
    "mkdir",
    "rmdir",
    "touch",
    "chmod",
    "chown",
    "stat",
    "du",
    "df",
    "dd",
    "echo",
    "printf",
    "pwd",
    "env",
    "true",
    "false",
    "test",
    "[",
    "expr",
    "seq",
    "yes",
    "sleep",
    "timeout",
    "date",
    "id",
    "whoami",
    "groups",
    "hostname",
    "uname",
    "nproc",
    "free",
    "ps",
    "kill",
    "pgrep",
    "pkill",
    "top",
    "uptime",
    "head",
    "tail",
    "wc",
    "sort",
    "uniq",
    "cut",
    "tr",
    "tee",
    "paste",
    "join",
    "comm",
    "split",
    "fold",
    "nl",
    "od",
    "grep",
    "sed",
    "awk",
    "find",
    "xargs",
    "diff",
    "cmp",
    "patch",
    "tar",
    "gzip",
    "gunzip",
    "bzip2",
    "xz",
    "zstd",
    "base64",
    "md5sum",
    "sha1sum",
    "sha256sum",
    "sha512sum",
    "basename",
    "dirname",
    "readlink",
    "realpath",
    "mktemp",
    "mkfifo",
    "sync",
    "which",
    "setsid",
    "nice",
    "nohup",
    "numfmt",
];
/// Files that are copied where they are.
const FILES: [&str; 3] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/ld.so.cache", "/etc/pki/tls/certs/ca-bundle.crt"];
/// Folders that are copied where they are: the locale that knows every letter.
const FOLDERS: [&str; 2] = ["/usr/lib/locale/C.utf8", "/usr/lib/locale/C.UTF-8"];
/// Folders at the top that lead into `/usr`, as in every distribution of today.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// What the base of this machine is made of.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) recipe: Recipe,
    /// Changes with every program and library.
    pub(super) fingerprint: String,
}

impl Base {
    /// Looks at the machine.
    ///
    /// # Errors
    ///
    /// What is missing, in words.
    pub(super) fn of_this_machine() -> Result<Self, String> {
        let programs = PROGRAMS.into_iter().filter(|name| NEEDED.contains(name) || program(name).is_some());
        let Recipe { mut entries, .. } = recipe(programs)?;
        for path in FILES.iter().map(Path::new).filter(|path| path.is_file()) {
            entries.insert(merged(path), Ingredient::Copy(path.to_owned(), 0o644));
        }
        for folder in FOLDERS.iter().map(Path::new) {
            copy_folder(folder, &mut entries);
        }
        let recipe = Recipe {
            entries,
            env: vec![format!("PATH={}", crate::runtime::env::PATH), format!("HOME={WORK}")],
            user: "renter:renter".into(),
            working_dir: WORK.into(),
            ..Recipe::default()
        };
        Ok(Self { fingerprint: fingerprint(&recipe), recipe })
    }
}

/// What an image of these programs of the machine is made of, with the libraries that they load, and nothing else of it.
///
/// # Errors
///
/// What is missing, in words.
pub fn recipe<'a>(programs: impl IntoIterator<Item = &'a str>) -> Result<Recipe, String> {
    let found = |name: &'a str| match program(name) {
        Some(path) => Ok((name, path)),
        None => Err(format!("this machine has no program `{name}` in {}", PLACES.join(", "))),
    };
    let programs = programs.into_iter().map(found).collect::<Result<BTreeMap<&str, PathBuf>, String>>()?;
    let mut entries = frame();
    for path in libraries(programs.values())? {
        entries.insert(merged(&path), Ingredient::Copy(path, 0o755));
    }
    for (name, path) in programs {
        entries.insert(format!("usr/bin/{name}"), Ingredient::Copy(path, 0o755));
    }
    Ok(Recipe { entries, ..Recipe::default() })
}

fn program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return None;
    }
    PLACES.iter().find_map(|place| Path::new(place).join(name).canonicalize().ok().filter(|path| path.is_file()))
}

/// What the programs load, by the machine's own loader.
fn libraries<'a>(programs: impl Iterator<Item = &'a PathBuf>) -> Result<BTreeSet<PathBuf>, String> {
    let mut programs = programs.peekable();
    if programs.peek().is_none() {
        return Ok(BTreeSet::new());
    }
    let ldd = program("ldd").ok_or("this machine has no `ldd`, which tells the libraries of programs; install it")?;
    let mut command = Command::new(ldd);
    command.args(programs).env_clear().env("PATH", PLACES.join(":")).env("LC_ALL", "C").stdin(Stdio::null());
    let told = command.output().map_err(|error| format!("ldd: {error}"))?;
    // It fails if one of them is a script, and tells of the others all the same.
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    Ok(paths(&told))
}

/// The files that `ldd` names: `name => /path (0x..)` and `/path (0x..)`.
fn paths(told: &str) -> BTreeSet<PathBuf> {
    let path = |line: &str| {
        let line = line.trim();
        let line = line.split_once(" => ").map_or(line, |(_, path)| path);
        let path = line.split_once(" (0x").map(|(path, _)| path)?;
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    told.lines().filter(|line| line.starts_with([' ', '\t'])).filter_map(path).collect()
}

/// A path without its slash, and below `/usr` where the folder at the top leads there.
fn merged(path: &Path) -> String {
    let text = path.to_string_lossy();
    let text = text.trim_start_matches('/');
    let top = text.split('/').next().unwrap_or_default();
    if MERGED.contains(&top) { format!("usr/{text}") } else { text.to_owned() }
}

/// Folders and the files of `/etc`.
fn frame() -> BTreeMap<String, Ingredient> {
    let mut entries = BTreeMap::new();
    for (folder, mode) in [
        ("dev", 0o755),
        ("etc", 0o755),
        ("home", 0o755),
        ("proc", 0o555),
        ("root", 0o700),
        ("run", 0o755),
        ("sys", 0o555),
        ("tmp", 0o1777),
        ("usr", 0o755),
        ("var", 0o755),
        ("var/tmp", 0o1777),
    ] {
        entries.insert(folder.to_owned(), Ingredient::Folder(mode));
    }
    for folder in [WORK, DATA, OUTPUT].map(|path| path.trim_start_matches('/')) {
        entries.insert(folder.to_owned(), Ingredient::Folder(0o755));
    }
    for top in MERGED {
        entries.insert(format!("usr/{top}"), Ingredient::Folder(0o755));
        entries.insert(top.to_owned(), Ingredient::Link(format!("usr/{top}")));
    }
    let passwd = format!("root:x:0:0:root:/root:/bin/sh\nrenter:x:1000:1000:renter:{WORK}:/bin/sh\n");
    let lookup = "passwd: files\ngroup: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n";
    for (path, text) in [
        ("etc/passwd", passwd.as_str()),
        ("etc/group", "root:x:0:\nrenter:x:1000:\n"),
        ("etc/nsswitch.conf", lookup),
        ("etc/os-release", "NAME=\"Selion base\"\nID=selion\nPRETTY_NAME=\"Selion base\"\n"),
    ] {
        entries.insert(path.to_owned(), Ingredient::Text(text.into(), 0o644));
    }
    entries
}

/// Adds the files of a folder and those of its folders; nothing if it is not there. Links in it are left out.
fn copy_folder(folder: &Path, entries: &mut BTreeMap<String, Ingredient>) {
    let Ok(listed) = fs::read_dir(folder) else { return };
    for entry in listed.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => copy_folder(&entry.path(), entries),
            Ok(kind) if kind.is_file() => {
                entries.insert(merged(&entry.path()), Ingredient::Copy(entry.path(), 0o644));
            }
            _ => {}
        }
    }
}

/// Names the recipe and, of each file that is copied, path, size and time.
fn fingerprint(recipe: &Recipe) -> String {
    let told = |path: &Path| {
        let meta = path.metadata().ok()?;
        let changed = meta.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some((meta.len(), changed.as_nanos()))
    };
    let files = recipe.entries.iter().map(|(name, entry)| match entry {
        Ingredient::Copy(path, _) => format!("{name} {entry:?} {:?}\n", told(path)),
        _ => format!("{name} {entry:?}\n"),
    });
    let text: String = files.collect();
    Digest::of(format!("{RECIPE} {:?} {:?} {}\n{text}", recipe.env, recipe.user, recipe.working_dir).as_bytes())
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_programs_are_read_and_nothing_else() {
        let told = "/bin/sh:\n\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n\tlibgone.so => not found\n/bin/x:\n\tnot a dynamic executable\n";
        let found: Vec<_> = paths(told).into_iter().collect();
        assert_eq!(
            found,
            [PathBuf::from("/lib/x86_64-linux-gnu/libc.so.6"), PathBuf::from("/lib64/ld-linux-x86-64.so.2")]
        );
        assert_eq!(merged(&found[1]), "usr/lib64/ld-linux-x86-64.so.2");
        assert_eq!(merged(Path::new("/opt/lib/x.so")), "opt/lib/x.so");
    }

    #[test]
    fn a_recipe_of_named_programs_has_those_and_one_that_is_not_there_is_named() {
        let made = recipe(["sh", "cat"]).unwrap();
        let programs: Vec<_> = made.entries.keys().filter(|name| name.starts_with("usr/bin/")).collect();
        assert_eq!(programs, ["usr/bin/cat", "usr/bin/sh"]);
        assert!(recipe([]).unwrap().entries.keys().all(|name| !name.contains("libc")));
        assert!(recipe(["sh", "no-such"]).unwrap_err().contains("`no-such`"));
        assert!(recipe(["../../etc/passwd"]).is_err() && recipe(["/etc/passwd"]).is_err(), "names only");
    }

    #[test]
    fn this_machines_base_has_a_shell_its_loader_and_nothing_of_the_owners() {
        let base = Base::of_this_machine().unwrap();
        let has = |name: &str| base.recipe.entries.contains_key(name);
        assert!(has("usr/bin/sh") && has("etc/passwd") && !has("etc/shadow"));
        assert!(base.recipe.entries.keys().any(|name| name.contains("libc")), "{:?}", base.recipe.entries.keys());
        assert_eq!(base.fingerprint, Base::of_this_machine().unwrap().fingerprint);
    }
}
