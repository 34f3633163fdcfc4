// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts} from "../utils/Courts.sol";
import {ICourt, Shown, SignedHead, SignedPromise} from "../../src/interfaces/ICourt.sol";

/// Two more cheat codes.
interface VmBytes {
    function parseJsonBytes(string calldata json, string calldata key) external pure returns (bytes memory);
    function parseJsonBytes32Array(string calldata json, string calldata key) external pure returns (bytes32[] memory);
}

/// The file is made by the log's own Rust (controller/log/tests/court.rs): both sides read the same bytes.
contract CourtVectorsTest is Courts {
    string internal json;

    function setUp() public override {
        super.setUp();
        json = vm.readFile("test/vectors/court.json");
        authority = vm.parseJsonAddress(json, ".authority");
        vault.setAuthority(_epoch(), authority, PRESENT);
        address controller = vm.parseJsonAddress(json, ".controller");
        court = make(controller, address(vault), address(token), court.reader());
        vm.chainId(vm.parseJsonUint(json, ".chain_id"));
        stake(authority, BOND);
        fund(ANYBODY, 2 * DEPOSIT);
    }

    function _epoch() private view returns (uint32) {
        return uint32(vm.parseJsonUint(json, ".epoch"));
    }

    function _at(string memory key, string memory field) private pure returns (string memory) {
        return string.concat(".", key, ".", field);
    }

    function _signature(string memory key) private view returns (bytes32 r, bytes32 vs) {
        r = vm.parseJsonBytes32(json, _at(key, "signature.r"));
        vs = vm.parseJsonBytes32(json, _at(key, "signature.vs"));
    }

    function _head(string memory key) private view returns (SignedHead memory head) {
        head.size = uint64(vm.parseJsonUint(json, _at(key, "size")));
        head.root = vm.parseJsonBytes32(json, _at(key, "root"));
        head.digest = vm.parseJsonBytes32(json, _at(key, "digest"));
        head.epoch = _epoch();
        head.term = uint64(vm.parseJsonUint(json, ".term"));
        (head.r, head.vs) = _signature(key);
    }

    function _shown(string memory key) private view returns (Shown memory) {
        VmBytes more = VmBytes(address(vm));
        return Shown({
            entry: more.parseJsonBytes(json, _at(key, "entry")),
            path: more.parseJsonBytes32Array(json, _at(key, "path")),
            effect: more.parseJsonBytes(json, _at(key, "effect")),
            index: uint64(vm.parseJsonUint(json, _at(key, "index"))),
            count: uint64(vm.parseJsonUint(json, _at(key, "count"))),
            effectPath: more.parseJsonBytes32Array(json, _at(key, "effect_path"))
        });
    }

    function test_heads_and_promises_of_the_log_are_read_as_it_wrote_them() public {
        court.proveTwoHeads(_head("head"), _head("other"));
        SignedPromise memory promised;
        promised.account = vm.parseJsonAddress(json, ".renter");
        promised.seq = uint64(vm.parseJsonUint(json, ".promise.seq"));
        promised.leaf = vm.parseJsonBytes32(json, ".promise.leaf");
        (promised.epoch, promised.term) = (_epoch(), uint64(vm.parseJsonUint(json, ".term")));
        (promised.r, promised.vs) = _signature("promise");
        bytes32[] memory path = VmBytes(address(vm)).parseJsonBytes32Array(json, ".path");
        court.proveBrokenPromise(promised, _head("head"), vm.parseJsonBytes32(json, ".leaf"), path);
        same(court.credit(promised.account), PENALTY / 2, "credit");
    }

    function test_a_double_lease_of_the_log_is_accused_and_answered_by_its_freed() public {
        vm.prank(ANYBODY);
        court.accuseDoubleLease(_head("head"), _shown("first"), _shown("second"));
        uint256 second = uint256(4) << 128 | uint256(1) << 96 | uint256(2) << 64 | 0x0e0f;
        court.answerDoubleLease(second, _head("other"), _shown("freed"));
        same(court.credit(authority), DEPOSIT, "acquitted");
    }

    function test_a_voucher_due_of_the_log_answers_for_its_voucher() public {
        (renter, provider) = (vm.parseJsonAddress(json, ".renter"), vm.parseJsonAddress(json, ".provider"));
        bytes32 case_ = keccak256(abi.encode(uint8(4), authority, renter, provider, uint64(123_456_789_012)));
        refuse(ICourt.NotAccused.selector, abi.encode(case_)); // all of it was read: only the accusation is missing
        court.answerOverBill(123_456_789_012, _head("head"), _shown("due"));
        refuse(ICourt.BelowVoucher.selector, abi.encode(123_456_789_012, 123_456_789_013));
        court.answerOverBill(123_456_789_013, _head("head"), _shown("due"));
    }
}
