//! What images of everyday have, and documents that are none.

use std::os::unix::fs::MetadataExt;

use selion_dataplane::image::{Digest, ImageError, Platform, PullRules};

use crate::archive::Tar;
use crate::built::{Built, Place, described, gzip, plain, text, zstd};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

#[tokio::test]
async fn layers_of_every_compression_lie_over_each_other() {
    let base = Tar::default().file("d/old", b"old").file("d/kept", b"kept").file("e/x", b"x").file("f", b"1");
    let middle = Tar::default().file("d/.wh.old", b"").file("e/.wh..wh..opq", b"").file("e/y", b"y");
    let top = Tar::default().file("f", b"2").symlink("link", "/d/kept").symlink("out", "../../../d/kept");
    let place = Place::new();
    let image = place.load(&Built::of(&[plain(base.end()), gzip(middle.end()), zstd(top.end())])).await.unwrap();
    let seen = |path| text(&image, path);
    assert_eq!([seen("/d/old"), seen("/e/x"), seen("/nothing")], [None, None, None]);
    assert_eq!([seen("/d/kept"), seen("/e/y"), seen("/f")].map(Option::unwrap), ["kept", "y", "2"]);
    assert_eq!([seen("/link"), seen("/out")].map(Option::unwrap), ["kept", "kept"]);
    assert_eq!(image.lower().len(), 3);
}

#[tokio::test]
async fn hard_links_share_their_bytes_and_holes_take_none() {
    let place = Place::new();
    let image = place.take(Tar::default().file("a", b"same").hardlink("b", "a").sparse("s", 64 << 20)).await.unwrap();
    let meta = |name| std::fs::metadata(image.lower()[0].join(name)).unwrap();
    assert_eq!(meta("a").ino(), meta("b").ino());
    assert_eq!(meta("s").len(), 64 << 20);
    assert!(meta("s").blocks() * 512 < 1 << 20, "{} blocks", meta("s").blocks());
    assert_eq!(image.read("/s", 12).unwrap().unwrap(), b"headhead\0\0\0\0");
}

/// A layout whose index names another index, with an entry for each platform.
fn index(built: &Built, platforms: &[&str]) -> Vec<u8> {
    let entries: Vec<String> = platforms
        .iter()
        .map(|platform| {
            let (os, architecture) = platform.split_once('/').unwrap();
            let entry = described(MANIFEST, &built.manifest);
            format!(r#"{},"platform":{{"os":"{os}","architecture":"{architecture}"}}}}"#, entry.trim_end_matches('}'))
        })
        .collect();
    format!(r#"{{"schemaVersion":2,"mediaType":"{INDEX}","manifests":[{}]}}"#, entries.join(",")).into_bytes()
}

#[tokio::test]
async fn an_index_gives_the_image_of_this_platform_or_says_which_there_are() {
    let built = Built::of(&[plain(Tar::default().file("a", b"mine").end())]);
    let Platform { os, architecture, .. } = Platform::of_this_machine();
    let place = Place::new();
    let own = index(&built, &["windows/amd64", &format!("{os}/{architecture}"), "linux/s390x"]);
    let dir = tempfile::tempdir().unwrap();
    built.layout_of(dir.path(), &described(INDEX, &own), &[&own]);
    let image = place.cache.load(dir.path(), None, &PullRules::default()).await.unwrap();
    assert_eq!(text(&image, "/a").as_deref(), Some("mine"));
    assert_eq!(image.manifests(), [built.digest(), Digest::of(&own)]);

    let others = index(&built, &["windows/amd64", "linux/s390x"]);
    let dir = tempfile::tempdir().unwrap();
    built.layout_of(dir.path(), &described(INDEX, &others), &[&others]);
    let refused = place.cache.load(dir.path(), None, &PullRules::default()).await.unwrap_err().to_string();
    assert!(refused.contains("windows/amd64") && refused.contains("linux/s390x"), "{refused}");
}

#[tokio::test]
async fn an_index_in_an_index_and_layers_of_other_kinds_are_refused() {
    let built = Built::of(&[plain(Tar::default().file("a", b"").end())]);
    let Platform { os, architecture, .. } = Platform::of_this_machine();
    let inner = index(&built, &[&format!("{os}/{architecture}")]);
    let around = Built { manifest: inner.clone(), ..built.clone() };
    let outer = index(&around, &[&format!("{os}/{architecture}")]);
    let dir = tempfile::tempdir().unwrap();
    around.layout_of(dir.path(), &described(INDEX, &outer), &[&outer]);
    let place = Place::new();
    let refused = place.cache.load(dir.path(), None, &PullRules::default()).await;
    assert!(matches!(refused, Err(ImageError::Unsupported { what: "manifest", .. })), "{refused:?}");

    let text = String::from_utf8(built.manifest.clone()).unwrap();
    for (kind, what) in
        [("application/x-squashfs", "layer"), ("application/vnd.oci.image.layer.v1.tar+encrypted", "layer")]
    {
        let manifest = text.replace("application/vnd.oci.image.layer.v1.tar+gzip", kind).into_bytes();
        let refused = place.load(&Built { manifest, ..built.clone() }).await;
        assert!(matches!(&refused, Err(ImageError::Unsupported { what: found, .. }) if *found == what), "{refused:?}");
    }
    place.assert_clean();
}

#[tokio::test]
async fn what_docker_save_wrote_is_taken_by_name() {
    let layer = Tar::default().file("a", b"saved").end();
    let built = Built::of(&[plain(layer.clone())]);
    let config = built.blobs.values().find(|bytes| bytes.starts_with(b"{")).unwrap();
    let name = format!("{}.json", Digest::of(config).hex());
    let list = format!(r#"[{{"Config":"{name}","RepoTags":["a/b:1"],"Layers":["x/layer.tar"]}}]"#);
    let archive = |config: &[u8]| {
        Tar::default().file(&name, config).file("x/layer.tar", &layer).file("manifest.json", list.as_bytes()).end()
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("saved.tar");
    std::fs::write(&path, archive(config)).unwrap();
    let place = Place::new();
    let image = place.cache.load(&path, Some("a/b:1"), &PullRules::default()).await.unwrap();
    assert_eq!((text(&image, "/a").as_deref(), image.id()), (Some("saved"), Digest::of(config)));
    let refused = place.cache.load(&path, Some("a/b:2"), &PullRules::default()).await;
    assert!(matches!(refused, Err(ImageError::NoSuchName { .. })), "{refused:?}");
    std::fs::write(&path, archive(b"{}")).unwrap();
    let refused = Place::new().cache.load(&path, None, &PullRules::default()).await;
    assert!(matches!(refused, Err(ImageError::WrongDigest { what: "configuration", .. })), "{refused:?}");
}
