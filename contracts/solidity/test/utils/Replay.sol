// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Check} from "./Check.sol";

/// The storage of one contract as its events tell it, and every word that was ever written beside it.
abstract contract Replay is Check {
    /// The rebuilt storage, by slot.
    mapping(bytes32 => uint256) internal _image;
    bytes32[] private _written;
    mapping(bytes32 => bool) private _known;

    /// Remembers which words the contract wrote since `vm.record()`: all of them must be rebuilt.
    function remember(address at) internal {
        (, bytes32[] memory writes) = vm.accesses(at);
        for (uint256 i; i < writes.length; ++i) {
            if (_known[writes[i]]) continue;
            _known[writes[i]] = true;
            _written.push(writes[i]);
        }
    }

    /// Every word that was ever written is what the events say.
    function sameStorage(address at) internal view {
        for (uint256 i; i < _written.length; ++i) {
            bytes32 slot = _written[i];
            same(vm.load(at, slot), bytes32(_image[slot]), "a word of storage and its rebuilt twin");
        }
    }
}
