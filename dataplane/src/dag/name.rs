//! Which names may appear in a folder.

use super::DagError;

/// Bytes in the longest name: what common file systems take.
const MAX_NAME: usize = 255;

/// Accepts a name that stays inside its folder on any file system of ours.
///
/// # Errors
///
/// [`DagError::BadName`] for an empty name, `.`, `..`, one with `/` or NUL, or one over 255 bytes.
pub fn check_name(name: &str) -> Result<(), DagError> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name == "." || name == ".." {
        "it points outside its folder"
    } else if name.contains('/') {
        "it contains '/'"
    } else if name.contains('\0') {
        "it contains NUL"
    } else if name.len() > MAX_NAME {
        "it is longer than 255 bytes"
    } else {
        return Ok(());
    };
    Err(DagError::BadName { name: name.to_owned(), why })
}

/// Bytes in the longest target of a symbolic link: what Linux takes.
const MAX_TARGET: usize = 4095;

/// Accepts what can be the target of a symbolic link. It may lead anywhere: a target is data, and nothing of ours
/// follows it.
///
/// # Errors
///
/// [`DagError::BadTarget`] for an empty one, one with NUL, or one over 4095 bytes.
pub fn check_target(target: &str) -> Result<(), DagError> {
    let why = if target.is_empty() {
        "it is empty"
    } else if target.contains('\0') {
        "it contains NUL"
    } else if target.len() > MAX_TARGET {
        "it is longer than 4095 bytes"
    } else {
        return Ok(());
    };
    Err(DagError::BadTarget { target: target.chars().take(256).collect(), why })
}
