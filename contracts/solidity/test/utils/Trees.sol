// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// RFC 9162 as it is written down: what the court's evidence is made of and checked against.
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
}
