// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Shown} from "../../src/interfaces/ICourt.sol";

/// RFC 6962 as it is written down, entries and effects: what the court's evidence is made of and checked against.
abstract contract Trees {
    function leafHash(bytes memory leaf) internal pure returns (bytes32) {
        return sha256(bytes.concat(hex"00", leaf));
    }

    function nodeHash(bytes32 left, bytes32 right) internal pure returns (bytes32) {
        return sha256(bytes.concat(hex"01", left, right));
    }

    function _split(uint256 size) private pure returns (uint256 k) {
        k = 1;
        while (2 * k < size) k *= 2;
    }

    /// Root over leaves from..to.
    function rootOf(bytes32[] memory leaves, uint256 from, uint256 to) internal pure returns (bytes32) {
        if (to - from == 1) return leaves[from];
        uint256 k = _split(to - from);
        return nodeHash(rootOf(leaves, from, from + k), rootOf(leaves, from + k, to));
    }

    function rootOf(bytes32[] memory leaves) internal pure returns (bytes32) {
        return rootOf(leaves, 0, leaves.length);
    }

    /// RFC 9162 2.1.3.1.
    function pathOf(bytes32[] memory leaves, uint256 index) internal pure returns (bytes32[] memory path) {
        bytes32[] memory room = new bytes32[](64);
        uint256 length = _path(leaves, 0, leaves.length, index, room, 0);
        path = new bytes32[](length);
        for (uint256 i; i < length; ++i) {
            path[i] = room[i];
        }
    }

    function _path(bytes32[] memory leaves, uint256 from, uint256 to, uint256 index, bytes32[] memory room, uint256 used)
        private
        pure
        returns (uint256)
    {
        if (to - from == 1) return used;
        uint256 k = from + _split(to - from);
        bool left = index < k;
        used = left ? _path(leaves, from, k, index, room, used) : _path(leaves, k, to, index, room, used);
        room[used] = left ? rootOf(leaves, k, to) : rootOf(leaves, from, k);
        return used + 1;
    }

    function some(uint256 count, uint256 seed) internal pure returns (bytes32[] memory leaves) {
        leaves = new bytes32[](count);
        for (uint256 i; i < count; ++i) {
            leaves[i] = leafHash(abi.encode(seed, i));
        }
    }

    /// Numbers of up to 64 bits, low byte first.
    function little(uint256 x, uint256 size) internal pure returns (bytes memory said) {
        for (uint256 i; i < size; ++i) {
            said = bytes.concat(said, bytes1(uint8(x >> (8 * i))));
        }
    }

    function entryOf(uint64 seq, uint32 epoch, bytes32 effects) internal pure returns (bytes memory) {
        return abi.encodePacked(
            little(1, 2), little(seq, 8), little(epoch, 4), little(7, 8), little(1e12, 8), little(3, 4), "abc", effects
        );
    }

    function voucherDue(address renter, address provider, uint64 cumulative) internal pure returns (bytes memory) {
        return abi.encodePacked(uint8(5), renter, provider, little(cumulative, 8), little(9, 8));
    }

    function freedOf(uint64 lease, uint32 index, uint32 attempt, uint16 member) internal pure returns (bytes memory) {
        return abi.encodePacked(uint8(2), little(lease, 8), little(index, 4), little(attempt, 4), little(member, 2));
    }

    /// A log: what each entry did. Everything is shown from here.
    bytes[][] internal _log;
    uint32 internal _logEpoch = 1;

    /// Adds an entry with these effects; returns its number.
    function enterEffects(bytes[] memory effects) internal returns (uint64) {
        _log.push();
        for (uint256 i; i < effects.length; ++i) {
            _log[_log.length - 1].push(effects[i]);
        }
        return uint64(_log.length - 1);
    }

    function enterEffect(bytes memory effect) internal returns (uint64) {
        bytes[] memory effects = new bytes[](1);
        effects[0] = effect;
        return enterEffects(effects);
    }

    function effectLeaves(uint256 seq) internal view returns (bytes32[] memory leaves) {
        leaves = new bytes32[](_log[seq].length);
        for (uint256 i; i < leaves.length; ++i) {
            leaves[i] = leafHash(_log[seq][i]);
        }
    }

    function entryAt(uint256 seq) internal view returns (bytes memory) {
        return entryOf(uint64(seq), _logEpoch, rootOf(effectLeaves(seq)));
    }

    function logLeaves() internal view returns (bytes32[] memory leaves) {
        leaves = new bytes32[](_log.length);
        for (uint256 i; i < leaves.length; ++i) {
            leaves[i] = leafHash(entryAt(i));
        }
    }

    function show(uint64 seq, uint64 index) internal view returns (Shown memory) {
        bytes32[] memory effects = effectLeaves(seq);
        return Shown({
            entry: entryAt(seq),
            path: pathOf(logLeaves(), seq),
            effect: _log[seq][index],
            index: index,
            count: uint64(effects.length),
            effectPath: pathOf(effects, index)
        });
    }
}
