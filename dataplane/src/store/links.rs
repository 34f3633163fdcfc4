//! Where a symbolic link leads, by its text alone: nothing is looked up.

use std::path::{Path, PathBuf};

/// `target` as a link of a folder `depth` levels below the root may have it if it stays inside the tree, else `None`.
/// `..` may stand at its beginning only: behind a name, which may itself be a link, it could lead anywhere. An
/// absolute target below one of `seen_as`, the names of the root where the link was made, becomes a relative one.
pub(super) fn inside(target: &str, depth: usize, seen_as: &[PathBuf]) -> Option<String> {
    if !target.starts_with('/') {
        return stays(target, depth).then(|| target.to_owned());
    }
    let below = seen_as.iter().find_map(|root| Path::new(target).strip_prefix(root).ok())?.to_str()?;
    if !stays(below, 0) {
        return None;
    }
    let up = "../".repeat(depth);
    match (up.as_str(), below) {
        ("", "") => Some(".".to_owned()),
        (up, "") => Some(up.trim_end_matches('/').to_owned()),
        (up, below) => Some(format!("{up}{below}")),
    }
}

fn stays(target: &str, depth: usize) -> bool {
    let mut parts = target.split('/').filter(|part| !part.is_empty() && *part != ".").peekable();
    let mut up = 0;
    while parts.next_if(|part| *part == "..").is_some() {
        up += 1;
    }
    up <= depth && parts.all(|part| part != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_inside_or_is_refused() {
        let seen = [PathBuf::from("/selion/output")];
        let at = |target, depth| inside(target, depth, &seen);
        for (target, depth) in [("a", 0), ("./a/b", 0), ("../a", 1), ("../../a/.", 2), (".", 0), ("..", 1)] {
            assert_eq!(at(target, depth).as_deref(), Some(target));
        }
        for (target, depth) in
            [("..", 0), ("../a", 0), ("../../a", 1), ("a/../b", 3), ("/etc/passwd", 5), ("/selion/outputs/x", 0)]
        {
            assert_eq!(at(target, depth), None, "{target}");
        }
    }

    #[test]
    fn an_absolute_link_into_the_folder_becomes_a_relative_one() {
        let seen = [PathBuf::from("/selion/output")];
        let at = |target, depth| inside(target, depth, &seen);
        assert_eq!(at("/selion/output/checkpoint-200", 0).as_deref(), Some("checkpoint-200"));
        assert_eq!(at("/selion/output/a/b", 2).as_deref(), Some("../../a/b"));
        assert_eq!(at("/selion/output", 0).as_deref(), Some("."));
        assert_eq!(at("/selion/output/", 1).as_deref(), Some(".."));
        assert_eq!(at("/selion/output/../secret", 1), None);
    }
}
