// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts} from "../utils/Courts.sol";
import {Vm} from "../utils/Vm.sol";
import {IController} from "../../src/interfaces/IController.sol";
import {PoolConfig} from "../../src/interfaces/PoolConfig.sol";

/// What the registry takes in, by one unit and one bit: what mutants.sh found that no other test looks at.
contract StakesTest is Courts {
    function test_one_unit_more_of_stake_is_taken() public {
        join(provider);
        token.mint(provider, 1);
        vm.prank(provider);
        controller.registerProvider(provider, 1);
        (, uint64 stake,,) = controller.provider(provider);
        same(stake, MIN_STAKE + 1, "counted");
        same(token.balanceOf(address(controller)), MIN_STAKE + 1, "and held");
    }

    function test_what_unbonds_is_told_with_its_hour() public {
        join(provider);
        vm.recordLogs();
        vm.prank(provider);
        controller.unbond(MIN_STAKE);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        same(logs.length, 1, "one event");
        same(logs[0].topics[0], IController.StakeChanged.selector, "of the stake");
        same(logs[0].topics[1], bytes32(uint256(uint160(provider))), "the provider's");
        bytes memory told = abi.encode(uint64(0), MIN_STAKE, uint40(block.timestamp + UNBOND_S));
        same(keccak256(logs[0].data), keccak256(told), "what is left, what unbonds, and from when it can be taken");
    }

    function test_a_pool_for_trials_takes_simulated_gpus() public {
        PoolConfig memory config = terms(address(token));
        config.allowSimulated = true;
        (controller, vault) = open(config);
        join(provider);
        bindNode(provider);
        vm.prank(provider);
        controller.setOffer(node, bytes32("spec"), 1 << 5, "");
        (, uint8 classes,) = controller.offerOf(node);
        same(classes, 1 << 5, "simulated only");
    }
}
