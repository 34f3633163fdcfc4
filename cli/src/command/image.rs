//! `selion image`: images made in place, for who has no container engine.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use selion_dataplane::image::{ImageError, Ingredient, Recipe};
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::{Done, Failure, chain};
use crate::output::Output;
use crate::unit::show_size;

/// Most entries of an image made here.
const MOST_ENTRIES: usize = 100_000;
/// Most folders inside each other.
const MOST_DEPTH: u32 = 64;
/// Where programs are found without their folder.
const PATH: &str = "PATH=/usr/local/bin:/usr/bin:/bin";

/// Makes container images without a container engine.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Writes an OCI image layout of your files and of programs of this machine, with the libraries that they load
    Make(Args),
}

/// What is in the image, and how it starts.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder to write the image to; must not exist
    dest: PathBuf,
    /// A file or folder of yours and its place in the image, e.g. ./job:/app; may be repeated
    #[arg(long = "add", value_name = "FROM:PATH")]
    adds: Vec<String>,
    /// A program of this machine to bring along, e.g. sh; may be repeated, or several with commas
    #[arg(long = "program", value_name = "NAME", value_delimiter = ',')]
    programs: Vec<String>,
    /// A variable of every command in it; may be repeated
    #[arg(long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Where commands start
    #[arg(long, value_name = "DIR", default_value = "/")]
    workdir: String,
    /// As whom: USER\[:GROUP\], by number or by a name of its /etc/passwd [default: 1000:1000]
    #[arg(long, value_name = "USER", default_value = "1000:1000")]
    user: String,
    /// The program that a lease in it runs, and its first arguments
    #[arg(last = true, value_name = "ENTRYPOINT")]
    entrypoint: Vec<String>,
}

/// What was made.
#[derive(Debug, Serialize)]
struct Made {
    image: PathBuf,
    digest: String,
    entries: usize,
    bytes: u64,
}

/// Runs the sub-command.
pub fn main(out: Output, command: Command) -> Done {
    let Command::Make(args) = command;
    if args.dest.symlink_metadata().is_ok() {
        return Err(Failure::usage(format!("{} is there already", args.dest.display()), "name a folder that is not"));
    }
    let recipe = recipe(&args)?;
    let made = write(&recipe, &args.dest).inspect_err(|_| {
        // What was begun is no image; that it is left over harms nobody.
        let _ = fs::remove_dir_all(&args.dest);
    })?;
    out.show(&made, |made| {
        format!(
            "{} written: {} entries, {}\ndigest {}\nnext: selion data add {}, then selion run --image CID",
            made.image.display(),
            made.entries,
            show_size(made.bytes),
            made.digest,
            made.image.display()
        )
    })
}

fn write(recipe: &Recipe, dest: &Path) -> Done<Made> {
    let digest = recipe.write(dest).map_err(|error| match &error {
        ImageError::Io { path, source } => Failure::file(path, source),
        _ => Failure::new(Exit::Failure, "image", chain(&error), "check the files that are to be in it"),
    })?;
    let blobs = dest.join("blobs/sha256");
    let listed = fs::read_dir(&blobs).map_err(|error| Failure::file(&blobs, &error))?;
    let bytes = listed.flatten().filter_map(|blob| Some(blob.metadata().ok()?.len())).sum();
    Ok(Made { image: dest.to_owned(), digest: digest.to_string(), entries: recipe.entries.len(), bytes })
}

fn recipe(args: &Args) -> Done<Recipe> {
    let programs = args.programs.iter().map(String::as_str);
    let base = selion_agent::images::recipe(programs)
        .map_err(|why| Failure::usage(why, "install it, or bring what you need with --add"))?;
    let mut entries = base.entries;
    for add in &args.adds {
        add_to(&mut entries, add)?;
    }
    let mut env = vec![PATH.to_owned()];
    for one in &args.env {
        match one.split_once('=') {
            Some((name, _)) if !name.is_empty() => env.push(one.clone()),
            _ => return Err(Failure::usage(format!("--env `{one}` is no NAME=VALUE"), "write e.g. --env MODE=fast")),
        }
    }
    if !args.workdir.starts_with('/') {
        let why = format!("--workdir `{}` is no absolute path", args.workdir);
        return Err(Failure::usage(why, "write e.g. --workdir /app"));
    }
    let (entrypoint, user, working_dir) = (args.entrypoint.clone(), args.user.clone(), args.workdir.clone());
    Ok(Recipe { entries, entrypoint, cmd: Vec::new(), env, user, working_dir })
}

/// Adds what `FROM:PATH` says.
fn add_to(entries: &mut BTreeMap<String, Ingredient>, add: &str) -> Done {
    let wrong = |why: &str| Failure::usage(format!("--add `{add}`: {why}"), "write e.g. --add ./job:/app");
    let (from, path) = add.rsplit_once(':').ok_or_else(|| wrong("it is no FROM:PATH"))?;
    let path = path.strip_prefix('/').ok_or_else(|| wrong("the place in the image is no absolute path"))?;
    if path.is_empty() || path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(wrong("the place in the image is no plain path"));
    }
    let from = Path::new(from);
    // Whoever typed a link named the place.
    let real = from.canonicalize().map_err(|error| Failure::file(from, &error))?;
    // The image's user gets there, whatever the base says of a folder above, as it does of root's.
    for (above, _) in path.match_indices('/') {
        if let Some(Ingredient::Folder(mode)) = entries.get_mut(&path[..above]) {
            *mode |= 0o055;
        }
    }
    entry(entries, &real, path.to_owned(), MOST_DEPTH)
}

/// One entry, and all below it. Links in a folder are kept as they are.
fn entry(entries: &mut BTreeMap<String, Ingredient>, from: &Path, name: String, depth: u32) -> Done {
    let failed = |error: std::io::Error| Failure::file(from, &error);
    let refused = |why: &str| Err(Failure::usage(format!("{}: {why}", from.display()), "leave it out of the folder"));
    let meta = from.symlink_metadata().map_err(failed)?;
    // What its owner may read or run here, the image's user may there: all of it is root's, and whoever has the image has it.
    let mode = meta.permissions().mode() & 0o777;
    let mode = mode | (mode & 0o500) >> 3 | (mode & 0o500) >> 6;
    if entries.len() >= MOST_ENTRIES || depth == 0 {
        return refused("the image would have too many entries, or folders too deep inside each other");
    }
    if meta.is_symlink() {
        let target = fs::read_link(from).map_err(failed)?;
        let Some(target) = target.to_str() else { return refused("its target is no UTF-8") };
        entries.insert(name, Ingredient::Link(target.to_owned()));
    } else if meta.is_file() {
        entries.insert(name, Ingredient::Copy(from.to_owned(), mode));
    } else if meta.is_dir() {
        entries.insert(name.clone(), Ingredient::Folder(mode));
        for below in fs::read_dir(from).map_err(failed)? {
            let below = below.map_err(failed)?;
            let Some(last) = below.file_name().to_str().map(str::to_owned) else {
                return refused("a name in it is no UTF-8");
            };
            entry(entries, &below.path(), format!("{name}/{last}"), depth - 1)?;
        }
    } else {
        return refused("it is a pipe, a socket or a device");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(adds: &[String]) -> Done<BTreeMap<String, Ingredient>> {
        let mut entries = BTreeMap::new();
        adds.iter().try_for_each(|add| add_to(&mut entries, add))?;
        Ok(entries)
    }

    #[test]
    fn a_folder_is_added_with_its_links_and_permissions_and_nothing_that_they_lead_to() {
        let dir = tempfile::tempdir().unwrap();
        let job = dir.path().join("job");
        fs::create_dir_all(job.join("sub")).unwrap();
        fs::write(job.join("run"), "#!/bin/sh").unwrap();
        fs::set_permissions(job.join("run"), fs::Permissions::from_mode(0o4755)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", job.join("sub/link")).unwrap();
        let entries = of(&[format!("{}:/app", job.display())]).unwrap();
        assert_eq!(entries.keys().collect::<Vec<_>>(), ["app", "app/run", "app/sub", "app/sub/link"]);
        assert!(matches!(&entries["app/run"], Ingredient::Copy(_, 0o755)), "no setuid: {:?}", entries["app/run"]);
        assert_eq!(entries["app/sub/link"], Ingredient::Link("/etc/passwd".into()));
    }

    #[test]
    fn the_images_user_gets_to_what_was_added_and_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let mine = dir.path().join("mine");
        fs::create_dir(&mine).unwrap();
        fs::write(mine.join("data"), "x").unwrap();
        for (path, mode) in [(mine.join("data"), 0o600), (mine.clone(), 0o700)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let mut entries = BTreeMap::from([("root".to_owned(), Ingredient::Folder(0o700))]);
        add_to(&mut entries, &format!("{}:/root/mine", mine.display())).unwrap();
        assert_eq!(entries["root"], Ingredient::Folder(0o755));
        assert_eq!(entries["root/mine"], Ingredient::Folder(0o755));
        assert!(matches!(&entries["root/mine/data"], Ingredient::Copy(_, 0o644)));
    }

    #[test]
    fn what_is_no_place_in_an_image_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display();
        for add in
            [format!("{at}"), format!("{at}:app"), format!("{at}:/"), format!("{at}:/a/../b"), format!("{at}:/a//b")]
        {
            let error = of(std::slice::from_ref(&add)).unwrap_err();
            assert!(error.body().detail.contains(&add) && error.body().exit == 2, "{:?}", error.body());
        }
        assert!(of(&[format!("{at}/gone:/app")]).unwrap_err().body().detail.contains("gone"));
        nix::unistd::mkfifo(&dir.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(of(&[format!("{at}:/app")]).unwrap_err().body().detail.contains("pipe"));
    }
}
