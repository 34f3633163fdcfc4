// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {IController, ComponentKind} from "./interfaces/IController.sol";
import {IPoolFactory} from "./interfaces/IPoolFactory.sol";
import {IVault} from "./interfaces/IVault.sol";
import {PoolConfig} from "./interfaces/PoolConfig.sol";
import {Coin} from "./lib/Coin.sol";
import {Data} from "./lib/Data.sol";
import {Relayed} from "./lib/Relayed.sol";
import {Signatures} from "./lib/Signatures.sol";

/// See {IController}.
contract Controller is IController, Relayed, ReentrancyGuardTransient {
    bytes32 private constant NAME = keccak256("Selion Controller");
    uint32 private constant FIRST_EPOCH = 1;
    /// Isolation classes by number: mig, capped, mps, shared, whole, simulated.
    uint8 private constant SIMULATED = 1 << 5;
    uint8 private constant KNOWN_CLASSES = (1 << 6) - 1;

    address public immutable vault;
    address public immutable court;
    /// All terms, ABI-encoded; those that functions look at follow.
    address private immutable TERMS;
    address private immutable TOKEN;
    address private immutable FIRST_AUTHORITY;
    uint256 private immutable SCALE;
    uint32 private immutable UNBOND_DELAY_S;
    uint32 private immutable GRACE_S;
    uint64 private immutable MIN_STAKE;
    bool private immutable ALLOW_SIMULATED;
    uint32 private immutable TAKE_OVER_AFTER_S;

    struct Provider {
        address payout;
        uint64 stake;
        uint64 unbonding;
        uint40 readyAt;
    }

    struct Node {
        address provider;
        uint32 nonce;
    }

    struct Offer {
        bytes32 specHash;
        uint8 classes;
        string specCid;
    }

    struct Component {
        uint40 until;
        string endpoint;
    }

    struct Licence {
        uint32 seats;
        uint40 until;
    }

    /// epoch(32) | size(64) | seenAt(32) | commitment(128): one slot, so that an anchor writes one slot.
    uint256 private _head;
    /// The authority of any epoch but the first, which is immutable and so costs an anchor no slot.
    address private _successor;
    mapping(address => Provider) private _providers;
    mapping(address => Node) private _nodes;
    mapping(address => Offer) private _offers;
    mapping(address => mapping(ComponentKind => Component)) private _components;
    mapping(address => bool) public isStandby;
    /// Issuer to holder to product.
    mapping(address => mapping(address => mapping(bytes32 => Licence))) private _licences;

    /// Made by a factory only: the constructor asks its maker for the vault and the court of this pool.
    constructor(PoolConfig memory terms, address forwarder) Relayed(forwarder) {
        if (terms.authority == address(0)) revert Zero("authority");
        if (terms.feeBps > 10_000) revert FeeTooHigh(terms.feeBps);
        TOKEN = terms.token;
        FIRST_AUTHORITY = terms.authority;
        UNBOND_DELAY_S = terms.unbondDelayS;
        MIN_STAKE = terms.minStake;
        GRACE_S = terms.graceS;
        ALLOW_SIMULATED = terms.allowSimulated;
        TAKE_OVER_AFTER_S = terms.takeOverAfterS;
        TERMS = Data.keep(abi.encode(terms));
        _head = uint256(FIRST_EPOCH) << 224 | _now();
        (vault, court) = IPoolFactory(msg.sender).makeParts(terms);
        SCALE = IVault(vault).scale(); // the vault has judged the token
        emit PoolOpened(vault, court, terms);
    }

    // -- the pool

    function config() external view returns (PoolConfig memory) {
        Data.answer(TERMS);
    }

    function trustedForwarder() external view returns (address) {
        return FORWARDER;
    }

    // -- authority and log

    function authority() external view returns (address) {
        return _authority(epoch());
    }

    function epoch() public view returns (uint32) {
        return uint32(_head >> 224);
    }

    function head() external view returns (uint32 epoch_, uint64 size, uint128 commitment, uint40 seenAt) {
        uint256 word = _head;
        return (uint32(word >> 224), uint64(word >> 160), uint128(word), uint32(word >> 128));
    }

    function passAuthority(address newAuthority) external {
        _onlyAuthority(epoch());
        if (newAuthority == address(0)) revert Zero("authority");
        _pass(newAuthority);
    }

    function setStandby(address standby, bool allowed) external {
        _onlyAuthority(epoch());
        if (standby == address(0)) revert Zero("standby");
        if (standby == _caller()) revert SameAuthority(standby);
        _setStandby(standby, allowed);
    }

    function renew() external {
        uint256 word = _head;
        uint32 present = uint32(word >> 224);
        _onlyAuthority(present);
        _head = _seen(word);
        emit Renewed(present, uint40(block.timestamp));
    }

    function takeOver() external {
        if (!isStandby[_caller()]) revert NotStandby(_caller());
        uint256 from = TAKE_OVER_AFTER_S == 0 ? type(uint40).max : uint32(_head >> 128) + uint256(TAKE_OVER_AFTER_S);
        if (block.timestamp <= from) revert TooEarly(uint40(from));
        _pass(_caller());
    }

    function anchor(uint32 epoch_, uint64 size, bytes32 root, bytes32 digest) external {
        uint256 word = _head;
        uint32 present = uint32(word >> 224);
        if (epoch_ != present) revert WrongEpoch(epoch_, present);
        _onlyAuthority(present);
        if (size <= uint64(word >> 160)) revert SizeNotAbove(size, uint64(word >> 160));
        uint256 commitment = uint256(keccak256(abi.encode(root, digest))) >> 128;
        _head = uint256(present) << 224 | uint256(size) << 160 | _now() | commitment;
        emit Anchored(present, size, root, digest);
    }

    // -- components

    function registerComponent(ComponentKind kind, string calldata endpoint, uint40 until) external {
        address owner = _caller();
        if (owner != _authority(epoch()) && _providers[owner].payout == address(0)) revert NotMember(owner);
        Component storage entry = _components[owner][kind];
        entry.until = until;
        entry.endpoint = endpoint;
        emit ComponentRegistered(owner, kind, until, endpoint);
    }

    function component(address owner, ComponentKind kind) external view returns (string memory endpoint, uint40 until) {
        Component storage entry = _components[owner][kind];
        until = entry.until;
        if (block.timestamp < until) endpoint = entry.endpoint;
    }

    // -- providers

    function registerProvider(address payout, uint64 stake) external nonReentrant {
        if (payout == address(0)) revert Zero("payout");
        address owner = _caller();
        Provider storage entry = _providers[owner];
        uint64 whole = entry.stake + stake; // checked: reverts above 64 bits
        if (whole < MIN_STAKE) revert StakeTooLow(whole, MIN_STAKE);
        entry.payout = payout;
        entry.stake = whole;
        emit ProviderRegistered(owner, payout, whole);
        if (stake != 0) Coin.take(TOKEN, SCALE, owner, stake);
    }

    function unbond(uint64 amount) external {
        if (amount == 0) revert Zero("amount");
        address owner = _caller();
        Provider storage entry = _providers[owner];
        if (amount > entry.stake) revert StakeTooLow(entry.stake, amount);
        uint64 left = entry.stake - amount;
        if (left != 0 && left < MIN_STAKE) revert StakeTooLow(left, MIN_STAKE);
        entry.stake = left;
        entry.unbonding += amount;
        entry.readyAt = uint40(block.timestamp + UNBOND_DELAY_S);
        emit StakeChanged(owner, left, entry.unbonding, entry.readyAt);
    }

    function withdrawStake(address to) external nonReentrant {
        if (to == address(0)) revert Zero("to");
        address owner = _caller();
        Provider storage entry = _providers[owner];
        uint64 amount = entry.unbonding;
        if (amount == 0 || block.timestamp < entry.readyAt) revert NotReady(amount, entry.readyAt);
        entry.unbonding = 0;
        entry.readyAt = 0;
        emit StakeChanged(owner, entry.stake, 0, 0);
        Coin.pay(TOKEN, SCALE, to, amount);
    }

    function provider(address owner)
        external
        view
        returns (address payout, uint64 stake, uint64 unbonding, uint40 readyAt)
    {
        Provider storage entry = _providers[owner];
        return (entry.payout, entry.stake, entry.unbonding, entry.readyAt);
    }

    // -- licences

    function setLicence(address holder, bytes32 product, uint32 seats, uint40 until) external {
        if (holder == address(0)) revert Zero("holder");
        if (product == 0) revert Zero("product");
        if (seats == 0) until = 0;
        address issuer = _caller();
        _licences[issuer][holder][product] = Licence(seats, until);
        emit LicenceSet(issuer, holder, product, seats, until);
    }

    function licenceOf(address issuer, address holder, bytes32 product)
        external
        view
        returns (uint32 seats, uint40 until)
    {
        Licence storage entry = _licences[issuer][holder][product];
        return (entry.seats, entry.until);
    }

    // -- nodes and offers

    function registerNode(address node, bytes32 r, bytes32 vs) external {
        address owner = _caller();
        _onlyStaked(owner);
        Node memory entry = _nodes[node];
        if (entry.provider == owner) revert AlreadyBound(node, owner);
        address signer = Signatures.recover(_bindingDigest(node, owner, entry.nonce), r, vs);
        if (signer == address(0) || signer != node) revert BadNodeSignature(node, signer);
        if (entry.provider != address(0)) _retire(node, entry);
        _nodes[node] = Node(owner, entry.nonce + 1);
        emit NodeRegistered(node, owner, entry.nonce);
    }

    function retireNode(address node) external {
        Node memory entry = _onlyProviderOf(node, _caller());
        _retire(node, entry);
        _nodes[node].provider = address(0);
    }

    function nodeOf(address node) external view returns (address provider_, uint32 nonce) {
        return (_nodes[node].provider, _nodes[node].nonce);
    }

    function nodeBindingDigest(address node, address provider_) external view returns (bytes32) {
        return _bindingDigest(node, provider_, _nodes[node].nonce);
    }

    function setOffer(address node, bytes32 specHash, uint8 classes, string calldata specCid) external {
        address owner = _caller();
        _onlyProviderOf(node, owner);
        _onlyStaked(owner);
        if (specHash == 0) revert Zero("specHash");
        if (classes == 0 || classes & ~KNOWN_CLASSES != 0) revert UnknownClasses(classes);
        if (classes & SIMULATED != 0 && !ALLOW_SIMULATED) revert SimulatedRefused(classes);
        Offer storage entry = _offers[node];
        entry.specHash = specHash;
        entry.classes = classes;
        entry.specCid = specCid;
        emit OfferSet(node, owner, specHash, classes, specCid);
    }

    function closeOffer(address node) external {
        address owner = _caller();
        _onlyProviderOf(node, owner);
        if (_offers[node].specHash == 0) revert NoOffer(node);
        _closeOffer(node, owner);
    }

    function offerOf(address node) external view returns (bytes32 specHash, uint8 classes, string memory specCid) {
        Offer storage entry = _offers[node];
        return (entry.specHash, entry.classes, entry.specCid);
    }

    // -- inside

    function _authority(uint32 epoch_) private view returns (address) {
        return epoch_ == FIRST_EPOCH ? FIRST_AUTHORITY : _successor;
    }

    function _onlyAuthority(uint32 epoch_) private view {
        address present = _authority(epoch_);
        if (_caller() != present) revert NotAuthority(_caller(), present);
    }

    function _onlyStaked(address owner) private view {
        Provider storage entry = _providers[owner];
        if (entry.payout == address(0) || entry.stake < MIN_STAKE) revert NotStaked(owner, entry.stake, MIN_STAKE);
    }

    function _onlyProviderOf(address node, address owner) private view returns (Node memory entry) {
        entry = _nodes[node];
        if (entry.provider != owner) revert NotNodeProvider(owner, node, entry.provider);
    }

    /// Makes `to` the authority of the next epoch; the old one's vouchers keep their grace.
    function _pass(address to) private {
        uint256 word = _head;
        uint32 next = uint32(word >> 224) + 1; // reverts at the last epoch
        if (to == _authority(next - 1)) revert SameAuthority(to);
        if (isStandby[to]) _setStandby(to, false);
        uint40 oldValidUntil = uint40(block.timestamp + GRACE_S);
        _head = _seen(word) + (1 << 224);
        _successor = to;
        IVault(vault).authorityPassed(next, to, oldValidUntil);
        emit AuthorityChanged(next, to, oldValidUntil);
    }

    function _setStandby(address standby, bool allowed) private {
        isStandby[standby] = allowed;
        emit StandbySet(standby, allowed);
    }

    /// The time as it stands in the head's word.
    function _now() private view returns (uint256) {
        return uint256(uint32(block.timestamp)) << 128;
    }

    /// The head's word with an authority seen now.
    function _seen(uint256 word) private view returns (uint256) {
        return word & ~(uint256(type(uint32).max) << 128) | _now();
    }

    function _retire(address node, Node memory entry) private {
        if (_offers[node].specHash != 0) _closeOffer(node, entry.provider);
        emit NodeRetired(node, entry.provider);
    }

    function _closeOffer(address node, address provider_) private {
        delete _offers[node];
        emit OfferClosed(node, provider_);
    }

    function _bindingDigest(address node, address provider_, uint32 nonce) private view returns (bytes32) {
        bytes32 domain = Signatures.domain(NAME, block.chainid, address(this));
        return Signatures.typed(domain, keccak256(abi.encode(Signatures.NODE_TYPE, node, provider_, nonce)));
    }
}
