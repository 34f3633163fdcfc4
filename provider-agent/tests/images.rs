//! Commands in images and in the node's own base: as whoever runs the tests, and where that is root as an ordinary user too.
#![expect(clippy::unwrap_used, reason = "a test stops where it is surprised")]

#[expect(dead_code, reason = "other tests use the rest")]
mod house;

use std::fs;
use std::path::{Path, PathBuf};

use house::{House, kinds, ran};
use selion_agent::Registries;
use selion_agent::images::{Images, ImagesError, start};
use selion_agent::runtime::{Launch, Person, RootFs, Runtime, RuntimeError};
use selion_api::commit::{Overrides, Root, Work};
use selion_api::slice::Sandbox;
use selion_dataplane::image::{Credentials, Image, Ingredient, Recipe};

const BYTES: u64 = 1 << 30;

#[test]
fn all_of_it_holds_for_an_ordinary_user_too() {
    house::again_as_an_ordinary_user();
}

fn work(root: Root, command: &[&str]) -> Work {
    Work {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        env: Vec::new(),
        datasets: Vec::new(),
        network: selion_api::commit::Network::None,
        root,
        over: Overrides::default(),
        secrets: selion_api::commit::Expected::default(),
    }
}

/// A node with its images.
struct Node {
    house: House,
    images: Images,
}

impl Node {
    /// `None` where this machine has no sandbox.
    async fn new() -> Option<Self> {
        if !kinds().await.contains(&Sandbox::Namespaces) {
            return None;
        }
        let house = House::new();
        let images =
            Images::open(&house.dir.path().join("images"), BYTES, &Registries::default(), false).await.unwrap();
        Some(Self { house, images })
    }

    /// The image of a work; archives are made in place from `recipe`.
    async fn bring(&self, work: &Work, recipe: &Recipe) -> Result<Option<Image>, ImagesError> {
        let place = self.house.dir.path().join("archive");
        let archive = async |_: &str| -> Result<PathBuf, ImagesError> {
            recipe.write(&place)?;
            Ok(place.clone())
        };
        self.images.bring(work, &Credentials::Anonymous, archive, |_| {}).await
    }

    async fn run(&self, work: &Work, recipe: &Recipe) -> Result<(i32, String), RuntimeError> {
        let image = self.bring(work, recipe).await.unwrap().unwrap();
        let started = start(&image, work).unwrap();
        let user = started.user;
        let launch = Launch {
            command: started.argv,
            env: started.env,
            root: RootFs::Image {
                lower: image.lower(),
                person: Person { uid: user.uid, gid: user.gid, groups: user.groups },
                cwd: started.working_dir.into(),
            },
            ..self.house.launch(Sandbox::Namespaces, "")
        };
        let runtime = self.house.runtime(Sandbox::Namespaces);
        // Told apart from what goes wrong later.
        let mut probe = runtime.launch(launch.clone()).await?;
        probe.stop().await.unwrap();
        Ok(ran(&runtime, launch).await)
    }

    async fn sh(&self, root: Root, script: &str, recipe: &Recipe) -> (i32, String) {
        self.run(&work(root, &["/bin/sh", "-c", script]), recipe).await.unwrap()
    }
}

/// An image of the base's programs and more, from this machine's own.
fn recipe(more: &[(&str, Ingredient)]) -> Recipe {
    let mut recipe = Recipe { working_dir: "/app/deep".into(), ..Recipe::default() };
    for (name, from) in
        [("bin/sh", "/bin/sh"), ("bin/cat", "/bin/cat"), ("bin/id", "/usr/bin/id"), ("bin/ls", "/bin/ls")]
    {
        recipe.entries.insert(name.into(), Ingredient::Copy(from.into(), 0o755));
    }
    let libraries = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
    for library in libraries.iter().filter(|path| Path::new(path).exists()) {
        recipe.entries.insert(library.trim_start_matches('/').into(), Ingredient::Copy(library.into(), 0o755));
    }
    for folder in ["/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu"] {
        for name in ["libc.so.6", "libselinux.so.1", "libpcre2-8.so.0"] {
            let path = Path::new(folder).join(name);
            if path.exists() {
                let inside = path.display().to_string().trim_start_matches('/').to_owned();
                recipe.entries.insert(inside, Ingredient::Copy(path, 0o755));
            }
        }
    }
    let passwd = "root:x:0:0:root:/root:/bin/sh\napp:x:123:45:app:/srv/app:/bin/sh\n";
    recipe.entries.insert("etc/passwd".into(), Ingredient::Text(passwd.into(), 0o644));
    recipe.entries.insert("etc/group".into(), Ingredient::Text(b"root:x:0:\napp:x:45:\n".to_vec(), 0o644));
    recipe.entries.extend(more.iter().map(|(name, entry)| ((*name).to_owned(), entry.clone())));
    recipe
}

fn content() -> Root {
    Root::Content("bafy".into())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_image_a_command_has_a_small_root_and_nothing_of_the_machines() {
    let Some(node) = Node::new().await else { return };
    let script = "id -un; pwd; echo $HOME; ls -A /; for f in /usr/share /usr/lib/python3 /etc/shadow /etc/ssh /opt /boot /var/lib \
        /etc/hostname; do test -e $f && echo saw $f; done; cat $STATE/secret 2>/dev/null; cat $DATA/seen; \
        echo out > $OUT/result; echo x > /tmp/x && cat /tmp/x; sha256sum < /dev/null | cut -c 1-8; date >/dev/null && echo dates";
    let mut base = work(Root::Base, &["/bin/sh", "-c", script]);
    base.over.working_dir = None;
    let (code, said) = node.run(&base, &Recipe::default()).await.unwrap();
    // The rest of the environment is the caller's to set.
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((code, &lines[..3]), (0, &["renter", "/selion/work", "/selion/work"][..]), "{said}");
    assert!(!said.contains("saw "), "{said}");
    assert!(said.ends_with("e3b0c442\ndates"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_is_here_as_an_image_is_not_brought_again_also_after_a_restart() {
    let Some(node) = Node::new().await else { return };
    let one = "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e";
    let two = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy";
    let named = |cid: &str| work(Root::Content(cid.into()), &["/bin/sh"]);
    let first = node.bring(&named(one), &recipe(&[])).await.unwrap().unwrap();
    let id = first.id();
    drop(first);
    let Node { house, images } = node;
    drop(images);
    let dir = house.dir.path().join("images");
    let images = Images::open(&dir, BYTES, &Registries::default(), false).await.unwrap();
    let nothing =
        async |_: &str| -> Result<PathBuf, ImagesError> { Err(ImagesError::NotHere("it was asked for again")) };
    let again = images.bring(&named(one), &Credentials::Anonymous, nothing, |_| {}).await.unwrap().unwrap();
    assert_eq!(again.id(), id);
    let other = images.bring(&named(two), &Credentials::Anonymous, nothing, |_| {}).await;
    assert!(other.is_err(), "another content is another image, whatever is here");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_over_an_image_ends_with_the_lease_and_its_layers_stay() {
    let Some(node) = Node::new().await else { return };
    let image =
        recipe(&[("app/kept", Ingredient::Text(b"kept\n".to_vec(), 0o666)), ("app", Ingredient::Folder(0o777))]);
    let script = "cat /app/kept; echo changed > /app/kept; cat /app/kept; pwd; ls /app";
    for _ in 0..2 {
        let (code, said) = node.sh(content(), script, &image).await;
        assert_eq!((code, said.as_str()), (0, "kept\nchanged\n/app/deep\ndeep\nkept"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_the_user_that_the_image_names_or_the_lease_and_has_no_capability_as_root() {
    let Some(node) = Node::new().await else { return };
    let script = "id -u; id -g; while read name value; do case $name in CapEff:|CapBnd:|NoNewPrivs:|Seccomp:) echo $value;; esac; \
        done < /proc/self/status; test -w /etc/passwd; echo $?";
    let walls = "0000000000000000\n0000000000000000\n1\n2";
    for (user, ids) in [("", "0\n0"), ("app", "123\n45"), ("7:8", "7\n8")] {
        let image = Recipe { user: user.into(), ..recipe(&[]) };
        let (code, said) = node.sh(content(), script, &image).await;
        assert_eq!(code, 0, "{said}");
        assert!(said.starts_with(&format!("{ids}\n{walls}")), "{user:?}: {said}");
    }
    let mut other = work(content(), &["/bin/id", "-u"]);
    other.over.user = Some("app".into());
    assert_eq!(node.run(&other, &recipe(&[])).await.unwrap(), (0, "123".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_says_what_runs_unless_the_lease_does() {
    let Some(node) = Node::new().await else { return };
    let image = Recipe {
        entrypoint: vec!["/bin/sh".into(), "-c".into()],
        cmd: vec!["echo by the image".into()],
        ..recipe(&[])
    };
    assert_eq!(node.run(&work(content(), &[]), &image).await.unwrap().1, "by the image");
    assert_eq!(node.run(&work(content(), &["echo by the lease"]), &image).await.unwrap().1, "by the lease");
    let mut bare = work(content(), &["/bin/cat", "/etc/group"]);
    bare.over.entrypoint = Some(Vec::new());
    assert!(node.run(&bare, &image).await.unwrap().1.contains("app:x:45"));
    let brought = node.bring(&work(content(), &[]), &recipe(&[])).await.unwrap().unwrap();
    let nothing = start(&brought, &work(content(), &[])).unwrap_err();
    assert!(nothing.to_string().contains("command"), "{nothing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_of_an_image_lead_nowhere_outside_and_the_boxs_own_places_are_no_links() {
    let Some(node) = Node::new().await else { return };
    let secret = node.house.dir.path().join("secret").display().to_string();
    let link = |to: &str| Ingredient::Link(to.to_owned());
    let up = link("../../../../../../../..");
    let image = recipe(&[
        ("up", up.clone()),
        ("stolen", link(&secret)),
        ("etc/hosts", link(&secret)),
        ("etc/resolv.conf", link("/stolen")),
        ("tmp", Ingredient::Folder(0o1777)),
    ]);
    let script = "cat /stolen /up/etc/shadow 2>/dev/null; ls -A /up >/dev/null && cat /etc/hosts";
    let (code, said) = node.sh(content(), script, &image).await;
    assert_eq!((code, said.as_str()), (0, "127.0.0.1 localhost\n::1 localhost"));
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret", "what the box writes to /etc went through no link");
    for place in ["proc", "dev", "sys", "selion", "selion/output"] {
        let image = recipe(&[(place, up.clone())]);
        let refused = node.run(&work(content(), &["/bin/cat"]), &image).await.unwrap_err();
        assert!(refused.to_string().contains(&format!("/{place} of the root is no folder")), "{place}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_an_image_gains_nothing_by_being_set_user_id() {
    let Some(node) = Node::new().await else { return };
    let image = recipe(&[("bin/gain", Ingredient::Copy("/usr/bin/id".into(), 0o6755))]);
    let mut as_app = work(content(), &["/bin/sh", "-c", "/bin/gain -u; test -u /bin/gain && echo kept"]);
    as_app.over.user = Some("app".into());
    assert_eq!(node.run(&as_app, &image).await.unwrap(), (1, "123".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_does_not_give_is_refused_by_name() {
    let Some(node) = Node::new().await else { return };
    for (root, said) in [
        (Root::Machine, "does not show its own programs"),
        (Root::Registry("docker.io/library/debian:12".into()), "by a tag"),
        (Root::Registry("a b@sha256:00".into()), "image"),
    ] {
        let error = node.bring(&work(root, &["true"]), &Recipe::default()).await.unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_is_made_once_and_found_again() {
    let Some(node) = Node::new().await else { return };
    let dir = node.house.dir.path().join("images");
    let first = node.bring(&work(Root::Base, &["true"]), &Recipe::default()).await.unwrap().unwrap().id();
    drop(node.images);
    let again = Images::open(&dir, BYTES, &Registries::default(), true).await.unwrap();
    let archive = async |_: &str| -> Result<PathBuf, ImagesError> { Ok(PathBuf::new()) };
    let base =
        again.bring(&work(Root::Base, &["true"]), &Credentials::Anonymous, archive, |_| {}).await.unwrap().unwrap();
    assert_eq!(base.id(), first);
    assert!(!dir.join("base").exists(), "what it was made of is gone");
    assert!(
        again.bring(&work(Root::Machine, &["true"]), &Credentials::Anonymous, archive, |_| {}).await.unwrap().is_none()
    );
}
