// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts} from "../utils/Courts.sol";
import {ControllerTwin, CourtTwin} from "../utils/Twins.sol";
import {Vm} from "../utils/Vm.sol";
import {Bond, ICourt} from "../../src/interfaces/ICourt.sol";
import {Court} from "../../src/Court.sol";

/// A bond leaves after a delay, in a window, and never below the least that an owner keeps.
contract BondsTest is Courts {
    uint256 private constant START = 1_800_000_000;

    function _unbond(uint64 amount) private {
        vm.prank(owner);
        court.unbond(amount);
    }

    function _is(uint64 kept_, uint64 leaving, uint256 readyAt) private view {
        Bond memory entry = court.bondOf(owner);
        same(entry.kept, kept_, "kept");
        same(entry.leaving, leaving, "leaving");
        same(entry.readyAt, readyAt, "ready");
    }

    function test_a_bond_leaves_after_the_delay() public {
        _unbond(1000e6);
        _is(BOND - 1000e6, 1000e6, START + UNBOND_S);
        vm.warp(START + UNBOND_S - 1);
        refuse(ICourt.NotReady.selector, abi.encode(1000e6, START + UNBOND_S));
        vm.prank(owner);
        court.withdrawBond(PAYEE);
        vm.warp(START + UNBOND_S);
        vm.prank(owner);
        court.withdrawBond(PAYEE);
        same(token.balanceOf(PAYEE), 1000e6, "out");
        _is(BOND - 1000e6, 0, 0);
        refuse(ICourt.NotReady.selector, abi.encode(0, 0));
        vm.prank(owner);
        court.withdrawBond(PAYEE);
    }

    /// Money that is always about to leave would be no bond: what is not taken in its window is kept again.
    function test_what_is_not_taken_in_its_window_is_kept_again() public {
        _unbond(1000e6);
        vm.warp(START + 2 * UNBOND_S);
        _is(BOND - 1000e6, 1000e6, START + UNBOND_S);
        same(court.atStake(1), BOND - 1000e6, "less what leaves");
        vm.warp(START + 2 * UNBOND_S + 1);
        _is(BOND, 0, 0);
        same(court.atStake(1), BOND, "all of it again");
        refuse(ICourt.NotReady.selector, abi.encode(0, 0));
        vm.prank(owner);
        court.withdrawBond(PAYEE);
        _unbond(400e6); // what had lapsed does not leave with it
        _is(BOND - 400e6, 400e6, START + 3 * UNBOND_S + 1);
        vm.warp(START + 3 * UNBOND_S + 1);
        vm.prank(owner);
        court.withdrawBond(PAYEE);
        same(token.balanceOf(PAYEE), 400e6, "only what was asked for last");
    }

    function test_one_unit_lapses_too() public {
        _unbond(1);
        vm.warp(START + 2 * UNBOND_S + 1);
        _is(BOND, 0, 0);
    }

    function test_the_last_second_of_the_window_counts() public {
        _unbond(1000e6);
        vm.warp(START + 2 * UNBOND_S);
        vm.prank(owner);
        court.withdrawBond(PAYEE);
        same(token.balanceOf(PAYEE), 1000e6, "out");
    }

    function test_asking_again_restarts_the_delay_for_all_that_leaves() public {
        _unbond(1000e6);
        vm.warp(START + UNBOND_S);
        _unbond(1);
        _is(BOND - 1000e6 - 1, 1000e6 + 1, START + 2 * UNBOND_S);
    }

    function test_a_lapsed_window_is_kept_when_more_is_bonded() public {
        _unbond(1000e6);
        vm.warp(START + 2 * UNBOND_S + 1);
        bond(owner, 1);
        _is(BOND + 1, 0, 0);
    }

    function test_a_bond_grows_while_some_leaves() public {
        _unbond(1000e6);
        bond(owner, 5);
        _is(BOND - 1000e6 + 5, 1000e6, START + UNBOND_S);
    }

    function test_the_present_owner_keeps_the_least_bond_and_a_former_one_need_not() public {
        refuse(ICourt.BondTooLow.selector, abi.encode(BOND - MIN_BOND + 1, BOND, MIN_BOND));
        _unbond(BOND - MIN_BOND + 1);
        _unbond(BOND - MIN_BOND);
        handOver(address(0x4E87), HEIR_KEY, 0, 0);
        _unbond(MIN_BOND);
        refuse(ICourt.BondTooLow.selector, abi.encode(1, 0, 0));
        _unbond(1);
    }

    function test_who_is_no_owner_takes_all_of_it_back() public {
        bond(renter, 10);
        refuse(ICourt.BondTooLow.selector, abi.encode(11, 10, 0));
        vm.prank(renter);
        court.unbond(11);
        vm.prank(renter);
        court.unbond(10);
        vm.warp(START + UNBOND_S);
        vm.prank(renter);
        court.withdrawBond(renter);
        same(token.balanceOf(renter), 10, "back");
        same(kept(owner), BOND, "the owner's stays");
    }

    function test_nothing_is_neither_bonded_nor_unbonded_and_64_bits_are_the_most() public {
        refuse(ICourt.Zero.selector, abi.encode("amount"));
        vm.prank(owner);
        court.bond(0);
        refuse(ICourt.Zero.selector, abi.encode("amount"));
        _unbond(0);
        _unbond(1000e6); // what leaves counts for the sum
        uint64 room = type(uint64).max - BOND;
        token.mint(owner, uint256(room) + 1);
        vm.prank(owner);
        token.approve(address(court), type(uint256).max);
        refuse(ICourt.BondTooLow.selector, abi.encode(room + 1, BOND - 1000e6, 0));
        vm.prank(owner);
        court.bond(room + 1);
        vm.prank(owner);
        court.bond(room);
        _is(type(uint64).max - 1000e6, 1000e6, START + UNBOND_S);
    }

    function test_a_court_says_what_it_is() public view {
        same(court.controller(), address(controller), "controller");
        same(court.vault(), address(vault), "vault");
        same(court.token(), address(token), "token");
        same(court.minBond(), MIN_BOND, "least");
        same(court.unbondDelayS(), UNBOND_S, "delay");
    }

    /// One life with every event in it: the events give every word of court and controller.
    function test_the_events_of_a_whole_life_rebuild_court_and_controller() public {
        CourtTwin twin = new CourtTwin();
        ControllerTwin other = new ControllerTwin();
        vm.record();
        vm.recordLogs();
        (controller, vault) = open(terms(address(token)));
        court = Court(controller.court());
        bond(owner, BOND);
        _unbond(BOND - MIN_BOND);
        join(renter);
        vm.prank(renter);
        controller.unbond(MIN_STAKE);
        vm.warp(START + UNBOND_S);
        vm.prank(owner);
        court.withdrawBond(PAYEE);
        vm.prank(renter);
        controller.withdrawStake();
        anchor(truth, 3);
        join(provider);
        bindNode(provider);
        vm.prank(provider);
        controller.setOffer(node, "spec", 1, "cid");
        reports(sign(report("a")), sign(report("b")));
        vm.prank(owner);
        controller.setStandby(renter, true);
        replace(HEIR_KEY);
        fork(headOf(truth, 4), headOf(lie, 4), none());
        _fold(twin, other);
        bytes32 root = rootOf(upTo(truth, 3));
        handOver(address(0x4E87), AUTHORITY_KEY, root, stateOf(root));
        bond(owner, 99);
        (bytes32 r, bytes32 vs) = consent(HEIR_KEY, address(0x4E87));
        vm.prank(address(0x4E87));
        controller.disownAnchors(2, heir, r, vs);
        _fold(twin, other);
        twin.note(address(court));
        other.note(address(controller));
        twin.compare(address(court));
        other.compare(address(controller));
        yes(court.burnt() != 0 && controller.burnt() != 0, "all of it happened");
    }

    /// Folded in the block of the events, whose time they do not tell.
    function _fold(CourtTwin twin, ControllerTwin other) private {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        twin.fold(address(court), logs);
        other.fold(address(controller), logs);
    }
}
