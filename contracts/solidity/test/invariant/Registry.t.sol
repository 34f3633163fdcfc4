// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {RegistryHandler} from "./RegistryHandler.sol";

/// The invariants of IController, over random interleavings of what anybody may try.
contract RegistryInvariants is Pools {
    RegistryHandler internal handler;

    function setUp() public override {
        super.setUp();
        vm.recordLogs();
        (controller, vault) = open(terms(address(token)));
        handler = new RegistryHandler(token, controller, vm.getRecordedLogs());
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(handler);
    }

    function invariant_the_registry_is_what_its_events_and_its_people_said() public view {
        uint256 stakes;
        for (uint256 i; i < 4; ++i) {
            (, uint64 stake, uint64 unbonding,) = controller.provider(handler.personAt(i));
            stakes += uint256(stake) + unbonding;
        }
        // Authorities who became providers are not listed: hence "at least".
        yes(token.balanceOf(address(controller)) >= stakes, "1: stakes are held");
        yes(!handler.fell(), "2: epoch or size fell");
        yes(!handler.usurped(), "2: an anchor or a passing of authority by another");
        yes(!handler.rushed(), "5: taken over against the rules");
        for (uint256 i; i < 3; ++i) {
            (address owner,) = controller.nodeOf(handler.nodeAt(i));
            same(owner, handler.named(handler.nodeAt(i)), "3: the node's provider");
            (bytes32 specHash,,) = controller.offerOf(handler.nodeAt(i));
            yes(specHash == 0 || owner != address(0), "4: an offer without a provider");
        }
        handler.compareStorage();
    }
}
