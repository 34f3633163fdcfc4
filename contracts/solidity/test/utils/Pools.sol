// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Blueprints} from "./Blueprints.sol";
import {Check} from "./Check.sol";
import {PoolConfig} from "../../src/interfaces/PoolConfig.sol";
import {Item, Item2} from "../../src/interfaces/IVault.sol";
import {Controller} from "../../src/Controller.sol";
import {Court} from "../../src/Court.sol";
import {Forwarder} from "../../src/Forwarder.sol";
import {IPoolFactory} from "../../src/interfaces/IPoolFactory.sol";
import {TestToken} from "../../src/TestToken.sol";
import {Vault} from "../../src/Vault.sol";

/// A pool with a token, an authority, and helpers that sign as everybody.
abstract contract Pools is Check {
    uint256 internal constant AUTHORITY_KEY = 0xA0A0;
    uint256 internal constant SESSION_KEY = 0x5E55;
    uint256 internal constant HEIR_KEY = 0x4E14;
    uint16 internal constant FEE_BPS = 200;
    uint32 internal constant THAW_S = 3 days;
    uint32 internal constant UNBOND_S = 7 days;
    uint32 internal constant GRACE_S = 1 days;
    uint64 internal constant MIN_STAKE = 100e6;
    uint64 internal constant MIN_BOND = 500e6;
    uint32 internal constant HAND_OVER_S = 2 days;
    uint32 internal constant TAKE_OVER_S = 1 hours;
    uint32 internal constant UNTIL = 2_000_000_000;

    address internal authority = vm.addr(AUTHORITY_KEY);
    address internal session = vm.addr(SESSION_KEY);
    address internal heir = vm.addr(HEIR_KEY);
    address internal owner = address(0xBEEF00);
    address internal renter = address(0xBEEF01);
    address internal provider = address(0xBEEF02);

    TestToken internal token;
    IPoolFactory internal factory;
    Forwarder internal forwarder;
    Controller internal controller;
    Vault internal vault;

    function setUp() public virtual {
        vm.warp(1_800_000_000);
        token = new TestToken();
        factory = IPoolFactory(Blueprints.factory());
        forwarder = Forwarder(factory.forwarder());
        (controller, vault) = open(terms(address(token)));
    }

    function terms(address token_) internal view returns (PoolConfig memory) {
        return PoolConfig({
            token: token_,
            owner: owner,
            authority: authority,
            feeBps: FEE_BPS,
            thawDelayS: THAW_S,
            unbondDelayS: UNBOND_S,
            minStake: MIN_STAKE,
            finalityDepth: 0,
            graceS: GRACE_S,
            allowSimulated: false,
            allowUnsandboxed: false,
            minBond: MIN_BOND,
            handOverDelayS: HAND_OVER_S,
            takeOverAfterS: TAKE_OVER_S,
            metadataCid: ""
        });
    }

    function open(PoolConfig memory config) internal returns (Controller, Vault) {
        (address c, address v) = factory.create(config);
        return (Controller(c), Vault(v));
    }

    // -- people

    function fund(address who, uint256 amount) internal {
        token.mint(who, amount);
        vm.prank(who);
        token.approve(address(vault), type(uint256).max);
        vm.prank(who);
        token.approve(address(controller), type(uint256).max);
    }

    /// `who` is a provider with the least stake, paid itself.
    function join(address who) internal {
        fund(who, MIN_STAKE);
        vm.prank(who);
        controller.registerProvider(who, MIN_STAKE);
    }

    /// `who` puts `amount` at stake in the court.
    function bond(address who, uint64 amount) internal {
        Court court_ = Court(controller.court());
        token.mint(who, amount);
        vm.prank(who);
        token.approve(address(court_), type(uint256).max);
        vm.prank(who);
        court_.bond(amount);
    }

    /// What the key signs to be `of_`'s authority in the next epoch.
    function consent(uint256 key, address of_) internal view returns (bytes32 r, bytes32 vs) {
        return compact(key, controller.authorityBindingDigest(vm.addr(key), of_));
    }

    /// The owner makes this key's the authority.
    function replace(uint256 key) internal {
        (bytes32 r, bytes32 vs) = consent(key, controller.owner());
        vm.prank(controller.owner());
        controller.replaceAuthority(vm.addr(key), r, vs);
    }

    /// The owner leaves the pool to `next`, who accepts it with this key's authority after the delay and a bond.
    function handOver(address next, uint256 key, bytes32 root, bytes32 digest) internal {
        bond(next, MIN_BOND);
        vm.prank(controller.owner());
        controller.announceOwner(next);
        (, uint40 readyAt) = controller.announced();
        vm.warp(readyAt);
        (bytes32 r, bytes32 vs) = consent(key, next);
        (, uint64 size,,) = controller.head();
        vm.prank(next);
        controller.acceptOwner(vm.addr(key), r, vs, size, root, digest);
    }

    /// `who` deposits and sets the session key of `key`.
    function enter(address who, uint64 amount, uint256 key) internal {
        fund(who, amount);
        vm.prank(who);
        vault.enter(amount, vm.addr(key), UNTIL);
    }

    // -- signing

    struct Voucher {
        address renter;
        address provider;
        uint64 cumulative;
        uint64 usedThroughMs;
        uint32 epoch;
        uint64 logSize;
    }

    function voucher(uint64 cumulative) internal view returns (Voucher memory) {
        return Voucher(renter, provider, cumulative, 1_800_000_000_000, 1, 7);
    }

    function words(Voucher memory v) internal pure returns (uint256 a, uint256 b) {
        a = uint256(uint160(v.renter)) << 96 | uint256(v.cumulative) << 32 | v.epoch;
        b = uint256(v.usedThroughMs) << 64 | v.logSize;
    }

    function compact(uint256 key, bytes32 digest) internal pure returns (bytes32 r, bytes32 vs) {
        uint8 v;
        bytes32 s;
        (v, r, s) = vm.sign(key, digest);
        vs = bytes32(uint256(s) | uint256(v - 27) << 255);
    }

    function sign(Voucher memory v, uint256 key, uint256 authorityKey) internal view returns (Item2 memory item) {
        (item.a, item.b) = words(v);
        bytes32 digest = vault.voucherDigest(v.provider, item.a, item.b);
        (item.r, item.vs) = compact(key, digest);
        (item.ar, item.avs) = compact(authorityKey, digest);
    }

    function sign(Voucher memory v) internal view returns (Item2 memory) {
        return sign(v, SESSION_KEY, AUTHORITY_KEY);
    }

    function one(Item2 memory item) internal pure returns (Item2[] memory items) {
        items = new Item2[](1);
        items[0] = item;
    }

    function single(Item2 memory item) internal pure returns (Item memory) {
        return Item(item.a, item.b, item.r, item.vs);
    }

    function batch(address to, uint32 epoch, Item[] memory items, uint256 key)
        internal
        view
        returns (bytes32 ar, bytes32 avs)
    {
        bytes memory digests;
        for (uint256 i; i < items.length; ++i) {
            digests = bytes.concat(digests, vault.voucherDigest(to, items[i].a, items[i].b));
        }
        return compact(key, vault.batchDigest(to, epoch, keccak256(digests)));
    }

    // -- reading

    function balanceOf(address who) internal view returns (uint64 balance) {
        (, balance,) = vault.account(who);
    }

    function claimedOf(address to, address from) internal view returns (uint64 claimed) {
        (claimed,) = vault.pair(to, from);
    }
}
