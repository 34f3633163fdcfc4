// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// Makes contracts from blueprints (ERC-5202): creation code kept on chain as the code of an account that nobody can
/// call, so that a factory need not carry it.
library Blueprint {
    /// Not callable, a blueprint, version 0 without a data section.
    bytes3 internal constant PREAMBLE = 0xfe7100;
    uint256 private constant SKIPPED = 3;

    /// No blueprint of version 0 without data lies there.
    error NotBlueprint(address account);
    /// The contract was not made, and its constructor did not say why.
    error NotMade(address blueprint);

    /// Refuses what is not a blueprint. Being uncallable it can never change, so once is enough.
    function check(address account) internal view {
        bytes32 start;
        assembly ("memory-safe") {
            mstore(0, 0)
            extcodecopy(account, 0, 0, SKIPPED)
            start := mload(0)
        }
        if (account.code.length <= SKIPPED || bytes3(start) != PREAMBLE) revert NotBlueprint(account);
    }

    /// Makes the contract by CREATE2, with ABI-encoded `arguments` for its constructor. What that reverts with passes on.
    function create(address blueprint, bytes memory arguments, bytes32 salt) internal returns (address made) {
        check(blueprint);
        assembly ("memory-safe") {
            // Beyond the free memory, which need not be kept: nothing is allocated before it is used.
            let code := mload(0x40)
            let size := sub(extcodesize(blueprint), SKIPPED)
            extcodecopy(blueprint, code, SKIPPED, size)
            mcopy(add(code, size), add(arguments, 0x20), mload(arguments))
            made := create2(0, code, add(size, mload(arguments)), salt)
            if and(iszero(made), gt(returndatasize(), 0)) {
                returndatacopy(code, 0, returndatasize())
                revert(code, returndatasize())
            }
        }
        if (made == address(0)) revert NotMade(blueprint);
    }
}
