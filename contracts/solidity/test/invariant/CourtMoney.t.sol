// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts} from "../utils/Courts.sol";
import {CourtMoneyHandler} from "./CourtMoneyHandler.sol";

/// Invariants 1, 2 and 5 of ICourt among liars.
contract CourtMoneyInvariants is Courts {
    CourtMoneyHandler internal handler;

    function setUp() public override {
        super.setUp();
        court = make(address(token));
        handler = new CourtMoneyHandler(court, vault, token);
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(handler);
    }

    function invariant_the_court_holds_what_it_owes_and_punishes_once() public view {
        same(token.balanceOf(address(court)), handler.held(), "1: held = bonds + credits + deposits + burnt");
        yes(!handler.twice(), "2: a case was punished twice");
        handler.compareStorage(); // 5: the events alone give every storage word
    }
}
