// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// The cheat codes that these tests use.
interface Vm {
    struct Gas {
        uint64 gasLimit;
        uint64 gasTotalUsed;
        uint64 gasMemoryUsed;
        int64 gasRefunded;
        uint64 gasRemaining;
    }

    struct Log {
        bytes32[] topics;
        bytes data;
        address emitter;
    }

    function accesses(address target) external returns (bytes32[] memory reads, bytes32[] memory writes);
    function addr(uint256 key) external pure returns (address);
    function chainId(uint256 id) external;
    function etch(address target, bytes calldata code) external;
    function expectRevert() external;
    function expectRevert(bytes calldata data) external;
    function getCode(string calldata artifact) external view returns (bytes memory);
    function getRecordedLogs() external returns (Log[] memory);
    function lastCallGas() external view returns (Gas memory);
    function load(address target, bytes32 slot) external view returns (bytes32);
    function parseJsonAddress(string calldata json, string calldata key) external pure returns (address);
    function parseJsonBytes32(string calldata json, string calldata key) external pure returns (bytes32);
    function parseJsonUint(string calldata json, string calldata key) external pure returns (uint256);
    function prank(address sender) external;
    function prank(address sender, address origin) external;
    function readFile(string calldata path) external view returns (string memory);
    function record() external;
    function recordLogs() external;
    function revertToState(uint256 id) external returns (bool);
    function sign(uint256 key, bytes32 digest) external pure returns (uint8 v, bytes32 r, bytes32 s);
    function snapshotState() external returns (uint256);
    function snapshotValue(string calldata group, string calldata name, uint256 value) external;
    function store(address target, bytes32 slot, bytes32 value) external;
    function warp(uint256 time) external;
}
