// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Replay} from "./Replay.sol";
import {Vm} from "./Vm.sol";
import {IController} from "../../src/interfaces/IController.sol";
import {PoolConfig} from "../../src/interfaces/PoolConfig.sol";

/// Rebuilds every storage word of a controller from its events and the times of their blocks. To be called within the
/// block of the events.
abstract contract ControllerReplay is Replay {
    uint256 private constant HEAD = 0;
    uint256 private constant SUCCESSOR = 1;
    uint256 private constant OWNER = 2;
    uint256 private constant ANNOUNCED = 3;
    uint256 private constant ENDED = 4;
    uint256 private constant STANDBYS = 5;
    uint256 private constant PROVIDERS = 6;
    uint256 private constant NODES = 7;
    uint256 private constant BINDINGS = 8;
    uint256 private constant OFFERS = 9;
    uint256 private constant COMPONENTS = 10;
    uint256 private constant LICENCES = 11;

    address private _owner;
    uint256 private _ownerNumber;
    uint256 private _burnt;
    /// The last anchor whole.
    bytes32 private _anchor;
    bool private _disowned;

    function foldController(address controller_, Vm.Log[] memory logs) internal {
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].emitter == controller_) _fold(logs[i]);
        }
    }

    function _fold(Vm.Log memory log) private {
        bytes32 topic = log.topics[0];
        if (topic == IController.PoolOpened.selector) {
            (,, PoolConfig memory config) = abi.decode(log.data, (address, address, PoolConfig));
            (_owner, _ownerNumber) = (config.owner, 1);
            _putHead(1, 0, block.timestamp, 0);
            _putOwner();
        } else if (topic == IController.Anchored.selector) {
            (uint32 epoch, uint64 size, bytes32 root, bytes32 digest) =
                abi.decode(log.data, (uint32, uint64, bytes32, bytes32));
            _anchor = keccak256(abi.encode(root, digest));
            _putHead(epoch, size, block.timestamp, uint256(_anchor) >> 128);
        } else if (topic == IController.AnchorsDisowned.selector) {
            (_disowned, _anchor) = (true, 0);
            _putHead(uint256(log.topics[1]), abi.decode(log.data, (uint64)), block.timestamp, 0);
        } else if (topic == IController.OwnerAnnounced.selector) {
            uint40 readyAt = abi.decode(log.data, (uint40));
            _image[bytes32(ANNOUNCED)] = uint256(readyAt) << 160 | uint256(log.topics[1]);
        } else if (topic == IController.AuthorityChanged.selector) {
            _begin(uint256(log.topics[1]), uint256(log.topics[2]), address(uint160(uint256(log.topics[3]))));
        } else if (topic == IController.Renewed.selector) {
            (uint32 epoch, uint40 seenAt) = abi.decode(log.data, (uint32, uint40));
            uint256 word = _image[bytes32(HEAD)];
            _putHead(epoch, uint64(word >> 160), seenAt, uint128(word));
        } else if (topic == IController.StandbySet.selector) {
            _image[_at(log.topics[1], STANDBYS)] = abi.decode(log.data, (bool)) ? _ownerNumber : 0;
        } else if (topic == IController.LicenceSet.selector) {
            (uint32 seats, uint40 until) = abi.decode(log.data, (uint32, uint40));
            bytes32 ofHolder = keccak256(abi.encode(log.topics[2], _at(log.topics[1], LICENCES)));
            _image[keccak256(abi.encode(log.topics[3], ofHolder))] = uint256(until) << 32 | seats;
        } else if (topic == IController.ComponentRegistered.selector) {
            (uint40 until, string memory endpoint) = abi.decode(log.data, (uint40, string));
            bytes32 slot = keccak256(abi.encode(log.topics[2], keccak256(abi.encode(log.topics[1], COMPONENTS))));
            _image[slot] = until;
            _putText(_next(slot), endpoint);
        } else {
            _foldProvider(topic, log);
        }
    }

    /// The epoch before ends: its owner, and what was anchored in it or taken over by it.
    function _begin(uint256 epoch, uint256 authority_, address owner_) private {
        uint256 word = _image[bytes32(HEAD)];
        bytes32 ended = _at(bytes32(epoch - 1), ENDED);
        bytes32 before = _at(bytes32(epoch - 2), ENDED);
        uint64 size = uint64(word >> 160);
        _image[ended] = uint256(size) << 160 | uint160(_owner);
        bool passed = owner_ != _owner;
        if (_disowned) _image[_next(ended)] = 0;
        else if (passed) _image[_next(ended)] = uint128(word) == 0 ? 0 : uint256(_anchor);
        else if (size == uint64(_image[before] >> 160)) _image[_next(ended)] = _image[_next(before)];
        else _image[_next(ended)] = uint256(uint128(word)) << 128;
        _disowned = false;
        if (passed) {
            (_owner, _ownerNumber) = (owner_, _ownerNumber + 1);
            _image[bytes32(ANNOUNCED)] = 0;
            _putOwner();
        }
        _putHead(epoch, size, block.timestamp, uint128(word));
        _image[bytes32(SUCCESSOR)] = authority_;
    }

    function _foldProvider(bytes32 topic, Vm.Log memory log) private {
        bytes32 slot = _at(log.topics[1], PROVIDERS);
        if (topic == IController.ProviderRegistered.selector) {
            (address payout, uint64 stake) = abi.decode(log.data, (address, uint64));
            _image[slot] = _image[slot] >> 224 << 224 | uint256(stake) << 160 | uint160(payout);
        } else if (topic == IController.StakeChanged.selector) {
            (uint64 stake, uint64 unbonding, uint40 readyAt) = abi.decode(log.data, (uint64, uint64, uint40));
            _image[slot] = _image[slot] >> 224 << 224 | uint256(stake) << 160 | uint160(_image[slot]);
            _image[_next(slot)] = uint256(readyAt) << 64 | unbonding;
        } else if (topic == IController.StakeForfeited.selector) {
            (uint64 amount,) = abi.decode(log.data, (uint64, address));
            _burnt += amount - amount / 10;
            _putOwner();
            _image[keccak256(abi.encode(log.topics[1], _at(log.topics[2], BINDINGS)))] = 2;
        } else {
            _foldNode(topic, log);
        }
    }

    function _foldNode(bytes32 topic, Vm.Log memory log) private {
        bytes32 node = _at(log.topics[1], NODES);
        bytes32 offer = _at(log.topics[1], OFFERS);
        bytes32 provider_ = _at(log.topics[2], PROVIDERS);
        if (topic == IController.NodeRegistered.selector) {
            _image[node] = uint256(abi.decode(log.data, (uint32)) + 1) << 160 | uint160(uint256(log.topics[2]));
            _image[keccak256(abi.encode(log.topics[2], _at(log.topics[1], BINDINGS)))] = 1;
        } else if (topic == IController.NodeRetired.selector) {
            _image[node] = _image[node] >> 160 << 160;
        } else if (topic == IController.OfferSet.selector) {
            (bytes32 specHash, uint8 classes, string memory cid) = abi.decode(log.data, (bytes32, uint8, string));
            if (_image[offer] == 0) _image[provider_] += 1 << 224;
            _image[offer] = uint256(specHash);
            _image[_next(offer)] = classes;
            _putText(_next(_next(offer)), cid);
        } else if (topic == IController.OfferClosed.selector) {
            _image[provider_] -= 1 << 224;
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

    function _putOwner() private {
        _image[bytes32(OWNER)] = _burnt << 192 | _ownerNumber << 160 | uint160(_owner);
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
