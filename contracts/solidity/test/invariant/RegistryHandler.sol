// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {ControllerReplay} from "../utils/ControllerReplay.sol";
import {Vm} from "../utils/Vm.sol";
import {ComponentKind, IController} from "../../src/interfaces/IController.sol";
import {Controller} from "../../src/Controller.sol";
import {TestToken} from "../../src/TestToken.sol";

/// Four people and three nodes do with the registry whatever they may, and some of what they may not.
contract RegistryHandler is Pools, ControllerReplay {
    uint256 private constant NODE_KEYS = 0x40DE00;

    bool public fell;
    /// A standby took over that nobody had named, or before the silence was over.
    bool public rushed;
    /// An anchor was taken from somebody who was not the authority of its epoch.
    bool public usurped;
    /// Whom the node's own key named last; zero once that provider let it go.
    mapping(address => address) public named;
    uint256 private _authorityKey = AUTHORITY_KEY;
    uint256 private _latest;
    uint256 private _seen;
    uint256 private _turn;
    mapping(address => bool) private _named;
    bool private _reverted;

    constructor(TestToken token_, Controller controller_, Vm.Log[] memory opening) {
        (token, controller) = (token_, controller_);
        (_latest, _seen) = (block.timestamp, block.timestamp);
        foldController(address(controller), opening);
    }

    function setUp() public override {}

    function personAt(uint256 i) public view returns (address) {
        return i % 5 == 4 ? vm.addr(_authorityKey) : address(uint160(0xAE0000 + i % 5));
    }

    function nodeAt(uint256 i) public pure returns (address) {
        return vm.addr(NODE_KEYS + i % 3);
    }

    modifier watched() {
        vm.warp(_latest);
        (uint32 epoch, uint64 size,,) = controller.head();
        _reverted = false;
        vm.record();
        vm.recordLogs();
        _;
        Vm.Log[] memory logs = vm.getRecordedLogs();
        if (!_reverted) foldController(address(controller), logs);
        remember(address(controller));
        (uint32 epochAfter, uint64 sizeAfter,,) = controller.head();
        if (epochAfter < epoch || sizeAfter < size) fell = true;
    }

    /// The call by `who`: itself, with another's address behind it, or brought by the forwarder, in turn.
    function _does(address who, bytes memory data) private returns (bool done) {
        uint256 way = _turn++ % 3;
        if (way == 1) data = bytes.concat(data, bytes20(vm.addr(_authorityKey)));
        if (way == 2) data = bytes.concat(data, bytes20(who));
        vm.prank(way == 2 ? controller.trustedForwarder() : who);
        (done,) = address(controller).call(data);
        _reverted = !done;
    }

    function compareStorage() external view {
        sameStorage(address(controller));
    }

    function registerProvider(uint256 who, address payout, uint64 stake) external watched {
        if (stake % 8 != 0) stake = uint64(within(stake, 0, 2 * MIN_STAKE));
        token.mint(personAt(who), stake);
        vm.prank(personAt(who));
        token.approve(address(controller), type(uint256).max);
        _does(personAt(who), abi.encodeCall(IController.registerProvider, (payout, stake)));
    }

    function unbond(uint256 who, uint64 amount) external watched {
        (, uint64 stake,,) = controller.provider(personAt(who));
        amount = amount % 2 == 0 ? stake : uint64(within(amount, 0, stake));
        _does(personAt(who), abi.encodeCall(IController.unbond, (amount)));
    }

    function withdrawStake(uint256 who) external watched {
        (,, uint64 unbonding, uint40 readyAt) = controller.provider(personAt(who));
        bool fine = unbonding != 0 && block.timestamp >= readyAt;
        bool done = _does(personAt(who), abi.encodeCall(IController.withdrawStake, (address(0x0A1EE))));
        yes(done == fine, "stake left against the rules, or was kept back");
    }

    function registerNode(uint256 who, uint256 n, uint256 for_) external watched {
        (address node, address to) = (nodeAt(n), personAt(who));
        // Mostly a binding for the caller; sometimes one that the node made for another.
        bytes32 digest = controller.nodeBindingDigest(node, for_ % 4 == 0 ? personAt(for_ / 4) : to);
        (bytes32 r, bytes32 vs) = compact(NODE_KEYS + n % 3, digest);
        if (!_does(to, abi.encodeCall(IController.registerNode, (node, r, vs)))) return;
        yes(for_ % 4 != 0 || personAt(for_ / 4) == to, "bound by another's signature");
        named[node] = to;
    }

    function retireNode(uint256 who, uint256 n) external watched {
        if (_does(personAt(who), abi.encodeCall(IController.retireNode, (nodeAt(n))))) named[nodeAt(n)] = address(0);
    }

    function setOffer(uint256 who, uint256 n, bytes32 specHash, uint8 classes, bytes32 seed) external watched {
        (address owner,) = controller.nodeOf(nodeAt(n));
        bytes memory data =
            abi.encodeCall(IController.setOffer, (nodeAt(n), specHash, uint8(within(classes, 0, 40)), _text(seed)));
        if (_does(personAt(who), data)) same(owner, personAt(who), "an offer by another than the provider");
    }

    function closeOffer(uint256 who, uint256 n) external watched {
        _does(personAt(who), abi.encodeCall(IController.closeOffer, (nodeAt(n))));
    }

    function registerComponent(uint256 who, uint8 kind, uint40 until, bytes32 seed) external watched {
        bytes memory data =
            abi.encodeCall(IController.registerComponent, (ComponentKind(kind % 3), _text(seed), until));
        _does(personAt(who), data);
    }

    function anchor(uint256 who, uint64 more, uint32 epoch, bytes32 root) external watched {
        (uint32 present, uint64 size,,) = controller.head();
        if (more % 4 != 0) (more, epoch) = (uint64(within(more, 0, 1000)), present);
        unchecked {
            size += more;
        }
        if (!_does(personAt(who), abi.encodeCall(IController.anchor, (epoch, size, root, root)))) return;
        if (epoch != present) usurped = true;
        _acted(who);
    }

    function passAuthority(uint256 who) external watched {
        if (!_does(personAt(who), abi.encodeCall(IController.passAuthority, (vm.addr(_authorityKey + 1))))) return;
        _acted(who);
        _became(_authorityKey + 1);
    }

    function setStandby(uint256 who, bool allowed) external watched {
        address standby = vm.addr(_authorityKey + 1); // whom authority would pass to as well
        if (!_does(personAt(who), abi.encodeCall(IController.setStandby, (standby, allowed)))) return;
        if (personAt(who) != vm.addr(_authorityKey)) usurped = true;
        _named[standby] = allowed;
    }

    function renew(uint256 who) external watched {
        if (_does(personAt(who), abi.encodeCall(IController.renew, ()))) _acted(who);
    }

    function takeOver(bool named_, uint256 who) external watched {
        address taker = named_ ? vm.addr(_authorityKey + 1) : personAt(who);
        bool fine = _named[taker] && block.timestamp > _seen + TAKE_OVER_S;
        bool done = _does(taker, abi.encodeCall(IController.takeOver, ()));
        yes(!fine || done, "a take-over was refused");
        if (done && !fine) rushed = true;
        if (done) _became(_authorityKey + 1);
    }

    function setLicence(uint256 who, uint256 holder, uint8 product, uint32 seats, uint40 until) external watched {
        if (seats % 4 == 0) seats = 0;
        bytes32 of_ = bytes32(uint256(product % 3));
        _does(personAt(who), abi.encodeCall(IController.setLicence, (personAt(holder), of_, seats, until)));
    }

    function wait_(uint32 seconds_) external watched {
        _latest += within(seconds_, 1, 4 days);
    }

    /// An act of the authority was taken from this person.
    function _acted(uint256 who) private {
        if (personAt(who) != vm.addr(_authorityKey)) usurped = true;
        _seen = block.timestamp;
    }

    function _became(uint256 key) private {
        _authorityKey = key;
        _seen = block.timestamp;
        delete _named[vm.addr(key)];
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
