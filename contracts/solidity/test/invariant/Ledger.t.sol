// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Acting, Campaign} from "../utils/Campaign.sol";
import {Pools} from "../utils/Pools.sol";
import {LedgerHandler} from "./LedgerHandler.sol";

/// The invariants of IVault, over random interleavings of everything anybody may do with an honest log.
contract LedgerInvariants is Pools, Campaign {
    LedgerHandler internal handler;

    function setUp() public override {
        super.setUp();
        vm.recordLogs();
        (controller, vault) = open(terms(address(token)));
        handler = new LedgerHandler(token, controller, vault, AUTHORITY_KEY, vm.getRecordedLogs());
    }

    function acting() internal view override returns (Acting) {
        return handler;
    }

    function reaches() internal pure override returns (uint256 actions, uint256 times) {
        return (9, 30);
    }

    /// J14: paid + refunded = deposited (1 and 2).
    /// 1, 2, 3, 4, 6 and 8, in one campaign: each invariant function would cost one of its own.
    function invariant_the_books_hold() public view {
        _holds_exactly_what_it_owes();
        yes(!handler.fell(), "3: a total fell");
        for (uint256 p; p < 3; ++p) {
            _pairs_sum_to_earned_and_fee(handler.providerAt(p));
        }
        yes(!handler.forged(), "6: a forgery moved money");
        handler.compareStorage(); // 8: the events alone give every storage word
    }

    /// 1 and 2: what the vault holds is balances + unpaid earnings + unpaid fees, and what came in is that + what left.
    function _holds_exactly_what_it_owes() private view {
        uint256 owed;
        for (uint256 i; i < 4; ++i) {
            owed += balanceOf(handler.renterAt(i));
        }
        uint256 charged;
        uint256 fees = handler.feesOut();
        for (uint256 i; i < 3; ++i) {
            (uint64 earned, uint64 fee, uint64 paidOut) = vault.totals(handler.providerAt(i));
            owed += earned - paidOut + fee;
            charged += fee;
        }
        for (uint32 epoch = 1; epoch <= controller.epoch(); ++epoch) {
            fees += vault.feesOf(epoch);
        }
        same(fees, charged, "4: what providers were charged is what the epochs earned");
        owed -= handler.feesOut();
        same(token.balanceOf(address(vault)), owed, "1: held = owed");
        same(handler.moneyIn(), handler.moneyOut() + owed, "2: in = out + held");
    }

    /// 3: no more is claimed than the pair's highest voucher. 4: pairs sum to earned + fee, and the fee is exact for each
    /// pair whatever the order.
    function _pairs_sum_to_earned_and_fee(address to) private view {
        uint256 sum;
        uint256 fees;
        for (uint256 r; r < 4; ++r) {
            uint256 claimed = claimedOf(to, handler.renterAt(r));
            yes(claimed <= handler.signed(to, handler.renterAt(r)), "3: claimed above the voucher");
            sum += claimed;
            fees += claimed * FEE_BPS / 10_000;
        }
        (uint64 earned, uint64 fee,) = vault.totals(to);
        same(uint256(earned) + fee, sum, "4: earned + fee");
        same(fee, fees, "4: fee");
    }

    /// J14: earned is always payable.
    /// 7 and 8: with an honest log every countersigned voucher is paid in full, then everybody gets out and nothing is left.
    function invariant_7_and_8_everything_promised_is_paid_and_everybody_gets_out() public {
        uint256 here = vm.snapshotState();
        handler.settleAll();
        for (uint256 p; p < 3; ++p) {
            for (uint256 r; r < 4; ++r) {
                (address to, address from) = (handler.providerAt(p), handler.renterAt(r));
                same(claimedOf(to, from), handler.signed(to, from), "paid in full");
            }
        }
        handler.exitAll();
        same(token.balanceOf(address(vault)), 0, "nothing is left");
        vm.revertToState(here);
    }
}
