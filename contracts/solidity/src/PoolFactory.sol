// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IController} from "./interfaces/IController.sol";
import {IPoolFactory} from "./interfaces/IPoolFactory.sol";
import {PoolConfig} from "./interfaces/PoolConfig.sol";
import {Blueprint} from "./lib/Blueprint.sol";

/// See {IPoolFactory}.
contract PoolFactory is IPoolFactory {
    address public immutable forwarder;
    address public immutable vaultBlueprint;
    address public immutable controllerBlueprint;
    address public immutable courtBlueprint;
    address[] public pools;

    constructor(address forwarder_, address vaultBlueprint_, address controllerBlueprint_, address courtBlueprint_) {
        Blueprint.check(vaultBlueprint_);
        Blueprint.check(controllerBlueprint_);
        Blueprint.check(courtBlueprint_);
        forwarder = forwarder_;
        vaultBlueprint = vaultBlueprint_;
        controllerBlueprint = controllerBlueprint_;
        courtBlueprint = courtBlueprint_;
    }

    function create(PoolConfig calldata config) external returns (address controller, address vault) {
        bytes32 configHash = keccak256(abi.encode(config));
        bytes32 salt = keccak256(abi.encode(configHash, msg.sender, pools.length));
        controller = Blueprint.create(controllerBlueprint, abi.encode(config, forwarder), salt);
        vault = IController(controller).vault();
        pools.push(controller);
        emit PoolCreated(controller, vault, msg.sender, configHash, config.metadataCid);
    }

    function makeParts(PoolConfig calldata config) external returns (address vault, address court) {
        bytes32 salt = bytes32(uint256(uint160(msg.sender)));
        vault = Blueprint.create(
            vaultBlueprint,
            abi.encode(msg.sender, config.token, config.authority, config.feeBps, config.thawDelayS, forwarder),
            salt
        );
        court = Blueprint.create(
            courtBlueprint,
            abi.encode(msg.sender, vault, config.token, config.unbondDelayS, config.minBond, forwarder),
            salt
        );
    }

    function poolCount() external view returns (uint256) {
        return pools.length;
    }
}
