//! Images made in place: a layer of given files, and the words around it, as an OCI image layout. Equal recipes make equal
//! images: no time and no owner of the maker's enters.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::digest::Hasher;
use super::error::At;
use super::{Digest, ImageError, Platform};

/// One entry of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ingredient {
    /// A folder with these permissions.
    Folder(u32),
    /// A file of these bytes and permissions.
    Text(Vec<u8>, u32),
    /// A file of the machine, wherever a link leads, with these permissions.
    Copy(PathBuf, u32),
    /// A symbolic link.
    Link(String),
}

/// What an image is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipe {
    /// Entries by path, without a leading slash. Folders above an entry need none of their own.
    pub entries: BTreeMap<String, Ingredient>,
    /// The program and its first arguments.
    pub entrypoint: Vec<String>,
    /// Arguments after it, or the whole command.
    pub cmd: Vec<String>,
    /// `NAME=VALUE`.
    pub env: Vec<String>,
    /// As whom: `USER[:GROUP]`.
    pub user: String,
    /// Where the program starts.
    pub working_dir: String,
}

impl Recipe {
    /// Writes the image as an OCI image layout into the folder `dir`, made if it is not there; the digest of its manifest.
    ///
    /// # Errors
    ///
    /// [`ImageError::Io`], also where a file to be copied is gone.
    pub fn write(&self, dir: &Path) -> Result<Digest, ImageError> {
        let blobs = dir.join("blobs/sha256");
        fs::create_dir_all(&blobs).at(&blobs)?;
        let (layer, layer_bytes) = self.layer(&blobs)?;
        let Platform { os, architecture, .. } = Platform::of_this_machine();
        let config = json!({
            "architecture": architecture,
            "os": os,
            "config": {
                "Entrypoint": self.entrypoint,
                "Cmd": self.cmd,
                "Env": self.env,
                "User": self.user,
                "WorkingDir": self.working_dir,
            },
            "rootfs": { "type": "layers", "diff_ids": [layer.to_string()] },
        });
        let config = blob(&blobs, config.to_string().as_bytes())?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", (layer, layer_bytes))],
        });
        let manifest = blob(&blobs, manifest.to_string().as_bytes())?;
        let entry = descriptor("application/vnd.oci.image.manifest.v1+json", manifest);
        let index = json!({ "schemaVersion": 2, "manifests": [entry] });
        for (name, text) in
            [("index.json", index.to_string()), ("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#.into())]
        {
            fs::write(dir.join(name), text).at(&dir.join(name))?;
        }
        Ok(manifest.0)
    }

    /// Writes the layer under its digest; that, and its bytes.
    fn layer(&self, blobs: &Path) -> Result<(Digest, u64), ImageError> {
        let path = blobs.join("layer");
        let file = File::create(&path).at(&path)?;
        let mut tar = tar::Builder::new(Counting { to: BufWriter::new(file), seen: Hasher::default(), bytes: 0 });
        for (name, entry) in &self.entries {
            add(&mut tar, name, entry).map_err(|(at, error)| super::error::at(&at, error))?;
        }
        let mut written = tar.into_inner().at(&path)?;
        written.flush().at(&path)?;
        let (digest, bytes) = (written.seen.finish(), written.bytes);
        let place = blobs.join(digest.hex());
        fs::rename(&path, &place).at(&place)?;
        Ok((digest, bytes))
    }
}

/// Adds one entry; what went wrong, and where.
fn add<W: Write>(tar: &mut tar::Builder<W>, name: &str, entry: &Ingredient) -> Result<(), (PathBuf, io::Error)> {
    let mut header = tar::Header::new_gnu();
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    let told = |error| (PathBuf::from(name), error);
    match entry {
        Ingredient::Folder(mode) => {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_mode(*mode);
            header.set_size(0);
            tar.append_data(&mut header, name, io::empty()).map_err(told)
        }
        Ingredient::Text(text, mode) => {
            header.set_mode(*mode);
            header.set_size(text.len() as u64);
            tar.append_data(&mut header, name, text.as_slice()).map_err(told)
        }
        Ingredient::Copy(from, mode) => {
            let told = |error| (from.clone(), error);
            let file = File::open(from).map_err(told)?;
            let bytes = file.metadata().map_err(told)?.len();
            header.set_mode(*mode);
            header.set_size(bytes);
            // A file that shrinks meanwhile is an error, one that grows is cut.
            tar.append_data(&mut header, name, io::Read::take(file, bytes)).map_err(told)
        }
        Ingredient::Link(target) => {
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_mode(0o777);
            header.set_size(0);
            tar.append_link(&mut header, name, target).map_err(told)
        }
    }
}

fn descriptor(kind: &str, (digest, size): (Digest, u64)) -> serde_json::Value {
    json!({ "mediaType": kind, "digest": digest.to_string(), "size": size })
}

fn blob(blobs: &Path, bytes: &[u8]) -> Result<(Digest, u64), ImageError> {
    let digest = Digest::of(bytes);
    let path = blobs.join(digest.hex());
    fs::write(&path, bytes).at(&path)?;
    Ok((digest, bytes.len() as u64))
}

/// Passes bytes on, and keeps their digest and number.
struct Counting<W> {
    to: W,
    seen: Hasher,
    bytes: u64,
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.seen.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
