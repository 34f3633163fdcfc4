//! `selion lease outputs`: what the members of a lease left.

use std::collections::BTreeSet;
use std::path::Path;

use selion_api::LeaseId;
use selion_api::rest::{LeaseOutput, LeaseOutputs, OutputRef};

use super::{data, lease_view};
use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::output::Output;
use crate::session::Session;

/// Which outputs.
pub struct Asked {
    /// Of this lease.
    pub lease: LeaseId,
    /// Of this run.
    pub attempt: Option<u32>,
    /// Of this member.
    pub rank: Option<u16>,
}

/// Lists them, or writes them to `dest`.
pub async fn main(out: Output, session: &Session, asked: Asked, dest: Option<&Path>) -> Done {
    let mut outputs = session.client.lease(asked.lease).await?.outputs;
    match dest {
        Some(dest) => get(out, session, &asked, &outputs, dest).await,
        None => {
            let of = |one: &LeaseOutput| asked.rank.is_none_or(|rank| rank == one.rank);
            outputs.retain(|one| of(one) && asked.attempt.is_none_or(|run| run == one.attempt));
            let listed = LeaseOutputs { lease: asked.lease, outputs };
            out.show(&listed, |listed| lease_view::outputs(out, &listed.outputs))
        }
    }
}

async fn get(out: Output, session: &Session, asked: &Asked, outputs: &[LeaseOutput], dest: &Path) -> Done {
    let ranks: BTreeSet<u16> = match asked.rank {
        Some(rank) => [rank].into(),
        None => outputs.iter().map(|one| one.rank).collect(),
    };
    let none = |why: String| {
        Failure::new(Exit::Conflict, "no_outputs", why, format!("`selion lease outputs {}`", asked.lease))
    };
    if ranks.is_empty() {
        return Err(none(format!("{} left no outputs", asked.lease)));
    }
    let apart = ranks.len() > 1;
    for rank in ranks {
        let meant = OutputRef { lease: asked.lease, attempt: asked.attempt, rank: Some(rank) };
        let chosen = meant.choose(outputs).map_err(none)?;
        let to = if apart { dest.join(rank.to_string()) } else { dest.to_owned() };
        if apart {
            std::fs::create_dir_all(dest).map_err(|error| Failure::file(dest, &error))?;
        }
        data::get(out, session, chosen.cid.as_deref().unwrap_or_default(), &to).await?;
    }
    Ok(())
}
