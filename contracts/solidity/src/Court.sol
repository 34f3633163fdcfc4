// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {Bond, Case, ICourt, Owed, Shown, SignedHead, SignedPromise} from "./interfaces/ICourt.sol";
import {IVault, Item2} from "./interfaces/IVault.sol";
import {VoucherWords} from "./lib/Lanes.sol";
import {Coin} from "./lib/Coin.sol";
import {Evidence} from "./lib/Evidence.sol";
import {Relayed} from "./lib/Relayed.sol";
import {Signatures} from "./lib/Signatures.sol";

/// See {ICourt}.
/// @dev Tokens move through _move only, at the end of a call and under the guard; all other calls go to a view of
/// the vault, to the reader, which cannot change anything, and to precompiles. Arguments that only the reader looks at are
/// named for the ABI.
contract Court is ICourt, Relayed, ReentrancyGuardTransient {
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

    address public immutable controller;
    address public immutable vault;
    address public immutable token;
    address public immutable reader;
    uint64 public immutable penalty;
    uint32 public immutable unbondDelayS;
    uint32 public immutable answerDelayS;
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
        address forwarder_,
        address reader_
    ) Relayed(forwarder_) {
        (controller, vault, token, reader) = (controller_, vault_, token_, reader_);
        (penalty, unbondDelayS, answerDelayS) = (penalty_, unbondDelayS_, answerDelayS_);
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
        bytes32[] calldata pathInOne,
        bytes32 leafOfOther,
        bytes32[] calldata pathInOther
    ) external {
        _read();
        _punishFork(one, other);
    }

    function proveBrokenPromise(
        SignedPromise calldata promised,
        SignedHead memory head,
        bytes32 leaf,
        bytes32[] calldata path
    ) external {
        uint256[] memory said = _read();
        address authority = _signerOf(head);
        (address harmed, address signer) = (address(uint160(said[0])), address(uint160(said[1])));
        if (signer != authority) revert NotSigned(authority, signer);
        Case memory entry;
        (entry.authority, entry.harmed, entry.atRisk) = (authority, harmed, UNKNOWN);
        _punish(keccak256(abi.encode(BROKEN_PROMISE, head.epoch, harmed, said[2])), entry);
    }

    function proveOverPromise(Owed[] calldata vouchers) external {
        uint256[] memory said = _read(); // authority, sum, missing, 4 * 32, count, what each is owed
        (address authority, uint256 sum) = (address(uint160(said[0])), said[1]);
        uint256 a = vouchers[0].voucher.a;
        bytes32 case_ = keccak256(abi.encode(OVER_PROMISE, a.epoch(), a.renter()));
        uint64 taken = _begin(case_, authority);
        uint256 paid = _harmedPart(taken, said[2]);
        uint64 left = taken;
        for (uint256 i; i < vouchers.length; ++i) {
            uint64 share = uint64(paid * said[i + 5] / sum); // rounded down: the rest is burnt
            left -= share;
            _credit(vouchers[i].provider, case_, share);
        }
        _burn(authority, case_, taken, left);
    }

    // -- accusations

    function accuseOverBill(address provider, Item2 calldata voucher) external {
        (address renter, uint64 cumulative) = (voucher.a.renter(), voucher.a.cumulative());
        Case memory entry;
        (entry.authority, entry.harmed, entry.atRisk) = (address(uint160(_read()[0])), renter, cumulative);
        _accuse(_overBill(entry.authority, renter, provider, cumulative), entry);
    }

    function answerOverBill(uint64 cumulative, SignedHead memory head, Shown calldata due) external {
        uint256[] memory said = _read();
        (address renter, address provider) = (address(uint160(said[0])), address(uint160(said[1])));
        bytes32 case_ = _overBill(_signerOf(head), renter, provider, cumulative);
        _acquit(case_, _close(case_));
    }

    function accuseDoubleLease(SignedHead memory head, Shown calldata first, Shown calldata second) external {
        uint256[] memory said = _read();
        Case memory entry;
        (entry.authority, entry.harmed, entry.atRisk) = (_signerOf(head), address(uint160(said[2])), UNKNOWN);
        entry.places = said[3];
        _accuse(_doubleLease(entry.authority, said[0], said[1]), entry);
    }

    function answerDoubleLease(uint256 second, SignedHead memory head, Shown calldata freed) external {
        uint256[] memory said = _read();
        bytes32 case_ = _doubleLease(_signerOf(head), said[0], second);
        Case memory entry = _close(case_);
        uint256 places = _cases[case_].places;
        (uint128 place, uint128 first, uint128 last) = (uint128(said[1]), uint128(places >> 128), uint128(places));
        if (place <= first || place >= last) revert OutOfOrder(place, first, last);
        _acquit(case_, entry);
    }

    function convict(bytes32 case_) external {
        Case memory entry = _close(case_);
        if (block.timestamp <= entry.by) revert TooEarly(case_, entry.by);
        _cases[case_].state = PUNISHED;
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

    // -- inside: who signed

    function _pool() private view returns (bytes32) {
        return Evidence.poolOf(block.chainid, controller);
    }

    /// The authority of the head's epoch, if it signed the head.
    function _signerOf(SignedHead memory head) private view returns (address authority) {
        (authority,) = IVault(vault).authorityOf(head.epoch);
        _requireSigned(authority, Evidence.digestOf(head, _pool()), head.r, head.vs);
    }

    function _requireSigned(address by, bytes32 digest, bytes32 r, bytes32 vs) private view {
        address recovered = Signatures.recover(digest, r, vs);
        if (by == address(0) || recovered != by) revert NotSigned(by, recovered);
    }

    /// The words that the reader's function of the same name answers to this very call. Not typed: it is asked with the
    /// bytes that came, so that nothing is decoded here that only it looks at.
    function _read() private view returns (uint256[] memory said) {
        address asked = reader;
        assembly ("memory-safe") {
            said := mload(0x40)
            let words := add(said, 0x20)
            calldatacopy(words, 0, calldatasize())
            let done := staticcall(gas(), asked, words, calldatasize(), 0, 0)
            returndatacopy(words, 0, returndatasize())
            // Silence is no answer: an account without code refuses nothing.
            if iszero(and(done, gt(returndatasize(), 0))) { revert(words, returndatasize()) }
            mstore(said, shr(5, returndatasize()))
            mstore(0x40, add(words, returndatasize()))
        }
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
        (entry.accuser, entry.by) = (_caller(), uint40(block.timestamp + answerDelayS));
        Case storage kept = _cases[case_];
        (kept.authority, kept.by, kept.state) = (entry.authority, entry.by, OPEN);
        (kept.accuser, kept.atRisk, kept.harmed) = (entry.accuser, entry.atRisk, entry.harmed);
        if (entry.places != 0) kept.places = entry.places;
        emit Accused(entry.authority, case_, entry.by);
        emit Charged(case_, entry.accuser, entry.harmed, entry.atRisk, entry.places);
        _move(entry.accuser, address(this), deposit());
    }

    function _acquit(bytes32 case_, Case memory entry) private {
        _cases[case_].state = ACQUITTED;
        _credit(entry.authority, case_, deposit());
        emit Acquitted(case_);
    }

    /// Takes what an open case holds beside who is accused and until when. Its places are neither read nor cleared: most
    /// cases have none. The caller tells how it ended.
    function _close(bytes32 case_) private returns (Case memory entry) {
        Case storage kept = _cases[case_];
        if (kept.state != OPEN) revert NotAccused(case_);
        (entry.authority, entry.by) = (kept.authority, kept.by);
        (entry.accuser, entry.atRisk, entry.harmed) = (kept.accuser, kept.atRisk, kept.harmed);
        (kept.accuser, kept.atRisk, kept.harmed) = (address(0), 0, address(0));
        _bonds[entry.authority].open -= 1;
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
}
