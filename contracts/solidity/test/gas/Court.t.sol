// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts} from "../utils/Courts.sol";
import {Leaves, SignedHead, SignedPromise, SignedReport} from "../../src/interfaces/ICourt.sol";

/// What court, owner and authority cost as transactions of their own, cold. Run by test.sh with --isolate. Paths are
/// those of a log of a million entries.
contract CourtGasTest is Courts {
    address internal constant ANYBODY = address(0xA2B0);
    uint256 internal constant DEPTH = 20;
    uint64 internal constant SIZE = uint64(1 << DEPTH);

    function setUp() public override {
        super.setUp();
        token.mint(PAYEE, 1); // the payee has tokens
        token.mint(address(controller), 1);
    }

    function _note(string memory name, uint256 limit) private {
        uint256 used = vm.lastCallGas().gasTotalUsed;
        vm.snapshotValue("court", name, used);
        yes(used <= limit, string.concat(name, " is above its target"));
    }

    /// A head of a full tree of 2^20 leaves in which the first one is `leaf`.
    function _full(bytes32 leaf) private view returns (SignedHead memory head, bytes32[] memory path) {
        path = some(DEPTH, 3);
        bytes32 root = leaf;
        for (uint256 i; i < DEPTH; ++i) {
            root = nodeHash(root, path[i]);
        }
        head = sign(SignedHead(SIZE, root, stateOf(root), 1, 7, 0, 0), AUTHORITY_KEY);
    }

    function test_two_heads_of_one_size() public {
        (SignedHead memory one_,) = _full("a");
        (SignedHead memory other,) = _full("b");
        vm.prank(ANYBODY, ANYBODY);
        court.proveFork(one_, other, none(), PAYEE);
        _note("two heads of one size, first", 130_000); // burnt and the epoch's conviction are new slots
        replace(HEIR_KEY);
        bond(owner, BOND);
        one_ = sign(SignedHead(9, "a", "s", 2, 7, 0, 0), HEIR_KEY);
        other = sign(SignedHead(9, "b", "s", 2, 7, 0, 0), HEIR_KEY);
        vm.prank(ANYBODY, ANYBODY);
        court.proveFork(one_, other, none(), PAYEE);
        _note("two heads of one size, again", 115_000);
    }

    function test_two_heads_by_paths() public {
        (SignedHead memory one_, bytes32[] memory path) = _full("a");
        (SignedHead memory other,) = _full("b");
        bytes32[] memory longer = new bytes32[](DEPTH + 1);
        for (uint256 i; i < DEPTH; ++i) {
            longer[i] = path[i];
        }
        longer[DEPTH] = "right";
        other.root = nodeHash(other.root, "right");
        other.size = 2 * SIZE;
        other = sign(other, AUTHORITY_KEY);
        vm.prank(ANYBODY, ANYBODY);
        court.proveFork(one_, other, Leaves(0, "a", path, "b", longer), PAYEE);
        _note("two heads by paths of 20, first", 230_000);
    }

    function test_a_broken_promise() public {
        (SignedHead memory head, bytes32[] memory path) = _full("a");
        SignedPromise memory promised = promiseOf(0, "b", 1, AUTHORITY_KEY);
        vm.prank(ANYBODY, ANYBODY);
        court.proveBrokenPromise(promised, head, "a", path, PAYEE);
        _note("broken promise by a path of 20, first", 180_000);
    }

    function test_two_reports() public {
        join(provider);
        bindNode(provider);
        (SignedReport memory one_, SignedReport memory other) = (sign(report(new bytes(200))), sign(report("b")));
        vm.prank(ANYBODY, ANYBODY);
        court.proveTwoReports(one_, other, PAYEE);
        _note("two reports, first", 150_000);
    }

    function test_bonds() public {
        token.mint(ANYBODY, 10e6);
        vm.prank(ANYBODY);
        token.approve(address(court), 10e6);
        vm.prank(ANYBODY, ANYBODY);
        court.bond(10e6);
        _note("bond first", 75_000);
        vm.prank(owner, owner);
        court.unbond(1e6);
        _note("unbond", 47_000);
        vm.warp(block.timestamp + UNBOND_S);
        vm.prank(owner, owner);
        court.withdrawBond(PAYEE);
        _note("withdraw bond", 50_000);
    }

    function test_a_life_of_an_owner() public {
        anchor(truth, 3);
        (bytes32 r, bytes32 vs) = consent(HEIR_KEY, owner);
        vm.prank(owner, owner);
        controller.replaceAuthority(heir, r, vs);
        _note("replace authority", 175_000);
        bond(renter, BOND);
        vm.prank(owner, owner);
        controller.announceOwner(renter);
        _note("announce owner", 55_000);
        vm.warp(block.timestamp + HAND_OVER_S);
        (r, vs) = consent(SESSION_KEY, renter);
        bytes32 root = rootOf(upTo(truth, 3));
        bytes32 digest = stateOf(root);
        vm.prank(renter, renter);
        controller.acceptOwner(session, r, vs, 3, root, digest);
        _note("accept owner", 200_000);
    }
}
