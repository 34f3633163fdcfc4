// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {Mood, WildToken} from "../utils/WildToken.sol";
import {Vm} from "../utils/Vm.sol";
import {IVault} from "../../src/interfaces/IVault.sol";

/// J14: paid + refunded = deposited; earned is always payable; no re-entry. One story of each here; over any
/// interleaving they are invariants 1, 2 and 7 in test/invariant/{Ledger,Wild}.t.sol.
contract J14Test is Pools {
    WildToken private odd;

    function setUp() public override {
        super.setUp();
        odd = new WildToken();
        (controller, vault) = open(terms(address(odd)));
    }

    function _enters(address who, uint64 amount) private {
        odd.mint(who, amount);
        odd.allow(who, address(vault));
        vm.prank(who);
        vault.enter(amount, session, UNTIL);
    }

    function _withdraws(address who, uint64 amount) private {
        vm.prank(who);
        vault.thaw(amount);
        (, uint40 readyAt) = vault.thawing(who);
        vm.warp(readyAt);
        vm.prank(who);
        vault.withdraw(who);
    }

    function testFuzz_J14_paid_and_refunded_are_what_was_deposited(uint64 deposited, uint64 used) public {
        deposited = uint64(within(deposited, 100, type(uint64).max));
        used = uint64(within(used, 100, type(uint64).max)); // also more than there is
        _enters(renter, deposited);
        vault.claim(provider, one(sign(voucher(used))));
        uint64 left = balanceOf(renter);
        if (left != 0) _withdraws(renter, left);
        vault.cashOut(provider);
        vm.prank(owner);
        vault.cashOutFees(1, owner);
        uint256 paid = odd.balanceOf(provider) + odd.balanceOf(owner);
        same(paid, used < deposited ? used : deposited, "paid");
        same(paid + odd.balanceOf(renter), deposited, "paid + refunded = deposited");
        same(odd.balanceOf(address(vault)), 0, "nothing is left");
    }

    /// Whatever renter and authority do after a claim: thaw, withdraw, revoke, pass authority, take every fee.
    function test_J14_earned_is_always_payable() public {
        _enters(renter, 100e6);
        vault.claim(provider, one(sign(voucher(60e6))));
        _withdraws(renter, 40e6);
        vm.prank(renter);
        vault.revoke(session);
        vm.prank(owner);
        vault.cashOutFees(1, owner);
        replace(HEIR_KEY);
        vault.cashOut(provider);
        same(odd.balanceOf(provider), 60e6 - 1.2e6, "all that was earned");
    }

    /// Each function that moves tokens, called from the token in the middle of each: none is let in.
    function test_J14_no_re_entry() public {
        bytes[5] memory inner = [
            abi.encodeCall(IVault.deposit, (1)),
            abi.encodeCall(IVault.enter, (1, session, UNTIL)),
            abi.encodeCall(IVault.withdraw, (renter)),
            abi.encodeCall(IVault.cashOut, (provider)),
            abi.encodeCall(IVault.cashOutFees, (1, owner))
        ];
        _enters(renter, 100e6);
        _enters(address(odd), 100e6);
        vault.claim(provider, one(sign(voucher(50e6))));
        vm.prank(renter);
        vault.thaw(10e6);
        vm.warp(block.timestamp + THAW_S);
        address[5] memory callers = [renter, renter, renter, provider, owner];
        for (uint256 i; i < 5; ++i) {
            for (uint256 k; k < 5; ++k) {
                uint256 here = vm.snapshotState();
                odd.mint(renter, 1);
                odd.allow(renter, address(vault));
                odd.turn(Mood.Hook, address(vault), inner[k]);
                vm.recordLogs();
                vm.prank(callers[i]);
                (bool done,) = address(vault).call(inner[i]);
                yes(done, "the outer call");
                _hookWasRefused();
                vm.revertToState(here);
            }
        }
    }

    function _hookWasRefused() private {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        uint256 hooks;
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] != WildToken.HookEnded.selector) continue;
            hooks += 1;
            yes(!abi.decode(logs[i].data, (bool)), "let in");
        }
        same(hooks, 1, "tried");
    }
}
