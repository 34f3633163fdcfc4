// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ERC2771Forwarder} from "@openzeppelin/contracts/metatx/ERC2771Forwarder.sol";
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Permit.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {Forwarder} from "../../src/Forwarder.sol";
import {OpenToken} from "./OddTokens.sol";
import {Pools} from "./Pools.sol";

/// A token whose allowance can be given by signature (EIP-2612).
contract PermitToken is OpenToken, ERC20Permit("Odd") {
    function decimals() public pure override(OpenToken, ERC20) returns (uint8) {
        return 6;
    }
}

/// A wallet that is a contract: what its present owner signed is signed (EIP-1271).
contract Wallet {
    address public owner;

    constructor(address owner_) {
        owner = owner_;
    }

    function pass(address next) external {
        require(msg.sender == owner);
        owner = next;
    }

    function isValidSignature(bytes32 hash, bytes calldata signature) external view returns (bytes4) {
        (address signer, ECDSA.RecoverError error,) = ECDSA.tryRecoverCalldata(hash, signature);
        return error == ECDSA.RecoverError.NoError && signer == owner ? this.isValidSignature.selector : bytes4(0);
    }
}

/// Helpers that sign requests and bring them, as people without gas and relayers do.
abstract contract Relays is Pools {
    bytes32 private constant REQUEST_TYPE = keccak256(
        "ForwardRequest(address from,address to,uint256 value,uint256 gas,uint256 nonce,uint48 deadline,bytes data)"
    );
    bytes32 private constant DOMAIN_TYPE =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
    address internal constant RELAYER = address(0x4E1A7);

    /// A request of `from` to `to`, signed by `key` for `through` on `chain`.
    function request(address from, uint256 key, address to, bytes memory data, Forwarder through, uint256 chain)
        internal
        view
        returns (ERC2771Forwarder.ForwardRequestData memory)
    {
        return request(from, key, to, data, through, chain, uint48(block.timestamp + 60));
    }

    function request(
        address from,
        uint256 key,
        address to,
        bytes memory data,
        Forwarder through,
        uint256 chain,
        uint48 deadline
    ) internal view returns (ERC2771Forwarder.ForwardRequestData memory made) {
        made.from = from;
        made.to = to;
        made.gas = 500_000;
        made.deadline = deadline;
        made.data = data;
        bytes32 content = keccak256(
            abi.encode(
                REQUEST_TYPE, from, to, 0, made.gas, through.nonces(from), made.deadline, keccak256(data)
            )
        );
        bytes32 domain = keccak256(
            abi.encode(DOMAIN_TYPE, keccak256("Selion Forwarder"), keccak256("1"), chain, address(through))
        );
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, keccak256(abi.encodePacked(hex"1901", domain, content)));
        made.signature = abi.encodePacked(r, s, v);
    }

    function request(address from, uint256 key, address to, bytes memory data)
        internal
        view
        returns (ERC2771Forwarder.ForwardRequestData memory)
    {
        return request(from, key, to, data, forwarder, block.chainid);
    }

    /// Signed and brought.
    function relay(address from, uint256 key, address to, bytes memory data) internal {
        ERC2771Forwarder.ForwardRequestData memory made = request(from, key, to, data);
        vm.prank(RELAYER);
        forwarder.execute(made);
    }
}
