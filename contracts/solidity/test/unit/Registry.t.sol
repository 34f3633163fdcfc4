// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {ComponentKind, IController} from "../../src/interfaces/IController.sol";
import {Controller} from "../../src/Controller.sol";

contract RegistryTest is Pools {
    uint256 internal constant NODE_KEY = 0x40DE;
    address internal node = vm.addr(NODE_KEY);
    address internal rival = address(0xBEEF03);
    address internal cold = address(0xC01D);
    uint8 internal constant WHOLE = 1 << 4;

    function _bind(address who) internal {
        _bind(who, NODE_KEY);
    }

    function _bind(address who, uint256 key) internal {
        (bytes32 r, bytes32 vs) = compact(key, controller.nodeBindingDigest(vm.addr(key), who));
        vm.prank(who);
        controller.registerNode(vm.addr(key), r, vs);
    }

    function _offer(address who) internal {
        vm.prank(who);
        controller.setOffer(node, bytes32(uint256(1)), WHOLE, "cid");
    }

    function _unbond(address who, uint64 amount) internal {
        vm.prank(who);
        controller.unbond(amount);
    }

    function test_a_pool_says_its_terms() public view {
        same(keccak256(abi.encode(controller.config())), keccak256(abi.encode(terms(address(token)))), "terms");
        same(controller.owner(), owner, "owner");
        same(controller.authority(), authority, "authority");
        same(controller.epoch(), 1, "epoch");
        same(vault.controller(), address(controller), "the vault's controller");
        same(factory.pools(0), address(controller), "listed");
    }

    function test_equal_terms_make_another_pool() public {
        (Controller second,) = open(terms(address(token)));
        yes(address(second) != address(controller), "apart");
        same(factory.poolCount(), 2, "count");
    }

    // -- stakes

    function test_a_provider_needs_the_least_stake_and_a_payee() public {
        fund(provider, MIN_STAKE);
        vm.expectRevert(abi.encodeWithSelector(IController.StakeTooLow.selector, MIN_STAKE - 1, MIN_STAKE));
        vm.prank(provider);
        controller.registerProvider(provider, MIN_STAKE - 1);
        vm.expectRevert(abi.encodeWithSelector(IController.Zero.selector, "payout"));
        vm.prank(provider);
        controller.registerProvider(address(0), MIN_STAKE);
        address[3] memory parts = [address(controller), address(vault), controller.court()];
        for (uint256 i; i < 3; ++i) {
            vm.expectRevert(abi.encodeWithSelector(IController.BadPayee.selector, parts[i]));
            vm.prank(provider);
            controller.registerProvider(parts[i], MIN_STAKE);
        }
    }

    function test_stake_comes_back_after_the_delay_and_once() public {
        join(provider);
        join(rival); // its stake is there to be taken by whom may take twice
        _unbond(provider, MIN_STAKE);
        uint40 readyAt = uint40(block.timestamp + UNBOND_S);
        (, uint64 stake, uint64 unbonding, uint40 at_) = controller.provider(provider);
        yes(stake == 0 && unbonding == MIN_STAKE && at_ == readyAt, "unbonding");
        vm.warp(readyAt - 1);
        vm.expectRevert(abi.encodeWithSelector(IController.NotReady.selector, MIN_STAKE, readyAt));
        vm.prank(provider);
        controller.withdrawStake();
        vm.warp(readyAt);
        vm.prank(provider);
        controller.withdrawStake();
        same(token.balanceOf(provider), MIN_STAKE, "back");
        (, stake, unbonding, at_) = controller.provider(provider);
        yes(stake == 0 && unbonding == 0 && at_ == 0, "nothing unbonds any more");
        vm.expectRevert(abi.encodeWithSelector(IController.NotReady.selector, 0, 0));
        vm.prank(provider);
        controller.withdrawStake();
        same(token.balanceOf(address(controller)), MIN_STAKE, "the rival's stake is still there");
    }

    function test_unbonding_again_restarts_the_delay_for_all_of_it() public {
        fund(provider, 3 * MIN_STAKE);
        vm.prank(provider);
        controller.registerProvider(provider, 3 * MIN_STAKE);
        _unbond(provider, MIN_STAKE);
        uint256 later = 1_800_000_000 + 1 days;
        vm.warp(later);
        _unbond(provider, MIN_STAKE);
        (, uint64 stake, uint64 unbonding, uint40 readyAt) = controller.provider(provider);
        yes(stake == MIN_STAKE && unbonding == 2 * MIN_STAKE && readyAt == later + UNBOND_S, "together");
    }

    function test_unbonding_leaves_none_or_the_least_stake() public {
        join(provider);
        vm.expectRevert(abi.encodeWithSelector(IController.StakeTooLow.selector, MIN_STAKE - 1, MIN_STAKE));
        _unbond(provider, 1);
        vm.expectRevert(abi.encodeWithSelector(IController.StakeTooLow.selector, MIN_STAKE, MIN_STAKE + 1));
        _unbond(provider, MIN_STAKE + 1);
        vm.expectRevert(abi.encodeWithSelector(IController.Zero.selector, "amount"));
        _unbond(provider, 0);
    }

    function test_a_stake_stays_while_an_offer_stands() public {
        fund(provider, 2 * MIN_STAKE);
        vm.prank(provider);
        controller.registerProvider(provider, 2 * MIN_STAKE);
        _bind(provider);
        _offer(provider);
        same(controller.offersOf(provider), 1, "one offer");
        _offer(provider); // changed, not another one
        same(controller.offersOf(provider), 1, "still one");
        vm.expectRevert(abi.encodeWithSelector(IController.OffersStand.selector, 1));
        _unbond(provider, 2 * MIN_STAKE);
        _unbond(provider, MIN_STAKE); // what is above the least may leave
        vm.prank(provider);
        controller.closeOffer(node);
        same(controller.offersOf(provider), 0, "none");
        _unbond(provider, MIN_STAKE);
    }

    function test_a_node_that_moves_or_retires_takes_its_offer_with_it() public {
        join(provider);
        join(rival);
        _bind(provider);
        _offer(provider);
        _bind(rival); // the node's key named another provider
        same(controller.offersOf(provider), 0, "the former provider's offer closed");
        _offer(rival);
        same(controller.offersOf(rival), 1, "the new one's");
        vm.prank(rival);
        controller.retireNode(node);
        same(controller.offersOf(rival), 0, "retired");
        (address bound,) = controller.nodeOf(node);
        same(bound, address(0), "nobody's");
        _unbond(provider, MIN_STAKE);
        _unbond(rival, MIN_STAKE);
    }

    function test_a_stranger_takes_no_stake() public {
        join(provider);
        vm.expectRevert(abi.encodeWithSelector(IController.NotCourt.selector, rival));
        vm.prank(rival);
        controller.forfeitStake(node, provider, rival);
    }

    // -- who is paid

    function test_who_is_paid_stays_until_that_account_names_another() public {
        fund(provider, 2 * MIN_STAKE);
        vm.prank(provider);
        controller.registerProvider(cold, MIN_STAKE);
        vm.expectRevert(abi.encodeWithSelector(IController.NotPayout.selector, provider, cold));
        vm.prank(provider);
        controller.registerProvider(provider, MIN_STAKE); // the key on the machine cannot
        vm.expectRevert(abi.encodeWithSelector(IController.NotPayout.selector, provider, cold));
        vm.prank(provider);
        controller.setPayout(provider, provider);
        vm.prank(provider);
        controller.registerProvider(cold, MIN_STAKE); // more stake, the same payee
        vm.prank(cold);
        controller.setPayout(provider, rival);
        same(controller.payoutOf(provider), rival, "by who was paid");
        vm.expectRevert(abi.encodeWithSelector(IController.NotPayout.selector, cold, rival));
        vm.prank(cold);
        controller.setPayout(provider, cold);
        vm.expectRevert(abi.encodeWithSelector(IController.Zero.selector, "payout"));
        vm.prank(rival);
        controller.setPayout(provider, address(0));
        _unbond(provider, 2 * MIN_STAKE);
        vm.warp(block.timestamp + UNBOND_S);
        vm.prank(provider);
        controller.withdrawStake();
        same(token.balanceOf(rival), 2 * MIN_STAKE, "the stake too goes to who is paid");
    }

    /// Of an account that never joined nobody is paid, and nobody says who is.
    function test_nobody_is_paid_for_who_never_joined() public {
        vm.expectRevert(abi.encodeWithSelector(IController.NotPayout.selector, provider, address(0)));
        vm.prank(provider);
        controller.setPayout(provider, provider);
        same(controller.payoutOf(provider), address(0), "nobody");
    }

    // -- nodes

    function test_a_node_joins_by_its_own_keys_signature() public {
        join(provider);
        _bind(provider);
        (address bound, uint32 nonce) = controller.nodeOf(node);
        same(bound, provider, "owner");
        same(nonce, 1, "nonce");
        (bool wasBound, bool condemned) = controller.bindingOf(node, provider);
        yes(wasBound && !condemned, "a binding is remembered");
        (wasBound,) = controller.bindingOf(node, rival);
        yes(!wasBound, "and no other");
        (bytes32 r, bytes32 vs) = compact(NODE_KEY, controller.nodeBindingDigest(node, provider));
        vm.expectRevert(abi.encodeWithSelector(IController.AlreadyBound.selector, node, provider));
        vm.prank(provider);
        controller.registerNode(node, r, vs);
    }

    function test_a_node_needs_a_provider_with_a_stake() public {
        (bytes32 r, bytes32 vs) = compact(NODE_KEY, controller.nodeBindingDigest(node, provider));
        vm.expectRevert(abi.encodeWithSelector(IController.NotStaked.selector, provider, 0, MIN_STAKE));
        vm.prank(provider);
        controller.registerNode(node, r, vs);
    }

    function test_a_node_cannot_be_bound_by_another_key() public {
        join(provider);
        (bytes32 r, bytes32 vs) = compact(SESSION_KEY, controller.nodeBindingDigest(node, provider));
        vm.expectRevert(abi.encodeWithSelector(IController.BadNodeSignature.selector, node, session));
        vm.prank(provider);
        controller.registerNode(node, r, vs);
        vm.expectRevert(abi.encodeWithSelector(IController.BadNodeSignature.selector, address(0), address(0)));
        vm.prank(provider);
        controller.registerNode(address(0), 0, 0); // no signature is nobody's
    }

    function test_a_binding_for_one_provider_is_no_use_to_another() public {
        join(provider);
        join(rival);
        (bytes32 r, bytes32 vs) = compact(NODE_KEY, controller.nodeBindingDigest(node, provider));
        vm.expectRevert();
        vm.prank(rival);
        controller.registerNode(node, r, vs);
    }

    function test_an_old_binding_cannot_take_the_node_back() public {
        join(provider);
        join(rival);
        (bytes32 r, bytes32 vs) = compact(NODE_KEY, controller.nodeBindingDigest(node, provider));
        vm.prank(provider);
        controller.registerNode(node, r, vs);
        _offer(provider);
        _bind(rival);
        (bytes32 specHash,,) = controller.offerOf(node);
        same(specHash, 0, "the offer closed when the node moved");
        vm.expectRevert();
        vm.prank(provider);
        controller.registerNode(node, r, vs);
        (bool wasBound,) = controller.bindingOf(node, provider);
        yes(wasBound, "what it was is remembered");
    }

    // -- offers

    function test_only_the_nodes_provider_sets_and_closes_its_offer() public {
        join(provider);
        join(rival);
        _bind(provider);
        _offer(provider);
        (bytes32 specHash, uint8 classes, string memory cid) = controller.offerOf(node);
        same(specHash, bytes32(uint256(1)), "hash");
        same(classes, WHOLE, "classes");
        same(keccak256(bytes(cid)), keccak256("cid"), "cid");
        bytes memory why = abi.encodeWithSelector(IController.NotNodeProvider.selector, rival, node, provider);
        vm.expectRevert(why);
        vm.prank(rival);
        controller.closeOffer(node);
        vm.expectRevert(why);
        _offer(rival);
        vm.expectRevert(why);
        vm.prank(rival);
        controller.retireNode(node);
        vm.prank(provider);
        controller.closeOffer(node);
        vm.expectRevert(abi.encodeWithSelector(IController.NoOffer.selector, node));
        vm.prank(provider);
        controller.closeOffer(node);
    }

    function test_a_provider_who_left_offers_nothing_and_registers_no_component() public {
        join(provider);
        _bind(provider);
        _unbond(provider, MIN_STAKE);
        vm.expectRevert(abi.encodeWithSelector(IController.NotStaked.selector, provider, 0, MIN_STAKE));
        _offer(provider);
        vm.expectRevert(abi.encodeWithSelector(IController.NotMember.selector, provider));
        vm.prank(provider);
        controller.registerComponent(ComponentKind.Relay, "http://late", uint40(block.timestamp + 1));
    }

    function test_an_offer_says_something_that_the_pool_allows() public {
        join(provider);
        _bind(provider);
        vm.expectRevert(abi.encodeWithSelector(IController.SimulatedRefused.selector, 33));
        vm.prank(provider);
        controller.setOffer(node, bytes32(uint256(1)), 33, "");
        vm.expectRevert(abi.encodeWithSelector(IController.UnknownClasses.selector, 64));
        vm.prank(provider);
        controller.setOffer(node, bytes32(uint256(1)), 64, "");
        vm.expectRevert(abi.encodeWithSelector(IController.UnknownClasses.selector, 0));
        vm.prank(provider);
        controller.setOffer(node, bytes32(uint256(1)), 0, "");
        vm.expectRevert(abi.encodeWithSelector(IController.Zero.selector, "specHash"));
        vm.prank(provider);
        controller.setOffer(node, 0, WHOLE, "");
        for (uint8 i; i < 5; ++i) {
            vm.prank(provider);
            controller.setOffer(node, bytes32(uint256(1)), uint8(1 << i), "");
        }
    }

    // -- components

    function test_components_are_found_until_they_expire() public {
        address[3] memory members = [authority, owner, provider];
        join(provider);
        uint256 end = block.timestamp + 60;
        for (uint256 i; i < 3; ++i) {
            vm.prank(members[i]);
            controller.registerComponent(ComponentKind.Controller, "http://here", uint40(end));
            (string memory endpoint, uint40 until) = controller.component(members[i], ComponentKind.Controller);
            same(keccak256(bytes(endpoint)), keccak256("http://here"), "endpoint");
            same(until, end, "until");
        }
        vm.warp(end);
        (string memory gone,) = controller.component(authority, ComponentKind.Controller);
        same(bytes(gone).length, 0, "expired");
        vm.expectRevert(abi.encodeWithSelector(IController.NotMember.selector, renter));
        vm.prank(renter);
        controller.registerComponent(ComponentKind.Relay, "http://spam", UNTIL);
    }

    function test_a_component_is_registered_for_a_year_at_most_and_anyone_ends_his_own() public {
        uint40 most = uint40(block.timestamp + 366 days);
        vm.expectRevert(abi.encodeWithSelector(IController.TooFar.selector, most + 1, most));
        vm.prank(authority);
        controller.registerComponent(ComponentKind.Relay, "http://far", most + 1);
        vm.prank(authority);
        controller.registerComponent(ComponentKind.Relay, "http://far", most);
        vm.prank(renter);
        controller.registerComponent(ComponentKind.Relay, "", uint40(block.timestamp)); // ends what never began
        replace(HEIR_KEY);
        vm.prank(authority);
        controller.registerComponent(ComponentKind.Relay, "", 0); // no member any more, and still ends it
        (, uint40 until) = controller.component(authority, ComponentKind.Relay);
        same(until, 0, "ended");
    }

    // -- anchors

    function test_only_the_authority_of_the_epoch_anchors_and_the_size_grows() public {
        vm.prank(authority);
        controller.anchor(1, 5, "root", "digest");
        vm.expectRevert(abi.encodeWithSelector(IController.BadSize.selector, 5, 5));
        vm.prank(authority);
        controller.anchor(1, 5, "root2", "digest");
        vm.expectRevert(abi.encodeWithSelector(IController.BadSize.selector, 4, 5));
        vm.prank(authority);
        controller.anchor(1, 4, "root2", "digest");
        for (uint256 i; i < 2; ++i) {
            address who = i == 0 ? renter : owner; // the owner is no authority
            vm.expectRevert(abi.encodeWithSelector(IController.NotAuthority.selector, who, authority));
            vm.prank(who);
            controller.anchor(1, 6, "root", "digest");
        }
        vm.expectRevert(abi.encodeWithSelector(IController.WrongEpoch.selector, 2, 1));
        vm.prank(authority);
        controller.anchor(2, 6, "root", "digest");
        (uint32 epoch, uint64 size, uint128 commitment, uint40 seenAt) = controller.head();
        same(epoch, 1, "epoch");
        same(size, 5, "size");
        same(commitment, uint256(keccak256(abi.encode(bytes32("root"), bytes32("digest")))) >> 128, "commitment");
        same(seenAt, block.timestamp, "seen");
    }

    /// Nobody can anchor what cannot be reached again: one anchor of 2^64 - 1 would end the pool.
    function test_an_anchor_grows_by_no_more_than_what_can_be_reached_again() public {
        vm.expectRevert(abi.encodeWithSelector(IController.BadSize.selector, type(uint64).max, 0));
        vm.prank(authority);
        controller.anchor(1, type(uint64).max, "root", "digest");
        vm.expectRevert(abi.encodeWithSelector(IController.BadSize.selector, 1 + (1 << 32), 0));
        vm.prank(authority);
        controller.anchor(1, 1 + (1 << 32), "root", "digest");
        vm.prank(authority);
        controller.anchor(1, 1 << 32, "root", "digest");
        vm.prank(authority);
        controller.anchor(1, 2 << 32, "root", "digest");
        vm.expectRevert(abi.encodeWithSelector(IController.BadSize.selector, 0, 2 << 32));
        vm.prank(authority);
        controller.anchor(1, 0, "root", "digest");
    }
}
