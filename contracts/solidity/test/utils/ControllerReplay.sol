// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Replay} from "./Replay.sol";
import {Vm} from "./Vm.sol";
import {IController} from "../../src/interfaces/IController.sol";

/// Rebuilds every storage word of a controller from its events and the times of their blocks. To be called within the
/// block of the events.
abstract contract ControllerReplay is Replay {
    uint256 private constant HEAD = 0;
    uint256 private constant SUCCESSOR = 1;
    uint256 private constant PROVIDERS = 2;
    uint256 private constant NODES = 3;
    uint256 private constant OFFERS = 4;
    uint256 private constant COMPONENTS = 5;
    uint256 private constant STANDBYS = 6;
    uint256 private constant LICENCES = 7;

    function foldController(address controller_, Vm.Log[] memory logs) internal {
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].emitter == controller_) _fold(logs[i]);
        }
    }

    function _fold(Vm.Log memory log) private {
        bytes32 topic = log.topics[0];
        if (topic == IController.PoolOpened.selector) {
            _putHead(1, 0, block.timestamp, 0);
        } else if (topic == IController.Anchored.selector) {
            (uint32 epoch, uint64 size, bytes32 root, bytes32 digest) =
                abi.decode(log.data, (uint32, uint64, bytes32, bytes32));
            _putHead(epoch, size, block.timestamp, uint256(keccak256(abi.encode(root, digest))) >> 128);
        } else if (topic == IController.AuthorityChanged.selector) {
            uint256 word = _image[bytes32(HEAD)];
            _putHead(uint256(log.topics[1]), uint64(word >> 160), block.timestamp, uint128(word));
            _image[bytes32(SUCCESSOR)] = uint256(log.topics[2]);
        } else if (topic == IController.Renewed.selector) {
            (uint32 epoch, uint40 seenAt) = abi.decode(log.data, (uint32, uint40));
            uint256 word = _image[bytes32(HEAD)];
            _putHead(epoch, uint64(word >> 160), seenAt, uint128(word));
        } else if (topic == IController.StandbySet.selector) {
            _image[_at(log.topics[1], STANDBYS)] = abi.decode(log.data, (bool)) ? 1 : 0;
        } else if (topic == IController.LicenceSet.selector) {
            (uint32 seats, uint40 until) = abi.decode(log.data, (uint32, uint40));
            bytes32 ofHolder = keccak256(abi.encode(log.topics[2], _at(log.topics[1], LICENCES)));
            _image[keccak256(abi.encode(log.topics[3], ofHolder))] = uint256(until) << 32 | seats;
        } else if (topic == IController.ComponentRegistered.selector) {
            (uint40 until, string memory endpoint) = abi.decode(log.data, (uint40, string));
            bytes32 slot = keccak256(abi.encode(log.topics[2], keccak256(abi.encode(log.topics[1], COMPONENTS))));
            _image[slot] = until;
            _putText(_next(slot), endpoint);
        } else if (topic == IController.ProviderRegistered.selector) {
            (address payout, uint64 stake) = abi.decode(log.data, (address, uint64));
            _image[_at(log.topics[1], PROVIDERS)] = uint256(stake) << 160 | uint160(payout);
        } else if (topic == IController.StakeChanged.selector) {
            (uint64 stake, uint64 unbonding, uint40 readyAt) = abi.decode(log.data, (uint64, uint64, uint40));
            bytes32 slot = _at(log.topics[1], PROVIDERS);
            _image[slot] = uint256(stake) << 160 | uint160(_image[slot]);
            _image[_next(slot)] = uint256(readyAt) << 64 | unbonding;
        } else {
            _foldNode(topic, log);
        }
    }

    function _foldNode(bytes32 topic, Vm.Log memory log) private {
        bytes32 node = _at(log.topics[1], NODES);
        bytes32 offer = _at(log.topics[1], OFFERS);
        if (topic == IController.NodeRegistered.selector) {
            _image[node] = uint256(abi.decode(log.data, (uint32)) + 1) << 160 | uint160(uint256(log.topics[2]));
        } else if (topic == IController.NodeRetired.selector) {
            _image[node] = _image[node] >> 160 << 160;
        } else if (topic == IController.OfferSet.selector) {
            (bytes32 specHash, uint8 classes, string memory cid) = abi.decode(log.data, (bytes32, uint8, string));
            _image[offer] = uint256(specHash);
            _image[_next(offer)] = classes;
            _putText(_next(_next(offer)), cid);
        } else if (topic == IController.OfferClosed.selector) {
            _image[offer] = 0;
            _image[_next(offer)] = 0;
            _putText(_next(_next(offer)), "");
        } else {
            revert Untrue("an event of the controller that nobody folds");
        }
    }

    function _putHead(uint256 epoch, uint256 size, uint256 seenAt, uint256 commitment) private {
        _image[bytes32(HEAD)] = epoch << 224 | size << 160 | seenAt << 128 | commitment;
    }

    /// A text as Solidity lays it out: up to 31 bytes in its slot, longer ones from the slot's hash on.
    function _putText(bytes32 slot, string memory text) private {
        bytes memory data = bytes(text);
        uint256 old = _image[slot];
        uint256 oldWords = old & 1 == 0 ? 0 : (old / 2 + 31) / 32;
        uint256 newWords = data.length < 32 ? 0 : (data.length + 31) / 32;
        uint256 base = uint256(keccak256(abi.encode(slot)));
        for (uint256 i; i < (oldWords > newWords ? oldWords : newWords); ++i) {
            _image[bytes32(base + i)] = i < newWords ? _word(data, i * 32) : 0;
        }
        _image[slot] = newWords == 0 ? _word(data, 0) | data.length * 2 : data.length * 2 + 1;
    }

    /// Up to 32 bytes from `start`, zeros behind them.
    function _word(bytes memory data, uint256 start) private pure returns (uint256 word) {
        for (uint256 i = start; i < start + 32; ++i) {
            word = word << 8 | (i < data.length ? uint8(data[i]) : 0);
        }
    }

    function _at(bytes32 key, uint256 base) private pure returns (bytes32) {
        return keccak256(abi.encode(key, base));
    }

    function _next(bytes32 slot) private pure returns (bytes32) {
        return bytes32(uint256(slot) + 1);
    }
}
