// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Replay} from "./Replay.sol";
import {Vm} from "./Vm.sol";
import {Bond, Case, ICourt} from "../../src/interfaces/ICourt.sol";

/// Rebuilds every storage word of a court from its events alone.
abstract contract CourtReplay is Replay {
    uint256 private constant BONDS = 0;
    uint256 private constant CREDITS = 1;
    uint256 private constant CASES = 2;
    uint256 private constant BURNT = 3;

    mapping(address => Bond) private _bonds;
    mapping(bytes32 => Case) private _opened;
    uint256 private _burnt = 1;

    function foldCourt(address court_, Vm.Log[] memory logs) internal {
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].emitter == court_) _fold(logs[i]);
        }
    }

    function _fold(Vm.Log memory log) private {
        bytes32 topic = log.topics[0];
        address who = address(uint160(uint256(log.topics[1])));
        if (topic == ICourt.BondChanged.selector) {
            Bond storage entry = _bonds[who];
            (entry.bond, entry.unbonding, entry.readyAt) = abi.decode(log.data, (uint64, uint64, uint40));
            _putBond(who);
        } else if (topic == ICourt.Slashed.selector) {
            (, uint64 burnt) = abi.decode(log.data, (uint64, uint64));
            _burnt += burnt;
            _image[bytes32(BURNT)] = _burnt;
            _opened[log.topics[2]].authority = who;
            _end(log.topics[2], 2);
        } else if (topic == ICourt.Accused.selector) {
            Case storage entry = _opened[log.topics[2]];
            (entry.authority, entry.by, entry.state) = (who, abi.decode(log.data, (uint40)), 1);
            _bonds[who].open += 1;
            _putBond(who);
        } else if (topic == ICourt.Charged.selector) {
            Case storage entry = _opened[log.topics[1]];
            (entry.accuser, entry.harmed, entry.atRisk, entry.places) =
                abi.decode(log.data, (address, address, uint64, uint256));
            _putCase(log.topics[1], entry);
        } else if (topic == ICourt.Acquitted.selector) {
            _end(log.topics[1], 3);
        } else if (topic == ICourt.Credited.selector) {
            _image[_at(log.topics[1], CREDITS)] += abi.decode(log.data, (uint64));
        } else if (topic == ICourt.Collected.selector) {
            (, uint64 amount) = abi.decode(log.data, (address, uint64));
            _image[_at(log.topics[1], CREDITS)] += uint256(amount) << 64;
        } else {
            revert Untrue("an event of the court that nobody folds");
        }
    }

    function _end(bytes32 case_, uint8 state) private {
        Case memory entry = _opened[case_];
        if (entry.state == 1) {
            _bonds[entry.authority].open -= 1;
            _putBond(entry.authority);
        }
        entry = Case(entry.authority, entry.by, state, address(0), 0, address(0), entry.places);
        _opened[case_] = entry;
        _putCase(case_, entry);
    }

    function _putBond(address who) private {
        Bond memory x = _bonds[who];
        _image[_at(bytes32(uint256(uint160(who))), BONDS)] =
            uint256(x.open) << 168 | uint256(x.readyAt) << 128 | uint256(x.unbonding) << 64 | x.bond;
    }

    function _putCase(bytes32 case_, Case memory x) private {
        uint256 slot = uint256(_at(case_, CASES));
        _image[bytes32(slot)] = uint256(x.state) << 200 | uint256(x.by) << 160 | uint160(x.authority);
        _image[bytes32(slot + 1)] = uint256(x.atRisk) << 160 | uint160(x.accuser);
        _image[bytes32(slot + 2)] = uint160(x.harmed);
        _image[bytes32(slot + 3)] = x.places;
    }

    function _at(bytes32 key, uint256 base) private pure returns (bytes32) {
        return keccak256(abi.encode(key, base));
    }
}
