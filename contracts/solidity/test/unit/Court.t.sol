// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts} from "../utils/Courts.sol";
import {IController} from "../../src/interfaces/IController.sol";
import {ICourt, Leaves, SignedHead, SignedPromise} from "../../src/interfaces/ICourt.sol";
import {Evidence} from "../../src/lib/Evidence.sol";

/// What an authority signed against itself costs the owner of its epoch the bond, and nothing else does.
contract CourtTest is Courts {
    address private next = address(0x4E87);

    function _guilty(uint32 epoch, address liable) private view {
        yes(court.convicted(epoch), "convicted");
        same(court.atStake(epoch), 0, "nothing is behind it");
        same(kept(liable), 0, "the bond");
        same(token.balanceOf(PAYEE), BOND / 10, "a tenth for who watched");
        same(court.burnt(), BOND - BOND / 10, "the rest for nobody");
        same(token.balanceOf(address(court)), court.burnt(), "held");
    }

    // -- two heads

    function test_two_heads_of_one_size_are_a_contradiction() public {
        same(court.atStake(1), BOND, "at stake");
        fork(headOf(truth, 4), headOf(lie, 4), none());
        _guilty(1, owner);
        expect(ICourt.AlreadyConvicted.selector, abi.encode(1));
        fork(headOf(truth, 5), headOf(lie, 5), none());
    }

    function test_two_states_after_one_log_are_a_contradiction() public {
        SignedHead memory head = headOf(truth, 4);
        SignedHead memory other = headOf(truth, 4);
        other.digest = keccak256("another");
        fork(head, sign(other, AUTHORITY_KEY), none());
        _guilty(1, owner);
    }

    function test_one_head_signed_twice_is_none() public {
        SignedHead memory head = headOf(truth, 4);
        SignedHead memory again = headOf(truth, 4);
        again.term = 8; // under another term of the same epoch
        again = sign(again, AUTHORITY_KEY);
        expect(ICourt.NoContradiction.selector, "");
        fork(head, again, none());
    }

    function test_different_leaves_at_one_index_are_a_contradiction() public {
        bytes32[] memory short = upTo(truth, 3);
        fork(headOf(truth, 3), headOf(lie, 5), leavesAt(2, short, lie));
        _guilty(1, owner);
    }

    /// Every field of either head, by one bit: it is not signed any more, or says nothing against the other.
    function testFuzz_a_fork_with_a_changed_head_is_refused(bool first, uint8 field, uint8 bit, bool sameSize) public {
        SignedHead memory one_ = headOf(truth, sameSize ? 5 : 3);
        SignedHead memory other = headOf(lie, 5);
        Leaves memory leaves = sameSize ? none() : leavesAt(2, upTo(truth, 3), lie);
        SignedHead memory bad = first ? one_ : other;
        field = field % 7;
        if (field == 0) bad.size ^= uint64(1 << (bit % 64));
        if (field == 1) bad.root ^= bytes32(1 << bit);
        if (field == 2) bad.digest ^= bytes32(1 << bit);
        if (field == 3) bad.epoch ^= uint32(1 << (bit % 32));
        if (field == 4) bad.term ^= uint64(1 << (bit % 64));
        if (field == 5) bad.r ^= bytes32(1 << bit);
        if (field == 6) bad.vs ^= bytes32(1 << bit);
        expectAny();
        fork(one_, other, leaves);
        same(kept(owner), BOND, "the bond");
    }

    /// Every leaf, path and index: a path proves what SHA-256 allows only.
    function testFuzz_a_fork_with_a_changed_path_is_refused(uint8 part, uint8 bit, uint8 which) public {
        bytes32[] memory short = upTo(truth, 3);
        Leaves memory leaves = leavesAt(2, short, lie);
        if (part % 5 == 0) leaves.index = uint64(within(bit, 0, 6) < 2 ? bit % 2 : 3 + bit % 4);
        if (part % 5 == 1) leaves.leafOfOne ^= bytes32(1 << bit);
        if (part % 5 == 2) leaves.leafOfOther ^= bytes32(1 << bit);
        if (part % 5 == 3) leaves.pathInOne[which % leaves.pathInOne.length] ^= bytes32(1 << bit);
        if (part % 5 == 4) leaves.pathInOther[which % leaves.pathInOther.length] ^= bytes32(1 << bit);
        expectAny();
        fork(headOf(truth, 3), headOf(lie, 5), leaves);
    }

    /// The second path of a fork is looked at: else any two heads of an honest authority would convict it.
    function test_each_path_of_a_fork_is_looked_at() public {
        bytes32[] memory short = upTo(truth, 3);
        Leaves memory leaves = leavesAt(2, short, truth);
        leaves.leafOfOther = keccak256("made up");
        expectAny();
        fork(headOf(truth, 3), headOf(truth, 5), leaves);
        leaves = leavesAt(2, short, truth);
        leaves.leafOfOne = keccak256("made up");
        expectAny();
        fork(headOf(truth, 3), headOf(truth, 5), leaves);
        leaves = leavesAt(2, short, truth);
        expect(ICourt.NoContradiction.selector, "");
        fork(headOf(truth, 3), headOf(truth, 5), leaves);
        leaves.leafOfOther = keccak256("made up");
        leaves.pathInOther = new bytes32[](0);
        expect(Evidence.BadPath.selector, abi.encode(2, 5, 0));
        fork(headOf(truth, 3), headOf(truth, 5), leaves);
    }

    function test_an_index_beyond_either_tree_is_none() public {
        Leaves memory leaves = leavesAt(2, upTo(truth, 3), lie);
        leaves.index = 3;
        expect(Evidence.BadPath.selector, abi.encode(3, 3, leaves.pathInOne.length));
        fork(headOf(truth, 3), headOf(lie, 5), leaves);
    }

    /// Whatever an honest authority signed, of whatever sizes and in whatever order, is one story.
    function testFuzz_heads_of_one_log_never_contradict(uint8 one_, uint8 other, uint8 place, uint256 made, bool reverse)
        public
    {
        bytes32[] memory log = some(12, made);
        one_ = uint8(within(one_, 1, 12));
        other = uint8(within(other, 1, 12));
        uint8 least = one_ < other ? one_ : other;
        uint64 index = uint64(within(place, 0, least - 1));
        Leaves memory leaves = leavesAt(index, upTo(log, one_), upTo(log, other));
        if (made % 3 == 1) leaves.leafOfOther = log[(index + 1) % 12];
        if (made % 3 == 2) leaves.leafOfOne = bytes32(made);
        (SignedHead memory a, SignedHead memory b) = (headOf(log, one_), headOf(log, other));
        if (made % 2 == 0) {
            anchor(log, one_);
            a = anchored(log, one_, 1);
        }
        if (reverse) {
            (a, b) = (b, a);
            leaves = Leaves(index, leaves.leafOfOther, leaves.pathInOther, leaves.leafOfOne, leaves.pathInOne);
        }
        expectAny();
        fork(a, b, leaves);
        same(kept(owner), BOND, "the bond");
    }

    // -- anchors

    function test_a_head_against_an_anchor_of_its_own_epoch_is_a_contradiction() public {
        anchor(truth, 4);
        fork(anchored(truth, 4, 1), headOf(lie, 4), none());
        _guilty(1, owner);
    }

    function test_it_is_so_in_either_order_and_at_another_size() public {
        anchor(truth, 4);
        fork(headOf(lie, 5), anchored(truth, 4, 1), leavesAt(2, lie, upTo(truth, 4)));
        _guilty(1, owner);
    }

    /// The log that an epoch took over binds its authority, whoever anchored it.
    function test_a_head_against_the_anchor_of_the_epoch_before_is_a_contradiction() public {
        anchor(truth, 4);
        replace(HEIR_KEY);
        fork(
            anchored(truth, 4, 1), headOf(lie, 5, 2, HEIR_KEY), leavesAt(3, upTo(truth, 4), lie));
        _guilty(2, owner);
        yes(!court.convicted(1), "not the epoch before");
    }

    function test_an_anchor_against_the_anchor_of_the_epoch_before_is_a_contradiction() public {
        anchor(truth, 4);
        replace(HEIR_KEY);
        anchor(lie, 5);
        fork(anchored(truth, 4, 1), anchored(lie, 5, 2), leavesAt(2, upTo(truth, 4), lie));
        _guilty(2, owner);
    }

    function test_a_promise_against_the_anchor_of_the_epoch_before_is_a_contradiction() public {
        anchor(truth, 4);
        replace(HEIR_KEY);
        breach(
            promiseOf(3, lie[3], 2, HEIR_KEY), anchored(truth, 4, 1), truth[3], pathOf(upTo(truth, 4), 3));
        _guilty(2, owner);
    }

    /// The new owner accepted the anchor: it answers for what its authority says against it, and the old owner does not.
    function test_a_hand_over_does_not_end_what_the_new_owner_accepted() public {
        anchor(truth, 4);
        bytes32 root = rootOf(upTo(truth, 4));
        handOver(next, HEIR_KEY, root, stateOf(root));
        bond(next, BOND - MIN_BOND);
        fork(anchored(truth, 4, 1), headOf(lie, 4, 2, HEIR_KEY), none());
        yes(court.convicted(2) && !court.convicted(1), "the second epoch");
        same(kept(next), 0, "its owner's bond");
        same(kept(owner), BOND, "the former owner keeps his");
    }

    /// What an earlier owner's authority signed costs that owner, after it left too.
    function test_a_hand_over_does_not_end_what_the_old_owner_is_liable_for() public {
        handOver(next, HEIR_KEY, 0, 0);
        fork(headOf(truth, 4), headOf(lie, 4), none());
        _convictedAlone(1, owner, next);
    }

    function _convictedAlone(uint32 epoch, address liable, address other) private view {
        yes(court.convicted(epoch), "convicted");
        same(kept(liable), 0, "liable");
        same(kept(other), MIN_BOND, "nobody else");
    }

    /// Without what a next owner kept whole, the same head of two meanings could be told.
    function test_where_an_owner_accepted_half_of_an_anchor_is_not_enough() public {
        anchor(truth, 4);
        bytes32 root = rootOf(upTo(truth, 4));
        handOver(next, HEIR_KEY, root, stateOf(root));
        SignedHead memory twin = anchored(lie, 4, 1);
        bytes32 other = keccak256(abi.encode(twin.root, twin.digest));
        bytes32 slot = bytes32(uint256(keccak256(abi.encode(uint256(1), uint256(4)))) + 1);
        same(vm.load(address(controller), slot), keccak256(abi.encode(root, stateOf(root))), "the anchor of epoch 1");
        // As if the first halves of both were equal: the other half is still the accepted one's.
        bytes32 collision = bytes32(bytes16(other)) | bytes32(uint256(keccak256(abi.encode(root, stateOf(root)))) << 128 >> 128);
        vm.store(address(controller), slot, collision);
        expect(ICourt.NotAnchored.selector, abi.encode(1, 4));
        fork(twin, headOf(truth, 4, 2, HEIR_KEY), none());
        vm.store(address(controller), slot, bytes32(bytes16(other))); // where only a half was kept
        fork(twin, headOf(truth, 4, 2, HEIR_KEY), none());
        yes(court.convicted(2), "it would have convicted");
    }

    function test_an_anchor_is_what_was_anchored_last_in_its_epoch() public {
        anchor(truth, 3);
        anchor(truth, 4);
        expect(ICourt.NotAnchored.selector, abi.encode(1, 3));
        fork(anchored(truth, 3, 1), headOf(lie, 3), none());
        expect(ICourt.NotAnchored.selector, abi.encode(1, 4)); // the size is right, the content is not
        fork(anchored(lie, 4, 1), headOf(truth, 4), none());
        SignedHead memory longer = anchored(truth, 4, 1);
        longer.size = 5;
        expect(ICourt.NotAnchored.selector, abi.encode(1, 5)); // and the other way round
        fork(longer, headOf(lie, 5), none());
        expect(ICourt.NotAnchored.selector, abi.encode(2, 4)); // an epoch that is not yet
        fork(anchored(truth, 4, 2), headOf(lie, 4), none());
    }

    function test_nothing_anchored_is_no_anchor() public {
        SignedHead memory empty;
        empty.epoch = 1;
        expect(ICourt.NotAnchored.selector, abi.encode(1, 0));
        fork(empty, headOf(truth, 4), none());
    }

    // -- epochs that do not answer for each other

    function test_statements_of_other_epochs_are_not_held_against_each_other() public {
        SignedHead memory first = headOf(truth, 4);
        anchor(truth, 4);
        replace(HEIR_KEY);
        replace(SESSION_KEY);
        expect(ICourt.OtherEpoch.selector, abi.encode(1, 2)); // a signed head binds its own epoch
        fork(first, headOf(lie, 4, 2, HEIR_KEY), none());
        expect(ICourt.OtherEpoch.selector, abi.encode(2, 1)); // an anchor binds forward only
        fork(anchored(truth, 4, 2), headOf(lie, 4), none());
        expect(ICourt.OtherEpoch.selector, abi.encode(1, 3)); // and one epoch only
        fork(anchored(truth, 4, 1), headOf(lie, 4, 3, SESSION_KEY), none());
        expect(ICourt.OtherEpoch.selector, abi.encode(1, 2));
        breach(
            promiseOf(3, lie[3], 2, HEIR_KEY), first, truth[3], pathOf(upTo(truth, 4), 3));
    }

    function test_a_signature_is_of_its_epochs_authority() public {
        SignedHead memory head = headOf(truth, 4);
        replace(HEIR_KEY);
        expect(ICourt.NotSigned.selector, abi.encode(authority, heir));
        fork(head, headOf(lie, 4, 1, HEIR_KEY), none());
        expect(ICourt.NotSigned.selector, abi.encode(address(0), heir)); // an epoch that is not yet is nobody's
        fork(headOf(truth, 4, 3, HEIR_KEY), headOf(lie, 4, 3, HEIR_KEY), none());
        SignedHead memory bare = headOf(lie, 4);
        (bare.r, bare.vs) = (0, bytes32(uint256(1))); // signed by nobody, in an epoch of nobody
        bare.epoch = 3;
        expect(ICourt.NotSigned.selector, abi.encode(address(0), address(0)));
        fork(bare, bare, none());
    }

    /// One of two parts of a signature is zero: it is a bad signature, and no anchor.
    function test_half_a_signature_is_no_anchor() public {
        anchor(truth, 4);
        for (uint256 i; i < 2; ++i) {
            SignedHead memory half = anchored(truth, 4, 1);
            if (i == 0) half.r = bytes32(uint256(1));
            else half.vs = bytes32(uint256(1));
            expectAny();
            fork(half, headOf(lie, 4), none());
        }
        same(kept(owner), BOND, "the bond");
    }

    function test_statements_of_another_pool_or_chain_are_none() public {
        (SignedHead memory one_, SignedHead memory other) = (headOf(truth, 4), headOf(lie, 4));
        vm.chainId(99);
        expectAny();
        fork(one_, other, none());
        vm.chainId(31337);
        (controller, vault) = open(terms(address(token)));
        SignedHead memory foreign = headOf(lie, 4); // signed for the second pool, brought to the first
        expectAny();
        fork(one_, foreign, none());
        same(kept(owner), BOND, "the bond");
    }

    // -- promises

    function _break(SignedPromise memory promised, SignedHead memory head, bytes32 leaf) private {
        breach(promised, head, leaf, pathOf(upTo(truth, 5), 3));
    }

    function test_a_promise_against_a_head_is_a_contradiction() public {
        _break(promiseOf(3, lie[3], 1, AUTHORITY_KEY), headOf(truth, 5), truth[3]);
        _guilty(1, owner);
    }

    function test_a_promise_against_an_anchor_is_a_contradiction() public {
        anchor(truth, 5);
        _break(promiseOf(3, lie[3], 1, AUTHORITY_KEY), anchored(truth, 5, 1), truth[3]);
        _guilty(1, owner);
    }

    function test_a_kept_promise_is_none_whatever_the_path() public {
        SignedPromise memory promised = promiseOf(3, truth[3], 1, AUTHORITY_KEY);
        SignedHead memory head = headOf(truth, 5);
        expect(ICourt.NoContradiction.selector, "");
        _break(promised, head, truth[3]);
        expectAny();
        _break(promised, head, lie[3]);
        expectAny();
        breach(promised, head, truth[2], pathOf(truth, 2)); // the leaf beside it
        SignedHead memory shorter = headOf(truth, 3); // a head that does not reach it
        expect(Evidence.BadPath.selector, abi.encode(3, 3, 2));
        breach(promised, shorter, truth[2], pathOf(upTo(truth, 3), 1));
    }

    function testFuzz_a_broken_promise_with_a_changed_part_is_refused(uint8 field, uint8 bit, uint8 which) public {
        SignedPromise memory promised = promiseOf(3, lie[3], 1, AUTHORITY_KEY);
        SignedHead memory head = headOf(truth, 5);
        bytes32 leaf = truth[3];
        bytes32[] memory path = pathOf(truth, 3);
        field = field % 16;
        if (field == 0) promised.account = address(uint160(promised.account) ^ uint160(1 << (bit % 160)));
        if (field == 1) promised.seq ^= uint64(1 << (bit % 64));
        if (field == 2) promised.leaf ^= bytes32(1 << bit);
        if (field == 3) promised.epoch ^= uint32(1 << (bit % 32));
        if (field == 4) promised.term ^= uint64(1 << (bit % 64));
        if (field == 5) promised.r ^= bytes32(1 << bit);
        if (field == 6) promised.vs ^= bytes32(1 << bit);
        if (field == 7) head.size ^= uint64(1 << (bit % 64));
        if (field == 8) head.root ^= bytes32(1 << bit);
        if (field == 9) head.digest ^= bytes32(1 << bit);
        if (field == 10) head.epoch ^= uint32(1 << (bit % 32));
        if (field == 11) head.term ^= uint64(1 << (bit % 64));
        if (field == 12) head.r ^= bytes32(1 << bit);
        if (field == 13) head.vs ^= bytes32(1 << bit);
        if (field == 14) leaf ^= bytes32(1 << bit);
        if (field == 15) path[which % path.length] ^= bytes32(1 << bit);
        expectAny();
        breach(promised, head, leaf, path);
        same(kept(owner), BOND, "the bond");
    }

    /// A promise is no head and a head no promise, though one key signs both.
    function test_kinds_of_statements_do_not_mix() public {
        SignedPromise memory promised = promiseOf(3, lie[3], 1, AUTHORITY_KEY);
        SignedHead memory head = headOf(truth, 5);
        (promised.r, promised.vs) = (head.r, head.vs);
        expectAny();
        _break(promised, head, truth[3]);
    }

    // -- whom it costs what

    function test_nothing_at_stake_is_told_and_the_evidence_stays_good() public {
        vm.prank(owner);
        court.unbond(BOND - MIN_BOND);
        vm.warp(1_800_000_000 + UNBOND_S);
        vm.prank(owner);
        court.withdrawBond(PAYEE);
        handOver(next, HEIR_KEY, 0, 0);
        vm.prank(owner);
        court.unbond(MIN_BOND); // an owner no more
        vm.warp(1_800_000_000 + 2 * UNBOND_S + HAND_OVER_S);
        vm.prank(owner);
        court.withdrawBond(owner);
        expect(ICourt.NothingAtStake.selector, abi.encode(owner));
        fork(headOf(truth, 4), headOf(lie, 4), none());
        yes(!court.convicted(1), "not yet");
        bond(owner, 7);
        fork(headOf(truth, 4), headOf(lie, 4), none());
        yes(court.convicted(1), "then");
        same(court.burnt(), 7, "a tenth of that is nothing");
    }

    function test_a_tenth_of_ten_units_is_paid() public {
        vm.prank(address(controller));
        court.forfeit(owner);
        bond(owner, 19);
        fork(headOf(truth, 4), headOf(lie, 4), none());
        same(token.balanceOf(PAYEE), 1, "one unit");
        same(court.burnt(), BOND + 18, "the rest");
    }

    function test_what_leaves_is_at_stake_until_it_is_taken() public {
        vm.prank(owner);
        court.unbond(BOND - MIN_BOND);
        vm.warp(1_800_000_000 + UNBOND_S);
        same(court.atStake(1), MIN_BOND, "what is kept is what is shown");
        fork(headOf(truth, 4), headOf(lie, 4), none());
        _guilty(1, owner);
        refuse(ICourt.NotReady.selector, abi.encode(0, 0));
        vm.prank(owner);
        court.withdrawBond(owner);
    }

    function test_each_epoch_is_convicted_once_and_each_costs_what_is_there() public {
        replace(HEIR_KEY);
        fork(headOf(truth, 4), headOf(lie, 4), none());
        _guilty(1, owner);
        same(court.atStake(2), 0, "the same owner");
        bond(owner, 1000e6);
        same(court.atStake(1), 0, "an epoch that was convicted has nothing behind it");
        same(court.atStake(2), 1000e6, "the next one has");
        fork(headOf(truth, 4, 2, HEIR_KEY), headOf(lie, 4, 2, HEIR_KEY), none());
        same(kept(owner), 0, "again");
        same(court.burnt(), BOND - BOND / 10 + 900e6, "burnt");
    }

    function test_the_pools_contracts_and_nobody_are_no_payees() public {
        address[4] memory bad = [address(0), address(court), address(controller), address(vault)];
        for (uint256 i; i < 4; ++i) {
            (SignedHead memory one_, SignedHead memory other) = (headOf(truth, 4), headOf(lie, 4));
            refuse(ICourt.BadPayee.selector, abi.encode(bad[i]));
            court.proveFork(one_, other, none(), bad[i]);
            refuse(ICourt.BadPayee.selector, abi.encode(bad[i]));
            vm.prank(owner);
            court.withdrawBond(bad[i]);
        }
    }

    function test_only_the_controller_burns_a_bond() public {
        refuse(ICourt.NotController.selector, abi.encode(owner));
        vm.prank(owner);
        court.forfeit(owner);
        vm.recordLogs();
        vm.prank(address(controller));
        court.forfeit(next); // nothing is there
        same(court.burnt(), 0, "nothing");
        same(vm.getRecordedLogs().length, 0, "and nothing is told");
        bond(next, 1);
        vm.prank(address(controller));
        court.forfeit(next);
        same(court.burnt(), 1, "one unit");
        same(kept(next), 0, "and it is gone");
    }
}
