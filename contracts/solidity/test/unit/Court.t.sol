// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts} from "../utils/Courts.sol";
import {HookToken, LongToken} from "../utils/OddTokens.sol";
import {Bond, Case, ICourt, SignedHead, SignedPromise} from "../../src/interfaces/ICourt.sol";
import {Court} from "../../src/Court.sol";
import {Evidence} from "../../src/lib/Evidence.sol";
import {Signatures} from "../../src/lib/Signatures.sol";

/// Bonds, and the offences that prove themselves: two heads, a fork, a broken promise.
contract CourtTest is Courts {
    uint256 internal constant OTHER_KEY = 0x0734;

    // -- bonds

    function test_a_bond_is_at_stake_until_it_is_withdrawn_after_the_delay() public {
        vm.prank(authority);
        court.unbond(2000e6);
        vm.prank(authority);
        refuse(ICourt.NotReady.selector, abi.encode(2000e6, block.timestamp + UNBOND_S));
        court.withdrawBond(authority);
        vm.warp(block.timestamp + UNBOND_S);
        vm.prank(authority);
        court.withdrawBond(ANYBODY);
        same(token.balanceOf(ANYBODY), 2000e6, "paid");
        Bond memory kept = court.bondOf(authority);
        same(kept.bond, 3000e6, "bond");
        same(kept.unbonding + kept.readyAt, 0, "nothing unbonds");
    }

    function test_more_than_is_free_cannot_unbond_and_nothing_is_no_amount() public {
        vm.prank(authority);
        court.unbond(4000e6);
        vm.prank(authority);
        refuse(ICourt.BondTooLow.selector, abi.encode(1001e6, 1000e6));
        court.unbond(1001e6);
        refuse(ICourt.Zero.selector, abi.encode("amount"));
        court.unbond(0);
        refuse(ICourt.Zero.selector, abi.encode("amount"));
        court.bond(0);
        refuse(ICourt.NotReady.selector, abi.encode(0, 0));
        court.withdrawBond(ANYBODY);
    }

    function test_unbonding_again_restarts_the_delay_for_all_of_it() public {
        vm.prank(authority);
        court.unbond(1000e6);
        vm.warp(block.timestamp + UNBOND_S - 1);
        vm.prank(authority);
        court.unbond(1);
        same(court.bondOf(authority).readyAt, block.timestamp + UNBOND_S, "ready");
    }

    function test_unbonding_money_is_slashed_like_the_rest() public {
        vm.prank(authority);
        court.unbond(4500e6);
        _twoHeads();
        Bond memory kept = court.bondOf(authority);
        same(kept.bond, 4000e6, "bond");
        same(kept.unbonding, 4000e6, "no more unbonds than there is");
    }

    function test_a_payee_is_somebody_else_than_the_court() public {
        vm.prank(authority);
        court.unbond(1);
        vm.warp(block.timestamp + UNBOND_S);
        vm.prank(authority);
        refuse(ICourt.BadPayee.selector, abi.encode(address(court)));
        court.withdrawBond(address(court));
        vm.prank(authority);
        refuse(ICourt.BadPayee.selector, abi.encode(address(0)));
        court.withdrawBond(address(0));
    }

    function test_the_forwarder_speaks_for_who_signed_and_nobody_else_does() public {
        fund(renter, 7);
        vm.prank(FORWARDER);
        (bool done,) = address(court).call(abi.encodePacked(abi.encodeCall(court.bond, (7)), renter));
        yes(done, "relayed");
        same(bondOf(renter), 7, "the renter's bond");
        vm.prank(ANYBODY);
        (done,) = address(court).call(abi.encodePacked(abi.encodeCall(court.unbond, (7)), renter));
        yes(!done, "twenty bytes by anybody are nothing");
        yes(court.isTrustedForwarder(FORWARDER) && !court.isTrustedForwarder(ANYBODY), "who forwards");
    }

    function test_a_token_that_calls_back_finds_the_door_shut() public {
        HookToken odd = new HookToken();
        court = make(address(odd));
        odd.mint(authority, 100);
        vm.prank(authority);
        odd.approve(address(court), 100);
        odd.mint(address(odd), 100);
        odd.aim(address(court), abi.encodeCall(court.bond, (5)));
        vm.prank(authority);
        court.bond(50);
        yes(odd.refused(), "the nested bond was refused");
        same(bondOf(authority), 50, "bond");
        same(bondOf(address(odd)), 0, "no bond by the hook");
    }

    function test_units_are_millionths_whatever_the_decimals() public {
        LongToken odd = new LongToken();
        court = make(address(odd));
        odd.mint(authority, 3e12);
        vm.prank(authority);
        odd.approve(address(court), 3e12);
        vm.prank(authority);
        court.bond(3);
        same(odd.balanceOf(address(court)), 3e12, "three units");
    }

    // -- two heads

    function _pair() internal view returns (SignedHead memory one, SignedHead memory other) {
        one = headOf(10, keccak256("root"), keccak256("state"));
        other = headOf(10, keccak256("other root"), keccak256("state"));
    }

    function _twoHeads() internal {
        (SignedHead memory one, SignedHead memory other) = _pair();
        court.proveTwoHeads(one, other);
    }

    function test_two_roots_of_one_size_cost_the_penalty_and_all_of_it_is_burnt() public {
        vm.prank(ANYBODY);
        _twoHeads();
        same(bondOf(authority), BOND - PENALTY, "bond");
        same(court.burnt(), PENALTY, "burnt");
        same(court.credit(ANYBODY), 0, "nothing for who submits");
        same(token.balanceOf(address(court)), BOND, "kept here");
        Case memory case_ = court.caseOf(keccak256(abi.encode(uint8(1), uint32(1))));
        same(case_.state, 2, "punished");
        same(case_.authority, authority, "who");
    }

    function test_one_root_with_two_states_is_as_bad() public {
        SignedHead memory one = headOf(10, keccak256("root"), keccak256("state"));
        SignedHead memory other = headOf(10, keccak256("root"), keccak256("other state"));
        court.proveTwoHeads(one, other);
        same(bondOf(authority), BOND - PENALTY, "bond");
    }

    function test_a_log_forks_once_in_an_epoch_whatever_heads_and_order_show_it() public {
        (SignedHead memory one, SignedHead memory other) = _pair();
        court.proveTwoHeads(one, other);
        bytes32 case_ = keccak256(abi.encode(uint8(1), uint32(1)));
        refuse(ICourt.AlreadyPunished.selector, abi.encode(case_));
        court.proveTwoHeads(other, one);
        (one, other) = (headOf(9, "x", "y"), headOf(9, "x", "z"));
        refuse(ICourt.AlreadyPunished.selector, abi.encode(case_));
        court.proveTwoHeads(one, other);
        vault.setAuthority(1, authority, uint40(block.timestamp));
        vault.setAuthority(2, authority, PRESENT);
        court.proveTwoHeads(
            sign(SignedHead(10, "x", "y", 2, 1, 0, 0), AUTHORITY_KEY),
            sign(SignedHead(10, "z", "y", 2, 1, 0, 0), AUTHORITY_KEY)
        );
        same(bondOf(authority), BOND - 2 * PENALTY, "another epoch is another offence");
    }

    function test_the_same_head_of_another_term_is_no_offence() public {
        (SignedHead memory one,) = _pair();
        SignedHead memory later = sign(SignedHead(10, one.root, one.digest, 1, 8, 0, 0), AUTHORITY_KEY);
        refuse(ICourt.SameHead.selector, abi.encode(10));
        court.proveTwoHeads(one, later);
    }

    function test_heads_of_two_sizes_or_epochs_prove_nothing_so() public {
        (SignedHead memory one, SignedHead memory other) = _pair();
        SignedHead memory larger = headOf(11, "x", "y");
        refuse(ICourt.OtherSize.selector, abi.encode(10, 11));
        court.proveTwoHeads(one, larger);
        vault.setAuthority(2, authority, PRESENT);
        other.epoch = 2;
        other = sign(other, AUTHORITY_KEY);
        refuse(ICourt.OtherEpoch.selector, abi.encode(1, 2));
        court.proveTwoHeads(one, other);
    }

    function _notSigned(SignedHead memory one, SignedHead memory other) internal {
        try court.proveTwoHeads(one, other) {
            revert Untrue("it was taken for signed");
        } catch (bytes memory why) {
            same(bytes32(bytes4(why)), bytes32(ICourt.NotSigned.selector), "why");
        }
    }

    function test_a_head_of_another_key_chain_pool_or_epoch_is_not_signed() public {
        (SignedHead memory one, SignedHead memory other) = _pair();
        _notSigned(one, sign(other, OTHER_KEY));
        _notSigned(sign(one, OTHER_KEY), sign(other, AUTHORITY_KEY));
        (one.epoch, other.epoch) = (2, 2); // nobody was the authority
        _notSigned(sign(one, AUTHORITY_KEY), sign(other, AUTHORITY_KEY));
        (one, other) = _pair();
        vm.chainId(5);
        _notSigned(one, other);
        vm.chainId(31337);
        Court elsewhere = make(ANYBODY, address(vault), address(token), court.reader());
        try elsewhere.proveTwoHeads(one, other) {
            revert Untrue("another pool's court took it");
        } catch {}
    }

    function test_a_high_s_and_an_empty_signature_are_nobodys() public {
        (SignedHead memory one, SignedHead memory other) = _pair();
        other.vs = bytes32(Signatures.MAX_S + 1);
        _notSigned(one, other);
        other.r = 0;
        other.vs = 0;
        _notSigned(one, other);
    }

    function test_every_field_of_a_head_is_signed(uint8 field, uint256 flip) public {
        (SignedHead memory one, SignedHead memory other) = _pair();
        flip = flip == 0 ? 1 : flip;
        if (field % 4 == 0) other.root ^= bytes32(flip);
        else if (field % 4 == 1) other.digest ^= bytes32(flip);
        else if (field % 4 == 2) other.term ^= uint64(flip | 1);
        else (one.size, other.size) = (one.size ^ uint64(flip | 1), other.size ^ uint64(flip | 1));
        if (one.root == other.root && one.digest == other.digest) return;
        _notSigned(one, other);
    }

    function test_with_little_left_that_is_taken_and_with_nothing_nothing_is_punished() public {
        uint256 key = 0xB0B0;
        vault.setAuthority(2, vm.addr(key), PRESENT);
        SignedHead memory one = sign(SignedHead(10, "x", "y", 2, 1, 0, 0), key);
        SignedHead memory other = sign(SignedHead(10, "z", "y", 2, 1, 0, 0), key);
        refuse(ICourt.NothingAtStake.selector, abi.encode(vm.addr(key)));
        court.proveTwoHeads(one, other);
        stake(vm.addr(key), 7);
        court.proveTwoHeads(one, other);
        same(bondOf(vm.addr(key)), 0, "bond");
        same(court.burnt(), 7, "burnt");
    }

    // -- a fork between sizes

    function test_two_leaves_at_one_index_are_a_fork(uint8 small, uint8 large, uint256 at) public {
        uint256 m = within(small, 1, 20);
        uint256 n = within(large, m, 30);
        at = within(at, 0, m - 1);
        (bytes32[] memory xs, bytes32[] memory ys) = (some(m, 1), some(n, 1));
        xs[at] = leafHash("other");
        SignedHead memory one = headOf(uint64(m), rootOf(xs), "s");
        SignedHead memory other = headOf(uint64(n), rootOf(ys), "t");
        court.proveFork(one, other, uint64(at), xs[at], pathOf(xs, at), ys[at], pathOf(ys, at));
        same(court.burnt(), PENALTY, "burnt");
        same(bondOf(authority), BOND - PENALTY, "bond");
    }

    function test_the_same_leaf_in_both_is_no_fork_and_a_wrong_path_proves_nothing() public {
        bytes32[] memory xs = some(5, 1);
        bytes32[] memory ys = some(9, 1);
        SignedHead memory one = headOf(5, rootOf(xs), "s");
        SignedHead memory other = headOf(9, rootOf(ys), "t");
        bytes32[] memory path = pathOf(ys, 2);
        bytes32[] memory mine = pathOf(xs, 2);
        refuse(ICourt.SameLeaf.selector, abi.encode(xs[2]));
        court.proveFork(one, other, 2, xs[2], mine, ys[2], path);
        try court.proveFork(one, other, 2, leafHash("another"), mine, ys[2], path) {
            revert Untrue("a leaf of another index");
        } catch (bytes memory why) {
            same(bytes32(bytes4(why)), bytes32(Evidence.BadProof.selector), "why");
        }
        refuse(Evidence.BadPath.selector, abi.encode(5, 5, 3));
        court.proveFork(one, other, 5, xs[2], mine, ys[5], path);
    }

    function test_a_reader_that_says_nothing_proves_nothing() public {
        SignedHead memory one = headOf(5, "x", "s");
        SignedHead memory other = headOf(5, "y", "s");
        bytes32[] memory none = new bytes32[](0);
        court = make(CONTROLLER, address(vault), address(token), ANYBODY); // an account without code
        try court.proveFork(one, other, 0, "x", none, "y", none) {
            revert Untrue("silence was taken for a proof");
        } catch (bytes memory why) {
            same(why.length, 0, "no reason");
        }
    }

    // -- a broken promise

    function _broken(uint64 size, uint64 seq)
        internal
        view
        returns (SignedPromise memory promised, SignedHead memory head, bytes32 leaf, bytes32[] memory path)
    {
        bytes32[] memory leaves = some(size, 3);
        promised = promiseOf(seq, leafHash("what was promised"));
        head = headOf(size, rootOf(leaves), "s");
        (leaf, path) = (leaves[seq], pathOf(leaves, seq));
    }

    function test_a_broken_promise_pays_half_to_whom_it_was_made_and_burns_the_rest() public {
        (SignedPromise memory promised, SignedHead memory head, bytes32 leaf, bytes32[] memory path) = _broken(7, 4);
        vm.prank(ANYBODY);
        court.proveBrokenPromise(promised, head, leaf, path);
        same(court.credit(renter), PENALTY / 2, "credit");
        same(court.burnt(), PENALTY / 2, "burnt");
        vm.prank(renter);
        court.collect(ANYBODY);
        same(token.balanceOf(ANYBODY), PENALTY / 2, "paid");
        same(court.credit(renter), 0, "collected");
        vm.prank(renter);
        refuse(ICourt.NothingDue.selector, abi.encode(renter));
        court.collect(ANYBODY);
        refuse(ICourt.AlreadyPunished.selector, abi.encode(keccak256(abi.encode(uint8(2), uint32(1), renter, uint64(4)))));
        court.proveBrokenPromise(promised, head, leaf, path);
    }

    function test_a_kept_promise_is_no_offence() public {
        (SignedPromise memory promised, SignedHead memory head, bytes32 leaf, bytes32[] memory path) = _broken(7, 4);
        promised = promiseOf(4, leaf);
        refuse(ICourt.SameLeaf.selector, abi.encode(leaf));
        court.proveBrokenPromise(promised, head, leaf, path);
    }

    function test_a_head_that_is_not_beyond_the_promise_breaks_nothing() public {
        (, SignedHead memory head, bytes32 leaf, bytes32[] memory path) = _broken(7, 4);
        SignedPromise memory promised = promiseOf(7, "leaf");
        refuse(Evidence.BadPath.selector, abi.encode(7, 7, path.length));
        court.proveBrokenPromise(promised, head, leaf, path);
    }

    function test_a_promise_of_another_epoch_or_key_is_not_broken() public {
        (SignedPromise memory promised, SignedHead memory head, bytes32 leaf, bytes32[] memory path) = _broken(7, 4);
        promised = sign(promised, OTHER_KEY);
        refuse(ICourt.NotSigned.selector, abi.encode(authority, vm.addr(OTHER_KEY)));
        court.proveBrokenPromise(promised, head, leaf, path);
        promised.epoch = 2;
        refuse(ICourt.OtherEpoch.selector, abi.encode(2, 1));
        court.proveBrokenPromise(promised, head, leaf, path);
    }

    function test_the_account_that_was_promised_to_is_signed(address account) public {
        (SignedPromise memory promised, SignedHead memory head, bytes32 leaf, bytes32[] memory path) = _broken(7, 4);
        if (account == renter) return;
        promised.account = account;
        try court.proveBrokenPromise(promised, head, leaf, path) {
            revert Untrue("another account was paid");
        } catch (bytes memory why) {
            same(bytes32(bytes4(why)), bytes32(ICourt.NotSigned.selector), "why");
        }
    }
}
