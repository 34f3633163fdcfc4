// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// Keeps bytes that never change as the code of an account that nobody can call: less code around them than storage needs.
library Data {
    /// Code is shorter than that on every chain (EIP-170), less the byte that stops.
    uint256 private constant MOST = 24_575;

    /// Too long, or the account could not be made.
    error NotKept(uint256 length);

    /// Keeps `content`, of at most 24,575 bytes.
    function keep(bytes memory content) internal returns (address made) {
        if (content.length > MOST) revert NotKept(content.length);
        // Returns all that follows these 10 bytes as code, which begins with STOP.
        bytes memory init = bytes.concat(hex"61", bytes2(uint16(content.length + 1)), hex"80600a3d393df300", content);
        assembly ("memory-safe") {
            made := create(0, add(init, 0x20), mload(init))
        }
        if (made == address(0)) revert NotKept(content.length);
    }

    /// Ends the call and answers it with what is kept.
    function answer(address kept) internal view {
        assembly ("memory-safe") {
            let content := mload(0x40)
            let length := sub(extcodesize(kept), 1)
            extcodecopy(kept, content, 1, length)
            return(content, length)
        }
    }
}
