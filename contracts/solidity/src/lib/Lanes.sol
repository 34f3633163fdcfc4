// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// Packed storage words of the vault, each from the high end. Packing takes each lane's own type, so no lane carries
/// into another; the vault adds to a lane in place only after it has checked the sum.

/// key(160) | balance(64) | until(32)
library AccountWord {
    function pack(address key_, uint64 balance_, uint32 until_) internal pure returns (uint256) {
        return uint256(uint160(key_)) << 96 | uint256(balance_) << 32 | until_;
    }

    function key(uint256 word) internal pure returns (address) {
        return address(uint160(word >> 96));
    }

    function balance(uint256 word) internal pure returns (uint64) {
        return uint64(word >> 32);
    }

    function until(uint256 word) internal pure returns (uint32) {
        return uint32(word);
    }
}

/// 0(152) | amount(64) | readyAt(40)
library ThawingWord {
    function pack(uint64 amount_, uint40 readyAt_) internal pure returns (uint256) {
        return uint256(amount_) << 40 | readyAt_;
    }

    function amount(uint256 word) internal pure returns (uint64) {
        return uint64(word >> 40);
    }

    function readyAt(uint256 word) internal pure returns (uint40) {
        return uint40(word);
    }
}

/// signer(160) | validUntil(32) | fees(64) of an epoch
library AuthorityWord {
    /// The end while the epoch is the present one.
    uint32 internal constant PRESENT = type(uint32).max;

    function pack(address signer_, uint32 validUntil_, uint64 fees_) internal pure returns (uint256) {
        return uint256(uint160(signer_)) << 96 | uint256(validUntil_) << 64 | fees_;
    }

    function signer(uint256 word) internal pure returns (address) {
        return address(uint160(word >> 96));
    }

    function validUntil(uint256 word) internal pure returns (uint32) {
        return uint32(word >> 64);
    }

    function fees(uint256 word) internal pure returns (uint64) {
        return uint64(word);
    }
}

/// 0(128) | claimed(64) | usedThroughMs(64)
library PairWord {
    function pack(uint64 claimed_, uint64 usedThroughMs_) internal pure returns (uint256) {
        return uint256(claimed_) << 64 | usedThroughMs_;
    }

    function claimed(uint256 word) internal pure returns (uint64) {
        return uint64(word >> 64);
    }

    function usedThroughMs(uint256 word) internal pure returns (uint64) {
        return uint64(word);
    }
}

/// earned(64) | fee(64) | paidOut(64) | 0(64), all monotone
library TotalsWord {
    function earned(uint256 word) internal pure returns (uint64) {
        return uint64(word >> 192);
    }

    function fee(uint256 word) internal pure returns (uint64) {
        return uint64(word >> 128);
    }

    function paidOut(uint256 word) internal pure returns (uint64) {
        return uint64(word >> 64);
    }
}

/// 0(120) | capLeft(64) | until(32) | deadFrom(32) | kind(8)
library KeyWord {
    uint8 internal constant NONE = 0;
    uint8 internal constant DELEGATED = 1;
    uint8 internal constant RETIRED = 2;

    function pack(uint64 capLeft_, uint32 until_, uint32 deadFrom_, uint8 kind_) internal pure returns (uint256) {
        return uint256(capLeft_) << 72 | uint256(until_) << 40 | uint256(deadFrom_) << 8 | kind_;
    }

    /// The word with less of its cap; the caller has checked that it holds `paid`.
    function spend(uint256 word, uint256 paid) internal pure returns (uint256) {
        unchecked {
            return word - (paid << 72);
        }
    }

    function capLeft(uint256 word) internal pure returns (uint64) {
        return uint64(word >> 72);
    }

    function until(uint256 word) internal pure returns (uint32) {
        return uint32(word >> 40);
    }

    function deadFrom(uint256 word) internal pure returns (uint32) {
        return uint32(word >> 8);
    }

    function kind(uint256 word) internal pure returns (uint8) {
        return uint8(word);
    }
}

/// A voucher's `a` and `b` as they travel in calldata and events.
library VoucherWords {
    function renter(uint256 a) internal pure returns (address) {
        return address(uint160(a >> 96));
    }

    function cumulative(uint256 a) internal pure returns (uint64) {
        return uint64(a >> 32);
    }

    function epoch(uint256 a) internal pure returns (uint32) {
        return uint32(a);
    }

    function usedThroughMs(uint256 b) internal pure returns (uint64) {
        return uint64(b >> 64);
    }

    function logSize(uint256 b) internal pure returns (uint64) {
        return uint64(b);
    }
}
