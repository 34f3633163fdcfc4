//! State from snapshot and log; rows from the log alone.

use selion_api::Hash32;
use selion_api::commit::sha256_of;
use selion_log::{Entry, Levels, Tree, root};
use selion_market::{Effect, Input, Outcome, Stamp, State, step};
use sqlx::Row;

use super::Step;
use crate::store::rows::Pending;
use crate::store::{Store, StoreError, count, entry, head, int, rows};

/// Rows of a log of up to this many entries are compared with it at every start, which takes some seconds at most; of a
/// longer one only their number is.
const COMPARED: u64 = 50_000;
/// Entries that are applied in one go while loading.
const PAGE: u32 = 1_000;

/// State and tree as of the last committed entry.
#[derive(Clone)]
pub struct Loaded {
    /// The world.
    pub state: State,
    /// The tree over the entries.
    pub tree: Tree,
}

/// Loads State: from the snapshot if it matches the head signed at its size, else from the first entry. The levels are
/// those of the tree over all that is committed. Writes nothing, so that it works on a full disk.
///
/// # Errors
///
/// [`StoreError::Corrupt`] naming the entry, if the log does not replay to itself.
pub async fn load(store: &Store) -> Result<(Loaded, Levels), StoreError> {
    let size = entry::size(&store.readers).await?;
    // A snapshot would hide damage to the entries that it stands for, and those are published.
    let levels = entry::levels(&store.readers).await?;
    let levels = levels.map_err(|seq| StoreError::Corrupt(format!("entry {seq}: it is not what was committed")))?;
    let mut loaded = match snapshot(store).await? {
        Some(loaded) if loaded.state.next_seq <= size => loaded,
        _ => Loaded { state: State::new(), tree: Tree::default() },
    };
    replay(store, &mut loaded, |_, _| {}).await?;
    Ok((loaded, levels))
}

/// Sees to it that the rows are those of a log of `size` entries, and writes them again if not.
///
/// # Errors
///
/// As [`load`].
pub async fn check_rows(store: &Store, size: u64) -> Result<(), StoreError> {
    let (counted, found) = rows::count(&store.readers, size).await?;
    if (counted != Some(found) && size > 0) || size <= COMPARED {
        refold(store).await?;
    }
    Ok(())
}

/// Writes every row again from the log, and keeps what was there if it is the same, byte for byte. Costs a replay of the
/// log: some 50 microseconds an entry.
///
/// # Errors
///
/// As [`load`].
pub async fn refold(store: &Store) -> Result<(), StoreError> {
    let mut pending = Pending::default();
    let mut loaded = Loaded { state: State::new(), tree: Tree::default() };
    replay(store, &mut loaded, |state, step| pending.note(state, step)).await?;
    let mut tx = store.writer.begin_with("BEGIN IMMEDIATE").await?;
    let had = rows::digests(&mut tx).await?;
    rows::clear(&mut tx).await?;
    if loaded.state.next_seq > 0 {
        pending.write(&mut tx, &loaded.state).await?;
    }
    let have = rows::digests(&mut tx).await?;
    let other: Vec<_> = have.iter().filter(|(table, digest)| had.get(*table) != Some(*digest)).map(|at| at.0).collect();
    if other.is_empty() {
        return Ok(()); // the transaction is rolled back
    }
    tracing::warn!(tables = ?other, "rows are not those of the log: somebody altered them. They are written again");
    tx.commit().await?;
    Ok(())
}

/// Applies every entry after those that `loaded` has, checking each against the log.
async fn replay(store: &Store, loaded: &mut Loaded, mut each: impl FnMut(&State, &Step)) -> Result<(), StoreError> {
    loop {
        let page = entry::bytes(&store.readers, loaded.state.next_seq, PAGE).await?;
        if page.is_empty() {
            return Ok(());
        }
        for bytes in page {
            let seq = loaded.state.next_seq;
            let corrupt = |what: String| StoreError::Corrupt(format!("entry {seq}: {what}"));
            let entry = Entry::read(&bytes).map_err(|error| corrupt(error.to_string()))?;
            let input: Input = borsh::from_slice(&entry.input).map_err(|error| corrupt(error.to_string()))?;
            let stamp = Stamp { seq: entry.seq, at_ms: entry.at_ms, fence: entry.fence };
            let outcome = step(&mut loaded.state, &stamp, &input);
            if effects_root(&outcome) != entry.effects_root || loaded.state.next_seq != seq + 1 {
                return Err(corrupt("it does not replay to the effects it was committed with".into()));
            }
            loaded.tree.push(entry.leaf());
            each(&loaded.state, &Step { seq, at_ms: entry.at_ms, input, outcome });
        }
    }
}

/// Root over the leaves of an outcome's effects.
#[must_use]
pub fn effects_root(outcome: &Outcome) -> Hash32 {
    let leaves: Vec<Hash32> = outcome.effects.iter().map(|effect| selion_log::leaf_hash(&effect.leaf())).collect();
    root(&leaves)
}

/// The leaves themselves, as published.
#[must_use]
pub fn effect_leaves(outcome: &Outcome) -> Vec<Vec<u8>> {
    outcome.effects.iter().map(Effect::leaf).collect()
}

async fn snapshot(store: &Store) -> Result<Option<Loaded>, StoreError> {
    let row = sqlx::query("select size, state, tree from snapshot").fetch_optional(&store.readers).await?;
    let Some(row) = row else { return Ok(None) };
    let size = count(&row, "snapshot", "size")?;
    let state = borsh::from_slice::<State>(&row.get::<Vec<u8>, _>("state"));
    let tree = borsh::from_slice::<Tree>(&row.get::<Vec<u8>, _>("tree"));
    let signed = head::at(&store.readers, size).await?;
    match (state, tree, signed) {
        (Ok(state), Ok(tree), Some(signed))
            if sha256_of(&state) == signed.head.digest && tree.root() == signed.head.root && state.next_seq == size =>
        {
            Ok(Some(Loaded { state, tree }))
        }
        _ => {
            tracing::warn!(size, "the snapshot does not match the log; replaying from the first entry");
            Ok(None)
        }
    }
}

/// Keeps `loaded` for the next start.
///
/// # Errors
///
/// Of the database; the log does not depend on it.
pub async fn save(store: &Store, loaded: &Loaded) -> sqlx::Result<()> {
    sqlx::query(
        "insert into snapshot (one, size, state, tree) values (1, $1, $2, $3) \
         on conflict (one) do update set size = excluded.size, state = excluded.state, tree = excluded.tree",
    )
    .bind(int(loaded.state.next_seq))
    .bind(selion_api::commit::canonical(&loaded.state))
    .bind(selion_api::commit::canonical(&loaded.tree))
    .execute(&store.writer)
    .await?;
    Ok(())
}
