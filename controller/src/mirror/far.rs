//! Far behind: final blocks, many at a time, with the same checks as near the head.

use futures::{StreamExt as _, TryStreamExt as _};
use selion_market::state::BlockRef;

use super::follow::{Finality, Follower, MirrorError, Pass, WINDOW};
use super::source::At;
use super::window::{Header, Seen, Window};
use crate::store::block;

/// So many final blocks behind, ranges are read instead of one block after the other.
const FAR_BEHIND: u64 = 256;
/// Blocks in one range at most.
const RANGE: u64 = 2_000;
/// A range ends so far below the last final block: where it ends nothing is linked above it yet, so that even a node
/// that lags, on a fork that is gone, must have the same block there.
const MARGIN: u64 = 64;
/// Headers asked for in one exchange.
const HEADERS: usize = 100;
/// Blocks whose receipts are asked for in one exchange: of a full block of a busy chain they are some 500 kB.
const RECEIPTS: usize = 20;
/// Exchanges at one time.
const AT_ONCE: usize = 4;

impl Follower {
    /// Far behind, reads a range of blocks that are final already. Tells whether it did.
    pub(super) async fn jump(&mut self, latest: &Header, pass: &mut Pass) -> Result<bool, MirrorError> {
        let base = self.window.base();
        let through = match self.finality {
            Finality::Depth(depth) => latest.number.saturating_sub(depth),
            Finality::Tag => match self.source.header(At::Finalized).await? {
                Some(header) => header.number.min(latest.number),
                None => return Ok(false),
            },
        };
        if !self.window.is_empty() || through.saturating_sub(base.number) < FAR_BEHIND {
            return Ok(false);
        }
        let last = (through - MARGIN).min(base.number + RANGE);
        // `climb` says whether a changed base is so for good.
        let Some(headers) = self.linked(base, last).await? else {
            return Ok(false);
        };
        let mut seen = self.all_seen(headers).await?;
        // Another node may have answered meanwhile: one that does not have what is final, or has another chain.
        self.source.same_chain().await?;
        self.header(At::Number(through)).await?;
        let end = self.header(At::Number(last)).await?;
        if seen.last().is_none_or(|highest| highest.header != end) {
            return Err(MirrorError::Inconsistent(last));
        }
        pass.entered += self.enter(&seen).await?;
        seen.retain(|seen| !seen.events.is_empty() || seen.header.number == last);
        block::put_final(&self.db, &seen).await?;
        self.window = Window::new(end.reference(), WINDOW);
        pass.more = true;
        Ok(true)
    }

    /// Every header above `base` up to `last`, each naming the one below as its parent; `None` if none stands on `base`.
    async fn linked(&self, base: BlockRef, last: u64) -> Result<Option<Vec<Header>>, MirrorError> {
        let parts = (base.number + 1..=last).step_by(HEADERS);
        let parts = parts.map(|from| self.source.headers(from, last.min(from + HEADERS as u64 - 1)));
        let parts: Vec<Vec<Header>> = futures::stream::iter(parts).buffered(AT_ONCE).try_collect().await?;
        let headers = parts.concat();
        if headers.first().is_some_and(|first| first.parent != base.hash) {
            return Ok(None);
        }
        let mut below = base;
        for header in &headers {
            if (header.number, header.parent) != (below.number + 1, below.hash) {
                return Err(MirrorError::Inconsistent(header.number));
            }
            below = header.reference();
        }
        match below.number == last {
            true => Ok(Some(headers)),
            false => Err(MirrorError::Inconsistent(last)),
        }
    }

    /// The blocks of these headers with their events, several exchanges at a time.
    async fn all_seen(&self, headers: Vec<Header>) -> Result<Vec<Seen>, MirrorError> {
        let loud: Vec<Header> = headers.iter().filter(|header| !header.silent).copied().collect();
        let parts: Vec<Vec<Header>> = loud.chunks(RECEIPTS).map(<[Header]>::to_vec).collect();
        let parts = futures::stream::iter(parts).map(|part| self.seen(part)).buffered(AT_ONCE);
        let mut told = parts.try_collect::<Vec<Vec<Seen>>>().await?.into_iter().flatten();
        let seen = |header: Header| match header.silent {
            true => Some(Seen { header, events: Vec::new() }),
            false => told.next(),
        };
        Ok(headers.into_iter().filter_map(seen).collect())
    }
}
