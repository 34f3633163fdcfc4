//! The image of the first lease, made here: the renter's program, and what of this machine it needs to run.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use selion_api::BoxFeature;

use crate::fault::{Expecting, Told};
use crate::program::{NEEDED, hash_everything};
use crate::renter::Renter;
use crate::stage::Stage;

/// The program's place in the image.
const PROGRAM: &str = "/app/hash-everything";

/// An image that the pool has.
pub(super) struct Made {
    /// Of its OCI layout.
    pub cid: String,
    /// Of its manifest.
    pub digest: String,
}

/// Makes the image and adds it, as any renter would: `selion image make`, `selion data add`. Nothing where the pool's nodes
/// have no boxes and so no images.
pub(super) async fn build(stage: &Stage, renter: &Renter) -> Told<Option<Made>> {
    if !renter.nodes().await?.iter().any(|node| node.features.has(BoxFeature::Images)) {
        return Ok(None);
    }
    let (program, layout) = (stage.path("hash-everything"), stage.path("image"));
    fs::write(&program, hash_everything())?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let mut add = program.into_os_string();
    add.push(format!(":{PROGRAM}"));
    let args = ["--output", "json", "image", "make", "--program", NEEDED, "--add"].map(OsString::from).into_iter();
    let args = args.chain([add, layout.clone().into(), "--".into(), PROGRAM.into()]);
    let made = stage.tool(Some(&renter.home), args).await?.json("`selion image make` to make an image")?;
    let args = ["--output", "json", "data", "add"].map(OsString::from).into_iter().chain([layout.into()]);
    let added = stage.tool(Some(&renter.home), args).await?.json("`selion data add` to add the image")?;
    let text = |of: &serde_json::Value, name: &str| of[name].as_str().map(str::to_owned);
    Ok(Some(Made {
        cid: text(&added, "cid").expecting("a CID of the image")?,
        digest: text(&made, "digest").expecting("the digest of the image")?,
    }))
}
