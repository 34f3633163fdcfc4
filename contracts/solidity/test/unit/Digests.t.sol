// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";

/// Every digest that somebody signs, written down the plain way (EIP-712). Other tests sign what the contracts say is to
/// be signed, and so would not notice another text.
contract DigestsTest is Pools {
    function _typed(string memory name, address verifier, bytes32 structHash) private view returns (bytes32) {
        bytes32 domainType =
            keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
        bytes32 domain = keccak256(
            abi.encode(domainType, keccak256(bytes(name)), keccak256("1"), block.chainid, verifier)
        );
        return keccak256(abi.encodePacked(hex"1901", domain, structHash));
    }

    function test_a_voucher_is_signed_as_a_wallet_shows_it() public view {
        bytes32 kind = keccak256(
            "Voucher(address renter,address provider,uint64 cumulative,uint64 usedThroughMs,uint32 epoch,uint64 logSize)"
        );
        Voucher memory v = Voucher(renter, provider, type(uint64).max - 1, 2, type(uint32).max - 2, 4);
        (uint256 a, uint256 b) = words(v);
        bytes32 plain = _typed("Selion Vault", address(vault), keccak256(abi.encode(kind, v)));
        same(vault.voucherDigest(provider, a, b), plain, "small and large");
        v = Voucher(address(type(uint160).max), address(type(uint160).max), 1, type(uint64).max, 0, type(uint64).max);
        (a, b) = words(v);
        plain = _typed("Selion Vault", address(vault), keccak256(abi.encode(kind, v)));
        same(vault.voucherDigest(v.provider, a, b), plain, "large and small");
        same(vault.voucherDigest(v.provider, a, b | 1 << 128), plain, "what is above 128 bits does not count");
    }

    function test_a_batch_is_signed_as_a_wallet_shows_it() public view {
        bytes32 kind = keccak256("Batch(address provider,uint32 epoch,bytes32 vouchers)");
        bytes32 plain = _typed("Selion Vault", address(vault), keccak256(abi.encode(kind, provider, 3, bytes32("x"))));
        same(vault.batchDigest(provider, 3, bytes32("x")), plain, "batch");
    }

    function test_a_node_signs_its_provider_and_how_often_it_was_bound() public {
        uint256 nodeKey = 0x40DE;
        address node = vm.addr(nodeKey);
        bytes32 kind = keccak256("NodeBinding(address node,address provider,uint32 nonce)");
        join(provider);
        for (uint32 nonce; nonce < 2; ++nonce) {
            bytes32 plain = _typed(
                "Selion Controller", address(controller), keccak256(abi.encode(kind, node, provider, nonce))
            );
            same(controller.nodeBindingDigest(node, provider), plain, "node");
            (bytes32 r, bytes32 vs) = compact(nodeKey, plain);
            vm.prank(provider);
            controller.registerNode(node, r, vs);
            vm.prank(provider);
            controller.retireNode(node);
        }
    }

    function test_an_authority_signs_its_owner_and_the_next_epoch() public {
        bytes32 kind = keccak256("AuthorityBinding(address authority,address owner,uint32 epoch)");
        for (uint32 next = 2; next < 4; ++next) {
            bytes32 plain = _typed(
                "Selion Controller", address(controller), keccak256(abi.encode(kind, heir, owner, next))
            );
            same(controller.authorityBindingDigest(heir, owner), plain, "authority");
            (bytes32 r, bytes32 vs) = compact(HEIR_KEY, plain);
            vm.prank(owner);
            controller.replaceAuthority(heir, r, vs);
        }
    }
}
