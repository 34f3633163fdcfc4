// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {ComponentKind, Epoch, IController} from "./interfaces/IController.sol";
import {ICourt} from "./interfaces/ICourt.sol";
import {IPoolFactory} from "./interfaces/IPoolFactory.sol";
import {IVault} from "./interfaces/IVault.sol";
import {PoolConfig} from "./interfaces/PoolConfig.sol";
import {Coin} from "./lib/Coin.sol";
import {Data} from "./lib/Data.sol";
import {Relayed} from "./lib/Relayed.sol";
import {Signatures} from "./lib/Signatures.sol";
import {Terms} from "./lib/Terms.sol";

/// See {IController}.
contract Controller is IController, Relayed, ReentrancyGuardTransient {
    bytes32 private constant NAME = keccak256("Selion Controller");
    uint32 private constant FIRST_EPOCH = 1;
    /// Isolation classes by number: mig, capped, mps, shared, whole, simulated.
    uint8 private constant SIMULATED = 1 << 5;
    uint8 private constant KNOWN_CLASSES = (1 << 6) - 1;
    /// A log does not grow by more between two anchors: what is anchored can be reached again.
    uint64 private constant MOST_GROWTH = 1 << 32;
    uint256 private constant YEAR = 366 days;
    /// What a node is to one who bound it.
    uint8 private constant BOUND = 1;
    uint8 private constant CONDEMNED = 2;

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
    uint32 private immutable HAND_OVER_DELAY_S;
    uint64 private immutable MIN_BOND;

    struct Provider {
        address payout;
        uint64 stake;
        uint32 offers;
        uint64 unbonding;
        uint40 readyAt;
    }

    struct Announced {
        address next;
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
    address public owner;
    /// Counts owners from 1: standbys are of the one that named them.
    uint32 private _ownerNumber = 1;
    uint64 public burnt;
    Announced private _announced;
    mapping(uint32 => Epoch) private _ended;
    /// Standby to the number of the owner that named it.
    mapping(address => uint32) private _standbys;
    mapping(address => Provider) private _providers;
    mapping(address => Node) private _nodes;
    /// Node to provider to what it is or was to him.
    mapping(address => mapping(address => uint8)) private _bindings;
    mapping(address => Offer) private _offers;
    mapping(address => mapping(ComponentKind => Component)) private _components;
    /// Issuer to holder to product.
    mapping(address => mapping(address => mapping(bytes32 => Licence))) private _licences;

    /// Made by a factory only: the constructor asks its maker for the vault and the court of this pool.
    constructor(PoolConfig memory terms, address forwarder) Relayed(forwarder) {
        Terms.check(terms);
        TOKEN = terms.token;
        FIRST_AUTHORITY = terms.authority;
        UNBOND_DELAY_S = terms.unbondDelayS;
        MIN_STAKE = terms.minStake;
        GRACE_S = terms.graceS;
        ALLOW_SIMULATED = terms.allowSimulated;
        TAKE_OVER_AFTER_S = terms.takeOverAfterS;
        HAND_OVER_DELAY_S = terms.handOverDelayS;
        MIN_BOND = terms.minBond;
        owner = terms.owner;
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

    // -- owner

    function announced() external view returns (address next, uint40 readyAt) {
        return (_announced.next, _announced.readyAt);
    }

    function announceOwner(address next) external {
        _onlyOwner();
        if (next == owner) revert SameOwner(next);
        uint40 readyAt = next == address(0) ? 0 : uint40(block.timestamp + HAND_OVER_DELAY_S);
        _announced = Announced(next, readyAt);
        emit OwnerAnnounced(next, readyAt);
    }

    function acceptOwner(address authority_, bytes32 r, bytes32 vs, uint64 size, bytes32 root, bytes32 digest)
        external
    {
        address next = _caller();
        Announced memory entry = _announced;
        if (next != entry.next || block.timestamp < entry.readyAt) {
            revert NotAnnounced(next, entry.next, entry.readyAt);
        }
        uint256 word = _head;
        bytes32 anchor_ = uint128(word) == 0 ? bytes32(0) : keccak256(abi.encode(root, digest));
        if (size != uint64(word >> 160) || uint256(anchor_) >> 128 != uint128(word)) {
            revert NotAnchored(uint64(word >> 160), uint128(word));
        }
        uint64 atStake = ICourt(court).bondOf(next).kept;
        if (atStake < MIN_BOND) revert BondTooLow(atStake, MIN_BOND);
        _requireConsent(authority_, next, r, vs);
        delete _announced;
        uint32 old = epoch();
        _begin(authority_, next);
        _ended[old].anchor = anchor_;
    }

    function replaceAuthority(address authority_, bytes32 r, bytes32 vs) external {
        _onlyOwner();
        _requireConsent(authority_, owner, r, vs);
        _begin(authority_, owner);
    }

    function disownAnchors(uint64 size, address authority_, bytes32 r, bytes32 vs) external {
        _onlyOwner();
        uint64 anchored = uint64(_head >> 160);
        if (size > anchored) revert BadSize(size, anchored);
        _requireConsent(authority_, owner, r, vs);
        uint32 present = epoch();
        _head = uint256(present) << 224 | uint256(size) << 160 | _now();
        emit AnchorsDisowned(present, size);
        _begin(authority_, owner);
        delete _ended[present].anchor; // nothing that was anchored is held against the next epoch
        ICourt(court).forfeit(owner);
    }

    function setStandby(address standby, bool allowed) external {
        _onlyOwner();
        if (standby == address(0)) revert Zero("standby");
        if (standby == _authority(epoch())) revert SameAuthority(standby);
        _setStandby(standby, allowed);
    }

    function isStandby(address who) public view returns (bool) {
        return _standbys[who] == _ownerNumber;
    }

    // -- authority and log

    function authority() external view returns (address) {
        return _authority(epoch());
    }

    function epoch() public view returns (uint32) {
        return uint32(_head >> 224);
    }

    function epochOf(uint32 epoch_) public view returns (Epoch memory entry) {
        uint256 word = _head;
        if (epoch_ != uint32(word >> 224)) return _ended[epoch_];
        Epoch storage before = _ended[epoch_ - 1]; // epoch 0 never was: its size is 0, and nothing is anchored there
        (entry.owner, entry.size) = (owner, uint64(word >> 160));
        entry.anchor = entry.size == before.size ? before.anchor : bytes32(uint256(uint128(word)) << 128);
    }

    function ownerOf(uint32 epoch_) external view returns (address) {
        return epoch_ == epoch() ? owner : _ended[epoch_].owner;
    }

    function head() external view returns (uint32 epoch_, uint64 size, uint128 commitment, uint40 seenAt) {
        uint256 word = _head;
        return (uint32(word >> 224), uint64(word >> 160), uint128(word), uint32(word >> 128));
    }

    function authorityBindingDigest(address authority_, address owner_) public view returns (bytes32) {
        return _typed(keccak256(abi.encode(Signatures.AUTHORITY_TYPE, authority_, owner_, epoch() + 1)));
    }

    function renew() external {
        uint256 word = _head;
        uint32 present = uint32(word >> 224);
        _onlyAuthority(present);
        _head = _seen(word);
        emit Renewed(present, uint40(block.timestamp));
    }

    function takeOver() external {
        address standby = _caller();
        if (!isStandby(standby)) revert NotStandby(standby);
        uint256 from = TAKE_OVER_AFTER_S == 0 ? type(uint40).max : uint32(_head >> 128) + uint256(TAKE_OVER_AFTER_S);
        if (block.timestamp <= from) revert TooEarly(uint40(from));
        _begin(standby, owner);
    }

    function anchor(uint32 epoch_, uint64 size, bytes32 root, bytes32 digest) external {
        uint256 word = _head;
        uint32 present = uint32(word >> 224);
        if (epoch_ != present) revert WrongEpoch(epoch_, present);
        _onlyAuthority(present);
        uint64 anchored = uint64(word >> 160);
        unchecked {
            // One comparison: what is not above wraps to more.
            if (size - anchored - 1 >= MOST_GROWTH) revert BadSize(size, anchored);
        }
        uint256 commitment = uint256(keccak256(abi.encode(root, digest))) >> 128;
        _head = uint256(present) << 224 | uint256(size) << 160 | _now() | commitment;
        emit Anchored(present, size, root, digest);
    }

    // -- components

    function registerComponent(ComponentKind kind, string calldata endpoint, uint40 until) external {
        address who = _caller();
        if (until > block.timestamp) {
            if (!_isMember(who)) revert NotMember(who);
            if (until > block.timestamp + YEAR) revert TooFar(until, uint40(block.timestamp + YEAR));
        }
        Component storage entry = _components[who][kind];
        entry.until = until;
        entry.endpoint = endpoint;
        emit ComponentRegistered(who, kind, until, endpoint);
    }

    function component(address who, ComponentKind kind) external view returns (string memory endpoint, uint40 until) {
        Component storage entry = _components[who][kind];
        until = entry.until;
        if (block.timestamp < until) endpoint = entry.endpoint;
    }

    // -- providers

    function registerProvider(address payout, uint64 stake) external nonReentrant {
        _refuseAsPayout(payout);
        address who = _caller();
        Provider storage entry = _providers[who];
        if (entry.payout != address(0) && entry.payout != payout) revert NotPayout(who, entry.payout);
        uint64 whole = entry.stake + stake; // checked: reverts above 64 bits
        if (whole < MIN_STAKE) revert StakeTooLow(whole, MIN_STAKE);
        entry.payout = payout;
        entry.stake = whole;
        emit ProviderRegistered(who, payout, whole);
        if (stake != 0) Coin.take(TOKEN, SCALE, who, stake);
    }

    function setPayout(address provider_, address payout) external {
        _refuseAsPayout(payout);
        Provider storage entry = _providers[provider_];
        if (_caller() != entry.payout) revert NotPayout(_caller(), entry.payout);
        entry.payout = payout;
        emit ProviderRegistered(provider_, payout, entry.stake);
    }

    function unbond(uint64 amount) external {
        if (amount == 0) revert Zero("amount");
        address who = _caller();
        Provider storage entry = _providers[who];
        if (amount > entry.stake) revert StakeTooLow(entry.stake, amount);
        uint64 left = entry.stake - amount;
        if (left != 0 && left < MIN_STAKE) revert StakeTooLow(left, MIN_STAKE);
        if (left == 0 && entry.offers != 0) revert OffersStand(entry.offers);
        entry.stake = left;
        entry.unbonding += amount;
        entry.readyAt = uint40(block.timestamp + UNBOND_DELAY_S);
        emit StakeChanged(who, left, entry.unbonding, entry.readyAt);
    }

    function withdrawStake() external nonReentrant {
        address who = _caller();
        Provider storage entry = _providers[who];
        uint64 amount = entry.unbonding;
        if (amount == 0 || block.timestamp < entry.readyAt) revert NotReady(amount, entry.readyAt);
        entry.unbonding = 0;
        entry.readyAt = 0;
        emit StakeChanged(who, entry.stake, 0, 0);
        Coin.pay(TOKEN, SCALE, entry.payout, amount);
    }

    function forfeitStake(address node, address provider_, address payee) external nonReentrant {
        if (msg.sender != court) revert NotCourt(msg.sender);
        uint8 binding = _bindings[node][provider_];
        if (binding == 0) revert NeverBound(node, provider_);
        if (binding == CONDEMNED) revert Condemned(node, provider_);
        _refuseAsPayout(payee);
        Provider storage entry = _providers[provider_];
        uint64 amount = entry.stake + entry.unbonding; // checked: both came out of deposits that fitted
        if (amount == 0) revert NotStaked(provider_, 0, 1);
        _bindings[node][provider_] = CONDEMNED;
        (entry.stake, entry.unbonding, entry.readyAt) = (0, 0, 0);
        uint64 reward = amount / 10;
        burnt += amount - reward;
        emit StakeForfeited(provider_, node, amount, payee);
        emit StakeChanged(provider_, 0, 0, 0);
        if (reward != 0) Coin.pay(TOKEN, SCALE, payee, reward);
    }

    function payoutOf(address provider_) external view returns (address) {
        return _providers[provider_].payout;
    }

    function offersOf(address provider_) external view returns (uint32) {
        return _providers[provider_].offers;
    }

    function provider(address who)
        external
        view
        returns (address payout, uint64 stake, uint64 unbonding, uint40 readyAt)
    {
        Provider storage entry = _providers[who];
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
        address who = _caller();
        _onlyStaked(who);
        Node memory entry = _nodes[node];
        if (entry.provider == who) revert AlreadyBound(node, who);
        if (_bindings[node][who] == CONDEMNED) revert Condemned(node, who);
        address signer = Signatures.recover(_bindingDigest(node, who, entry.nonce), r, vs);
        if (signer == address(0) || signer != node) revert BadNodeSignature(node, signer);
        if (entry.provider != address(0)) _retire(node, entry);
        _nodes[node] = Node(who, entry.nonce + 1);
        _bindings[node][who] = BOUND;
        emit NodeRegistered(node, who, entry.nonce);
    }

    function retireNode(address node) external {
        Node memory entry = _onlyProviderOf(node, _caller());
        _retire(node, entry);
        _nodes[node].provider = address(0);
    }

    function nodeOf(address node) external view returns (address provider_, uint32 nonce) {
        return (_nodes[node].provider, _nodes[node].nonce);
    }

    function bindingOf(address node, address provider_) external view returns (bool wasBound, bool condemned) {
        uint8 binding = _bindings[node][provider_];
        return (binding != 0, binding == CONDEMNED);
    }

    function nodeBindingDigest(address node, address provider_) external view returns (bytes32) {
        return _bindingDigest(node, provider_, _nodes[node].nonce);
    }

    function setOffer(address node, bytes32 specHash, uint8 classes, string calldata specCid) external {
        address who = _caller();
        _onlyProviderOf(node, who);
        _onlyStaked(who);
        if (_bindings[node][who] == CONDEMNED) revert Condemned(node, who);
        if (specHash == 0) revert Zero("specHash");
        if (classes == 0 || classes & ~KNOWN_CLASSES != 0) revert UnknownClasses(classes);
        if (classes & SIMULATED != 0 && !ALLOW_SIMULATED) revert SimulatedRefused(classes);
        Offer storage entry = _offers[node];
        if (entry.specHash == 0) _providers[who].offers += 1;
        entry.specHash = specHash;
        entry.classes = classes;
        entry.specCid = specCid;
        emit OfferSet(node, who, specHash, classes, specCid);
    }

    function closeOffer(address node) external {
        address who = _caller();
        _onlyProviderOf(node, who);
        if (_offers[node].specHash == 0) revert NoOffer(node);
        _closeOffer(node, who);
    }

    function offerOf(address node) external view returns (bytes32 specHash, uint8 classes, string memory specCid) {
        Offer storage entry = _offers[node];
        return (entry.specHash, entry.classes, entry.specCid);
    }

    // -- inside

    function _authority(uint32 epoch_) private view returns (address) {
        return epoch_ == FIRST_EPOCH ? FIRST_AUTHORITY : _successor;
    }

    function _onlyOwner() private view {
        if (_caller() != owner) revert NotOwner(_caller(), owner);
    }

    function _onlyAuthority(uint32 epoch_) private view {
        address present = _authority(epoch_);
        if (_caller() != present) revert NotAuthority(_caller(), present);
    }

    function _isStaked(Provider storage entry) private view returns (bool) {
        return entry.payout != address(0) && entry.stake >= MIN_STAKE;
    }

    function _isMember(address who) private view returns (bool) {
        return who == owner || who == _authority(epoch()) || _isStaked(_providers[who]);
    }

    function _onlyStaked(address who) private view {
        Provider storage entry = _providers[who];
        if (!_isStaked(entry)) revert NotStaked(who, entry.stake, MIN_STAKE);
    }

    function _onlyProviderOf(address node, address who) private view returns (Node memory entry) {
        entry = _nodes[node];
        if (entry.provider != who) revert NotNodeProvider(who, node, entry.provider);
    }

    function _refuseAsPayout(address payout) private view {
        if (payout == address(0)) revert Zero("payout");
        if (payout == address(this) || payout == vault || payout == court) revert BadPayee(payout);
    }

    /// Reverts unless the key signed that it will be this owner's authority in the next epoch: so it is a key, somebody has
    /// it, and no key is named by a slip.
    function _requireConsent(address authority_, address owner_, bytes32 r, bytes32 vs) private view {
        address signer = Signatures.recover(authorityBindingDigest(authority_, owner_), r, vs);
        if (signer == address(0) || signer != authority_) revert BadAuthoritySignature(authority_, signer);
    }

    /// Begins the next epoch; the old one's vouchers keep their grace.
    function _begin(address authority_, address owner_) private {
        uint256 word = _head;
        uint32 next = uint32(word >> 224) + 1; // reverts at the last epoch
        _ended[next - 1] = epochOf(next - 1);
        if (owner_ != owner) (owner, _ownerNumber) = (owner_, _ownerNumber + 1);
        if (isStandby(authority_)) _setStandby(authority_, false);
        uint32 oldValidUntil = uint32(block.timestamp + GRACE_S);
        _head = _seen(word) + (1 << 224);
        _successor = authority_;
        IVault(vault).authorityPassed(next, authority_, oldValidUntil);
        emit AuthorityChanged(next, authority_, owner_, oldValidUntil);
    }

    function _setStandby(address standby, bool allowed) private {
        _standbys[standby] = allowed ? _ownerNumber : 0;
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
        _providers[provider_].offers -= 1;
        emit OfferClosed(node, provider_);
    }

    function _bindingDigest(address node, address provider_, uint32 nonce) private view returns (bytes32) {
        return _typed(keccak256(abi.encode(Signatures.NODE_TYPE, node, provider_, nonce)));
    }

    function _typed(bytes32 structHash) private view returns (bytes32) {
        return Signatures.typed(Signatures.domain(NAME, block.chainid, address(this)), structHash);
    }
}
