// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Replay} from "./Replay.sol";
import {Vm} from "./Vm.sol";
import {IController} from "../../src/interfaces/IController.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {PoolConfig} from "../../src/interfaces/PoolConfig.sol";

/// Rebuilds every storage word of a vault from events (those of its controller included) and the times of their blocks;
/// to be called within the block of the events. Each lane is a field
/// of its own here, so a lane of the vault that carries into another makes a word that differs.
abstract contract VaultReplay is Replay {
    struct Account {
        address key;
        uint64 balance;
        uint32 until;
    }

    struct Totals {
        uint64 earned;
        uint64 fee;
        uint64 paidOut;
    }

    /// Rows of the next {Claimed} that a delegated key spent.
    struct Spending {
        address key;
        uint256 first;
        uint256 count;
    }

    struct Key {
        uint64 capLeft;
        uint32 until;
        uint32 deadFrom;
        uint8 kind;
    }

    uint256 private constant ACCOUNTS = 0;
    uint256 private constant THAWING = 1;
    uint256 private constant PAIRS = 2;
    uint256 private constant TOTALS = 3;
    uint256 private constant KEYS = 4;
    uint256 private constant AUTHORITIES = 5;
    uint256 private constant PRESENT = 6;

    mapping(address => Account) private _accounts;
    mapping(address => Totals) private _totals;
    mapping(address => mapping(address => Key)) private _keys;
    mapping(address => mapping(address => uint64)) private _used;
    mapping(uint256 => address) private _signers;
    mapping(uint256 => uint32) private _ends;
    mapping(uint256 => uint64) private _fees;
    Spending[] private _spendings;
    uint256 private _feeBps;
    /// What came in and what left, by the events.
    uint256 public deposited;
    uint256 public paidOut;

    function foldVault(address vault_, address controller_, Vm.Log[] memory logs) internal {
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].emitter == vault_) _foldOwn(logs[i]);
            if (logs[i].emitter == controller_) _foldAuthority(logs[i]);
        }
    }

    function _foldOwn(Vm.Log memory log) private {
        bytes32 topic = log.topics[0];
        address who = address(uint160(uint256(log.topics[1])));
        if (topic == IVault.Deposited.selector) {
            _credit(who, abi.decode(log.data, (uint64)));
        } else if (topic == IVault.Entered.selector) {
            (uint64 amount, address key, uint32 until) = abi.decode(log.data, (uint64, address, uint32));
            _accounts[who].key = key;
            _accounts[who].until = until;
            _credit(who, amount);
        } else if (topic == IVault.KeyCleared.selector) {
            _accounts[who].key = address(0);
            _accounts[who].until = 0;
            _putAccount(who);
        } else if (topic == IVault.KeyGranted.selector) {
            (address key, uint64 cap, uint32 until) = abi.decode(log.data, (address, uint64, uint32));
            _putKey(who, key, Key(cap, until, 0, 1));
        } else if (topic == IVault.KeyRevoked.selector) {
            (address key, uint32 deadFrom) = abi.decode(log.data, (address, uint32));
            _foldRevoked(who, key, deadFrom);
        } else if (topic == IVault.Thawed.selector) {
            (uint64 amount, uint40 readyAt) = abi.decode(log.data, (uint64, uint40));
            _image[_slot(who, THAWING)] = uint256(amount) << 40 | readyAt;
        } else if (topic == IVault.Withdrawn.selector) {
            (, uint64 amount) = abi.decode(log.data, (address, uint64));
            _image[_slot(who, THAWING)] = 0;
            _accounts[who].balance -= amount;
            paidOut += amount;
            _putAccount(who);
        } else if (topic == IVault.Spent.selector) {
            (uint256 first, uint256 count) = abi.decode(log.data, (uint256, uint256));
            _spendings.push(Spending(who, first, count));
        } else if (topic == IVault.Claimed.selector) {
            (uint256 totals, uint256[] memory rows) = abi.decode(log.data, (uint256, uint256[]));
            _foldClaimed(who, totals, rows);
        } else if (topic == IVault.CashedOut.selector) {
            (, uint64 amount) = abi.decode(log.data, (address, uint64));
            _totals[who].paidOut += amount;
            paidOut += amount;
            _putTotals(who);
        } else if (topic == IVault.FeesCashedOut.selector) {
            (, uint64 amount) = abi.decode(log.data, (address, uint64));
            uint256 epoch = uint256(log.topics[1]);
            _fees[epoch] -= amount;
            paidOut += amount;
            _putAuthority(epoch);
        } else {
            revert Untrue("an event of the vault that nobody folds");
        }
    }

    function _foldRevoked(address who, address key, uint32 deadFrom) private {
        Account storage account_ = _accounts[who];
        Key memory old = _keys[who][key];
        if (account_.key == key) {
            uint32 until = account_.until > old.until ? account_.until : old.until;
            _putKey(who, key, Key(0, until, deadFrom, 2));
        } else {
            _putKey(who, key, Key(old.capLeft, old.until, deadFrom, old.kind));
        }
    }

    function _foldClaimed(address who, uint256 totals, uint256[] memory rows) private {
        for (uint256 i; i < rows.length; i += 2) {
            _foldRow(who, rows[i], rows[i + 1]);
        }
        for (uint256 i; i < _spendings.length; ++i) {
            _foldSpent(_spendings[i], rows);
        }
        delete _spendings;
        Totals storage mine = _totals[who];
        (mine.earned, mine.fee) = (uint64(totals >> 192), uint64(totals >> 128));
        yes(uint128(totals) == uint256(mine.paidOut) << 64, "a claim does not touch what was paid out");
        _putTotals(who);
    }

    function _foldRow(address who, uint256 a, uint256 row) private {
        address from = address(uint160(a >> 96));
        uint64 claimed = uint64(row >> 192);
        uint64 paid = uint64(row >> 128);
        if (claimed == uint64(a >> 32)) _used[who][from] = uint64(row >> 64);
        _accounts[from].balance -= paid;
        _putAccount(from);
        bytes32 slot = keccak256(abi.encode(from, _slot(who, PAIRS)));
        yes(claimed == uint64(_image[slot] >> 64) + paid, "a row's total grows by what it paid");
        _image[slot] = uint256(claimed) << 64 | _used[who][from];
        uint256 fee = claimed * _feeBps / 10_000 - (claimed - paid) * _feeBps / 10_000;
        uint256 room = type(uint64).max - _fees[uint32(a)];
        _fees[uint32(a)] += uint64(fee < room ? fee : room);
        _putAuthority(uint32(a));
    }

    function _foldSpent(Spending memory it, uint256[] memory rows) private {
        yes(it.count != 0, "a key is told that spent no row");
        for (uint256 i = it.first; i < it.first + it.count; ++i) {
            address from = address(uint160(rows[2 * i] >> 96));
            Key memory x = _keys[from][it.key];
            x.capLeft -= uint64(rows[2 * i + 1] >> 128);
            _putKey(from, it.key, x);
        }
    }

    function _foldAuthority(Vm.Log memory log) private {
        if (log.topics[0] == IController.PoolOpened.selector) {
            (,, PoolConfig memory config) = abi.decode(log.data, (address, address, PoolConfig));
            _feeBps = config.feeBps;
            _begin(1, config.authority);
        } else if (log.topics[0] == IController.AuthorityChanged.selector) {
            uint256 epoch = uint256(log.topics[1]);
            _ends[epoch - 1] = uint32(abi.decode(log.data, (uint40)));
            _putAuthority(epoch - 1);
            _begin(epoch, address(uint160(uint256(log.topics[2]))));
        }
    }

    function _begin(uint256 epoch, address signer) private {
        (_signers[epoch], _ends[epoch]) = (signer, type(uint32).max);
        _putAuthority(epoch);
        _image[bytes32(PRESENT)] = uint160(signer);
    }

    function _credit(address who, uint64 amount) private {
        _accounts[who].balance += amount;
        deposited += amount;
        _putAccount(who);
    }

    function _putAccount(address who) private {
        Account memory x = _accounts[who];
        _image[_slot(who, ACCOUNTS)] = uint256(uint160(x.key)) << 96 | uint256(x.balance) << 32 | x.until;
    }

    function _putTotals(address who) private {
        Totals memory x = _totals[who];
        _image[_slot(who, TOTALS)] = uint256(x.earned) << 192 | uint256(x.fee) << 128 | uint256(x.paidOut) << 64;
    }

    function _putKey(address who, address key, Key memory x) private {
        _keys[who][key] = x;
        _image[keccak256(abi.encode(key, _slot(who, KEYS)))] =
            uint256(x.capLeft) << 72 | uint256(x.until) << 40 | uint256(x.deadFrom) << 8 | x.kind;
    }

    function _putAuthority(uint256 epoch) private {
        _image[_slot(epoch, AUTHORITIES)] =
            uint256(uint160(_signers[epoch])) << 96 | uint256(_ends[epoch]) << 64 | _fees[epoch];
    }

    function _slot(address key, uint256 base) private pure returns (bytes32) {
        return keccak256(abi.encode(key, base));
    }

    function _slot(uint256 key, uint256 base) private pure returns (bytes32) {
        return keccak256(abi.encode(key, base));
    }
}
