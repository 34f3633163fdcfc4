//! Paths of entries: names below the root, or a fault.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use crate::image::{Fault, ImageLimits};

/// The names of a path; none for the root itself. `.` and empty names are left out.
pub(super) fn names(path: &[u8], limits: &ImageLimits) -> Result<Vec<OsString>, Fault> {
    if path.is_empty() || path.contains(&0) {
        return Err(Fault::BadName);
    }
    // Some builders write the root so.
    if path != b"/" && path.starts_with(b"/") {
        return Err(Fault::Absolute);
    }
    if path.len() > limits.path_bytes {
        return Err(Fault::TooLong);
    }
    let mut names = Vec::new();
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => return Err(Fault::Parent),
            name if name.len() > limits.name_bytes => return Err(Fault::TooLong),
            name => names.push(OsString::from_vec(name.to_vec())),
        }
    }
    if names.len() > limits.depth { Err(Fault::TooDeep) } else { Ok(names) }
}

/// One path of names.
pub(super) fn joined(names: &[OsString]) -> Vec<u8> {
    let mut path = Vec::new();
    for name in names {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(std::os::unix::ffi::OsStrExt::as_bytes(name.as_os_str()));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stays_below_the_root_has_names() {
        let limits = ImageLimits { depth: 3, name_bytes: 4, path_bytes: 12, ..ImageLimits::default() };
        let names = |path: &str| names(path.as_bytes(), &limits).map(|names| joined(&names));
        assert_eq!(names("./a//b/."), Ok(b"a/b".to_vec()));
        assert_eq!([names("/"), names("./"), names(".")], [Ok(vec![]), Ok(vec![]), Ok(vec![])]);
        let faults = [
            ("", Fault::BadName),
            ("a\0", Fault::BadName),
            ("/etc", Fault::Absolute),
            ("//", Fault::Absolute),
            ("..", Fault::Parent),
            ("a/../b", Fault::Parent),
            ("a/..", Fault::Parent),
            ("abcde", Fault::TooLong),
            ("aaa/bbb/ccc/d", Fault::TooLong),
            ("a/b/c/d", Fault::TooDeep),
        ];
        for (path, fault) in faults {
            assert_eq!(names(path), Err(fault), "{path:?}");
        }
    }
}
