// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// A head of the log with the authority's compact signature (EIP-2098) over its EIP-191 digest. Without a signature (`r` and
/// `vs` are zero): the last anchor of the epoch, which the authority's own transaction states; `term` does not count then.
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

/// Different leaves at one index of two trees, each with its path (RFC 9162) to the tree's root.
struct Leaves {
    uint64 index;
    bytes32 leafOfOne;
    bytes32[] pathInOne;
    bytes32 leafOfOther;
    bytes32[] pathInOther;
}

/// A node's report, as its canonical bytes, with the compact signature (EIP-2098) of the node's key.
struct SignedReport {
    bytes report;
    bytes32 r;
    bytes32 vs;
}

/// What an owner has at stake: `kept`, and `leaving`, which can be taken from `readyAt` for one more delay and is at stake
/// until it is. What is not taken in that window is kept again.
struct Bond {
    uint64 kept;
    uint64 leaving;
    uint40 readyAt;
}

/// The court of one pool. It punishes one thing: two statements that cannot both be true, both signed by the accused. Both
/// are judged in the transaction that brings them. There is no accusation, no answer, no delay and no judge. Amounts are
/// units (millionths of a token), times seconds since 1970 UTC.
///
/// Who contradicts himself loses all: an owner his bond, once for each epoch whose authority did, and a provider his stake,
/// once for each node. A tenth goes to the payee whom the caller names, and the rest is burnt: kept here, or in the
/// controller, for ever. So nobody gains by convicting himself, and who keeps watch is paid.
///
/// Invariants:
/// 1. The court holds at least what is at stake and what was burnt.
/// 2. An epoch is convicted at most once, and a provider for a node at most once.
/// 3. Who keeps to the rules below loses nothing, whatever anybody else does.
/// 4. Leaving money is at stake until it is taken.
/// 5. The events, with the times of their blocks, give every stored field.
///
/// Why nobody who is honest can be convicted.
///
/// An *authority* is convicted by statements under its own epoch, and by the anchor that this epoch began with. It keeps
/// to this:
/// a. It signs a head or a promise only when the entries are kept for good, and anchors only what it signed. Whatever it
///    signs later extends that. So one epoch has one leaf for an index, and one root and one State digest for a size.
/// b. It starts from the log that its epoch took over: its own copy, in which the anchor that stood when the epoch began is
///    found. That beginning is final before it signs. If the anchor is not in its copy, it signs nothing.
/// c. A copy of its data from a backup signs nothing before it holds all that was signed before: the anchor, the mark beside
///    the key and the heads that agents were shown tell (docs/adr/0035).
/// By (a), two heads of one size say the same, two heads agree in every leaf that both have, and a promise agrees with every
/// head that covers it. {proveFork} and {proveBrokenPromise} need a disagreement in just these, at one index below both
/// sizes, or at one size, with a path that SHA-256 allows only for the leaf that is there. By (b), the same holds against
/// the anchor of the epoch before. The epoch stands in what is signed, and signatures of another epoch, another pool or
/// another kind of statement have other digests. An anchor is what the controller stored at the authority's own call: 128 bits
/// of its hash, and all of it where a new owner accepted it. So an anchor with two meanings takes its maker 2^64 hashes, and
/// can cost only the owner who named its maker, and who answers for the maker's epoch already.
///
/// A *provider* is convicted by two reports that the same node signed for it, under one number, about one member of one run
/// of a lease. It keeps to this:
/// d. A node signs each number once. A number is the time at which the report was made, so that a copy of the node's data
///    from a backup goes on above all that was signed since.
/// By (d), two reports of one number are one report. {proveTwoReports} needs a difference beyond the fence.
///
/// An *owner* is liable for the epochs in which it is the owner, and for nobody else's. The next owner accepts the log
/// as anchored, so it can keep (b), or else does not accept. What was signed stays evidence for ever; an owner can leave with
/// its bond after the delay of the terms, and until then all that it signed can cost it.
///
/// What is not punished here: what needs an answer, or an account of what was not signed. See docs/NOT-PROVED.md.
interface ICourt {
    /// What the owner has at stake now. `leaving` can be taken from `readyAt`.
    event BondChanged(address indexed owner, uint64 kept, uint64 leaving, uint40 readyAt);
    /// The epoch's authority contradicted itself: `amount` was taken from the owner, a tenth of it for `payee`.
    event Convicted(address indexed owner, uint32 indexed epoch, uint64 amount, address payee);
    /// The owner disowned anchors: `amount` was burnt.
    event Forfeited(address indexed owner, uint64 amount);

    /// `what` may not be zero.
    error Zero(string what);
    /// More than what is kept, or less would be left than the present owner must keep.
    error BondTooLow(uint64 asked, uint64 kept, uint64 least);
    /// Nothing is leaving, or it is not ready before `readyAt`.
    error NotReady(uint64 amount, uint40 readyAt);
    /// Only the pool's controller may do this.
    error NotController(address caller);
    /// The court, the pool's other contracts and nobody cannot be paid.
    error BadPayee(address payee);
    /// This epoch was convicted before.
    error AlreadyConvicted(uint32 epoch);
    /// The owner has nothing at stake now. The evidence stays good.
    error NothingAtStake(address owner);
    /// Not signed by `by`, the authority of the epoch or the node, but by `recovered` (zero: by nobody).
    error NotSigned(address by, address recovered);
    /// This is not what the epoch anchored last.
    error NotAnchored(uint32 epoch, uint64 size);
    /// The statements are of epochs that do not answer for each other.
    error OtherEpoch(uint32 one, uint32 other);
    /// The two do not contradict each other.
    error NoContradiction();

    // -- bonds

    /// Puts `amount` of the caller's token allowance at stake. Anyone may, for when it is an owner.
    function bond(uint64 amount) external;
    /// Asks for `amount` back. Restarts the delay for all that is leaving.
    function unbond(uint64 amount) external;
    /// Pays what is leaving to `to`.
    function withdrawBond(address to) external;
    /// Burns all that the owner has at stake. Only the controller.
    function forfeit(address owner) external;

    // -- contradictions: anyone, any time

    /// Two heads of one epoch, or a head and the anchor of the epoch before, that cannot both be true: of one size with
    /// another root or State digest, or with different leaves at one index. `leaves` is not read for heads of one size.
    /// Either may be an anchor; a statement of epoch n + 1 stands second against the anchor of epoch n.
    function proveFork(SignedHead calldata one, SignedHead calldata other, Leaves calldata leaves, address payee)
        external;
    /// A promise, and a head of the same epoch with another leaf there. The head may be an anchor, also of the epoch before.
    function proveBrokenPromise(
        SignedPromise calldata promised,
        SignedHead calldata head,
        bytes32 leaf,
        bytes32[] calldata path,
        address payee
    ) external;
    /// Two reports of one node and one number about one member of one run, and not the same. Costs the provider its stake.
    function proveTwoReports(SignedReport calldata one, SignedReport calldata other, address payee) external;

    // -- reading

    /// What the owner has at stake as of now: what was not taken in its window is kept.
    function bondOf(address owner) external view returns (Bond memory);
    /// What stands behind the statements of an epoch: all that its owner has here and does not take out, 0 after a conviction.
    function atStake(uint32 epoch) external view returns (uint64);
    /// Whether the epoch was convicted.
    function convicted(uint32 epoch) external view returns (bool);
    /// What was burnt here so far.
    function burnt() external view returns (uint64);
    /// Seconds between asking a bond back and having it, and then to take it.
    function unbondDelayS() external view returns (uint32);
    /// What the present owner must keep.
    function minBond() external view returns (uint64);
    /// The pool's controller: part of every digest.
    function controller() external view returns (address);
    /// The pool's vault.
    function vault() external view returns (address);
    /// The token.
    function token() external view returns (address);
}
