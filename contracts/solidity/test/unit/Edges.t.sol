// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {DrainToken, LongToken, ThickToken} from "../utils/OddTokens.sol";
import {Mood, WildToken} from "../utils/WildToken.sol";
import {VaultReplay} from "../utils/VaultReplay.sol";
import {Vm} from "../utils/Vm.sol";
import {PoolConfig} from "../../src/interfaces/PoolConfig.sol";
import {IVault, Item, Item2} from "../../src/interfaces/IVault.sol";
import {Coin} from "../../src/lib/Coin.sol";

/// The exact second, unit and zero of each rule of the vault: what mutants.sh found that no other test looks at.
contract EdgesTest is Pools, VaultReplay {
    uint256 internal constant NEXT_KEY = 0x0E87;
    address internal next = vm.addr(NEXT_KEY);

    function _claim(Voucher memory v, uint256 key) internal {
        vault.claim(provider, one(sign(v, key, AUTHORITY_KEY)));
    }

    /// One life of a renter with every event in it: the events give every word.
    function test_the_events_of_a_whole_life_rebuild_the_storage() public {
        vm.record();
        vm.recordLogs();
        (controller, vault) = open(terms(address(token)));
        enter(renter, 100e6, SESSION_KEY);
        join(provider);
        token.mint(renter, 50e6);
        vm.prank(renter);
        vault.deposit(50e6);
        vm.prank(renter);
        vault.enter(0, next, UNTIL - 1);
        vm.prank(renter);
        vault.grant(vm.addr(1), 30e6, UNTIL);
        _claim(voucher(10e6), NEXT_KEY);
        _claim(voucher(20e6), 1);
        vm.prank(renter);
        vault.revoke(vm.addr(1));
        vm.prank(renter);
        vault.revoke(next);
        vm.prank(renter);
        vault.thaw(100e6);
        vm.warp(block.timestamp + THAW_S);
        vm.prank(renter);
        vault.withdraw(renter);
        vault.cashOut(provider);
        replace(HEIR_KEY);
        Voucher memory v = voucher(25e6);
        v.epoch = 2;
        vault.claim(provider, one(sign(v, NEXT_KEY, HEIR_KEY)));
        vm.prank(owner);
        vault.cashOutFees(1, owner);
        foldVault(address(vault), address(controller), vm.getRecordedLogs());
        remember(address(vault));
        sameStorage(address(vault));
        (uint64 amount, uint40 readyAt) = vault.thawing(renter);
        same(amount, 0, "nothing thaws after a withdrawal");
        same(readyAt, 0, "and nothing is ready");
    }

    // -- money in

    function test_nothing_cannot_be_deposited_and_one_unit_is_taken() public {
        fund(renter, 1);
        vm.expectRevert(abi.encodeWithSelector(IVault.Zero.selector, "amount"));
        vm.prank(renter);
        vault.deposit(0);
        vm.prank(renter);
        vault.deposit(1);
        same(balanceOf(renter), 1, "credited");
        same(token.balanceOf(address(vault)), 1, "taken");
    }

    function test_a_balance_is_full_at_64_bits() public {
        enter(renter, type(uint64).max, SESSION_KEY);
        fund(renter, 1);
        vm.expectRevert(abi.encodeWithSelector(IVault.Overflow.selector, 1 << 64));
        vm.prank(renter);
        vault.deposit(1);
        _claim(voucher(type(uint64).max), SESSION_KEY);
        same(claimedOf(provider, renter), type(uint64).max, "all of it is claimable");
    }

    function test_a_key_changes_without_asking_the_token() public {
        WildToken odd = new WildToken();
        (controller, vault) = open(terms(address(odd)));
        odd.turn(Mood.Revert, address(0), "");
        vm.prank(renter);
        vault.enter(0, session, UNTIL);
        (address key,,) = vault.account(renter);
        same(key, session, "set");
    }

    function test_eighteen_decimals_are_the_most_and_are_scaled_on_the_way_out_too() public {
        address thick = address(new ThickToken());
        vm.expectRevert(abi.encodeWithSelector(Coin.BadDecimals.selector, 19));
        factory.create(terms(thick));
        LongToken odd = new LongToken();
        (, vault) = open(terms(address(odd)));
        odd.mint(renter, 2 ether);
        vm.prank(renter);
        odd.approve(address(vault), 2 ether);
        vm.prank(renter);
        vault.enter(2e6, session, UNTIL);
        vm.prank(renter);
        vault.thaw(2e6);
        vm.warp(block.timestamp + THAW_S);
        vm.prank(renter);
        vault.withdraw(renter);
        same(odd.balanceOf(renter), 2 ether, "two tokens back");
    }

    function test_a_token_that_takes_instead_of_giving_is_refused() public {
        DrainToken odd = new DrainToken();
        (, vault) = open(terms(address(odd)));
        odd.mint(address(vault), 10);
        vm.expectRevert(abi.encodeWithSelector(Coin.NotReceived.selector, 1, 0));
        vm.prank(renter);
        vault.deposit(1);
    }

    // -- keys

    function test_nobody_is_no_key() public {
        vm.expectRevert(abi.encodeWithSelector(IVault.Zero.selector, "key"));
        vm.prank(renter);
        vault.enter(0, address(0), UNTIL);
        vm.expectRevert(abi.encodeWithSelector(IVault.Zero.selector, "key"));
        vm.prank(renter);
        vault.grant(address(0), 1, UNTIL);
        vm.expectRevert(abi.encodeWithSelector(IVault.NoSuchKey.selector, address(0)));
        vm.prank(renter);
        vault.revoke(address(0));
    }

    function test_the_same_key_enters_again_and_is_not_retired() public {
        enter(renter, 100e6, SESSION_KEY);
        (,,, uint8 kind) = vault.keyOf(renter, address(0));
        same(kind, 0, "no key came before: none is retired");
        vm.prank(renter);
        vault.enter(0, session, UNTIL);
        (,,, kind) = vault.keyOf(renter, session);
        same(kind, 0, "the same key is not retired");
        vm.prank(renter);
        vault.enter(0, next, UNTIL - 1); // another key may end sooner
        (, uint32 until, uint32 deadFrom, uint8 retired) = vault.keyOf(renter, session);
        same(until, UNTIL, "its end stays");
        same(deadFrom, block.timestamp + THAW_S, "dead after the delay");
        same(retired, 2, "retired");
    }

    function test_a_retired_key_keeps_the_later_of_its_ends() public {
        enter(renter, 100e6, SESSION_KEY);
        vm.prank(renter);
        vault.enter(0, next, UNTIL);
        vm.prank(renter);
        vault.enter(0, session, UNTIL + 5);
        vm.prank(renter);
        vault.revoke(session);
        (, uint32 until,,) = vault.keyOf(renter, session);
        same(until, UNTIL + 5, "the second life was longer");
    }

    function test_a_grant_may_stay_as_it_is_in_one_part() public {
        vm.prank(renter);
        vault.grant(next, 30e6, UNTIL);
        vm.prank(renter);
        vault.grant(next, 30e6, UNTIL + 1);
        vm.prank(renter);
        vault.grant(next, 31e6, UNTIL + 1);
        vm.expectRevert(abi.encodeWithSelector(IVault.GrantFalls.selector, 31e6, UNTIL + 1));
        vm.prank(renter);
        vault.grant(next, 31e6, UNTIL);
    }

    function test_a_retired_key_cannot_be_delegated() public {
        enter(renter, 100e6, SESSION_KEY);
        vm.prank(renter);
        vault.enter(0, next, UNTIL);
        vm.expectRevert(abi.encodeWithSelector(IVault.KeyInUse.selector, session));
        vm.prank(renter);
        vault.grant(session, 1, UNTIL);
    }

    function test_a_key_is_revoked_once_and_dies_at_its_hour() public {
        vm.prank(renter);
        vault.grant(next, 30e6, UNTIL);
        vm.prank(renter);
        vault.revoke(next);
        vm.warp(block.timestamp + 1);
        vm.expectRevert(abi.encodeWithSelector(IVault.NoSuchKey.selector, next));
        vm.prank(renter);
        vault.revoke(next); // a second revocation would move its death out
    }

    function test_a_key_revoked_at_the_end_of_32_bits_dies_there() public {
        vm.warp(type(uint32).max - 5);
        vm.prank(renter);
        vault.grant(next, 30e6, UNTIL);
        vm.prank(renter);
        vault.revoke(next);
        (,, uint32 deadFrom,) = vault.keyOf(renter, next);
        same(deadFrom, type(uint32).max, "not wrapped");
    }

    // -- claims

    function test_an_own_key_pays_use_through_its_end() public {
        enter(renter, 100e6, SESSION_KEY);
        Voucher memory v = voucher(10e6);
        v.usedThroughMs = uint64(UNTIL) * 1000;
        _claim(v, SESSION_KEY);
        same(claimedOf(provider, renter), 10e6, "claimed");
    }

    /// No signature recovers to address zero, and an epoch without an authority has address zero: they are not equal.
    function test_no_signature_is_not_the_signature_of_no_authority() public {
        enter(renter, 100e6, SESSION_KEY);
        Voucher memory v = voucher(10e6);
        for (uint32 epoch; epoch < 3; epoch += 2) {
            v.epoch = epoch; // 0 never was, 2 is not yet
            Item2 memory item = sign(v);
            (item.ar, item.avs) = (0, 0);
            vault.claim(provider, one(item));
            same(claimedOf(provider, renter), 0, "by both signatures");
            Item[] memory items = new Item[](1);
            items[0] = single(item);
            vm.expectRevert(abi.encodeWithSelector(IVault.BadBatchSignature.selector, epoch, address(0)));
            vault.claimAggregated(provider, epoch, 0, 0, items);
        }
        // Nor is it the signature of no session key.
        vm.prank(renter);
        vault.revoke(session);
        Item2 memory bare = sign(voucher(10e6));
        (bare.r, bare.vs) = (0, 0);
        vault.claim(provider, one(bare));
        Item[] memory lone = new Item[](1);
        lone[0] = single(bare);
        (bytes32 ar, bytes32 avs) = batch(provider, 1, lone, AUTHORITY_KEY);
        vault.claimAggregated(provider, 1, ar, avs, lone);
        same(claimedOf(provider, renter), 0, "of nobody");
    }

    function test_a_batch_signature_covers_its_epoch_and_older_ones_only() public {
        enter(renter, 100e6, SESSION_KEY);
        Item[] memory items = new Item[](1);
        Voucher memory v = voucher(10e6);
        v.epoch = 2;
        items[0] = single(sign(v));
        (bytes32 ar, bytes32 avs) = batch(provider, 1, items, AUTHORITY_KEY);
        vault.claimAggregated(provider, 1, ar, avs, items);
        same(claimedOf(provider, renter), 0, "a later epoch");
    }

    function test_a_batch_of_several_epochs_looks_each_authority_up() public {
        enter(renter, 100e6, SESSION_KEY);
        enter(address(0xD00D), 100e6, SESSION_KEY);
        Item2[] memory items = new Item2[](3);
        items[0] = sign(voucher(10e6));
        replace(NEXT_KEY);
        Voucher memory v = Voucher(address(0xD00D), provider, 5e6, 1, 2, 1);
        items[1] = sign(v, SESSION_KEY, NEXT_KEY);
        items[2] = sign(voucher(20e6));
        vault.claim(provider, items);
        same(claimedOf(provider, renter), 20e6, "of the first epoch, before and after");
        same(claimedOf(provider, address(0xD00D)), 5e6, "of the second");
    }

    function test_a_claim_tells_what_it_did_and_a_claim_of_nothing_is_silent() public {
        enter(renter, 100e6, SESSION_KEY);
        Item2[] memory items = new Item2[](2);
        items[0] = sign(voucher(10e6));
        items[1] = items[0];
        vm.recordLogs();
        vault.claim(provider, items);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        same(logs.length, 1, "one event a batch");
        (, uint256[] memory rows) = abi.decode(logs[0].data, (uint256, uint256[]));
        same(rows.length, 2, "one row for one paid voucher");
        same(rows[0], items[0].a, "the voucher");
        same(rows[1], uint256(10e6) << 192 | uint256(10e6) << 128 | items[0].b, "what it paid");
        vault.claim(provider, items);
        same(vm.getRecordedLogs().length, 0, "silent");
    }

    function test_a_total_is_full_at_64_bits() public {
        address other = address(0xD00D);
        enter(renter, type(uint64).max, SESSION_KEY);
        enter(other, type(uint64).max, SESSION_KEY);
        _claim(voucher(type(uint64).max), SESSION_KEY);
        (uint64 earned, uint64 fee,) = vault.totals(provider);
        uint64 room = type(uint64).max - earned;
        // The most that still fits after the fee of 2 percent, and one unit more than fits.
        uint64 sum = uint64(uint256(room) * 10_000 / 9_800);
        while (sum - uint256(sum) * FEE_BPS / 10_000 < room) sum += 1;
        Item2[] memory items = one(sign(Voucher(other, provider, sum + 2, 1, 1, 1)));
        vm.expectRevert(abi.encodeWithSelector(IVault.Overflow.selector, uint256(type(uint64).max) + 2));
        vault.claim(provider, items);
        vault.claim(provider, one(sign(Voucher(other, provider, sum, 1, 1, 1))));
        uint64 full;
        (full, fee,) = vault.totals(provider);
        same(full, type(uint64).max, "filled to the last unit");
    }

    /// A claim is not stopped by fees that cannot be counted: they stay in the vault.
    function test_fees_of_an_epoch_are_full_at_64_bits_and_stop_no_claim() public {
        PoolConfig memory half = terms(address(token));
        half.feeBps = 5_000;
        (controller, vault) = open(half);
        address[3] memory to = [address(0xE1), address(0xE2), address(0xE3)];
        for (uint160 i; i < 3; ++i) {
            enter(address(0xF00 + i), type(uint64).max, SESSION_KEY);
            vault.claim(to[i], one(sign(Voucher(address(0xF00 + i), to[i], type(uint64).max, 1, 1, 1))));
            uint64 told = i == 0 ? type(uint64).max / 2 : i == 1 ? type(uint64).max - 1 : type(uint64).max;
            same(vault.feesOf(1), told, "fees");
            (uint64 earned,,) = vault.totals(to[i]);
            same(earned, type(uint64).max / 2 + 1, "earned in full");
        }
        (address signer, uint32 end) = vault.authorityOf(1);
        yes(signer == authority && end == type(uint32).max, "no carry");
        vm.prank(owner);
        vault.cashOutFees(1, owner);
        same(token.balanceOf(owner), type(uint64).max, "what was counted");
        vm.expectRevert(abi.encodeWithSelector(IVault.NothingDue.selector, owner));
        vm.prank(owner);
        vault.cashOutFees(1, owner);
    }

    /// Fees of one epoch in a batch of two: the last row's epoch is written too, and an epoch of no fee is not.
    function test_fees_too_small_to_count_write_nothing() public {
        enter(renter, 100e6, SESSION_KEY);
        _claim(voucher(49), SESSION_KEY);
        same(vault.feesOf(1), 0, "none yet");
        _claim(voucher(50), SESSION_KEY);
        same(vault.feesOf(1), 1, "on the pair's total");
    }

    function test_one_unit_is_claimable_by_each_kind_of_key() public {
        enter(renter, 100e6, SESSION_KEY);
        join(provider);
        vm.prank(renter);
        vault.grant(next, 1, UNTIL);
        _claim(voucher(1), SESSION_KEY);
        same(claimedOf(provider, renter), 1, "by the own key");
        _claim(voucher(2), NEXT_KEY);
        same(claimedOf(provider, renter), 2, "by a delegated one");
        vm.recordLogs();
        _claim(voucher(9), NEXT_KEY);
        same(claimedOf(provider, renter), 2, "and not above its cap");
        same(vm.getRecordedLogs().length, 0, "silently");
    }

    function test_an_item_that_moves_nothing_has_no_row() public {
        enter(renter, 100e6, SESSION_KEY);
        Item2[] memory items = new Item2[](2);
        items[0] = sign(Voucher(address(0xD00D), provider, 5e6, 1, 1, 1)); // has no balance and no key
        items[1] = sign(voucher(10e6));
        vm.recordLogs();
        vault.claim(provider, items);
        (, uint256[] memory rows) = abi.decode(vm.getRecordedLogs()[0].data, (uint256, uint256[]));
        same(rows.length, 2, "the paid one's");
    }

    // -- money out

    function test_a_thaw_of_all_counts_from_its_second_and_of_nothing_cancels() public {
        enter(renter, 100e6, SESSION_KEY);
        vm.prank(renter);
        vault.thaw(100e6);
        (uint64 amount, uint40 readyAt) = vault.thawing(renter);
        same(amount, 100e6, "all");
        same(readyAt, block.timestamp + THAW_S, "ready");
        vm.prank(renter);
        vault.thaw(0);
        (amount, readyAt) = vault.thawing(renter);
        same(amount, 0, "cancelled");
        same(readyAt, 0, "no time either");
        vm.warp(block.timestamp + THAW_S);
        vm.expectRevert(abi.encodeWithSelector(IVault.NotReady.selector, 0, 0));
        vm.prank(renter);
        vault.withdraw(renter);
        vm.prank(renter);
        vault.thaw(1);
        (amount, readyAt) = vault.thawing(renter);
        same(readyAt, block.timestamp + THAW_S, "one unit waits too");
    }

    function test_nobody_and_the_vault_are_not_paid() public {
        enter(renter, 100e6, SESSION_KEY);
        _claim(voucher(50e6), SESSION_KEY);
        vm.prank(renter);
        vault.thaw(1);
        vm.warp(block.timestamp + THAW_S);
        address[2] memory bad = [address(0), address(vault)];
        for (uint256 i; i < 2; ++i) {
            bytes memory why = abi.encodeWithSelector(IVault.BadPayee.selector, bad[i]);
            vm.expectRevert(why);
            vm.prank(renter);
            vault.withdraw(bad[i]);
            vm.expectRevert(why);
            vm.prank(owner);
            vault.cashOutFees(1, bad[i]);
        }
        // The vault itself as an earner, which is not registered: its own payee.
        Voucher memory v = voucher(10e6);
        v.provider = address(vault);
        vault.claim(v.provider, one(sign(v)));
        vm.expectRevert(abi.encodeWithSelector(IVault.BadPayee.selector, address(vault)));
        vault.cashOut(address(vault));
    }

    function test_one_unit_goes_out_by_each_exit() public {
        enter(renter, 100e6, SESSION_KEY);
        _claim(voucher(50), SESSION_KEY); // 49 earned, a fee of 1
        vm.prank(owner);
        vault.cashOutFees(1, address(0xFEE5));
        same(token.balanceOf(address(0xFEE5)), 1, "one unit of fee");
        vault.cashOut(provider);
        same(token.balanceOf(provider), 49, "earned");
        _claim(voucher(51), SESSION_KEY);
        vault.cashOut(provider);
        same(token.balanceOf(provider), 50, "one unit more");
        vm.prank(renter);
        vault.thaw(1);
        vm.warp(block.timestamp + THAW_S);
        vm.prank(renter);
        vault.withdraw(renter);
        same(token.balanceOf(renter), 1, "one unit back");
    }

    function test_authority_changes_in_the_vault_keep_what_the_old_epoch_earned() public {
        enter(renter, 100e6, SESSION_KEY);
        _claim(voucher(50e6), SESSION_KEY);
        replace(HEIR_KEY);
        (address signer, uint32 validUntil) = vault.authorityOf(1);
        same(signer, authority, "who signed");
        same(validUntil, block.timestamp + GRACE_S, "through the grace");
        same(vault.feesOf(1), 1e6, "fees");
        (signer, validUntil) = vault.authorityOf(2);
        yes(signer == heir && validUntil == type(uint32).max, "the present one");
        vm.expectRevert(abi.encodeWithSelector(IVault.KeyIsAuthority.selector, heir));
        vm.prank(renter);
        vault.enter(0, heir, UNTIL);
        vm.prank(renter);
        vault.enter(0, authority, UNTIL); // the former one is a key like any other
    }
}
