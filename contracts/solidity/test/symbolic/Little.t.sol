// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Evidence} from "../../src/lib/Evidence.sol";

/// Proved for every input by halmos: a number is written back to front, byte by byte, and nothing beside it.
contract LittleSymbolic {
    function check_every_byte_of_a_number_is_in_its_place(uint64 x) external pure {
        bytes32 said = Evidence.little64(x);
        for (uint256 i; i < 32; ++i) {
            assert(uint8(said[i]) == (i < 8 ? uint8(x >> (8 * i)) : 0));
        }
    }
}
