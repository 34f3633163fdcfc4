// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Blueprints} from "../utils/Blueprints.sol";
import {Courts} from "../utils/Courts.sol";
import {Owed, Shown, SignedHead} from "../../src/interfaces/ICourt.sol";
import {Item2} from "../../src/interfaces/IVault.sol";
import {TestToken} from "../../src/TestToken.sol";
import {Vault} from "../../src/Vault.sol";

/// Two renters, two honest providers who may sleep through a withdrawal, a third one in league with the renters, and
/// authorities that keep to the rules in ICourt; each turns bad the moment it has passed on, and signs whatever the
/// renters like while its grace lasts. After anything, everybody tries to convict the present one.
contract CourtHonestHandler is Courts {
    uint32 private constant THAW_S = 3 days;
    uint32 private constant GRACE_S = 1 days;
    uint256 private constant RENTER_KEYS = 0xCE0000;
    address private constant SYBIL = address(0xBE0009);

    Vault private immutable REAL;
    uint32 private _epoch = 1;
    uint256 private _latest;
    /// Provider to renter to the highest countersigned total, its voucher, and whether a delegated key signed it.
    mapping(address => mapping(address => uint64)) private _signed;
    mapping(address => mapping(address => Item2)) private _vouchers;
    mapping(address => mapping(address => bool)) private _byDelegate;
    mapping(address => uint256) private _turn;
    /// What went wrong, if anything.
    string public wrong;
    /// How often evidence was tried, so that a test can see that it was.
    uint256 public tried;
    uint256 public answered;

    constructor(TestToken token_) {
        token = token_;
        REAL = new Vault(address(this), address(token), _authority(1), 200, THAW_S, FORWARDER);
        court = make(CONTROLLER, address(REAL), address(token), Blueprints.reader());
        _latest = block.timestamp;
        stake(_authority(1), BOND);
        for (uint256 i; i < 2; ++i) {
            _enter(_renter(i), 100e6);
            vm.prank(_renter(i));
            REAL.grant(vm.addr(_key(_renter(i), true)), type(uint64).max, type(uint32).max);
        }
    }

    function setUp() public override {}

    function _renter(uint256 i) private pure returns (address) {
        return address(uint160(0xAE0000 + i % 2));
    }

    function _provider(uint256 i) private pure returns (address) {
        return address(uint160(0xBE0000 + i % 2));
    }

    function _authority(uint32 epoch) private pure returns (address) {
        return vm.addr(AUTHORITY_KEY + epoch);
    }

    function _key(address who, bool delegated) private view returns (uint256) {
        return RENTER_KEYS + uint256(uint160(who)) % 2 * 1000 + (delegated ? 500 : 0) + _turn[who];
    }

    modifier watched() {
        vm.warp(_latest);
        _;
        _prosecute(0);
        _prosecute(1);
    }

    // -- what anybody may do

    function deposit(uint256 r, uint64 amount) external watched {
        _enter(_renter(r), uint64(within(amount, 1, 300e6)));
    }

    function rotate(uint256 r) external watched {
        address who = _renter(r);
        _turn[who] += 1;
        _enter(who, 0);
        vm.prank(who);
        REAL.grant(vm.addr(_key(who, true)), type(uint64).max, type(uint32).max);
    }

    /// A delegated key that becomes the renter's own.
    function adopt(uint256 r) external watched {
        address who = _renter(r);
        vm.prank(who);
        REAL.enter(0, vm.addr(_key(who, true)), type(uint32).max);
    }

    /// The own key again, after whatever happened to it.
    function takeUpAgain(uint256 r) external watched {
        _enter(_renter(r), 0);
    }

    function revoke(uint256 r, bool delegated) external watched {
        vm.prank(_renter(r));
        try REAL.revoke(vm.addr(_key(_renter(r), delegated))) {} catch {}
    }

    function use(uint256 p, uint256 r, uint64 amount, bool delegated) external watched {
        (address to, address from) = (_provider(p), _renter(r));
        uint64 more = uint64(within(amount, 0, _free(from)));
        if (more == 0) return;
        _signed[to][from] += more;
        _byDelegate[to][from] = delegated;
        _vouchers[to][from] = _sign(to, from, _signed[to][from], _key(from, delegated), _epoch);
    }

    function claim(uint256 p, uint256 r) external watched {
        _claim(_provider(p), _vouchers[_provider(p)][_renter(r)]);
    }

    function thaw(uint256 r, uint64 amount) external watched {
        (, uint64 balance,) = REAL.account(_renter(r));
        vm.prank(_renter(r));
        REAL.thaw(uint64(within(amount, 0, balance)));
    }

    /// The providers sleep: nobody sweeps before it.
    function withdraw(uint256 r) external watched {
        (uint64 amount, uint40 readyAt) = REAL.thawing(_renter(r));
        if (amount == 0) return;
        if (readyAt > _latest) vm.warp(_latest = readyAt);
        vm.prank(_renter(r));
        REAL.withdraw(_renter(r));
    }

    function passAuthority() external watched {
        _epoch += 1;
        REAL.authorityPassed(_epoch, _authority(_epoch), uint40(block.timestamp + GRACE_S));
        stake(_authority(_epoch), BOND);
    }

    /// The one before drains a renter, with the renter's own hand, for a provider of theirs.
    function drain(uint256 r, uint64 amount) external watched {
        if (_epoch == 1) return;
        address from = _renter(r);
        (uint64 claimed,) = REAL.pair(SYBIL, from);
        uint64 total = claimed + uint64(within(amount, 1, 100e6));
        _claim(SYBIL, _sign(SYBIL, from, total, _key(from, false), _epoch - 1));
    }

    function wait_(uint32 seconds_) external watched {
        vm.warp(_latest += within(seconds_, 1, 2 days));
    }

    /// A delegated voucher is accused: it is due, so it is answered at once.
    function accuse(uint256 p, uint256 r) external watched {
        (address to, address from) = (_provider(p), _renter(r));
        Item2 memory item = _vouchers[to][from];
        if (item.a == 0) return;
        fund(ANYBODY, DEPOSIT);
        vm.prank(ANYBODY);
        try court.accuseOverBill(to, item) {
            if (!_byDelegate[to][from]) wrong = "an own key was taken for a delegated one";
        } catch {
            return;
        }
        delete _log;
        enterEffect(voucherDue(from, to, _signed[to][from]));
        uint32 epoch = uint32(item.a);
        SignedHead memory head = SignedHead(1, rootOf(logLeaves()), 0, epoch, 1, 0, 0);
        Shown memory shown = show(0, 0);
        court.answerOverBill(uint64(item.a >> 32), sign(head, AUTHORITY_KEY + epoch), shown);
        answered += 1;
    }

    // -- inside

    function _enter(address who, uint64 amount) private {
        token.mint(who, amount);
        vm.prank(who);
        token.approve(address(REAL), type(uint256).max);
        address key = vm.addr(_key(who, false));
        vm.prank(who);
        REAL.enter(amount, key, type(uint32).max);
    }

    /// The honest log's rule: what is not promised of balance less thawing.
    function _free(address from) private view returns (uint64) {
        (uint256 promised,) = REAL.thawing(from);
        for (uint256 i; i < 2; ++i) {
            (uint64 claimed,) = REAL.pair(_provider(i), from);
            promised += _signed[_provider(i)][from] - claimed;
        }
        (, uint64 balance,) = REAL.account(from);
        return promised >= balance ? 0 : uint64(balance - promised);
    }

    function _sign(address to, address from, uint64 total, uint256 key, uint32 epoch)
        private
        view
        returns (Item2 memory item)
    {
        item.a = uint256(uint160(from)) << 96 | uint256(total) << 32 | epoch;
        item.b = uint256(uint64(block.timestamp * 1000)) << 64 | 1;
        bytes32 digest = REAL.voucherDigest(to, item.a, item.b);
        (item.r, item.vs) = compact(key, digest);
        (item.ar, item.avs) = compact(AUTHORITY_KEY + epoch, digest);
    }

    function _claim(address to, Item2 memory item) private {
        Item2[] memory items = new Item2[](1);
        items[0] = item;
        if (item.a != 0) REAL.claim(to, items);
    }

    /// Every set of the newest vouchers of a renter.
    function _prosecute(uint256 r) private {
        for (uint256 set = 1; set < 4; ++set) {
            Owed[] memory owed = new Owed[](set == 3 ? 2 : 1);
            for (uint256 i; i < owed.length; ++i) {
                address to = _provider(set == 2 ? 1 : i);
                owed[i] = Owed(to, _vouchers[to][_renter(r)]);
            }
            tried += 1;
            try court.proveOverPromise(owed) {
                wrong = "an honest authority was convicted of an over-promise";
            } catch {}
        }
    }
}
