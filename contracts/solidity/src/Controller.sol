// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {IController, ComponentKind} from "./interfaces/IController.sol";
import {IVault} from "./interfaces/IVault.sol";
import {PoolConfig} from "./interfaces/PoolConfig.sol";
import {Coin} from "./lib/Coin.sol";
import {Signatures} from "./lib/Signatures.sol";
import {Vault} from "./Vault.sol";

/// See {IController}.
contract Controller is IController, ReentrancyGuardTransient {
    bytes32 private constant NAME = keccak256("Selion Controller");
    uint32 private constant FIRST_EPOCH = 1;
    /// Isolation classes by number: mig, capped, mps, shared, whole, simulated.
    uint8 private constant SIMULATED = 1 << 5;
    uint8 private constant KNOWN_CLASSES = (1 << 6) - 1;

    address public immutable vault;
    uint16 public immutable feeBps;
    uint32 public immutable finalityDepth;
    address private immutable TOKEN;
    address private immutable FIRST_AUTHORITY;
    uint256 private immutable SCALE;
    uint32 private immutable THAW_DELAY_S;
    uint32 private immutable UNBOND_DELAY_S;
    uint32 private immutable GRACE_S;
    uint64 private immutable MIN_STAKE;
    bool private immutable ALLOW_SIMULATED;
    bool private immutable ALLOW_UNSANDBOXED;

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

    /// epoch(32) | size(64) | commitment(160): one slot, so that an anchor writes one slot.
    uint256 private _head;
    /// The authority of any epoch but the first, which is immutable and so costs an anchor no slot.
    address private _successor;
    string private _metadataCid;
    mapping(address => Provider) private _providers;
    mapping(address => Node) private _nodes;
    mapping(address => Offer) private _offers;
    mapping(address => mapping(ComponentKind => Component)) private _components;

    constructor(PoolConfig memory terms) {
        if (terms.authority == address(0)) revert Zero("authority");
        if (terms.feeBps > 10_000) revert FeeTooHigh(terms.feeBps);
        TOKEN = terms.token;
        SCALE = Coin.scaleOf(terms.token);
        FIRST_AUTHORITY = terms.authority;
        feeBps = terms.feeBps;
        THAW_DELAY_S = terms.thawDelayS;
        UNBOND_DELAY_S = terms.unbondDelayS;
        MIN_STAKE = terms.minStake;
        finalityDepth = terms.finalityDepth;
        GRACE_S = terms.graceS;
        ALLOW_SIMULATED = terms.allowSimulated;
        ALLOW_UNSANDBOXED = terms.allowUnsandboxed;
        _metadataCid = terms.metadataCid;
        _head = uint256(FIRST_EPOCH) << 224;
        vault = address(new Vault(terms.token, terms.authority, terms.feeBps, terms.thawDelayS));
        emit PoolOpened(vault, terms);
    }

    // -- the pool

    function config() external view returns (PoolConfig memory) {
        return PoolConfig({
            token: TOKEN,
            authority: FIRST_AUTHORITY,
            feeBps: feeBps,
            thawDelayS: THAW_DELAY_S,
            unbondDelayS: UNBOND_DELAY_S,
            minStake: MIN_STAKE,
            finalityDepth: finalityDepth,
            graceS: GRACE_S,
            allowSimulated: ALLOW_SIMULATED,
            allowUnsandboxed: ALLOW_UNSANDBOXED,
            metadataCid: _metadataCid
        });
    }

    // -- authority and log

    function authority() external view returns (address) {
        return _authority(epoch());
    }

    function epoch() public view returns (uint32) {
        return uint32(_head >> 224);
    }

    function head() external view returns (uint32 epoch_, uint64 size, uint160 commitment) {
        uint256 word = _head;
        return (uint32(word >> 224), uint64(word >> 160), uint160(word));
    }

    function passAuthority(address newAuthority) external {
        uint32 present = epoch();
        _onlyAuthority(present);
        if (newAuthority == address(0)) revert Zero("authority");
        if (newAuthority == msg.sender) revert SameAuthority(newAuthority);
        uint40 oldValidUntil = uint40(block.timestamp + GRACE_S);
        _head += 1 << 224; // reverts at the last epoch
        _successor = newAuthority;
        IVault(vault).authorityPassed(present + 1, newAuthority, oldValidUntil);
        emit AuthorityChanged(present + 1, newAuthority, oldValidUntil);
    }

    function anchor(uint32 epoch_, uint64 size, bytes32 root, bytes32 digest) external {
        uint256 word = _head;
        uint32 present = uint32(word >> 224);
        if (epoch_ != present) revert WrongEpoch(epoch_, present);
        _onlyAuthority(present);
        if (size <= uint64(word >> 160)) revert SizeNotAbove(size, uint64(word >> 160));
        _head = uint256(present) << 224 | uint256(size) << 160 | uint256(keccak256(abi.encode(root, digest))) >> 96;
        emit Anchored(present, size, root, digest);
    }

    // -- components

    function registerComponent(ComponentKind kind, string calldata endpoint, uint40 until) external {
        if (msg.sender != _authority(epoch()) && _providers[msg.sender].payout == address(0)) {
            revert NotMember(msg.sender);
        }
        _components[msg.sender][kind] = Component(until, endpoint);
        emit ComponentRegistered(msg.sender, kind, until, endpoint);
    }

    function component(address owner, ComponentKind kind) external view returns (string memory endpoint, uint40 until) {
        Component storage entry = _components[owner][kind];
        until = entry.until;
        if (block.timestamp < until) endpoint = entry.endpoint;
    }

    // -- providers

    function registerProvider(address payout, uint64 stake) external nonReentrant {
        if (payout == address(0)) revert Zero("payout");
        Provider storage entry = _providers[msg.sender];
        uint64 whole = entry.stake + stake; // checked: reverts above 64 bits
        if (whole < MIN_STAKE) revert StakeTooLow(whole, MIN_STAKE);
        entry.payout = payout;
        entry.stake = whole;
        emit ProviderRegistered(msg.sender, payout, whole);
        if (stake != 0) Coin.take(TOKEN, SCALE, msg.sender, stake);
    }

    function unbond(uint64 amount) external {
        if (amount == 0) revert Zero("amount");
        Provider storage entry = _providers[msg.sender];
        if (amount > entry.stake) revert StakeTooLow(entry.stake, amount);
        uint64 left = entry.stake - amount;
        if (left != 0 && left < MIN_STAKE) revert StakeTooLow(left, MIN_STAKE);
        entry.stake = left;
        entry.unbonding += amount;
        entry.readyAt = uint40(block.timestamp + UNBOND_DELAY_S);
        emit StakeChanged(msg.sender, left, entry.unbonding, entry.readyAt);
    }

    function withdrawStake(address to) external nonReentrant {
        if (to == address(0)) revert Zero("to");
        Provider storage entry = _providers[msg.sender];
        uint64 amount = entry.unbonding;
        if (amount == 0 || block.timestamp < entry.readyAt) revert NotReady(amount, entry.readyAt);
        entry.unbonding = 0;
        entry.readyAt = 0;
        emit StakeChanged(msg.sender, entry.stake, 0, 0);
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

    // -- nodes and offers

    function registerNode(address node, bytes32 r, bytes32 vs) external {
        _onlyStaked();
        Node memory entry = _nodes[node];
        if (entry.provider == msg.sender) revert AlreadyBound(node, msg.sender);
        address signer = Signatures.recover(_bindingDigest(node, msg.sender, entry.nonce), r, vs);
        if (signer == address(0) || signer != node) revert BadNodeSignature(node, signer);
        if (entry.provider != address(0)) _retire(node, entry);
        _nodes[node] = Node(msg.sender, entry.nonce + 1);
        emit NodeRegistered(node, msg.sender, entry.nonce);
    }

    function retireNode(address node) external {
        Node memory entry = _onlyProviderOf(node);
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
        _onlyProviderOf(node);
        _onlyStaked();
        if (specHash == 0) revert Zero("specHash");
        if (classes == 0 || classes & ~KNOWN_CLASSES != 0) revert UnknownClasses(classes);
        if (classes & SIMULATED != 0 && !ALLOW_SIMULATED) revert SimulatedRefused(classes);
        _offers[node] = Offer(specHash, classes, specCid);
        emit OfferSet(node, msg.sender, specHash, classes, specCid);
    }

    function closeOffer(address node) external {
        _onlyProviderOf(node);
        if (_offers[node].specHash == 0) revert NoOffer(node);
        _closeOffer(node, msg.sender);
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
        if (msg.sender != present) revert NotAuthority(msg.sender, present);
    }

    function _onlyStaked() private view {
        Provider storage entry = _providers[msg.sender];
        if (entry.payout == address(0) || entry.stake < MIN_STAKE) revert NotStaked(msg.sender, entry.stake, MIN_STAKE);
    }

    function _onlyProviderOf(address node) private view returns (Node memory entry) {
        entry = _nodes[node];
        if (entry.provider != msg.sender) revert NotNodeProvider(msg.sender, node, entry.provider);
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
