// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {Item} from "../../src/interfaces/IVault.sol";

/// What the one signature over a batch does not make good.
contract BatchesTest is Pools {
    /// No epoch 0 ever was: its fees would be nobody's, and stay in the vault for ever.
    function test_a_voucher_of_epoch_zero_in_a_batch_moves_nothing() public {
        enter(renter, 100e6, SESSION_KEY);
        Item[] memory items = new Item[](2);
        Voucher memory v = voucher(10e6);
        items[1] = single(sign(v));
        v.epoch = 0;
        v.cumulative = 60e6;
        items[0] = single(sign(v));
        (bytes32 ar, bytes32 avs) = batch(provider, 1, items, AUTHORITY_KEY);
        vault.claimAggregated(provider, 1, ar, avs, items);
        same(claimedOf(provider, renter), 10e6, "epoch 1 only");
        same(vault.feesOf(0), 0, "no fee of nobody");
        same(vault.feesOf(1), 0.2e6, "all fees are the owner's");
    }
}
