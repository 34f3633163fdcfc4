// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {PoolConfig} from "./PoolConfig.sol";

/// Makes pools and lists them. Holds no money and has no owner.
interface IPoolFactory {
    /// A pool was made by `creator`. `configHash` is keccak256(abi.encode(config)).
    event PoolCreated(
        address indexed controller, address indexed vault, address indexed creator, bytes32 configHash, string metadataCid
    );

    /// Makes a pool. Anyone may call. Equal terms may be used again: the salt also holds the creator and the count.
    function create(PoolConfig calldata config) external returns (address controller, address vault);

    /// How many pools were made here.
    function poolCount() external view returns (uint256);

    /// The controller of the `index`-th pool, from 0.
    function pools(uint256 index) external view returns (address);
}
