// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {Item, Item2, ProviderItems} from "../../src/interfaces/IVault.sol";

/// Invariant 5: while balances suffice, one set of vouchers ends in one state, whatever the order, the split, the caller
/// and the path.
contract OrderTest is Pools {
    uint256 private constant COUNT = 12;

    /// A way to bring the set in, drawn from `seed`; returns the hash of every word that the vault wrote.
    function _bring(Voucher[] memory vouchers, uint256 seed) private returns (bytes32) {
        Voucher[] memory order = new Voucher[](COUNT);
        for (uint256 i; i < COUNT; ++i) {
            order[i] = vouchers[i];
        }
        for (uint256 left = COUNT; left > 1; --left) {
            seed = uint256(keccak256(abi.encode(seed)));
            (order[seed % left], order[left - 1]) = (order[left - 1], order[seed % left]);
        }
        for (uint256 i; i < COUNT;) {
            seed = uint256(keccak256(abi.encode(seed)));
            uint256 size = within(seed >> 8, 1, COUNT - i);
            _submit(order, i, size, seed);
            i += size;
        }
        bytes memory state;
        for (uint160 p; p < 2; ++p) {
            (uint64 earned, uint64 fee, uint64 paidOut) = vault.totals(address(0xBE0000 + p));
            state = abi.encode(state, earned, fee, paidOut, vault.feesOf(1));
            for (uint160 r; r < 3; ++r) {
                (uint64 claimed, uint64 used) = vault.pair(address(0xBE0000 + p), address(0xAE0000 + r));
                (address key, uint64 balance, uint32 until) = vault.account(address(0xAE0000 + r));
                state = abi.encode(state, claimed, used, key, balance, until);
            }
        }
        return keccak256(state);
    }

    /// Vouchers from..from+size for each provider in one call of a path that `seed` picks.
    function _submit(Voucher[] memory order, uint256 from, uint256 size, uint256 seed) private {
        ProviderItems[] memory all = new ProviderItems[](2);
        for (uint160 p; p < 2; ++p) {
            address to = address(0xBE0000 + p);
            Item2[] memory items = new Item2[](size);
            Item[] memory singles = new Item[](size);
            for (uint256 i; i < size; ++i) {
                // What is for the other provider goes in too: it must do nothing here.
                items[i] = sign(order[from + i], uint160(order[from + i].renter), AUTHORITY_KEY);
                singles[i] = single(items[i]);
            }
            all[p] = ProviderItems(to, items);
            if (seed % 3 == 0) continue;
            vm.prank(address(uint160(seed)));
            if (seed % 3 == 1) {
                vault.claim(to, items);
            } else {
                (bytes32 ar, bytes32 avs) = batch(to, 1, singles, AUTHORITY_KEY);
                vault.claimAggregated(to, 1, ar, avs, singles);
            }
        }
        if (seed % 3 == 0) vault.claimMany(all);
    }

    function testFuzz_order_split_caller_and_path_do_not_matter(uint64[12] calldata sums, uint256 one_, uint256 other)
        public
    {
        Voucher[] memory vouchers = new Voucher[](COUNT);
        for (uint160 i; i < COUNT; ++i) {
            // A pair's vouchers differ in their sum: two of one sum and different use would be two truths.
            uint64 sum = uint64(within(sums[i], 0, 900e6)) / 16 * 16 + uint64(i);
            vouchers[i] =
                Voucher(address(0xAE0000 + i % 3), address(0xBE0000 + i / 3 % 2), sum, 1_700_000_000_000 + sum, 1, sum);
        }
        for (uint160 r; r < 3; ++r) {
            enter(address(0xAE0000 + r), 2000e6, 0xAE0000 + r);
        }
        uint256 here = vm.snapshotState();
        bytes32 first = _bring(vouchers, one_);
        vm.revertToState(here);
        same(_bring(vouchers, other), first, "the end state");
    }
}
