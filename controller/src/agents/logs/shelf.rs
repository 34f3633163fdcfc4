//! Who has how much on disk, and who makes room.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use selion_api::{Account, LeaseId};

use super::Limits;
use super::book::{self, Book};

struct Lease {
    account: Account,
    bytes: u64,
    over: bool,
}

/// All leases of which something is kept, and the books that are in use.
pub(super) struct Shelf {
    leases: BTreeMap<LeaseId, Lease>,
    accounts: BTreeMap<Account, u64>,
    total: u64,
    books: BTreeMap<LeaseId, Arc<Book>>,
}

impl Shelf {
    /// What is in `dir`.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let (leases, accounts, books) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut shelf = Self { leases, accounts, total: 0, books };
        for folder in fs::read_dir(dir)? {
            let folder = folder?;
            let account = folder.file_name().to_str().and_then(|name| name.parse::<Account>().ok());
            let Some(account) = account.filter(|_| folder.path().is_dir()) else { continue };
            for lease in fs::read_dir(folder.path())? {
                let lease = lease?;
                if let Some(id) = lease.file_name().to_str().and_then(|name| name.parse::<LeaseId>().ok()) {
                    shelf.charge(account, id, book::cost_of(&lease.path())?);
                }
            }
        }
        Ok(shelf)
    }

    /// The lease costs so much now.
    pub(super) fn charge(&mut self, account: Account, lease: LeaseId, bytes: u64) {
        let entry = self.leases.entry(lease).or_insert(Lease { account, bytes: 0, over: false });
        let had = std::mem::replace(&mut entry.bytes, bytes);
        if bytes == 0 {
            self.leases.remove(&lease);
        }
        self.total = self.total - had + bytes;
        let sum = self.accounts.entry(account).or_default();
        *sum = *sum - had + bytes;
        if *sum == 0 {
            self.accounts.remove(&account);
        }
    }

    /// The lease that makes room next, if anything is above its bound; and whether it is over, so that all of it may go.
    /// Above the bound of all it is one of the account that has most.
    pub(super) fn who_makes_room(&self, limits: &Limits) -> Option<(Account, LeaseId, bool)> {
        let (account, most) = self.accounts.iter().max_by_key(|(_, bytes)| **bytes)?;
        if *most <= limits.account && self.total <= limits.total {
            return None;
        }
        let of_it = || self.leases.iter().filter(|(_, lease)| lease.account == *account);
        let oldest = of_it().find(|(_, lease)| lease.over);
        let (id, lease) = oldest.or_else(|| of_it().max_by_key(|(_, lease)| lease.bytes))?;
        Some((*account, *id, lease.over))
    }

    pub(super) fn book(&mut self, lease: LeaseId, open: impl FnOnce() -> Book) -> Arc<Book> {
        Arc::clone(self.books.entry(lease).or_insert_with(|| Arc::new(open())))
    }

    pub(super) fn in_use(&self, lease: LeaseId) -> Option<Arc<Book>> {
        self.books.get(&lease).cloned()
    }

    /// The lease is over; its book, if it is in use.
    pub(super) fn over(&mut self, lease: LeaseId) -> Option<Arc<Book>> {
        if let Some(kept) = self.leases.get_mut(&lease) {
            kept.over = true;
        }
        self.in_use(lease)
    }

    /// Notes which leases are over, forgets books that nobody uses, and tells the books of leases that are over.
    pub(super) fn tend(&mut self, live: impl Fn(LeaseId) -> bool) -> Vec<Arc<Book>> {
        for (id, lease) in self.leases.iter_mut().filter(|(_, lease)| !lease.over) {
            lease.over = !live(*id);
        }
        let over: Vec<LeaseId> = self.books.keys().copied().filter(|lease| !live(*lease)).collect();
        self.books.retain(|lease, book| !over.contains(lease) || Arc::strong_count(book) > 1);
        over.iter().filter_map(|lease| self.in_use(*lease)).collect()
    }
}
