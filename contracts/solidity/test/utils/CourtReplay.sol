// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Replay} from "./Replay.sol";
import {Vm} from "./Vm.sol";
import {ICourt} from "../../src/interfaces/ICourt.sol";

/// Rebuilds every storage word of a court from its events alone.
abstract contract CourtReplay is Replay {
    uint256 private constant BONDS = 0;
    uint256 private constant CONVICTED = 1;
    uint256 private constant BURNT = 2;

    function foldCourt(address court_, Vm.Log[] memory logs) internal {
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].emitter == court_) _fold(logs[i]);
        }
    }

    function _fold(Vm.Log memory log) private {
        bytes32 topic = log.topics[0];
        if (topic == ICourt.BondChanged.selector) {
            (uint64 kept, uint64 leaving, uint40 readyAt) = abi.decode(log.data, (uint64, uint64, uint40));
            _image[keccak256(abi.encode(log.topics[1], BONDS))] =
                uint256(readyAt) << 128 | uint256(leaving) << 64 | kept;
        } else if (topic == ICourt.Convicted.selector) {
            (uint64 amount,) = abi.decode(log.data, (uint64, address));
            _image[keccak256(abi.encode(log.topics[2], CONVICTED))] = 1;
            _image[bytes32(BURNT)] += amount - amount / 10;
        } else if (topic == ICourt.Forfeited.selector) {
            _image[bytes32(BURNT)] += abi.decode(log.data, (uint64));
        } else {
            revert Untrue("an event of the court that nobody folds");
        }
    }
}
