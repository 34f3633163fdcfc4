// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Acting, Campaign} from "../utils/Campaign.sol";
import {Pools} from "../utils/Pools.sol";
import {Bond, ICourt} from "../../src/interfaces/ICourt.sol";
import {RegistryHandler} from "./RegistryHandler.sol";

/// The invariants of IController and ICourt, over random interleavings of what anybody may try.
contract RegistryInvariants is Pools, Campaign {
    RegistryHandler internal handler;

    function setUp() public override {
        super.setUp();
        vm.recordLogs();
        (controller, vault) = open(terms(address(token)));
        handler = new RegistryHandler(token, controller, vault, vm.getRecordedLogs());
    }

    function acting() internal view override returns (Acting) {
        return handler;
    }

    function reaches() internal pure override returns (uint256 actions, uint256 times) {
        return (8, 16);
    }

    function invariant_the_registry_is_what_its_events_and_its_people_said() public view {
        uint256 stakes;
        uint256 bonds;
        ICourt court = ICourt(controller.court());
        for (uint256 i; i < 5; ++i) {
            address who = i == 4 ? owner : handler.person(i);
            (, uint64 stake, uint64 unbonding,) = controller.provider(who);
            stakes += uint256(stake) + unbonding;
            Bond memory entry = court.bondOf(who);
            bonds += uint256(entry.kept) + entry.leaving;
        }
        same(token.balanceOf(address(controller)), stakes + controller.burnt(), "1: stakes and burnt ones are held");
        same(token.balanceOf(address(court)), bonds + court.burnt(), "court 1: bonds and burnt ones are held");
        yes(!handler.fell(), "2: epoch or size fell");
        yes(!handler.usurped(), "2, 6: an act of owner or authority by another");
        yes(!handler.rushed(), "5: taken over against the rules");
        uint256 offers;
        for (uint256 i; i < 3; ++i) {
            (address bound,) = controller.nodeOf(handler.nodeAt(i));
            same(bound, handler.named(handler.nodeAt(i)), "3: the node's provider");
            (bytes32 specHash,,) = controller.offerOf(handler.nodeAt(i));
            yes(specHash == 0 || bound != address(0), "4: an offer without a provider");
            if (specHash != 0) offers += 1;
        }
        for (uint256 i; i < 4; ++i) {
            offers -= controller.offersOf(handler.person(i));
        }
        same(offers, 0, "4: each offer is counted with its provider");
        handler.compareStorage();
    }
}
