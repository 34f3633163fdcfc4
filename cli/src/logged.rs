//! A pool's log from wherever it is, replayed for questions about it.

use std::path::Path;

use selion_audit::{Item, Log, LogSource, fetch};
use selion_controller::store;
use selion_sim::from_log::History;
use selion_sim::world::Entered;

use crate::exit::Exit;
use crate::failure::{Done, Failure, chain};

/// Reads and replays the log at `place`: a controller's URL, a file with one published entry a line, or a controller's
/// data directory; without one, of the profile's controller.
pub async fn history(place: Option<&str>) -> Done<History> {
    let place = match place {
        Some(place) => place.to_owned(),
        None => crate::session::controller()?,
    };
    let entries = published(&place).await?;
    let log = Log::read(&entries);
    if let Some(fault) = log.fault {
        let suggestion = "`selion audit` says more; a copy of the log may be whole";
        return Err(Failure::new(Exit::Failure, "log_damaged", format!("{place}: {}", fault.detail), suggestion));
    }
    let entered = |item: Item| Entered::new(item.seq, item.entry.at_ms, item.entry.fence, item.input, item.effects);
    let entries: Vec<Entered> = log.items.into_iter().map(entered).collect();
    // Replaying is work: the runtime's other tasks go on meanwhile.
    let read = tokio::task::block_in_place(|| History::read(entries));
    read.map_err(|error| {
        Failure::new(
            Exit::Failure,
            "log_differs",
            error,
            "use the release that wrote the log; `selion audit` says more",
        )
    })
}

/// The entries at a controller's URL, in a file or in a data directory, as published.
pub async fn published(place: &str) -> Done<Vec<selion_api::rest::LoggedEntry>> {
    const PLACES: &str = "name a controller's URL, a file with one published entry a line, or a data directory";
    let unreadable = |detail: String| Failure::new(Exit::Server, "log_unreadable", detail, PLACES);
    let path = Path::new(place);
    if path.is_dir() {
        // The folder of `selion up` holds the controller's.
        let inner = path.join("controller");
        let dir = if inner.join("selion.db").exists() { inner } else { path.to_owned() };
        if !dir.join("selion.db").exists() {
            return Err(Failure::usage(format!("{} holds no selion.db", dir.display()), PLACES));
        }
        return store::published(&dir).await.map_err(|error| unreadable(chain(&error)));
    }
    let is_url = place.starts_with("http://") || place.starts_with("https://");
    let source = if is_url { LogSource::Url(place.to_owned()) } else { LogSource::File(path.to_owned()) };
    fetch(&source).await.map_err(|error| unreadable(chain(&error)))
}
