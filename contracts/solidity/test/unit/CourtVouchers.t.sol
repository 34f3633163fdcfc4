// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts} from "../utils/Courts.sol";
import {ICourt, Owed, Shown, SignedHead} from "../../src/interfaces/ICourt.sol";
import {Item2} from "../../src/interfaces/IVault.sol";
import {Evidence} from "../../src/lib/Evidence.sol";

/// Promises above the deposit, and delegated vouchers above the bill.
contract CourtVouchersTest is Courts {
    uint256 internal constant OTHER_KEY = 0x0734;
    address internal constant LATER = address(0xBEEF03);
    uint64 internal constant NOW_MS = 1_800_000_000_000;

    function setUp() public override {
        super.setUp();
        vault.setAccount(renter, session, 100e6, UNTIL);
    }

    function _owed(uint64 one, uint64 other) internal view returns (Owed[] memory owed) {
        owed = new Owed[](2);
        owed[0] = Owed(provider, voucher(provider, one, NOW_MS, SESSION_KEY, AUTHORITY_KEY));
        owed[1] = Owed(LATER, voucher(LATER, other, NOW_MS, SESSION_KEY, AUTHORITY_KEY));
    }

    function _single(Item2 memory item) internal view returns (Owed[] memory owed) {
        owed = new Owed[](1);
        owed[0] = Owed(provider, item);
    }

    function _why(Owed[] memory owed) internal returns (bytes4) {
        try court.proveOverPromise(owed) {
            return 0;
        } catch (bytes memory why) {
            return bytes4(why);
        }
    }

    function _refused(Owed[] memory owed, bytes4 with, string memory what) internal {
        same(bytes32(_why(owed)), bytes32(with), what);
    }

    // -- over-promise

    function test_promises_above_the_balance_pay_the_providers_by_what_they_are_owed() public {
        vault.setClaimed(LATER, renter, 100e6);
        vm.prank(ANYBODY);
        court.proveOverPromise(_owed(300e6, 1000e6)); // 300 and 900 owed, 100 there
        same(court.credit(provider), PENALTY / 8, "a quarter of half");
        same(court.credit(LATER), PENALTY * 3 / 8, "three quarters of half");
        same(court.burnt(), PENALTY / 2, "burnt");
        same(court.credit(ANYBODY), 0, "nothing for who submits");
    }

    function test_they_are_paid_no_more_than_what_is_missing() public {
        court.proveOverPromise(_owed(51e6, 52e6)); // three missing
        same(court.credit(provider), uint256(3e6) * 51 / 103, "one");
        same(court.credit(LATER), uint256(3e6) * 52 / 103, "other");
        same(court.burnt() + court.credit(provider) + court.credit(LATER), PENALTY, "the rest is burnt");
    }

    function test_promises_that_fit_to_the_last_unit_are_no_offence() public {
        Owed[] memory owed = _owed(60e6, 40e6);
        refuse(ICourt.WithinBalance.selector, abi.encode(100e6, 100e6));
        court.proveOverPromise(owed);
        court.proveOverPromise(_owed(60e6, 40e6 + 1));
    }

    function test_a_renter_is_over_promised_once_in_an_epoch() public {
        court.proveOverPromise(_owed(60e6, 50e6));
        Owed[] memory more = _owed(90e6, 50e6);
        refuse(ICourt.AlreadyPunished.selector, abi.encode(keccak256(abi.encode(uint8(3), uint32(1), renter))));
        court.proveOverPromise(more);
    }

    function test_what_was_claimed_is_owed_no_more() public {
        vault.setClaimed(provider, renter, 60e6);
        vault.setClaimed(LATER, renter, 999e6);
        _refused(_owed(60e6, 500e6), ICourt.WithinBalance.selector, "claimed");
        vault.setAccount(renter, session, 0, UNTIL);
        _refused(_owed(60e6, 500e6), ICourt.WithinBalance.selector, "nothing is owed");
    }

    function test_no_vouchers_prove_nothing() public {
        refuse(ICourt.Zero.selector, abi.encode("vouchers"));
        court.proveOverPromise(new Owed[](0));
    }

    function test_one_provider_counts_once_and_nobody_is_none() public {
        Owed[] memory owed = _owed(60e6, 50e6);
        owed[1] = owed[0];
        _refused(owed, ICourt.NotAscending.selector, "twice");
        owed = _owed(60e6, 50e6);
        (owed[0], owed[1]) = (owed[1], owed[0]);
        _refused(owed, ICourt.NotAscending.selector, "descending");
        owed[0].provider = address(0);
        _refused(owed, ICourt.NotAscending.selector, "zero");
    }

    function test_vouchers_of_two_renters_or_epochs_do_not_add_up() public {
        Owed[] memory owed = _owed(60e6, 50e6);
        owed[1].voucher.a ^= 1 << 96;
        owed[1].voucher = resign(LATER, owed[1].voucher, SESSION_KEY, AUTHORITY_KEY);
        _refused(owed, ICourt.OtherRenter.selector, "renter");
        owed = _owed(60e6, 50e6);
        owed[1].voucher.a ^= 2;
        owed[1].voucher = resign(LATER, owed[1].voucher, SESSION_KEY, AUTHORITY_KEY);
        _refused(owed, ICourt.OtherRenter.selector, "epoch");
    }

    function test_only_the_present_authority_answers_for_promises() public {
        vault.setAuthority(1, authority, uint40(block.timestamp + 1 days));
        _refused(_owed(60e6, 50e6), ICourt.NotPresent.selector, "passed on");
        Owed[] memory owed = _owed(60e6, 50e6);
        for (uint256 i; i < 2; ++i) owed[i].voucher.a = owed[i].voucher.a >> 32 << 32;
        _refused(owed, ICourt.NotPresent.selector, "epoch 0");
    }

    function test_what_a_predecessor_may_have_drained_is_not_laid_to_the_successor() public {
        uint40 graceEnd = 1_800_000_500;
        vault.setAuthority(0, ANYBODY, graceEnd); // stands for the epoch before
        uint64 since = (uint64(graceEnd) + ANSWER_S) * 1000;
        _refused(_owed(60e6, 50e6), ICourt.TooOld.selector, "in the grace");
        Item2 memory edge = voucher(provider, 110e6, since, SESSION_KEY, AUTHORITY_KEY);
        refuse(ICourt.TooOld.selector, abi.encode(since, uint256(since)));
        court.proveOverPromise(_single(edge));
        court.proveOverPromise(_single(voucher(provider, 110e6, since + 1, SESSION_KEY, AUTHORITY_KEY)));
    }

    function test_use_before_the_renters_last_withdrawal_does_not_count() public {
        vault.setWithdrawnAt(renter, 1_800_000_000);
        _refused(_owed(60e6, 50e6), ICourt.TooOld.selector, "before");
        vault.setWithdrawnAt(renter, 1_799_999_999);
        same(bytes32(_why(_owed(60e6, 50e6))), 0, "after");
    }

    function test_a_voucher_must_be_one_that_the_vault_would_take() public {
        Owed[] memory owed = _owed(60e6, 50e6);
        owed[0].voucher = resign(provider, owed[0].voucher, OTHER_KEY, AUTHORITY_KEY);
        _refused(owed, ICourt.BadKey.selector, "unknown key");
        vault.setKey(renter, vm.addr(OTHER_KEY), UNTIL, uint32(block.timestamp), 1);
        _refused(owed, ICourt.BadKey.selector, "dead key");
        vault.setKey(renter, vm.addr(OTHER_KEY), 1_799_999_999, 0, 1);
        _refused(owed, ICourt.BadKey.selector, "expired key");
        owed[0].voucher = resign(provider, owed[0].voucher, AUTHORITY_KEY, AUTHORITY_KEY);
        vault.setKey(renter, authority, UNTIL, 0, 1);
        _refused(owed, ICourt.BadKey.selector, "one signature counts once");
        owed[0].voucher = resign(provider, owed[0].voucher, SESSION_KEY, OTHER_KEY);
        _refused(owed, ICourt.NotSigned.selector, "not countersigned");
        vault.setAccount(renter, session, 100e6, 1_799_999_999);
        _refused(_owed(60e6, 50e6), ICourt.BadKey.selector, "the own key's end");
    }

    function test_delegated_and_retired_keys_count_like_the_own_one() public {
        Owed[] memory owed = _owed(60e6, 50e6);
        owed[0].voucher = resign(provider, owed[0].voucher, OTHER_KEY, AUTHORITY_KEY);
        vault.setKey(renter, vm.addr(OTHER_KEY), UNTIL, uint32(block.timestamp + 1), 2);
        vault.setAccount(renter, address(0), 100e6, 0);
        vault.setKey(renter, session, UNTIL, 0, 1);
        same(bytes32(_why(owed)), 0, "proven");
    }

    function test_a_changed_bit_of_a_voucher_is_refused(uint8 bit, bool second, uint8 where) public {
        Owed[] memory owed = _owed(60e6, 50e6);
        Item2 memory item = owed[second ? 1 : 0].voucher;
        if (where % 4 == 0) item.a ^= 1 << bit;
        else if (where % 4 == 1) item.b ^= 1 << (bit % 128);
        else if (where % 4 == 2) item.r ^= bytes32(1 << bit);
        else item.avs ^= bytes32(1 << bit);
        yes(_why(owed) != 0, "it was taken");
        same(bondOf(authority), BOND, "nothing was taken");
    }

    // -- above the bill

    function _delegated(uint64 cumulative) internal returns (Item2 memory) {
        vault.setKey(renter, vm.addr(OTHER_KEY), UNTIL, 0, 1);
        return voucher(provider, cumulative, NOW_MS, OTHER_KEY, AUTHORITY_KEY);
    }

    function _accuse(uint64 cumulative) internal returns (bytes32 case_) {
        Item2 memory item = _delegated(cumulative);
        fund(ANYBODY, DEPOSIT);
        vm.prank(ANYBODY);
        court.accuseOverBill(provider, item);
        case_ = keccak256(abi.encode(uint8(4), authority, renter, provider, cumulative));
        same(court.caseOf(case_).state, 1, "open");
    }

    function _answer(uint64 due) internal returns (SignedHead memory head, Shown memory shown) {
        enterEffect(freedOf(1, 0, 1, 0));
        bytes[] memory effects = new bytes[](3);
        effects[0] = freedOf(2, 0, 1, 0);
        effects[1] = voucherDue(renter, provider, due);
        effects[2] = freedOf(3, 0, 1, 0);
        uint64 seq = enterEffects(effects);
        enterEffect(freedOf(4, 0, 1, 0));
        shown = show(seq, 1);
        head = headOf(3, rootOf(logLeaves()), "state");
    }

    function test_a_voucher_that_the_log_says_is_due_is_answered_and_the_deposit_is_the_accuseds() public {
        bytes32 case_ = _accuse(40e6);
        (SignedHead memory head, Shown memory due) = _answer(40e6);
        vm.prank(LATER);
        court.answerOverBill(40e6, head, due);
        same(court.credit(authority), DEPOSIT, "deposit");
        same(court.caseOf(case_).state, 3, "acquitted");
        same(bondOf(authority), BOND, "bond");
        Item2 memory item = _delegated(40e6);
        refuse(ICourt.AlreadyAccused.selector, abi.encode(case_, 3));
        court.accuseOverBill(provider, item);
        refuse(ICourt.NotAccused.selector, abi.encode(case_));
        court.answerOverBill(40e6, head, due);
    }

    function test_silence_convicts_after_the_delay_and_the_accuser_has_the_deposit_back() public {
        bytes32 case_ = _accuse(4000e6);
        vm.warp(block.timestamp + ANSWER_S);
        refuse(ICourt.TooEarly.selector, abi.encode(case_, block.timestamp));
        court.convict(case_);
        vm.warp(block.timestamp + 1);
        court.convict(case_);
        same(court.credit(ANYBODY), DEPOSIT, "deposit");
        same(court.credit(renter), PENALTY / 2, "harmed");
        same(court.burnt(), PENALTY / 2, "burnt");
        same(bondOf(authority), BOND - PENALTY, "bond");
        refuse(ICourt.NotAccused.selector, abi.encode(case_));
        court.convict(case_);
        Item2 memory item = _delegated(4000e6);
        refuse(ICourt.AlreadyPunished.selector, abi.encode(case_));
        court.accuseOverBill(provider, item);
    }

    function test_the_harmed_get_no_more_than_the_voucher_could_take() public {
        bytes32 case_ = _accuse(3);
        vm.warp(block.timestamp + ANSWER_S + 1);
        court.convict(case_);
        same(court.credit(renter), 3, "harmed");
        same(court.burnt(), PENALTY - 3, "burnt");
    }

    function test_an_answer_after_the_deadline_counts_until_somebody_convicts() public {
        _accuse(40e6);
        vm.warp(block.timestamp + 10 * ANSWER_S);
        (SignedHead memory head, Shown memory due) = _answer(41e6);
        court.answerOverBill(40e6, head, due);
        same(court.credit(authority), DEPOSIT, "acquitted");
    }

    function test_nobody_withdraws_a_bond_while_accused() public {
        vm.prank(authority);
        court.unbond(BOND);
        vm.warp(block.timestamp + UNBOND_S);
        bytes32 case_ = _accuse(40e6);
        vm.prank(authority);
        refuse(ICourt.UnderAccusation.selector, abi.encode(authority, 1));
        court.withdrawBond(authority);
        vm.warp(block.timestamp + ANSWER_S + 1);
        court.convict(case_);
        vm.prank(authority);
        court.withdrawBond(authority);
        same(token.balanceOf(authority), BOND - PENALTY, "what is left");
    }

    function test_a_total_below_the_voucher_is_no_answer_nor_is_another_pair_or_effect() public {
        _accuse(40e6);
        (SignedHead memory head, Shown memory due) = _answer(40e6 - 1);
        refuse(ICourt.BelowVoucher.selector, abi.encode(40e6 - 1, 40e6));
        court.answerOverBill(40e6, head, due);
        uint64 seq = enterEffect(voucherDue(renter, LATER, 40e6));
        head = headOf(4, rootOf(logLeaves()), "state");
        due = show(seq, 0);
        refuse(
            ICourt.NotAccused.selector, abi.encode(keccak256(abi.encode(uint8(4), authority, renter, LATER, uint64(40e6))))
        );
        court.answerOverBill(40e6, head, due);
        due = show(0, 0);
        refuse(Evidence.BadBytes.selector, abi.encode(19));
        court.answerOverBill(40e6, head, due);
    }

    function test_an_answer_in_anothers_head_counts_for_nobody() public {
        _accuse(40e6);
        (SignedHead memory head, Shown memory due) = _answer(40e6);
        head = sign(head, OTHER_KEY);
        refuse(ICourt.NotSigned.selector, abi.encode(authority, vm.addr(OTHER_KEY)));
        court.answerOverBill(40e6, head, due);
        vault.setAuthority(2, vm.addr(OTHER_KEY), PRESENT);
        head.epoch = 2;
        head = sign(head, OTHER_KEY);
        bytes32 case_ = keccak256(abi.encode(uint8(4), vm.addr(OTHER_KEY), renter, provider, uint64(40e6)));
        refuse(ICourt.NotAccused.selector, abi.encode(case_));
        court.answerOverBill(40e6, head, due);
    }

    function test_a_renters_own_key_is_never_taken_for_a_delegated_one() public {
        fund(address(this), DEPOSIT);
        Item2 memory item = _delegated(40e6);
        vault.setAccount(renter, vm.addr(OTHER_KEY), 100e6, UNTIL);
        refuse(ICourt.NotDelegated.selector, abi.encode(vm.addr(OTHER_KEY), 1));
        court.accuseOverBill(provider, item);
        vault.setAccount(renter, session, 100e6, UNTIL);
        vault.setKey(renter, vm.addr(OTHER_KEY), UNTIL, 0, 2);
        refuse(ICourt.NotDelegated.selector, abi.encode(vm.addr(OTHER_KEY), 2));
        court.accuseOverBill(provider, item);
    }

    function test_a_voucher_for_nothing_or_without_a_signature_accuses_nobody() public {
        fund(address(this), DEPOSIT);
        Item2 memory item = _delegated(0);
        refuse(ICourt.Zero.selector, abi.encode("cumulative"));
        court.accuseOverBill(provider, item);
        item = resign(provider, _delegated(5), OTHER_KEY, OTHER_KEY);
        refuse(ICourt.NotSigned.selector, abi.encode(authority, vm.addr(OTHER_KEY)));
        court.accuseOverBill(provider, item);
    }

    function test_who_has_no_bond_is_not_accused() public {
        Item2 memory item = _delegated(5);
        vault.setAuthority(1, vm.addr(0x77), PRESENT);
        item = resign(provider, item, OTHER_KEY, 0x77);
        refuse(ICourt.NothingAtStake.selector, abi.encode(vm.addr(0x77)));
        court.accuseOverBill(provider, item);
    }

    function test_an_accusation_needs_its_deposit() public {
        Item2 memory item = _delegated(5);
        vm.prank(LATER);
        try court.accuseOverBill(provider, item) {
            revert Untrue("accused for nothing");
        } catch {}
        same(court.bondOf(authority).open, 0, "no case");
    }
}
