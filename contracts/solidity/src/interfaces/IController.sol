// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {PoolConfig} from "./PoolConfig.sol";

/// What kind of service a component is.
enum ComponentKind {
    Controller, // REST endpoint, which also serves the log
    Gateway, // content gateway
    Relay
}

/// An epoch of a pool: who owned the pool in it, and what was anchored of its log when it ended, or is now. An epoch takes
/// over what the one before anchored. `anchor` begins with the first 128 bits of keccak256(root, digest); the rest is zero,
/// or what belongs there where a new owner accepted it. All zero: nothing is anchored that counts.
struct Epoch {
    address owner;
    uint64 size;
    bytes32 anchor;
}

/// The registry of one pool: who offers what, who is the authority, and the anchored heads of its log.
/// Amounts are units: millionths of a token. Times are seconds since 1970 UTC.
///
/// The *owner* is a cold key or a contract: it names the authority and the standbys, has a bond in the court and takes
/// the fees. The *authority* is the hot key of a controller: it signs heads and vouchers, anchors, and decides nothing
/// else here. Each change of either begins an epoch.
///
/// Invariants:
/// 1. This contract holds at least the sum of stakes and unbonding stakes.
/// 2. The epoch never falls, and the anchored size only where an owner disowned anchors; an anchor is made only by the
///    authority of its epoch.
/// 3. A node belongs to the provider that its own key named last, and to nobody else.
/// 4. A node has at most one offer, set by its provider only, and none without a provider. A provider's stake does not
///    fall below the least one by his own act while an offer of his stands.
/// 5. A standby is authority only after the silence of the terms; otherwise the owner alone names authorities, and each
///    new one has signed that it will be.
/// 6. An owner is one only by the word of the one before, the delay of the terms and its own acceptance.
/// 7. The events, with the times of their blocks, give every stored field.
///
/// The caller of a function is the sender, or whoever signed the request that the pool's forwarder brings. Nothing here
/// can be paused.
interface IController {
    /// The pool exists with these terms; the first epoch is 1.
    event PoolOpened(address vault, address court, PoolConfig config);
    /// A component is reachable at `endpoint` until `until`; a time not in the future ends it.
    event ComponentRegistered(address indexed owner, ComponentKind indexed kind, uint40 until, string endpoint);
    /// An owner joined, or changed who is paid. `stake` is the whole stake that counts.
    event ProviderRegistered(address indexed provider, address payout, uint64 stake);
    /// The stake that counts, what is unbonding, and when the latter can be taken.
    event StakeChanged(address indexed provider, uint64 stake, uint64 unbonding, uint40 readyAt);
    /// The node's key named this provider; `nonce` bindings of the node came before.
    event NodeRegistered(address indexed node, address indexed provider, uint32 nonce);
    /// The node has no provider any more.
    event NodeRetired(address indexed node, address indexed provider);
    /// The node is on offer. `classes` is a set of isolation classes, one bit each.
    event OfferSet(address indexed node, address indexed provider, bytes32 specHash, uint8 classes, string specCid);
    /// The node is not on offer any more.
    event OfferClosed(address indexed node, address indexed provider);
    /// The court took all that the provider had at stake, unbonding money included, for what the node's key signed.
    event StakeForfeited(address indexed provider, address indexed node, uint64 amount, address payee);
    /// An epoch began; vouchers countersigned under the old one are claimable until `oldValidUntil`.
    event AuthorityChanged(
        uint32 indexed epoch, address indexed authority, address indexed owner, uint40 oldValidUntil
    );
    /// `next` may become the owner from `readyAt`; zero: nobody may.
    event OwnerAnnounced(address indexed next, uint40 readyAt);
    /// The owner gave up what was anchored above `size`, and its bond with it. This epoch ends with that.
    event AnchorsDisowned(uint32 indexed epoch, uint64 size);
    /// The log had `size` entries with this tree root, and State after them had this digest.
    event Anchored(uint32 epoch, uint64 size, bytes32 root, bytes32 digest);
    /// The owner named a standby, or dropped one. A standby that becomes the authority is dropped, and all are when the
    /// pool has another owner.
    event StandbySet(address indexed standby, bool allowed);
    /// The authority showed that it lives.
    event Renewed(uint32 epoch, uint40 seenAt);
    /// The holder may use `seats` seats of the issuer's product through `until`; 0 seats: the licence is withdrawn.
    event LicenceSet(
        address indexed issuer, address indexed holder, bytes32 indexed product, uint32 seats, uint40 until
    );

    /// `what` may not be zero.
    error Zero(string what);
    /// Only the pool's owner may do this.
    error NotOwner(address caller, address owner);
    /// Only the announced owner may do this, from `readyAt`.
    error NotAnnounced(address caller, address announced, uint40 readyAt);
    /// This address is the owner already.
    error SameOwner(address owner);
    /// The new authority's key did not sign that it will be this owner's in this epoch.
    error BadAuthoritySignature(address authority, address recovered);
    /// The new owner must have this at stake in the court.
    error BondTooLow(uint64 atStake, uint64 minBond);
    /// The size must be at most what is anchored (to disown), or above it by no more than 2^32 (to anchor).
    error BadSize(uint64 given, uint64 anchored);
    /// This is not what is anchored.
    error NotAnchored(uint64 size, uint128 commitment);
    /// Only the authority may do this.
    error NotAuthority(address caller, address authority);
    /// Only the node's provider may do this.
    error NotNodeProvider(address caller, address node, address provider);
    /// Only the owner, the authority or a provider with the least stake may register components.
    error NotMember(address caller);
    /// A component can be registered for a year at most.
    error TooFar(uint40 until, uint40 most);
    /// Only who is paid now may name another one.
    error NotPayout(address caller, address payout);
    /// A contract of the pool cannot be paid.
    error BadPayee(address payee);
    /// The provider has this many offers: close them first.
    error OffersStand(uint32 offers);
    /// Only the pool's court may do this.
    error NotCourt(address caller);
    /// The node was never this provider's.
    error NeverBound(address node, address provider);
    /// The node's key contradicted itself for this provider: the stake was taken for it.
    error Condemned(address node, address provider);
    /// The caller is not a registered provider with the least stake.
    error NotStaked(address provider, uint64 stake, uint64 minStake);
    /// The stake left must be none or at least the least stake.
    error StakeTooLow(uint64 stake, uint64 minStake);
    /// Nothing is unbonding, or not ready before `readyAt`.
    error NotReady(uint64 amount, uint40 readyAt);
    /// The binding is not signed by the node's key.
    error BadNodeSignature(address node, address recovered);
    /// The node is bound to this provider already.
    error AlreadyBound(address node, address provider);
    /// The node has no offer.
    error NoOffer(address node);
    /// The pool refuses simulated GPUs.
    error SimulatedRefused(uint8 classes);
    /// The set of classes is empty or holds an unknown one.
    error UnknownClasses(uint8 classes);
    /// The epoch is not the present one.
    error WrongEpoch(uint32 given, uint32 present);
    /// This address is the authority already.
    error SameAuthority(address authority);
    /// The owner did not name this caller a standby.
    error NotStandby(address caller);
    /// The authority was seen too lately: a standby may take over after `from`; type(uint40).max: never in this pool.
    error TooEarly(uint40 from);

    // -- the pool

    /// The fixed terms.
    function config() external view returns (PoolConfig memory);
    /// The vault of this pool.
    function vault() external view returns (address);
    /// The court of this pool: bonds of owners, and what they are punished for.
    function court() external view returns (address);

    // -- owner

    /// The present owner.
    function owner() external view returns (address);
    /// Who may become the owner, and from when; zeros if nobody may.
    function announced() external view returns (address next, uint40 readyAt);
    /// Lets `next` accept the pool after the delay of the terms; zero takes that back. Only the owner.
    function announceOwner(address next) external;
    /// Makes the caller, who was announced, the owner, with an authority of its own. `r`, `vs`: compact signature
    /// (EIP-2098) of that key over AuthorityBinding(address authority,address owner,uint32 epoch) for the next epoch.
    /// `size`, `root`, `digest`: what is anchored, which the new authority will have to extend; anything else reverts. It
    /// is kept whole: of the first 128 bits a former owner could have made two meanings.
    function acceptOwner(address authority_, bytes32 r, bytes32 vs, uint64 size, bytes32 root, bytes32 digest) external;
    /// Replaces the authority. Only the owner; the new key signs as for `acceptOwner`, and may be the present one.
    function replaceAuthority(address authority_, bytes32 r, bytes32 vs) external;
    /// Replaces the authority, and gives up what is anchored above `size`: for a log that was lost, or anchors that a
    /// thief made. All that the owner has at stake is burnt, since nobody can tell this from a lie.
    function disownAnchors(uint64 size, address authority_, bytes32 r, bytes32 vs) external;
    /// Names a standby or drops one. Only the owner, and not the authority.
    function setStandby(address standby, bool allowed) external;
    /// Whether this address may take the authority over after a silence.
    function isStandby(address who) external view returns (bool);

    // -- authority and log

    /// The present authority.
    function authority() external view returns (address);
    /// The present epoch; 1 at creation.
    function epoch() external view returns (uint32);
    /// Owner and anchor of an epoch; zeros if it never was.
    function epochOf(uint32 epoch_) external view returns (Epoch memory);
    /// The owner in an epoch; zero if it never was.
    function ownerOf(uint32 epoch_) external view returns (address);
    /// The last anchor: epoch of the pool, size, and commitment. Size 0: none yet. `seenAt`: when an authority was last
    /// seen, by creation, anchor, renewal or change. Kept in 32 bits, so until 2106.
    function head() external view returns (uint32 epoch_, uint64 size, uint128 commitment, uint40 seenAt);
    /// What a new authority's key signs to be `owner_`'s in the next epoch.
    function authorityBindingDigest(address authority_, address owner_) external view returns (bytes32);
    /// Shows that the authority lives when there is nothing to anchor. Only the authority.
    function renew() external;
    /// Makes the caller the authority. Only a standby, and only after more than `takeOverAfterS` seconds of silence.
    function takeOver() external;
    /// Anchors a log head. Only the authority, under the present epoch; the size must grow, by at most 2^32.
    function anchor(uint32 epoch_, uint64 size, bytes32 root, bytes32 digest) external;

    // -- components

    /// Registers the caller's component for a year at most, or renews or moves it; `until` not in the future ends it. Only
    /// the owner, the authority or a provider with the least stake; anyone may end his own.
    function registerComponent(ComponentKind kind, string calldata endpoint, uint40 until) external;
    /// Where the component is; an empty text if it was never registered or has expired.
    function component(address owner, ComponentKind kind) external view returns (string memory endpoint, uint40 until);

    // -- providers

    /// Joins with `stake` units taken from the caller's token allowance, or adds to the stake. `payout` is who is paid, and
    /// stays: see `setPayout`.
    function registerProvider(address payout, uint64 stake) external;
    /// Names another account to be paid. Only the one that is paid now: a key on a machine with GPUs cannot.
    function setPayout(address provider_, address payout) external;
    /// Starts to unbond `amount`; what is left is at least the least stake, or none where no offer stands. Restarts the
    /// delay for all that unbonds. It stays at stake until it is taken.
    function unbond(uint64 amount) external;
    /// Pays what has unbonded to who is paid.
    function withdrawStake() external;
    /// Takes all that the provider has at stake: a tenth to `payee`, the rest burnt, which is to say kept here for ever.
    /// Once for each node of a provider. Only the court.
    function forfeitStake(address node, address provider_, address payee) external;
    /// What was burnt so far.
    function burnt() external view returns (uint64);
    /// Who is paid for the provider; zero if unknown.
    function payoutOf(address provider_) external view returns (address);
    /// How many offers the provider has.
    function offersOf(address provider_) external view returns (uint32);
    /// A provider as stored; `payout` is zero if unknown.
    function provider(address owner)
        external
        view
        returns (address payout, uint64 stake, uint64 unbonding, uint40 readyAt);

    // -- licences

    /// Lets `holder` use `seats` seats of the caller's `product` (a hash of its name) through `until`; 0 seats withdraw it.
    /// Anyone may issue; a licence says only what its issuer says, and cannot be passed on. Judged when a lease is made.
    function setLicence(address holder, bytes32 product, uint32 seats, uint40 until) external;
    /// The licence as stored; zeros if there is none. Whoever asks judges `until`.
    function licenceOf(address issuer, address holder, bytes32 product)
        external
        view
        returns (uint32 seats, uint40 until);

    // -- nodes and offers

    /// Binds a node to the caller. `r`, `vs`: compact signature (EIP-2098) of the node's key over
    /// NodeBinding(address node,address provider,uint32 nonce), nonce as stored. A node that was bound elsewhere moves
    /// and its offer closes.
    function registerNode(address node, bytes32 r, bytes32 vs) external;
    /// Unbinds the caller's node and closes its offer.
    function retireNode(address node) external;
    /// The provider of a node (zero if none) and how often the node was bound.
    function nodeOf(address node) external view returns (address provider_, uint32 nonce);
    /// Whether the node ever was this provider's, and whether the provider lost his stake for what its key signed.
    function bindingOf(address node, address provider_) external view returns (bool wasBound, bool condemned);
    /// What the node's key signs to join `provider_` next.
    function nodeBindingDigest(address node, address provider_) external view returns (bytes32);
    /// Puts the caller's node on offer, or changes the offer. `specHash`: SHA-256 of the canonical spec; `classes`: the
    /// isolation classes in it, one bit each; `specCid`: where the spec can be had, may be empty.
    function setOffer(address node, bytes32 specHash, uint8 classes, string calldata specCid) external;
    /// Takes the caller's node off offer.
    function closeOffer(address node) external;
    /// The offer of a node; `specHash` is zero if there is none.
    function offerOf(address node) external view returns (bytes32 specHash, uint8 classes, string memory specCid);
}
