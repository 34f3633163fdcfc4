//! Starts that must not succeed: each ends by itself with another code than 0, says what is wrong and what to do, and
//! loses nothing, so that the same data starts again once it is put right.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use selion_api::Amount;
use selion_api::slice::SliceWant;
use selion_contracts::BlockTag;
use selion_tests::{Controller, Part, Pool, Renter, dead_port, run, until, want};

const ANY_PORT: &str = "127.0.0.1:0";
/// An account without code.
const NOBODY: &str = "0x1111111111111111111111111111111111111111";

/// Runs that command line to its end, which must be this exit code, with all of these words.
async fn assert_refused<S: AsRef<str>>(home: &Path, args: &[S], code: i32, words: &[&str]) -> Result<()> {
    let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
    let ended = run(home, &args).await?;
    let said = ended.said();
    assert_eq!(ended.code, Some(code), "{args:?}: {said}");
    assert!(!said.contains("panicked"), "{args:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{args:?} does not say `{word}`: {said}");
    }
    // Programs get the same, with a next step that is not empty.
    let error: serde_json::Value = serde_json::from_str(said.lines().last().context("an error")?)?;
    assert!(error["error"]["suggestion"].as_str().is_some_and(|text| !text.is_empty()), "{said}");
    Ok(())
}

/// `args` with the value of `flag` replaced.
fn with(args: &[String], flag: &str, value: &str) -> Vec<String> {
    let mut args = args.to_vec();
    if let Some(at) = args.iter().position(|arg| arg == flag) {
        args[at + 1] = value.to_owned();
    }
    args
}

/// Starts the good configuration, reads the whole log's size and newest root, and stops it.
async fn assert_starts(pool: &Pool, data: &Path) -> Result<u64> {
    let controller = pool.controller(data, ANY_PORT).await?;
    let size = size_of(&controller).await?;
    ensure!(controller.part.stop().await?.success(), "it stops by itself");
    Ok(size)
}

async fn size_of(controller: &Controller) -> Result<u64> {
    let head = controller.client.log_head().await?.newest.context("a signed head")?;
    Ok(head.head.size)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    ensure!(done.success(), "cp -a {} {}", from.display(), to.display());
    Ok(())
}

#[tokio::test]
async fn a_chain_or_a_pool_that_is_not_there_and_a_key_that_is_not_the_authoritys_are_named() -> Result<()> {
    let pool = Pool::open().await?;
    let data = pool.path("controller");
    let good = pool.controller_args(&data, ANY_PORT)?;
    let dead = format!("http://127.0.0.1:{}", dead_port()?);
    let home = pool.home();

    assert_refused(home, &with(&good, "--chain-rpc", &dead), 1, &[&dead, "check that the node runs"]).await?;
    assert_refused(home, &with(&good, "--pool", NOBODY), 1, &[NOBODY, "check the address and the chain URL"]).await?;
    let other = pool.path("other.key").display().to_string();
    fs::write(&other, "22".repeat(32))?;
    fs::set_permissions(&other, Permissions::from_mode(0o600))?;
    let authority = pool.contracts.authority(BlockTag::Latest).await?.to_string();
    let words = [authority.as_str(), "--authority-key", "authority replace"];
    assert_refused(home, &with(&good, "--authority-key", &other), 1, &words).await?;

    let agent = pool.agent_args(&dead, &pool.path("agent"), "A100 80GB");
    assert_refused(home, &with(&agent, "--chain-rpc", &dead), 9, &[&dead, "check that the node runs"]).await?;
    assert_refused(home, &with(&agent, "--pool", NOBODY), 3, &[NOBODY, "check --pool"]).await?;
    assert_refused(home, &["agent", "up", "--chain-rpc", &pool.rpc], 2, &["--pool ADDRESS"]).await?;
    let bad_model = pool.agent_args(&dead, &pool.path("agent"), "Abacus 9000");
    assert_refused(home, &bad_model, 1, &["Abacus 9000"]).await?;

    assert_starts(&pool, &data).await?;
    Ok(())
}

#[tokio::test]
async fn a_flag_that_is_none_is_a_usage_error_of_every_server() -> Result<()> {
    let home = tempfile::tempdir()?;
    for command in [&["chain"][..], &["controller"], &["agent", "up"], &["agent", "down"], &["pool", "create"]] {
        let args = [command, &["--no-such-flag"]].concat();
        assert_refused(home.path(), &args, 2, &[]).await?;
    }
    assert_refused(home.path(), &["chain", "--listen", "8545"], 2, &["--listen"]).await?;
    Ok(())
}

#[tokio::test]
async fn a_folder_or_port_in_use_is_named_and_the_controller_that_holds_it_goes_on() -> Result<()> {
    let pool = Pool::open().await?;
    let data = pool.path("controller");
    let first = pool.controller(&data, ANY_PORT).await?;
    let fence = first.client.pool().await?.fence;

    // The same folder and port, as when somebody starts it twice.
    let twice = pool.controller_args(&data, &first.address)?;
    assert_refused(pool.home(), &twice, 1, &["is in use by another controller", &data.display().to_string()]).await?;
    let chain = ["chain", "--data-dir", "second-chain", "--listen", &first.address];
    assert_refused(pool.home(), &chain, 1, &[&first.address, "stop what holds that port"]).await?;

    assert_eq!(first.client.pool().await?.fence, fence, "it was not deposed");
    // It still decides: a deposit is seen, and a request enters the log.
    let renter = Renter::funded(&pool, &first.url, "ada", Amount(1_000_000_000)).await?;
    let before = size_of(&first).await?;
    let refused = renter.client.create_lease("key", &want(SliceWant::Whole, &["true"])).await;
    assert_eq!(refused.err().as_ref().and_then(|error| error.code()), Some("no_matching_slice"));
    assert!(size_of(&first).await? > before);
    Ok(())
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_and_a_key_that_others_can_read_are_named() -> Result<()> {
    let pool = Pool::open().await?;
    let data = pool.path("controller");
    let good = pool.controller_args(&data, ANY_PORT)?;
    let size = assert_starts(&pool, &data).await?;
    let home = pool.home();

    // A file where the folder should be fails for every user, root too.
    fs::write(pool.path("file"), "mine")?;
    for below in ["file", "file/below"] {
        let words = [below, "--data-dir"];
        assert_refused(home, &with(&good, "--data-dir", below), 1, &words).await?;
        assert_refused(home, &["chain", "--listen", ANY_PORT, "--data-dir", below], 1, &[below, "choose another"])
            .await?;
        let agent = pool.agent_args("http://127.0.0.1:1", Path::new(below), "A100 80GB");
        assert_refused(home, &agent, 1, &[below]).await?;
    }
    assert_eq!(fs::read_to_string(pool.path("file"))?, "mine");

    for key in [pool.path("authority.key"), data.join("keys/delegate.key")] {
        fs::set_permissions(&key, Permissions::from_mode(0o640))?;
        let shown = key.display().to_string();
        assert_refused(home, &good, 1, &[&format!("chmod 600 {shown}")]).await?;
        fs::set_permissions(&key, Permissions::from_mode(0o600))?;
    }
    let delegate = data.join("keys/delegate.key");
    let secret = fs::read_to_string(&delegate)?;
    fs::write(&delegate, "not a key")?;
    assert_refused(home, &good, 1, &[&delegate.display().to_string(), "restore it from a copy"]).await?;
    assert_eq!(fs::read_to_string(&delegate)?, "not a key", "it is not overwritten");
    fs::write(&delegate, secret)?;

    assert!(assert_starts(&pool, &data).await? > size);
    Ok(())
}

#[tokio::test]
async fn a_database_that_is_damaged_is_never_continued_and_its_good_copy_is() -> Result<()> {
    let pool = Pool::open().await?;
    let data = pool.path("controller");
    let good = pool.controller_args(&data, ANY_PORT)?;
    let controller = pool.controller(&data, ANY_PORT).await?;
    // The third entry is the first block of the pool: something to bite into.
    let log = until("a block in the log", async || {
        let log = controller.client.log_entries(0, 1_000).await?.entries;
        Ok((log.len() > 3).then_some(log))
    })
    .await?;
    ensure!(controller.part.stop().await?.success(), "it stops by itself");
    let file = data.join("selion.db");
    let whole = fs::read(&file)?;

    let shown = file.display().to_string();
    for garbage in [b"garbage ".repeat(1_000), [&whole[..100], &[0xAA; 60_000]].concat()] {
        fs::write(&file, &garbage)?;
        assert_refused(pool.home(), &good, 1, &["damaged", "backup"]).await.with_context(|| shown.clone())?;
        assert_eq!(fs::read(&file)?, garbage, "what is there stays for whoever can still read it");
    }

    // One bit of one entry, where SQLite has no checksum: its time.
    let victim = &log[2];
    let entry = hex::decode(&victim.entry)?;
    let at = whole.windows(entry.len().min(200)).position(|window| entry.starts_with(window));
    let mut flipped = whole.clone();
    flipped[at.context("the entry in the file")? + 20] ^= 1;
    fs::write(&file, &flipped)?;
    assert_refused(pool.home(), &good, 1, &[&format!("entry {}", victim.seq), "restore"]).await?;

    fs::write(&file, &whole)?;
    assert!(assert_starts(&pool, &data).await? > log.len() as u64);
    Ok(())
}

#[tokio::test]
async fn a_restored_old_backup_is_refused_with_the_remedy_and_the_newer_copy_goes_on() -> Result<()> {
    let pool = Pool::open().await?;
    let (data, old, newer) = (pool.path("controller"), pool.path("old"), pool.path("newer"));
    assert_starts(&pool, &data).await?;
    copy(&data, &old)?;

    let controller = pool.controller(&data, ANY_PORT).await?;
    // This start is an entry that the copy lacks.
    let longer = size_of(&controller).await?;
    until("an anchor beyond the copy", async || {
        Ok((controller.client.log_head().await?.anchored_size >= longer).then_some(()))
    })
    .await?;
    ensure!(controller.part.stop().await?.success(), "it stops by itself");
    fs::rename(&data, &newer)?;
    copy(&old, &data)?;
    let words = ["are anchored on chain", "restored backup", "newer copy", "authority disown"];
    assert_refused(pool.home(), &pool.controller_args(&data, ANY_PORT)?, 1, &words).await?;
    let again = assert_refused(pool.home(), &pool.controller_args(&data, ANY_PORT)?, 1, &words).await;
    again.context("a refused start does not make the next one pass")?;

    fs::remove_dir_all(&data)?;
    fs::rename(&newer, &data)?;
    assert!(assert_starts(&pool, &data).await? > longer);
    Ok(())
}

/// Starts a controller twice and copies its data in between to `kept`; the second one is killed once `seen` holds of it.
/// The size of the second one's head. No anchor tells that the copy lacks it: a controller that starts anchors what the one
/// before it left to anchor, and then all is done again.
async fn copied(
    pool: &Pool,
    data: &Path,
    kept: &Path,
    address: &str,
    mut seen: impl AsyncFnMut(&Controller, Option<u64>) -> Result<()>,
) -> Result<u64> {
    loop {
        let first = pool.controller_with(data, address, NO_ANCHORS).await?;
        seen(&first, None).await?;
        let size = size_of(&first).await?;
        ensure!(first.part.stop().await?.success(), "it stops by itself");
        if kept.exists() {
            fs::remove_dir_all(kept)?;
        }
        copy(data, kept)?;
        let mut second = pool.controller_with(data, address, NO_ANCHORS).await?;
        let longer = size_of(&second).await?;
        seen(&second, Some(longer)).await?;
        second.part.kill().await?;
        if pool.contracts.head(BlockTag::Latest).await?.size <= size {
            return Ok(longer);
        }
    }
}

/// The same with an agent, to which the second one's head was shown.
async fn shown_to_an_agent(pool: &Pool, data: &Path, kept: &Path, address: &str) -> Result<(Part, u64)> {
    let (mut agent, marks) = (None, pool.path("agent/marks.json"));
    let longer = copied(pool, data, kept, address, async |controller, longer| {
        if agent.is_none() {
            agent = Some(pool.agent(&controller.url, "agent", "A100 80GB").await?);
        }
        let Some(longer) = longer else { return Ok(()) };
        until("the agent to be shown a head that the copy lacks", async || {
            let marks: serde_json::Value = serde_json::from_slice(&fs::read(&marks)?)?;
            Ok((marks["head"]["head"]["size"].as_u64() >= Some(longer)).then_some(()))
        })
        .await
    })
    .await?;
    Ok((agent.context("an agent")?, longer))
}

/// So that only what is tested here tells a backup.
const NO_ANCHORS: &[&str] = &["--anchor-ms", "3600000"];

#[tokio::test]
async fn a_restored_backup_signs_nothing_once_an_agent_shows_a_head_that_it_lacks() -> Result<()> {
    let pool = Pool::open().await?;
    let (data, old, newer) = (pool.path("controller"), pool.path("old"), pool.path("newer"));
    let address = format!("127.0.0.1:{}", dead_port()?);
    // A backup of everything brings the mark beside the key as well: here it is as if there were none.
    let (chain_id, controller) = (pool.contracts.chain_id, pool.contracts.at.controller);
    let mark = pool.path(&format!("authority.key.{chain_id}.{controller}.mark"));
    let (_agent, longer) = shown_to_an_agent(&pool, &data, &old, &address).await?;
    fs::rename(&data, &newer)?;
    copy(&old, &data)?;
    fs::remove_file(&mark)?;
    let args = [pool.controller_args(&data, &address)?, NO_ANCHORS.iter().map(ToString::to_string).collect()].concat();
    assert_refused(pool.home(), &args, 1, &["may not decide any more"]).await?;
    assert_eq!(fs::read(&mark)?, b"", "no head was signed");

    fs::remove_dir_all(&data)?;
    fs::rename(&newer, &data)?;
    assert!(assert_starts(&pool, &data).await? > longer);
    Ok(())
}

#[tokio::test]
async fn a_restored_backup_is_told_by_the_mark_beside_the_key_without_any_agent() -> Result<()> {
    let pool = Pool::open().await?;
    let (data, old, newer) = (pool.path("controller"), pool.path("old"), pool.path("newer"));
    let longer = copied(&pool, &data, &old, ANY_PORT, async |_, _| Ok(())).await?;
    fs::rename(&data, &newer)?;
    copy(&old, &data)?;
    let args = pool.controller_args(&data, ANY_PORT)?;
    let words =
        [format!("a head over {longer} entries was signed"), "restored backup".into(), "authority replace".into()];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_refused(pool.home(), &args, 1, &words).await?;

    fs::remove_dir_all(&data)?;
    fs::rename(&newer, &data)?;
    assert!(assert_starts(&pool, &data).await? > longer);
    Ok(())
}

#[tokio::test]
async fn where_the_newest_log_is_lost_another_key_goes_on_from_the_last_anchor() -> Result<()> {
    let pool = Pool::open().await?;
    let (data, old) = (pool.path("controller"), pool.path("old"));
    let address = format!("127.0.0.1:{}", dead_port()?);
    let (mut agent, _) = shown_to_an_agent(&pool, &data, &old, &address).await?;
    fs::remove_dir_all(&data)?;
    copy(&old, &data)?;
    let refused = pool.controller_args(&data, &address)?;
    assert_refused(pool.home(), &refused, 1, &["authority replace"]).await?;

    let (key, at) = (pool.path("heir.key").display().to_string(), pool.contracts.at.controller.to_string());
    let replace = ["authority", "replace", "--chain-rpc", &pool.rpc, "--pool", &at];
    let keys = ["--key-file", "owner.key", "--authority-key", &key];
    run(pool.home(), replace.into_iter().chain(keys)).await?.json()?;
    fs::rename(&key, pool.path("authority.key"))?;
    let controller = pool.controller(&data, &address).await?;
    let renter = Renter::funded(&pool, &controller.url, "ada", Amount(1_000_000_000)).await?;
    while agent.said("event").await? != "linked" {}
    renter.client.create_lease("key", &want(SliceWant::Whole, &["true"])).await?;
    assert_eq!(controller.client.pool().await?.fence.epoch, 2);
    Ok(())
}

/// A small file system in memory; unmounted when dropped.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    /// `None` where this user may not mount.
    fn mount(at: &'a Path) -> Result<Option<Self>> {
        fs::create_dir(at)?;
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=96m", "selion-test"]).arg(at).output()?;
        if mounted.status.success() {
            return Ok(Some(Self(at)));
        }
        println!("skipped: a full disk: {}", String::from_utf8_lossy(&mounted.stderr).trim());
        Ok(None)
    }

    /// Takes all that is left.
    fn fill(&self) {
        let file = self.0.join("filler");
        // It ends with an error, which is what it is for.
        let _ = fs::File::create(file).and_then(|mut file| std::io::copy(&mut std::io::repeat(0), &mut file));
    }

    fn free(&self) -> Result<()> {
        Ok(fs::remove_file(self.0.join("filler"))?)
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        // Lazily: a process that is being killed may still be in it.
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[tokio::test]
async fn a_full_disk_is_answered_and_named_and_loses_nothing() -> Result<()> {
    let pool = Pool::open().await?;
    let place = pool.path("disk");
    let Some(disk) = Disk::mount(&place)? else { return Ok(()) };
    let data = place.join("controller");
    let mut controller = pool.controller(&data, ANY_PORT).await?;
    let renter = Renter::funded(&pool, &controller.url, "ada", Amount(1_000_000_000)).await?;
    let client = &renter.client;
    // Nobody offers anything here, so a request is refused; who could pay is told so by an entry.
    let ask = async |number: u32| {
        let error = client.create_lease(&format!("key-{number}"), &want(SliceWant::Whole, &["true"])).await.err();
        error.and_then(|error| error.code().map(str::to_owned)).context("a problem with a code")
    };
    assert_eq!(ask(0).await?, "no_matching_slice");

    disk.fill();
    let mut said = Vec::new();
    // What is written ahead of the database reuses its pages for a while.
    while said.len() < 2_000 && said.last().is_none_or(|code| code == "no_matching_slice") {
        said.push(ask(u32::try_from(said.len())? + 1).await?);
    }
    assert_eq!(
        said.pop().as_deref(),
        Some("log_unavailable"),
        "after {} requests: {}",
        said.len(),
        controller.part.log()
    );
    let held = size_of(&controller).await?;
    disk.free()?;
    let failed = u32::try_from(said.len())? + 1;
    assert_eq!(ask(failed).await?, "no_matching_slice", "once there is room: {}", controller.part.log());
    assert!(size_of(&controller).await? > held);

    // A start on a full disk.
    let before = client.log_entries(0, 1_000).await?.entries;
    controller.part.kill().await?;
    disk.fill();
    assert_refused(pool.home(), &pool.controller_args(&data, ANY_PORT)?, 1, &["full"]).await?;
    disk.free()?;
    let controller = pool.controller(&data, ANY_PORT).await?;
    let after = controller.client.log_entries(0, 1_000).await?.entries;
    assert_eq!(after[..before.len()], before[..], "every entry is as it was");
    Ok(())
}
