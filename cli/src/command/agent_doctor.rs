//! `selion agent doctor`.

use std::path::PathBuf;

use selion_agent::{BundleError, Check};

use super::agent::Args;
use crate::exit::Exit;
use crate::failure::{Done, Failure, chain};
use crate::output::Output;

/// What to look at, and where to.
#[derive(Debug, clap::Args)]
pub struct Doctor {
    #[command(flatten)]
    args: Args,
    /// Also writes a support bundle without secrets to this new file, e.g. selion.tar.gz
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
}

/// Runs it.
pub async fn main(out: Output, doctor: Doctor) -> Done {
    let config = doctor.args.config()?;
    let checks = match &doctor.bundle {
        Some(path) => {
            let made = selion_agent::bundle(&config, path).await?;
            out.note(format!("{} has {}; read it before you send it", path.display(), made.files.join(", ")));
            made.checks
        }
        None => selion_agent::doctor(&config).await,
    };
    out.show(&checks, |checks| table(out, checks))?;
    let bad = checks.iter().filter(|check| !check.ok).count();
    if bad == 0 {
        return Ok(());
    }
    // The list above says it all, also to programs.
    out.note(format!("{bad} of {} checks failed", checks.len()));
    Err(Failure::remote(Exit::Failure.code()))
}

fn table(out: Output, checks: &[Check]) -> String {
    let rows = checks.iter().map(|check| {
        let word = if check.ok { "ok" } else { "FAILED" };
        let [costs, remedy] = [&check.costs, &check.remedy].map(|text| text.clone().unwrap_or_default());
        [word.to_owned(), check.name.to_owned(), check.detail.clone(), costs, remedy]
    });
    out.table(["", "CHECK", "FOUND", "WHAT IT COSTS", "WHAT TO DO"], rows.collect(), "nothing to check")
}

impl From<BundleError> for Failure {
    fn from(error: BundleError) -> Self {
        Self::new(Exit::Failure, "bundle", chain(&error), "name a new file in a folder of yours")
    }
}
