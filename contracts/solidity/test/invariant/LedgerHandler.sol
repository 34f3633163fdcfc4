// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Acting} from "../utils/Campaign.sol";
import {Pools} from "../utils/Pools.sol";
import {VaultReplay} from "../utils/VaultReplay.sol";
import {Vm} from "../utils/Vm.sol";
import {Item, Item2} from "../../src/interfaces/IVault.sol";
import {Controller} from "../../src/Controller.sol";
import {TestToken} from "../../src/TestToken.sol";
import {Vault} from "../../src/Vault.sol";

/// Four renters, three providers of whom the third is not registered, and an authority with an honest log: it countersigns a voucher only if all that it
/// countersigned and is not yet claimed fits in what is not thawing (and in the cap of a delegated key), and its sweeper
/// claims every voucher in the last second in which it counts: before a thaw ends, a key dies or an epoch's grace is over.
contract LedgerHandler is Pools, VaultReplay, Acting {
    uint160 private constant RENTERS = 0xAE0000;
    uint160 private constant PROVIDERS = 0xBE0000;
    uint256 private constant RENTER_KEYS = 0xCE0000;

    uint256 public moneyIn;
    uint256 public moneyOut;
    uint256 public feesOut;
    bool public fell;
    bool public forged;
    /// Provider to renter to the highest countersigned total, and its voucher.
    mapping(address => mapping(address => uint64)) public signed;
    mapping(address => mapping(address => Item2)) private _vouchers;
    mapping(address => uint64) private _thawing;
    /// Provider to renter to the key that signed the newest voucher.
    mapping(address => mapping(address => address)) private _signer;
    mapping(address => uint256) private _keyTurn;
    mapping(address => uint256) private _delegatedTurn;
    mapping(address => uint256) private _lastTurn;
    mapping(address => bool) private _hasOwnKey;
    /// The last second in which some voucher of the renter counts; 0 for no end.
    mapping(address => uint256) private _dueBy;
    uint32 private _epoch = 1;
    uint256 private _authorityKey;
    uint256 private _latest;
    /// Who may end the story; the fuzzer may not.
    address private immutable TEST;

    constructor(
        TestToken token_,
        Controller controller_,
        Vault vault_,
        uint256 authorityKey,
        Vm.Log[] memory opening
    ) {
        (token, controller, vault, _authorityKey) = (token_, controller_, vault_, authorityKey);
        _latest = block.timestamp;
        TEST = msg.sender;
        foldVault(address(vault), address(controller), opening);
        vm.recordLogs();
        for (uint256 i; i < 4; ++i) {
            _put(renterAt(i), 100e6);
        }
        for (uint256 i; i < 2; ++i) {
            join(providerAt(i));
        }
        foldVault(address(vault), address(controller), vm.getRecordedLogs());
    }

    function setUp() public override {}

    function renterAt(uint256 i) public pure returns (address) {
        return address(RENTERS + uint160(i % 4));
    }

    function providerAt(uint256 i) public pure returns (address) {
        return address(PROVIDERS + uint160(i % 3));
    }

    function actions() public pure override returns (bytes4[] memory all) {
        all = new bytes4[](17);
        all[0] = this.deposit.selector;
        all[1] = this.rotate.selector;
        all[2] = this.revoke.selector;
        all[3] = this.grant.selector;
        all[4] = this.regrant.selector;
        all[5] = this.revokeGrant.selector;
        all[6] = this.use.selector;
        all[7] = this.claimOne.selector;
        all[8] = this.claimBatch.selector;
        all[9] = this.forge.selector;
        all[10] = this.thaw.selector;
        all[11] = this.withdraw.selector;
        all[12] = this.cashOut.selector;
        all[13] = this.cashOutFees.selector;
        all[14] = this.replaceAuthority.selector;
        all[15] = this.passPool.selector;
        all[16] = this.wait_.selector;
    }

    /// Nothing monotone may fall in any step.
    modifier watched() {
        vm.warp(_latest);
        uint256[10] memory before = _monotone();
        vm.record();
        vm.recordLogs();
        _;
        foldVault(address(vault), address(controller), vm.getRecordedLogs());
        remember(address(vault));
        uint256[10] memory afterwards = _monotone();
        for (uint256 i; i < 10; ++i) {
            if (afterwards[i] < before[i]) fell = true;
        }
    }

    function compareStorage() external view {
        sameStorage(address(vault));
    }

    // -- what anybody may do

    function deposit(uint256 r, uint64 amount) external watched {
        _put(renterAt(r), uint64(within(amount, 1, 1000e6)));
        _did();
    }

    function rotate(uint256 r) external watched {
        address who = renterAt(r);
        _owe(who, block.timestamp + THAW_S - 1);
        _keyTurn[who] += 1;
        _hasOwnKey[who] = true;
        vm.prank(who);
        vault.enter(0, vm.addr(_key(who)), type(uint32).max);
        _did();
    }

    function revoke(uint256 r) external watched {
        address who = renterAt(r);
        if (!_hasOwnKey[who]) return;
        _owe(who, block.timestamp + THAW_S - 1);
        vm.prank(who);
        vault.revoke(vm.addr(_key(who)));
        _keyTurn[who] += 1;
        _hasOwnKey[who] = false;
        _did();
    }

    function grant(uint256 r, uint64 more) external watched {
        address who = renterAt(r);
        address key = vm.addr(_delegated(who));
        (uint64 cap,,,) = vault.keyOf(who, key);
        vm.prank(who);
        vault.grant(key, cap + uint64(within(more, 1, 200e6)), type(uint32).max);
        _did();
    }

    /// A revoked key that is dead begins a new life, with a cap that knows nothing of the old one.
    function regrant(uint256 r, uint64 cap) external watched {
        address who = renterAt(r);
        for (uint256 turn; turn < _lastTurn[who]; ++turn) {
            address key = vm.addr(_delegatedAt(who, turn));
            (,, uint32 deadFrom,) = vault.keyOf(who, key);
            if (deadFrom == 0 || block.timestamp < deadFrom) continue;
            vm.prank(who);
            vault.grant(key, uint64(within(cap, 1, 200e6)), type(uint32).max);
            _delegatedTurn[who] = turn;
            return _did();
        }
    }

    function revokeGrant(uint256 r) external watched {
        address who = renterAt(r);
        address key = vm.addr(_delegated(who));
        (,,, uint8 kind) = vault.keyOf(who, key);
        if (kind == 0) return;
        _owe(who, block.timestamp + THAW_S - 1);
        vm.prank(who);
        vault.revoke(key);
        _lastTurn[who] += 1;
        _delegatedTurn[who] = _lastTurn[who];
        _did();
    }

    function use(uint256 p, uint256 r, uint64 amount, bool delegated) external watched {
        (address to, address from) = (providerAt(p), renterAt(r));
        if (delegated ? p % 3 == 2 : !_hasOwnKey[from]) return;
        uint256 key = delegated ? _delegated(from) : _key(from);
        uint64 free = delegated ? _freeOfCap(to, from, vm.addr(key)) : _free(from);
        uint64 more = uint64(within(amount, 0, free));
        if (more == 0) return;
        signed[to][from] += more;
        _signer[to][from] = vm.addr(key);
        Voucher memory v = Voucher(from, to, signed[to][from], uint64(block.timestamp * 1000), _epoch, 1);
        _vouchers[to][from] = sign(v, key, _authorityKey);
        _did();
    }

    function claimOne(uint256 p, uint256 r) external watched {
        // The next pair that is owed something, so that few claims find nothing.
        for (uint256 i; i < 12; ++i) {
            (address to, address from) = (providerAt(p % 3 + i / 4), renterAt(r % 4 + i));
            uint64 before = claimedOf(to, from);
            if (signed[to][from] == before) continue;
            _claim(to, from);
            same(claimedOf(to, from), signed[to][from], "an honest voucher is paid in full");
            return _did();
        }
    }

    function claimBatch(uint256 p, bool aggregated) external watched {
        address to = providerAt(p);
        Item2[] memory items = new Item2[](4);
        Item[] memory singles = new Item[](4);
        for (uint256 i; i < 4; ++i) {
            items[i] = _vouchers[to][renterAt(i)];
            singles[i] = single(items[i]);
        }
        (uint64 earned,,) = vault.totals(to);
        if (!aggregated) {
            vault.claim(to, items);
        } else {
            (bytes32 ar, bytes32 avs) = batch(to, _epoch, singles, _authorityKey);
            vault.claimAggregated(to, _epoch, ar, avs, singles);
        }
        (uint64 now_,,) = vault.totals(to);
        if (now_ != earned) _did();
    }

    function forge(uint256 p, uint256 r, uint64 amount, uint8 how) external watched {
        (address to, address from) = (providerAt(p), renterAt(r));
        Voucher memory v = Voucher(from, to, signed[to][from] + amount % 1e9 + 1, 0, _epoch, 1);
        if (how % 5 == 4) {
            // Signed by a delegated key for somebody who is no provider.
            to = v.provider = providerAt(2);
            v.cumulative = signed[to][from] + 1;
        }
        Item2 memory bad = how % 4 == 0
            ? sign(v, _key(from), _key(from))
            : how % 4 == 1 ? sign(v, _authorityKey, _authorityKey) : sign(v, 0xBAD, _authorityKey);
        if (how % 4 == 3) bad = sign(v, _key(from), 0xBAD);
        if (how % 5 == 4) bad = sign(v, _delegated(from), _authorityKey);
        uint64 before = balanceOf(from);
        vault.claim(to, one(bad));
        if (balanceOf(from) != before) forged = true;
        _did();
    }

    function thaw(uint256 r, uint64 amount) external watched {
        address who = renterAt(r);
        amount = uint64(within(amount, 0, balanceOf(who)));
        vm.prank(who);
        vault.thaw(amount);
        _thawing[who] = amount;
        _did();
    }

    function withdraw(uint256 r) external watched {
        address who = renterAt(r);
        (uint64 amount, uint40 readyAt) = vault.thawing(who);
        if (amount == 0) return;
        if (block.timestamp < readyAt) _pass(readyAt - block.timestamp);
        _sweep(who);
        if (balanceOf(who) == 0) return; // claims took all of it
        _withdraw(who);
        _did();
    }

    function cashOut(uint256 p) external watched {
        if (_cashOut(providerAt(p))) _did();
    }

    function cashOutFees(uint32 epoch) external watched {
        if (_cashOutFees(uint32(within(epoch, 1, _epoch)))) _did();
    }

    function replaceAuthority() external watched {
        _ends();
        replace(_authorityKey);
        _did();
    }

    /// Another owner, with another authority: what earlier epochs earned stays with who owned them.
    function passPool() external watched {
        address next = address(0x0E0000 + uint160(_epoch));
        bond(next, MIN_BOND);
        vm.prank(controller.owner());
        controller.announceOwner(next);
        _pass(HAND_OVER_S);
        _ends();
        (bytes32 r, bytes32 vs) = consent(_authorityKey, next);
        vm.prank(next);
        controller.acceptOwner(vm.addr(_authorityKey), r, vs, 0, 0, 0);
        _did();
    }

    function wait_(uint32 seconds_) external watched {
        _pass(within(seconds_, 1, 12 hours));
        _did();
    }

    // -- the end

    function settleAll() external {
        if (msg.sender != TEST) return;
        vm.warp(_latest);
        _sweepAll();
    }

    function exitAll() external {
        if (msg.sender != TEST) return;
        vm.warp(_latest);
        for (uint256 i; i < 4; ++i) {
            uint64 all = balanceOf(renterAt(i));
            if (all == 0) continue;
            vm.prank(renterAt(i));
            vault.thaw(all);
        }
        vm.warp(_latest + THAW_S);
        for (uint256 i; i < 4; ++i) {
            if (balanceOf(renterAt(i)) != 0) _withdraw(renterAt(i));
        }
        for (uint256 i; i < 3; ++i) {
            _cashOut(providerAt(i));
        }
        for (uint32 i = 1; i <= _epoch; ++i) {
            _cashOutFees(i);
        }
    }

    // -- inside

    /// Time passes; whoever's vouchers would stop counting in it is swept in the last second before.
    function _pass(uint256 seconds_) private {
        _latest += seconds_;
        for (uint256 i; i < 4; ++i) {
            address who = renterAt(i);
            if (_dueBy[who] == 0 || _dueBy[who] >= _latest) continue;
            vm.warp(_dueBy[who]);
            _sweep(who);
            _dueBy[who] = 0;
        }
        vm.warp(_latest);
    }

    /// The epoch ends: later than its grace a voucher would need the new authority's batch signature.
    function _ends() private {
        for (uint256 i; i < 4; ++i) {
            _owe(renterAt(i), block.timestamp + GRACE_S);
        }
        (_authorityKey, _epoch) = (_authorityKey + 1, _epoch + 1);
    }

    function _owe(address who, uint256 until) private {
        if (_dueBy[who] == 0 || until < _dueBy[who]) _dueBy[who] = until;
    }

    function _delegated(address who) private view returns (uint256) {
        return _delegatedAt(who, _delegatedTurn[who]);
    }

    function _delegatedAt(address who, uint256 turn) private pure returns (uint256) {
        return RENTER_KEYS + (uint256(uint160(who)) % 4) * 1000 + 500 + turn;
    }

    function _key(address who) private view returns (uint256) {
        return RENTER_KEYS + (uint256(uint160(who)) % 4) * 1000 + _keyTurn[who];
    }

    function _put(address who, uint64 amount) private {
        fund(who, amount);
        vm.prank(who);
        vault.enter(amount, vm.addr(_key(who)), type(uint32).max);
        moneyIn += amount;
        _hasOwnKey[who] = true;
    }

    /// The honest log's rule: balance - thawing - (countersigned - claimed) of all pairs.
    function _free(address from) private view returns (uint64) {
        uint256 promised = _thawing[from];
        for (uint256 i; i < 3; ++i) {
            promised += signed[providerAt(i)][from] - claimedOf(providerAt(i), from);
        }
        uint64 balance = balanceOf(from);
        return promised >= balance ? 0 : uint64(balance - promised);
    }

    /// The same within a delegated key's cap, which must hold the whole unclaimed part of each pair that it signed last.
    function _freeOfCap(address to, address from, address key) private view returns (uint64 free) {
        (uint64 cap,,,) = vault.keyOf(from, key);
        uint256 promised;
        for (uint256 i; i < 3; ++i) {
            address other = providerAt(i);
            if (other == to || _signer[other][from] == key) promised += signed[other][from] - claimedOf(other, from);
        }
        free = _free(from);
        if (promised >= cap) return 0;
        if (cap - promised < free) return uint64(cap - promised);
    }

    function _claim(address to, address from) private {
        if (signed[to][from] != 0) vault.claim(to, one(_vouchers[to][from]));
    }

    function _sweep(address from) private {
        for (uint256 i; i < 3; ++i) {
            _claim(providerAt(i), from);
        }
    }

    function _sweepAll() private {
        for (uint256 i; i < 4; ++i) {
            _sweep(renterAt(i));
        }
    }

    function _withdraw(address who) private {
        uint256 before = token.balanceOf(who);
        vm.prank(who);
        vault.withdraw(who);
        moneyOut += token.balanceOf(who) - before;
        _thawing[who] = 0;
    }

    function _cashOut(address who) private returns (bool) {
        (uint64 earned,, uint64 paidOut_) = vault.totals(who);
        if (earned == paidOut_) return false;
        uint256 before = token.balanceOf(who);
        vault.cashOut(who); // anyone; the registry says who is paid
        same(token.balanceOf(who) - before, earned - paidOut_, "cashed out");
        moneyOut += earned - paidOut_;
        return true;
    }

    function _cashOutFees(uint32 epoch) private returns (bool) {
        uint64 due = vault.feesOf(epoch);
        if (due == 0) return false;
        vm.prank(controller.ownerOf(epoch));
        vault.cashOutFees(epoch, address(0xFEE5));
        moneyOut += due;
        feesOut += due;
        return true;
    }

    function _monotone() private view returns (uint256[10] memory all) {
        for (uint256 p; p < 3; ++p) {
            (all[p * 3], all[p * 3 + 1], all[p * 3 + 2]) = vault.totals(providerAt(p));
        }
        all[9] = controller.epoch();
    }
}
