// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {FeeToken, HookToken, LongToken, ShortToken} from "../utils/OddTokens.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Coin} from "../../src/lib/Coin.sol";
import {Controller} from "../../src/Controller.sol";
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
        vm.prank(provider);
        vault.cashOut(address(0xCA54));
        same(token.balanceOf(address(0xCA54)), 49e6, "earnings");
        address[] memory providers = new address[](2);
        providers[0] = provider;
        providers[1] = provider; // named twice, paid once
        vm.prank(authority);
        vault.cashOutFees(address(0xFEE5), providers);
        same(token.balanceOf(address(0xFEE5)), 1e6, "fees");
        vm.expectRevert(abi.encodeWithSelector(IVault.NothingDue.selector, provider));
        vm.prank(provider);
        vault.cashOut(address(0xCA54));
        vm.expectRevert(abi.encodeWithSelector(IVault.NothingDue.selector, authority));
        vm.prank(authority);
        vault.cashOutFees(address(0xFEE5), providers);
    }

    function test_only_the_authority_takes_fees() public {
        vm.expectRevert(abi.encodeWithSelector(IVault.NotAuthority.selector, renter, authority));
        vm.prank(renter);
        vault.cashOutFees(renter, new address[](0));
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
