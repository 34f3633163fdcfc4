// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Courts, VaultDouble} from "../utils/Courts.sol";
import {CourtReplay} from "../utils/CourtReplay.sol";
import {Owed, Shown, SignedHead, SignedPromise} from "../../src/interfaces/ICourt.sol";
import {Item2} from "../../src/interfaces/IVault.sol";
import {Court} from "../../src/Court.sol";
import {TestToken} from "../../src/TestToken.sol";

/// Three authorities, each of an epoch of its own, who lie in every way, are accused and sometimes answer.
contract CourtMoneyHandler is Courts, CourtReplay {
    /// How often money left a bond for a case: by the bond's fall, not by the court's word.
    mapping(bytes32 => uint256) public punished;
    bool public twice;
    bytes32[] private _cases;
    uint256 private _latest;

    constructor(Court court_, VaultDouble vault_, TestToken token_) {
        (court, vault, token) = (court_, vault_, token_);
        _latest = block.timestamp;
        for (uint256 i; i < 3; ++i) {
            vault.setAuthority(uint32(i + 1), authorityAt(i), PRESENT);
            vault.setKey(address(0xAE0000), session, UNTIL, 0, 1);
            vault.setKey(address(0xAE0001), session, UNTIL, 0, 1);
        }
    }

    function setUp() public override {}

    function authorityAt(uint256 i) public pure returns (address) {
        return vm.addr(_key(i));
    }

    function personAt(uint256 i) public pure returns (address) {
        return i % 5 < 3 ? authorityAt(i % 5) : address(uint160(0xAE0000 + i % 5 - 3));
    }

    modifier watched() {
        vm.warp(_latest);
        vm.record();
        vm.recordLogs();
        _;
        foldCourt(address(court), vm.getRecordedLogs());
        remember(address(court));
    }

    function compareStorage() external view {
        sameStorage(address(court));
    }

    function bond(uint256 i, uint64 amount) external watched {
        stake(personAt(i), uint64(within(amount, 1, 3 * PENALTY)));
    }

    function unbond(uint256 i, uint64 amount) external watched {
        uint64 free = court.bondOf(personAt(i)).bond - court.bondOf(personAt(i)).unbonding;
        if (free == 0) return;
        vm.prank(personAt(i));
        court.unbond(uint64(within(amount, 1, free)));
    }

    function withdraw(uint256 i) external watched {
        vm.prank(personAt(i));
        try court.withdrawBond(address(0xD1)) {} catch {}
    }

    function collect(uint256 i) external watched {
        vm.prank(personAt(i));
        try court.collect(address(0xD2)) {} catch {}
    }

    function wait_(uint32 seconds_) external watched {
        _latest += within(seconds_, 1, 2 days);
    }

    function twoHeads(uint256 i, uint64 size, bytes32 x, bytes32 y) external watched {
        uint32 epoch = uint32(i % 3 + 1);
        SignedHead memory one = sign(SignedHead(size, x, y, epoch, 1, 0, 0), _key(i));
        SignedHead memory other = sign(SignedHead(size, y, x, epoch, 2, 0, 0), _key(i));
        uint64 before = bondOf(authorityAt(i));
        try court.proveTwoHeads(one, other) {
            _count(keccak256(abi.encode(uint8(1), epoch)), i, before);
        } catch {}
    }

    function brokenPromise(uint256 i, uint8 seq, uint256 to) external watched {
        uint32 epoch = uint32(i % 3 + 1);
        bytes32[] memory leaves = some(4, 1);
        SignedHead memory head = sign(SignedHead(4, rootOf(leaves), 0, epoch, 1, 0, 0), _key(i));
        address who = personAt(to);
        SignedPromise memory promised = sign(SignedPromise(who, seq % 4, "leaf", epoch, 1, 0, 0), _key(i));
        uint64 before = bondOf(authorityAt(i));
        try court.proveBrokenPromise(promised, head, leaves[seq % 4], pathOf(leaves, seq % 4)) {
            _count(keccak256(abi.encode(uint8(2), epoch, who, uint64(seq % 4))), i, before);
        } catch {}
    }

    function overPromise(uint256 i, uint256 r, uint64 amount) external watched {
        (Item2 memory item,) = _voucher(i, r, amount);
        Owed[] memory owed = new Owed[](1);
        address to = personAt(r / 2);
        owed[0] = Owed(to, resign(to, item, SESSION_KEY, _key(i)));
        uint64 before = bondOf(authorityAt(i));
        try court.proveOverPromise(owed) {
            _count(keccak256(abi.encode(uint8(3), uint32(i % 3 + 1), renter)), i, before);
        } catch {}
    }

    function accuse(uint256 i, uint256 r, uint64 amount) external watched {
        (Item2 memory item, bytes32 case_) = _voucher(i, r, within(amount, 1, 4));
        fund(personAt(r), DEPOSIT);
        vm.prank(personAt(r));
        try court.accuseOverBill(provider, item) {
            _cases.push(case_);
        } catch {}
    }

    function answer(uint256 i, uint256 r, uint64 amount) external watched {
        (, bytes32 case_) = _voucher(i, r, within(amount, 1, 4));
        delete _log;
        enterEffect(voucherDue(renter, provider, uint64(within(amount, 1, 4))));
        bytes32 root = rootOf(logLeaves());
        SignedHead memory head = sign(SignedHead(1, root, 0, uint32(i % 3 + 1), 1, 0, 0), _key(i));
        bool open = court.caseOf(case_).state == 1;
        Shown memory shown = show(0, 0);
        try court.answerOverBill(uint64(within(amount, 1, 4)), head, shown) {
            yes(open, "answered what nobody asked");
        } catch {
            yes(!open, "an answer was refused");
        }
    }

    function convict(uint256 which) external watched {
        if (_cases.length == 0) return;
        bytes32 case_ = _cases[which % _cases.length];
        address accused = court.caseOf(case_).authority;
        for (uint256 i; i < 3; ++i) {
            if (authorityAt(i) != accused) continue;
            uint64 before = bondOf(accused);
            try court.convict(case_) {
                _count(case_, i, before);
            } catch {}
        }
    }

    /// Everything there is, in one sum.
    function held() external view returns (uint256 sum) {
        for (uint256 i; i < 5; ++i) {
            address who = personAt(i);
            sum += bondOf(who) + court.credit(who) + uint256(court.bondOf(who).open) * DEPOSIT;
        }
        sum += court.credit(provider) + court.burnt();
    }

    function _key(uint256 i) private pure returns (uint256) {
        return AUTHORITY_KEY + i % 3;
    }

    function _voucher(uint256 i, uint256 r, uint256 amount) private returns (Item2 memory item, bytes32 case_) {
        renter = address(uint160(0xAE0000 + r % 2));
        item.a = uint256(uint160(renter)) << 96 | uint256(uint64(amount)) << 32 | (i % 3 + 1);
        item.b = uint256(uint64(_latest * 1000)) << 64;
        item = resign(provider, item, SESSION_KEY, _key(i));
        case_ = keccak256(abi.encode(uint8(4), authorityAt(i), renter, provider, uint64(amount)));
    }

    function _count(bytes32 case_, uint256 i, uint64 before) private {
        if (punished[case_] != 0) twice = true;
        punished[case_] += before - bondOf(authorityAt(i)) + 1;
        yes(court.caseOf(case_).state == 2, "punished");
    }
}
