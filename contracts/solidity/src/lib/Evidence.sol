// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Shown, SignedHead, SignedPromise} from "../interfaces/ICourt.sol";

/// What the log's own bytes say: digests that the authority signs, inclusion (RFC 9162), entries and effects. Canonical
/// bytes are little-endian; grants are ABI words. Arguments lie in memory and hashing is written out: the code is half as
/// long so. The court takes the digests of it, the reader the rest.
library Evidence {
    uint256 internal constant WHOLE = 0;
    uint256 internal constant MIG = 1;
    uint256 internal constant SHARE = 2;

    uint256 private constant GRANT_BYTES = 14 * 32;
    uint256 private constant FREED_BYTES = 19;
    uint256 private constant VOUCHER_DUE_BYTES = 57;
    uint256 private constant FREED = 2;
    uint256 private constant VOUCHER_DUE = 5;
    /// An entry without its input: 34 bytes before it, the effects root after it.
    uint256 private constant ENTRY_BYTES = 66;
    uint256 private constant PERMILLE = 1000;
    uint256 private constant LOW64 = type(uint64).max;

    /// A path of this length belongs to no leaf `index` of a tree of `size`.
    error BadPath(uint64 index, uint64 size, uint256 length);
    /// The path leads to another root than the signed one.
    error BadProof(bytes32 root, bytes32 got);
    /// These are not the bytes of an entry, or of the effect that is needed here.
    error BadBytes(uint256 length);

    // -- what is signed

    /// What the authority signs for a head, as EIP-191 wraps it. `pool`: chain id(8, little-endian) | controller(20).
    function digestOf(SignedHead memory head, bytes32 pool) internal view returns (bytes32) {
        (bytes32 size, bytes32 root, bytes32 digest) = (little64(head.size), head.root, head.digest);
        (bytes32 epoch, bytes32 term) = (little64(uint64(head.epoch)), little64(head.term));
        assembly ("memory-safe") {
            let to := mload(0x40)
            mstore(to, hex"0600000073656c696f6e0400000068656164") // borsh: "selion", "head"
            mstore(add(to, 18), pool)
            mstore(add(to, 46), size)
            mstore(add(to, 54), root)
            mstore(add(to, 86), digest)
            mstore(add(to, 118), epoch) // four of the eight bytes; the term overwrites the zeros
            mstore(add(to, 122), term)
        }
        return _signed(130);
    }

    /// The same for a promise.
    function digestOf(SignedPromise memory promised, bytes32 pool) internal view returns (bytes32) {
        (address account, bytes32 seq, bytes32 leaf) = (promised.account, little64(promised.seq), promised.leaf);
        (bytes32 epoch, bytes32 term) = (little64(uint64(promised.epoch)), little64(promised.term));
        assembly ("memory-safe") {
            let to := mload(0x40)
            mstore(to, hex"0600000073656c696f6e0700000070726f6d697365") // borsh: "selion", "promise"
            mstore(add(to, 21), pool)
            mstore(add(to, 49), shl(96, account))
            mstore(add(to, 69), seq)
            mstore(add(to, 77), leaf)
            mstore(add(to, 109), epoch)
            mstore(add(to, 113), term)
        }
        return _signed(121);
    }

    /// The pool as it stands in every digest: 28 bytes from the high end.
    function poolOf(uint256 chainId, address controller) internal pure returns (bytes32) {
        return little64(uint64(chainId)) | bytes32(uint256(uint160(controller)) << 32);
    }

    // -- the tree

    /// Hash of a leaf: SHA-256(0x00, leaf).
    function leafOf(bytes memory leaf) internal view returns (bytes32 hash) {
        assembly ("memory-safe") {
            // The zero byte is borrowed from the length, which stands before the bytes and is put back.
            let length := mload(leaf)
            mstore(leaf, 0)
            if iszero(staticcall(gas(), 2, add(leaf, 31), add(length, 1), 0, 0x20)) { revert(0, 0) } // out of gas
            mstore(leaf, length)
            hash := mload(0)
        }
    }

    /// Hash of a node: SHA-256(0x01, left, right).
    function nodeOf(bytes32 left, bytes32 right) internal view returns (bytes32 hash) {
        assembly ("memory-safe") {
            let buffer := mload(0x40)
            mstore8(buffer, 1)
            mstore(add(buffer, 1), left)
            mstore(add(buffer, 33), right)
            if iszero(staticcall(gas(), 2, buffer, 65, 0, 0x20)) { revert(0, 0) }
            hash := mload(0)
        }
    }

    /// Reverts unless `path` shows `leaf` at `index` of the tree of `size` leaves with this root. `order` is the way down
    /// from the root (a bit a turn, from the high end of 64): of two leaves under one root, the later has the higher one.
    /// Unlike `index` it does not depend on a size that nobody signed.
    function prove(bytes32 leaf, uint64 index, uint64 size, bytes32[] memory path, bytes32 root)
        internal
        view
        returns (uint64)
    {
        uint256 turns;
        uint256 height = path.length;
        uint256 here = index;
        uint256 last;
        unchecked {
            last = uint256(size) - 1; // of no tree: anything, since nothing fits
        }
        bool fits = index < size;
        for (uint256 i; i < height; ++i) {
            if (last == 0) fits = false;
            if (here & 1 == 1 || here == last) {
                leaf = nodeOf(path[i], leaf);
                turns |= 1 << i;
                while (here & 1 == 0 && here != 0) (here, last) = (here >> 1, last >> 1);
            } else {
                leaf = nodeOf(leaf, path[i]);
            }
            (here, last) = (here >> 1, last >> 1);
        }
        if (!fits || last != 0) revert BadPath(index, size, height);
        if (leaf != root) revert BadProof(root, leaf);
        unchecked {
            return uint64(turns << (64 - height)); // a tree of 64-bit size is at most 64 high
        }
    }

    /// Reverts unless the effect is one of an entry of the head's log. Its place: seq(64) | order(64); and its entry's epoch.
    function prove(Shown memory shown, SignedHead memory head) internal view returns (uint128 place, uint32 epoch) {
        bytes memory entry = shown.entry;
        uint256 length = entry.length;
        // Below 34 bytes the length is read from what lies behind; then no length fits.
        if (uint256(_little(entry, 30, 32)) + ENTRY_BYTES != length) revert BadBytes(length);
        uint64 seq = _little(entry, 2, 64);
        epoch = uint32(_little(entry, 10, 32));
        bytes32 effects;
        assembly ("memory-safe") {
            effects := mload(add(entry, length)) // the last 32 bytes
        }
        prove(leafOf(entry), seq, head.size, shown.path, head.root);
        uint64 order = prove(leafOf(shown.effect), shown.index, shown.count, shown.effectPath, effects);
        place = uint128(seq) << 64 | order;
    }

    // -- what is said

    /// The run of a grant: 14 words 1, lease seq, lease index, attempt, member, renter, provider, node, gpu, slot kind,
    /// a, b, class, rate. A run is member(16) | attempt(32) | lease index(32) | lease seq(64).
    function grantOf(bytes memory said) internal pure returns (uint256 run, address renter) {
        if (said.length != GRANT_BYTES || word(said, 0) != 1) revert BadBytes(said.length);
        run = word(said, 4) << 128 | word(said, 3) << 96 | word(said, 2) << 64 | word(said, 1);
        renter = address(uint160(word(said, 5)));
    }

    /// Whether two grants cannot both stand: a whole GPU with anything, MIG instances with a memory slice in common,
    /// shares of more than the GPU's compute. What a share beside a MIG instance means, a contract cannot tell: no.
    function overlap(bytes memory x, bytes memory y) internal pure returns (bool) {
        if (word(x, 7) != word(y, 7) || word(x, 8) != word(y, 8)) return false;
        (uint256 kind, uint256 other) = (word(x, 9), word(y, 9));
        if (kind == WHOLE || other == WHOLE) return true;
        if (kind != other) return false;
        // No wider than the log writes them, so that no sum wraps.
        (uint256 xa, uint256 ya) = (word(x, 10) & LOW64, word(y, 10) & LOW64);
        unchecked {
            if (kind == SHARE) return xa + ya > PERMILLE;
            return xa < ya + (word(y, 11) & LOW64) && ya < xa + (word(x, 11) & LOW64);
        }
    }

    /// The run of 2, lease seq(8), lease index(4), attempt(4), member(2): the same bytes, back to front.
    function freedOf(bytes memory said) internal pure returns (uint256 run) {
        _require(said, FREED_BYTES, FREED);
        return swap(word(said, 0) << 8) & type(uint144).max;
    }

    /// 5, renter(20), provider(20), cumulative(8), used_through(8)
    function voucherDueOf(bytes memory said)
        internal
        pure
        returns (address renter, address provider, uint64 cumulative)
    {
        _require(said, VOUCHER_DUE_BYTES, VOUCHER_DUE);
        assembly ("memory-safe") {
            renter := shr(96, mload(add(said, 33)))
            provider := shr(96, mload(add(said, 53)))
        }
        cumulative = _little(said, 41, 64);
    }

    /// The word of this number.
    function word(bytes memory said, uint256 index) private pure returns (uint256 value) {
        assembly ("memory-safe") {
            value := mload(add(add(said, 0x20), shl(5, index)))
        }
    }

    // -- little-endian

    /// The bytes of a word, back to front.
    function swap(uint256 x) internal pure returns (uint256) {
        uint256 mask = 0x00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff;
        x = (x & mask) << 8 | (x >> 8) & mask;
        mask = 0x0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff;
        x = (x & mask) << 16 | (x >> 16) & mask;
        mask = 0x00000000ffffffff00000000ffffffff00000000ffffffff00000000ffffffff;
        x = (x & mask) << 32 | (x >> 32) & mask;
        mask = 0x0000000000000000ffffffffffffffff0000000000000000ffffffffffffffff;
        x = (x & mask) << 64 | (x >> 64) & mask;
        return x << 128 | x >> 128;
    }

    /// The eight bytes of a number as borsh writes them, from the high end of a word. Four for one below 2^32.
    function little64(uint64 x) internal pure returns (bytes32) {
        return bytes32(swap(x));
    }

    /// The number of `bits` that stands at `from` as borsh writes it.
    function _little(bytes memory said, uint256 from, uint256 bits) private pure returns (uint64) {
        uint256 value;
        assembly ("memory-safe") {
            value := mload(add(add(said, 0x20), from))
        }
        return uint64(swap(value) & ((1 << bits) - 1));
    }

    // -- inside

    function _require(bytes memory said, uint256 length, uint256 kind) private pure {
        if (said.length != length || word(said, 0) >> 248 != kind) revert BadBytes(said.length);
    }

    /// EIP-191 over the SHA-256 of the `length` bytes behind the free memory pointer.
    function _signed(uint256 length) private view returns (bytes32 digest) {
        assembly ("memory-safe") {
            let to := mload(0x40)
            if iszero(staticcall(gas(), 2, to, length, 0, 0x20)) { revert(0, 0) }
            mstore(to, "\x19Ethereum Signed Message:\n32") // 28 bytes
            mstore(add(to, 28), mload(0))
            digest := keccak256(to, 60)
        }
    }
}
