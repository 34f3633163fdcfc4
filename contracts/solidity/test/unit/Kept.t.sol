// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Check} from "../utils/Check.sol";
import {Data} from "../../src/lib/Data.sol";

/// Bytes that are kept as code are those that were given: no more of them, and none where there is no room.
contract KeptTest is Check {
    uint256 private constant MOST = 24_575;

    function keep(bytes memory content) external returns (address) {
        return Data.keep(content);
    }

    function _keeps(uint256 length) private {
        bytes memory content = new bytes(length);
        if (length != 0) content[length - 1] = 0x77;
        same(keccak256(this.keep(content).code), keccak256(bytes.concat(hex"00", content)), "a byte that stops, and these");
    }

    function test_what_is_kept_is_what_was_given_up_to_the_longest() public {
        _keeps(0);
        _keeps(1);
        _keeps(300);
        _keeps(MOST);
    }

    function test_a_byte_too_many_is_refused() public {
        vm.expectRevert(abi.encodeWithSelector(Data.NotKept.selector, MOST + 1));
        this.keep(new bytes(MOST + 1));
    }

    function test_what_could_not_be_kept_for_want_of_gas_is_told() public {
        // Its code alone costs 200 gas a byte; a 64th is left to tell.
        vm.expectRevert(abi.encodeWithSelector(Data.NotKept.selector, MOST));
        this.keep{gas: 3_000_000}(new bytes(MOST));
    }
}
