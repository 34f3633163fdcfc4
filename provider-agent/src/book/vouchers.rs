//! The latest voucher of every renter: enough to claim alone.

use std::fs;
use std::io;
use std::path::Path;

use selion_api::agent::SignedVoucher;

use super::{BookError, at, replace};

pub(super) fn keep(dir: &Path, voucher: &SignedVoucher) -> Result<(), BookError> {
    let path = dir.join(format!("{}.json", voucher.renter));
    let had = read(&path)?;
    if had.is_some_and(|had| had.cumulative > voucher.cumulative || had == *voucher) {
        return Ok(());
    }
    let bytes = serde_json::to_vec_pretty(voucher).map_err(|error| at(&path, error.into()))?;
    replace(&path, &bytes)
}

pub(super) fn all(dir: &Path) -> Result<Vec<SignedVoucher>, BookError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(|source| at(dir, source))? {
        let path = entry.map_err(|source| at(dir, source))?.path();
        if path.extension().is_some_and(|end| end == "json") {
            found.extend(read(&path)?);
        }
    }
    found.sort_by_key(|voucher| voucher.renter);
    Ok(found)
}

fn read(path: &Path) -> Result<Option<SignedVoucher>, BookError> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| BookError::Damaged { path: path.to_owned(), detail: error.to_string() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path, error)),
    }
}
