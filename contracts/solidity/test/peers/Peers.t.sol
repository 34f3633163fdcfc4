// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {Vm} from "../utils/Vm.sol";
import {Mood, WildToken} from "../utils/WildToken.sol";
import {ComponentKind, IController} from "../../src/interfaces/IController.sol";
import {ICourt} from "../../src/interfaces/ICourt.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Court} from "../../src/Court.sol";
import {
    IgnoresTheAnswer,
    IndexesAText,
    LeavesAtOnce,
    LooksUpTheWrongDelay,
    OmitsAField,
    Phisher,
    ReadsAfterDelete,
    RevokesTheCaller,
    TrustsTheOrigin,
    WaitsForTheRenter
} from "./Condensed.sol";

/// Defects that we read in other markets' contracts or trackers (November 2026): `poc_` shows the harm on a condensed
/// contract of ours, the assertions after it that this pool does not have the defect.
///
/// | read in | defect | here |
/// |---|---|---|
/// | Prime Intellect StakeManager | an event is emitted after `delete`: its amount is 0 | test_amounts_in_events |
/// | Prime Intellect StakeManager | matured unbonds stay, and leave in the block of a slash | test_matured_unbonds |
/// | Prime Intellect | a role is taken from the caller, not from its holder | test_passing_authority |
/// | Prime Intellect ComputeRegistry | events leave out stored fields | test_events_hold_every_field |
/// | Prime Intellect | the answer of transferFrom is not looked at | test_the_tokens_answer |
/// | Lilypad | authority by `tx.origin` | test_the_origin |
/// | Lilypad | `string indexed`: the log holds only a hash | test_texts_in_events |
/// | Lilypad | one stage's timeout is checked for another | test_each_delay_is_its_own |
/// | x402 batch settlement (issue 3464) | vouchers are unprotected while a renter leaves | test_leaving |
/// | Golem (yagna 3126) | a provider is paid only if the renter accepts | test_pay_without_the_renter |
///
/// No counterpart here:
/// the slash pays the validator who ordered it (Prime): nobody orders one, two signed statements do, and nine tenths are
/// burnt (Court.t.sol, Reports.t.sol).
/// ValidatorQuorum.newCall indexes an array that is never pushed to (Prime): there is no quorum; the only array is the
/// factory's list, which create() pushes to (test_a_pool_says_its_terms).
/// The mediation fee always comes from the client (Lilypad): there is no mediation and no fee on a dispute.
/// String deal ids (Lilypad), owner keys over an upgradeable escrow (several): no ids but addresses, no proxy, no owner.
/// Lost gaps and reorganisations in mirrors (Prime, Lilypad, Livepeer): off chain, `controller/src/mirror`.
contract PeersTest is Pools {
    uint256 private constant NODE_KEY = 0x40DE;

    function _only(bytes32 topic) private returns (Vm.Log memory found) {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        uint256 count;
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] == topic) (found, count) = (logs[i], count + 1);
        }
        same(count, 1, "one such event");
    }

    function test_amounts_in_events_are_read_before_the_record_is_cleared() public {
        ReadsAfterDelete poc = new ReadsAfterDelete();
        poc.bond(5);
        vm.recordLogs();
        same(poc.remove(), 5, "poc: paid");
        (, uint256 told) = abi.decode(_only(ReadsAfterDelete.BondRemoved.selector).data, (address, uint256));
        same(told, 0, "poc: an auditor's sum is wrong");

        enter(renter, 100e6, SESSION_KEY);
        vm.prank(renter);
        vault.thaw(60e6);
        vault.claim(provider, one(sign(voucher(50e6))));
        vm.warp(block.timestamp + THAW_S);
        vm.recordLogs();
        vm.prank(renter);
        vault.withdraw(renter);
        (, uint64 amount) = abi.decode(_only(IVault.Withdrawn.selector).data, (address, uint64));
        same(amount, token.balanceOf(renter), "withdrawn");
        vm.recordLogs();
        vault.cashOut(provider);
        (, amount) = abi.decode(_only(IVault.CashedOut.selector).data, (address, uint64));
        same(amount, token.balanceOf(provider), "cashed out");
    }

    /// What was asked for and not taken in its window is at stake again: nothing waits at the door for the evidence.
    function test_matured_unbonds_do_not_wait_for_a_slash() public {
        Court court = Court(controller.court());
        bond(owner, 1000e6);
        vm.prank(owner);
        court.unbond(1000e6 - MIN_BOND);
        vm.warp(block.timestamp + 2 * UNBOND_S + 1);
        vm.expectRevert(abi.encodeWithSelector(ICourt.NotReady.selector, 0, 0));
        vm.prank(owner);
        court.withdrawBond(owner);
        same(court.atStake(1), 1000e6, "all of it");
    }

    function test_passing_authority_takes_it_from_its_holder() public {
        RevokesTheCaller poc = new RevokesTheCaller();
        poc.setValidator(address(1));
        poc.setValidator(address(2));
        yes(poc.validator(address(1)), "poc: the outgoing validator stays");

        replace(HEIR_KEY);
        vm.expectRevert(abi.encodeWithSelector(IController.NotAuthority.selector, authority, heir));
        vm.prank(authority);
        controller.renew();
        address next = address(0x4E87);
        handOver(next, HEIR_KEY, 0, 0);
        vm.expectRevert(abi.encodeWithSelector(IController.NotOwner.selector, owner, next));
        vm.prank(owner);
        controller.announceOwner(owner);
        vm.expectRevert(abi.encodeWithSelector(IVault.NotOwner.selector, owner, next));
        vm.prank(owner);
        vault.cashOutFees(3, owner);
    }

    function test_events_hold_every_field_that_is_stored() public {
        OmitsAField poc = new OmitsAField();
        vm.recordLogs();
        poc.add(address(1), 8);
        bytes32 eight = _only(OmitsAField.NodeAdded.selector).topics[1];
        poc.add(address(1), 9);
        same(_only(OmitsAField.NodeAdded.selector).topics[1], eight, "poc: the same log for another state");

        // Here the storage is rebuilt word by word in the invariants; one offer stands for it.
        address node = vm.addr(NODE_KEY);
        fund(provider, MIN_STAKE);
        vm.prank(provider);
        controller.registerProvider(provider, MIN_STAKE);
        (bytes32 r, bytes32 vs) = compact(NODE_KEY, controller.nodeBindingDigest(node, provider));
        vm.prank(provider);
        controller.registerNode(node, r, vs);
        vm.recordLogs();
        vm.prank(provider);
        controller.setOffer(node, bytes32(uint256(7)), 1 << 4, "cid");
        (bytes32 specHash, uint8 classes, string memory cid) = controller.offerOf(node);
        same(
            keccak256(_only(IController.OfferSet.selector).data), keccak256(abi.encode(specHash, classes, cid)), "offer"
        );
    }

    function test_the_tokens_answer_is_looked_at() public {
        WildToken odd = new WildToken();
        (, vault) = open(terms(address(odd)));
        NoTransfer lying = new NoTransfer();
        IgnoresTheAnswer poc = new IgnoresTheAnswer(lying);
        lying.mint(address(poc), 100e6); // what others deposited
        lying.quiet(true);
        poc.deposit(100e6);
        lying.quiet(false);
        poc.withdraw();
        same(lying.balanceOf(address(this)), 100e6, "poc: others' money for nothing");

        (, vault) = open(terms(address(lying)));
        lying.quiet(true);
        vm.expectRevert();
        vault.deposit(100e6);
        // And one that moves the money but answers no: neither in nor out.
        (, vault) = open(terms(address(odd)));
        odd.mint(renter, 200e6);
        odd.allow(renter, address(vault));
        vm.prank(renter);
        vault.enter(100e6, session, UNTIL);
        odd.turn(Mood.False, address(0), "");
        vm.expectRevert();
        vm.prank(renter);
        vault.deposit(100e6);
        vault.claim(provider, one(sign(voucher(50e6))));
        vm.expectRevert();
        vault.cashOut(provider);
        odd.turn(Mood.Honest, address(0), "");
        vault.cashOut(provider);
        same(odd.balanceOf(provider), 49e6, "nothing was lost meanwhile");
    }

    function test_the_origin_of_a_transaction_is_nobody() public {
        Phisher phisher = new Phisher();
        TrustsTheOrigin poc = new TrustsTheOrigin(token);
        token.mint(renter, 100e6);
        vm.prank(renter, renter);
        token.approve(address(poc), 100e6);
        vm.prank(renter, renter);
        poc.deposit(100e6);
        vm.prank(renter, renter);
        phisher.free(address(poc), abi.encodeCall(TrustsTheOrigin.withdraw, (address(phisher))));
        same(token.balanceOf(address(phisher)), 100e6, "poc: the renter's money is the phisher's");

        enter(renter, 100e6, SESSION_KEY);
        vm.prank(renter);
        vault.thaw(100e6);
        vm.warp(block.timestamp + THAW_S);
        bytes[3] memory calls = [
            abi.encodeCall(IVault.withdraw, (address(phisher))),
            abi.encodeCall(IVault.revoke, (session)),
            abi.encodeCall(IVault.thaw, (1))
        ];
        for (uint256 i; i < 3; ++i) {
            vm.prank(renter, renter);
            yes(!phisher.free(address(vault), calls[i]), "the phisher is not the renter");
        }
        vm.prank(owner, owner);
        bytes memory pass = abi.encodeCall(IController.announceOwner, (address(phisher)));
        yes(!phisher.free(address(controller), pass), "nor the owner");
    }

    function test_texts_in_events_can_be_read() public {
        IndexesAText poc = new IndexesAText();
        vm.recordLogs();
        poc.register("http://here");
        Vm.Log memory log = _only(IndexesAText.Registered.selector);
        same(log.topics[2], keccak256("http://here"), "poc: a hash");
        same(log.data.length, 0, "poc: and no text");

        vm.recordLogs();
        vm.prank(authority);
        controller.registerComponent(ComponentKind.Controller, "http://here", uint40(block.timestamp + 1));
        (, string memory endpoint) = abi.decode(_only(IController.ComponentRegistered.selector).data, (uint40, string));
        same(keccak256(bytes(endpoint)), keccak256("http://here"), "the text itself");
    }

    function test_each_delay_is_its_own() public {
        LooksUpTheWrongDelay poc = new LooksUpTheWrongDelay();
        poc.mediate();
        vm.warp(block.timestamp + 1 hours);
        yes(poc.timedOut(), "poc: over after an hour of three days");

        // Grace 1 day, hand-over 2 days, thaw 3 days, unbond 7 days: each ends at its own second.
        enter(renter, 100e6, SESSION_KEY);
        fund(provider, MIN_STAKE);
        vm.prank(provider);
        controller.registerProvider(provider, MIN_STAKE);
        vm.prank(provider);
        controller.unbond(MIN_STAKE);
        vm.prank(renter);
        vault.thaw(1);
        vm.prank(renter);
        vault.revoke(session);
        vm.prank(owner);
        controller.announceOwner(renter);
        replace(HEIR_KEY);
        (, uint40 acceptAt) = controller.announced();
        same(acceptAt, block.timestamp + HAND_OVER_S, "hand-over");
        (, uint32 validUntil) = vault.authorityOf(1);
        (, uint40 readyAt) = vault.thawing(renter);
        (,, uint32 deadFrom,) = vault.keyOf(renter, session);
        (,,, uint40 stakeAt) = controller.provider(provider);
        same(validUntil, block.timestamp + GRACE_S, "grace");
        same(readyAt, block.timestamp + THAW_S, "thaw");
        same(deadFrom, block.timestamp + THAW_S, "key");
        same(stakeAt, block.timestamp + UNBOND_S, "unbond");
    }

    function test_leaving_waits_for_the_vouchers() public {
        LeavesAtOnce poc = new LeavesAtOnce();
        poc.deposit(100e6);
        poc.withdraw();
        same(poc.claim(address(this), 70e6), 0, "poc: the provider worked for nothing");

        enter(renter, 100e6, SESSION_KEY);
        vm.prank(renter);
        vault.thaw(100e6);
        vm.warp(block.timestamp + THAW_S - 1);
        vault.claim(provider, one(sign(voucher(70e6))));
        same(claimedOf(provider, renter), 70e6, "paid out of what thaws");
    }

    function test_pay_without_the_renter() public {
        WaitsForTheRenter poc = new WaitsForTheRenter();
        vm.prank(provider);
        same(poc.claim(), 0, "poc: the renter never accepted");

        enter(renter, 100e6, SESSION_KEY);
        vm.prank(address(0x57A9)); // anybody; the renter does nothing
        vault.claim(provider, one(sign(voucher(70e6))));
        vault.cashOut(provider);
        same(token.balanceOf(provider), 68_600_000, "paid");
    }
}

/// Answers no instead of reverting, and moves nothing, while it is told to be quiet.
contract NoTransfer is WildToken {
    bool private _quiet;

    function quiet(bool on) external {
        _quiet = on;
    }

    function transferFrom(address from, address to, uint256 amount) public override returns (bool) {
        return !_quiet && super.transferFrom(from, to, amount);
    }
}
