// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Vm} from "./Vm.sol";

/// Assertions that say both sides.
abstract contract Check {
    Vm internal constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));

    error Differs(string what, uint256 got, uint256 want);
    error DiffersBytes(string what, bytes32 got, bytes32 want);
    error Untrue(string what);

    function same(uint256 got, uint256 want, string memory what) internal pure {
        if (got != want) revert Differs(what, got, want);
    }

    function same(address got, address want, string memory what) internal pure {
        if (got != want) revert DiffersBytes(what, bytes32(uint256(uint160(got))), bytes32(uint256(uint160(want))));
    }

    function same(bytes32 got, bytes32 want, string memory what) internal pure {
        if (got != want) revert DiffersBytes(what, got, want);
    }

    function yes(bool holds, string memory what) internal pure {
        if (!holds) revert Untrue(what);
    }

    /// Folds any number into low..=high.
    function within(uint256 x, uint256 low, uint256 high) internal pure returns (uint256) {
        uint256 size = high - low + 1;
        return size == 0 ? x : low + x % size;
    }
}
