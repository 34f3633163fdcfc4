//! docs/refused.md names a test for everything that is refused: each of them is there.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

/// Words behind `fn` and `function` in sources below `dir`.
fn functions(dir: &Path, found: &mut BTreeSet<String>) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !name.starts_with('.') && !matches!(name, "target" | "node_modules") {
            functions(&path, found)?;
        } else if name.ends_with(".rs") || name.ends_with(".t.sol") {
            let text = std::fs::read_to_string(&path)?;
            let words: Vec<&str> = text.split_whitespace().collect();
            let named = words.windows(2).filter(|pair| matches!(pair[0], "fn" | "function"));
            found.extend(named.filter_map(|pair| pair[1].split(['(', '<']).next()).map(str::to_owned));
        }
    }
    Ok(())
}

#[test]
fn every_test_that_the_page_of_refusals_names_is_there() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut there = BTreeSet::new();
    functions(&root, &mut there)?;
    let page = std::fs::read_to_string(root.join("docs/refused.md"))?;
    // Every other part is between backquotes; tests are sentences, all the rest is shorter.
    let quoted = page.split('`').skip(1).step_by(2);
    let named: Vec<&str> = quoted.filter(|text| text.matches('_').count() > 2 && !text.contains('/')).collect();
    let known = named.iter().find(|name| there.contains(**name));
    known.context("not one test was found: does the page still name them between backquotes?")?;
    let lost: Vec<&&str> = named.iter().filter(|name| !there.contains(**name)).collect();
    assert!(lost.is_empty(), "docs/refused.md names tests that are not there: {lost:?}");
    Ok(())
}
