//! What is executed: the image's words, and those of the lease over them.

use selion_dataplane::image::{Image, ImageError, Overrides};

use crate::archive::Tar;
use crate::built::{Built, Place, plain};

const CONFIG: &str =
    r#"{"Entrypoint":["/run","-x"],"Cmd":["one"],"Env":["A=1","PATH=/own"],"WorkingDir":"/w","User":"worker"}"#;

async fn image(place: &Place, config: &str) -> Image {
    let tar = Tar::default()
        .file("etc/passwd", b"root:x:0:0::/root:/bin/sh\nworker:x:1000:100::/home/w:/bin/sh\n")
        .file("etc/group", b"root:x:0:\nusers:x:100:\nvideo:x:44:worker,other\n");
    place.load(&Built::with(&[plain(tar.end())], config)).await.unwrap()
}

fn words(text: &[&str]) -> Vec<String> {
    text.iter().map(|word| (*word).to_owned()).collect()
}

#[tokio::test]
async fn the_image_says_how_it_is_run_where_the_lease_is_silent() {
    let place = Place::new();
    let start = image(&place, CONFIG).await.start(&Overrides::default()).unwrap();
    assert_eq!((start.argv, start.working_dir.as_str()), (words(&["/run", "-x", "one"]), "/w"));
    assert_eq!((start.user.uid, start.user.gid, start.user.groups), (1000, 100, vec![44]));
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(start.env, [pair("PATH", "/own"), pair("HOME", "/home/w"), pair("A", "1")]);
}

#[tokio::test]
async fn the_lease_overrides_and_an_entrypoint_takes_the_arguments_with_it() {
    let place = Place::new();
    let image = image(&place, CONFIG).await;
    let args = Overrides { args: Some(words(&["two"])), user: Some("0:video".to_owned()), ..Overrides::default() };
    let start = image.start(&args).unwrap();
    assert_eq!((start.argv, start.user.uid, start.user.gid), (words(&["/run", "-x", "two"]), 0, 44));
    let entrypoint = Overrides {
        entrypoint: Some(words(&["sh"])),
        env: vec![("A".to_owned(), "hunter2".to_owned())],
        working_dir: Some("/".to_owned()),
        ..Overrides::default()
    };
    let start = image.start(&entrypoint).unwrap();
    assert_eq!((start.argv.as_slice(), start.working_dir.as_str()), (words(&["sh"]).as_slice(), "/"));
    assert!(start.env.contains(&("A".to_owned(), "hunter2".to_owned())) && start.env.len() == 3);
    assert!(!format!("{start:?} {entrypoint:?}").contains("hunter2"), "variables may be secret");
}

#[tokio::test]
async fn what_cannot_be_started_is_told_by_its_name() {
    let place = Place::new();
    let bare = image(&place, "{}").await;
    assert!(matches!(bare.start(&Overrides::default()), Err(ImageError::NoCommand)));
    let with = |change: fn(&mut Overrides)| {
        let mut over = Overrides { args: Some(words(&["x"])), ..Overrides::default() };
        change(&mut over);
        bare.start(&over).unwrap_err().to_string()
    };
    assert!(with(|over| over.user = Some("nobody-here".to_owned())).contains("nobody-here"));
    assert!(with(|over| over.working_dir = Some("w".to_owned())).contains("absolute"));
    assert!(with(|over| over.env.push(("A=B".to_owned(), String::new()))).contains("'='"));
    assert!(with(|over| over.args = Some(words(&["a\0b"]))).contains("NUL"));
}
