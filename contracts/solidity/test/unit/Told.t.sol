// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts} from "../utils/Courts.sol";
import {Vm} from "../utils/Vm.sol";
import {IController} from "../../src/interfaces/IController.sol";

/// Events of the registry that the replay in the campaigns seldom meets.
contract ToldTest is Courts {
    /// The pool's controller reads licences from events alone.
    function test_a_licence_is_told_as_it_is_stored() public {
        vm.recordLogs();
        vm.prank(provider);
        controller.setLicence(renter, bytes32("product"), 3, UNTIL);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        same(logs.length, 1, "one event");
        same(logs[0].topics[0], IController.LicenceSet.selector, "of a licence");
        same(logs[0].topics[1], bytes32(uint256(uint160(provider))), "issuer");
        same(logs[0].topics[2], bytes32(uint256(uint160(renter))), "holder");
        same(logs[0].topics[3], bytes32("product"), "product");
        same(keccak256(logs[0].data), keccak256(abi.encode(uint32(3), uint40(UNTIL))), "seats and end");
    }

    function test_a_node_that_was_nobodys_is_not_told_to_be_retired() public {
        join(provider);
        vm.recordLogs();
        bindNode(provider);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        same(logs.length, 1, "one event");
        same(logs[0].topics[0], IController.NodeRegistered.selector, "of the binding");
    }
}
