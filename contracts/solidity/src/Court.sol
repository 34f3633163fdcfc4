// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {Epoch, IController} from "./interfaces/IController.sol";
import {Bond, ICourt, Leaves, SignedHead, SignedPromise, SignedReport} from "./interfaces/ICourt.sol";
import {IVault} from "./interfaces/IVault.sol";
import {Coin} from "./lib/Coin.sol";
import {Evidence} from "./lib/Evidence.sol";
import {Relayed} from "./lib/Relayed.sol";
import {Signatures} from "./lib/Signatures.sol";

/// See {ICourt}.
/// @dev Tokens move at the end of a call and under the guard; all other calls go to the pool's own contracts.
contract Court is ICourt, Relayed, ReentrancyGuardTransient {
    address public immutable controller;
    address public immutable vault;
    address public immutable token;
    uint32 public immutable unbondDelayS;
    uint64 public immutable minBond;
    uint256 private immutable SCALE;

    mapping(address => Bond) private _bonds;
    mapping(uint32 => bool) public convicted;
    uint64 public burnt;

    constructor(
        address controller_,
        address vault_,
        address token_,
        uint32 unbondDelayS_,
        uint64 minBond_,
        address forwarder_
    ) Relayed(forwarder_) {
        (controller, vault, token) = (controller_, vault_, token_);
        (unbondDelayS, minBond) = (unbondDelayS_, minBond_);
        SCALE = Coin.scaleOf(token_);
    }

    // -- bonds

    function bond(uint64 amount) external nonReentrant {
        if (amount == 0) revert Zero("amount");
        address who = _caller();
        Bond memory entry = bondOf(who);
        uint256 whole = uint256(entry.kept) + entry.leaving + amount;
        if (whole > type(uint64).max) revert BondTooLow(amount, entry.kept, 0);
        entry.kept += amount;
        _keep(who, entry);
        Coin.take(token, SCALE, who, amount);
    }

    function unbond(uint64 amount) external {
        if (amount == 0) revert Zero("amount");
        address who = _caller();
        Bond memory entry = bondOf(who);
        uint64 least = who == IController(controller).owner() ? minBond : 0;
        if (uint256(amount) + least > entry.kept) revert BondTooLow(amount, entry.kept, least);
        (entry.kept, entry.leaving) = (entry.kept - amount, entry.leaving + amount);
        entry.readyAt = uint40(block.timestamp + unbondDelayS);
        _keep(who, entry);
    }

    function withdrawBond(address to) external nonReentrant {
        _refuseAsPayee(to);
        address who = _caller();
        Bond memory entry = bondOf(who);
        if (entry.leaving == 0 || block.timestamp < entry.readyAt) revert NotReady(entry.leaving, entry.readyAt);
        _keep(who, Bond(entry.kept, 0, 0));
        Coin.pay(token, SCALE, to, entry.leaving);
    }

    function forfeit(address owner) external {
        // The sender itself: a controller signs no requests.
        if (msg.sender != controller) revert NotController(msg.sender);
        uint64 amount = _takeAll(owner);
        if (amount == 0) return;
        burnt += amount;
        emit Forfeited(owner, amount);
    }

    // -- contradictions

    function proveFork(SignedHead calldata one, SignedHead calldata other, Leaves calldata leaves, address payee)
        external
    {
        _requireStated(other);
        _requireOneStory(one, _requireStated(one), other.epoch);
        if (one.size == other.size) {
            if (one.root == other.root && one.digest == other.digest) revert NoContradiction();
        } else {
            if (leaves.leafOfOne == leaves.leafOfOther) revert NoContradiction();
            Evidence.prove(leaves.leafOfOne, leaves.index, one.size, leaves.pathInOne, one.root);
            Evidence.prove(leaves.leafOfOther, leaves.index, other.size, leaves.pathInOther, other.root);
        }
        _convict(other.epoch, payee);
    }

    function proveBrokenPromise(
        SignedPromise calldata promised,
        SignedHead calldata head,
        bytes32 leaf,
        bytes32[] calldata path,
        address payee
    ) external {
        _requireAuthority(promised.epoch, Evidence.digestOf(promised, _pool()), promised.r, promised.vs);
        _requireOneStory(head, _requireStated(head), promised.epoch);
        if (promised.leaf == leaf) revert NoContradiction();
        Evidence.prove(leaf, promised.seq, head.size, path, head.root);
        _convict(promised.epoch, payee);
    }

    function proveTwoReports(SignedReport calldata one, SignedReport calldata other, address payee) external {
        if (!Evidence.contradict(one.report, other.report)) revert NoContradiction();
        (address node, address provider) = Evidence.speakerOf(one.report);
        _requireSigned(node, Evidence.digestOf(one.report, _pool()), one.r, one.vs);
        _requireSigned(node, Evidence.digestOf(other.report, _pool()), other.r, other.vs);
        IController(controller).forfeitStake(node, provider, payee);
    }

    // -- reading

    function bondOf(address owner) public view returns (Bond memory entry) {
        entry = _bonds[owner];
        if (entry.leaving != 0 && block.timestamp > uint256(entry.readyAt) + unbondDelayS) {
            entry = Bond(entry.kept + entry.leaving, 0, 0);
        }
    }

    function atStake(uint32 epoch) external view returns (uint64) {
        return convicted[epoch] ? 0 : bondOf(IController(controller).ownerOf(epoch)).kept;
    }

    // -- inside

    /// Reverts unless the epoch's authority signed the head, or anchored it last in its epoch. Returns whether it is an anchor.
    function _requireStated(SignedHead calldata head) private view returns (bool anchored) {
        if (head.r != 0 || head.vs != 0) {
            _requireAuthority(head.epoch, Evidence.digestOf(head, _pool()), head.r, head.vs);
            return false;
        }
        Epoch memory entry = IController(controller).epochOf(head.epoch);
        bytes32 anchor = keccak256(abi.encode(head.root, head.digest));
        // Where only the first half was kept, only that can be compared.
        if (uint128(uint256(entry.anchor)) == 0) anchor = bytes32(bytes16(anchor));
        if (entry.anchor == 0 || entry.anchor != anchor || entry.size != head.size) {
            revert NotAnchored(head.epoch, head.size);
        }
        return true;
    }

    /// Reverts unless who speaks in `epoch` answers for the head: it is of that epoch, or it is what that epoch began with.
    function _requireOneStory(SignedHead calldata head, bool anchored, uint32 epoch) private pure {
        bool before = anchored && uint256(head.epoch) + 1 == epoch;
        if (head.epoch != epoch && !before) revert OtherEpoch(head.epoch, epoch);
    }

    function _requireAuthority(uint32 epoch, bytes32 digest, bytes32 r, bytes32 vs) private view {
        (address authority,) = IVault(vault).authorityOf(epoch);
        _requireSigned(authority, digest, r, vs);
    }

    function _requireSigned(address by, bytes32 digest, bytes32 r, bytes32 vs) private view {
        address recovered = Signatures.recover(digest, r, vs);
        if (recovered == address(0) || recovered != by) revert NotSigned(by, recovered);
    }

    function _pool() private view returns (bytes28) {
        return Evidence.poolOf(block.chainid, controller);
    }

    /// Takes all that the epoch's owner has at stake: a tenth for `payee`, the rest for nobody.
    function _convict(uint32 epoch, address payee) private nonReentrant {
        if (convicted[epoch]) revert AlreadyConvicted(epoch);
        _refuseAsPayee(payee);
        address owner = IController(controller).ownerOf(epoch);
        uint64 amount = _takeAll(owner);
        if (amount == 0) revert NothingAtStake(owner);
        convicted[epoch] = true;
        uint64 reward = amount / 10;
        burnt += amount - reward;
        emit Convicted(owner, epoch, amount, payee);
        if (reward != 0) Coin.pay(token, SCALE, payee, reward);
    }

    function _takeAll(address owner) private returns (uint64 amount) {
        Bond memory entry = _bonds[owner];
        amount = entry.kept + entry.leaving;
        if (amount != 0) _keep(owner, Bond(0, 0, 0));
    }

    function _keep(address owner, Bond memory entry) private {
        _bonds[owner] = entry;
        emit BondChanged(owner, entry.kept, entry.leaving, entry.readyAt);
    }

    function _refuseAsPayee(address payee) private view {
        if (payee == address(0) || payee == address(this) || payee == controller || payee == vault) {
            revert BadPayee(payee);
        }
    }
}
