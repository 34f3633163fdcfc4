// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {IVault} from "../../src/interfaces/IVault.sol";

contract KeysTest is Pools {
    uint256 internal constant NEXT_KEY = 0x0E87;
    address internal next = vm.addr(NEXT_KEY);

    function setUp() public override {
        super.setUp();
        enter(renter, 1000e6, SESSION_KEY);
    }

    function _claim(uint64 cumulative, uint256 key) internal {
        vault.claim(provider, one(sign(voucher(cumulative), key, AUTHORITY_KEY)));
    }

    function test_a_retired_key_is_claimable_until_it_is_dead() public {
        vm.prank(renter);
        vault.enter(0, next, UNTIL);
        vm.warp(block.timestamp + THAW_S - 1);
        _claim(10e6, SESSION_KEY);
        same(claimedOf(provider, renter), 10e6, "one second before");
        vm.warp(block.timestamp + 1);
        _claim(20e6, SESSION_KEY);
        same(claimedOf(provider, renter), 10e6, "dead");
        _claim(20e6, NEXT_KEY);
        same(claimedOf(provider, renter), 20e6, "the new key");
    }

    function test_a_revoked_own_key_is_claimable_until_it_is_dead() public {
        vm.prank(renter);
        vault.revoke(session);
        (address key, uint64 balance,) = vault.account(renter);
        same(key, address(0), "no key");
        same(balance, 1000e6, "the balance stays");
        _claim(10e6, SESSION_KEY);
        same(claimedOf(provider, renter), 10e6, "claimed");
        vm.warp(block.timestamp + THAW_S);
        _claim(20e6, SESSION_KEY);
        same(claimedOf(provider, renter), 10e6, "dead");
    }

    function test_a_key_that_returns_cannot_undo_what_it_signed_before() public {
        Voucher memory v = voucher(10e6);
        v.usedThroughMs = 1_900_000_000_000;
        vm.prank(renter);
        vault.enter(0, next, UNTIL);
        vm.prank(renter);
        vault.enter(0, session, 1_850_000_000);
        vault.claim(provider, one(sign(v)));
        same(claimedOf(provider, renter), 10e6, "by its former end");
    }

    function test_an_own_keys_end_cannot_be_moved_in() public {
        vm.expectRevert(abi.encodeWithSelector(IVault.UntilFalls.selector, UNTIL));
        vm.prank(renter);
        vault.enter(0, session, UNTIL - 1);
    }

    function test_a_delegated_key_spends_no_more_than_its_cap() public {
        vm.prank(renter);
        vault.grant(next, 30e6, UNTIL);
        _claim(20e6, NEXT_KEY);
        _claim(50e6, NEXT_KEY);
        same(claimedOf(provider, renter), 30e6, "claimed");
        (uint64 cap,,,) = vault.keyOf(renter, next);
        same(cap, 0, "cap");
        vm.prank(renter);
        vault.grant(next, 5e6, UNTIL);
        _claim(50e6, NEXT_KEY);
        same(claimedOf(provider, renter), 35e6, "after a raise");
    }

    function test_a_revoked_delegated_key_is_claimable_until_it_is_dead() public {
        vm.prank(renter);
        vault.grant(next, 30e6, UNTIL);
        vm.prank(renter);
        vault.revoke(next);
        _claim(10e6, NEXT_KEY);
        same(claimedOf(provider, renter), 10e6, "claimed");
        vm.warp(block.timestamp + THAW_S);
        _claim(20e6, NEXT_KEY);
        same(claimedOf(provider, renter), 10e6, "dead");
        vm.expectRevert(abi.encodeWithSelector(IVault.KeyInUse.selector, next));
        vm.prank(renter);
        vault.grant(next, 40e6, UNTIL);
    }

    function test_a_delegated_key_pays_use_through_its_end_and_no_later() public {
        vm.prank(renter);
        vault.grant(next, 30e6, 1_800_000_100);
        Voucher memory v = voucher(10e6);
        v.usedThroughMs = 1_800_000_100_001;
        vault.claim(provider, one(sign(v, NEXT_KEY, AUTHORITY_KEY)));
        same(claimedOf(provider, renter), 0, "a millisecond late");
        v.usedThroughMs = 1_800_000_100_000;
        vault.claim(provider, one(sign(v, NEXT_KEY, AUTHORITY_KEY)));
        same(claimedOf(provider, renter), 10e6, "through the end");
    }

    function test_a_grant_cannot_fall() public {
        vm.prank(renter);
        vault.grant(next, 30e6, UNTIL);
        vm.expectRevert(abi.encodeWithSelector(IVault.GrantFalls.selector, 30e6, UNTIL));
        vm.prank(renter);
        vault.grant(next, 30e6 - 1, UNTIL);
    }

    function test_the_own_key_cannot_be_delegated_too() public {
        vm.expectRevert(abi.encodeWithSelector(IVault.KeyInUse.selector, session));
        vm.prank(renter);
        vault.grant(session, 1, UNTIL);
    }

    function test_the_authority_cannot_be_a_session_key() public {
        vm.expectRevert(abi.encodeWithSelector(IVault.KeyIsAuthority.selector, authority));
        vm.prank(renter);
        vault.enter(0, authority, UNTIL);
        vm.expectRevert(abi.encodeWithSelector(IVault.KeyIsAuthority.selector, authority));
        vm.prank(renter);
        vault.grant(authority, 1, UNTIL);
    }

    function test_an_unknown_key_cannot_be_revoked() public {
        vm.expectRevert(abi.encodeWithSelector(IVault.NoSuchKey.selector, next));
        vm.prank(renter);
        vault.revoke(next);
    }
}
