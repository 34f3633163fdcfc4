//! What stays in the cache, and what goes.

use selion_dataplane::image::{CacheRules, Digest, ImageCache, ImageError, PullRules};

use crate::archive::Tar;
use crate::built::{Built, Place, plain, text};

const MIB: usize = 1 << 20;

fn built(letter: u8) -> Built {
    Built::of(&[plain(Tar::default().file("a", &vec![letter; MIB]).end())])
}

async fn load(cache: &ImageCache, letter: u8) -> Result<Digest, ImageError> {
    let layout = tempfile::tempdir().unwrap();
    built(letter).layout(layout.path());
    Ok(cache.load(layout.path(), None, &PullRules::default()).await?.id())
}

fn small() -> CacheRules {
    // Room for three images of 1 MiB and what is reckoned beside them.
    CacheRules { bytes: 3 * MIB as u64 + 200_000, ..CacheRules::default() }
}

#[tokio::test]
async fn the_least_used_goes_and_what_is_pinned_or_held_stays() {
    let dir = tempfile::tempdir().unwrap();
    let cache = ImageCache::open(dir.path(), small()).unwrap();
    let (a, b, c) = (load(&cache, 1).await.unwrap(), load(&cache, 2).await.unwrap(), load(&cache, 3).await.unwrap());
    assert!(cache.get(&a).unwrap().is_some(), "used again");
    load(&cache, 4).await.unwrap();
    assert!(cache.get(&b).unwrap().is_none(), "the least used");
    cache.pin("lease-1", &a).unwrap();
    let held = cache.get(&c).unwrap().unwrap();
    for letter in 5..9 {
        load(&cache, letter).await.unwrap();
        assert!(cache.stat().bytes <= small().bytes);
    }
    assert!(cache.get(&a).unwrap().is_some() && cache.get(&c).unwrap().is_some());
    drop(held);
}

#[tokio::test]
async fn a_cache_full_of_what_is_in_use_says_so_and_pins_outlive_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let cache = ImageCache::open(dir.path(), small()).unwrap();
    assert!(matches!(ImageCache::open(dir.path(), small()), Err(ImageError::InUse { .. })));
    for letter in 1..4 {
        let id = load(&cache, letter).await.unwrap();
        cache.pin("lease-1", &id).unwrap();
    }
    assert!(matches!(load(&cache, 4).await, Err(ImageError::CacheFull { .. })));
    drop(cache);
    let cache = ImageCache::open(dir.path(), small()).unwrap();
    let pins = cache.pins();
    assert_eq!(pins.len(), 3);
    assert!(matches!(load(&cache, 4).await, Err(ImageError::CacheFull { .. })));
    assert!(cache.unpin("lease-1", &pins[0].id).unwrap() && !cache.unpin("lease-1", &pins[0].id).unwrap());
    load(&cache, 4).await.unwrap();
    assert!(cache.get(&pins[0].id).unwrap().is_none() && cache.get(&pins[1].id).unwrap().is_some());
    assert!(matches!(cache.pin("lease-2", &pins[0].id), Err(ImageError::Gone { .. })));
    assert!(matches!(cache.pin("../lease", &pins[1].id), Err(ImageError::BadOwner { .. })));
}

#[tokio::test]
async fn images_share_the_layers_that_they_have_both() {
    let place = Place::new();
    let base = plain(Tar::default().file("base", b"base").end());
    let of = |name: &str| Built::of(&[base.clone(), plain(Tar::default().file(name, b"own").end())]);
    let (one, two) = (place.load(&of("one")).await.unwrap(), place.load(&of("two")).await.unwrap());
    assert_eq!(place.cache.stat().layers, 3);
    assert_eq!(one.lower()[1], two.lower()[1]);
    assert_eq!((text(&two, "/base").as_deref(), text(&two, "/one")), (Some("base"), None));
}
