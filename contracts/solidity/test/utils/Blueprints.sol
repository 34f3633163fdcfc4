// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Vm} from "./Vm.sol";

/// Deploys contracts and blueprints (ERC-5202) from their artifacts: a test that held their code itself would compile
/// them all anew.
library Blueprints {
    Vm private constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));

    /// What makes a blueprint of creation code: returns all that follows these 10 bytes as the account's code.
    function initcode(bytes memory code) internal pure returns (bytes memory) {
        return bytes.concat(hex"61", bytes2(uint16(code.length + 3)), hex"3d81600a3d39f3fe7100", code);
    }

    /// The blueprint of a contract in src/. Set and not deployed: mutants.sh makes code too long for two bytes of length.
    function put(string memory name) internal returns (address made) {
        bytes memory code = bytes.concat(hex"fe7100", codeOf(name));
        made = address(uint160(uint256(keccak256(code))));
        vm.etch(made, code);
    }

    function codeOf(string memory name) internal view returns (bytes memory) {
        return vm.getCode(string.concat(name, ".sol:", name));
    }

    function deploy(bytes memory init) internal returns (address made) {
        assembly ("memory-safe") {
            made := create(0, add(init, 0x20), mload(init))
        }
    }

    /// A factory with a forwarder and blueprints of its own.
    function factory() internal returns (address) {
        address forwarder = deploy(codeOf("Forwarder"));
        bytes memory arguments = abi.encode(forwarder, put("Vault"), put("Controller"), put("Court"));
        return deploy(bytes.concat(codeOf("PoolFactory"), arguments));
    }
}
