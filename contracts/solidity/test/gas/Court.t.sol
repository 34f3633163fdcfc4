// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts} from "../utils/Courts.sol";
import {Item2} from "../../src/interfaces/IVault.sol";
import {Owed, SignedHead} from "../../src/interfaces/ICourt.sol";
import {Court} from "../../src/Court.sol";

/// Makes a court alone.
contract CourtMaker {
    function make(address vault, address token) external returns (address) {
        return address(new Court(address(1), vault, token, 1, 1, 1, address(2), address(3)));
    }
}

/// What the court costs as transactions of their own, cold. Run by test.sh with --isolate. "again": those who are credited
/// have had a credit before. The vault is a double whose views read as many slots as the real one's.
contract CourtGasTest is Courts {
    address internal constant LATER = address(0xBEEF03);

    function _note(string memory name, uint256 limit) private {
        uint256 used = vm.lastCallGas().gasTotalUsed;
        vm.snapshotValue("court", name, used);
        yes(used <= limit, string.concat(name, " is above its target"));
    }

    function _heads(uint32 epoch) private {
        SignedHead memory one = sign(SignedHead(1e6, keccak256("a"), keccak256("s"), epoch, 7, 0, 0), AUTHORITY_KEY);
        SignedHead memory other = sign(SignedHead(1e6, keccak256("b"), keccak256("t"), epoch, 8, 0, 0), AUTHORITY_KEY);
        vm.prank(ANYBODY, ANYBODY);
        court.proveTwoHeads(one, other);
    }

    function test_two_heads() public {
        _heads(1);
        _note("two heads", 85_000);
    }

    function _overPromise() private {
        vault.setAccount(renter, session, 100e6, UNTIL);
        Owed[] memory owed = new Owed[](2);
        owed[0] = Owed(provider, voucher(provider, 300e6, 1_800_000_000_000, SESSION_KEY, AUTHORITY_KEY));
        owed[1] = Owed(LATER, voucher(LATER, 900e6, 1_800_000_000_000, SESSION_KEY, AUTHORITY_KEY));
        vm.prank(ANYBODY, ANYBODY);
        court.proveOverPromise(owed);
    }

    function test_an_over_promise_of_two() public {
        _overPromise();
        // Two new credits of 22,100 and a new case are 66,300 of it. Who was credited before costs 17,100 less. 4,000 is
        // the price of a reader apart from the court: a cold account, what it asks the court, the call's bytes twice.
        _note("over-promise of two, first", 162_000);
        renter = address(0xBEEF11);
        _overPromise();
        _note("over-promise of two, again", 130_000);
    }

    function _accuse(uint64 cumulative) private {
        vault.setKey(renter, vm.addr(0x0734), UNTIL, 0, 1);
        Item2 memory item = voucher(provider, cumulative, 1_800_000_000_000, 0x0734, AUTHORITY_KEY);
        vm.prank(ANYBODY, ANYBODY);
        court.accuseOverBill(provider, item);
    }

    function test_a_conviction() public {
        fund(ANYBODY, 2 * DEPOSIT);
        for (uint64 i = 1; i < 3; ++i) {
            _accuse(4000e6 + i);
            _note(i == 1 ? "accuse over bill, first" : "accuse over bill, again", 260_000);
            vm.warp(1_800_000_000 + i * 2 days); // not from block.timestamp, which the compiler reads once
            bytes32 case_ = keccak256(abi.encode(uint8(4), authority, renter, provider, 4000e6 + i));
            vm.prank(ANYBODY, ANYBODY);
            court.convict(case_);
            _note(i == 1 ? "convict, first" : "convict, again", 95_000);
        }
    }

    function test_bonds() public {
        vm.prank(authority, authority);
        court.unbond(1e6);
        _note("unbond", 36_000);
        vm.warp(block.timestamp + UNBOND_S);
        vm.prank(authority, authority);
        court.withdrawBond(ANYBODY);
        _note("withdraw bond first", 67_000);
    }

    function test_making_a_court() public {
        CourtMaker maker = new CourtMaker();
        vm.prank(ANYBODY, ANYBODY);
        maker.make(address(vault), address(token));
        _note("court through a factory", 2_500_000);
    }
}
