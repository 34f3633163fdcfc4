// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {Vm} from "../utils/Vm.sol";
import {IVault, Item, Item2} from "../../src/interfaces/IVault.sol";

contract KeysTest is Pools {
    uint256 internal constant NEXT_KEY = 0x0E87;
    address internal next = vm.addr(NEXT_KEY);

    function setUp() public override {
        super.setUp();
        enter(renter, 1000e6, SESSION_KEY);
        join(provider);
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
    }

    function test_a_revoked_key_is_granted_anew_when_it_is_dead_and_not_before() public {
        vm.prank(renter);
        vault.grant(next, 30e6, UNTIL);
        vm.prank(renter);
        vault.revoke(next);
        uint256 dead = block.timestamp + THAW_S;
        vm.warp(dead - 1);
        vm.expectRevert(abi.encodeWithSelector(IVault.KeyInUse.selector, next));
        vm.prank(renter);
        vault.grant(next, 40e6, UNTIL);
        vm.warp(dead);
        vm.prank(renter);
        vault.grant(next, 5e6, UNTIL - 9); // less than before is a new life, not a grant that falls
        (uint64 cap, uint32 until, uint32 deadFrom, uint8 kind) = vault.keyOf(renter, next);
        yes(cap == 5e6 && until == UNTIL - 9 && deadFrom == 0 && kind == 1, "a life of its own");
        _claim(9e6, NEXT_KEY); // signed in whichever life: it counts against the new cap
        same(claimedOf(provider, renter), 5e6, "no more than the new cap");
        vm.expectRevert(abi.encodeWithSelector(IVault.GrantFalls.selector, 0, UNTIL - 9));
        vm.prank(renter);
        vault.grant(next, 1e6, UNTIL - 10); // and in the new life a grant does not fall again
    }

    function test_a_retired_own_key_is_delegated_when_it_is_dead() public {
        vm.prank(renter);
        vault.enter(0, next, UNTIL);
        vm.warp(block.timestamp + THAW_S);
        vm.prank(renter);
        vault.grant(session, 7e6, UNTIL);
        _claim(9e6, SESSION_KEY);
        same(claimedOf(provider, renter), 7e6, "as a delegated one");
    }

    function test_a_delegated_key_pays_registered_providers_only_and_an_own_one_anybody() public {
        address stranger = address(0x57A49E);
        vm.prank(renter);
        vault.grant(next, 100e6, UNTIL);
        Voucher memory v = voucher(10e6);
        v.provider = stranger;
        Item2[] memory items = one(sign(v, NEXT_KEY, AUTHORITY_KEY));
        vault.claim(stranger, items);
        same(claimedOf(stranger, renter), 0, "nobody's provider");
        Item[] memory singles = new Item[](1);
        singles[0] = single(items[0]);
        (bytes32 ar, bytes32 avs) = batch(stranger, 1, singles, AUTHORITY_KEY);
        vault.claimAggregated(stranger, 1, ar, avs, singles);
        same(claimedOf(stranger, renter), 0, "nor in a batch");
        (uint64 cap,,,) = vault.keyOf(renter, next);
        same(cap, 100e6, "the cap is whole");
        vault.claim(stranger, one(sign(v)));
        same(claimedOf(stranger, renter), 10e6, "an own key pays whom it likes");
        join(stranger);
        v.cumulative = 30e6;
        vault.claim(stranger, one(sign(v, NEXT_KEY, AUTHORITY_KEY)));
        same(claimedOf(stranger, renter), 30e6, "a provider now");
    }

    /// A retired key was an own one: it pays whom it liked.
    function test_a_retired_key_pays_anybody() public {
        Voucher memory v = voucher(10e6);
        v.provider = address(0x57A49E);
        vm.prank(renter);
        vault.enter(0, next, UNTIL);
        vault.claim(v.provider, one(sign(v)));
        same(claimedOf(v.provider, renter), 10e6, "paid");
    }

    /// Which rows of a batch which delegated key spent: ranges of rows, none for own keys.
    function test_a_batch_tells_which_rows_a_delegated_key_spent() public {
        address[5] memory who = [address(0xA1), address(0xA2), address(0xA3), address(0xA4), address(0xA5)];
        uint256[5] memory keys = [NEXT_KEY, NEXT_KEY, SESSION_KEY, uint256(77), NEXT_KEY];
        Item2[] memory items = new Item2[](6);
        for (uint256 i; i < 5; ++i) {
            enter(who[i], 100e6, SESSION_KEY);
            vm.prank(who[i]);
            if (keys[i] != SESSION_KEY) vault.grant(vm.addr(keys[i]), 50e6, UNTIL);
            uint256 at = i < 3 ? i : i + 1;
            items[at] = sign(Voucher(who[i], provider, 10e6, 1, 1, 1), keys[i], AUTHORITY_KEY);
        }
        items[3] = items[0]; // stale in the middle: it has no row
        vm.recordLogs();
        vault.claim(provider, items);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        same(logs.length, 4, "three ranges and the claim");
        _told(logs[0], NEXT_KEY, 0, 2);
        _told(logs[1], 77, 3, 1);
        _told(logs[2], NEXT_KEY, 4, 1);
        same(logs[3].topics[0], IVault.Claimed.selector, "last");
        for (uint256 i; i < 5; ++i) {
            (uint64 cap,,,) = vault.keyOf(who[i], vm.addr(keys[i]));
            same(cap, keys[i] == SESSION_KEY ? 0 : 40e6, "cap");
        }
    }

    function _told(Vm.Log memory log, uint256 key, uint256 first, uint256 count) private pure {
        same(log.topics[0], IVault.Spent.selector, "spent");
        same(log.topics[1], bytes32(uint256(uint160(vm.addr(key)))), "by");
        (uint256 from, uint256 many) = abi.decode(log.data, (uint256, uint256));
        same(from, first, "first row");
        same(many, count, "rows");
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
