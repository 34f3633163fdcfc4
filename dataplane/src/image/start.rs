//! How an image's program is started: the image's own words, and those of the lease over them.

use std::fmt;

use super::{Image, ImageConfig, ImageError, User};

/// Where programs are looked for if neither the image nor the lease says.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a lease says in place of the image. Holds the lease's variables, so it shows their names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// The program and its first arguments. The image's own arguments go with its entrypoint.
    pub entrypoint: Option<Vec<String>>,
    /// The arguments after the entrypoint, or the whole command where there is none.
    pub args: Option<Vec<String>>,
    /// Names and values: set beside the image's, in place of one of the same name.
    pub env: Vec<(String, String)>,
    /// An absolute path in the image.
    pub working_dir: Option<String>,
    /// `USER[:GROUP]`, each a name or a number.
    pub user: Option<String>,
}

/// What is executed. Holds the lease's variables, so it shows their names only.
#[derive(Clone, PartialEq, Eq)]
pub struct Start {
    /// The program and its arguments: never empty. A program without a slash is looked for in `PATH`.
    pub argv: Vec<String>,
    /// Names and values, each name once; `PATH` and `HOME` are there.
    pub env: Vec<(String, String)>,
    /// An absolute path, to be entered inside of the image's root.
    pub working_dir: String,
    /// Ids inside the image.
    pub user: User,
}

impl Image {
    /// How the image's program is started with what the lease says over it. Reads files of the image: call it off the
    /// async threads.
    ///
    /// # Errors
    ///
    /// [`ImageError::BadOverride`]; [`ImageError::NoCommand`]; [`ImageError::NoSuchUser`]; [`ImageError::Io`].
    pub fn start(&self, over: &Overrides) -> Result<Start, ImageError> {
        over.check()?;
        let config = self.config();
        let argv = command(config, over);
        if argv.first().is_none_or(String::is_empty) {
            return Err(ImageError::NoCommand);
        }
        let user = self.user(over.user.as_deref().unwrap_or(&config.user))?;
        let working_dir = over.working_dir.clone().unwrap_or_else(|| config.working_dir.clone());
        let home = user.home.clone().filter(|home| home.starts_with('/')).unwrap_or_else(|| "/".to_owned());
        let usual = [("PATH".to_owned(), USUAL_PATH.to_owned()), ("HOME".to_owned(), home)];
        let env = merged(usual.iter().chain(&config.env).chain(&over.env));
        Ok(Start { argv, env, working_dir, user })
    }
}

impl Overrides {
    fn check(&self) -> Result<(), ImageError> {
        let bad = |what, why: &str| Err(ImageError::BadOverride { what, why: why.to_owned() });
        let nul = |text: &String| text.contains('\0');
        if self.entrypoint.iter().chain(&self.args).flatten().any(nul) {
            return bad("command", "a word in it has a NUL");
        }
        if self.env.iter().any(|(name, value)| nul(name) || nul(value)) {
            return bad("environment", "a variable has a NUL");
        }
        if self.env.iter().any(|(name, _)| name.is_empty() || name.contains('=')) {
            return bad("environment", "a variable's name is empty or has '='");
        }
        if self.working_dir.as_ref().is_some_and(|dir| !dir.starts_with('/') || nul(dir)) {
            return bad("working directory", "it is no absolute path");
        }
        Ok(())
    }
}

fn command(config: &ImageConfig, over: &Overrides) -> Vec<String> {
    let (entrypoint, own_args) = match &over.entrypoint {
        Some(entrypoint) => (entrypoint, &[][..]),
        None => (&config.entrypoint, config.cmd.as_slice()),
    };
    let args = over.args.as_deref().unwrap_or(own_args);
    entrypoint.iter().chain(args).cloned().collect()
}

/// Each name once, in the order of its first, with its last value.
fn merged<'a>(pairs: impl Iterator<Item = &'a (String, String)>) -> Vec<(String, String)> {
    let mut merged: Vec<(String, String)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for (name, value) in pairs {
        let place = *places.entry(name).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(known) => known.1.clone_from(value),
            None => merged.push((name.clone(), value.clone())),
        }
    }
    merged
}

fn names(env: &[(String, String)]) -> Vec<&str> {
    env.iter().map(|(name, _)| name.as_str()).collect()
}

impl fmt::Debug for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Overrides");
        shown.field("env", &names(&self.env)).field("working_dir", &self.working_dir).field("user", &self.user);
        shown.finish_non_exhaustive()
    }
}

impl fmt::Debug for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Start");
        shown.field("env", &names(&self.env)).field("working_dir", &self.working_dir).field("user", &self.user);
        shown.finish_non_exhaustive()
    }
}
