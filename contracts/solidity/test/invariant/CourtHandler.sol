// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Acting} from "../utils/Campaign.sol";
import {Courts} from "../utils/Courts.sol";
import {Leaves, SignedHead, SignedPromise, SignedReport} from "../../src/interfaces/ICourt.sol";
import {Controller} from "../../src/Controller.sol";
import {Court} from "../../src/Court.sol";
import {TestToken} from "../../src/TestToken.sol";
import {Vault} from "../../src/Vault.sol";

/// Authorities and a node that keep to the rules, in whatever order they sign, anchor and hand over. An attacker brings what
/// they signed against them: as it is, with any part changed, and signed by keys of its own. And from every state that is
/// reached, one lie of the present authority or of the node convicts.
contract CourtHandler is Courts, Acting {
    uint256 private constant LONGEST = 20;
    uint256 private constant ATTACKER_KEY = 0xA77AC4;

    bytes32[] private _log;
    uint32 private _epoch = 1;
    uint256 private _key = AUTHORITY_KEY;
    SignedHead[] private _heads;
    SignedPromise[] private _promises;
    Report[] private _reports;
    address[] private _owners;
    uint64 private _number;
    /// Honest statements convicted somebody.
    bool public wronged;

    constructor(TestToken token_, Controller controller_, Vault vault_, address provider_) {
        (token, controller, vault, court) = (token_, controller_, vault_, Court(controller_.court()));
        provider = provider_;
        _log = some(3, 7);
        _owners.push(controller.owner());
        _heads.push(headOf(_log, 3, 1, _key));
        _promises.push(promiseOf(1, _log[1], 1, _key));
        _reports.push(_next("first"));
    }

    function setUp() public override {}

    function actions() public pure override returns (bytes4[] memory all) {
        all = new bytes4[](13);
        all[0] = this.append.selector;
        all[1] = this.signHead.selector;
        all[2] = this.signPromise.selector;
        all[3] = this.anchorLog.selector;
        all[4] = this.report_.selector;
        all[5] = this.nextAuthority.selector;
        all[6] = this.passPool.selector;
        all[7] = this.accuseByHeads.selector;
        all[8] = this.accuseByPromise.selector;
        all[9] = this.accuseByReports.selector;
        all[10] = this.lieInAHead.selector;
        all[11] = this.lieInAPromise.selector;
        all[12] = this.lieInAReport.selector;
    }

    function ownerAt(uint256 i) external view returns (address) {
        return i < _owners.length ? _owners[i] : address(0);
    }

    // -- who keeps to the rules

    function append(uint256 seed) external {
        if (_log.length < LONGEST) _log.push(leafHash(abi.encode(seed, _log.length)));
        _did();
    }

    function signHead(uint256 size, uint64 term) external {
        SignedHead memory head = headOf(_log, within(size, 1, _log.length), _epoch, _key);
        head.term = term;
        _heads.push(sign(head, _key));
        _did();
    }

    function signPromise(uint256 seq) external {
        seq = within(seq, 0, _log.length - 1);
        _promises.push(promiseOf(uint64(seq), _log[seq], _epoch, _key));
        _did();
    }

    function anchorLog() external {
        (, uint64 size,,) = controller.head();
        if (_log.length == size) _log.push(leafHash(abi.encode(_log.length)));
        anchor(_log, _log.length);
        _did();
    }

    function report_(uint256 seed) external {
        _reports.push(_next(abi.encode(seed)));
        _did();
    }

    function nextAuthority() external {
        (_key, _epoch) = (_key + 1, _epoch + 1);
        replace(_key);
        _did();
    }

    function passPool() external {
        address next = address(uint160(0x0E0000) + _epoch);
        (_key, _epoch) = (_key + 1, _epoch + 1);
        (, uint64 size,,) = controller.head();
        bytes32 root = size == 0 ? bytes32(0) : rootOf(upTo(_log, size));
        handOver(next, _key, root, stateOf(root));
        _owners.push(next);
        _did();
    }

    // -- who would convict them

    function accuseByHeads(uint256 i, uint256 j, uint256 place, uint256 how) external {
        SignedHead memory one_ = _some(i);
        SignedHead memory other = _some(j);
        uint256 least = one_.size < other.size ? one_.size : other.size;
        uint64 index = uint64(within(place, 0, least - 1));
        Leaves memory leaves = leavesAt(index, upTo(_log, one_.size), upTo(_log, other.size));
        uint256 kind = how % 9;
        how /= 9;
        if (kind == 1) leaves.leafOfOther = bytes32(how);
        if (kind == 2) leaves.leafOfOne = bytes32(how);
        if (kind == 3) {
            other.root = bytes32(how);
            other = sign(other, ATTACKER_KEY);
        }
        if (kind == 4) other.epoch = uint32(how);
        if (kind == 5) (other.r, other.vs) = (0, 0);
        if (kind == 6) (one_.r, one_.vs) = (0, 0);
        if (kind == 7) leaves.index = uint64(how);
        if (kind == 8) other.digest = bytes32(how);
        try court.proveFork(one_, other, leaves, PAYEE) {
            wronged = true;
        } catch {
            _did();
        }
    }

    function accuseByPromise(uint256 i, uint256 j, uint256 how) external {
        SignedPromise memory promised = _promises[i % _promises.length];
        SignedHead memory head = _some(j);
        if (head.size <= promised.seq) head = headOf(_log, _log.length, _epoch, _key);
        bytes32[] memory path = pathOf(upTo(_log, head.size), promised.seq);
        bytes32 leaf = how % 2 == 0 ? promised.leaf : bytes32(how);
        if (how % 5 == 1) {
            promised.leaf = bytes32(how);
            promised = sign(promised, ATTACKER_KEY);
        }
        if (how % 5 == 2) promised.epoch = uint32(how);
        if (how % 5 == 3) promised.seq ^= 1;
        try court.proveBrokenPromise(promised, head, leaf, path, PAYEE) {
            wronged = true;
        } catch {
            _did();
        }
    }

    function accuseByReports(uint256 i, uint256 j, uint256 how) external {
        Report memory x = _reports[i % _reports.length];
        Report memory y = _reports[j % _reports.length];
        SignedReport memory other = sign(y);
        if (how % 5 == 1) y.seq = x.seq;
        if (how % 5 == 2) y.rest = abi.encode(how);
        if (how % 5 == 3) {
            y = _reports[i % _reports.length];
            y.rest = "forged";
        }
        if (how % 5 == 1 || how % 5 == 2) other.report = bytesOf(y);
        if (how % 5 == 3) other = sign(bytesOf(y), ATTACKER_KEY);
        try court.proveTwoReports(sign(x), other, PAYEE) {
            wronged = true;
        } catch {
            _did();
        }
    }

    /// Any head that was signed, or any anchor that stands.
    function _some(uint256 i) private view returns (SignedHead memory) {
        uint32 epoch = uint32(i % (_epoch + 3));
        uint64 size = controller.epochOf(epoch).size;
        if (epoch != 0 && epoch <= _epoch && size != 0) return anchored(_log, size, epoch);
        return _heads[i % _heads.length];
    }

    function _next(bytes memory rest) private returns (Report memory x) {
        x = report(rest);
        x.seq = _number++;
        x.epoch = _epoch;
    }

    // -- who lies is convicted, whatever came before; then it is as if nobody had lied

    function lieInAHead(uint256 size, uint256 place, uint256 against) external {
        uint256 here = vm.snapshotState();
        SignedHead memory truth_ = _true(against);
        bytes32[] memory told = upTo(_log, within(size, 1, _log.length));
        uint256 least = truth_.size < told.length ? truth_.size : told.length;
        uint64 index = uint64(within(place, 0, least - 1));
        bytes32[] memory known = upTo(_log, truth_.size);
        told[index] = leafHash(abi.encode("lie", place));
        SignedHead memory lie_ = headOf(told, told.length, _epoch, _key);
        court.proveFork(truth_, lie_, leavesAt(index, known, told), PAYEE);
        _convicts(here);
    }

    function lieInAPromise(uint256 place, uint256 against) external {
        uint256 here = vm.snapshotState();
        SignedHead memory truth_ = _true(against);
        uint64 index = uint64(within(place, 0, truth_.size - 1));
        SignedPromise memory lie_ = promiseOf(index, leafHash(abi.encode("lie", place)), _epoch, _key);
        court.proveBrokenPromise(lie_, truth_, _log[index], pathOf(upTo(_log, truth_.size), index), PAYEE);
        _convicts(here);
    }

    function lieInAReport(uint256 which) external {
        uint256 here = vm.snapshotState();
        Report memory x = _reports[which % _reports.length];
        Report memory y = _reports[which % _reports.length];
        y.rest = bytes.concat(y.rest, "lie");
        court.proveTwoReports(sign(y), sign(x), PAYEE);
        (, uint64 stake,,) = controller.provider(provider);
        same(stake, 0, "a lying node costs its provider the stake");
        vm.revertToState(here);
        _did();
    }

    /// What holds the present authority: a head of its own, the anchor of its epoch, or of the one before.
    function _true(uint256 against) private view returns (SignedHead memory) {
        uint32 epoch = _epoch - uint32(against % 2);
        uint64 size = epoch == 0 ? 0 : controller.epochOf(epoch).size;
        if (against % 3 != 0 && size != 0) return anchored(_log, size, epoch);
        return headOf(_log, _log.length, _epoch, _key);
    }

    function _convicts(uint256 here) private {
        yes(court.convicted(_epoch), "a liar is convicted");
        same(kept(controller.owner()), 0, "and loses its bond");
        vm.revertToState(here);
        _did();
    }
}
