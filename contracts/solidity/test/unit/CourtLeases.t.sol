// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts} from "../utils/Courts.sol";
import {ICourt, Shown, SignedHead} from "../../src/interfaces/ICourt.sol";
import {Evidence} from "../../src/lib/Evidence.sol";

/// A slot leased twice.
contract CourtLeasesTest is Courts {
    address internal constant NODE = address(0x40DE);
    uint256 internal constant GPU = 0x6b0000000000000000000000000000001;
    address internal late = address(0xBEEF07);

    struct Slot {
        uint256 kind;
        uint256 a;
        uint256 b;
    }

    function _grant(uint64 lease, address who, Slot memory slot) internal view returns (bytes memory) {
        return abi.encode(
            [uint256(1), lease, 2, 1, 0, uint160(who), uint160(provider), uint160(NODE), GPU, slot.kind, slot.a, slot.b, 0, 9]
        );
    }

    function _run(uint64 lease) internal pure returns (uint256) {
        return uint256(1) << 96 | uint256(2) << 64 | lease;
    }

    function _case(uint64 one, uint64 other) internal view returns (bytes32) {
        return keccak256(abi.encode(uint8(5), authority, _run(one), _run(other)));
    }

    function _head() internal view returns (SignedHead memory) {
        return headOf(uint64(_log.length), rootOf(logLeaves()), "state");
    }

    /// Entries: 0 grants lease 11, 1 something else, 2 two effects and lease 12.
    function _twice(Slot memory x, Slot memory y) internal {
        enterEffect(_grant(11, renter, x));
        enterEffect(freedOf(9, 2, 1, 0));
        bytes[] memory effects = new bytes[](3);
        effects[0] = freedOf(8, 2, 1, 0);
        effects[1] = freedOf(7, 2, 1, 0);
        effects[2] = _grant(12, late, y);
        enterEffects(effects);
        fund(ANYBODY, DEPOSIT);
    }

    function _whole() internal pure returns (Slot memory) {
        return Slot(0, 0, 0);
    }

    function _accuse(uint64 first, uint64 from, uint64 second, uint64 to) internal {
        (SignedHead memory head, Shown memory x, Shown memory y) = (_head(), show(first, from), show(second, to));
        vm.prank(ANYBODY);
        court.accuseDoubleLease(head, x, y);
    }

    function test_two_wholes_of_one_gpu_that_nobody_answers_for_are_punished() public {
        _twice(_whole(), _whole());
        _accuse(0, 0, 2, 2);
        vm.warp(block.timestamp + ANSWER_S + 1);
        court.convict(_case(11, 12));
        same(court.credit(late), PENALTY / 2, "the renter of the later lease");
        same(court.credit(ANYBODY), DEPOSIT, "deposit");
        same(court.burnt(), PENALTY / 2, "burnt");
    }

    function _overlaps(Slot memory x, Slot memory y) internal returns (bool) {
        delete _log;
        _twice(x, y);
        (SignedHead memory head, Shown memory a, Shown memory b) = (_head(), show(0, 0), show(2, 2));
        vm.prank(ANYBODY);
        try court.accuseDoubleLease(head, a, b) {
            vm.warp(block.timestamp + ANSWER_S + 1);
            return true;
        } catch (bytes memory why) {
            same(keccak256(why), keccak256(abi.encodeWithSelector(ICourt.NoOverlap.selector, _run(11), _run(12))), "why");
            return false;
        }
    }

    function test_mig_instances_overlap_by_a_common_memory_slice(uint8 a, uint8 n, uint8 b, uint8 m) public {
        (n, m) = (n | 1, m | 1); // none is empty
        bool common;
        for (uint256 i = a; i < uint256(a) + n; ++i) {
            if (i >= b && i < uint256(b) + m) common = true;
        }
        yes(_overlaps(Slot(1, a, n), Slot(1, b, m)) == common, "overlap");
    }

    function test_shares_overlap_when_both_need_more_than_the_gpu(uint16 x, uint16 y) public {
        (uint256 a, uint256 b) = (within(x, 0, 1000), within(y, 0, 1000));
        yes(_overlaps(Slot(2, a, 1 << 30), Slot(2, b, 1 << 30)) == (a + b > 1000), "overlap");
    }

    function test_a_share_beside_a_mig_instance_is_not_judged() public {
        yes(!_overlaps(Slot(1, 0, 8), Slot(2, 1000, 1)), "mig and share");
    }

    function test_a_whole_overlaps_a_share() public {
        yes(_overlaps(_whole(), Slot(2, 1, 1)), "share");
    }

    function test_a_whole_overlaps_a_mig_instance() public {
        yes(_overlaps(Slot(1, 3, 1), _whole()), "mig");
    }

    function test_a_run_does_not_overlap_itself() public {
        enterEffect(_grant(11, renter, _whole()));
        enterEffect(_grant(11, renter, _whole()));
        (SignedHead memory head, Shown memory x, Shown memory y) = (_head(), show(0, 0), show(1, 0));
        refuse(ICourt.NoOverlap.selector, abi.encode(_run(11), _run(11)));
        court.accuseDoubleLease(head, x, y);
    }

    function test_a_slot_that_was_freed_between_is_answered() public {
        _freedAt(1, 0);
    }

    function test_a_slot_freed_earlier_in_the_entry_of_the_second_grant_is_answered() public {
        _freedAt(2, 1);
    }

    function _freedAt(uint64 seq, uint64 index) internal {
        _twice(_whole(), _whole());
        _log[seq][index] = freedOf(11, 2, 1, 0);
        _accuse(0, 0, 2, 2);
        (SignedHead memory head, Shown memory freed) = (_head(), show(seq, index));
        court.answerDoubleLease(_run(12), head, freed);
        same(court.caseOf(_case(11, 12)).state, 3, "acquitted");
        same(court.credit(authority), DEPOSIT, "deposit");
    }

    function _notBetween(uint64 seq, uint64 index) internal {
        (SignedHead memory head, Shown memory freed) = (_head(), show(seq, index));
        try court.answerDoubleLease(_run(12), head, freed) {
            revert Untrue("answered");
        } catch (bytes memory why) {
            same(bytes32(bytes4(why)), bytes32(ICourt.OutOfOrder.selector), "why");
        }
    }

    function test_freed_before_the_first_or_after_the_second_is_no_answer() public {
        bytes[] memory effects = new bytes[](2);
        effects[0] = freedOf(11, 2, 1, 0);
        effects[1] = _grant(11, renter, _whole());
        enterEffects(effects);
        effects[0] = _grant(12, late, _whole());
        effects[1] = freedOf(11, 2, 1, 0);
        enterEffects(effects);
        enterEffect(freedOf(11, 2, 1, 0));
        fund(ANYBODY, DEPOSIT);
        _accuse(0, 1, 1, 0);
        _notBetween(0, 0);
        _notBetween(1, 1);
        _notBetween(2, 0);
    }

    function test_a_false_count_of_effects_moves_nothing() public {
        // The third of three effects stands where the second of two would: its order must be the same.
        _twice(_whole(), _whole());
        _log[2][1] = freedOf(11, 2, 1, 0);
        (SignedHead memory head, Shown memory x, Shown memory y) = (_head(), show(0, 0), show(2, 2));
        (y.index, y.count) = (1, 2);
        vm.prank(ANYBODY);
        court.accuseDoubleLease(head, x, y);
        Shown memory freed = show(2, 1);
        court.answerDoubleLease(_run(12), head, freed);
        same(court.credit(authority), DEPOSIT, "answered all the same");
    }

    function test_another_run_freed_is_no_answer() public {
        _twice(_whole(), _whole());
        _log[1][0] = freedOf(11, 2, 2, 0);
        _accuse(0, 0, 2, 2);
        (SignedHead memory head, Shown memory freed) = (_head(), show(1, 0));
        try court.answerDoubleLease(_run(12), head, freed) {
            revert Untrue("answered by another attempt");
        } catch (bytes memory why) {
            same(bytes32(bytes4(why)), bytes32(ICourt.NotAccused.selector), "why");
        }
    }

    function test_the_later_grant_cannot_come_first() public {
        _twice(_whole(), _whole());
        (SignedHead memory head, Shown memory x, Shown memory y) = (_head(), show(2, 2), show(0, 0));
        try court.accuseDoubleLease(head, x, y) {
            revert Untrue("backwards");
        } catch (bytes memory why) {
            same(bytes32(bytes4(why)), bytes32(ICourt.OutOfOrder.selector), "why");
        }
    }

    function test_nobody_answers_for_what_a_predecessor_entered() public {
        _twice(_whole(), _whole());
        vault.setAuthority(2, authority, PRESENT);
        SignedHead memory head = sign(SignedHead(3, rootOf(logLeaves()), "s", 2, 1, 0, 0), AUTHORITY_KEY);
        (Shown memory x, Shown memory y) = (show(0, 0), show(2, 2));
        refuse(ICourt.OtherEpoch.selector, abi.encode(1, 2));
        court.accuseDoubleLease(head, x, y);
    }

    function test_bytes_that_are_no_entry_or_no_grant_are_refused() public {
        _twice(_whole(), _whole());
        (SignedHead memory head, Shown memory x, Shown memory y) = (_head(), show(0, 0), show(2, 0));
        refuse(Evidence.BadBytes.selector, abi.encode(19));
        court.accuseDoubleLease(head, x, y);
        y = show(2, 2);
        y.entry = bytes.concat(y.entry, hex"00");
        refuse(Evidence.BadBytes.selector, abi.encode(70));
        court.accuseDoubleLease(head, x, y);
        y.entry = hex"0102";
        refuse(Evidence.BadBytes.selector, abi.encode(2));
        court.accuseDoubleLease(head, x, y);
    }

    function test_a_flipped_bit_of_any_proof_is_refused(uint8 part, uint256 bit) public {
        _twice(_whole(), _whole());
        (SignedHead memory head, Shown memory x, Shown memory y) = (_head(), show(0, 0), show(2, 2));
        if (part % 4 == 0) y.entry[bit % y.entry.length] ^= bytes1(uint8(1 << (bit >> 8 & 7)));
        else if (part % 4 == 1) y.effect[bit % y.effect.length] ^= bytes1(uint8(1 << (bit >> 8 & 7)));
        else if (part % 4 == 2) y.path[bit % y.path.length] ^= bytes32(1 << (bit >> 8 & 255));
        else y.effectPath[bit % y.effectPath.length] ^= bytes32(1 << (bit >> 8 & 255));
        vm.prank(ANYBODY);
        try court.accuseDoubleLease(head, x, y) {
            revert Untrue("it was taken");
        } catch {}
    }
}
