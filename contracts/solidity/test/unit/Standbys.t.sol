// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {IController} from "../../src/interfaces/IController.sol";
import {PoolConfig} from "../../src/interfaces/PoolConfig.sol";

/// A pool outlives a silent authority: one of the standbys that the owner named takes over. And licences.
contract StandbysTest is Pools {
    address private standby = address(0x57A4D);
    uint256 private constant START = 1_800_000_000; // not block.timestamp: the optimiser may read it after a warp
    bytes32 private constant PRODUCT = keccak256("solver");

    function _name(address who) private {
        vm.prank(owner);
        controller.setStandby(who, true);
    }

    function _takeOver(address who) private {
        vm.prank(who);
        controller.takeOver();
    }

    function _tooEarly(address who, uint256 from) private {
        vm.expectRevert(abi.encodeWithSelector(IController.TooEarly.selector, from));
        _takeOver(who);
    }

    function test_a_standby_takes_over_after_the_silence_and_not_in_it() public {
        _name(standby);
        vm.prank(authority);
        controller.anchor(1, 5, "root", "digest");
        uint256 silent = START + TAKE_OVER_S;
        vm.warp(silent);
        _tooEarly(standby, silent);
        vm.warp(silent + 1);
        _takeOver(standby);
        same(controller.authority(), standby, "authority");
        same(controller.owner(), owner, "the owner stays");
        (uint32 epoch, uint64 size, uint128 commitment, uint40 seenAt) = controller.head();
        same(epoch, 2, "a new epoch");
        same(size, 5, "the head stays");
        same(commitment, uint256(keccak256(abi.encode(bytes32("root"), bytes32("digest")))) >> 128, "whole");
        same(seenAt, silent + 1, "seen");
        (address signer,) = vault.authorityOf(2);
        same(signer, standby, "in the vault too");
        (, uint32 until) = vault.authorityOf(1);
        same(until, silent + 1 + GRACE_S, "the old one's vouchers keep their grace");
        yes(!controller.isStandby(standby), "an authority is no standby");
        vm.expectRevert(abi.encodeWithSelector(IController.NotAuthority.selector, authority, standby));
        vm.prank(authority);
        controller.renew();
    }

    /// A standby that a thief may hold decides nothing but the log: the owner replaces it at once.
    function test_the_owner_replaces_a_standby_that_took_over() public {
        _name(standby);
        vm.warp(START + TAKE_OVER_S + 1);
        _takeOver(standby);
        replace(AUTHORITY_KEY);
        same(controller.authority(), authority, "the first one again");
        same(controller.epoch(), 3, "in a new epoch");
    }

    function test_each_sign_of_life_starts_the_silence_anew() public {
        _name(standby);
        _name(renter);
        vm.warp(START + TAKE_OVER_S);
        vm.prank(authority);
        controller.renew();
        vm.warp(START + TAKE_OVER_S + 1);
        _tooEarly(standby, START + 2 * TAKE_OVER_S);
        vm.warp(START + 2 * TAKE_OVER_S);
        vm.prank(authority);
        controller.anchor(1, 1, "root", "digest");
        vm.warp(START + 3 * TAKE_OVER_S);
        _tooEarly(standby, START + 3 * TAKE_OVER_S);
        vm.warp(START + 3 * TAKE_OVER_S + 1);
        _takeOver(standby); // the other standby now waits for the new authority's silence
        _tooEarly(renter, START + 4 * TAKE_OVER_S + 1);
    }

    function test_renewing_moves_nothing_but_the_time() public {
        vm.prank(authority);
        controller.anchor(1, 5, "root", "digest");
        (uint32 epoch, uint64 size, uint128 commitment,) = controller.head();
        vm.warp(block.timestamp + 100);
        vm.prank(authority);
        controller.renew();
        (uint32 epochAfter, uint64 sizeAfter, uint128 commitmentAfter, uint40 seenAt) = controller.head();
        yes(epochAfter == epoch && sizeAfter == size && commitmentAfter == commitment, "the head");
        same(seenAt, block.timestamp, "seen");
        for (uint256 i; i < 2; ++i) {
            address who = i == 0 ? standby : owner;
            vm.expectRevert(abi.encodeWithSelector(IController.NotAuthority.selector, who, authority));
            vm.prank(who);
            controller.renew();
        }
    }

    function test_nobody_but_a_standby_takes_over() public {
        vm.warp(block.timestamp + TAKE_OVER_S + 1);
        vm.expectRevert(abi.encodeWithSelector(IController.NotStandby.selector, standby));
        _takeOver(standby);
        _name(standby);
        vm.prank(owner);
        controller.setStandby(standby, false);
        vm.expectRevert(abi.encodeWithSelector(IController.NotStandby.selector, standby));
        _takeOver(standby);
        vm.expectRevert(abi.encodeWithSelector(IController.NotStandby.selector, owner));
        _takeOver(owner);
    }

    function test_a_pool_without_take_over_has_none() public {
        PoolConfig memory config = terms(address(token));
        config.takeOverAfterS = 0;
        (controller, vault) = open(config);
        _name(standby);
        vm.warp(type(uint32).max);
        _tooEarly(standby, type(uint40).max);
    }

    function test_only_the_owner_names_standbys_and_not_the_authority() public {
        for (uint256 i; i < 2; ++i) {
            address who = i == 0 ? standby : authority;
            vm.expectRevert(abi.encodeWithSelector(IController.NotOwner.selector, who, owner));
            vm.prank(who);
            controller.setStandby(standby, true);
        }
        vm.expectRevert(abi.encodeWithSelector(IController.SameAuthority.selector, authority));
        _name(authority);
        vm.expectRevert(abi.encodeWithSelector(IController.Zero.selector, "standby"));
        _name(address(0));
    }

    function test_a_standby_that_the_owner_makes_the_authority_is_none_any_more() public {
        _name(heir);
        _name(standby);
        replace(HEIR_KEY);
        yes(!controller.isStandby(heir), "an authority is no standby");
        yes(controller.isStandby(standby), "the others stay");
    }

    /// Standbys are of the owner that named them: a sale takes none of the seller's along.
    function test_standbys_of_a_former_owner_are_void() public {
        address next = address(0x4E87);
        _name(standby);
        handOver(next, HEIR_KEY, 0, 0);
        yes(!controller.isStandby(standby), "void");
        vm.warp(START + HAND_OVER_S + TAKE_OVER_S + 1);
        vm.expectRevert(abi.encodeWithSelector(IController.NotStandby.selector, standby));
        _takeOver(standby);
        vm.prank(next);
        controller.setStandby(standby, true);
        _takeOver(standby);
        same(controller.authority(), standby, "named anew, it may");
        same(controller.owner(), next, "for the new owner");
        // Not even when the pool comes back to who named it first.
        vm.prank(next);
        controller.setStandby(renter, true);
        handOver(owner, AUTHORITY_KEY, 0, 0);
        yes(!controller.isStandby(renter) && !controller.isStandby(standby), "void again");
    }

    // -- licences

    function _licence(address issuer) private view returns (uint32 seats, uint40 until) {
        return controller.licenceOf(issuer, renter, PRODUCT);
    }

    function test_anyone_issues_licences_and_only_the_issuer_changes_them() public {
        vm.prank(provider);
        controller.setLicence(renter, PRODUCT, 5, UNTIL);
        (uint32 seats, uint40 until) = _licence(provider);
        same(seats, 5, "seats");
        same(until, UNTIL, "until");
        vm.prank(standby);
        controller.setLicence(renter, PRODUCT, 7, type(uint40).max);
        (seats,) = _licence(provider);
        same(seats, 5, "another issuer's is another licence");
        (seats, until) = _licence(standby);
        same(seats, 7, "seats");
        same(until, type(uint40).max, "until");
        vm.prank(provider);
        controller.setLicence(renter, PRODUCT, 0, UNTIL);
        (seats, until) = _licence(provider);
        same(seats, 0, "withdrawn");
        same(until, 0, "whole");
    }

    function test_a_licence_is_somebodys_and_for_something() public {
        vm.expectRevert(abi.encodeWithSelector(IController.Zero.selector, "holder"));
        controller.setLicence(address(0), PRODUCT, 1, UNTIL);
        vm.expectRevert(abi.encodeWithSelector(IController.Zero.selector, "product"));
        controller.setLicence(renter, 0, 1, UNTIL);
        controller.setLicence(renter, PRODUCT, 1, UNTIL);
        (uint32 seats, uint40 until) = _licence(address(this));
        yes(seats == 1 && until == UNTIL, "one seat");
    }
}
