// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {LedgerHandler} from "./LedgerHandler.sol";

/// The invariants of IVault, over random interleavings of everything anybody may do with an honest log.
contract LedgerInvariants is Pools {
    LedgerHandler internal handler;

    function setUp() public override {
        super.setUp();
        handler = new LedgerHandler(token, controller, vault, AUTHORITY_KEY);
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(handler);
    }

    /// 1 and 2: what the vault holds is balances + unpaid earnings + unpaid fees, and what came in is that + what left.
    function invariant_1_and_2_the_vault_holds_exactly_what_it_owes() public view {
        uint256 owed;
        for (uint256 i; i < 4; ++i) {
            owed += balanceOf(handler.renterAt(i));
        }
        for (uint256 i; i < 3; ++i) {
            (uint64 earned, uint64 fee, uint64 paidOut, uint64 feeOut) = vault.totals(handler.providerAt(i));
            owed += earned - paidOut + fee - feeOut;
        }
        same(token.balanceOf(address(vault)), owed, "held = owed");
        same(handler.moneyIn(), handler.moneyOut() + owed, "in = out + held");
    }

    /// 3: no more is claimed than the pair's highest voucher, and nothing ever fell.
    function invariant_3_totals_never_fall_and_no_claim_passes_its_voucher() public view {
        yes(!handler.fell(), "a total fell");
        for (uint256 p; p < 3; ++p) {
            for (uint256 r; r < 4; ++r) {
                (address to, address from) = (handler.providerAt(p), handler.renterAt(r));
                yes(claimedOf(to, from) <= handler.signed(to, from), "claimed above the voucher");
            }
        }
    }

    /// 4: pairs sum to earned + fee, and the fee is exact for each pair whatever the order.
    function invariant_4_pairs_sum_to_earned_and_fee() public view {
        for (uint256 p; p < 3; ++p) {
            address to = handler.providerAt(p);
            uint256 sum;
            uint256 fees;
            for (uint256 r; r < 4; ++r) {
                uint256 claimed = claimedOf(to, handler.renterAt(r));
                sum += claimed;
                fees += claimed * FEE_BPS / 10_000;
            }
            (uint64 earned, uint64 fee,,) = vault.totals(to);
            same(uint256(earned) + fee, sum, "earned + fee");
            same(fee, fees, "fee");
        }
    }

    /// 6: nothing the handler's forger submitted ever moved money.
    function invariant_6_forgeries_move_nothing() public view {
        yes(!handler.forged(), "a forgery moved money");
    }

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
