// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IERC20Metadata} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Metadata.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

/// Moves units (millionths of a token) of an honest ERC-20, and notices a dishonest one at the door.
library Coin {
    using SafeERC20 for IERC20;

    /// The token has fewer than 6 or more than 18 decimals.
    error BadDecimals(uint8 decimals);
    /// The token did not deliver what was sent: it takes a fee, or lies.
    error NotReceived(uint256 expected, uint256 got);

    /// Base units in a unit.
    function scaleOf(address token) internal view returns (uint256) {
        uint8 decimals = IERC20Metadata(token).decimals();
        if (decimals < 6 || decimals > 18) revert BadDecimals(decimals);
        return 10 ** (decimals - 6);
    }

    /// Takes `units` from `from`, exactly.
    function take(address token, uint256 scale, address from, uint64 units) internal {
        uint256 expected = uint256(units) * scale;
        uint256 before = IERC20(token).balanceOf(address(this));
        IERC20(token).safeTransferFrom(from, address(this), expected);
        uint256 afterwards = IERC20(token).balanceOf(address(this));
        uint256 got = afterwards < before ? 0 : afterwards - before;
        if (got != expected) revert NotReceived(expected, got);
    }

    /// Pays `units` to `to`.
    function pay(address token, uint256 scale, address to, uint64 units) internal {
        IERC20(token).safeTransfer(to, uint256(units) * scale);
    }
}
