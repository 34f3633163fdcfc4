use selion_api::agent::{Fence, MemberEvent};
use selion_api::chain::ChainEvent;
use selion_api::lease::{BillLine, LeaseState};
use selion_api::slice::GpuSpec;
use selion_api::{Address, Amount, GpuId, MemberWant, Rate, SliceWant, Slot};
use selion_contracts::Signer;
use selion_market::{Effect, Grant, Pocket, Transfer};

use super::*;
use crate::rehearse::{Book, Cast};

const POOL: PoolId = PoolId { chain_id: 31_337, controller: Address([9; 20]) };

fn key(number: u8) -> Signer {
    Signer::from_bytes(&[number; 32]).unwrap()
}

fn book() -> Book {
    Book::open(POOL, Cast { authority: key(1), node: key(10), owner: key(11), renters: [key(20), key(21), key(22)] })
}

/// Three renters want the one GPU: the first is billed, the second has it, the third waits.
fn story() -> (Book, [LeaseId; 3]) {
    let mut book = book();
    let leases = book.story().unwrap();
    (book, leases)
}

/// A member of two GPUs runs, is billed twice while it runs and once at its end, and a part is claimed on chain.
fn longer() -> Book {
    let mut book = book();
    let mut spec = book.cast.spec();
    let gpu = GpuSpec { whole: Some(Rate(4_000_000)), mig: None, ..spec.gpus[0].clone() };
    spec.gpus = [4, 5].map(|id| GpuSpec { gpu: GpuId([id; 16]), ..gpu.clone() }).into();
    let provider = spec.provider;
    book.join(spec).unwrap();
    let want = MemberWant { gpus: 2, ..MemberWant::of(SliceWant::Whole) };
    let lease = book.request(&key(20), &want).unwrap();
    book.run(lease).unwrap();
    for minutes in 1..3 {
        book.now += 60_000;
        book.report(lease, MemberEvent::Metered, minutes * 60_000).unwrap();
    }
    let renter = key(20).account();
    let (cumulative, paid) = (Amount(100_000), Amount(100_000));
    book.block(vec![ChainEvent::Claimed { provider, renter, cumulative, paid, key: None }]);
    book.block(vec![ChainEvent::Thawed { renter, amount: Amount(1_000), ready: selion_api::TimeMs(book.now) }]);
    book.block(vec![ChainEvent::Withdrawn { renter, amount: Amount(1_000) }]);
    book.enter(Input::Release { renter, lease, said: None });
    book.report(lease, MemberEvent::Stopped { outputs: None }, 120_000).unwrap();
    book.expect(lease, LeaseState::Ended).unwrap();
    book
}

/// A deposit leaves without notice while a lease runs: it is billed for more than its renter still has. He pays in again, and
/// leases again.
fn poorer() -> Book {
    let (mut book, [_, second, third]) = story();
    let (renter, amount) = (key(21).account(), Amount(100_000_000));
    book.run(second).unwrap();
    book.now += 90_000;
    book.block(vec![ChainEvent::Thawed { renter, amount, ready: selion_api::TimeMs(book.now) }]);
    book.block(vec![ChainEvent::Withdrawn { renter, amount }]);
    book.report(second, MemberEvent::Stopped { outputs: None }, 90_500).unwrap();
    book.expect(second, LeaseState::Ended).unwrap();
    book.enter(Input::Release { renter: key(22).account(), lease: third, said: None });
    book.block(vec![ChainEvent::Deposited { renter, amount }]);
    let profile = book.cast.spec().gpus[0].mig.as_ref().unwrap().profiles[0].name.clone();
    let want = MemberWant::of(SliceWant::Mig { profile });
    let lease = book.request(&key(21), &want).unwrap();
    book.report(third, MemberEvent::Stopped { outputs: None }, 0).unwrap();
    book.run(lease).unwrap();
    book.now += 90_000;
    book.report(lease, MemberEvent::Metered, 90_000).unwrap();
    book.now += 1_000;
    book.enter(Input::Release { renter, lease, said: None });
    book.report(lease, MemberEvent::Stopped { outputs: None }, 90_500).unwrap();
    book.expect(lease, LeaseState::Ended).unwrap();
    book
}

/// The one breach of the log, after a way through a file; and what it says.
#[track_caller]
fn shown(book: &Book) -> (Breach, String) {
    let found = breaches(&POOL, &book.seal().unwrap()).unwrap();
    let [breach] = found.as_slice() else { panic!("{found:?}") };
    let text = serde_json::to_string(breach).unwrap();
    let read: Breach = serde_json::from_str(&text).unwrap();
    assert_eq!(&read, breach);
    let words = read.verify(key(1).account()).unwrap();
    (read, words)
}

fn effect(book: &mut Book, which: impl Fn(&Effect) -> bool) -> (usize, &mut Effect) {
    let (entry, at) = book.find(which).unwrap();
    (entry, &mut book.drafts[entry].effects[at])
}

/// One place is given to the third as well: in the same entry, or in the last one.
fn double(later: bool) -> (Book, Offence) {
    let (mut book, [_, second, third]) = story();
    let (entry, at) = book.find(|effect| matches!(effect, Effect::Granted(grant) if grant.lease == second)).unwrap();
    let Effect::Granted(grant) = book.drafts[entry].effects[at].clone() else { unreachable!("it was just found") };
    let twin = Effect::Granted(Grant { lease: third, renter: key(22).account(), ..grant });
    if later {
        book.block(Vec::new());
        book.drafts.last_mut().unwrap().effects.push(twin);
    } else {
        book.drafts[entry].effects.insert(at + 1, twin);
    }
    (book, Offence::DoubleLease { one: second, other: third })
}

#[test]
fn a_place_that_two_leases_have_is_shown_by_the_entries_between_their_grants() {
    for later in [false, true] {
        let (book, offence) = double(later);
        let (breach, words) = shown(&book);
        assert_eq!(breach.offence, offence);
        assert_eq!(breach.entries.len() > 1, later, "no more than is needed");
        assert!(words.contains("has the place since") && words.contains("nothing freed it"), "{words}");
    }
}

#[test]
fn a_bill_above_what_was_used_is_shown_by_the_entries_since_its_grant() {
    type Lie = fn(&mut BillLine);
    let lies: [(Lie, &str); 4] = [
        (|line| line.amount.0 += 1, "rounded down it is"),
        (|line| line.rate.0 += 1, "the ask of all its GPUs"),
        (|line| line.billable_ms += 1, "its node signed for 90500 ms"),
        (|line| line.billable_ms += 600_000, "ms lie between the entries"),
    ];
    for (lie, why) in lies {
        let (mut book, [first, ..]) = story();
        let (_, billed) = effect(&mut book, |effect| matches!(effect, Effect::Billed(_)));
        let Effect::Billed(line) = billed else { unreachable!("it was just found") };
        lie(line);
        if !why.starts_with("rounded") {
            line.amount = line.rate.bill(line.billable_ms);
        }
        let (breach, words) = shown(&book);
        assert_eq!(breach.offence, Offence::OverBill { lease: first, attempt: 1, member: 0 });
        assert!(breach.first > 0 && words.contains(why), "{words}");
    }
}

#[test]
fn a_meter_that_the_node_did_not_sign_justifies_no_bill() {
    let (mut book, [first, ..]) = story();
    let last = book.drafts.iter().rposition(|draft| matches!(draft.input, Input::Report(_))).unwrap();
    let Input::Report(signed) = &mut book.drafts[last].input else { unreachable!("it was just found") };
    assert_eq!((signed.report.lease, signed.report.metered_ms), (first, 90_500));
    // The controller writes what it bills, and signs with a key of its own.
    *signed = crate::rehearse::book::sign(&POOL, &key(1), signed.report.clone()).unwrap();
    let (breach, words) = shown(&book);
    assert_eq!(breach.offence, Offence::OverBill { lease: first, attempt: 1, member: 0 });
    assert!(words.contains("its node signed for 90000 ms"), "{words}");
}

#[test]
fn a_voucher_above_the_bills_and_a_claim_above_the_voucher_are_shown() {
    let (mut book, _) = story();
    let (renter, provider) = (key(20).account(), book.cast.spec().provider);
    let (_, due) = effect(&mut book, |effect| matches!(effect, Effect::VoucherDue(_)));
    let Effect::VoucherDue(due) = due else { unreachable!("it was just found") };
    due.cumulative.0 += 1;
    let (breach, words) = shown(&book);
    assert_eq!(breach.offence, Offence::OverVoucher { renter, provider });
    assert!(words.contains("is 25001, it was 0 and 25000 was billed since"), "{words}");

    let (mut book, _) = story();
    let (cumulative, paid) = (Amount(25_139), Amount(25_138));
    book.block(vec![ChainEvent::Claimed { provider, renter, cumulative, paid, key: None }]);
    let (breach, words) = shown(&book);
    assert_eq!(breach.offence, Offence::OverVoucher { renter, provider });
    assert!(words.contains("claimed 25139") && words.contains("was 25138"), "{words}");
    assert!(breach.first > 0, "the last voucher is enough");
}

#[test]
fn a_promise_of_more_than_the_deposit_is_shown_by_its_entry_and_state_before() {
    let owner = key(21).account();
    let (mut book, _) = story();
    let kept = |effect: &Effect| matches!(effect, Effect::Moneyed(transfer) if transfer.to == Pocket::Reserved(owner));
    let (entry, moneyed) = effect(&mut book, kept);
    let Effect::Moneyed(transfer) = moneyed else { unreachable!("it was just found") };
    transfer.amount.0 = 100_000_001;
    let (breach, words) = shown(&book);
    assert_eq!((breach.offence, breach.first), (Offence::OverPromise { renter: owner }, entry as u64));
    assert_eq!((breach.entries.len(), breach.before.is_some()), (1, true));
    assert!(words.contains("100000001 is taken out of the free deposit of"), "{words}");

    // A deposit that no block brings, and a withdrawal that the log does not book.
    let (mut book, _) = story();
    let credit = Transfer { from: Pocket::Outside, to: Pocket::Free(owner), amount: Amount(1) };
    book.drafts.last_mut().unwrap().effects.push(Effect::Moneyed(credit));
    assert!(shown(&book).1.contains("is kept, owed or free of"), "{}", shown(&book).1);
    let (mut book, _) = story();
    book.block(vec![ChainEvent::Withdrawn { renter: owner, amount: Amount(50_000_000) }]);
    let last = book.drafts.last_mut().unwrap();
    last.effects.iter_mut().for_each(|effect| {
        if let Effect::Moneyed(transfer) = effect {
            transfer.amount.0 /= 2;
        }
    });
    assert_eq!(shown(&book).0.offence, Offence::OverPromise { renter: owner });
    // One renter's money for another's lease.
    let (mut book, _) = story();
    let (_, moneyed) = effect(&mut book, kept);
    let Effect::Moneyed(transfer) = moneyed else { unreachable!("it was just found") };
    transfer.from = Pocket::Free(key(22).account());
    assert!(shown(&book).1.contains("another renter's"));
}

/// More is kept for the second lease than its renter has.
fn over_promised() -> Book {
    let (mut book, _) = story();
    let owner = key(21).account();
    let kept = |effect: &Effect| matches!(effect, Effect::Moneyed(transfer) if transfer.to == Pocket::Reserved(owner));
    let Effect::Moneyed(transfer) = effect(&mut book, kept).1 else { unreachable!("it was just found") };
    transfer.amount.0 = 100_000_001;
    book
}

#[test]
fn where_no_head_has_the_digest_of_state_a_promise_is_shown_by_the_log_up_to_it() {
    let mut log = over_promised().seal().unwrap();
    let Offence::OverPromise { renter } = breaches(&POOL, &log).unwrap()[0].offence else { unreachable!("it is one") };
    for logged in &mut log {
        let SignedHead { head, signature } = logged.head.as_mut().unwrap();
        head.digest.0[0] ^= 1;
        *signature = key(1).sign_text(&head.digest_to_sign(&POOL).0).unwrap();
    }
    let found = breaches(&POOL, &log).unwrap();
    assert_eq!((found[0].offence, found[0].first), (Offence::OverPromise { renter }, 0));
    assert!(found[0].before.is_none() && found[0].verify(key(1).account()).is_ok());
}

#[test]
fn state_before_a_promise_that_is_not_the_one_the_authority_signed_shows_nothing() {
    let (breach, _) = shown(&over_promised());
    let why = |change: &dyn Fn(&mut Breach, &mut Before)| {
        let mut breach = breach.clone();
        let mut before = breach.before.take().unwrap();
        change(&mut breach, &mut before);
        Breach { before: Some(before), ..breach }.verify(key(1).account()).unwrap_err().0
    };
    let state = |before: &Before| borsh::from_slice::<State>(&hex::decode(&before.state).unwrap()).unwrap();
    let write = |before: &mut Before, state: &State| before.state = hex::encode(borsh::to_vec(state).unwrap());
    // A poorer renter.
    assert!(
        why(&|_, before| {
            let mut poorer = state(before);
            poorer.books.values_mut().for_each(|books| books.deposited = Amount(1));
            write(before, &poorer);
        })
        .contains("is not the one under the head")
    );
    assert!(why(&|_, before| before.state.push_str("00")).contains("does not decode"));
    assert!(why(&|_, before| before.state.push('x')).contains("is not hex"));
    assert!(why(&|_, before| before.head.head.digest.0[0] ^= 1).contains("is signed by"));
    assert!(why(&|breach, before| before.head = breach.head).contains("is not over those before"));
    // State of another size, and of another history of that size.
    assert!(
        why(&|_, before| {
            before.head.head.size -= 1;
            before.head.signature = key(1).sign_text(&before.head.head.digest_to_sign(&POOL).0).unwrap();
        })
        .contains("is not over those before")
    );
    assert!(
        why(&|_, before| {
            before.head.head.root.0[0] ^= 1;
            before.head.signature = key(1).sign_text(&before.head.head.digest_to_sign(&POOL).0).unwrap();
        })
        .contains("is not over those before")
    );
    // Without it a piece tells nothing of what a renter has.
    let bare = Breach { before: None, ..breach.clone() };
    assert!(bare.verify(key(1).account()).unwrap_err().0.contains("no rule in that way"));
}

#[test]
fn no_piece_of_an_honest_log_however_it_is_cut_accuses_anybody() {
    for book in [story().0, longer(), poorer()] {
        let log = book.seal().unwrap();
        let report = crate::check_log(&POOL, &log, &[], &[]);
        let claims = report.checks.iter().find(|check| check.name == "claims_covered").unwrap();
        assert!(claims.ok, "{}", claims.detail);
        assert_eq!(breaches(&POOL, &log), Err(NoEvidence::NoBreach(log.len() as u64)));
        let mut before = State::new();
        for from in 0..log.len() {
            let known = [Some(before.clone()), None];
            for known in known.iter().filter(|known| from > 0 || known.is_some()) {
                let mut walks = all(&POOL, known.as_ref(), &|_| true);
                for logged in &log[from..] {
                    let item = item(logged.seq, &logged.entry, &logged.effects).unwrap();
                    for walk in &mut walks {
                        let found: Vec<String> = walk.take(&item).into_iter().map(|found| found.why).collect();
                        assert_eq!(found, Vec::<String>::new(), "from entry {from} on");
                    }
                }
            }
            let next = item(log[from].seq, &log[from].entry, &log[from].effects).unwrap();
            crate::replay::apply(&mut before, &next, true).unwrap();
        }
    }
}

#[test]
fn a_file_with_anything_changed_or_of_another_authority_or_pool_shows_nothing() {
    let (book, _) = double(true);
    let (breach, _) = shown(&book);
    let why = |change: &dyn Fn(&mut Breach)| {
        let mut breach = breach.clone();
        change(&mut breach);
        breach.verify(key(1).account()).unwrap_err().0
    };
    assert!(breach.verify(key(2).account()).unwrap_err().0.contains("is signed by"));
    assert!(why(&|breach| breach.pool.chain_id += 1).contains("is signed by"));
    assert!(why(&|breach| breach.head.head.size += 1).contains("is signed by"));
    assert!(why(&|breach| breach.first += 1).contains("calls itself"));
    assert!(why(&|breach| drop(breach.entries.pop())).contains("not those under the head"));
    assert!(why(&|breach| drop(breach.entries.remove(0))).contains("calls itself"));
    assert!(why(&|breach| breach.beside[0].0[0] ^= 1).contains("not those under the head"));
    assert!(why(&|breach| drop(breach.entries[0].effects.pop())).contains("not those that it commits to"));
    assert!(why(&|breach| breach.entries[0].entry.push_str("00")).contains("entry"));
    let (renter, provider) = (key(20).account(), key(20).account());
    assert!(why(&|breach| breach.offence = Offence::OverVoucher { renter, provider }).contains("no rule in that way"));
    // The release between two leases of one place cannot be left out.
    let (book, [first, second, _]) = story();
    let log = book.seal().unwrap();
    let grant = |lease| book.find(|effect| matches!(effect, Effect::Granted(grant) if grant.lease == lease)).unwrap().0;
    let last = item(log[grant(second)].seq, &log[grant(second)].entry, &log[grant(second)].effects).unwrap();
    let offence = Offence::DoubleLease { one: first, other: second };
    let honest = cut(&POOL, &log, offence, (grant(first) as u64, &last)).unwrap();
    assert!(honest.verify(key(1).account()).unwrap_err().0.contains("no rule in that way"));
}

#[test]
fn numbers_that_no_log_reaches_are_refused_and_do_not_end_the_program() {
    let (breach, _) = shown(&double(true).0);
    for (first, entries) in [(u64::MAX, breach.entries.clone()), (u64::MAX, Vec::new()), (u64::MAX - 1, Vec::new())] {
        let far = Breach { first, entries, ..breach.clone() };
        assert!(far.verify(key(1).account()).is_err());
    }
}

/// The log of a pool whose authority passed: key 2 goes on in epoch 2, does all as it should, and signs heads over all of it.
fn handed_over(book: &mut Book, events: Vec<ChainEvent>) -> Vec<LoggedEntry> {
    let from = book.drafts.len();
    book.block(vec![ChainEvent::AuthorityChanged { epoch: 2, authority: key(2).account(), owner: Account([4; 20]) }]);
    book.block(events);
    let fence = Fence { epoch: 2, term: 2 };
    book.drafts[from..].iter_mut().for_each(|draft| draft.stamp.fence = fence);
    book.cast.authority = key(2);
    book.seal().unwrap()
}

/// A file about the entries `first..to` of a log, under its newest head.
fn file(log: &[LoggedEntry], first: usize, to: usize, offence: Offence) -> Breach {
    let leaves: Vec<Hash32> = log.iter().map(|logged| leaf_hash(&hex::decode(&logged.entry).unwrap())).collect();
    let entries = log[first..to].iter();
    let entries = entries.map(|one| Cut { entry: one.entry.clone(), effects: one.effects.clone() }).collect();
    let head = log.last().unwrap().head.unwrap();
    Breach { pool: POOL, offence, head, first: first as u64, entries, beside: beside(&leaves, first, to), before: None }
}

#[test]
fn who_takes_over_is_not_accused_of_what_was_entered_before_him() {
    let (mut book, offence) = double(true);
    let to = book.drafts.len();
    let log = handed_over(&mut book, Vec::new());
    let Offence::DoubleLease { one, .. } = offence else { unreachable!("it is one") };
    let first = book.find(|effect| matches!(effect, Effect::Granted(grant) if grant.lease == one)).unwrap().0;
    let why = file(&log, first, to, offence).verify(key(2).account()).unwrap_err().0;
    assert!(why.contains("epoch"), "{why}");
    // Nor if what he grants is judged by a grant that the other one only said he had made.
    let twin = book.drafts[to - 1].effects.pop().unwrap();
    book.drafts.last_mut().unwrap().effects.push(twin);
    let log = book.seal().unwrap();
    let why = file(&log, first, log.len(), offence).verify(key(2).account()).unwrap_err().0;
    assert!(why.contains("epoch"), "{why}");
}

#[test]
fn a_claim_of_what_a_former_authority_signed_accuses_nobody() {
    let (mut book, _) = story();
    let (renter, provider) = (key(20).account(), book.cast.spec().provider);
    let (cumulative, paid) = (Amount(25_139), Amount(25_139));
    let offence = Offence::OverVoucher { renter, provider };
    // The voucher is of epoch 1, and claimed within the grace time after it.
    let claimed = ChainEvent::Claimed { provider, renter, cumulative, paid, key: None };
    let log = handed_over(&mut book, vec![claimed.clone()]);
    let last = book.find(|effect| matches!(effect, Effect::VoucherDue(_))).unwrap().0;
    assert_eq!(breaches(&POOL, &log), Err(NoEvidence::NoBreach(log.len() as u64)));
    for first in [0, last] {
        assert!(file(&log, first, log.len(), offence).verify(key(2).account()).is_err());
    }
    // A log that was begun again, because the other one is lost.
    let mut book = self::book();
    book.join(book.cast.spec()).unwrap();
    book.block(vec![claimed]);
    book.drafts.iter_mut().for_each(|draft| draft.stamp.fence = Fence { epoch: 2, term: 2 });
    book.cast.authority = key(2);
    let log = book.seal().unwrap();
    assert_eq!(breaches(&POOL, &log), Err(NoEvidence::NoBreach(log.len() as u64)));
    assert!(file(&log, 0, log.len(), offence).verify(key(2).account()).is_err());
}

/// Grants of that share of one GPU to as many leases as there are numbers, in one entry at the end.
fn shares(permille: u16, leases: u32) -> (Book, Vec<LeaseId>) {
    let (mut book, [_, second, _]) = story();
    let (entry, at) = book.find(|effect| matches!(effect, Effect::Granted(grant) if grant.lease == second)).unwrap();
    let Effect::Granted(grant) = book.drafts[entry].effects[at].clone() else { unreachable!("it was just found") };
    let ids: Vec<LeaseId> = (0..leases).map(|index| LeaseId { seq: 77, index }).collect();
    let slot = Slot::Share { compute_permille: permille, mem_bytes: 1 };
    let gpu = GpuId([77; 16]);
    let effects = ids.iter().map(|lease| Grant { lease: *lease, gpu, slot: slot.clone(), ..grant.clone() });
    book.block(Vec::new());
    book.drafts.last_mut().unwrap().effects.extend(effects.map(Effect::Granted));
    (book, ids)
}

#[test]
fn a_place_that_is_given_to_very_many_costs_no_more_to_look_at_than_there_are_grants() {
    let (book, _) = shares(1_000, 300);
    let log = book.seal().unwrap();
    let last = log.last().unwrap();
    let item = item(last.seq, &last.entry, &last.effects).unwrap();
    let found = DoubleLeases::new(&|_| true).take(&item).len();
    assert!((1..300).contains(&found), "{found} findings in 300 grants");
    assert!(shown(&book).1.contains("nothing freed it"));
}

#[test]
fn shares_that_are_together_more_than_a_gpu_are_shown() {
    let (book, ids) = shares(400, 3);
    let (breach, words) = shown(&book);
    assert_eq!(breach.offence, Offence::DoubleLease { one: ids[0], other: ids[2] });
    assert!(words.contains("1200 permille"), "{words}");
    let (honest, _) = shares(500, 2);
    let log = honest.seal().unwrap();
    assert_eq!(breaches(&POOL, &log), Err(NoEvidence::NoBreach(log.len() as u64)));
}

#[test]
fn a_voucher_of_more_than_was_used_is_shown_though_the_money_was_moved_as_well() {
    let (mut book, _) = story();
    let (renter, provider) = (key(20).account(), book.cast.spec().provider);
    let mut is_first = true;
    for effect in book.drafts.iter_mut().flat_map(|draft| &mut draft.effects) {
        match effect {
            Effect::Moneyed(Transfer { from: Pocket::Reserved(_), to: Pocket::Owed(payer, _), amount })
                if *payer == renter =>
            {
                amount.0 += if is_first { 1_000 } else { 0 };
                is_first = false;
            }
            Effect::Moneyed(Transfer { from: Pocket::Reserved(payer), to: Pocket::Free(_), amount })
                if *payer == renter =>
            {
                amount.0 -= 1_000;
            }
            Effect::VoucherDue(due) => due.cumulative.0 += 1_000,
            _ => {}
        }
    }
    let (breach, words) = shown(&book);
    assert_eq!((breach.offence, breach.first), (Offence::OverVoucher { renter, provider }, 0));
    assert!(words.contains("at most"), "{words}");
}

#[test]
fn entries_under_rules_that_this_release_does_not_know_are_not_judged_by_those_that_it_knows() {
    let log = story().0.seal().unwrap();
    let last = log.last().unwrap();
    let entry = Entry { rules: 2, ..Entry::read(&hex::decode(&last.entry).unwrap()).unwrap() };
    let why = item(last.seq, &hex::encode(entry.bytes()), &last.effects).unwrap_err();
    assert!(why.contains("rules 2") && why.contains("release"), "{why}");
}
