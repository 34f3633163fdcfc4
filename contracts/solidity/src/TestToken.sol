// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

/// A token for development chains only: anyone can make any amount of it, so it is worth nothing anywhere.
contract TestToken is ERC20("Selion Test Dollar", "tUSD") {
    /// Six, as the vault's units: one base unit is one unit.
    function decimals() public pure override returns (uint8) {
        return 6;
    }

    /// Makes `amount` base units for `to`. Anyone may call: development chains only.
    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }
}
