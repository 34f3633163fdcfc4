// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IPoolFactory} from "./interfaces/IPoolFactory.sol";
import {PoolConfig} from "./interfaces/PoolConfig.sol";
import {Controller} from "./Controller.sol";

/// See {IPoolFactory}.
contract PoolFactory is IPoolFactory {
    address[] public pools;

    function create(PoolConfig calldata config) external returns (address controller, address vault) {
        bytes32 configHash = keccak256(abi.encode(config));
        bytes32 salt = keccak256(abi.encode(configHash, msg.sender, pools.length));
        Controller made = new Controller{salt: salt}(config);
        controller = address(made);
        vault = made.vault();
        pools.push(controller);
        emit PoolCreated(controller, vault, msg.sender, configHash, config.metadataCid);
    }

    function poolCount() external view returns (uint256) {
        return pools.length;
    }
}
