//! Adding a file or folder to a Kubo by its RPC, with the parameters that give our CIDs.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::fault::{Expecting, Fault, Told};

/// IPIP-499 `unixfs-v1-2025`: CIDv1, raw leaves, chunks of 1 MiB, trees 1024 wide.
const PROFILE: &str = "cid-version=1&raw-leaves=true&chunker=size-1048576&max-file-links=1024&hash=sha2-256&pin=true";
const BOUNDARY: &str = "selion-demo-part-5d41402abc4b2a76";

/// Adds it, and gives the root's CID. What is added is read into memory.
pub(super) async fn add(url: &str, path: &Path) -> Told<String> {
    let path = std::fs::canonicalize(path)?;
    let name = path.file_name().and_then(|name| name.to_str()).expecting("a name in UTF-8")?.to_owned();
    let mut body = Vec::new();
    put(&mut body, &path, &name)?;
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    let client = reqwest::Client::builder().no_proxy().build()?;
    let what = format!("Kubo at {url} to add {}", path.display());
    let answer = client
        .post(format!("{}/api/v0/add?{PROFILE}", url.trim_end_matches('/')))
        .header("Content-Type", format!("multipart/form-data; boundary={BOUNDARY}"))
        .body(body)
        .send()
        .await
        .expecting(&what)?;
    let (status, text) = (answer.status(), answer.text().await.expecting(&what)?);
    let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let root = lines.rfind(|line| line["Name"] == name.as_str());
    let cid = root.and_then(|line| line["Hash"].as_str().map(str::to_owned));
    cid.ok_or_else(|| Fault::new(what, format!("{status}: {text}")))
}

/// One part for each file and folder, folders first.
fn put(body: &mut Vec<u8>, path: &Path, name: &str) -> Told {
    let folder = path.is_dir();
    let kind = if folder { "application/x-directory" } else { "application/octet-stream" };
    let head = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{}\"\r\nContent-Type: {kind}\r\n\r\n",
        escaped(name)
    );
    body.extend_from_slice(head.as_bytes());
    if !folder {
        body.extend_from_slice(&std::fs::read(path)?);
    }
    body.extend_from_slice(b"\r\n");
    if folder {
        let mut entries: Vec<PathBuf> = std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<Told<_>>()?;
        entries.sort();
        for entry in entries {
            let last = entry.file_name().and_then(|last| last.to_str()).expecting("names in UTF-8")?;
            put(body, &entry, &format!("{name}/{last}"))?;
        }
    }
    Ok(())
}

/// Percent-escapes, which Kubo undoes.
fn escaped(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_comes_before_its_files_and_names_are_escaped() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("in")).unwrap();
        std::fs::write(dir.path().join("in/a \"b\""), "x").unwrap();
        let mut body = Vec::new();
        put(&mut body, dir.path(), "train").unwrap();
        let text = String::from_utf8(body).unwrap();
        let names: Vec<&str> = text.split("filename=\"").skip(1).filter_map(|part| part.split('"').next()).collect();
        assert_eq!(names, ["train", "train%2Fin", "train%2Fin%2Fa%20%22b%22"]);
        assert_eq!(text.matches("application/x-directory").count(), 2);
    }
}
