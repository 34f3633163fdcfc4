// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {Item, Item2, IVault, ProviderItems} from "../../src/interfaces/IVault.sol";
import {Controller} from "../../src/Controller.sol";
import {Vault} from "../../src/Vault.sol";

contract ClaimsTest is Pools {
    uint256 internal constant OTHER_KEY = 0x0734;

    function setUp() public override {
        super.setUp();
        enter(renter, 1000e6, SESSION_KEY);
    }

    function test_a_claim_moves_the_difference_and_keeps_the_fee() public {
        vault.claim(provider, one(sign(voucher(10e6))));
        vault.claim(provider, one(sign(voucher(25e6))));
        same(balanceOf(renter), 975e6, "balance");
        same(claimedOf(provider, renter), 25e6, "claimed");
        (uint64 earned, uint64 fee,) = vault.totals(provider);
        same(earned, 24_500_000, "earned");
        same(fee, 500_000, "fee");
    }

    function test_a_stale_voucher_is_skipped_and_the_rest_is_paid() public {
        vault.claim(provider, one(sign(voucher(10e6))));
        Item2[] memory items = new Item2[](3);
        items[0] = sign(voucher(10e6));
        items[1] = sign(voucher(4e6));
        items[2] = sign(voucher(11e6));
        vault.claim(provider, items);
        same(claimedOf(provider, renter), 11e6, "claimed");
    }

    function test_an_owed_sum_above_the_balance_is_paid_in_part_and_stays_claimable() public {
        Item2[] memory items = one(sign(voucher(1200e6)));
        vault.claim(provider, items);
        same(balanceOf(renter), 0, "balance");
        (uint64 claimed, uint64 used) = vault.pair(provider, renter);
        same(claimed, 1000e6, "claimed");
        same(used, 0, "use is not paid through yet");
        fund(renter, 300e6);
        vm.prank(renter);
        vault.deposit(300e6);
        vault.claim(provider, items);
        (claimed, used) = vault.pair(provider, renter);
        same(claimed, 1200e6, "claimed after the top-up");
        same(used, 1_800_000_000_000, "used");
        same(balanceOf(renter), 100e6, "balance after the top-up");
    }

    function _moves_nothing(Item2 memory bad, string memory why) internal {
        Item2[] memory items = new Item2[](2);
        items[0] = bad;
        items[1] = sign(Voucher(address(0xD00D), provider, 5e6, 1, 1, 1));
        enter(address(0xD00D), 5e6, SESSION_KEY);
        vault.claim(provider, items);
        same(claimedOf(provider, renter), 0, why);
        same(balanceOf(renter), 1000e6, why);
        same(claimedOf(provider, address(0xD00D)), 5e6, "the good item is paid");
    }

    function test_a_voucher_without_the_authority_moves_nothing() public {
        _moves_nothing(sign(voucher(10e6), SESSION_KEY, SESSION_KEY), "renter twice");
    }

    function test_a_voucher_of_another_signer_moves_nothing() public {
        _moves_nothing(sign(voucher(10e6), OTHER_KEY, AUTHORITY_KEY), "foreign key");
    }

    function test_one_signature_never_counts_twice_when_a_session_key_became_the_authority() public {
        replace(SESSION_KEY);
        Voucher memory v = voucher(10e6);
        v.epoch = 2;
        Item2 memory twice = sign(v, SESSION_KEY, SESSION_KEY);
        vault.claim(provider, one(twice));
        same(claimedOf(provider, renter), 0, "by two signatures");
        Item[] memory items = new Item[](1);
        items[0] = single(twice);
        (bytes32 ar, bytes32 avs) = batch(provider, 2, items, SESSION_KEY);
        vault.claimAggregated(provider, 2, ar, avs, items);
        same(claimedOf(provider, renter), 0, "by a batch signature");
    }

    function test_a_voucher_of_an_unknown_epoch_moves_nothing() public {
        Voucher memory v = voucher(10e6);
        v.epoch = 2;
        _moves_nothing(sign(v), "future epoch");
    }

    function test_a_voucher_of_epoch_zero_moves_nothing() public {
        Voucher memory v = voucher(10e6);
        v.epoch = 0;
        _moves_nothing(sign(v), "epoch 0");
    }

    function test_a_voucher_for_another_provider_moves_nothing() public {
        Voucher memory v = voucher(10e6);
        v.provider = address(0xE7E7);
        _moves_nothing(sign(v), "other provider");
    }

    function test_use_after_the_keys_end_moves_nothing() public {
        Voucher memory v = voucher(10e6);
        v.usedThroughMs = uint64(UNTIL) * 1000 + 1;
        _moves_nothing(sign(v), "expired");
    }

    function test_a_voucher_of_another_chain_moves_nothing() public {
        Item2 memory item = sign(voucher(10e6));
        vm.chainId(99);
        vault.claim(provider, one(item));
        same(claimedOf(provider, renter), 0, "other chain");
        vault.claim(provider, one(sign(voucher(10e6))));
        same(claimedOf(provider, renter), 10e6, "signed anew for this chain");
    }

    function test_a_voucher_of_another_vault_moves_nothing() public {
        Item2 memory item = sign(voucher(10e6));
        (controller, vault) = open(terms(address(token)));
        enter(renter, 1000e6, SESSION_KEY);
        vault.claim(provider, one(item));
        same(claimedOf(provider, renter), 0, "other vault");
    }

    function testFuzz_one_changed_bit_moves_nothing(uint8 word, uint8 bit) public {
        Item2 memory item = sign(voucher(10e6));
        uint256 flip = 1 << bit;
        word = uint8(within(word, 0, 5));
        if (word == 1) flip = 1 << (bit % 128); // higher bits of b are not part of the voucher
        if (word == 0) item.a ^= flip;
        if (word == 1) item.b ^= flip;
        if (word == 2) item.r ^= bytes32(flip);
        if (word == 3) item.vs ^= bytes32(flip);
        if (word == 4) item.ar ^= bytes32(flip);
        if (word == 5) item.avs ^= bytes32(flip);
        vault.claim(provider, one(item));
        same(claimedOf(provider, renter), 0, "claimed");
        same(balanceOf(renter), 1000e6, "balance");
    }

    function test_one_transaction_claims_for_many_providers() public {
        ProviderItems[] memory all = new ProviderItems[](3);
        for (uint160 i; i < 3; ++i) {
            Voucher memory v = voucher(10e6);
            v.provider = address(0xF000 + i);
            all[i] = ProviderItems(v.provider, one(sign(v)));
        }
        vault.claimMany(all);
        same(balanceOf(renter), 970e6, "balance");
        same(claimedOf(address(0xF002), renter), 10e6, "last");
    }

    function test_a_batch_signature_pays_the_same_vouchers() public {
        Item[] memory items = new Item[](2);
        items[0] = single(sign(voucher(10e6)));
        items[1] = single(sign(voucher(30e6)));
        (bytes32 ar, bytes32 avs) = batch(provider, 1, items, AUTHORITY_KEY);
        vault.claimAggregated(provider, 1, ar, avs, items);
        same(claimedOf(provider, renter), 30e6, "claimed");
    }

    function test_a_bad_batch_signature_reverts() public {
        Item[] memory items = new Item[](1);
        items[0] = single(sign(voucher(10e6)));
        (bytes32 ar, bytes32 avs) = batch(provider, 1, items, OTHER_KEY);
        vm.expectRevert(abi.encodeWithSelector(IVault.BadBatchSignature.selector, 1, vm.addr(OTHER_KEY)));
        vault.claimAggregated(provider, 1, ar, avs, items);
    }

    function test_a_new_authority_covers_old_vouchers_by_its_batch_signature() public {
        Item[] memory items = new Item[](1);
        items[0] = single(sign(voucher(10e6)));
        replace(OTHER_KEY);
        vm.warp(block.timestamp + GRACE_S + 1);
        vault.claim(provider, one(sign(voucher(10e6))));
        same(claimedOf(provider, renter), 0, "the grace is over");
        (bytes32 ar, bytes32 avs) = batch(provider, 2, items, OTHER_KEY);
        vault.claimAggregated(provider, 2, ar, avs, items);
        same(claimedOf(provider, renter), 10e6, "claimed");
    }

    function test_an_old_epoch_is_claimable_through_its_grace() public {
        replace(OTHER_KEY);
        vm.warp(block.timestamp + GRACE_S);
        vault.claim(provider, one(sign(voucher(10e6))));
        same(claimedOf(provider, renter), 10e6, "claimed");
    }

    /// Invariant 5: the same set in any order, split and path ends in the same state.
    function testFuzz_order_and_path_do_not_matter(uint256 seed, uint64[6] calldata sums) public {
        Item2[] memory items = new Item2[](6);
        uint64 most;
        for (uint256 i; i < 6; ++i) {
            uint64 sum = uint64(within(sums[i], 0, 1000e6)) / 6 * 6 + uint64(i);
            if (sum > most) most = sum;
            items[i] = sign(voucher(sum > 1000e6 ? 1000e6 : sum));
        }
        if (most > 1000e6) most = 1000e6;
        for (uint256 left = 6; left > 0; --left) {
            uint256 pick = uint256(keccak256(abi.encode(seed, left))) % left;
            if (seed % 2 == 0) {
                vault.claim(provider, one(items[pick]));
            } else {
                Item[] memory lone = new Item[](1);
                lone[0] = single(items[pick]);
                (bytes32 ar, bytes32 avs) = batch(provider, 1, lone, AUTHORITY_KEY);
                vault.claimAggregated(provider, 1, ar, avs, lone);
            }
            items[pick] = items[left - 1];
        }
        (uint64 earned, uint64 fee,) = vault.totals(provider);
        same(claimedOf(provider, renter), most, "claimed");
        same(fee, uint256(most) * FEE_BPS / 10_000, "fee");
        same(uint256(earned) + fee, most, "sum");
    }
}
