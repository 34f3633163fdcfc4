// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts} from "../utils/Courts.sol";
import {SignedHead, SignedPromise} from "../../src/interfaces/ICourt.sol";
import {Evidence} from "../../src/lib/Evidence.sol";

/// Calls of the library, so that reverts can be caught.
contract Open {
    function prove(bytes32 leaf, uint64 index, uint64 size, bytes32[] memory path, bytes32 root) external pure {
        Evidence.prove(leaf, index, size, path, root);
    }

    function head(SignedHead memory said, bytes28 pool) external pure returns (bytes32) {
        return Evidence.digestOf(said, pool);
    }

    function promise_(SignedPromise memory said, bytes28 pool) external pure returns (bytes32) {
        return Evidence.digestOf(said, pool);
    }

    function report(bytes memory said, bytes28 pool) external pure returns (bytes32) {
        return Evidence.digestOf(said, pool);
    }

    function speaker(bytes memory said) external pure returns (address, address) {
        return Evidence.speakerOf(said);
    }
}

/// Proofs against RFC 9162 as it is written down, and statements against borsh as it is written down.
contract EvidenceTest is Courts {
    Open internal opened = new Open();

    function test_every_leaf_is_proven_at_its_place(uint8 count, uint256 place, uint256 seed) public view {
        uint256 size = within(count, 1, 70);
        place = within(place, 0, size - 1);
        bytes32[] memory leaves = some(size, seed);
        opened.prove(leaves[place], uint64(place), uint64(size), pathOf(leaves, place), rootOf(leaves));
    }

    function test_a_flipped_bit_another_index_or_another_length_is_refused(uint8 count, uint256 place, uint256 how)
        public
        view
    {
        uint256 size = within(count, 2, 70);
        place = within(place, 0, size - 1);
        bytes32[] memory leaves = some(size, 1);
        bytes32[] memory path = pathOf(leaves, place);
        (bytes32 leaf, bytes32 root, uint256 index) = (leaves[place], rootOf(leaves), place);
        uint256 kind = how % 5;
        how /= 5;
        if (kind == 0) leaf ^= bytes32(1 << (how & 255));
        else if (kind == 1) path[(how >> 8) % path.length] ^= bytes32(1 << (how & 255));
        else if (kind == 2) root ^= bytes32(1 << (how & 255));
        else if (kind == 3) index = (place + 1 + how % (size - 1)) % size;
        else path = _other(path, how);
        try opened.prove(leaf, uint64(index), uint64(size), path, root) {
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

    /// All places of all small trees, also lopsided ones.
    function test_every_leaf_of_every_small_tree_is_proven() public view {
        for (uint256 size = 1; size < 36; ++size) {
            bytes32[] memory leaves = some(size, 9);
            bytes32 root = rootOf(leaves);
            for (uint256 i; i < size; ++i) {
                opened.prove(leaves[i], uint64(i), uint64(size), pathOf(leaves, i), root);
            }
        }
    }

    /// A path beyond the tree's top leads to what this tree's root is not, whatever somebody signed as its root.
    function test_a_path_longer_than_the_tree_is_none() public {
        bytes32[] memory path = new bytes32[](1);
        path[0] = "left";
        bytes32 root = nodeHash("left", "leaf");
        refuse(Evidence.BadPath.selector, abi.encode(0, 1, 1));
        opened.prove("leaf", 0, 1, path, root);
    }

    function test_nothing_is_in_no_tree(uint64 index, bytes32 leaf) public {
        refuse(Evidence.BadPath.selector, abi.encode(index, 0, 0));
        opened.prove(leaf, index, 0, new bytes32[](0), leaf);
        opened.prove(leaf, 0, 1, new bytes32[](0), leaf); // alone
    }

    function test_digests_are_those_of_the_plain_way(
        SignedHead memory head,
        SignedPromise memory promised,
        bytes memory said
    ) public view {
        bytes28 pool = Evidence.poolOf(block.chainid, address(controller));
        same(opened.head(head, pool), digestOf(head), "head");
        same(opened.promise_(promised, pool), digestOf(promised), "promise");
        same(opened.report(said, pool), wrapped("report", address(controller), said), "report");
    }

    function test_a_report_tells_its_node_and_provider(address node_, address provider_, bytes memory rest) public {
        Report memory x = report(rest);
        (x.node, x.provider) = (node_, provider_);
        (address who, address for_) = opened.speaker(bytesOf(x));
        yes(who == node_ && for_ == provider_, "as written");
        opened.speaker(new bytes(78));
        refuse(Evidence.BadReport.selector, abi.encode(77));
        opened.speaker(new bytes(77));
    }

    function test_little_endian_is_back_to_front(uint64 x) public pure {
        same(bytes32(Evidence.little64(x)), bytes32(little(x, 8)), "bytes");
    }
}
