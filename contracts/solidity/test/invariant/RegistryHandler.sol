// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Acting} from "../utils/Campaign.sol";
import {Courts} from "../utils/Courts.sol";
import {ControllerTwin, CourtTwin} from "../utils/Twins.sol";
import {Vm} from "../utils/Vm.sol";
import {ComponentKind, IController} from "../../src/interfaces/IController.sol";
import {Bond, ICourt, SignedHead} from "../../src/interfaces/ICourt.sol";
import {Controller} from "../../src/Controller.sol";
import {Court} from "../../src/Court.sol";
import {TestToken} from "../../src/TestToken.sol";
import {Vault} from "../../src/Vault.sol";

/// Four people, the owner and the authority do with registry and court whatever they may, and some of what they may not.
contract RegistryHandler is Courts, Acting {
    uint256 private constant NODE_KEYS = 0x40DE00;

    /// The epoch fell, or the anchored size where no owner disowned anchors.
    bool public fell;
    /// Somebody took over whom nobody had named, or before the silence was over.
    bool public rushed;
    /// An act of the owner or of the authority was taken from somebody else.
    bool public usurped;
    /// Whom the node's own key named last; zero once that provider let it go.
    mapping(address => address) public named;
    uint256 private _authorityKey = AUTHORITY_KEY;
    uint256 private _latest;
    uint256 private _seen;
    uint256 private _turn;
    /// Standby to the owner's number that named it.
    mapping(address => uint256) private _namedBy;
    uint256 private _owners = 1;
    bool private _reverted;
    bool private _disowned;
    ControllerTwin private _controllerTwin = new ControllerTwin();
    CourtTwin private _courtTwin = new CourtTwin();

    constructor(TestToken token_, Controller controller_, Vault vault_, Vm.Log[] memory opening) {
        (token, controller, vault, court) = (token_, controller_, vault_, Court(controller_.court()));
        (_latest, _seen) = (block.timestamp, block.timestamp);
        _controllerTwin.fold(address(controller), opening);
    }

    function setUp() public override {}

    function actions() public pure override returns (bytes4[] memory all) {
        all = new bytes4[](24);
        all[0] = this.registerProvider.selector;
        all[1] = this.setPayout.selector;
        all[2] = this.unbond.selector;
        all[3] = this.withdrawStake.selector;
        all[4] = this.registerNode.selector;
        all[5] = this.retireNode.selector;
        all[6] = this.setOffer.selector;
        all[7] = this.closeOffer.selector;
        all[8] = this.registerComponent.selector;
        all[9] = this.anchor.selector;
        all[10] = this.replaceAuthority.selector;
        all[11] = this.announce.selector;
        all[12] = this.accept.selector;
        all[13] = this.disown.selector;
        all[14] = this.setStandby.selector;
        all[15] = this.renew.selector;
        all[16] = this.takeOver.selector;
        all[17] = this.setLicence.selector;
        all[18] = this.putBond.selector;
        all[19] = this.askBond.selector;
        all[20] = this.takeBond.selector;
        all[21] = this.convict.selector;
        all[22] = this.condemn.selector;
        all[23] = this.wait_.selector;
    }

    function personAt(uint256 i) public view returns (address) {
        if (i % 6 == 4) return controller.authority();
        return i % 6 == 5 ? controller.owner() : person(i);
    }

    function person(uint256 i) public pure returns (address) {
        return address(uint160(0xAE0000 + i % 4));
    }

    function nodeAt(uint256 i) public pure returns (address) {
        return vm.addr(NODE_KEYS + i % 3);
    }

    modifier watched() {
        vm.warp(_latest);
        (uint32 epoch, uint64 size,,) = controller.head();
        (_reverted, _disowned) = (false, false);
        vm.record();
        vm.recordLogs();
        _;
        Vm.Log[] memory logs = vm.getRecordedLogs();
        if (!_reverted) {
            _controllerTwin.fold(address(controller), logs);
            _courtTwin.fold(address(court), logs);
        }
        _controllerTwin.note(address(controller));
        _courtTwin.note(address(court));
        (uint32 epochAfter, uint64 sizeAfter,,) = controller.head();
        if (epochAfter < epoch || (sizeAfter < size && !_disowned)) fell = true;
    }

    /// The call by `who`: itself, with another's address behind it, or brought by the forwarder, in turn.
    function _does(address who, address target, bytes memory data) private returns (bool done) {
        uint256 way = _turn++ % 3;
        if (way == 1) data = bytes.concat(data, bytes20(controller.owner()));
        if (way == 2) data = bytes.concat(data, bytes20(who));
        address sender = way == 2 ? controller.trustedForwarder() : who;
        vm.prank(sender);
        (done,) = target.call(data);
        _reverted = !done;
        if (done) _did();
    }

    function _does(address who, bytes memory data) private returns (bool) {
        return _does(who, address(controller), data);
    }

    function compareStorage() external view {
        _controllerTwin.compare(address(controller));
        _courtTwin.compare(address(court));
    }

    function _purse(address who, address spender, uint256 amount) private {
        token.mint(who, amount);
        vm.prank(who);
        token.approve(spender, type(uint256).max);
    }

    // -- providers

    function registerProvider(uint256 who, uint256 payout, uint64 stake) external watched {
        if (stake % 8 != 0) stake = uint64(within(stake, 0, 2 * MIN_STAKE));
        _purse(person(who), address(controller), stake);
        address to = payout % 4 == 0 ? person(payout) : person(who);
        (address paid,,,) = controller.provider(person(who));
        bool done = _does(person(who), abi.encodeCall(IController.registerProvider, (to, stake)));
        yes(!done || paid == address(0) || paid == to, "a payee was replaced by the provider's own key");
    }

    function setPayout(uint256 who, uint256 payer, uint256 payout) external watched {
        address paid = controller.payoutOf(person(who));
        address from = payer % 2 == 0 ? paid : person(payer / 2);
        if (from == address(0)) return;
        bool done = _does(from, abi.encodeCall(IController.setPayout, (person(who), person(payout))));
        yes(done == (from == paid), "a payee was named by another, or could not be");
    }

    function unbond(uint256 who, uint64 amount) external watched {
        (, uint64 stake,,) = controller.provider(person(who));
        uint32 offers = controller.offersOf(person(who));
        amount = amount % 2 == 0 ? stake : uint64(within(amount, 0, stake));
        bool done = _does(person(who), abi.encodeCall(IController.unbond, (amount)));
        bool fine = amount != 0 && (amount == stake ? offers == 0 : stake - amount >= MIN_STAKE);
        yes(done == fine, "unbonded against the rules, or could not be");
    }

    function withdrawStake(uint256 who) external watched {
        for (uint256 i; i < 4; ++i) {
            (,, uint64 unbonding, uint40 readyAt) = controller.provider(person(who % 4 + i));
            if (unbonding != 0 && block.timestamp < readyAt && who % 8 < 4) vm.warp(_latest = readyAt);
            bool fine = unbonding != 0 && block.timestamp >= readyAt;
            if (!fine && i < 3) continue; // mostly somebody who may
            bool done = _does(person(who % 4 + i), abi.encodeCall(IController.withdrawStake, ()));
            yes(done == fine, "stake left against the rules, or was kept back");
            return;
        }
    }

    // -- nodes and offers

    function registerNode(uint256 who, uint256 n, uint256 for_) external watched {
        (address node_, address to) = (nodeAt(n), person(who));
        // Mostly a binding for the caller; sometimes one that the node made for another.
        bytes32 digest = controller.nodeBindingDigest(node_, for_ % 4 == 0 ? person(for_ / 4) : to);
        (bytes32 r, bytes32 vs) = compact(NODE_KEYS + n % 3, digest);
        if (!_does(to, abi.encodeCall(IController.registerNode, (node_, r, vs)))) return;
        yes(for_ % 4 != 0 || person(for_ / 4) == to, "bound by another's signature");
        named[node_] = to;
    }

    function retireNode(uint256 who, uint256 n) external watched {
        if (_does(_bound(who, n), abi.encodeCall(IController.retireNode, (nodeAt(n))))) named[nodeAt(n)] = address(0);
    }

    function setOffer(uint256 who, uint256 n, bytes32 specHash, uint8 classes, bytes32 seed) external watched {
        (address bound,) = controller.nodeOf(nodeAt(n));
        address by = _bound(who, n);
        bytes memory data =
            abi.encodeCall(IController.setOffer, (nodeAt(n), specHash, uint8(within(classes, 0, 40)), _text(seed)));
        if (_does(by, data)) same(bound, by, "an offer by another than the provider");
    }

    function closeOffer(uint256 who, uint256 n) external watched {
        _does(_bound(who, n), abi.encodeCall(IController.closeOffer, (nodeAt(n))));
    }

    /// Mostly the node's provider.
    function _bound(uint256 who, uint256 n) private view returns (address bound) {
        (bound,) = controller.nodeOf(nodeAt(n));
        if (bound == address(0) || who % 4 == 0) bound = person(who / 4);
    }

    function registerComponent(uint256 who, uint8 kind, uint40 until, bytes32 seed) external watched {
        if (until % 4 != 0) until = uint40(block.timestamp + until % 366 days);
        bytes memory data = abi.encodeCall(IController.registerComponent, (ComponentKind(kind % 3), _text(seed), until));
        _does(personAt(who), data);
    }

    // -- authority and owner

    function anchor(uint256 who, uint64 more, uint32 epoch, bytes32 root) external watched {
        (uint32 present, uint64 size,,) = controller.head();
        if (more % 4 != 0) (more, epoch) = (uint64(within(more, 1, 1000)), present);
        unchecked {
            size += more;
        }
        address by = who % 3 == 0 ? personAt(who) : controller.authority();
        if (!_does(by, abi.encodeCall(IController.anchor, (epoch, size, root, root)))) return;
        if (epoch != present || by != controller.authority()) usurped = true;
        (_seen, _root) = (block.timestamp, root);
    }

    function replaceAuthority(uint256 who) external watched {
        address by = who % 3 == 0 ? personAt(who) : controller.owner();
        (bytes32 r, bytes32 vs) = consent(_authorityKey + 1, controller.owner());
        bytes memory data = abi.encodeCall(IController.replaceAuthority, (vm.addr(_authorityKey + 1), r, vs));
        if (_does(by, data)) _became(by);
    }

    function announce(uint256 who, uint256 next) external watched {
        address by = who % 3 == 0 ? personAt(who) : controller.owner();
        address to = next % 5 == 4 ? address(0) : person(next);
        if (_does(by, abi.encodeCall(IController.announceOwner, (to))) && by != controller.owner()) usurped = true;
    }

    /// Whoever was announced, with a bond, mostly in time.
    function accept(uint256 who, bool early) external watched {
        (address next, uint40 readyAt) = controller.announced();
        if (next == address(0)) return;
        if (!early && block.timestamp < readyAt) vm.warp(_latest = readyAt);
        _purse(next, address(court), MIN_BOND);
        vm.prank(next);
        court.bond(MIN_BOND);
        if (who % 4 == 0) next = person(who / 4);
        (bytes32 r, bytes32 vs) = consent(_authorityKey + 1, next);
        (, uint64 size,,) = controller.head();
        bytes memory data =
            abi.encodeCall(IController.acceptOwner, (vm.addr(_authorityKey + 1), r, vs, size, _root, _root));
        (address announced_,) = controller.announced();
        bool fine = next == announced_ && block.timestamp >= readyAt;
        _owned(next, fine, data);
    }

    function _owned(address next, bool fine, bytes memory data) private {
        vm.prank(next);
        (bool done,) = address(controller).call(data);
        yes(done == fine, "accepted against the rules, or could not be");
        if (!done) return;
        _did();
        _owners += 1;
        (_authorityKey, _seen) = (_authorityKey + 1, block.timestamp);
    }

    function disown(uint256 who, uint64 size) external watched {
        address by = who % 3 == 0 ? personAt(who) : controller.owner();
        (, uint64 anchored_,,) = controller.head();
        size = uint64(within(size, 0, uint256(anchored_) + 1));
        (bytes32 r, bytes32 vs) = consent(_authorityKey + 1, controller.owner());
        bytes memory data = abi.encodeCall(IController.disownAnchors, (size, vm.addr(_authorityKey + 1), r, vs));
        if (!_does(by, data)) return;
        _became(by);
        _disowned = true;
        Bond memory left = court.bondOf(by);
        yes(left.kept == 0 && left.leaving == 0, "disowning costs all");
    }

    function setStandby(uint256 who, bool allowed) external watched {
        address by = who % 3 == 0 ? personAt(who) : controller.owner();
        address standby = vm.addr(_authorityKey + 1); // whom authority would go to as well
        if (!_does(by, abi.encodeCall(IController.setStandby, (standby, allowed)))) return;
        if (by != controller.owner()) usurped = true;
        _namedBy[standby] = allowed ? _owners : 0;
    }

    function renew(uint256 who) external watched {
        address by = who % 3 == 0 ? personAt(who) : controller.authority();
        if (!_does(by, abi.encodeCall(IController.renew, ()))) return;
        if (by != controller.authority()) usurped = true;
        _seen = block.timestamp;
    }

    function takeOver(bool named_, uint256 who) external watched {
        address taker = named_ ? vm.addr(_authorityKey + 1) : personAt(who);
        bool fine = _namedBy[taker] == _owners && block.timestamp > _seen + TAKE_OVER_S;
        bool done = _does(taker, abi.encodeCall(IController.takeOver, ()));
        yes(!fine || done, "a take-over was refused");
        if (done && !fine) rushed = true;
        if (done) _became(controller.owner());
    }

    function setLicence(uint256 who, uint256 holder, uint8 product, uint32 seats, uint40 until) external watched {
        if (seats % 4 == 0) seats = 0;
        bytes32 of_ = bytes32(uint256(product % 3));
        _does(personAt(who), abi.encodeCall(IController.setLicence, (person(holder), of_, seats, until)));
    }

    // -- the court

    function putBond(uint256 who, uint64 amount) external watched {
        address by = _bonding(who);
        if (amount % 8 != 0) amount = uint64(within(amount, 0, 2 * MIN_BOND));
        _purse(by, address(court), amount);
        _does(by, address(court), abi.encodeCall(ICourt.bond, (amount)));
    }

    function askBond(uint256 who, uint64 amount) external watched {
        address by = _bonding(who);
        uint64 had = court.bondOf(by).kept;
        uint64 least = by == controller.owner() ? MIN_BOND : 0;
        amount = amount % 2 == 0 && had > least ? had - least : uint64(within(amount, 0, uint256(had) + 1));
        bool done = _does(by, address(court), abi.encodeCall(ICourt.unbond, (amount)));
        yes(done == (amount != 0 && uint256(amount) + least <= had), "a bond left against the rules, or could not");
    }

    function takeBond(uint256 who) external watched {
        for (uint256 i; i < 5; ++i) {
            address by = i == 4 ? owner : person(who % 4 + i);
            Bond memory entry = court.bondOf(by);
            if (entry.leaving != 0 && block.timestamp < entry.readyAt && who % 8 < 4) vm.warp(_latest = entry.readyAt);
            bool fine = entry.leaving != 0 && block.timestamp >= entry.readyAt;
            if (!fine && i < 4) continue; // mostly somebody who may
            uint256 before = token.balanceOf(PAYEE);
            bool done = _does(by, address(court), abi.encodeCall(ICourt.withdrawBond, (PAYEE)));
            yes(done == fine, "a bond was taken against the rules, or kept back");
            same(token.balanceOf(PAYEE) - before, done ? entry.leaving : 0, "what leaves");
            return;
        }
    }

    function _bonding(uint256 who) private view returns (address) {
        return who % 5 == 4 ? controller.owner() : person(who);
    }

    /// The present authority signs two heads of one size.
    function convict(bytes32 root, bool twice) external watched {
        uint32 epoch = controller.epoch();
        if (vm.addr(_authorityKey) != controller.authority()) return;
        bool fine = !court.convicted(epoch) && !twice;
        address liable = controller.owner();
        Bond memory had = court.bondOf(liable);
        fine = fine && had.kept + had.leaving != 0;
        bytes memory data = abi.encodeCall(
            ICourt.proveFork,
            (_headSaying(root, epoch), _headSaying(twice ? root : ~root, epoch), none(), PAYEE)
        );
        bool done = _does(person(0), address(court), data);
        yes(done == fine, "convicted against the rules, or acquitted");
        if (done) same(court.bondOf(liable).kept + court.bondOf(liable).leaving, 0, "all of it");
    }

    function _headSaying(bytes32 root, uint32 epoch) private view returns (SignedHead memory) {
        return sign(SignedHead(9, root, root, epoch, 7, 0, 0), _authorityKey);
    }

    /// A node signs two reports of one number for somebody.
    function condemn(uint256 who, uint256 n, bool honest) external watched {
        (address bound,) = controller.nodeOf(nodeAt(n));
        address accused = who % 4 == 0 || bound == address(0) ? person(who / 4) : bound;
        (bool wasBound, bool condemned) = controller.bindingOf(nodeAt(n), accused);
        (, uint64 stake, uint64 unbonding,) = controller.provider(accused);
        Report memory x = report("a");
        (x.node, x.provider) = (nodeAt(n), accused);
        bytes memory one_ = bytesOf(x);
        x.rest = honest ? bytes("a") : bytes("b");
        bytes memory data = abi.encodeCall(
            ICourt.proveTwoReports, (sign(one_, NODE_KEYS + n % 3), sign(bytesOf(x), NODE_KEYS + n % 3), PAYEE)
        );
        bool done = _does(person(0), address(court), data);
        bool fine = !honest && wasBound && !condemned && uint256(stake) + unbonding != 0;
        yes(done == fine, "condemned against the rules, or acquitted");
    }

    function wait_(uint32 seconds_) external watched {
        _latest += within(seconds_, 1, 4 days);
        _did();
    }

    // -- inside

    /// Root and digest of the last anchor.
    bytes32 private _root;

    function _became(address by) private {
        if (by != controller.owner()) usurped = true;
        _authorityKey += 1;
        _seen = block.timestamp;
        delete _namedBy[vm.addr(_authorityKey)];
    }

    /// A text of 0 to 100 bytes, so that short, long, growing and shrinking ones are stored.
    function _text(bytes32 seed) private pure returns (string memory) {
        bytes memory text = new bytes(uint256(seed) % 101);
        for (uint256 i; i < text.length; ++i) {
            text[i] = seed[i % 32] | 0x20;
        }
        return string(text);
    }
}
