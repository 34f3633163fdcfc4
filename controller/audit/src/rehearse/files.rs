//! Files that show a fraud to whoever has no log: each has to convince, and to convince no more once anything in it is changed.

use selion_api::commit::PoolId;
use selion_api::rest::LoggedEntry;

use super::{Book, Lie, Planted};
use crate::breach::{Breach, breaches};

/// Frauds that a piece of the log shows by itself.
const FRAUDS: [&str; 6] =
    ["double_lease", "inflated_bill", "stretched_bill", "inflated_voucher", "claim_above_bill", "over_promise"];

/// What was planted: a file for each of the frauds, made of a log that has it; and none may be made of the honest one.
pub(super) fn shown(lies: &[Lie], honest: &[LoggedEntry], pool: &PoolId, book: &Book) -> Vec<Planted> {
    let authority = book.cast.authority.account();
    let convinces = |file: &Breach| file.verify(authority).map_err(|why| why.to_string());
    let frauds = FRAUDS.iter().map(|fraud| {
        let lie = lies.iter().find(|lie| lie.fraud == *fraud);
        let files = lie.map(|lie| breaches(pool, &lie.log).map_err(|none| none.to_string()));
        let file = files
            .unwrap_or_else(|| Err("it was not planted".into()))
            .and_then(|files| files.into_iter().next().ok_or_else(|| "no file was made".to_owned()));
        let told = file.and_then(|file| {
            let words = convinces(&file)?;
            let mut tampered = file.clone();
            if let Some(effect) = tampered.entries.iter_mut().find_map(|entry| entry.effects.pop()) {
                drop(effect);
            }
            match convinces(&tampered) {
                Ok(_) => Err("it convinces with an effect left out too".to_owned()),
                Err(_) => Ok((file.entries.len(), words)),
            }
        });
        let planted = match &told {
            Ok((entries, _)) => format!("a file of {entries} entries and a head shows it to who has no log"),
            Err(_) => "a file shows it to who has no log".to_owned(),
        };
        planted_file(&format!("evidence_of_{fraud}"), planted, told.map(|(_, words)| words))
    });
    let none = match breaches(pool, honest) {
        Ok(files) => Err(format!("{} files were made of an honest log", files.len())),
        Err(none) => Ok(none.to_string()),
    };
    frauds.chain([planted_file("evidence_of_nothing", "the log is honest: no file may be made".into(), none)]).collect()
}

fn planted_file(fraud: &str, planted: String, told: Result<String, String>) -> Planted {
    let (caught, check) = (told.is_ok(), "evidence_convinces".to_owned());
    let found = told.unwrap_or_else(|why| why);
    Planted { fraud: fraud.into(), planted, check, entry: None, caught, found }
}
