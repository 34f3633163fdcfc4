// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Acting} from "../utils/Campaign.sol";
import {Pools} from "../utils/Pools.sol";
import {VaultReplay} from "../utils/VaultReplay.sol";
import {Mood, WildToken} from "../utils/WildToken.sol";
import {Vm} from "../utils/Vm.sol";
import {IVault, Item, Item2, ProviderItems} from "../../src/interfaces/IVault.sol";
import {Controller} from "../../src/Controller.sol";
import {Vault} from "../../src/Vault.sol";

/// Everybody is hostile: the authority countersigns whatever it is shown, renters thaw, rotate and revoke at will, the
/// token lies and reenters, amounts and times go to the ends of their lanes. The fourth renter and the third provider
/// are the token itself. Each claim is compared with what the rules in IVault say it pays.
contract WildHandler is Pools, VaultReplay, Acting {
    uint256 private constant KEYS_FROM = 0xF1E1D0;
    /// Epochs have 32 bits of time: two days before they end, no grace passes it, and every delay of a key does.
    uint256 private constant END = 2 ** 32 - 2 days;
    address private constant PAYEE = address(0x0A1EE);

    struct Promise {
        Item2 item;
        Voucher v;
        address key;
        uint256 authorityKey;
    }

    WildToken public odd;
    uint32 public epoch = 1;
    bool public fell;
    /// Provider to renter to the highest total that any key of the renter signed.
    mapping(address => mapping(address => uint64)) public signed;
    Promise[8] private _promises;
    uint256 private _promised;
    uint256 private _authorityKey = AUTHORITY_KEY;
    uint256 private _latest;
    uint256 private _turn;
    /// What passes after the step: events are folded in the second in which they were.
    uint256 private _wait;
    address private immutable TEST;

    constructor(WildToken odd_, Controller controller_, Vault vault_, Vm.Log[] memory opening) {
        (odd, controller, vault) = (odd_, controller_, vault_);
        _latest = block.timestamp;
        TEST = msg.sender;
        foldVault(address(vault), address(controller), opening);
    }

    function setUp() public override {}

    function renterAt(uint256 i) public view returns (address) {
        return i % 4 == 3 ? address(odd) : address(uint160(0xAE0000 + i % 4));
    }

    function providerAt(uint256 i) public view returns (address) {
        return i % 3 == 2 ? address(odd) : address(uint160(0xBE0000 + i % 3));
    }

    function actions() public pure override returns (bytes4[] memory all) {
        all = new bytes4[](14);
        all[0] = this.enter.selector;
        all[1] = this.deposit.selector;
        all[2] = this.grant.selector;
        all[3] = this.revoke.selector;
        all[4] = this.thaw.selector;
        all[5] = this.withdraw.selector;
        all[6] = this.claim.selector;
        all[7] = this.claimAgain.selector;
        all[8] = this.cashOut.selector;
        all[9] = this.cashOutFees.selector;
        all[10] = this.register.selector;
        all[11] = this.replaceAuthority.selector;
        all[12] = this.wait_.selector;
        all[13] = this.turn.selector;
    }

    /// Whether the step's call reverted: then its logs never were.
    bool private _reverted;

    /// Folds the events of the step, and sees that nothing monotone fell in it.
    modifier watched() {
        vm.warp(_latest);
        uint256[22] memory before = _monotone();
        _reverted = false;
        vm.record();
        vm.recordLogs();
        _;
        foldVault(address(vault), address(controller), _happened(vm.getRecordedLogs()));
        remember(address(vault));
        uint256[22] memory afterwards = _monotone();
        for (uint256 i; i < before.length; ++i) {
            if (afterwards[i] < before[i]) fell = true;
        }
        _pass(_wait);
        _wait = 0;
    }

    function compareStorage() external view {
        sameStorage(address(vault));
    }

    /// The call by `who`: itself, with another's address behind it, or brought by the forwarder, in turn.
    function _does(address who, bytes memory data) private returns (bool done) {
        uint256 way = _turn++ % 3;
        if (way == 1) data = bytes.concat(data, bytes20(renterAt(_turn)));
        if (way == 2) data = bytes.concat(data, bytes20(who));
        vm.prank(way == 2 ? controller.trustedForwarder() : who);
        (done,) = address(vault).call(data);
        _reverted = !done;
        if (done) _did();
    }

    // -- what anybody may do

    function enter(uint256 r, uint64 amount, uint256 k, uint32 until) external watched {
        address who = renterAt(r);
        amount = _amount(amount);
        until = _until(until);
        address key = vm.addr(_key(r, k));
        (address old, uint64 balance, uint32 end) = vault.account(who);
        bool fine = (old != key || until >= end) && (amount == 0 || _takes(balance, amount));
        _purse(who, amount);
        bool done = _does(who, abi.encodeCall(IVault.enter, (amount, key, until)));
        yes(done == fine, "entered against the rules, or entering was refused");
    }

    function deposit(uint256 r, uint64 amount) external watched {
        address who = renterAt(r);
        amount = _amount(amount);
        bool fine = amount != 0 && _takes(balanceOf(who), amount);
        _purse(who, amount);
        bool done = _does(who, abi.encodeCall(IVault.deposit, (amount)));
        yes(done == fine, "deposited against the rules, or a deposit was refused");
    }

    function grant(uint256 r, uint256 k, uint64 cap, uint32 until) external watched {
        (cap, until) = (_amount(cap), _until(until));
        address key = vm.addr(_key(r, k));
        (address own,,) = vault.account(renterAt(r));
        (uint64 left, uint32 end, uint32 deadFrom, uint8 kind) = vault.keyOf(renterAt(r), key);
        bool alive = kind != 0 && deadFrom == 0;
        bool fine = own != key && deadFrom <= block.timestamp && (!alive || (cap >= left && until >= end));
        bool done = _does(renterAt(r), abi.encodeCall(IVault.grant, (key, cap, until)));
        yes(done == fine, "granted against the rules, or a grant was refused");
    }

    function revoke(uint256 r, uint256 k) external watched {
        address key = vm.addr(_key(r, k));
        (address own,,) = vault.account(renterAt(r));
        (,, uint32 deadFrom, uint8 kind) = vault.keyOf(renterAt(r), key);
        bool fine = own == key || (kind == 1 && deadFrom == 0);
        bool done = _does(renterAt(r), abi.encodeCall(IVault.revoke, (key)));
        yes(done == fine, "revoked against the rules, or a revocation was refused");
    }

    function thaw(uint256 r, uint64 amount) external watched {
        uint64 balance = balanceOf(renterAt(r));
        if (amount % 8 != 0) amount = uint64(within(amount, 0, balance));
        bool done = _does(renterAt(r), abi.encodeCall(IVault.thaw, (amount)));
        yes(done == (amount <= balance), "more than the balance thaws, or a thaw was refused");
        if (done && amount % 2 == 1) _wait = THAW_S;
    }

    function withdraw(uint256 r) external watched {
        address who = renterAt(r);
        (uint64 amount, uint40 readyAt) = vault.thawing(who);
        bool fine = amount != 0 && block.timestamp >= readyAt && balanceOf(who) != 0 && uint8(odd.mood()) <= uint8(Mood.Fee);
        bool done = _does(who, abi.encodeCall(IVault.withdraw, (PAYEE)));
        yes(done == fine, "withdrawn against the rules, or a withdrawal was refused");
    }

    function claim(uint256 p, uint256 r, uint64 more, uint64 used, uint256 k, uint8 path) external watched {
        (address to, address from) = (providerAt(p), renterAt(r));
        more = _amount(more);
        uint64 claimed = claimedOf(to, from);
        uint64 sum = more > type(uint64).max - claimed ? type(uint64).max : claimed + more;
        if (used % 4 != 0) used %= 2 ** 32 * 1000;
        Promise memory made;
        made.v = Voucher(from, to, sum, used, epoch, 1);
        made.item = sign(made.v, _key(r, k), _authorityKey);
        made.key = vm.addr(_key(r, k));
        made.authorityKey = _authorityKey;
        if (sum > signed[to][from]) signed[to][from] = sum;
        _promises[_promised++ % 8] = made;
        _submit(made, path);
    }

    /// An old voucher again: later, after a revocation, under a newer epoch.
    function claimAgain(uint256 which, uint8 path) external watched {
        if (_promised == 0) return;
        _submit(_promises[which % (_promised < 8 ? _promised : 8)], path);
    }

    function cashOut(uint256 p) external watched {
        (uint64 earned,, uint64 out) = vault.totals(providerAt(p));
        bool fine = earned > out && uint8(odd.mood()) <= uint8(Mood.Fee);
        bool done = _does(address(uint160(p)), abi.encodeCall(IVault.cashOut, (providerAt(p))));
        yes(done == fine, "cashed out against the rules, or a cash-out was refused");
    }

    function cashOutFees(uint32 which, bool byOwner) external watched {
        which = uint32(within(which, 0, epoch + 1)); // also epochs that never were
        bool fine = byOwner && vault.feesOf(which) != 0 && uint8(odd.mood()) <= uint8(Mood.Fee);
        bool done = _does(byOwner ? owner : authority, abi.encodeCall(IVault.cashOutFees, (which, PAYEE)));
        yes(done == fine, "fees went out against the rules, or fees were refused");
    }

    /// A provider joins the registry: from now on delegated keys pay it.
    function register(uint256 p) external watched {
        if (controller.payoutOf(providerAt(p)) != address(0)) return;
        if (odd.mood() != Mood.Honest) return;
        odd.mint(providerAt(p), MIN_STAKE);
        odd.allow(providerAt(p), address(controller));
        vm.prank(providerAt(p));
        controller.registerProvider(providerAt(p), MIN_STAKE);
        _did();
    }

    function replaceAuthority() external watched {
        _authorityKey += 1;
        replace(_authorityKey);
        epoch += 1;
        _did();
    }

    function wait_(uint32 seconds_) external watched {
        _did();
        if (seconds_ % 64 == 0) _pass(END);
        else _pass(within(seconds_, 1, 4 days));
    }

    function turn(uint8 mood, uint8 call_, uint64 amount) external watched {
        bytes memory data;
        if (call_ % 7 == 0) data = abi.encodeCall(IVault.deposit, (_amount(amount)));
        if (call_ % 7 == 1) data = abi.encodeCall(IVault.withdraw, (PAYEE));
        if (call_ % 7 == 2) data = abi.encodeCall(IVault.cashOut, (address(odd)));
        if (call_ % 7 == 3) data = abi.encodeCall(IVault.enter, (_amount(amount), vm.addr(_key(3, amount)), UNTIL));
        if (call_ % 7 == 4) data = abi.encodeCall(IVault.thaw, (balanceOf(address(odd))));
        if (call_ % 7 == 5) data = abi.encodeCall(IVault.revoke, (vm.addr(_key(3, amount))));
        if (call_ % 7 == 6) {
            Promise storage old = _promises[amount % 8];
            data = abi.encodeCall(IVault.claim, (old.v.provider, one(old.item)));
        }
        _did();
        _purse(address(odd), type(uint64).max);
        // Honest half of the time: a world where nothing succeeds shows nothing.
        odd.turn(mood % 2 == 0 ? Mood.Honest : Mood(mood / 2 % 6), address(vault), data);
    }

    // -- the end: everybody gets out, whatever was done before

    function exitAll() external {
        if (msg.sender != TEST) return;
        vm.warp(_latest);
        odd.turn(Mood.Honest, address(0), "");
        for (uint256 i; i < 8; ++i) {
            if (_promises[i].key != address(0)) _submit(_promises[i], uint8(i));
        }
        for (uint256 i; i < 4; ++i) {
            uint64 all = balanceOf(renterAt(i));
            vm.prank(renterAt(i));
            if (all != 0) vault.thaw(all);
            else vault.thaw(0);
        }
        vm.warp(_latest + THAW_S);
        for (uint256 i; i < 4; ++i) {
            uint64 all = balanceOf(renterAt(i));
            if (all == 0) continue;
            vm.prank(renterAt(i));
            vault.withdraw(PAYEE);
        }
        for (uint256 i; i < 3; ++i) {
            (uint64 earned,, uint64 out) = vault.totals(providerAt(i));
            if (earned != out) vault.cashOut(providerAt(i));
        }
        for (uint32 i = 1; i <= epoch; ++i) {
            if (vault.feesOf(i) == 0) continue;
            vm.prank(owner);
            vault.cashOutFees(i, PAYEE);
        }
    }

    // -- inside

    function _submit(Promise memory it, uint8 path) private {
        Voucher memory v = it.v;
        bool aggregated = path % 3 == 1;
        uint64 want = _pays(it, aggregated);
        uint64 before = claimedOf(v.provider, v.renter);
        (uint64 earned, uint64 fee,) = vault.totals(v.provider);
        uint64 kept = uint64(uint256(before + want) * FEE_BPS / 10_000 - uint256(before) * FEE_BPS / 10_000);
        bool fits = uint256(earned) + want - kept <= type(uint64).max && uint256(fee) + kept <= type(uint64).max;
        bytes memory data;
        if (aggregated) {
            Item[] memory items = new Item[](1);
            items[0] = single(it.item);
            (bytes32 ar, bytes32 avs) = batch(v.provider, epoch, items, _authorityKey);
            data = abi.encodeCall(IVault.claimAggregated, (v.provider, epoch, ar, avs, items));
        } else if (path % 3 == 2) {
            ProviderItems[] memory many = new ProviderItems[](2);
            many[0] = ProviderItems(v.provider, one(it.item));
            many[1] = many[0];
            data = abi.encodeCall(IVault.claimMany, (many));
            if (want != 0 && want < v.cumulative - before) return; // the second time may find another cap: not modelled
        } else {
            data = abi.encodeCall(IVault.claim, (v.provider, one(it.item)));
        }
        (bool done,) = address(vault).call(data);
        _reverted = !done;
        yes(done == fits, "a claim reverts only where a total would pass 64 bits");
        same(claimedOf(v.provider, v.renter) - before, done ? want : 0, "what a claim pays");
        if (claimedOf(v.provider, v.renter) != before) _did();
    }

    /// What IVault says that a voucher pays now.
    function _pays(Promise memory it, bool aggregated) private view returns (uint64 paid) {
        Voucher memory v = it.v;
        (address own, uint64 balance, uint32 until) = vault.account(v.renter);
        uint64 before = claimedOf(v.provider, v.renter);
        (address signer, uint32 validUntil) = vault.authorityOf(v.epoch);
        if (v.cumulative <= before) return 0;
        if (!aggregated && (signer != vm.addr(it.authorityKey) || block.timestamp > validUntil)) return 0;
        paid = v.cumulative - before < balance ? v.cumulative - before : balance;
        if (it.key == own && v.usedThroughMs <= uint256(until) * 1000) return paid;
        (uint64 cap, uint32 end, uint32 deadFrom, uint8 kind) = vault.keyOf(v.renter, it.key);
        if (kind == 0 || v.usedThroughMs > uint256(end) * 1000) return 0;
        if (deadFrom != 0 && block.timestamp >= deadFrom) return 0;
        if (kind == 1 && controller.payoutOf(v.provider) == address(0)) return 0;
        if (kind == 1 && paid > cap) return cap;
    }

    function _takes(uint64 balance, uint64 amount) private view returns (bool) {
        Mood mood = odd.mood();
        if (mood == Mood.Fee) return amount / 100 == 0 && uint256(balance) + amount <= type(uint64).max;
        if (uint8(mood) > uint8(Mood.Fee)) return false;
        return uint256(balance) + amount <= type(uint64).max;
    }

    /// Mostly money, sometimes any 64 bits.
    function _amount(uint64 x) private pure returns (uint64) {
        return x % 4 == 0 ? x : uint64(within(x, 0, 1000e6));
    }

    /// Mostly in reach, sometimes any 32 bits.
    function _until(uint32 x) private view returns (uint32) {
        return x % 4 == 0 ? x : uint32(within(x, _latest, type(uint32).max > _latest ? type(uint32).max : _latest));
    }

    /// The logs without those of calls that reverted.
    function _happened(Vm.Log[] memory logs) private view returns (Vm.Log[] memory kept) {
        kept = new Vm.Log[](_reverted ? 0 : logs.length);
        uint256 count;
        uint256 hookAt;
        for (uint256 i; i < kept.length; ++i) {
            if (logs[i].topics[0] == WildToken.HookBegan.selector) hookAt = count;
            if (logs[i].topics[0] == WildToken.HookEnded.selector && !abi.decode(logs[i].data, (bool))) count = hookAt;
            kept[count++] = logs[i];
        }
        assembly ("memory-safe") {
            mstore(kept, count)
        }
    }

    function _purse(address who, uint256 amount) private {
        odd.mint(who, amount);
        odd.allow(who, address(vault));
    }

    function _key(uint256 r, uint256 k) private pure returns (uint256) {
        return KEYS_FROM + r % 4 * 16 + k % 3;
    }

    function _pass(uint256 seconds_) private {
        _latest = _latest + seconds_ < END ? _latest + seconds_ : END;
        vm.warp(_latest);
    }

    function _monotone() private view returns (uint256[22] memory all) {
        for (uint256 p; p < 3; ++p) {
            (all[p * 7], all[p * 7 + 1], all[p * 7 + 2]) = vault.totals(providerAt(p));
            for (uint256 r; r < 4; ++r) {
                all[p * 7 + 3 + r] = claimedOf(providerAt(p), renterAt(r));
            }
        }
        all[21] = controller.epoch();
    }
}
