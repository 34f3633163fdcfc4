// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Check} from "../utils/Check.sol";
import {SignedHead, SignedPromise} from "../../src/interfaces/ICourt.sol";
import {Evidence} from "../../src/lib/Evidence.sol";
import {Signatures} from "../../src/lib/Signatures.sol";

/// One more cheat code.
interface VmArrays {
    function parseJsonBytes32Array(string calldata json, string calldata key) external pure returns (bytes32[] memory);
}

/// The file is made by the log's own Rust (controller/log/tests/court.rs): both sides read the same bytes.
contract CourtVectorsTest is Check {
    string internal json = vm.readFile("test/vectors/court.json");
    bytes28 internal pool;
    address internal authority;

    function setUp() public {
        authority = vm.parseJsonAddress(json, ".authority");
        pool = Evidence.poolOf(vm.parseJsonUint(json, ".chain_id"), vm.parseJsonAddress(json, ".controller"));
    }

    function _at(string memory key, string memory field) private pure returns (string memory) {
        return string.concat(".", key, ".", field);
    }

    function _signer(string memory key, bytes32 digest) private view returns (address) {
        bytes32 r = vm.parseJsonBytes32(json, _at(key, "signature.r"));
        return Signatures.recover(digest, r, vm.parseJsonBytes32(json, _at(key, "signature.vs")));
    }

    function _head(string memory key) private view returns (SignedHead memory head) {
        head.size = uint64(vm.parseJsonUint(json, _at(key, "size")));
        head.root = vm.parseJsonBytes32(json, _at(key, "root"));
        head.digest = vm.parseJsonBytes32(json, _at(key, "digest"));
        (head.epoch, head.term) = _fence();
    }

    function _fence() private view returns (uint32, uint64) {
        return (uint32(vm.parseJsonUint(json, ".epoch")), uint64(vm.parseJsonUint(json, ".term")));
    }

    function test_heads_of_the_log_are_read_as_it_wrote_them() public view {
        same(_signer("head", Evidence.digestOf(_head("head"), pool)), authority, "head");
        same(_signer("other", Evidence.digestOf(_head("other"), pool)), authority, "other");
    }

    function test_a_promise_and_a_leaf_of_the_log_are_read_as_it_wrote_them() public view {
        SignedPromise memory promised;
        promised.account = vm.parseJsonAddress(json, ".renter");
        promised.seq = uint64(vm.parseJsonUint(json, ".promise.seq"));
        promised.leaf = vm.parseJsonBytes32(json, ".promise.leaf");
        (promised.epoch, promised.term) = _fence();
        same(_signer("promise", Evidence.digestOf(promised, pool)), authority, "promise");
        SignedHead memory head = _head("head");
        bytes32[] memory path = VmArrays(address(vm)).parseJsonBytes32Array(json, ".path");
        Evidence.prove(vm.parseJsonBytes32(json, ".leaf"), promised.seq, head.size, path, head.root);
    }
}
