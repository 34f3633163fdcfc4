// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {Bond, Case, ICourt, IWithdrawals, Owed, Shown, SignedHead, SignedPromise} from "./interfaces/ICourt.sol";
import {IVault, Item2} from "./interfaces/IVault.sol";
import {KeyWord, VoucherWords} from "./lib/Lanes.sol";
import {Coin} from "./lib/Coin.sol";
import {Evidence} from "./lib/Evidence.sol";
import {Signatures} from "./lib/Signatures.sol";

/// See {ICourt}.
/// @dev Tokens move through _move only, at the end of a call and under the guard; all other calls go to the vault's
/// views and to precompiles.
contract Court is ICourt, ReentrancyGuardTransient {
    using VoucherWords for uint256;

    uint8 private constant FORK = 1;
    uint8 private constant BROKEN_PROMISE = 2;
    uint8 private constant OVER_PROMISE = 3;
    uint8 private constant OVER_BILL = 4;
    uint8 private constant DOUBLE_LEASE = 5;

    uint8 private constant OPEN = 1;
    uint8 private constant PUNISHED = 2;
    uint8 private constant ACQUITTED = 3;

    /// The harm cannot be counted.
    uint64 private constant UNKNOWN = type(uint64).max;
    /// The end of a signer's validity while its epoch is the present one.
    uint40 private constant PRESENT = type(uint40).max;

    address public immutable controller;
    address public immutable vault;
    address public immutable token;
    uint64 public immutable penalty;
    uint32 public immutable unbondDelayS;
    uint32 public immutable answerDelayS;
    address private immutable FORWARDER;
    uint256 private immutable SCALE;

    /// What an account was credited and collected: both only rise.
    struct Credit {
        uint64 credited;
        uint64 collected;
    }

    mapping(address => Bond) private _bonds;
    mapping(address => Credit) private _credits;
    mapping(bytes32 => Case) private _cases;
    /// One more than what is burnt, so that the first burning costs no new slot.
    uint64 private _burnt = 1;

    constructor(
        address controller_,
        address vault_,
        address token_,
        uint64 penalty_,
        uint32 unbondDelayS_,
        uint32 answerDelayS_,
        address forwarder_
    ) {
        (controller, vault, token) = (controller_, vault_, token_);
        (penalty, unbondDelayS, answerDelayS) = (penalty_, unbondDelayS_, answerDelayS_);
        FORWARDER = forwarder_;
        SCALE = Coin.scaleOf(token_);
    }

    // -- bonds

    function bond(uint64 amount) external {
        if (amount == 0) revert Zero("amount");
        address who = _caller();
        _bonds[who].bond += amount; // checked: reverts above 64 bits
        _emitBond(who);
        _move(who, address(this), amount);
    }

    function unbond(uint64 amount) external {
        if (amount == 0) revert Zero("amount");
        address who = _caller();
        Bond storage entry = _bonds[who];
        uint64 free = entry.bond - entry.unbonding;
        if (amount > free) revert BondTooLow(amount, free);
        entry.unbonding += amount;
        entry.readyAt = uint40(block.timestamp + unbondDelayS);
        _emitBond(who);
    }

    function withdrawBond(address to) external {
        address who = _caller();
        Bond memory entry = _bonds[who];
        uint64 amount = entry.unbonding;
        if (amount == 0 || block.timestamp < entry.readyAt) revert NotReady(amount, entry.readyAt);
        if (entry.open != 0) revert UnderAccusation(who, entry.open);
        _bonds[who] = Bond(entry.bond - amount, 0, 0, 0);
        _emitBond(who);
        _move(address(this), to, amount);
    }

    function collect(address to) external {
        address who = _caller();
        Credit storage entry = _credits[who];
        uint64 due = entry.credited - entry.collected;
        if (due == 0) revert NothingDue(who);
        entry.collected = entry.credited;
        emit Collected(who, to, due);
        _move(address(this), to, due);
    }

    // -- proofs

    function proveTwoHeads(SignedHead memory one, SignedHead memory other) external {
        if (one.size != other.size) revert OtherSize(one.size, other.size);
        if (one.root == other.root && one.digest == other.digest) revert SameHead(one.size);
        _punishFork(one, other);
    }

    function proveFork(
        SignedHead memory one,
        SignedHead memory other,
        uint64 index,
        bytes32 leafOfOne,
        bytes32[] memory pathInOne,
        bytes32 leafOfOther,
        bytes32[] memory pathInOther
    ) external {
        if (leafOfOne == leafOfOther) revert SameLeaf(leafOfOne);
        Evidence.prove(leafOfOne, index, one.size, pathInOne, one.root);
        Evidence.prove(leafOfOther, index, other.size, pathInOther, other.root);
        _punishFork(one, other);
    }

    function proveBrokenPromise(
        SignedPromise memory promised,
        SignedHead memory head,
        bytes32 leaf,
        bytes32[] memory path
    ) external {
        if (promised.epoch != head.epoch) revert OtherEpoch(promised.epoch, head.epoch);
        if (promised.leaf == leaf) revert SameLeaf(leaf);
        address authority = _signerOf(head);
        _requireSigned(authority, Evidence.digestOf(promised, _pool()), promised.r, promised.vs);
        Evidence.prove(leaf, promised.seq, head.size, path, head.root);
        Case memory entry;
        (entry.authority, entry.harmed, entry.atRisk) = (authority, promised.account, UNKNOWN);
        _punish(keccak256(abi.encode(BROKEN_PROMISE, promised.epoch, promised.account, promised.seq)), entry);
    }

    function proveOverPromise(Owed[] memory vouchers) external {
        if (vouchers.length == 0) revert Zero("vouchers");
        uint256 a = vouchers[0].voucher.a;
        (address renter, uint32 epoch) = (a.renter(), a.epoch());
        (address authority, uint256 sinceMs) = _presentAuthority(epoch, renter);
        (address own, uint64 balance, uint32 until) = _accountOf(renter);
        uint256[] memory owed = new uint256[](vouchers.length);
        uint256 sum;
        address last;
        for (uint256 i; i < vouchers.length; ++i) {
            (address provider, Item2 memory voucher) = (vouchers[i].provider, vouchers[i].voucher);
            if (provider <= last) revert NotAscending(provider);
            last = provider;
            // One renter and one epoch: the ends of the word.
            if ((voucher.a ^ a) & ~(uint256(type(uint64).max) << 32) != 0) revert OtherRenter(voucher.a);
            uint64 usedThroughMs = voucher.b.usedThroughMs();
            if (usedThroughMs <= sinceMs) revert TooOld(usedThroughMs, sinceMs);
            address key = _keyOf(authority, provider, voucher);
            if (key != own || usedThroughMs > uint256(until) * 1000) {
                // A delegated or retired key as the vault would take it now. What a cap leaves is promised all the same.
                (uint32 end, uint32 deadFrom, uint8 kind) = _otherKey(renter, key);
                bool dead = deadFrom != 0 && block.timestamp >= deadFrom;
                if (kind == KeyWord.NONE || dead || usedThroughMs > uint256(end) * 1000) {
                    revert BadKey(key, usedThroughMs);
                }
            }
            (uint64 claimed,) = IVault(vault).pair(provider, renter);
            if (voucher.a.cumulative() > claimed) sum += owed[i] = voucher.a.cumulative() - claimed;
        }
        if (sum <= balance) revert WithinBalance(sum, balance);
        bytes32 case_ = keccak256(abi.encode(OVER_PROMISE, epoch, renter));
        uint64 taken = _begin(case_, authority);
        uint256 paid = _harmedPart(taken, sum - balance);
        uint64 left = taken;
        for (uint256 i; i < vouchers.length; ++i) {
            uint64 share = uint64(paid * owed[i] / sum); // rounded down: the rest is burnt
            left -= share;
            _credit(vouchers[i].provider, case_, share);
        }
        _burn(authority, case_, taken, left);
    }

    // -- accusations

    function accuseOverBill(address provider, Item2 memory voucher) external {
        address renter = voucher.a.renter();
        uint64 cumulative = voucher.a.cumulative();
        if (cumulative == 0) revert Zero("cumulative");
        (address authority,) = _authorityOf(voucher.a.epoch());
        address key = _keyOf(authority, provider, voucher);
        (,, uint8 kind) = _otherKey(renter, key);
        (address own,,) = _accountOf(renter);
        if (kind != KeyWord.DELEGATED || key == own) revert NotDelegated(key, kind);
        Case memory entry;
        (entry.authority, entry.harmed, entry.atRisk) = (authority, renter, cumulative);
        _accuse(_overBill(authority, renter, provider, cumulative), entry);
    }

    function answerOverBill(uint64 cumulative, SignedHead memory head, Shown memory due) external {
        address authority = _signerOf(head);
        Evidence.prove(due, head);
        (address renter, address provider, uint64 total) = Evidence.voucherDueOf(due.effect);
        if (total < cumulative) revert BelowVoucher(total, cumulative);
        bytes32 case_ = _overBill(authority, renter, provider, cumulative);
        _acquit(case_, _close(case_));
    }

    function accuseDoubleLease(SignedHead memory head, Shown memory first, Shown memory second) external {
        address authority = _signerOf(head);
        (uint128 from,) = Evidence.prove(first, head);
        (uint128 to, uint32 epoch) = Evidence.prove(second, head);
        if (epoch != head.epoch) revert OtherEpoch(epoch, head.epoch);
        if (from >= to) revert OutOfOrder(from, 0, to);
        (uint256 earlier,) = Evidence.grantOf(first.effect);
        (uint256 later, address renter) = Evidence.grantOf(second.effect);
        if (earlier == later || !Evidence.overlap(first.effect, second.effect)) revert NoOverlap(earlier, later);
        Case memory entry;
        (entry.authority, entry.harmed, entry.atRisk) = (authority, renter, UNKNOWN);
        entry.places = uint256(from) << 128 | to;
        _accuse(_doubleLease(authority, earlier, later), entry);
    }

    function answerDoubleLease(uint256 second, SignedHead memory head, Shown memory freed) external {
        address authority = _signerOf(head);
        (uint128 place,) = Evidence.prove(freed, head);
        bytes32 case_ = _doubleLease(authority, Evidence.freedOf(freed.effect), second);
        Case memory entry = _close(case_);
        (uint128 first, uint128 last) = (uint128(entry.places >> 128), uint128(entry.places));
        if (place <= first || place >= last) revert OutOfOrder(place, first, last);
        _acquit(case_, entry);
    }

    function convict(bytes32 case_) external {
        Case memory entry = _close(case_);
        if (block.timestamp <= entry.by) revert TooEarly(case_, entry.by);
        _end(case_, entry, PUNISHED);
        _credit(entry.accuser, case_, deposit());
        _share(case_, entry, _take(entry.authority));
    }

    // -- reading

    function bondOf(address authority) external view returns (Bond memory) {
        return _bonds[authority];
    }

    function caseOf(bytes32 case_) external view returns (Case memory) {
        return _cases[case_];
    }

    function credit(address account) external view returns (uint64) {
        return _credits[account].credited - _credits[account].collected;
    }

    function burnt() external view returns (uint64) {
        return _burnt - 1;
    }

    function deposit() public view returns (uint64) {
        return (penalty / 10) + (penalty % 10 == 0 ? 0 : 1);
    }

    function isTrustedForwarder(address forwarder) external view returns (bool) {
        return forwarder == FORWARDER;
    }

    // -- inside: who signed

    function _pool() private view returns (bytes32) {
        return Evidence.poolOf(block.chainid, controller);
    }

    function _authorityOf(uint32 epoch) private view returns (address, uint40) {
        return IVault(vault).authorityOf(epoch);
    }

    /// The authority of the head's epoch, if it signed the head.
    function _signerOf(SignedHead memory head) private view returns (address authority) {
        (authority,) = _authorityOf(head.epoch);
        _requireSigned(authority, Evidence.digestOf(head, _pool()), head.r, head.vs);
    }

    function _requireSigned(address by, bytes32 digest, bytes32 r, bytes32 vs) private view {
        address recovered = Signatures.recover(digest, r, vs);
        if (by == address(0) || recovered != by) revert NotSigned(by, recovered);
    }

    /// The renter's key that signed a voucher which the authority countersigned.
    function _keyOf(address authority, address provider, Item2 memory voucher) private view returns (address key) {
        bytes32 digest = Signatures.voucher(IVault(vault).domainSeparator(), provider, voucher.a, voucher.b);
        _requireSigned(authority, digest, voucher.ar, voucher.avs);
        key = Signatures.recover(digest, voucher.r, voucher.vs);
        if (key == address(0) || key == authority) revert BadKey(key, voucher.b.usedThroughMs());
    }

    function _accountOf(address renter) private view returns (address key, uint64 balance, uint32 until) {
        return IVault(vault).account(renter);
    }

    function _otherKey(address renter, address key) private view returns (uint32 until, uint32 deadFrom, uint8 kind) {
        (, until, deadFrom, kind) = IVault(vault).keyOf(renter, key);
    }

    /// The authority of the present epoch, and the moment before which its promises prove nothing: see {ICourt}, d.
    function _presentAuthority(uint32 epoch, address renter) private view returns (address authority, uint256 sinceMs) {
        uint40 validUntil;
        (authority, validUntil) = _authorityOf(epoch);
        if (validUntil != PRESENT) revert NotPresent(epoch);
        (, validUntil) = _authorityOf(epoch - 1); // epoch 0 never was: nothing
        uint256 since = uint256(validUntil) + answerDelayS;
        uint256 withdrawn = IWithdrawals(vault).withdrawnAt(renter);
        sinceMs = (withdrawn > since ? withdrawn : since) * 1000;
    }

    // -- inside: cases

    function _overBill(address authority, address renter, address provider, uint64 cumulative)
        private
        pure
        returns (bytes32)
    {
        return keccak256(abi.encode(OVER_BILL, authority, renter, provider, cumulative));
    }

    function _doubleLease(address authority, uint256 earlier, uint256 later) private pure returns (bytes32) {
        return keccak256(abi.encode(DOUBLE_LEASE, authority, earlier, later));
    }

    function _punishFork(SignedHead memory one, SignedHead memory other) private {
        if (one.epoch != other.epoch) revert OtherEpoch(one.epoch, other.epoch);
        Case memory entry; // nobody is harmed more than others: all is burnt
        entry.authority = _signerOf(one);
        _signerOf(other);
        _punish(keccak256(abi.encode(FORK, one.epoch)), entry);
    }

    /// Punishes a case that needs no answer.
    function _punish(bytes32 case_, Case memory entry) private {
        _share(case_, entry, _begin(case_, entry.authority));
    }

    /// Takes the penalty for a case that needs no answer, unless it was punished before or there is nothing to take.
    function _begin(bytes32 case_, address authority) private returns (uint64 taken) {
        _requireNew(case_);
        Case storage entry = _cases[case_];
        (entry.authority, entry.state) = (authority, PUNISHED);
        taken = _take(authority);
        if (taken == 0) revert NothingAtStake(authority);
    }

    function _requireNew(bytes32 case_) private view {
        uint8 state = _cases[case_].state;
        if (state == PUNISHED) revert AlreadyPunished(case_);
        if (state != 0) revert AlreadyAccused(case_, state);
    }

    function _accuse(bytes32 case_, Case memory entry) private {
        _requireNew(case_);
        Bond storage staked = _bonds[entry.authority];
        if (staked.bond == 0 || penalty == 0) revert NothingAtStake(entry.authority);
        staked.open += 1;
        (entry.accuser, entry.by, entry.state) = (_caller(), uint40(block.timestamp + answerDelayS), OPEN);
        _cases[case_] = entry;
        emit Accused(entry.authority, case_, entry.by);
        emit Charged(case_, entry.accuser, entry.harmed, entry.atRisk, entry.places);
        _move(entry.accuser, address(this), deposit());
    }

    function _acquit(bytes32 case_, Case memory entry) private {
        _end(case_, entry, ACQUITTED);
        _credit(entry.authority, case_, deposit());
        emit Acquitted(case_);
    }

    /// Takes an open case off the list.
    function _close(bytes32 case_) private returns (Case memory entry) {
        entry = _cases[case_];
        if (entry.state != OPEN) revert NotAccused(case_);
        delete _cases[case_];
        _bonds[entry.authority].open -= 1;
    }

    /// Keeps how a case ended.
    function _end(bytes32 case_, Case memory entry, uint8 state) private {
        Case storage kept = _cases[case_];
        (kept.authority, kept.by, kept.state) = (entry.authority, entry.by, state);
    }

    // -- inside: money

    /// Takes min(bond, penalty) from what the authority has at stake, from what unbonds last.
    function _take(address authority) private returns (uint64 taken) {
        Bond storage entry = _bonds[authority];
        uint64 left = entry.bond;
        taken = left < penalty ? left : penalty;
        left -= taken;
        entry.bond = left;
        if (entry.unbonding > left) entry.unbonding = left;
        _emitBond(authority);
    }

    /// What of a penalty goes to the harmed.
    function _harmedPart(uint64 taken, uint256 atRisk) private pure returns (uint64) {
        uint64 half = taken / 2;
        return atRisk < half ? uint64(atRisk) : half;
    }

    /// Gives the harmed their part of a penalty, and burns the rest.
    function _share(bytes32 case_, Case memory entry, uint64 taken) private {
        uint64 paid = _harmedPart(taken, entry.atRisk);
        _credit(entry.harmed, case_, paid);
        _burn(entry.authority, case_, taken, taken - paid);
    }

    function _credit(address account, bytes32 case_, uint64 amount) private {
        if (amount == 0) return;
        _credits[account].credited += amount; // checked
        emit Credited(account, case_, amount);
    }

    function _burn(address authority, bytes32 case_, uint64 taken, uint64 amount) private {
        _burnt += amount; // checked
        emit Slashed(authority, case_, taken, amount);
    }

    function _emitBond(address who) private {
        Bond memory entry = _bonds[who];
        emit BondChanged(who, entry.bond, entry.unbonding, entry.readyAt);
    }

    /// The only way in and out for tokens; what the court owes is written before.
    function _move(address from, address to, uint64 amount) private nonReentrant {
        if (from != address(this)) return Coin.take(token, SCALE, from, amount);
        if (to == address(0) || to == from) revert BadPayee(to);
        Coin.pay(token, SCALE, to, amount);
    }

    /// Who calls: for a call by the forwarder, the account in its last 20 bytes (ERC-2771), whose signature it checked.
    function _caller() private view returns (address) {
        if (msg.sender != FORWARDER || msg.data.length < 20) return msg.sender;
        return address(bytes20(msg.data[msg.data.length - 20:]));
    }
}
