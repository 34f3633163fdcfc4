// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Acting, Campaign} from "../utils/Campaign.sol";
import {Courts} from "../utils/Courts.sol";
import {CourtHandler} from "./CourtHandler.sol";

/// Invariant 3 of ICourt in both directions: who keeps to the rules loses nothing, and who lies once loses all.
contract CourtInvariants is Courts, Campaign {
    uint64 private constant STAKE = 1000e6;
    CourtHandler internal handler;

    function setUp() public override {
        super.setUp();
        fund(provider, STAKE);
        vm.prank(provider);
        controller.registerProvider(provider, STAKE);
        bindNode(provider);
        handler = new CourtHandler(token, controller, vault, provider);
    }

    function acting() internal view override returns (Acting) {
        return handler;
    }

    function reaches() internal pure override returns (uint256 actions, uint256 times) {
        return (9, 48);
    }

    function invariant_who_keeps_to_the_rules_loses_nothing() public view {
        yes(!handler.wronged(), "an honest signer was convicted");
        for (uint256 i; handler.ownerAt(i) != address(0); ++i) {
            yes(kept(handler.ownerAt(i)) == (i == 0 ? BOND : MIN_BOND), "an honest owner's bond");
        }
        (, uint64 stake,,) = controller.provider(provider);
        same(stake, STAKE, "an honest provider's stake");
        same(court.burnt() + controller.burnt(), 0, "nothing was burnt");
    }
}
