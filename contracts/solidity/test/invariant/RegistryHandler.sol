// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {ControllerReplay} from "../utils/ControllerReplay.sol";
import {Vm} from "../utils/Vm.sol";
import {ComponentKind} from "../../src/interfaces/IController.sol";
import {Controller} from "../../src/Controller.sol";
import {TestToken} from "../../src/TestToken.sol";

/// Four people and three nodes do with the registry whatever they may, and some of what they may not.
contract RegistryHandler is Pools, ControllerReplay {
    uint256 private constant NODE_KEYS = 0x40DE00;

    bool public fell;
    /// An anchor was taken from somebody who was not the authority of its epoch.
    bool public usurped;
    /// Whom the node's own key named last; zero once that provider let it go.
    mapping(address => address) public named;
    uint256 private _authorityKey = AUTHORITY_KEY;
    uint256 private _latest;
    bool private _reverted;

    constructor(TestToken token_, Controller controller_, Vm.Log[] memory opening) {
        (token, controller) = (token_, controller_);
        _latest = block.timestamp;
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
        (uint32 epoch, uint64 size,) = controller.head();
        _reverted = false;
        vm.record();
        vm.recordLogs();
        _;
        Vm.Log[] memory logs = vm.getRecordedLogs();
        if (!_reverted) foldController(address(controller), logs);
        remember(address(controller));
        (uint32 epochAfter, uint64 sizeAfter,) = controller.head();
        if (epochAfter < epoch || sizeAfter < size) fell = true;
    }

    function compareStorage() external view {
        sameStorage(address(controller));
    }

    function registerProvider(uint256 who, address payout, uint64 stake) external watched {
        if (stake % 8 != 0) stake = uint64(within(stake, 0, 2 * MIN_STAKE));
        token.mint(personAt(who), stake);
        vm.prank(personAt(who));
        token.approve(address(controller), type(uint256).max);
        vm.prank(personAt(who));
        try controller.registerProvider(payout, stake) {} catch { _reverted = true; }
    }

    function unbond(uint256 who, uint64 amount) external watched {
        (, uint64 stake,,) = controller.provider(personAt(who));
        amount = amount % 2 == 0 ? stake : uint64(within(amount, 0, stake));
        vm.prank(personAt(who));
        try controller.unbond(amount) {} catch { _reverted = true; }
    }

    function withdrawStake(uint256 who) external watched {
        (,, uint64 unbonding, uint40 readyAt) = controller.provider(personAt(who));
        bool fine = unbonding != 0 && block.timestamp >= readyAt;
        vm.prank(personAt(who));
        try controller.withdrawStake(address(0x0A1EE)) {
            yes(fine, "stake left against the rules");
        } catch {
            _reverted = true;
            yes(!fine, "stake was kept back");
        }
    }

    function registerNode(uint256 who, uint256 n, uint256 for_) external watched {
        (address node, address to) = (nodeAt(n), personAt(who));
        // Mostly a binding for the caller; sometimes one that the node made for another.
        bytes32 digest = controller.nodeBindingDigest(node, for_ % 4 == 0 ? personAt(for_ / 4) : to);
        (bytes32 r, bytes32 vs) = compact(NODE_KEYS + n % 3, digest);
        vm.prank(to);
        try controller.registerNode(node, r, vs) {
            yes(for_ % 4 != 0 || personAt(for_ / 4) == to, "bound by another's signature");
            named[node] = to;
        } catch {
            _reverted = true;
        }
    }

    function retireNode(uint256 who, uint256 n) external watched {
        vm.prank(personAt(who));
        try controller.retireNode(nodeAt(n)) {
            named[nodeAt(n)] = address(0);
        } catch {
            _reverted = true;
        }
    }

    function setOffer(uint256 who, uint256 n, bytes32 specHash, uint8 classes, bytes32 seed) external watched {
        (address owner,) = controller.nodeOf(nodeAt(n));
        vm.prank(personAt(who));
        try controller.setOffer(nodeAt(n), specHash, uint8(within(classes, 0, 40)), _text(seed)) {
            same(owner, personAt(who), "an offer by another than the provider");
        } catch {
            _reverted = true;
        }
    }

    function closeOffer(uint256 who, uint256 n) external watched {
        vm.prank(personAt(who));
        try controller.closeOffer(nodeAt(n)) {} catch { _reverted = true; }
    }

    function registerComponent(uint256 who, uint8 kind, uint40 until, bytes32 seed) external watched {
        vm.prank(personAt(who));
        try controller.registerComponent(ComponentKind(kind % 3), _text(seed), until) {} catch { _reverted = true; }
    }

    function anchor(uint256 who, uint64 more, uint32 epoch, bytes32 root) external watched {
        (uint32 present, uint64 size,) = controller.head();
        if (more % 4 != 0) (more, epoch) = (uint64(within(more, 0, 1000)), present);
        unchecked {
            size += more;
        }
        vm.prank(personAt(who));
        try controller.anchor(epoch, size, root, root) {
            if (epoch != present || personAt(who) != vm.addr(_authorityKey)) usurped = true;
        } catch {
            _reverted = true;
        }
    }

    function passAuthority(uint256 who) external watched {
        vm.prank(personAt(who));
        try controller.passAuthority(vm.addr(_authorityKey + 1)) {
            if (personAt(who) != vm.addr(_authorityKey)) usurped = true;
            _authorityKey += 1;
        } catch {
            _reverted = true;
        }
    }

    function wait_(uint32 seconds_) external watched {
        _latest += within(seconds_, 1, 4 days);
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
