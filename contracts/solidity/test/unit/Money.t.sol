// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {FeeToken, HookToken, LongToken, ShortToken} from "../utils/OddTokens.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Coin} from "../../src/lib/Coin.sol";
import {Controller} from "../../src/Controller.sol";
import {Item2} from "../../src/interfaces/IVault.sol";
import {Vault} from "../../src/Vault.sol";

contract MoneyTest is Pools {
    function test_thawed_money_comes_back_after_the_delay() public {
        enter(renter, 100e6, SESSION_KEY);
        vm.prank(renter);
        vault.thaw(60e6);
        uint40 readyAt = uint40(block.timestamp + THAW_S);
        vm.warp(readyAt - 1);
        vm.expectRevert(abi.encodeWithSelector(IVault.NotReady.selector, 60e6, readyAt));
        vm.prank(renter);
        vault.withdraw(renter);
        vm.warp(readyAt);
        vm.prank(renter);
        vault.withdraw(renter);
        same(token.balanceOf(renter), 60e6, "back");
        same(balanceOf(renter), 40e6, "left");
    }

    function test_claims_reach_thawing_money_and_the_withdrawal_takes_the_rest() public {
        enter(renter, 100e6, SESSION_KEY);
        vm.prank(renter);
        vault.thaw(100e6);
        vault.claim(provider, one(sign(voucher(70e6))));
        vm.warp(block.timestamp + THAW_S);
        vm.prank(renter);
        vault.withdraw(renter);
        same(token.balanceOf(renter), 30e6, "the rest");
    }

    function test_more_than_the_balance_cannot_thaw() public {
        enter(renter, 100e6, SESSION_KEY);
        vm.expectRevert(abi.encodeWithSelector(IVault.BalanceTooLow.selector, 101e6, 100e6));
        vm.prank(renter);
        vault.thaw(101e6);
    }

    function test_provider_and_operator_take_out_what_is_due_once() public {
        enter(renter, 100e6, SESSION_KEY);
        vault.claim(provider, one(sign(voucher(50e6))));
        vault.cashOut(provider); // anyone
        same(token.balanceOf(provider), 49e6, "earnings");
        vm.prank(owner);
        vault.cashOutFees(1, address(0xFEE5));
        same(token.balanceOf(address(0xFEE5)), 1e6, "fees");
        vm.expectRevert(abi.encodeWithSelector(IVault.NothingDue.selector, provider));
        vault.cashOut(provider);
        vm.expectRevert(abi.encodeWithSelector(IVault.NothingDue.selector, owner));
        vm.prank(owner);
        vault.cashOutFees(1, address(0xFEE5));
    }

    function test_only_the_owner_takes_fees() public {
        vm.expectRevert(abi.encodeWithSelector(IVault.NotOwner.selector, authority, owner));
        vm.prank(authority);
        vault.cashOutFees(1, authority);
        vm.expectRevert(abi.encodeWithSelector(IVault.NotOwner.selector, owner, address(0)));
        vm.prank(owner);
        vault.cashOutFees(2, owner); // an epoch that never was is nobody's
    }

    /// Earnings go where the registry says, whoever asks and wherever the provider's own key would like them.
    function test_earnings_go_to_who_is_paid_by_the_registry() public {
        address cold = address(0xC01D);
        enter(renter, 100e6, SESSION_KEY);
        join(provider);
        vm.prank(provider);
        controller.setPayout(provider, cold);
        vault.claim(provider, one(sign(voucher(50e6))));
        vm.prank(provider);
        vault.cashOut(provider);
        same(token.balanceOf(cold), 49e6, "the registered payee");
        same(token.balanceOf(provider), 0, "and nobody else");
    }

    function test_a_withdrawal_of_nothing_is_none() public {
        enter(renter, 100e6, SESSION_KEY);
        vm.prank(renter);
        vault.thaw(100e6);
        vault.claim(provider, one(sign(voucher(100e6))));
        uint256 ready = block.timestamp + THAW_S;
        vm.warp(ready);
        vm.expectRevert(abi.encodeWithSelector(IVault.NothingDue.selector, renter));
        vm.prank(renter);
        vault.withdraw(renter);
        (uint64 amount, uint40 readyAt) = vault.thawing(renter);
        yes(amount == 100e6 && readyAt == ready, "the thaw stands");
    }

    // -- fees belong to the epoch that earned them

    function test_fees_of_an_epoch_stay_its_owners_after_a_take_over_and_a_hand_over() public {
        enter(renter, 100e6, SESSION_KEY);
        vault.claim(provider, one(sign(voucher(50e6)))); // 1e6 in epoch 1
        address next = address(0x4E87);
        handOver(next, HEIR_KEY, 0, 0);
        Voucher memory v = voucher(75e6);
        v.epoch = 2;
        vault.claim(provider, one(sign(v, SESSION_KEY, HEIR_KEY))); // 0.5e6 in epoch 2
        same(vault.feesOf(1), 1e6, "of the first");
        same(vault.feesOf(2), 0.5e6, "of the second");
        vm.expectRevert(abi.encodeWithSelector(IVault.NotOwner.selector, next, owner));
        vm.prank(next);
        vault.cashOutFees(1, next);
        vm.prank(owner);
        vault.cashOutFees(1, owner);
        vm.prank(next);
        vault.cashOutFees(2, next);
        same(token.balanceOf(owner), 1e6, "the former owner's");
        same(token.balanceOf(next), 0.5e6, "the present owner's");
        same(vault.feesOf(1) + vault.feesOf(2), 0, "once");
    }

    /// One batch with rows of two epochs: the fee of each row is on the pair's total, and goes to the row's epoch.
    function test_fees_follow_a_pair_through_a_hand_over_in_its_middle() public {
        enter(renter, 100e6, SESSION_KEY);
        enter(address(0xD00D), 100e6, SESSION_KEY);
        Item2[] memory items = new Item2[](4);
        items[0] = sign(voucher(149)); // floor 2.98: 2
        items[1] = sign(Voucher(address(0xD00D), provider, 100, 1, 1, 1)); // 2
        replace(HEIR_KEY);
        Voucher memory v = voucher(151); // floor 3.02: 3, so 1 more
        v.epoch = 2;
        items[2] = sign(v, SESSION_KEY, HEIR_KEY);
        items[3] = sign(Voucher(address(0xD00D), provider, 250, 1, 1, 1)); // 5, so 3 more
        vault.claim(provider, items);
        same(vault.feesOf(1), 7, "epoch 1, before and after");
        same(vault.feesOf(2), 1, "epoch 2");
        (, uint64 fee,) = vault.totals(provider);
        same(fee, 8, "all");
    }

    function test_only_the_controller_passes_authority_in_the_vault() public {
        vm.expectRevert(abi.encodeWithSelector(IVault.NotController.selector, authority));
        vm.prank(authority);
        vault.authorityPassed(2, renter, 0);
    }

    function test_a_token_with_a_fee_is_refused() public {
        FeeToken odd = new FeeToken();
        (, Vault v) = open(terms(address(odd)));
        odd.mint(renter, 100e6);
        vm.prank(renter);
        odd.approve(address(v), 100e6);
        vm.expectRevert(abi.encodeWithSelector(Coin.NotReceived.selector, 100e6, 99e6));
        vm.prank(renter);
        v.deposit(100e6);
    }

    function test_a_token_with_too_few_decimals_is_refused() public {
        address odd = address(new ShortToken());
        vm.expectRevert(abi.encodeWithSelector(Coin.BadDecimals.selector, 5));
        factory.create(terms(odd));
    }

    function test_eighteen_decimals_are_scaled() public {
        LongToken odd = new LongToken();
        (, Vault v) = open(terms(address(odd)));
        odd.mint(renter, 2 ether);
        vm.prank(renter);
        odd.approve(address(v), 2 ether);
        vm.prank(renter);
        v.deposit(2e6);
        same(odd.balanceOf(address(v)), 2 ether, "two tokens");
    }

    function test_a_hook_cannot_enter_a_function_that_moves_tokens() public {
        HookToken odd = new HookToken();
        (, Vault v) = open(terms(address(odd)));
        odd.mint(renter, 100e6);
        odd.mint(address(odd), 100e6);
        vm.prank(renter);
        odd.approve(address(v), 100e6);
        odd.aim(address(v), abi.encodeCall(IVault.deposit, (50e6)));
        vm.prank(renter);
        v.deposit(100e6);
        yes(odd.refused(), "the nested deposit reverts");
        (, uint64 balance,) = v.account(address(odd));
        same(balance, 0, "nothing counted twice");
    }

    function test_a_claim_from_a_hook_is_not_overwritten() public {
        HookToken odd = new HookToken();
        (controller, vault) = open(terms(address(odd)));
        odd.mint(renter, 150e6);
        vm.prank(renter);
        odd.approve(address(vault), 150e6);
        vm.prank(renter);
        vault.enter(100e6, session, UNTIL);
        odd.aim(address(vault), abi.encodeCall(IVault.claim, (provider, one(sign(voucher(70e6))))));
        vm.prank(renter);
        vault.deposit(50e6);
        same(balanceOf(renter), 80e6, "100 - 70 + 50");
    }

    /// Invariant 10: a balance near 2^64 never carries into the key.
    function testFuzz_lanes_do_not_carry(uint64 first, uint64 second, uint32 until) public {
        fund(renter, type(uint128).max);
        if (first == 0) first = 1;
        if (second == 0) second = 1;
        vm.prank(renter);
        vault.enter(first, session, until);
        uint256 sum = uint256(first) + second;
        bool fits = sum <= type(uint64).max;
        if (!fits) vm.expectRevert(abi.encodeWithSelector(IVault.Overflow.selector, sum));
        vm.prank(renter);
        vault.deposit(second);
        (address key, uint64 balance, uint32 end) = vault.account(renter);
        same(key, session, "key");
        same(end, until, "until");
        same(balance, fits ? sum : first, "balance");
    }
}
