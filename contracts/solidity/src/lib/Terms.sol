// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IController} from "../interfaces/IController.sol";
import {PoolConfig} from "../interfaces/PoolConfig.sol";

/// What terms a pool may have. The floors are the least time in which a person who looks once a day can act; a pool for
/// simulated GPUs, which nobody pays for, needs none.
library Terms {
    uint16 internal constant MOST_FEE_BPS = 5_000;
    uint32 internal constant LONGEST_S = 90 days;

    /// The term is `given`, and must be from `least` through `most`.
    error BadTerm(string what, uint256 given, uint256 least, uint256 most);

    /// Reverts unless the pool may have these terms.
    function check(PoolConfig memory terms) internal pure {
        if (terms.owner == address(0)) revert IController.Zero("owner");
        if (terms.authority == address(0)) revert IController.Zero("authority");
        uint256 day = terms.allowSimulated ? 0 : 1 days;
        _within("feeBps", terms.feeBps, 0, MOST_FEE_BPS);
        _within("thawDelayS", terms.thawDelayS, day, LONGEST_S);
        _within("unbondDelayS", terms.unbondDelayS, 2 * day, LONGEST_S);
        _within("graceS", terms.graceS, day, LONGEST_S);
        _within("handOverDelayS", terms.handOverDelayS, day, LONGEST_S);
        // No standby ever, or after a silence that an outage of the chain's sequencer does not make by itself.
        if (terms.takeOverAfterS != 0) _within("takeOverAfterS", terms.takeOverAfterS, day / 24, LONGEST_S);
    }

    function _within(string memory what, uint256 given, uint256 least, uint256 most) private pure {
        if (given < least || given > most) revert BadTerm(what, given, least, most);
    }
}
