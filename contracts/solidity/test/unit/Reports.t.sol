// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts} from "../utils/Courts.sol";
import {IController} from "../../src/interfaces/IController.sol";
import {ICourt, SignedReport} from "../../src/interfaces/ICourt.sol";
import {Evidence} from "../../src/lib/Evidence.sol";

/// Two reports of one number that a node signed against each other cost its provider the stake, and nothing else does.
contract ReportsTest is Courts {
    uint64 private constant STAKE = 1000e6;

    function setUp() public override {
        super.setUp();
        fund(provider, STAKE);
        vm.prank(provider);
        controller.registerProvider(address(0xC01D), STAKE);
        bindNode(provider);
    }

    function _stake() private view returns (uint64 stake, uint64 unbonding) {
        (, stake, unbonding,) = controller.provider(provider);
    }

    function test_two_reports_of_one_number_cost_the_whole_stake() public {
        vm.prank(provider);
        controller.unbond(300e6); // what unbonds is at stake too
        vm.prank(provider);
        controller.setOffer(node, "spec", 1, "");
        reports(sign(report("a")), sign(report("b")));
        (uint64 stake, uint64 unbonding) = _stake();
        yes(stake == 0 && unbonding == 0, "all of it");
        same(token.balanceOf(PAYEE), STAKE / 10, "a tenth for who watched");
        same(controller.burnt(), STAKE - STAKE / 10, "the rest for nobody");
        same(token.balanceOf(address(controller)), controller.burnt(), "held");
        (bool wasBound, bool condemned) = controller.bindingOf(node, provider);
        yes(wasBound && condemned, "condemned");
        same(kept(owner), BOND, "the owner has nothing to do with it");
        vm.warp(block.timestamp + UNBOND_S);
        vm.expectRevert(abi.encodeWithSelector(IController.NotReady.selector, 0, 0));
        vm.prank(provider);
        controller.withdrawStake();
    }

    function test_a_provider_is_punished_once_for_a_node() public {
        reports(sign(report("a")), sign(report("b")));
        fund(provider, STAKE);
        vm.prank(provider);
        controller.registerProvider(address(0xC01D), STAKE); // it may begin again, without that node
        expect(IController.Condemned.selector, abi.encode(node, provider));
        reports(sign(report("a")), sign(report("c")));
        refuse(IController.Condemned.selector, abi.encode(node, provider));
        vm.prank(provider);
        controller.setOffer(node, "spec", 1, "");
        vm.prank(provider);
        controller.retireNode(node);
        (bytes32 r, bytes32 vs) = compact(NODE_KEY, controller.nodeBindingDigest(node, provider));
        refuse(IController.Condemned.selector, abi.encode(node, provider));
        vm.prank(provider);
        controller.registerNode(node, r, vs);
        (uint64 stake,) = _stake();
        same(stake, STAKE, "the new stake");
        // Another provider's binding of the same node is another matter.
        address rival = address(0xBEEF03);
        join(rival);
        bindNode(rival);
        (, bool condemned) = controller.bindingOf(node, rival);
        yes(!condemned, "not the rival's");
    }

    function test_a_former_binding_still_answers_and_a_foreign_one_never() public {
        address rival = address(0xBEEF03);
        join(rival);
        bindNode(rival); // the node moved on
        reports(sign(report("a")), sign(report("b")));
        (uint64 stake,) = _stake();
        same(stake, 0, "what was signed for the former provider");
        // The key of a node that was never bound to somebody says nothing against him.
        Report memory x = report("a");
        Report memory y = report("b");
        (x.provider, y.provider) = (renter, renter);
        expect(IController.NeverBound.selector, abi.encode(node, renter));
        reports(sign(x), sign(y));
    }

    function test_nothing_at_stake_is_told_and_the_evidence_stays_good() public {
        vm.prank(provider);
        controller.unbond(STAKE);
        vm.warp(block.timestamp + UNBOND_S);
        vm.prank(provider);
        controller.withdrawStake();
        expect(IController.NotStaked.selector, abi.encode(provider, 0, 1));
        reports(sign(report("a")), sign(report("b")));
        join(provider_());
        reports(sign(report("a")), sign(report("b")));
        (uint64 stake,) = _stake();
        same(stake, 0, "then");
    }

    /// The provider again, with the payee that stays.
    function provider_() private returns (address) {
        vm.prank(address(0xC01D));
        controller.setPayout(provider, provider);
        return provider;
    }

    /// The run of a report that differs in anything that names it is another report; in the fence alone, the same.
    function test_reports_of_other_numbers_runs_or_members_do_not_contradict() public {
        for (uint256 i; i < 7; ++i) {
            Report memory other = report("b");
            if (i == 0) other.seq += 1;
            if (i == 1) other.lease += 1;
            if (i == 2) other.index += 1;
            if (i == 3) other.attempt += 1;
            if (i == 4) other.member += 1;
            if (i == 5) other.provider = renter;
            if (i == 6) other.node = renter;
            expect(ICourt.NoContradiction.selector, "");
            reports(sign(report("a")), sign(other));
        }
        expect(ICourt.NoContradiction.selector, "");
        reports(sign(report("a")), sign(report("a")));
        Report memory fenced = report("a");
        (fenced.epoch, fenced.term) = (9, 9);
        expect(ICourt.NoContradiction.selector, "");
        reports(sign(report("a")), sign(fenced));
        fenced.rest = "b";
        reports(sign(report("a")), sign(fenced)); // whatever the fence
        (uint64 stake,) = _stake();
        same(stake, 0, "convicted");
    }

    function test_one_report_that_begins_as_another_does_contradicts_it() public {
        reports(sign(report("")), sign(report("more")));
        (uint64 stake,) = _stake();
        same(stake, 0, "convicted");
    }

    function test_it_is_so_in_either_order() public {
        reports(sign(report("more")), sign(report("")));
        (uint64 stake,) = _stake();
        same(stake, 0, "convicted");
    }

    function test_both_reports_are_the_nodes_own() public {
        SignedReport memory good = sign(report("a"));
        for (uint256 i; i < 2; ++i) {
            SignedReport memory forged = sign(bytesOf(report("b")), SESSION_KEY);
            expect(ICourt.NotSigned.selector, abi.encode(node, session));
            reports(i == 0 ? forged : good, i == 0 ? good : forged);
        }
        SignedReport memory nobodys = sign(report("b"));
        (nobodys.r, nobodys.vs) = (0, 0);
        expect(ICourt.NotSigned.selector, abi.encode(node, address(0)));
        reports(good, nobodys);
    }

    /// A report of no node, signed by nobody: nobody is not convicted by it.
    function test_nobodys_reports_are_none() public {
        Report memory x = report("a");
        Report memory y = report("b");
        (x.node, y.node) = (address(0), address(0));
        SignedReport memory one_ = SignedReport(bytesOf(x), 0, 0);
        SignedReport memory other = SignedReport(bytesOf(y), 0, 0);
        expect(ICourt.NotSigned.selector, abi.encode(address(0), address(0)));
        reports(one_, other);
    }

    function testFuzz_a_changed_byte_is_refused(bool first, uint256 place, uint8 bit) public {
        SignedReport memory one_ = sign(report("some"));
        SignedReport memory other = sign(report("else"));
        SignedReport memory bad = first ? one_ : other;
        place = within(place, 0, bad.report.length + 1);
        if (place < bad.report.length) bad.report[place] ^= bytes1(uint8(1 << (bit % 8)));
        else if (place == bad.report.length) bad.r ^= bytes32(1 << bit);
        else bad.vs ^= bytes32(1 << bit);
        expectAny();
        reports(one_, other);
        (uint64 stake,) = _stake();
        same(stake, STAKE, "the stake");
    }

    function test_what_is_too_short_is_no_report() public {
        bytes memory short = new bytes(77);
        expect(Evidence.BadReport.selector, abi.encode(77));
        reports(sign(short, NODE_KEY), sign(report("b")));
        expect(Evidence.BadReport.selector, abi.encode(77));
        reports(sign(report("b")), sign(short, NODE_KEY));
    }

    function test_the_pools_contracts_and_nobody_are_no_payees() public {
        address[4] memory bad = [address(0), address(court), address(controller), address(vault)];
        for (uint256 i; i < 4; ++i) {
            (SignedReport memory one_, SignedReport memory other) = (sign(report("a")), sign(report("b")));
            vm.expectRevert();
            court.proveTwoReports(one_, other, bad[i]);
        }
        (uint64 stake,) = _stake();
        same(stake, STAKE, "the stake");
    }
}
