// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Acting, Campaign} from "../utils/Campaign.sol";
import {Pools} from "../utils/Pools.sol";
import {WildToken} from "../utils/WildToken.sol";
import {WildHandler} from "./WildHandler.sol";

/// The invariants of IVault that hold whoever lies: over random interleavings in a world where everybody does.
contract WildInvariants is Pools, Campaign {
    WildHandler internal handler;
    WildToken internal odd;

    function setUp() public override {
        super.setUp();
        odd = new WildToken();
        vm.recordLogs();
        (controller, vault) = open(terms(address(odd)));
        handler = new WildHandler(odd, controller, vault, vm.getRecordedLogs());
    }

    function acting() internal view override returns (Acting) {
        return handler;
    }

    function reaches() internal pure override returns (uint256 actions, uint256 times) {
        return (7, 20);
    }

    /// J14: no re-entry by a token that tries, whoever lies.
    /// 1, 2, 3, 4, 10, 11 and 12.
    function invariant_the_books_hold_whoever_lies() public view {
        uint256 owed;
        for (uint256 i; i < 4; ++i) {
            owed += balanceOf(handler.renterAt(i));
        }
        for (uint256 p; p < 3; ++p) {
            address to = handler.providerAt(p);
            (uint64 earned, uint64 fee, uint64 out) = vault.totals(to);
            owed += uint256(earned) - out;
            uint256 sum;
            uint256 fees;
            for (uint256 r; r < 4; ++r) {
                uint64 claimed = claimedOf(to, handler.renterAt(r));
                yes(claimed <= handler.signed(to, handler.renterAt(r)), "3: claimed above what was signed");
                sum += claimed;
                fees += uint256(claimed) * FEE_BPS / 10_000;
            }
            same(uint256(earned) + fee, sum, "4: earned + fee = claimed");
            same(fee, fees, "4: the fee");
        }
        for (uint32 epoch = 1; epoch <= handler.epoch(); ++epoch) {
            owed += vault.feesOf(epoch);
        }
        same(odd.balanceOf(address(vault)), owed, "1: held = owed");
        same(handler.deposited(), handler.paidOut() + owed, "2: in = out + held");
        yes(!handler.fell(), "3: a total fell");
        handler.compareStorage();
    }

    /// 7: from every state that was reached, with an honest token, everybody gets out and nothing is left.
    function invariant_7_everybody_gets_out_whoever_lies() public {
        uint256 here = vm.snapshotState();
        handler.exitAll();
        same(odd.balanceOf(address(vault)), 0, "nothing is left");
        vm.revertToState(here);
    }
}
