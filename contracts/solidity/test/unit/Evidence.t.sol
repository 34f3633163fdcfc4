// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts} from "../utils/Courts.sol";
import {Shown, SignedHead, SignedPromise} from "../../src/interfaces/ICourt.sol";
import {Evidence} from "../../src/lib/Evidence.sol";

/// Calls of the library, so that reverts can be caught.
contract Open {
    function prove(bytes32 leaf, uint64 index, uint64 size, bytes32[] memory path, bytes32 root)
        external
        view
        returns (uint64)
    {
        return Evidence.prove(leaf, index, size, path, root);
    }

    function prove(Shown memory shown, SignedHead memory head) external view returns (uint128, uint32) {
        return Evidence.prove(shown, head);
    }

    function leafOf(bytes memory leaf) external view returns (bytes32) {
        return Evidence.leafOf(leaf);
    }

    function head(SignedHead memory said, bytes32 pool) external view returns (bytes32) {
        return Evidence.digestOf(said, pool);
    }

    function promise_(SignedPromise memory said, bytes32 pool) external view returns (bytes32) {
        return Evidence.digestOf(said, pool);
    }
}

/// Proofs against RFC 6962 as it is written down.
contract EvidenceTest is Courts {
    Open internal open = new Open();

    function test_every_leaf_is_proven_at_its_place(uint8 count, uint256 at, uint256 seed) public view {
        uint256 size = within(count, 1, 70);
        at = within(at, 0, size - 1);
        bytes32[] memory leaves = some(size, seed);
        open.prove(leaves[at], uint64(at), uint64(size), pathOf(leaves, at), rootOf(leaves));
    }

    function test_a_flipped_bit_another_index_or_another_length_is_refused(uint8 count, uint256 at, uint256 how) public view {
        uint256 size = within(count, 2, 70);
        at = within(at, 0, size - 1);
        bytes32[] memory leaves = some(size, 1);
        bytes32[] memory path = pathOf(leaves, at);
        (bytes32 leaf, bytes32 root, uint256 index) = (leaves[at], rootOf(leaves), at);
        uint256 kind = how % 5;
        how /= 5;
        if (kind == 0) leaf ^= bytes32(1 << (how & 255));
        else if (kind == 1) path[(how >> 8) % path.length] ^= bytes32(1 << (how & 255));
        else if (kind == 2) root ^= bytes32(1 << (how & 255));
        else if (kind == 3) index = (at + 1 + how % (size - 1)) % size;
        else path = _other(path, how);
        try open.prove(leaf, uint64(index), uint64(size), path, root) {
            revert Untrue("it was proven");
        } catch {}
    }

    /// One step fewer or more.
    function _other(bytes32[] memory path, uint256 how) private pure returns (bytes32[] memory other) {
        other = new bytes32[](how & 1 == 0 ? path.length - 1 : path.length + 1);
        for (uint256 i; i < other.length && i < path.length; ++i) {
            other[i] = path[i];
        }
    }

    function test_nothing_is_in_no_tree(uint64 index, bytes32 leaf) public {
        refuse(Evidence.BadPath.selector, abi.encode(index, 0, 0));
        open.prove(leaf, index, 0, new bytes32[](0), leaf);
        same(open.prove(leaf, 0, 1, new bytes32[](0), leaf), 0, "alone");
    }

    function test_the_order_of_two_leaves_is_theirs(uint8 count, uint256 x, uint256 y) public view {
        uint256 size = within(count, 2, 70);
        (x, y) = (within(x, 0, size - 1), within(y, 0, size - 1));
        bytes32[] memory leaves = some(size, 1);
        bytes32 root = rootOf(leaves);
        uint64 one = open.prove(leaves[x], uint64(x), uint64(size), pathOf(leaves, x), root);
        uint64 other = open.prove(leaves[y], uint64(y), uint64(size), pathOf(leaves, y), root);
        yes((one < other) == (x < y) && (one == other) == (x == y), "order");
    }

    function test_a_leaf_hash_leaves_the_leaf_as_it_was(bytes memory leaf) public view {
        same(open.leafOf(leaf), leafHash(leaf), "hash");
        bytes32 before = keccak256(leaf);
        Evidence.leafOf(leaf);
        same(keccak256(leaf), before, "bytes");
    }

    function test_digests_are_those_of_the_plain_way(SignedHead memory head, SignedPromise memory promised) public view {
        bytes32 pool = Evidence.poolOf(block.chainid, CONTROLLER);
        same(open.head(head, pool), digestOf(head), "head");
        same(open.promise_(promised, pool), digestOf(promised), "promise");
    }

    function test_little_endian_is_back_to_front(uint64 x, uint256 y) public pure {
        same(bytes32(Evidence.little64(x)), bytes32(little(x, 8)), "bytes");
        same(Evidence.swap(Evidence.swap(y)), y, "twice");
    }

    function test_an_entry_tells_its_number_and_epoch(uint8 seq, uint32 epoch, bytes memory input) public view {
        seq = seq % 20;
        bytes memory effect = hex"05";
        bytes memory entry = abi.encodePacked(
            little(1, 2), little(seq, 8), little(epoch, 4), little(5, 16), little(input.length, 4), input, leafHash(effect)
        );
        bytes32[] memory leaves = some(20, 1);
        leaves[seq] = leafHash(entry);
        Shown memory shown = Shown(entry, pathOf(leaves, seq), effect, 0, 1, new bytes32[](0));
        SignedHead memory head = SignedHead(20, rootOf(leaves), 0, 1, 1, 0, 0);
        (uint128 place, uint32 said) = open.prove(shown, head);
        same(place, uint256(seq) << 64, "place");
        same(said, epoch, "epoch");
    }
}
