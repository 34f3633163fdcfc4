// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {PoolConfig} from "./PoolConfig.sol";

/// What kind of service a component is.
enum ComponentKind {
    Controller, // REST endpoint, which also serves the log
    Gateway, // content gateway
    Relay
}

/// The registry of one pool: who offers what, who is the authority, and the anchored heads of its log.
/// Amounts are units: millionths of a token. Times are seconds since 1970 UTC.
///
/// Invariants:
/// 1. This contract holds at least the sum of stakes and unbonding stakes.
/// 2. The epoch and the anchored size never fall; an anchor is made only by the authority of its epoch.
/// 3. A node belongs to the provider that its own key named last, and to nobody else.
/// 4. A node has at most one offer, set by its provider only, and none without a provider.
/// 5. A standby is authority only after the silence of the terms; no other way leads round `passAuthority`.
/// 6. The events, with the times of their blocks, give every stored field.
///
/// The caller of a function is the sender, or whoever signed the request that the pool's forwarder brings. Nothing here
/// can be paused.
interface IController {
    /// The pool exists with these terms; the authority's epoch is 1.
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
    /// Authority passed; vouchers countersigned under the old epoch are claimable until `oldValidUntil`.
    event AuthorityChanged(uint32 indexed epoch, address indexed authority, uint40 oldValidUntil);
    /// The log had `size` entries with this tree root, and State after them had this digest.
    event Anchored(uint32 epoch, uint64 size, bytes32 root, bytes32 digest);
    /// The authority named a standby, or dropped one. A standby that becomes the authority is dropped.
    event StandbySet(address indexed standby, bool allowed);
    /// The authority showed that it lives.
    event Renewed(uint32 epoch, uint40 seenAt);
    /// The holder may use `seats` seats of the issuer's product through `until`; 0 seats: the licence is withdrawn.
    event LicenceSet(
        address indexed issuer, address indexed holder, bytes32 indexed product, uint32 seats, uint40 until
    );

    /// `what` may not be zero.
    error Zero(string what);
    /// The fee is above 10,000 ten-thousandths.
    error FeeTooHigh(uint16 feeBps);
    /// Only the authority may do this.
    error NotAuthority(address caller, address authority);
    /// Only the node's provider may do this.
    error NotNodeProvider(address caller, address node, address provider);
    /// Only the authority or a registered provider may register components.
    error NotMember(address caller);
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
    /// The size must grow.
    error SizeNotAbove(uint64 given, uint64 anchored);
    /// This address is the authority already.
    error SameAuthority(address authority);
    /// The authority did not name this caller a standby.
    error NotStandby(address caller);
    /// The authority was seen too lately: a standby may take over after `from`; type(uint40).max: never in this pool.
    error TooEarly(uint40 from);

    // -- the pool

    /// The fixed terms.
    function config() external view returns (PoolConfig memory);
    /// The vault of this pool.
    function vault() external view returns (address);
    /// The court of this pool: bonds of authorities, and what they are punished for.
    function court() external view returns (address);

    // -- authority and log

    /// The present authority.
    function authority() external view returns (address);
    /// The present epoch; 1 at creation.
    function epoch() external view returns (uint32);
    /// The last anchor: epoch of the pool, size, and the first 128 bits of keccak256(root, digest). Size 0: none yet.
    /// `seenAt`: when an authority was last seen, by creation, anchor, renewal or change. Kept in 32 bits, so until 2106.
    function head() external view returns (uint32 epoch_, uint64 size, uint128 commitment, uint40 seenAt);
    /// Passes authority on: the epoch rises by one. Only the present authority.
    function passAuthority(address newAuthority) external;
    /// Names a standby or drops one. Standbys stay when authority passes. Only the present authority, and not itself.
    function setStandby(address standby, bool allowed) external;
    /// Whether this address may take the authority over after a silence.
    function isStandby(address who) external view returns (bool);
    /// Shows that the authority lives when there is nothing to anchor. Only the present authority.
    function renew() external;
    /// Makes the caller the authority, with the effects of `passAuthority`. Only a standby, and only after more than
    /// `takeOverAfterS` seconds of silence.
    function takeOver() external;
    /// Anchors a log head. Only the present authority, under the present epoch; the size must grow.
    function anchor(uint32 epoch_, uint64 size, bytes32 root, bytes32 digest) external;

    // -- components

    /// Registers the caller's component, or renews or moves it; `until` not in the future ends it. Authority or provider.
    function registerComponent(ComponentKind kind, string calldata endpoint, uint40 until) external;
    /// Where the component is; an empty text if it was never registered or has expired.
    function component(address owner, ComponentKind kind) external view returns (string memory endpoint, uint40 until);

    // -- providers

    /// Joins with `stake` units taken from the caller's token allowance, or adds to the stake and sets who is paid.
    function registerProvider(address payout, uint64 stake) external;
    /// Starts to unbond `amount`; what is left is none or at least the least stake. Restarts the delay for all that unbonds.
    function unbond(uint64 amount) external;
    /// Takes what has unbonded.
    function withdrawStake(address to) external;
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
