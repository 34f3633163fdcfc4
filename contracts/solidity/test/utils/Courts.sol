// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "./Pools.sol";
import {Trees} from "./Trees.sol";
import {Leaves, SignedHead, SignedPromise, SignedReport} from "../../src/interfaces/ICourt.sol";
import {Court} from "../../src/Court.sol";

/// A pool whose owner has a bond, and helpers that write heads, promises and reports down the plain way and sign them.
abstract contract Courts is Pools, Trees {
    uint256 internal constant NODE_KEY = 0x40DE;
    uint256 internal constant LOG = 5;
    uint64 internal constant BOND = 5000e6;
    address internal constant PAYEE = address(0x0A1EE);
    address internal node = vm.addr(NODE_KEY);
    Court internal court;
    /// The leaves of the log that is told, and of one that is told otherwise from index `FORK` on.
    bytes32[] internal truth = some(LOG, 1);
    bytes32[] internal lie = some(LOG, 1);
    uint64 internal constant FORK = 2;
    bytes private _why;

    function setUp() public virtual override {
        super.setUp();
        court = Court(controller.court());
        bond(owner, BOND);
        for (uint256 i = FORK; i < LOG; ++i) {
            lie[i] = leafHash(abi.encode("lie", i));
        }
    }

    function refuse(bytes4 selector, bytes memory arguments) internal {
        vm.expectRevert(bytes.concat(selector, arguments));
    }

    /// The next proof reverts with this. Not told to the machine at once: statements are hashed by calls of their own.
    function expect(bytes4 selector, bytes memory arguments) internal {
        _why = bytes.concat(selector, arguments);
    }

    /// The next proof reverts with whatever.
    function expectAny() internal {
        _why = "any";
    }

    function _tell() private {
        if (keccak256(_why) == keccak256("any")) vm.expectRevert();
        else if (_why.length != 0) vm.expectRevert(_why);
        delete _why;
    }

    function fork(SignedHead memory one_, SignedHead memory other, Leaves memory leaves) internal {
        _tell();
        court.proveFork(one_, other, leaves, PAYEE);
    }

    function breach(SignedPromise memory promised, SignedHead memory head, bytes32 leaf, bytes32[] memory path) internal {
        _tell();
        court.proveBrokenPromise(promised, head, leaf, path, PAYEE);
    }

    function reports(SignedReport memory one_, SignedReport memory other) internal {
        _tell();
        court.proveTwoReports(one_, other, PAYEE);
    }

    function kept(address who) internal view returns (uint64) {
        return court.bondOf(who).kept;
    }

    /// The first leaves of a log.
    function upTo(bytes32[] memory leaves, uint256 size) internal pure returns (bytes32[] memory first) {
        first = new bytes32[](size);
        for (uint256 i; i < size; ++i) {
            first[i] = leaves[i];
        }
    }

    // -- statements

    function wrapped(string memory kind, address pool, bytes memory said) internal view returns (bytes32) {
        bytes memory all = abi.encodePacked(
            little(6, 4), "selion", little(bytes(kind).length, 4), kind, little(block.chainid, 8), pool, said
        );
        return keccak256(abi.encodePacked("\x19Ethereum Signed Message:\n32", sha256(all)));
    }

    function digestOf(SignedHead memory head) internal view returns (bytes32) {
        return wrapped(
            "head",
            address(controller),
            abi.encodePacked(little(head.size, 8), head.root, head.digest, little(head.epoch, 4), little(head.term, 8))
        );
    }

    function digestOf(SignedPromise memory promised) internal view returns (bytes32) {
        bytes memory fence = abi.encodePacked(little(promised.epoch, 4), little(promised.term, 8));
        return wrapped(
            "promise",
            address(controller),
            abi.encodePacked(promised.account, little(promised.seq, 8), promised.leaf, fence)
        );
    }

    function sign(SignedHead memory head, uint256 key) internal view returns (SignedHead memory) {
        (head.r, head.vs) = compact(key, digestOf(head));
        return head;
    }

    function sign(SignedPromise memory promised, uint256 key) internal view returns (SignedPromise memory) {
        (promised.r, promised.vs) = compact(key, digestOf(promised));
        return promised;
    }

    /// The head of the first `size` leaves, by the first authority in epoch 1.
    function headOf(bytes32[] memory leaves, uint256 size) internal view returns (SignedHead memory) {
        return headOf(leaves, size, 1, AUTHORITY_KEY);
    }

    function headOf(bytes32[] memory leaves, uint256 size, uint32 epoch, uint256 key)
        internal
        view
        returns (SignedHead memory)
    {
        bytes32 root = rootOf(upTo(leaves, size));
        return sign(SignedHead(uint64(size), root, stateOf(root), epoch, 7, 0, 0), key);
    }

    /// The same without a signature: as it was anchored in `epoch`.
    function anchored(bytes32[] memory leaves, uint256 size, uint32 epoch) internal pure returns (SignedHead memory) {
        bytes32 root = rootOf(upTo(leaves, size));
        return SignedHead(uint64(size), root, stateOf(root), epoch, 0, 0, 0);
    }

    function stateOf(bytes32 root) internal pure returns (bytes32) {
        return keccak256(abi.encode("state", root));
    }

    /// The present authority anchors the first `size` leaves.
    function anchor(bytes32[] memory leaves, uint256 size) internal {
        bytes32 root = rootOf(upTo(leaves, size));
        uint32 epoch = controller.epoch();
        vm.prank(controller.authority());
        controller.anchor(epoch, uint64(size), root, stateOf(root));
    }

    function promiseOf(uint64 seq, bytes32 leaf, uint32 epoch, uint256 key) internal view returns (SignedPromise memory) {
        return sign(SignedPromise(renter, seq, leaf, epoch, 7, 0, 0), key);
    }

    /// The leaf at `index` of both, which two trees disagree about.
    function leavesAt(uint64 index, bytes32[] memory one_, bytes32[] memory other)
        internal
        pure
        returns (Leaves memory)
    {
        return Leaves(index, one_[index], pathOf(one_, index), other[index], pathOf(other, index));
    }

    function none() internal pure returns (Leaves memory) {}

    // -- reports

    struct Report {
        address node;
        address provider;
        uint64 seq;
        uint32 epoch;
        uint64 term;
        uint64 lease;
        uint32 index;
        uint32 attempt;
        uint16 member;
        bytes rest;
    }

    function report(bytes memory rest) internal view returns (Report memory) {
        return Report(node, provider, 9, 1, 7, 55, 1, 2, 3, rest);
    }

    function bytesOf(Report memory x) internal pure returns (bytes memory) {
        bytes memory start = abi.encodePacked(x.node, x.provider, little(x.seq, 8), little(x.epoch, 4), little(x.term, 8));
        bytes memory run = abi.encodePacked(little(x.lease, 8), little(x.index, 4), little(x.attempt, 4));
        return bytes.concat(start, run, little(x.member, 2), x.rest);
    }

    function sign(bytes memory said, uint256 key) internal view returns (SignedReport memory) {
        (bytes32 r, bytes32 vs) = compact(key, wrapped("report", address(controller), said));
        return SignedReport(said, r, vs);
    }

    function sign(Report memory x) internal view returns (SignedReport memory) {
        return sign(bytesOf(x), NODE_KEY);
    }

    /// The node joins the provider, who has the least stake.
    function bindNode(address to) internal {
        (bytes32 r, bytes32 vs) = compact(NODE_KEY, controller.nodeBindingDigest(node, to));
        vm.prank(to);
        controller.registerNode(node, r, vs);
    }
}
