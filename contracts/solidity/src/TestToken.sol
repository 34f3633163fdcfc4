// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Permit.sol";

/// A token for development chains only: anyone can make any amount of it, so it is worth nothing anywhere.
/// Allowances can be given by signature (EIP-2612), so that whoever has no gas can join a pool that asks for a stake.
contract TestToken is ERC20("Selion Test Dollar", "tUSD"), ERC20Permit("Selion Test Dollar") {
    /// Six, as the vault's units: one base unit is one unit.
    function decimals() public pure override returns (uint8) {
        return 6;
    }

    /// Makes `amount` base units for `to`. Anyone may call: development chains only.
    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }
}
