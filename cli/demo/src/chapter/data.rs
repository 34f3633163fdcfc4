//! The dataset: added block by block, known by its CID.

use std::ffi::OsString;
use std::path::PathBuf;

use selion_api::rest::NewDataset;
use serde_json::{Value, json};

use super::kubo;
use crate::fault::{Expecting, Told, expect};
use crate::program::{MOUNT, make_data};
use crate::renter::Renter;
use crate::stage::Stage;

/// Data that the pool has.
pub(super) struct Data {
    pub cid: String,
    /// The same file or folder here.
    pub path: PathBuf,
}

/// Adds what the caller named, or some made files, as any renter would: `selion data add`. With a Kubo, the data goes
/// there first, and the pool takes it from it.
pub(super) async fn add(stage: &Stage, renter: &Renter) -> Told<(Value, Data)> {
    let path = match &stage.options.data {
        Some(path) => path.clone(),
        None => {
            let made = stage.path(MOUNT);
            make_data(&made)?;
            made
        }
    };
    let from_kubo = match &stage.options.kubo {
        Some(url) => {
            let cid = kubo::add(url, &path).await?;
            let named = NewDataset { cid: cid.clone(), name: "by way of Kubo".to_owned() };
            let taken = renter.client.add_dataset(&named).await.expecting("the pool to take the data from Kubo")?;
            Some((cid, taken.blocks))
        }
        None => None,
    };
    let args = ["--output", "json", "data", "add"].map(OsString::from);
    let answer = stage.tool(Some(&renter.home), args.into_iter().chain([path.clone().into_os_string()])).await?;
    let added = answer.json("`selion data add` to add the data")?;
    let cid = added["cid"].as_str().expecting("a CID")?.to_owned();
    if let Some((theirs, _)) = &from_kubo {
        expect(*theirs == cid, format!("the CID that Kubo gave, {theirs}"), &cid)?;
    }
    let known = renter.client.dataset(&cid).await?;
    let evidence = json!({
        "cid": cid,
        "bytes": known.bytes,
        "blocks": known.blocks,
        "tag": known.tag,
        "path": path,
        "kubo": from_kubo.map(|(cid, blocks)| json!({ "cid": cid, "blocks": blocks })),
    });
    Ok((evidence, Data { cid, path }))
}
