// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts} from "../utils/Courts.sol";
import {Vm} from "../utils/Vm.sol";
import {Mood, WildToken} from "../utils/WildToken.sol";
import {IController} from "../../src/interfaces/IController.sol";
import {ICourt} from "../../src/interfaces/ICourt.sol";
import {Court} from "../../src/Court.sol";

/// No re-entry into registry and court, as J14 shows for the vault: each function that moves tokens, called by the token
/// in the middle of each. The token is provider and bonded itself, so that its calls would succeed at any other time.
contract GuardsTest is Courts {
    uint256 private constant ODD_NODE_KEY = 0x0DD40DE;
    WildToken private odd;

    function setUp() public override {
        super.setUp();
        odd = new WildToken();
        (controller, vault) = open(terms(address(odd)));
        court = Court(controller.court());
    }

    function _joins(address who, uint256 nodeKey) private {
        odd.mint(who, 10 * MIN_STAKE);
        odd.allow(who, address(controller));
        vm.prank(who);
        controller.registerProvider(who, 3 * MIN_STAKE);
        (bytes32 r, bytes32 vs) = compact(nodeKey, controller.nodeBindingDigest(vm.addr(nodeKey), who));
        vm.prank(who);
        controller.registerNode(vm.addr(nodeKey), r, vs);
        vm.prank(who);
        controller.unbond(MIN_STAKE);
    }

    function _bonds(address who) private {
        odd.mint(who, 2 * BOND);
        odd.allow(who, address(court));
        vm.prank(who);
        court.bond(BOND);
    }

    function _liesAbout(address who, uint256 nodeKey) private view returns (bytes memory) {
        Report memory x = report("a");
        (x.node, x.provider) = (vm.addr(nodeKey), who);
        bytes memory one_ = bytesOf(x);
        x.rest = "b";
        return abi.encodeCall(ICourt.proveTwoReports, (sign(one_, nodeKey), sign(bytesOf(x), nodeKey), PAYEE));
    }

    function test_no_function_of_the_registry_that_moves_tokens_is_entered_from_another() public {
        _joins(provider, NODE_KEY);
        _joins(address(odd), ODD_NODE_KEY);
        vm.warp(block.timestamp + UNBOND_S);
        address registry = address(controller);
        bytes memory joining = abi.encodeCall(IController.registerProvider, (provider, 1));
        bytes memory leaving = abi.encodeCall(IController.withdrawStake, ());
        bytes[3] memory outer = [joining, leaving, _liesAbout(provider, NODE_KEY)];
        bytes memory joins = abi.encodeCall(IController.registerProvider, (address(odd), 1));
        bytes[3] memory inner = [joins, leaving, _liesAbout(address(odd), ODD_NODE_KEY)];
        _tryAll([registry, registry, address(court)], [provider, provider, renter], outer, inner);
    }

    function test_no_function_of_the_court_that_moves_tokens_is_entered_from_another() public {
        _bonds(owner);
        _bonds(heir);
        _bonds(renter);
        _bonds(address(odd));
        vm.prank(owner);
        controller.announceOwner(heir);
        vm.warp(block.timestamp + UNBOND_S);
        (bytes32 r, bytes32 vs) = consent(HEIR_KEY, heir);
        vm.prank(heir);
        controller.acceptOwner(vm.addr(HEIR_KEY), r, vs, 0, 0, 0);
        vm.prank(renter);
        court.unbond(BOND);
        vm.prank(address(odd));
        court.unbond(BOND);
        vm.warp(block.timestamp + UNBOND_S);
        bytes memory more = abi.encodeCall(ICourt.bond, (1));
        bytes memory leaving = abi.encodeCall(ICourt.withdrawBond, (PAYEE));
        bytes[3] memory outer = [more, leaving, _forkIn(1, AUTHORITY_KEY)];
        bytes[3] memory inner = [more, leaving, _forkIn(2, HEIR_KEY)];
        _tryAll([address(court), address(court), address(court)], [renter, renter, renter], outer, inner);
    }

    function _forkIn(uint32 epoch, uint256 key) private view returns (bytes memory) {
        return abi.encodeCall(
            ICourt.proveFork, (headOf(truth, LOG, epoch, key), headOf(lie, LOG, epoch, key), none(), PAYEE)
        );
    }

    /// Each of `outer` by its caller succeeds, and none of `inner` is let in from it, though each succeeds alone.
    function _tryAll(
        address[3] memory targets,
        address[3] memory callers,
        bytes[3] memory outer,
        bytes[3] memory inner
    ) private {
        for (uint256 k; k < 3; ++k) {
            uint256 here = vm.snapshotState();
            vm.prank(address(odd));
            (bool alone,) = targets[k].call(inner[k]);
            yes(alone, "alone it is let in");
            vm.revertToState(here);
            for (uint256 i; i < 3; ++i) {
                here = vm.snapshotState();
                odd.turn(Mood.Hook, targets[k], inner[k]);
                vm.recordLogs();
                vm.prank(callers[i]);
                (bool done,) = targets[i].call(outer[i]);
                yes(done, "the outer call");
                _hookWasRefused();
                vm.revertToState(here);
            }
        }
    }

    function _hookWasRefused() private {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        uint256 hooks;
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] != WildToken.HookEnded.selector) continue;
            hooks += 1;
            yes(!abi.decode(logs[i].data, (bool)), "let in");
        }
        same(hooks, 1, "tried");
    }
}
