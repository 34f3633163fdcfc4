// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts} from "../utils/Courts.sol";
import {Vm} from "../utils/Vm.sol";
import {IController} from "../../src/interfaces/IController.sol";
import {IPoolFactory} from "../../src/interfaces/IPoolFactory.sol";
import {PoolConfig} from "../../src/interfaces/PoolConfig.sol";

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

    /// One event, with these topics after its name and without data.
    function _told(bytes32 name, bytes32 first, bytes32 second) private {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        same(logs.length, 1, "one event");
        same(logs[0].topics[0], name, "its name");
        same(logs[0].topics[1], first, "the node");
        same(logs[0].topics[2], second, "its provider");
    }

    function test_an_offer_that_closes_and_a_node_that_retires_are_told() public {
        join(provider);
        bindNode(provider);
        vm.prank(provider);
        controller.setOffer(node, bytes32(uint256(1)), 1, "cid");
        (bytes32 who, bytes32 whose) = (bytes32(uint256(uint160(node))), bytes32(uint256(uint160(provider))));
        vm.recordLogs();
        vm.prank(provider);
        controller.closeOffer(node);
        _told(IController.OfferClosed.selector, who, whose);
        vm.prank(provider);
        controller.retireNode(node);
        _told(IController.NodeRetired.selector, who, whose);
    }

    function test_another_payee_is_told() public {
        join(provider);
        vm.recordLogs();
        vm.prank(provider);
        controller.setPayout(provider, PAYEE);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        same(logs.length, 1, "one event");
        same(logs[0].topics[0], IController.ProviderRegistered.selector, "of the provider");
        same(logs[0].topics[1], bytes32(uint256(uint160(provider))), "whose");
        same(keccak256(logs[0].data), keccak256(abi.encode(PAYEE, MIN_STAKE)), "who is paid, and the stake");
    }

    function test_a_pool_is_told_with_its_maker_and_its_terms() public {
        PoolConfig memory config = terms(address(token));
        config.metadataCid = "bafy";
        vm.recordLogs();
        vm.prank(renter);
        (address c, address v) = factory.create(config);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        Vm.Log memory last = logs[logs.length - 1];
        same(last.topics[0], IPoolFactory.PoolCreated.selector, "of a pool");
        same(last.topics[1], bytes32(uint256(uint160(c))), "controller");
        same(last.topics[2], bytes32(uint256(uint160(v))), "vault");
        same(last.topics[3], bytes32(uint256(uint160(renter))), "who made it");
        same(keccak256(last.data), keccak256(abi.encode(keccak256(abi.encode(config)), "bafy")), "terms and metadata");
    }
}
