//! What holds for every archive.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::archive::Tar;
use crate::built::{Built, Place, gzip, plain, text, zstd};

const NAMES: [&str; 12] =
    ["a", "b", "a/b", "a/b/c", "..", "../canary", "/x", "a/../b", ".wh.a", "a/.wh..wh..opq", "./b", "b/"];
const TARGETS: [&str; 8] = ["a", "b", "..", "/", "../canary", "../../../canary", "/etc", "a/b"];

fn entry() -> impl Strategy<Value = (usize, u8, usize, u32)> {
    (0..NAMES.len(), prop::sample::select(b"01234567gS".to_vec()), 0..TARGETS.len(), any::<u32>())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A file of one of a few folders, put or hidden.
fn change() -> impl Strategy<Value = (u8, u8, Option<String>)> {
    (0..4_u8, 0..4_u8, prop::option::of("[a-z]{1,8}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_archive_writes_outside_and_a_refused_one_leaves_nothing(
        entries in prop::collection::vec(entry(), 0..12), layers in 1..3_usize,
    ) {
        let mut tars = vec![Tar::default(); layers];
        for (index, (name, kind, target, mode)) in entries.into_iter().enumerate() {
            let data: &[u8] = if kind == b'0' { b"written" } else { b"" };
            let tar = std::mem::take(&mut tars[index % layers]);
            let link = TARGETS[target].as_bytes();
            tars[index % layers] = tar.raw(NAMES[name].as_bytes(), kind, link, mode & 0o7777, data);
        }
        let place = Place::new();
        let all: Vec<_> = tars.into_iter().map(|tar| plain(tar.end())).collect();
        let taken = runtime().block_on(place.load(&Built::of(&all)));
        place.assert_outside_untouched();
        prop_assert_eq!(place.cache.stat().images.len(), usize::from(taken.is_ok()));
    }

    #[test]
    fn a_damaged_layer_never_counts(at in any::<prop::sample::Index>(), bit in 0..8_u8, packed in 0..3_u8) {
        let tar = Tar::default().folder("d").file("d/a", b"some text").symlink("l", "d/a").sparse("s", 9000).end();
        let mut layer = match packed { 0 => plain(tar), 1 => gzip(tar), _ => zstd(tar) };
        let at = at.index(layer.sent.len());
        layer.sent[at] ^= 1 << bit;
        let place = Place::new();
        // The digest of what is sent is right, that of the archive is not, unless the flipped bit was of no meaning.
        if let Ok(image) = runtime().block_on(place.load(&Built::of(&[layer]))) {
            let seen = text(&image, "/d/a");
            prop_assert_eq!(seen.as_deref(), Some("some text"));
            prop_assert!(packed > 0, "a plain archive has no bit without a meaning");
        } else {
            place.assert_clean();
        }
    }

    #[test]
    fn layers_amount_to_what_was_put_and_not_hidden(layers in prop::collection::vec(prop::collection::vec(change(), 0..6), 1..5)) {
        let mut model: BTreeMap<(u8, u8), String> = BTreeMap::new();
        let mut tars = Vec::new();
        for changes in layers {
            // One layer says one thing of a name: the last.
            let said: BTreeMap<(u8, u8), Option<String>> =
                changes.into_iter().map(|(folder, name, text)| ((folder, name), text)).collect();
            let mut tar = Tar::default();
            for ((folder, name), text) in said {
                tar = match text {
                    Some(text) => {
                        let tar = tar.file(&format!("d{folder}/f{name}"), text.as_bytes());
                        model.insert((folder, name), text);
                        tar
                    }
                    None => {
                        model.remove(&(folder, name));
                        tar.file(&format!("d{folder}/.wh.f{name}"), b"")
                    }
                };
            }
            tars.push(gzip(tar.end()));
        }
        let place = Place::new();
        let image = runtime().block_on(place.load(&Built::of(&tars))).unwrap();
        for (folder, name) in (0..4).flat_map(|folder| (0..4).map(move |name| (folder, name))) {
            let seen = text(&image, &format!("/d{folder}/f{name}"));
            prop_assert_eq!(seen.as_ref(), model.get(&(folder, name)));
        }
    }
}
