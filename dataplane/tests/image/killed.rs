//! A process that is killed while it unpacks.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use selion_dataplane::image::{CacheRules, ImageCache, PullRules};

use crate::archive::Tar;
use crate::built::{Built, gzip, text};

const DIR: &str = "SELION_TEST_IMAGES_OF_THE_KILLED";
const FILES: usize = 20_000;

/// Not a test by itself: the process that the next test starts, and kills.
#[tokio::test]
async fn an_unpack_that_goes_on_until_it_is_killed() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let dir = Path::new(&dir);
    let cache = ImageCache::open(dir.join("cache"), CacheRules::default()).unwrap();
    cache.load(dir.join("layout"), None, &PullRules::default()).await.unwrap();
}

/// Whether a layer that is being made has so many files by now.
fn begun(work: &Path, files: usize) -> bool {
    let Ok(places) = fs::read_dir(work) else { return false };
    places.flatten().any(|place| fs::read_dir(place.path().join("root")).is_ok_and(|root| root.count() >= files))
}

#[tokio::test]
async fn a_killed_unpack_leaves_nothing_half_that_counts_as_whole() {
    let dir = tempfile::tempdir().unwrap();
    let tar = (0..FILES).fold(Tar::default(), |tar, one| tar.file(&format!("f{one}"), b"some bytes"));
    Built::of(&[gzip(tar.end())]).layout(&dir.path().join("layout"));
    for files in [1, 100, 3000] {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["killed::an_unpack_that_goes_on_until_it_is_killed", "--exact"])
            .env(DIR, dir.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while !begun(&dir.path().join("cache/work"), files) {
            assert!(victim.try_wait().unwrap().is_none(), "it ended before it was killed");
            std::thread::yield_now();
        }
        victim.kill().unwrap();
        assert!(!victim.wait().unwrap().success(), "it was still unpacking");
        assert_eq!(fs::read_dir(dir.path().join("cache/layers")).unwrap().count(), 0);
        let cache = ImageCache::open(dir.path().join("cache"), CacheRules::default()).unwrap();
        let stat = cache.stat();
        assert_eq!((stat.images.len(), stat.layers, stat.bytes), (0, 0, 0));
        assert_eq!(
            fs::read_dir(dir.path().join("cache/work"))
                .unwrap()
                .filter(|one| { one.as_ref().is_ok_and(|one| one.path().join("root").exists()) })
                .count(),
            0,
            "debris"
        );
    }
    let cache = ImageCache::open(dir.path().join("cache"), CacheRules::default()).unwrap();
    let image = cache.load(dir.path().join("layout"), None, &PullRules::default()).await.unwrap();
    assert_eq!(text(&image, &format!("/f{}", FILES - 1)).as_deref(), Some("some bytes"));
}

#[tokio::test]
async fn a_layer_without_its_record_and_an_image_without_its_layer_are_removed() {
    let place = crate::built::Place::new();
    let image = place.take(Tar::default().file("a", b"x")).await.unwrap();
    let layer = image.lower()[0].parent().unwrap().to_owned();
    let (dir, crate::built::Place { cache, .. }) = (place.dir.path().to_owned(), &place);
    assert_eq!(cache.stat().layers, 1);
    drop(image);
    let other = dir.join("copy");
    assert!(Command::new("cp").arg("-a").arg(dir.join("cache")).arg(&other).status().unwrap().success());
    fs::remove_file(other.join("layers").join(layer.file_name().unwrap()).join("layer.json")).unwrap();
    let opened = ImageCache::open(&other, CacheRules::default()).unwrap();
    assert_eq!((opened.stat().layers, opened.stat().images.len()), (0, 0));
}
