// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts} from "../utils/Courts.sol";
import {Pools} from "../utils/Pools.sol";
import {Relays, Wallet} from "../utils/Relays.sol";
import {Epoch, IController} from "../../src/interfaces/IController.sol";
import {ICourt} from "../../src/interfaces/ICourt.sol";

/// The owner is cold and decides; the authority is hot and signs. Each change of either begins an epoch.
contract OwnersTest is Courts, Relays {
    address private next = address(0x4E87);
    uint256 private constant START = 1_800_000_000;

    function setUp() public override(Courts, Pools) {
        Courts.setUp();
    }

    function _accept(address who, uint256 key, uint64 size, bytes32 root, bytes32 digest) private {
        (bytes32 r, bytes32 vs) = consent(key, who);
        vm.prank(who);
        controller.acceptOwner(vm.addr(key), r, vs, size, root, digest);
    }

    function _announce(address who) private {
        vm.prank(owner);
        controller.announceOwner(who);
    }

    // -- the authority

    function test_the_owner_replaces_the_authority_by_the_new_keys_word() public {
        anchor(truth, 3);
        replace(HEIR_KEY);
        same(controller.epoch(), 2, "epoch");
        same(controller.authority(), heir, "authority");
        same(controller.owner(), owner, "owner");
        (, uint64 size, uint128 commitment, uint40 seenAt) = controller.head();
        bytes32 root = rootOf(upTo(truth, 3));
        same(size, 3, "the head stays");
        same(commitment, uint256(keccak256(abi.encode(root, stateOf(root)))) >> 128, "whole");
        same(seenAt, block.timestamp, "seen");
        (address signer, uint32 until) = vault.authorityOf(1);
        yes(signer == authority && until == block.timestamp + GRACE_S, "grace");
        vm.expectRevert(abi.encodeWithSelector(IController.NotAuthority.selector, authority, heir));
        vm.prank(authority);
        controller.anchor(2, 6, "root", "digest");
        vm.prank(heir);
        controller.anchor(2, 6, "root", "digest");
    }

    function test_a_key_that_was_no_standby_is_not_told_to_be_none() public {
        (bytes32 r, bytes32 vs) = consent(HEIR_KEY, owner);
        vm.recordLogs();
        vm.prank(owner);
        controller.replaceAuthority(heir, r, vs);
        same(vm.getRecordedLogs().length, 1, "the change and nothing else");
    }

    /// The key may stay: a new epoch alone makes the statements of the old one history.
    function test_the_present_key_may_begin_the_next_epoch() public {
        replace(AUTHORITY_KEY);
        same(controller.authority(), authority, "the same key");
        same(controller.epoch(), 2, "a new epoch");
    }

    function test_the_hot_key_passes_nothing_on() public {
        (bytes32 r, bytes32 vs) = consent(HEIR_KEY, owner);
        bytes memory why = abi.encodeWithSelector(IController.NotOwner.selector, authority, owner);
        vm.expectRevert(why);
        vm.prank(authority);
        controller.replaceAuthority(heir, r, vs);
        vm.expectRevert(why);
        vm.prank(authority);
        controller.disownAnchors(0, heir, r, vs);
        vm.expectRevert(why);
        vm.prank(authority);
        controller.announceOwner(heir);
        vm.expectRevert(why);
        vm.prank(authority);
        controller.setStandby(heir, true);
    }

    function test_no_authority_is_named_without_its_word() public {
        (bytes32 r, bytes32 vs) = consent(SESSION_KEY, owner);
        vm.expectRevert(); // signed for the session key, not for the heir: somebody recovers, who is not the heir
        vm.prank(owner);
        controller.replaceAuthority(heir, r, vs);
        vm.expectRevert(abi.encodeWithSelector(IController.BadAuthoritySignature.selector, address(0), address(0)));
        vm.prank(owner);
        controller.replaceAuthority(address(0), 0, 0); // no signature is nobody's
        (r, vs) = consent(HEIR_KEY, next); // for another owner
        vm.expectRevert();
        vm.prank(owner);
        controller.replaceAuthority(heir, r, vs);
        (r, vs) = consent(HEIR_KEY, owner);
        vm.prank(owner);
        controller.replaceAuthority(heir, r, vs);
        vm.expectRevert(); // once: the epoch stands in it
        vm.prank(owner);
        controller.replaceAuthority(heir, r, vs);
    }

    // -- hand-over

    function test_an_owner_is_one_by_word_delay_and_acceptance() public {
        anchor(truth, 3);
        bytes32 root = rootOf(upTo(truth, 3));
        bond(next, MIN_BOND);
        _announce(next);
        (address who, uint40 readyAt) = controller.announced();
        yes(who == next && readyAt == START + HAND_OVER_S, "announced");
        vm.warp(START + HAND_OVER_S - 1);
        (bytes32 r, bytes32 vs) = consent(HEIR_KEY, next);
        vm.expectRevert(abi.encodeWithSelector(IController.NotAnnounced.selector, next, next, readyAt));
        vm.prank(next);
        controller.acceptOwner(heir, r, vs, 3, root, stateOf(root));
        vm.warp(START + HAND_OVER_S);
        vm.expectRevert(abi.encodeWithSelector(IController.NotAnnounced.selector, renter, next, readyAt));
        vm.prank(renter);
        controller.acceptOwner(heir, r, vs, 3, root, stateOf(root));
        same(controller.owner(), owner, "until then the old one");
        _accept(next, HEIR_KEY, 3, root, stateOf(root));
        same(controller.owner(), next, "owner");
        same(controller.authority(), heir, "with an authority of its own");
        same(controller.epoch(), 2, "a new epoch");
        same(controller.ownerOf(1), owner, "who owned the first epoch");
        same(controller.ownerOf(2), next, "and the second");
        same(controller.ownerOf(3), address(0), "and none that is not yet");
        Epoch memory ended = controller.epochOf(1);
        same(ended.size, 3, "what was anchored");
        same(ended.anchor, keccak256(abi.encode(root, stateOf(root))), "kept whole");
        (who, readyAt) = controller.announced();
        yes(who == address(0) && readyAt == 0, "nobody is announced");
        vm.expectRevert(abi.encodeWithSelector(IController.NotAnnounced.selector, next, address(0), 0));
        vm.prank(next);
        controller.acceptOwner(heir, r, vs, 3, root, stateOf(root));
        vm.expectRevert(abi.encodeWithSelector(IController.NotOwner.selector, owner, next));
        _announce(renter);
    }

    function test_an_announcement_is_taken_back_and_replaced() public {
        _announce(next);
        _announce(address(0));
        (address who, uint40 readyAt) = controller.announced();
        yes(who == address(0) && readyAt == 0, "taken back");
        bond(next, MIN_BOND);
        vm.warp(START + HAND_OVER_S);
        (bytes32 r, bytes32 vs) = consent(HEIR_KEY, next);
        vm.expectRevert(abi.encodeWithSelector(IController.NotAnnounced.selector, next, address(0), 0));
        vm.prank(next);
        controller.acceptOwner(heir, r, vs, 0, 0, 0);
        // Nobody is announced: nobody is not thereby an owner.
        vm.expectRevert(); // it has no bond
        vm.prank(address(0));
        controller.acceptOwner(heir, r, vs, 0, 0, 0);
        vm.expectRevert(abi.encodeWithSelector(IController.SameOwner.selector, owner));
        _announce(owner);
        _announce(renter);
        (, readyAt) = controller.announced();
        same(readyAt, START + 2 * HAND_OVER_S, "the delay begins again");
    }

    /// What is anchored is what the new authority must extend: the new owner says that it has it, whole.
    function test_an_owner_accepts_exactly_what_is_anchored() public {
        anchor(truth, 3);
        bytes32 root = rootOf(upTo(truth, 3));
        bytes32 digest = stateOf(root);
        bond(next, MIN_BOND);
        _announce(next);
        vm.warp(START + HAND_OVER_S);
        (bytes32 r, bytes32 vs) = consent(HEIR_KEY, next);
        bytes memory why = abi.encodeWithSelector(
            IController.NotAnchored.selector, 3, uint128(uint256(keccak256(abi.encode(root, digest))) >> 128)
        );
        uint64[3] memory sizes = [uint64(2), 4, 0];
        for (uint256 i; i < 3; ++i) {
            vm.expectRevert(why);
            vm.prank(next);
            controller.acceptOwner(heir, r, vs, sizes[i], root, digest);
        }
        vm.expectRevert(why);
        vm.prank(next);
        controller.acceptOwner(heir, r, vs, 3, digest, digest);
        vm.expectRevert(why);
        vm.prank(next);
        controller.acceptOwner(heir, r, vs, 3, root, root);
        _accept(next, HEIR_KEY, 3, root, digest);
    }

    function test_where_nothing_is_anchored_nothing_is_accepted_but_size_zero() public {
        bond(next, MIN_BOND);
        _announce(next);
        vm.warp(START + HAND_OVER_S);
        (bytes32 r, bytes32 vs) = consent(HEIR_KEY, next);
        vm.expectRevert(abi.encodeWithSelector(IController.NotAnchored.selector, 0, 0));
        vm.prank(next);
        controller.acceptOwner(heir, r, vs, 1, "root", "digest");
        _accept(next, HEIR_KEY, 0, "any", "thing");
        same(controller.epochOf(1).anchor, 0, "nothing is kept");
    }

    function test_an_owner_needs_the_least_bond_and_what_leaves_does_not_count() public {
        _announce(next);
        vm.warp(START + HAND_OVER_S);
        (bytes32 r, bytes32 vs) = consent(HEIR_KEY, next);
        vm.expectRevert(abi.encodeWithSelector(IController.BondTooLow.selector, 0, MIN_BOND));
        vm.prank(next);
        controller.acceptOwner(heir, r, vs, 0, 0, 0);
        bond(next, MIN_BOND);
        vm.prank(next);
        court.unbond(1);
        vm.expectRevert(abi.encodeWithSelector(IController.BondTooLow.selector, MIN_BOND - 1, MIN_BOND));
        vm.prank(next);
        controller.acceptOwner(heir, r, vs, 0, 0, 0);
        bond(next, 1);
        _accept(next, HEIR_KEY, 0, 0, 0);
    }

    function test_a_new_owner_needs_its_authoritys_word_for_itself() public {
        bond(next, MIN_BOND);
        _announce(next);
        vm.warp(START + HAND_OVER_S);
        (bytes32 r, bytes32 vs) = consent(HEIR_KEY, owner);
        vm.expectRevert();
        vm.prank(next);
        controller.acceptOwner(heir, r, vs, 0, 0, 0);
        same(controller.owner(), owner, "nothing happened");
    }

    /// A thief of the cold key must wait, and the owner sees it: what was announced can be taken back in that time.
    function test_a_take_over_leaves_owner_and_announcement() public {
        _announce(next);
        vm.prank(owner);
        controller.setStandby(renter, true);
        vm.warp(START + TAKE_OVER_S + 1);
        vm.prank(renter);
        controller.takeOver();
        same(controller.owner(), owner, "owner");
        (address who,) = controller.announced();
        same(who, next, "announced");
    }

    // -- anchors that do not count

    function test_disowning_anchors_costs_the_whole_bond_and_frees_later_epochs() public {
        anchor(lie, 4);
        vm.prank(owner);
        court.unbond(BOND - MIN_BOND); // what leaves is at stake too
        (bytes32 r, bytes32 vs) = consent(HEIR_KEY, owner);
        vm.expectRevert(abi.encodeWithSelector(IController.BadSize.selector, 5, 4));
        vm.prank(owner);
        controller.disownAnchors(5, heir, r, vs);
        vm.prank(owner);
        controller.disownAnchors(1, heir, r, vs);
        same(kept(owner), 0, "the bond");
        same(court.bondOf(owner).leaving, 0, "all of it");
        same(court.burnt(), BOND, "burnt");
        (uint32 epoch, uint64 size, uint128 commitment,) = controller.head();
        yes(epoch == 2 && size == 1 && commitment == 0, "smaller, and nothing is anchored");
        same(controller.epochOf(1).anchor, 0, "nothing of epoch 1");
        same(controller.epochOf(1).size, 1, "its size");
        same(controller.epochOf(2).anchor, 0, "nor of epoch 2");
        // What was disowned convicts nobody in the next epoch, with a new bond at stake.
        bond(owner, BOND);
        expect(ICourt.NotAnchored.selector, abi.encode(1, 4));
        fork(anchored(lie, 4, 1), headOf(truth, 4, 2, HEIR_KEY), none());
        // The new epoch anchors its own log, and hands it on.
        anchor(truth, 3);
        same(controller.epochOf(2).size, 3, "anchored again");
        replace(AUTHORITY_KEY);
        yes(controller.epochOf(2).anchor != 0, "and kept");
    }

    function test_disowning_to_what_is_anchored_gives_that_up_too() public {
        anchor(truth, 4);
        (bytes32 r, bytes32 vs) = consent(HEIR_KEY, owner);
        vm.prank(owner);
        controller.disownAnchors(4, heir, r, vs);
        (, uint64 size, uint128 commitment,) = controller.head();
        yes(size == 4 && commitment == 0, "the size stays, its content does not count");
        same(kept(owner), 0, "for the bond");
        (r, vs) = consent(AUTHORITY_KEY, owner);
        vm.prank(owner);
        controller.disownAnchors(0, authority, r, vs); // with nothing at stake it costs nothing
        same(court.burnt(), BOND, "burnt once");
    }

    /// Also where the epoch had anchored nothing itself: what it took over does not come back.
    function test_disowning_gives_up_what_was_taken_over() public {
        anchor(truth, 3);
        replace(HEIR_KEY);
        (bytes32 r, bytes32 vs) = consent(AUTHORITY_KEY, owner);
        vm.prank(owner);
        controller.disownAnchors(3, authority, r, vs);
        same(controller.epochOf(2).anchor, 0, "nothing of epoch 2");
        same(controller.epochOf(3).anchor, 0, "nor of epoch 3");
        yes(controller.epochOf(1).anchor != 0, "what epoch 1 said stays said");
    }

    function test_disowning_too_needs_the_new_keys_word() public {
        anchor(truth, 3);
        (bytes32 r, bytes32 vs) = consent(HEIR_KEY, next); // for another owner
        vm.expectRevert();
        vm.prank(owner);
        controller.disownAnchors(1, heir, r, vs);
        same(kept(owner), BOND, "the bond");
    }

    /// Even epochs that anchor nothing hand the anchor of the one before on, and disowned ones hand on none.
    function test_epochs_hand_their_anchor_on() public {
        anchor(truth, 3);
        bytes32 root = rootOf(upTo(truth, 3));
        bytes32 whole = keccak256(abi.encode(root, stateOf(root)));
        bytes32 half = bytes32(bytes16(whole));
        same(controller.epochOf(1).anchor, half, "the present one");
        replace(HEIR_KEY);
        same(controller.epochOf(2).anchor, half, "taken over");
        handOver(next, HEIR_KEY, root, stateOf(root));
        same(controller.epochOf(2).anchor, whole, "accepted whole");
        same(controller.epochOf(3).anchor, whole, "and handed on");
        (bytes32 r, bytes32 vs) = consent(AUTHORITY_KEY, next);
        vm.prank(next);
        controller.replaceAuthority(authority, r, vs);
        same(controller.epochOf(3).anchor, whole, "kept whole");
        same(controller.epochOf(3).owner, next, "by its owner");
        same(controller.epochOf(4).anchor, whole, "still");
        anchor(truth, 4);
        root = rootOf(upTo(truth, 4));
        same(controller.epochOf(4).anchor, bytes32(bytes16(keccak256(abi.encode(root, stateOf(root))))), "a new one");
        same(controller.epochOf(9).owner, address(0), "none of an epoch that is not yet");
    }

    // -- owners that are contracts

    function test_a_contract_owns_a_pool_by_relay_and_by_its_own_call() public {
        uint256 key = 0xC01D;
        Wallet wallet = new Wallet(vm.addr(key));
        address who = address(wallet);
        handOver(who, HEIR_KEY, 0, 0);
        same(controller.owner(), who, "a contract");
        (bytes32 r, bytes32 vs) = consent(AUTHORITY_KEY, who);
        relay(who, key, address(controller), abi.encodeCall(IController.replaceAuthority, (authority, r, vs)));
        same(controller.authority(), authority, "by EIP-1271");
        relay(who, key, address(controller), abi.encodeCall(IController.announceOwner, (next)));
        (address announced_,) = controller.announced();
        same(announced_, next, "announced");
    }
}
