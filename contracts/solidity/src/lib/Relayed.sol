// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// Who calls, where calls may be brought by a forwarder (ERC-2771). OpenZeppelin's context does the same in more code.
abstract contract Relayed {
    address internal immutable FORWARDER;

    constructor(address forwarder_) {
        FORWARDER = forwarder_;
    }

    /// Whether calls by this address are made for the account in their last 20 bytes.
    function isTrustedForwarder(address forwarder) external view returns (bool) {
        return forwarder == FORWARDER;
    }

    /// Who calls: for a call by the forwarder, the account in its last 20 bytes, whose signature it checked.
    function _caller() internal view returns (address) {
        if (msg.sender != FORWARDER || msg.data.length < 20) return msg.sender;
        return address(bytes20(msg.data[msg.data.length - 20:]));
    }
}
