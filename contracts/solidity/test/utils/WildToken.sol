// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {OpenToken} from "./OddTokens.sol";

enum Mood {
    Honest,
    Hook, // calls the aimed function in the middle of a transfer, once
    Fee, // keeps one percent of what is received
    False, // moves the money and answers false
    Garbage, // moves the money and answers 2
    Revert
}

/// A token that misbehaves as told, and plays renter and provider itself so that its hooks have something to take.
contract WildToken is OpenToken {
    /// The hook's call begins, and how it ended: recorded logs also hold those of calls that reverted.
    event HookBegan();
    event HookEnded(bool done);

    Mood public mood;
    address private _target;
    bytes private _call;

    function turn(Mood mood_, address target, bytes calldata call_) external {
        (mood, _target, _call) = (mood_, target, call_);
    }

    function allow(address owner, address spender) external {
        _approve(owner, spender, type(uint256).max);
    }

    function transfer(address to, uint256 amount) public override returns (bool) {
        _before(true);
        super.transfer(to, amount);
        return _after(to, amount);
    }

    function transferFrom(address from, address to, uint256 amount) public virtual override returns (bool) {
        _before(false);
        super.transferFrom(from, to, amount);
        return _after(to, amount);
    }

    function _before(bool out) private {
        if (mood == Mood.Revert) revert("no");
        if (out) _hook();
    }

    function _after(address to, uint256 amount) private returns (bool) {
        if (mood == Mood.Fee) _burn(to, amount / 100);
        if (mood == Mood.Garbage) {
            assembly ("memory-safe") {
                mstore(0, 2)
                return(0, 0x20)
            }
        }
        _hook();
        return mood != Mood.False;
    }

    function _hook() private {
        if (mood != Mood.Hook || _target == address(0)) return;
        address target = _target;
        _target = address(0);
        emit HookBegan();
        (bool done,) = target.call(_call);
        emit HookEnded(done); // whether or not it was let in, the invariants must hold
    }
}
