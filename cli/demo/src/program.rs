//! What the renters run: plain shell programs, nothing that a fresh machine lacks.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Folder of the dataset below `$SELION_DATA_DIR`.
pub(crate) const MOUNT: &str = "train";
/// Files made where the caller names none, and their size: 6 MiB and a bit, so that blocks are not all full.
const FILES: u8 = 6;
const SIZE: usize = (1 << 20) + 4_321;

/// Programs that [`hash_everything`] needs.
pub(crate) const NEEDED: &str = "sh,find,sort,sha256sum,sleep";

/// Reads every file of the dataset and writes its hash, with a line for each as it goes.
pub(crate) fn hash_everything() -> String {
    format!(
        r#"#!/bin/sh
set -eu
cd "$SELION_DATA_DIR"
echo "slice $SELION_SLICE of $SELION_GPU"
if (: > {MOUNT}/written-by-the-renter) 2>/dev/null; then echo "the data is writable"; else echo "the data is read-only"; fi
find {MOUNT} -type f | LC_ALL=C sort > "$HOME/files"
while IFS= read -r file; do
    sha256sum "$file" >> "$SELION_OUTPUT_DIR/result.txt"
    echo "read $file"
    sleep 0.15
done < "$HOME/files"
echo "done"
"#
    )
}

/// Says once that it started, then counts until it is stopped.
pub(crate) fn count() -> Vec<String> {
    shell(
        r#"trap 'echo "stopped"; exit 0' TERM
echo "started pid $$ at $(date +%s%N)"
n=0
while :; do
    echo "tick $n"
    n=$((n + 1))
    sleep 0.2
done"#,
    )
}

/// A member of a gang: says who it is and meets its peers over TCP where Perl is at hand, as on any Debian.
pub(crate) fn meet() -> Vec<String> {
    shell(
        r#"echo "rank $SELION_RANK of $SELION_WORLD_SIZE, peers $SELION_PEERS"
command -v perl > /dev/null || { echo "peers not called: no perl here"; while :; do sleep 1; done; }
exec perl -e '
use strict; use IO::Socket::INET; $| = 1;
my ($rank, @peers) = ($ENV{SELION_RANK}, split /,/, $ENV{SELION_PEERS});
my $ear = IO::Socket::INET->new(LocalAddr => "0.0.0.0", LocalPort => $ENV{SELION_PORT}, Listen => 8, ReuseAddr => 1)
    or do { print "rank $rank cannot listen at port $ENV{SELION_PORT}: $!\n"; exit 1 };
my $main = $$;
unless (fork) { while (my $peer = $ear->accept) { print $peer "$rank\n"; close $peer } exit }
for my $to (grep { $_ != $rank } 0 .. $#peers) {
    my $line;
    until (defined $line) {
        my $socket = IO::Socket::INET->new(PeerAddr => $peers[$to], Timeout => 1);
        $line = <$socket> if $socket;
        select undef, undef, undef, 0.05 unless defined $line;
    }
    chomp $line;
    print "rank $rank reached rank $line at $peers[$to]\n";
}
print "rank $rank met everybody\n";
sleep 1 while 1;'"#,
    )
}

/// A member of a gang whose nodes give it no network: says who it is.
pub(crate) fn apart() -> Vec<String> {
    shell(
        r#"echo "rank $SELION_RANK of $SELION_WORLD_SIZE, peers $SELION_PEERS"
echo "peers not called: the nodes lack slirp4netns or nft"
while :; do sleep 1; done"#,
    )
}

pub(crate) fn shell(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(str::to_owned).to_vec()
}

/// Makes the dataset: files whose bytes follow from their number.
pub(crate) fn make_data(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir.join("more"))?;
    for number in 0..FILES {
        let name = if number % 2 == 0 { format!("part-{number}.bin") } else { format!("more/part-{number}.bin") };
        let mut block = Sha256::digest([number]);
        let mut bytes = Vec::with_capacity(SIZE + block.len());
        while bytes.len() < SIZE {
            bytes.extend_from_slice(&block);
            block = Sha256::digest(block);
        }
        File::create(dir.join(name))?.write_all(&bytes[..SIZE])?;
    }
    Ok(())
}

/// What [`hash_everything`] should write for this file or folder, worked out here.
pub(crate) fn expected_result(data: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    if data.is_dir() {
        collect(data, Path::new(MOUNT), &mut files)?;
    } else {
        files.push((MOUNT.to_owned(), data.to_owned()));
    }
    files.sort();
    let mut text = String::new();
    for (name, path) in files {
        text.push_str(&format!("{}  {name}\n", hash_of(&path)?));
    }
    Ok(text)
}

fn collect(dir: &Path, name: &Path, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = name.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &name, files)?;
        } else {
            files.push((name.to_string_lossy().into_owned(), entry.path()));
        }
    }
    Ok(())
}

fn hash_of(path: &Path) -> io::Result<String> {
    let mut reader = BufReader::new(File::open(path)?);
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 1 << 16];
    loop {
        let read = reader.read(&mut chunk)?;
        if read == 0 {
            return Ok(hex::encode(hash.finalize()));
        }
        hash.update(&chunk[..read]);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;

    use super::*;

    #[test]
    fn the_expected_result_is_what_the_program_writes() {
        let dir = tempfile::tempdir().unwrap();
        make_data(&dir.path().join(MOUNT)).unwrap();
        let out = dir.path().join("out");
        std::fs::create_dir(&out).unwrap();
        let program = shell(&hash_everything());
        let ran = std::process::Command::new(&program[0])
            .args(&program[1..])
            .env("SELION_DATA_DIR", dir.path())
            .env("SELION_OUTPUT_DIR", &out)
            .env("HOME", &out)
            .env("SELION_SLICE", "mig:1g.10gb@0")
            .env("SELION_GPU", "GPU-0")
            .output()
            .unwrap();
        let said = String::from_utf8(ran.stdout).unwrap();
        assert!(ran.status.success() && said.ends_with("done\n"), "{said}");
        // This folder is writable, and the program says so rather than what it should say.
        assert!(said.contains("the data is writable"), "{said}");
        std::fs::remove_file(dir.path().join(MOUNT).join("written-by-the-renter")).unwrap();
        let written = std::fs::read_to_string(out.join("result.txt")).unwrap();
        let written: String =
            written.lines().filter(|line| !line.contains("written-by")).map(|line| format!("{line}\n")).collect();
        assert_eq!(written, expected_result(&dir.path().join(MOUNT)).unwrap());
        assert_eq!(written.lines().count(), usize::from(FILES));
    }

    #[test]
    fn the_members_of_a_gang_meet() {
        let ports: Vec<u16> = (0..2).map(|_| crate::process::free_port().unwrap()).collect();
        let peers: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let program = meet();
        let start = |rank: usize| {
            std::process::Command::new(&program[0])
                .args(&program[1..])
                .env("SELION_RANK", rank.to_string())
                .env("SELION_WORLD_SIZE", "2")
                .env("SELION_PEERS", peers.join(","))
                .env("SELION_PORT", ports[rank].to_string())
                .stdout(std::process::Stdio::piped())
                .process_group(0)
                .spawn()
                .unwrap()
        };
        let mut members = [start(0), start(1)];
        for (rank, member) in members.iter_mut().enumerate() {
            let lines = io::BufRead::lines(BufReader::new(member.stdout.take().unwrap()));
            let last =
                lines.map(Result::unwrap).find(|line| line.contains("met everybody") || line.contains("not called"));
            assert!(last.is_some(), "rank {rank}");
        }
        for mut member in members {
            // With the listener that it forked: one left behind would hold the output of whoever runs the tests.
            let group = format!("-{}", member.id());
            assert!(std::process::Command::new("kill").args(["-KILL", "--", &group]).status().unwrap().success());
            member.wait().unwrap();
        }
    }
}
