// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Blueprints} from "./Blueprints.sol";
import {Check} from "./Check.sol";
import {Trees} from "./Trees.sol";
import {Bond, ICourt, Shown, SignedHead, SignedPromise} from "../../src/interfaces/ICourt.sol";
import {Item2} from "../../src/interfaces/IVault.sol";
import {Court} from "../../src/Court.sol";
import {TestToken} from "../../src/TestToken.sol";
import {Signatures} from "../../src/lib/Signatures.sol";

/// The views of a vault that the court asks, as told.
contract VaultDouble {
    struct Account {
        address key;
        uint64 balance;
        uint32 until;
    }

    struct Key {
        uint64 capLeft;
        uint32 until;
        uint32 deadFrom;
        uint8 kind;
    }

    struct Authority {
        address signer;
        uint40 validUntil;
    }

    mapping(address => Account) public account;
    mapping(address => mapping(address => Key)) public keyOf;
    mapping(uint32 => Authority) public authorityOf;
    mapping(address => uint40) public withdrawnAt;
    mapping(address => mapping(address => uint64)) private _claimed;

    function setAccount(address renter, address key, uint64 balance, uint32 until) external {
        account[renter] = Account(key, balance, until);
    }

    function setKey(address renter, address key, uint32 until, uint32 deadFrom, uint8 kind) external {
        keyOf[renter][key] = Key(0, until, deadFrom, kind);
    }

    function setAuthority(uint32 epoch, address signer, uint40 validUntil) external {
        authorityOf[epoch] = Authority(signer, validUntil);
    }

    function setWithdrawnAt(address renter, uint40 moment) external {
        withdrawnAt[renter] = moment;
    }

    function setClaimed(address provider, address renter, uint64 claimed) external {
        _claimed[provider][renter] = claimed;
    }

    function pair(address provider, address renter) external view returns (uint64, uint64) {
        return (_claimed[provider][renter], 0);
    }

    function domainSeparator() public view returns (bytes32) {
        return Signatures.domain(keccak256("Selion Vault"), block.chainid, address(this));
    }
}

/// A court over a vault double, an authority with a bond, and helpers that sign heads, promises and vouchers.
abstract contract Courts is Check, Trees {
    uint256 internal constant AUTHORITY_KEY = 0xA0A0;
    uint256 internal constant SESSION_KEY = 0x5E55;
    uint64 internal constant PENALTY = 1000e6;
    uint64 internal constant DEPOSIT = 100e6;
    uint64 internal constant BOND = 5000e6;
    uint32 internal constant UNBOND_S = 7 days;
    uint32 internal constant ANSWER_S = 1 days;
    uint40 internal constant PRESENT = type(uint40).max;
    uint32 internal constant UNTIL = 2_000_000_000;

    address internal constant CONTROLLER = address(0xC0117801);
    address internal constant FORWARDER = address(0xF0F0);
    address internal constant ANYBODY = address(0xA2B0);
    address internal authority = vm.addr(AUTHORITY_KEY);
    address internal session = vm.addr(SESSION_KEY);
    address internal renter = address(0xBEEF01);
    address internal provider = address(0xBEEF02);

    TestToken internal token;
    VaultDouble internal vault;
    Court internal court;

    function setUp() public virtual {
        vm.warp(1_800_000_000);
        token = new TestToken();
        vault = new VaultDouble();
        vault.setAuthority(1, authority, PRESENT);
        court = make(address(token));
        stake(authority, BOND);
    }

    function make(address token_) internal returns (Court) {
        return make(CONTROLLER, address(vault), token_, Blueprints.reader());
    }

    function make(address controller, address vault_, address token_, address reader) internal returns (Court) {
        return new Court(controller, vault_, token_, PENALTY, UNBOND_S, ANSWER_S, FORWARDER, reader);
    }

    function fund(address who, uint256 amount) internal {
        token.mint(who, amount);
        vm.prank(who);
        token.approve(address(court), type(uint256).max);
    }

    function stake(address who, uint64 amount) internal {
        fund(who, amount);
        vm.prank(who);
        court.bond(amount);
    }

    function bondOf(address who) internal view returns (uint64) {
        return court.bondOf(who).bond;
    }

    function refuse(bytes4 selector, bytes memory arguments) internal {
        vm.expectRevert(bytes.concat(selector, arguments));
    }

    // -- signing

    function compact(uint256 key, bytes32 digest) internal pure returns (bytes32 r, bytes32 vs) {
        uint8 v;
        bytes32 s;
        (v, r, s) = vm.sign(key, digest);
        vs = bytes32(uint256(s) | uint256(v - 27) << 255);
    }

    function wrapped(string memory kind, bytes memory said) internal view returns (bytes32) {
        bytes memory all = abi.encodePacked(
            little(6, 4), "selion", little(bytes(kind).length, 4), kind, little(block.chainid, 8), CONTROLLER, said
        );
        return keccak256(abi.encodePacked("\x19Ethereum Signed Message:\n32", sha256(all)));
    }

    function digestOf(SignedHead memory head) internal view returns (bytes32) {
        return wrapped(
            "head",
            abi.encodePacked(
                little(head.size, 8), head.root, head.digest, little(head.epoch, 4), little(head.term, 8)
            )
        );
    }

    function sign(SignedHead memory head, uint256 key) internal view returns (SignedHead memory) {
        (head.r, head.vs) = compact(key, digestOf(head));
        return head;
    }

    function headOf(uint64 size, bytes32 root, bytes32 digest) internal view returns (SignedHead memory) {
        return sign(SignedHead(size, root, digest, 1, 7, 0, 0), AUTHORITY_KEY);
    }

    function digestOf(SignedPromise memory promised) internal view returns (bytes32) {
        bytes memory fence = abi.encodePacked(little(promised.epoch, 4), little(promised.term, 8));
        return wrapped("promise", abi.encodePacked(promised.account, little(promised.seq, 8), promised.leaf, fence));
    }

    function sign(SignedPromise memory promised, uint256 key) internal view returns (SignedPromise memory) {
        (promised.r, promised.vs) = compact(key, digestOf(promised));
        return promised;
    }

    function promiseOf(uint64 seq, bytes32 leaf) internal view returns (SignedPromise memory) {
        return sign(SignedPromise(renter, seq, leaf, 1, 7, 0, 0), AUTHORITY_KEY);
    }

    function voucher(address to, uint64 cumulative, uint64 usedThroughMs, uint256 key, uint256 authorityKey)
        internal
        view
        returns (Item2 memory item)
    {
        item.a = uint256(uint160(renter)) << 96 | uint256(cumulative) << 32 | 1;
        item.b = uint256(usedThroughMs) << 64 | 7;
        return resign(to, item, key, authorityKey);
    }

    function resign(address to, Item2 memory item, uint256 key, uint256 authorityKey)
        internal
        view
        returns (Item2 memory)
    {
        bytes32 digest = Signatures.voucher(vault.domainSeparator(), to, item.a, item.b);
        (item.r, item.vs) = compact(key, digest);
        (item.ar, item.avs) = compact(authorityKey, digest);
        return item;
    }
}
