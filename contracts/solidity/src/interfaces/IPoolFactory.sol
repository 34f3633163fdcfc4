// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {PoolConfig} from "./PoolConfig.sol";

/// Makes pools from blueprints (ERC-5202) and lists them. Holds no money and has no owner.
interface IPoolFactory {
    /// A pool was made by `creator`. `configHash` is keccak256(abi.encode(config)).
    event PoolCreated(
        address indexed controller,
        address indexed vault,
        address indexed creator,
        bytes32 configHash,
        string metadataCid
    );

    /// Makes a pool. Anyone may call. Equal terms may be used again: the salt also holds the creator and the count.
    function create(PoolConfig calldata config) external returns (address controller, address vault);

    /// Makes the vault and the court of the caller, which is their controller: for the constructor of one made here.
    /// Anyone else may call and harms nobody: such parts belong to no listed pool and obey their maker only.
    function makeParts(PoolConfig calldata config) external returns (address vault, address court);

    /// How many pools were made here.
    function poolCount() external view returns (uint256);

    /// The controller of the `index`-th pool, from 0.
    function pools(uint256 index) external view returns (address);

    /// Who may bring requests that others signed, in every pool made here.
    function forwarder() external view returns (address);
    /// What vaults are made from.
    function vaultBlueprint() external view returns (address);
    /// What controllers are made from.
    function controllerBlueprint() external view returns (address);
    /// What courts are made from.
    function courtBlueprint() external view returns (address);
}
