// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Check} from "./Check.sol";

/// What forge calls of a handler, and nothing else.
struct FuzzSelector {
    address addr;
    bytes4[] selectors;
}

/// A handler that counts which of its actions succeeded: a campaign that never reaches an action shows nothing about it.
abstract contract Acting is Check {
    uint256 public steps;
    mapping(bytes4 => uint256) public did;

    /// The actions that forge may call.
    function actions() public pure virtual returns (bytes4[] memory);

    /// This action did what it is named after.
    function _did() internal {
        did[msg.sig] += 1;
    }
}

/// A campaign over one handler. A run long enough must have reached every action.
abstract contract Campaign is Check {
    uint256 private constant LONG = 400;

    error NeverReached(bytes4 action);

    function acting() internal view virtual returns (Acting);

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(acting());
    }

    function targetSelectors() external view returns (FuzzSelector[] memory selectors) {
        selectors = new FuzzSelector[](1);
        selectors[0] = FuzzSelector(address(acting()), acting().actions());
    }

    function afterInvariant() external view {
        Acting handler = acting();
        if (handler.steps() < LONG) return;
        bytes4[] memory all = handler.actions();
        for (uint256 i; i < all.length; ++i) {
            if (handler.did(all[i]) == 0) revert NeverReached(all[i]);
        }
    }
}
