// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {Signatures} from "../../src/lib/Signatures.sol";

/// The same file is read by the Rust crate's tests: both sides compute one digest.
contract VectorsTest is Pools {
    function test_the_digest_is_the_committed_vector() public view {
        string memory json = vm.readFile("test/vectors/voucher.json");
        address verifier = vm.parseJsonAddress(json, ".vault");
        bytes32 domain = Signatures.domain(keccak256("Selion Vault"), vm.parseJsonUint(json, ".chain_id"), verifier);
        (uint256 a, uint256 b) = words(
            Voucher({
                renter: vm.parseJsonAddress(json, ".renter"),
                provider: vm.parseJsonAddress(json, ".provider"),
                cumulative: uint64(vm.parseJsonUint(json, ".cumulative")),
                usedThroughMs: uint64(vm.parseJsonUint(json, ".used_through_ms")),
                epoch: uint32(vm.parseJsonUint(json, ".epoch")),
                logSize: uint64(vm.parseJsonUint(json, ".log_size"))
            })
        );
        bytes32 digest = Signatures.voucher(domain, vm.parseJsonAddress(json, ".provider"), a, b);
        same(digest, vm.parseJsonBytes32(json, ".digest"), "digest");
        (bytes32 r, bytes32 vs) = compact(vm.parseJsonUint(json, ".key"), digest);
        same(r, vm.parseJsonBytes32(json, ".r"), "r");
        same(vs, vm.parseJsonBytes32(json, ".vs"), "vs");
    }

    function test_the_vault_uses_the_same_domain() public view {
        same(
            vault.domainSeparator(),
            Signatures.domain(keccak256("Selion Vault"), block.chainid, address(vault)),
            "domain"
        );
        same(Signatures.recover(bytes32("x"), bytes32(0), bytes32(0)), address(0), "nobody");
    }

    function test_an_s_above_half_the_order_is_nobodys() public view {
        bytes32 digest = keccak256("text");
        (bytes32 r,) = compact(SESSION_KEY, digest);
        yes(Signatures.recover(digest, r, bytes32(Signatures.MAX_S)) != address(0), "half is somebody's");
        same(Signatures.recover(digest, r, bytes32(Signatures.MAX_S + 1)), address(0), "above is nobody's");
    }
}
