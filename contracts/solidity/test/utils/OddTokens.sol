// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

abstract contract OpenToken is ERC20("Odd", "ODD") {
    function decimals() public pure virtual override returns (uint8) {
        return 6;
    }

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }
}

/// Keeps one percent of every transfer.
contract FeeToken is OpenToken {
    function _update(address from, address to, uint256 amount) internal override {
        super._update(from, to, amount);
        if (from != address(0) && to != address(0)) super._update(to, address(0), amount / 100);
    }
}

contract ShortToken is OpenToken {
    function decimals() public pure override returns (uint8) {
        return 5;
    }
}

contract LongToken is OpenToken {
    function decimals() public pure override returns (uint8) {
        return 18;
    }
}

contract ThickToken is OpenToken {
    function decimals() public pure override returns (uint8) {
        return 19;
    }
}

/// Takes from the receiver instead of giving.
contract DrainToken is OpenToken {
    function transferFrom(address, address to, uint256 amount) public override returns (bool) {
        _burn(to, amount);
        return true;
    }
}

/// Calls a target once in the middle of a transfer, as an ERC-777 would.
contract HookToken is OpenToken {
    address private _target;
    bytes private _call;
    bool public refused;

    function aim(address target, bytes calldata call_) external {
        _target = target;
        _call = call_;
        _approve(address(this), target, type(uint256).max);
    }

    function _update(address from, address to, uint256 amount) internal override {
        super._update(from, to, amount);
        if (_target == address(0) || from == address(0)) return;
        address target = _target;
        _target = address(0);
        (bool done,) = target.call(_call);
        refused = !done;
    }
}
