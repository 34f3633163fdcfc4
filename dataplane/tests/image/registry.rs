//! Pulls from registries, most of them bad.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use selion_dataplane::image::{
    Credentials, Image, ImageError, PullProgress, PullRules, Registry, RegistryError, RegistryRules,
};

use crate::archive::Tar;
use crate::built::{Built, Place, gzip, plain, text};
use crate::liar::{Liar, Lie};

fn built() -> Built {
    let noise: Vec<u8> = (0..400_000_u32).flat_map(|one| one.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    Built::of(&[gzip(Tar::default().file("noise", &noise).end()), plain(Tar::default().file("a", b"pulled").end())])
}

async fn pull(place: &Place, liar: &Liar, tail: &str, who: &Credentials) -> Result<Image, ImageError> {
    let registry = liar.client();
    let pinned = registry.resolve(&liar.reference(tail), who).await?;
    place.cache.pull(&registry, &pinned, who, &PullRules::default()).await
}

/// Refused, with nothing visible left.
async fn refused(lie: Lie) -> ImageError {
    let (place, built) = (Place::new(), built());
    let liar = Liar::serve(&built, lie).await;
    let by_digest = format!("@{}", built.digest());
    let tail = if lie == Lie::Manifest { by_digest.as_str() } else { ":1" };
    let error = pull(&place, &liar, tail, &Credentials::Anonymous).await.unwrap_err();
    assert_eq!(place.cache.stat().images.len(), 0);
    error
}

#[tokio::test]
async fn a_registry_that_lies_about_a_digest_is_found_out() {
    let error = refused(Lie::Manifest).await;
    assert!(
        matches!(error, ImageError::WrongSize { .. } | ImageError::WrongDigest { what: "manifest", .. }),
        "{error}"
    );
    let error = refused(Lie::TagDigest).await;
    assert!(matches!(error, ImageError::WrongDigest { what: "manifest", .. }), "{error}");
    let error = refused(Lie::Layer).await;
    assert!(matches!(error, ImageError::WrongDigest { what: "layer", .. }), "{error}");
    let error = refused(Lie::ShortLayer).await;
    assert!(matches!(error, ImageError::WrongSize { what: "layer", .. }), "{error}");
}

#[tokio::test]
async fn a_registry_that_floods_is_cut_off() {
    let error = refused(Lie::LayerFlood).await;
    assert!(matches!(error, ImageError::WrongSize { what: "layer", .. }), "{error}");
    let error = refused(Lie::ManifestFlood).await;
    assert!(matches!(error, ImageError::OverLimit { .. }), "{error}");
}

#[tokio::test]
async fn a_registry_that_hangs_or_trickles_is_given_up() {
    for lie in [Lie::Hang, Lie::Trickle] {
        let begun = Instant::now();
        let error = refused(lie).await;
        assert!(matches!(error, ImageError::Registry(RegistryError::Silent { .. })), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{lie:?}: {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_page_a_redirect_and_a_private_address_are_told_by_their_name() {
    let error = refused(Lie::Page).await;
    assert!(matches!(error, ImageError::Registry(RegistryError::NotARegistry { .. })), "{error}");
    let error = refused(Lie::Redirect).await;
    assert!(matches!(error, ImageError::Registry(RegistryError::Redirected { .. })), "{error}");
    let registry = Registry::new(RegistryRules::default()).unwrap();
    let error = registry.resolve(&"127.0.0.1:1/a/b:1".parse().unwrap(), &Credentials::Anonymous).await.unwrap_err();
    assert!(matches!(error, ImageError::Registry(RegistryError::PrivateAddress { .. })), "{error}");
}

#[tokio::test]
async fn credentials_are_wanted_and_never_repeated() {
    let built = built();
    let liar = Liar::serve(&built, Lie::Wants("robot:hunter2")).await;
    let basic = |password: &str| Credentials::Basic { user: "robot".to_owned(), password: password.to_owned() };
    let place = Place::new();
    let image = pull(&place, &liar, ":1", &basic("hunter2")).await.unwrap();
    assert_eq!(text(&image, "/a").as_deref(), Some("pulled"));
    let none = pull(&Place::new(), &liar, ":1", &Credentials::Anonymous).await.unwrap_err();
    assert!(matches!(none, ImageError::Registry(RegistryError::CredentialsWanted { .. })), "{none}");
    let wrong = pull(&Place::new(), &liar, ":1", &basic("hunter3")).await.unwrap_err();
    assert!(matches!(wrong, ImageError::Registry(RegistryError::CredentialsRefused { .. })), "{wrong}");
    let echo = Liar::serve(&built, Lie::Echo).await;
    let echoed = pull(&Place::new(), &echo, ":1", &basic("hunter2")).await.unwrap_err();
    // `robot:hunter2` in base 64.
    for error in [format!("{wrong} {wrong:?}"), format!("{echoed} {echoed:?}"), format!("{:?}", basic("hunter2"))] {
        assert!(!error.contains("hunter") && !error.contains("cm9ib3Q6aHVudGVy"), "{error}");
    }
    assert!(echoed.to_string().contains("repeats the credentials"), "{echoed}");
    let other = Liar::serve(&built, Lie::Echo).await;
    let token = Credentials::Bearer("hunter2".to_owned());
    let error = pull(&Place::new(), &other, ":1", &token).await.unwrap_err();
    assert!(!format!("{error} {error:?} {token:?}").contains("hunter"), "{error}");
}

#[tokio::test]
async fn many_pulls_of_one_image_at_a_time_do_the_work_once() {
    let (place, built) = (Place::new(), built());
    let liar = Liar::serve(&built, Lie::None).await;
    let pulls = (0..8).map(|_| pull(&place, &liar, ":1", &Credentials::Anonymous));
    let images: Vec<Image> = futures::future::try_join_all(pulls).await.unwrap();
    assert!(images.iter().all(|image| image.id() == images[0].id()));
    for layer in &built.layers {
        assert_eq!(liar.asked(&layer.to_string()), 1, "{layer}");
    }
    assert_eq!((place.cache.stat().images.len(), place.cache.stat().layers), (1, 2));
}

#[tokio::test]
async fn a_pull_tells_how_far_it_is_and_what_is_here_is_not_fetched_again() {
    let (place, built) = (Place::new(), built());
    let liar = Liar::serve(&built, Lie::None).await;
    let told = Arc::new(Mutex::new(Vec::<PullProgress>::new()));
    let tell = told.clone();
    let rules =
        PullRules { progress: Some(Arc::new(move |now| tell.lock().unwrap().push(now))), ..PullRules::default() };
    let registry = liar.client();
    let pinned = registry.resolve(&liar.reference(":1"), &Credentials::Anonymous).await.unwrap();
    assert_eq!(pinned.digest(), built.digest());
    let image = place.cache.pull(&registry, &pinned, &Credentials::Anonymous, &rules).await.unwrap();
    let all = told.lock().unwrap().clone();
    let (first, last) = (all[0], all[all.len() - 1]);
    let sent: usize = built.blobs.values().filter(|bytes| !bytes.starts_with(b"{")).map(Vec::len).sum();
    assert_eq!((first.bytes_done, first.bytes_total), (0, sent as u64));
    assert_eq!((last.bytes_done, last.layers_done, last.layers_total), (sent as u64, 2, 2));
    drop(image);
    place.cache.pull(&registry, &pinned, &Credentials::Anonymous, &rules).await.unwrap();
    assert_eq!(liar.asked(&built.layers[0].to_string()), 1);
}
