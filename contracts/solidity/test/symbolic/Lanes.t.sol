// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {AccountWord, AuthorityWord, KeyWord, PairWord, ThawingWord, TotalsWord, VoucherWords} from "../../src/lib/Lanes.sol";

/// Proved for every input by halmos (halmos.sh): what is packed comes out again, and an addition in place that was
/// checked, as the vault makes it, changes its own lane only. Plain `assert`: halmos looks for its panic.
contract LanesSymbolic {
    using AccountWord for uint256;

    function check_account_lanes(address key, uint64 balance, uint32 until) external pure {
        uint256 word = AccountWord.pack(key, balance, until);
        assert(word.key() == key && word.balance() == balance && word.until() == until);
    }

    function check_every_account_word_is_its_lanes(uint256 word) external pure {
        assert(AccountWord.pack(word.key(), word.balance(), word.until()) == word);
    }

    function check_pair_lanes(uint64 claimed, uint64 usedThroughMs) external pure {
        uint256 word = PairWord.pack(claimed, usedThroughMs);
        assert(PairWord.claimed(word) == claimed && PairWord.usedThroughMs(word) == usedThroughMs);
        assert(word >> 128 == 0);
    }

    function check_thawing_lanes(uint64 amount, uint40 readyAt) external pure {
        uint256 word = ThawingWord.pack(amount, readyAt);
        assert(ThawingWord.amount(word) == amount && ThawingWord.readyAt(word) == readyAt);
        assert(word >> 104 == 0);
    }

    function check_authority_lanes(address signer, uint32 validUntil, uint64 fees) external pure {
        uint256 word = AuthorityWord.pack(signer, validUntil, fees);
        assert(AuthorityWord.signer(word) == signer && AuthorityWord.validUntil(word) == validUntil);
        assert(AuthorityWord.fees(word) == fees);
    }

    /// What an epoch earns, as Vault._earn adds it: what does not fit is left out, and no lane carries.
    function check_fees_stay_in_their_lane(uint256 word, uint256 more) external pure {
        uint256 room = type(uint64).max - AuthorityWord.fees(word);
        uint256 next = word + (more < room ? more : room);
        assert(next >> 64 == word >> 64);
        assert(AuthorityWord.fees(next) >= AuthorityWord.fees(word));
        if (more <= room) assert(AuthorityWord.fees(next) == AuthorityWord.fees(word) + more);
    }

    /// Fees that leave, as Vault.cashOutFees subtracts them.
    function check_fees_leave_their_lane_only(uint256 word) external pure {
        uint256 next = word - AuthorityWord.fees(word);
        assert(next >> 64 == word >> 64 && AuthorityWord.fees(next) == 0);
    }

    /// What a delegated key spends, as Vault._spendOtherKey does: no more than its cap.
    function check_spending_stays_in_its_lane(uint256 word, uint64 paid) external pure {
        if (paid > KeyWord.capLeft(word)) return; // the vault takes the cap then
        uint256 next = KeyWord.spend(word, paid);
        assert(KeyWord.capLeft(next) == KeyWord.capLeft(word) - paid);
        assert(uint72(next) == uint72(word) && next >> 136 == word >> 136);
    }

    function check_key_lanes(uint64 capLeft, uint32 until, uint32 deadFrom, uint8 kind) external pure {
        uint256 word = KeyWord.pack(capLeft, until, deadFrom, kind);
        assert(KeyWord.capLeft(word) == capLeft && KeyWord.until(word) == until);
        assert(KeyWord.deadFrom(word) == deadFrom && KeyWord.kind(word) == kind);
        assert(word >> 136 == 0);
    }

    function check_voucher_words(address renter, uint64 cumulative, uint32 epoch, uint64 used, uint64 size) external pure {
        uint256 a = uint256(uint160(renter)) << 96 | uint256(cumulative) << 32 | epoch;
        uint256 b = uint256(used) << 64 | size;
        assert(VoucherWords.renter(a) == renter && VoucherWords.cumulative(a) == cumulative);
        assert(VoucherWords.epoch(a) == epoch);
        assert(VoucherWords.usedThroughMs(b) == used && VoucherWords.logSize(b) == size);
    }

    /// A deposit, as Vault._take adds it.
    function check_a_deposit_stays_in_its_lane(uint256 word, uint64 amount) external pure {
        uint256 sum = uint256(word.balance()) + amount;
        if (sum > type(uint64).max) return; // refused by Vault._fits
        uint256 next = word + (uint256(amount) << 32);
        assert(next.balance() == sum && next.key() == word.key() && next.until() == word.until());
    }

    /// A payment, as Vault._settle and Vault.withdraw subtract it.
    function check_a_payment_stays_in_its_lane(uint256 word, uint64 amount) external pure {
        if (amount > word.balance()) return; // both take no more than the balance
        uint256 next = word - (uint256(amount) << 32);
        assert(next.balance() == word.balance() - amount && next.key() == word.key() && next.until() == word.until());
    }

    /// A claim, as Vault._close adds it.
    function check_earnings_stay_in_their_lanes(uint256 word, uint64 net, uint64 fee) external pure {
        uint256 earned = uint256(TotalsWord.earned(word)) + net;
        uint256 fees = uint256(TotalsWord.fee(word)) + fee;
        if (earned > type(uint64).max || fees > type(uint64).max) return; // refused by Vault._fits
        uint256 next = word + (uint256(net) << 192 | uint256(fee) << 128);
        assert(TotalsWord.earned(next) == earned && TotalsWord.fee(next) == fees);
        assert(uint128(next) == uint128(word));
    }

    /// An exit, as Vault.cashOut adds it: what was paid rises to what was earned, and no lane falls.
    function check_an_exit_stays_in_its_lane(uint256 word) external pure {
        if (TotalsWord.paidOut(word) > TotalsWord.earned(word)) return;
        uint256 next = word + (uint256(TotalsWord.earned(word) - TotalsWord.paidOut(word)) << 64);
        assert(TotalsWord.paidOut(next) == TotalsWord.earned(word));
        assert(next >> 128 == word >> 128 && uint64(next) == uint64(word));
    }

    /// A new epoch, as Controller._begin writes it: the head stays, but for the time when one was seen.
    function check_a_new_epoch_leaves_the_head(uint256 word, uint32 time) external pure {
        if (word >> 224 == type(uint32).max) return; // refused: the epoch's own type is full
        uint256 next = (word & ~(uint256(type(uint32).max) << 128) | uint256(time) << 128) + (1 << 224);
        assert(next >> 224 == (word >> 224) + 1 && uint64(next >> 160) == uint64(word >> 160));
        assert(uint128(next) == uint128(word) && uint32(next >> 128) == time);
    }
}
