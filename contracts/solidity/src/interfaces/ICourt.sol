// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Item2} from "./IVault.sol";

/// A head of the log with the authority's compact signature (EIP-2098) over its EIP-191 digest.
struct SignedHead {
    uint64 size;
    bytes32 root;
    bytes32 digest;
    uint32 epoch;
    uint64 term;
    bytes32 r;
    bytes32 vs;
}

/// A promise that the entry `seq` has this leaf, signed as a head is.
struct SignedPromise {
    address account;
    uint64 seq;
    bytes32 leaf;
    uint32 epoch;
    uint64 term;
    bytes32 r;
    bytes32 vs;
}

/// A countersigned voucher for one provider.
struct Owed {
    address provider;
    Item2 voucher;
}

/// One effect with its entry, both shown to be in a log: canonical bytes of the entry and its path to the head's root;
/// bytes of the effect's leaf, its index among the `count` of the entry, and its path to the entry's effects root.
struct Shown {
    bytes entry;
    bytes32[] path;
    bytes effect;
    uint64 index;
    uint64 count;
    bytes32[] effectPath;
}

/// What an authority has at stake: all (unbonding money included), what of it unbonds, from when that can be taken, and
/// how many cases are open against it.
struct Bond {
    uint64 bond;
    uint64 unbonding;
    uint40 readyAt;
    uint32 open;
}

/// A case. `state`: 0 unknown, 1 open, 2 punished, 3 acquitted. `by`: until when an answer is sure to count. `places`: what
/// the answer must lie between; stays when the case ends.
struct Case {
    address authority;
    uint40 by;
    uint8 state;
    address accuser;
    uint64 atRisk;
    address harmed;
    uint256 places;
}

/// What the court asks the vault beside IVault.
interface IWithdrawals {
    /// Second of the renter's last withdrawal; 0 if there was none.
    function withdrawnAt(address renter) external view returns (uint40);
}

/// The court of one pool: authorities put money at stake, and lose it on evidence that anyone can submit. Nobody judges:
/// each offence is two statements of the authority that cannot both be true, or one to which it owes an answer and has
/// none. Amounts are units (millionths of a token), times seconds since 1970 UTC unless they end in `Ms`.
///
/// A proven offence takes min(bond, penalty), once per case. A case is named by the offence, never by who submits it, by
/// a signature or by a path. Half of what is taken is credited to the harmed, but no more than they can have lost; the rest
/// is burnt: kept here for ever. Half, because an authority could else convict itself for the good of an account of its
/// own, and so take its bond out without the delay and before those whom it harmed. Nothing goes to who submits.
///
/// Invariants:
/// 1. The court holds at least bonds + credits + deposits of open cases + what is burnt.
/// 2. A case is punished at most once, and never after an acquittal.
/// 3. An authority that keeps to the rules below loses nothing, whatever anybody else does.
/// 4. Unbonding money is at stake until it is withdrawn, and nobody withdraws while accused.
/// 5. The events alone give every stored field.
///
/// Why an honest authority cannot lose. It keeps to this:
/// a. It signs a head only when its entries are kept for good, and each later head, promise or standby extends them. So one
///    epoch has one root and one State digest a size, one leaf an index, and no promise is broken. Every offence
///    against this needs two statements signed for one epoch; other epochs have other signers.
/// b. It countersigns a total by a delegated key only if the log says that it is due (VoucherDue), and signs a head over
///    that entry before it hands the voucher out. That head is the answer for ever, since a log only grows. A key that
///    is the renter's own, or was, is never taken for a delegated one: an own key retires for good.
/// c. It gives a slot again only after the log says that it was freed; that effect is the answer. A grant is laid to
///    the authority of its entry's own epoch, so that nobody answers for what a predecessor entered.
/// d. It countersigns only under the present epoch, only while all its promises of this renter (the highest total of
///    each pair, less what is claimed) fit in balance less thawing, and takes none back but by a claim. `usedThroughMs`
///    is not after the moment of signing. Then promises <= balance holds from each signature on:
///    - A claim lowers both sides by the same; in part, too. It does so whatever the key or its cap: all promises count.
///    - A deposit raises the balance only. Only final deposits count, so a reorganisation within finality takes none.
///    - A key that is retired, revoked, dead, capped or taken up again changes who may claim, never the two sums.
///    - A withdrawal takes what was thawing. That was left out of the balance since the thaw was seen. Only promises from
///      before that can be above what is left, if a provider slept: the delay is longer than any lag, so their use ended
///      before the withdrawal. They do not count here; and nothing is countersigned until all fits again, they included.
///    - Another authority may sign claims: the one before in its grace, the next one afterwards. So only the present one
///      can be proven to over-promise, by use later than its predecessor's grace and one more `answerDelayS`, in
///      which it came to see final blocks of that time.
///    What is not caught, for the sake of this: over-promises of one who has passed on, or from before that moment.
interface ICourt {
    /// At stake (unbonding money included), what of it is unbonding, and from when that can be taken.
    event BondChanged(address indexed authority, uint64 bond, uint64 unbonding, uint40 readyAt);
    /// An offence was punished: `amount` left the bond (BondChanged tells the rest), `burnt` of it for ever.
    event Slashed(address indexed authority, bytes32 indexed case_, uint64 amount, uint64 burnt);
    /// The authority has until `by`, and then until somebody convicts, to show that it did no wrong.
    event Accused(address indexed authority, bytes32 indexed case_, uint40 by);
    /// The rest of an accusation: whose deposit is held, who is harmed and of how much at most (all ones: not known),
    /// and the places in the log that the answer must lie between (0 if none).
    event Charged(bytes32 indexed case_, address accuser, address harmed, uint64 atRisk, uint256 places);
    /// The accusation was answered; the deposit is the accused one's.
    event Acquitted(bytes32 indexed case_);
    /// The account may collect `amount` more.
    event Credited(address indexed account, bytes32 indexed case_, uint64 amount);
    /// The account took `amount` of its credit.
    event Collected(address indexed account, address to, uint64 amount);

    /// `what` may not be zero.
    error Zero(string what);
    /// More than what is at stake and not unbonding.
    error BondTooLow(uint64 asked, uint64 free);
    /// Nothing is unbonding, or not ready before `readyAt`.
    error NotReady(uint64 amount, uint40 readyAt);
    /// The authority has this many open cases: nothing can be withdrawn before they are closed.
    error UnderAccusation(address authority, uint32 cases);
    /// The account has no credit.
    error NothingDue(address account);
    /// The court cannot be paid by itself.
    error BadPayee(address payee);
    /// The case was punished before.
    error AlreadyPunished(bytes32 case_);
    /// The case is open already (state 1), or was answered (3).
    error AlreadyAccused(bytes32 case_, uint8 state);
    /// There is no such open case.
    error NotAccused(bytes32 case_);
    /// The authority has until `by` to answer.
    error TooEarly(bytes32 case_, uint40 by);
    /// The authority has no bond here, or the penalty of this pool is nothing.
    error NothingAtStake(address authority);
    /// Not signed by `by`, the authority of the epoch (zero: there was none), but by `recovered` (zero: by nobody).
    error NotSigned(address by, address recovered);
    /// The statements are of different epochs, so they may be of different authorities.
    error OtherEpoch(uint32 one, uint32 other);
    /// The heads are of different sizes: show leaves that differ.
    error OtherSize(uint64 one, uint64 other);
    /// The heads say the same.
    error SameHead(uint64 size);
    /// The leaf is the promised one, or the same in both trees.
    error SameLeaf(bytes32 leaf);
    /// Only the present authority can be proven to over-promise.
    error NotPresent(uint32 epoch);
    /// The voucher, given by its word `a`, is of another renter or epoch than the first.
    error OtherRenter(uint256 a);
    /// Providers must ascend, so that none counts twice.
    error NotAscending(address provider);
    /// The vault would not take a voucher by this key, or not for this use.
    error BadKey(address key, uint64 usedThroughMs);
    /// The use must be after this moment: what is older an honest authority may have promised.
    error TooOld(uint64 usedThroughMs, uint256 sinceMs);
    /// The promises fit in the balance.
    error WithinBalance(uint256 owed, uint64 balance);
    /// The key is not a delegated one, or it is the renter's own.
    error NotDelegated(address key, uint8 kind);
    /// The total due is below the voucher's.
    error BelowVoucher(uint64 due, uint64 cumulative);
    /// The two grants are of one run, or can both stand.
    error NoOverlap(uint256 one, uint256 other);
    /// The effect is not at a place after `first` and before `last`: seq(64) | order(64) each.
    error OutOfOrder(uint128 place, uint128 first, uint128 last);

    // -- bonds

    /// Puts `amount` of the caller's token allowance at stake for what the caller signs as an authority.
    function bond(uint64 amount) external;
    /// Asks for `amount` back; restarts the delay for all that unbonds. It stays at stake meanwhile.
    function unbond(uint64 amount) external;
    /// Pays what has unbonded to `to`, unless the caller stands accused.
    function withdrawBond(address to) external;
    /// Pays the caller's credit to `to`.
    function collect(address to) external;

    // -- proofs: anyone, any time

    /// Two heads of one epoch and size that differ in root or State digest. Burnt. A log forks once in an epoch: this and
    /// proveFork are one case.
    function proveTwoHeads(SignedHead calldata one, SignedHead calldata other) external;
    /// Two heads of one epoch, and different leaves at `index` in them. Burnt.
    function proveFork(
        SignedHead calldata one,
        SignedHead calldata other,
        uint64 index,
        bytes32 leafOfOne,
        bytes32[] calldata pathInOne,
        bytes32 leafOfOther,
        bytes32[] calldata pathInOther
    ) external;
    /// A promise and a head of the same epoch with another leaf there. Harmed: the one promised to. A case for each
    /// (epoch, account, seq).
    function proveBrokenPromise(
        SignedPromise calldata promised,
        SignedHead calldata head,
        bytes32 leaf,
        bytes32[] calldata path
    ) external;
    /// Vouchers of one renter, countersigned under the present epoch, good in the vault, whose unclaimed parts are above
    /// the renter's balance. Harmed: the providers, by what each is owed, together at most by what is missing. A case for
    /// each (epoch, renter).
    function proveOverPromise(Owed[] calldata vouchers) external;

    // -- accusations: silence is proof. The caller's deposit comes back with a conviction and is the accused one's else.

    /// A countersigned voucher by a delegated key is above what the log says is due. Harmed: the renter. A case for each
    /// (authority, renter, provider, cumulative).
    function accuseOverBill(address provider, Item2 calldata voucher) external;
    /// Shows that the pair's total due reached `cumulative`: a VoucherDue effect in a head signed by the accused.
    function answerOverBill(uint64 cumulative, SignedHead calldata head, Shown calldata due) external;
    /// Two grants of different runs that cannot both stand, both in the head; the later one entered in the head's epoch.
    /// Harmed: the renter of the later. A case for each (authority, run, run).
    function accuseDoubleLease(SignedHead calldata head, Shown calldata first, Shown calldata second) external;
    /// Shows that the first run was freed between the two grants: a Freed effect in a head signed by the accused. `second`
    /// is the later run: member(16) | attempt(32) | lease index(32) | lease seq(64).
    function answerDoubleLease(uint256 second, SignedHead calldata head, Shown calldata freed) external;
    /// Punishes a case that nobody answered in time.
    function convict(bytes32 case_) external;

    // -- reading

    /// What an authority has at stake.
    function bondOf(address authority) external view returns (Bond memory);
    /// A case; accuser, atRisk and harmed are of open cases only.
    function caseOf(bytes32 case_) external view returns (Case memory);
    /// What the account may collect.
    function credit(address account) external view returns (uint64);
    /// What was burnt so far.
    function burnt() external view returns (uint64);
    /// What an accuser deposits: a tenth of the penalty, rounded up.
    function deposit() external view returns (uint64);
    /// What an offence costs.
    function penalty() external view returns (uint64);
    /// Seconds between asking a bond back and having it.
    function unbondDelayS() external view returns (uint32);
    /// Seconds to answer an accusation.
    function answerDelayS() external view returns (uint32);
    /// The pool's controller: part of every digest.
    function controller() external view returns (address);
    /// The pool's vault.
    function vault() external view returns (address);
    /// The token.
    function token() external view returns (address);
    /// Who reads the evidence: see {Reader}.
    function reader() external view returns (address);
}
