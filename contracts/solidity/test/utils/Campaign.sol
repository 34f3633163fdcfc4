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
    mapping(bytes4 => uint256) public did;

    /// The actions that forge may call.
    function actions() public pure virtual returns (bytes4[] memory);

    /// This action did what it is named after.
    function _did() internal {
        did[msg.sig] += 1;
    }
}

/// A campaign over one handler, and a fixed walk through its actions, which must reach every one of them.
abstract contract Campaign is Check {
    uint256 private constant LONGEST = 6000;

    error NeverReached(bytes4 action);
    error ReachedTooLittle(uint256 actions, uint256 times);

    function acting() internal view virtual returns (Acting);

    /// How many of the actions succeed in each story of a campaign at least, and how often all of them together.
    function reaches() internal pure virtual returns (uint256 actions, uint256 times);

    /// Forge calls this at the end of each story: one in which little succeeds shows little.
    function afterInvariant() external view {
        Acting handler = acting();
        bytes4[] memory all = handler.actions();
        (uint256 actions, uint256 times) = (0, 0);
        for (uint256 i; i < all.length; ++i) {
            uint256 did = handler.did(all[i]);
            if (did != 0) actions += 1;
            times += did;
        }
        (uint256 leastActions, uint256 leastTimes) = reaches();
        if (actions < leastActions || times < leastTimes) revert ReachedTooLittle(actions, times);
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(acting());
    }

    function targetSelectors() external view returns (FuzzSelector[] memory selectors) {
        selectors = new FuzzSelector[](1);
        selectors[0] = FuzzSelector(address(acting()), acting().actions());
    }

    /// Half of the steps go to an action that was not reached yet.
    function test_every_action_is_reached() external {
        Acting handler = acting();
        bytes4[] memory all = handler.actions();
        uint256 left = all.length;
        uint256 seed = 0x5e110;
        for (uint256 i; i < LONGEST && left != 0; ++i) {
            seed = uint256(keccak256(abi.encode(seed)));
            uint256 which = (seed >> 8) % (seed & 1 == 0 ? left : all.length);
            _step(address(handler), all[which], seed);
            // Reached ones go behind the others.
            if (which < left && handler.did(all[which]) != 0) {
                left -= 1;
                (all[which], all[left]) = (all[left], all[which]);
            }
        }
        if (left != 0) revert NeverReached(all[0]);
    }

    /// The action with arguments of any size. Those that its types refuse make no step.
    function _step(address handler, bytes4 action, uint256 seed) private {
        bytes memory data = abi.encodePacked(action);
        for (uint256 i; i < 6; ++i) {
            uint256 word = uint256(keccak256(abi.encode(seed, i)));
            uint256[4] memory sizes = [uint256(1), 8, 32, 64];
            data = bytes.concat(data, bytes32((word >> 8) % (1 << sizes[word % 4])));
        }
        (bool done, bytes memory why) = handler.call(data);
        if (done || why.length == 0) return;
        assembly ("memory-safe") {
            revert(add(why, 0x20), mload(why))
        }
    }
}
