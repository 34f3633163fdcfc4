// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {IController} from "../../src/interfaces/IController.sol";
import {PoolConfig} from "../../src/interfaces/PoolConfig.sol";
import {Terms} from "../../src/lib/Terms.sol";

/// Terms are what people can live with: every floor and every ceiling, by one second or one unit.
contract TermsTest is Pools {
    function _judge(PoolConfig memory config, string memory what, uint256 given, uint256 least, uint256 most) private {
        bool fine = given >= least && given <= most;
        if (!fine) vm.expectRevert(abi.encodeWithSelector(Terms.BadTerm.selector, what, given, least, most));
        this.check(config);
    }

    function check(PoolConfig memory config) external pure {
        Terms.check(config);
    }

    function _bounds(bool simulated) private {
        uint32 day = simulated ? 0 : 1 days;
        for (uint256 i; i < 5; ++i) {
            uint256 least = i == 1 ? 2 * day : i == 4 ? day / 24 : day;
            uint256[4] memory given = [least == 0 ? 0 : least - 1, least, 90 days, 90 days + 1];
            for (uint256 k; k < 4; ++k) {
                PoolConfig memory config = terms(address(token));
                config.allowSimulated = simulated;
                uint32 value = uint32(given[k]);
                if (i == 0) config.thawDelayS = value;
                if (i == 1) config.unbondDelayS = value;
                if (i == 2) config.graceS = value;
                if (i == 3) config.handOverDelayS = value;
                if (i == 4) config.takeOverAfterS = value;
                string[5] memory names = ["thawDelayS", "unbondDelayS", "graceS", "handOverDelayS", "takeOverAfterS"];
                _judge(config, names[i], value, least, 90 days);
            }
        }
    }

    function test_delays_have_floors_and_ceilings() public {
        _bounds(false);
    }

    function test_a_pool_for_trials_has_ceilings_only() public {
        _bounds(true);
    }

    function test_a_fee_is_half_of_all_at_most() public {
        PoolConfig memory config = terms(address(token));
        config.feeBps = 5_000;
        this.check(config);
        config.feeBps = 5_001;
        _judge(config, "feeBps", 5_001, 0, 5_000);
        config.feeBps = 0;
        this.check(config);
    }

    function test_no_take_over_at_all_is_a_term_too() public view {
        PoolConfig memory config = terms(address(token));
        config.takeOverAfterS = 0;
        this.check(config);
    }

    function test_a_pool_has_an_owner_and_an_authority() public {
        PoolConfig memory config = terms(address(token));
        config.owner = address(0);
        vm.expectRevert(abi.encodeWithSelector(IController.Zero.selector, "owner"));
        this.check(config);
        config.owner = owner;
        config.authority = address(0);
        vm.expectRevert(abi.encodeWithSelector(IController.Zero.selector, "authority"));
        factory.create(config); // and the factory passes the reason on
    }
}
