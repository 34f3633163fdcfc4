// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// EIP-712 hashing without allocation, and compact signatures (EIP-2098).
library Signatures {
    bytes32 internal constant DOMAIN_TYPE =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
    bytes32 internal constant VOUCHER_TYPE = keccak256(
        "Voucher(address renter,address provider,uint64 cumulative,uint64 usedThroughMs,uint32 epoch,uint64 logSize)"
    );
    bytes32 internal constant BATCH_TYPE = keccak256("Batch(address provider,uint32 epoch,bytes32 vouchers)");
    bytes32 internal constant NODE_TYPE = keccak256("NodeBinding(address node,address provider,uint32 nonce)");
    bytes32 internal constant AUTHORITY_TYPE =
        keccak256("AuthorityBinding(address authority,address owner,uint32 epoch)");
    /// Half the order of secp256k1: a higher `s` is the malleable twin and refused.
    uint256 internal constant MAX_S = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0;

    function domain(bytes32 name, uint256 chainId, address verifier) internal pure returns (bytes32) {
        return keccak256(abi.encode(DOMAIN_TYPE, name, keccak256("1"), chainId, verifier));
    }

    function typed(bytes32 domain_, bytes32 structHash) internal pure returns (bytes32 digest) {
        assembly ("memory-safe") {
            let buffer := mload(0x40)
            mstore(buffer, hex"1901")
            mstore(add(buffer, 2), domain_)
            mstore(add(buffer, 34), structHash)
            digest := keccak256(buffer, 66)
        }
    }

    /// The digest of a voucher given as its words; bits of `b` above 128 do not count.
    function voucher(bytes32 domain_, address provider, uint256 a, uint256 b) internal pure returns (bytes32) {
        bytes32 structHash;
        bytes32 voucherType = VOUCHER_TYPE;
        assembly ("memory-safe") {
            let buffer := mload(0x40)
            mstore(buffer, voucherType)
            mstore(add(buffer, 0x20), shr(96, a))
            mstore(add(buffer, 0x40), shr(96, shl(96, provider)))
            mstore(add(buffer, 0x60), and(shr(32, a), 0xffffffffffffffff))
            mstore(add(buffer, 0x80), and(shr(64, b), 0xffffffffffffffff))
            mstore(add(buffer, 0xa0), and(a, 0xffffffff))
            mstore(add(buffer, 0xc0), and(b, 0xffffffffffffffff))
            structHash := keccak256(buffer, 0xe0)
        }
        return typed(domain_, structHash);
    }

    /// Who signed, or zero if nobody did or `s` is high.
    function recover(bytes32 digest, bytes32 r, bytes32 vs) internal view returns (address signer) {
        uint256 s = uint256(vs) & (type(uint256).max >> 1);
        if (s > MAX_S) return address(0);
        assembly ("memory-safe") {
            let buffer := mload(0x40)
            mstore(buffer, digest)
            mstore(add(buffer, 0x20), add(27, shr(255, vs)))
            mstore(add(buffer, 0x40), r)
            mstore(add(buffer, 0x60), s)
            // The precompile returns nothing for a bad signature: then the scratch word stays zero.
            mstore(0, 0)
            pop(staticcall(gas(), 1, buffer, 0x80, 0, 0x20))
            signer := mload(0)
        }
    }
}
