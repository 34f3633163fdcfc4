// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {SignedHead, SignedPromise} from "../interfaces/ICourt.sol";

/// What authorities and nodes sign, and what shows that a leaf is in a tree (RFC 9162). Canonical bytes are borsh:
/// little-endian, a text after its length. Every digest is EIP-191 over the SHA-256 of ("selion", kind, pool, statement).
library Evidence {
    /// A report begins with node(20) provider(20) seq(8) fence(12) lease(12) attempt(4) member(2).
    uint256 private constant REPORT_HEAD = 78;
    uint256 private constant NODE_AND_PROVIDER = 40;
    uint256 private constant SEQ_END = 48;
    uint256 private constant FENCE_END = 60;

    /// A path of this length belongs to no leaf `index` of a tree of `size`.
    error BadPath(uint64 index, uint64 size, uint256 length);
    /// The path leads to another root than the signed one.
    error BadProof(bytes32 root, bytes32 got);
    /// These are not the bytes of a report.
    error BadReport(uint256 length);

    // -- what is signed

    /// What the authority signs for a head. `pool`: see {poolOf}.
    function digestOf(SignedHead memory head, bytes28 pool) internal pure returns (bytes32) {
        bytes memory said = abi.encodePacked(little64(head.size), head.root, head.digest);
        return _digest("head", pool, bytes.concat(said, _fence(head.epoch, head.term)));
    }

    /// What the authority signs for a promise.
    function digestOf(SignedPromise memory promised, bytes28 pool) internal pure returns (bytes32) {
        bytes memory said = abi.encodePacked(promised.account, little64(promised.seq), promised.leaf);
        return _digest("promise", pool, bytes.concat(said, _fence(promised.epoch, promised.term)));
    }

    /// What a node signs for a report of these canonical bytes.
    function digestOf(bytes memory report, bytes28 pool) internal pure returns (bytes32) {
        return _digest("report", pool, report);
    }

    /// The pool as it stands in every digest: chain id(8, little-endian) | controller(20).
    function poolOf(uint256 chainId, address controller) internal pure returns (bytes28) {
        return bytes28(abi.encodePacked(little64(uint64(chainId)), controller));
    }

    // -- reports

    /// Who states a report, and for whom the node worked.
    function speakerOf(bytes memory report) internal pure returns (address node, address provider) {
        if (report.length < REPORT_HEAD) revert BadReport(report.length);
        assembly ("memory-safe") {
            node := shr(96, mload(add(report, 0x20)))
            provider := shr(96, mload(add(report, 0x34)))
        }
    }

    /// Whether two reports cannot both be an honest node's: for one provider, of one number, lease, run and member, and not
    /// the same. The fence does not count: it says under whom a node acted, and a report is signed once whatever it is.
    function contradict(bytes memory one, bytes memory other) internal pure returns (bool) {
        if (one.length < REPORT_HEAD) revert BadReport(one.length);
        if (other.length < REPORT_HEAD) revert BadReport(other.length);
        return _part(one, 0, SEQ_END) == _part(other, 0, SEQ_END)
            && _part(one, FENCE_END, REPORT_HEAD) == _part(other, FENCE_END, REPORT_HEAD)
            && _part(one, REPORT_HEAD, one.length) != _part(other, REPORT_HEAD, other.length);
    }

    // -- the tree

    /// Reverts unless `path` shows `leaf`, the hash of a leaf, at `index` of the tree of `size` leaves with this root
    /// (RFC 9162, 2.1.3.2).
    function prove(bytes32 leaf, uint64 index, uint64 size, bytes32[] memory path, bytes32 root) internal pure {
        if (index >= size) revert BadPath(index, size, path.length);
        uint256 here = index;
        uint256 last = size - 1;
        for (uint256 i; i < path.length; ++i) {
            if (last == 0) revert BadPath(index, size, path.length);
            if (here & 1 == 1 || here == last) {
                leaf = _nodeOf(path[i], leaf);
                while (here & 1 == 0 && here != 0) (here, last) = (here >> 1, last >> 1);
            } else {
                leaf = _nodeOf(leaf, path[i]);
            }
            (here, last) = (here >> 1, last >> 1);
        }
        if (last != 0) revert BadPath(index, size, path.length);
        if (leaf != root) revert BadProof(root, leaf);
    }

    // -- inside

    function _nodeOf(bytes32 left, bytes32 right) private pure returns (bytes32) {
        return sha256(abi.encodePacked(bytes1(0x01), left, right));
    }

    function _digest(string memory kind, bytes28 pool, bytes memory statement) private pure returns (bytes32) {
        bytes memory said = abi.encodePacked(_text("selion"), _text(kind), pool, statement);
        return keccak256(abi.encodePacked("\x19Ethereum Signed Message:\n32", sha256(said)));
    }

    /// A text of fewer than 256 bytes.
    function _text(string memory text) private pure returns (bytes memory) {
        return abi.encodePacked(bytes1(uint8(bytes(text).length)), bytes3(0), text);
    }

    function _fence(uint32 epoch, uint64 term) private pure returns (bytes memory) {
        return abi.encodePacked(bytes4(little64(epoch)), little64(term));
    }

    /// The eight bytes of a number as borsh writes them; the first four are those of one below 2^32.
    function little64(uint64 x) internal pure returns (bytes8) {
        x = (x & 0x00ff00ff00ff00ff) << 8 | (x >> 8) & 0x00ff00ff00ff00ff;
        x = (x & 0x0000ffff0000ffff) << 16 | (x >> 16) & 0x0000ffff0000ffff;
        return bytes8(x << 32 | x >> 32);
    }

    /// Hash of the bytes from `from` up to `to`.
    function _part(bytes memory said, uint256 from, uint256 to) private pure returns (bytes32 hash) {
        assembly ("memory-safe") {
            hash := keccak256(add(add(said, 0x20), from), sub(to, from))
        }
    }
}
