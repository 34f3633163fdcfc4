// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {Vm} from "../utils/Vm.sol";
import {IVault, Item2} from "../../src/interfaces/IVault.sol";

/// What the event of a claim says: whoever rebuilds the vault from events reads it row by row.
contract RowsTest is Pools {
    /// A row for each voucher that was paid, in their order, and none for another.
    function test_a_claim_of_many_has_a_row_for_each() public {
        Item2[] memory items = new Item2[](4);
        for (uint32 i; i < 4; ++i) {
            address who = address(uint160(0xD00D) + i);
            if (i != 1) enter(who, 100e6, SESSION_KEY); // the second has nothing
            items[i] = sign(Voucher(who, provider, 10e6 + i, 5, 1, 9));
        }
        vm.recordLogs();
        vault.claim(provider, items);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        same(logs.length, 1, "one event");
        same(logs[0].topics[0], IVault.Claimed.selector, "of a claim");
        (, uint256[] memory rows) = abi.decode(logs[0].data, (uint256, uint256[]));
        same(rows.length, 6, "two words for each of three");
        for (uint256 i; i < 3; ++i) {
            uint256 k = i == 0 ? 0 : i + 1;
            same(rows[2 * i], items[k].a, "the voucher");
            same(rows[2 * i + 1], (10e6 + k) << 192 | (10e6 + k) << 128 | 5 << 64 | 9, "what it did");
        }
    }
}
