//! Archives that want to write elsewhere, or to fill the machine.

use selion_dataplane::image::{Devices, Digest, Fault, ImageError, ImageLimits, PullRules};

use crate::archive::Tar;
use crate::built::{Built, Place, gzip, plain, text, zstd};

/// Refused by a fault of an entry, with nothing left behind.
async fn fault_of(tar: Tar) -> Fault {
    let place = Place::new();
    let refused = place.take(tar).await;
    place.assert_clean();
    match refused {
        Err(ImageError::Entry { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

async fn over_limit(built: &Built, rules: &PullRules) -> String {
    let place = Place::new();
    let refused = place.load_by(built, rules).await;
    place.assert_clean();
    match refused {
        Err(error @ ImageError::OverLimit { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

fn limited(limits: ImageLimits) -> PullRules {
    PullRules { limits, ..PullRules::default() }
}

#[tokio::test]
async fn a_path_that_leaves_the_root_is_refused() {
    for path in ["../canary", "a/../../canary", "..", "a/.."] {
        assert_eq!(fault_of(Tar::default().file(path, b"x")).await, Fault::Parent, "{path}");
    }
    for path in ["/etc/passwd", "//canary"] {
        assert_eq!(fault_of(Tar::default().file(path, b"x")).await, Fault::Absolute, "{path}");
    }
    let long = Tar::default().pax(&[("path", b"../canary")]).file("harmless", b"x");
    assert_eq!(fault_of(long).await, Fault::Parent);
    let gnu = Tar::default().raw(b"long", b'L', b"", 0, b"/tmp/../canary\0").file("harmless", b"x");
    assert_eq!(fault_of(gnu).await, Fault::Absolute);
    assert_eq!(fault_of(Tar::default().raw(b"./", b'0', b"", 0o644, b"x")).await, Fault::BadName);
}

#[tokio::test]
async fn nothing_is_written_through_a_link() {
    for target in ["..", "../../..", "/", "/tmp", "."] {
        let tar = Tar::default().symlink("a", target).file("a/canary", b"x");
        assert!(matches!(fault_of(tar).await, Fault::ThroughLink(_)), "{target}");
        let deeper = Tar::default().symlink("d/a", target).folder("d/a/b");
        assert!(matches!(fault_of(deeper).await, Fault::ThroughLink(_)), "{target}");
        let mark = Tar::default().symlink("a", target).file("a/.wh..wh..opq", b"");
        assert!(matches!(fault_of(mark).await, Fault::ThroughLink(_)), "{target}");
    }
    assert!(matches!(fault_of(Tar::default().file("a", b"").file("a/b", b"")).await, Fault::ThroughFile(_)));
}

#[tokio::test]
async fn a_file_takes_the_place_of_a_link_and_does_not_follow_it() {
    let place = Place::new();
    let canary = place.dir.path().join("canary");
    let image = place.take(Tar::default().symlink("a", canary.to_str().unwrap()).file("a", b"mine")).await.unwrap();
    assert_eq!(text(&image, "/a").as_deref(), Some("mine"));
    place.assert_outside_untouched();
}

#[tokio::test]
async fn a_link_of_a_lower_layer_is_not_written_through() {
    let place = Place::new();
    let below = Tar::default().symlink("a", "/etc").file("etc/x", b"1");
    let above = Tar::default().file("a/x", b"2");
    let refused = place.load(&Built::of(&[plain(below.end()), plain(above.end())])).await;
    assert!(matches!(refused, Err(ImageError::Entry { fault: Fault::ThroughLink(_), .. })), "{refused:?}");
    assert_eq!(place.cache.stat().images.len(), 0);
}

#[tokio::test]
async fn a_hard_link_leads_to_a_file_of_its_own_layer_only() {
    for target in ["../canary", "/etc/passwd", "nothing", "a"] {
        let fault = fault_of(Tar::default().hardlink("a", target)).await;
        assert!(matches!(fault, Fault::LinkOutside(_)), "{target}: {fault:?}");
    }
    let through = Tar::default().symlink("d", "..").hardlink("a", "d/canary");
    assert!(matches!(fault_of(through).await, Fault::LinkOutside(_)));
    assert!(matches!(fault_of(Tar::default().folder("d").hardlink("a", "d")).await, Fault::LinkToOther(_)));
}

#[tokio::test]
async fn devices_are_left_out_or_refused_and_nothing_raises_privileges() {
    use std::os::unix::fs::PermissionsExt;
    for kind in [b'3', b'4', b'6'] {
        let tar = || Tar::default().raw(b"dev/x", kind, b"", 0o666, b"").raw(b"su", b'0', b"", 0o6755, b"");
        let place = Place::new();
        let image = place.take(tar()).await.unwrap();
        let root = &image.lower()[0];
        assert!(!root.join("dev/x").exists());
        assert_eq!(std::fs::metadata(root.join("su")).unwrap().permissions().mode() & 0o7777, 0o755);
        let strict = PullRules { devices: Devices::Refuse, ..PullRules::default() };
        let built = Built::of(&[plain(tar().end())]);
        // Also a layer that is there from a pull with other rules.
        let refused = place.load_by(&built, &strict).await;
        assert!(matches!(refused, Err(ImageError::Entry { fault: Fault::Device, .. })), "{refused:?}");
        let anew = Place::new();
        let refused = anew.load_by(&built, &strict).await;
        assert!(matches!(refused, Err(ImageError::Entry { fault: Fault::Device, .. })), "{refused:?}");
        anew.assert_clean();
    }
}

#[tokio::test]
async fn a_whiteout_needs_nothing_to_hide_and_a_bad_one_is_refused() {
    let place = Place::new();
    let image = place.take(Tar::default().file("d/.wh.nothing", b"").file("e/.wh..wh..opq", b"")).await.unwrap();
    assert_eq!(image.read("/d/nothing", 1).unwrap(), None);
    for bad in ["d/.wh.", "d/.wh..", "d/.wh..."] {
        assert_eq!(fault_of(Tar::default().file(bad, b"")).await, Fault::BadName, "{bad}");
    }
}

#[tokio::test]
async fn attributes_are_bounded_and_overlay_marks_cannot_be_forged() {
    let value = vec![b'x'; 70_000];
    let bomb = Tar::default().pax(&[("SCHILY.xattr.user.a", &value)]).file("a", b"");
    assert_eq!(fault_of(bomb).await, Fault::Attributes);
    let many: Vec<(String, Vec<u8>)> =
        (0..400).map(|one| (format!("SCHILY.xattr.user.{one}"), vec![b'x'; 200])).collect();
    let many: Vec<(&str, &[u8])> = many.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    assert_eq!(fault_of(Tar::default().pax(&many).file("a", b"")).await, Fault::Attributes);

    let place = Place::new();
    let forged = [
        ("SCHILY.xattr.user.overlay.opaque", b"y".as_slice()),
        ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
        ("SCHILY.xattr.security.capability", b"\x01"),
        ("SCHILY.xattr.user.note", b"kept"),
    ];
    let above = Tar::default().pax(&forged).folder("d");
    let layers = [plain(Tar::default().file("d/below", b"seen").end()), plain(above.end())];
    let image = place.load(&Built::of(&layers)).await.unwrap();
    assert_eq!(text(&image, "/d/below").as_deref(), Some("seen"));
    let folder = std::fs::File::open(image.lower()[0].join("d")).unwrap();
    let mut names = [0_u8; 256];
    let length = rustix::fs::flistxattr(&folder, &mut names[..]).unwrap();
    let names = String::from_utf8_lossy(&names[..length]).into_owned();
    assert!(names.contains("user.note") && !names.contains("overlay") && !names.contains("capability"), "{names}");
}

#[tokio::test]
async fn a_header_that_is_too_long_is_not_held() {
    let place = Place::new();
    let refused = place.take(Tar::default().raw(b"x", b'x', b"", 0, &vec![b' '; 3 << 20]).file("a", b"")).await;
    assert!(matches!(refused, Err(ImageError::Malformed { .. })), "{refused:?}");
    place.assert_clean();
}

#[tokio::test]
async fn holes_count_as_bytes_and_a_map_that_lies_is_refused() {
    let bomb = Built::of(&[plain(Tar::default().sparse("big", 1 << 60).end())]);
    assert!(over_limit(&bomb, &PullRules::default()).await.contains("unpacked bytes"));
    let overlaps = [("GNU.sparse.size", b"100".as_slice()), ("GNU.sparse.map", b"0,8,4,8")];
    assert_eq!(fault_of(Tar::default().pax(&overlaps).file("a", &[0; 16])).await, Fault::Sparse);
}

#[tokio::test]
async fn what_unpacks_to_far_more_than_was_sent_is_refused() {
    let zeros = Tar::default().file("zeros", &vec![0; 80 << 20]).end();
    for layer in [gzip(zeros.clone()), zstd(zeros)] {
        assert!(layer.sent.len() < 1 << 20, "it is a bomb");
        let rules = limited(ImageLimits { ratio: 50, ..ImageLimits::default() });
        assert!(over_limit(&Built::of(&[layer]), &rules).await.contains("times its size"));
    }
}

#[tokio::test]
async fn too_many_too_deep_and_too_long_are_refused() {
    let many = (0..50).fold(Tar::default(), |tar, one| tar.file(&format!("f{one}"), b""));
    let rules = limited(ImageLimits { entries: 49, ..ImageLimits::default() });
    assert!(over_limit(&Built::of(&[plain(many.clone().end())]), &rules).await.contains("entries"));
    // Folders that no entry makes are entries too.
    let implicit = Built::of(&[plain(Tar::default().file(&"d/".repeat(48).replace("d/d", "d/e"), b"").end())]);
    let few = limited(ImageLimits { entries: 20, ..ImageLimits::default() });
    assert!(over_limit(&implicit, &few).await.contains("entries"));
    let bytes = limited(ImageLimits { unpacked_bytes: 10_000, ..ImageLimits::default() });
    assert!(over_limit(&Built::of(&[plain(many.clone().end())]), &bytes).await.contains("unpacked bytes"));
    let twice = [plain(many.end()), plain(Tar::default().file("more", b"").end())];
    let sum = limited(ImageLimits { entries: 50, ..ImageLimits::default() });
    assert!(matches!(Place::new().load_by(&Built::of(&twice), &sum).await, Err(ImageError::OverLimit { .. })));
    let deep = "d/".repeat(200);
    assert_eq!(fault_of(Tar::default().pax(&[("path", deep.as_bytes())]).folder("d")).await, Fault::TooDeep);
    let name = "n".repeat(300);
    assert_eq!(fault_of(Tar::default().pax(&[("path", name.as_bytes())]).file("f", b"")).await, Fault::TooLong);
    let target = "t".repeat(5000);
    assert_eq!(
        fault_of(Tar::default().pax(&[("linkpath", target.as_bytes())]).symlink("f", "x")).await,
        Fault::TooLong
    );
}

#[tokio::test]
async fn bytes_that_are_not_those_that_were_named_are_refused() {
    let tar = Tar::default().file("a", b"good").end();
    let mut built = Built::of(&[plain(tar.clone())]);
    let sent = built.layers[0].to_string();
    // The layer's own digest.
    built.blobs.get_mut(&sent).unwrap()[600] ^= 1;
    let layout = tempfile::tempdir().unwrap();
    built.layout(layout.path());
    let wrong = built.blobs.get(&sent).unwrap();
    std::fs::write(layout.path().join("blobs/sha256").join(built.layers[0].hex()), wrong).unwrap();
    let place = Place::new();
    let refused = place.cache.load(layout.path(), None, &PullRules::default()).await;
    assert!(matches!(refused, Err(ImageError::WrongDigest { what: "layer", .. })), "{refused:?}");
    place.assert_clean();
    // The unpacked digest, with the sent one right.
    let other = Built::of(&[crate::built::Layer { tar: Tar::default().file("a", b"bad").end(), sent: tar }]);
    let refused = place.load(&other).await;
    assert!(matches!(refused, Err(ImageError::WrongDigest { what: "unpacked layer", .. })), "{refused:?}");
    place.assert_clean();
}

#[tokio::test]
async fn a_layer_that_is_cut_is_refused_wherever_it_is_cut() {
    let whole = Tar::default().file("a", &[7; 3000]).file("b", &[8; 3000]).end();
    for layer in [plain(whole.clone()), gzip(whole.clone()), zstd(whole.clone())] {
        for part in 1..16 {
            let mut cut = layer.clone();
            cut.sent.truncate(layer.sent.len() * part / 16);
            let place = Place::new();
            let refused = place.load(&Built::of(&[cut])).await;
            assert!(refused.is_err(), "{part}/16");
            place.assert_clean();
        }
    }
    let mut short = whole;
    short.truncate(1000);
    let refused = Place::new().load(&Built::of(&[plain(short.clone())])).await;
    assert!(matches!(refused, Err(ImageError::Truncated { layer }) if layer == Digest::of(&short)), "{refused:?}");
}
