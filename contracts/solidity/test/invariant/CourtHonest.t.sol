// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts} from "../utils/Courts.sol";
import {CourtHonestHandler} from "./CourtHonestHandler.sol";

/// Invariant 3 of ICourt: who keeps to the rules loses nothing.
contract CourtHonestInvariants is Courts {
    CourtHonestHandler internal handler;

    function setUp() public override {
        super.setUp();
        handler = new CourtHonestHandler(token);
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(handler);
    }

    function invariant_an_honest_authority_is_never_slashed() public view {
        yes(bytes(handler.wrong()).length == 0, handler.wrong());
    }
}
