// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ControllerReplay} from "./ControllerReplay.sol";
import {CourtReplay} from "./CourtReplay.sol";
import {Vm} from "./Vm.sol";

/// The storage of a court, rebuilt in a contract of its own: replays of two contracts share no words.
contract CourtTwin is CourtReplay {
    function fold(address court, Vm.Log[] calldata logs) external {
        foldCourt(court, logs);
    }

    /// Remembers what the court wrote since `vm.record()`.
    function note(address court) external {
        remember(court);
    }

    function compare(address court) external view {
        sameStorage(court);
    }
}

contract ControllerTwin is ControllerReplay {
    function fold(address controller, Vm.Log[] calldata logs) external {
        foldController(controller, logs);
    }

    /// Remembers what the controller wrote since `vm.record()`.
    function note(address controller) external {
        remember(controller);
    }

    function compare(address controller) external view {
        sameStorage(controller);
    }
}
