// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Pools} from "../utils/Pools.sol";
import {ComponentKind, IController} from "../../src/interfaces/IController.sol";
import {PoolConfig} from "../../src/interfaces/PoolConfig.sol";
import {Controller} from "../../src/Controller.sol";

contract RegistryTest is Pools {
    uint256 internal constant NODE_KEY = 0x40DE;
    address internal node = vm.addr(NODE_KEY);
    address internal rival = address(0xBEEF03);
    uint8 internal constant WHOLE = 1 << 4;

    function _join(address who) internal {
        fund(who, MIN_STAKE);
        vm.prank(who);
        controller.registerProvider(who, MIN_STAKE);
    }

    function _bind(address who) internal {
        (bytes32 r, bytes32 vs) = compact(NODE_KEY, controller.nodeBindingDigest(node, who));
        vm.prank(who);
        controller.registerNode(node, r, vs);
    }

    function _offer(address who) internal {
        vm.prank(who);
        controller.setOffer(node, bytes32(uint256(1)), WHOLE, "cid");
    }

    function test_a_pool_says_its_terms() public view {
        same(keccak256(abi.encode(controller.config())), keccak256(abi.encode(terms(address(token)))), "terms");
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

    function test_terms_that_cannot_be_are_refused() public {
        PoolConfig memory bad = terms(address(token));
        bad.feeBps = 10_001;
        vm.expectRevert(abi.encodeWithSelector(IController.FeeTooHigh.selector, 10_001));
        factory.create(bad);
        bad = terms(address(token));
        bad.authority = address(0);
        vm.expectRevert(abi.encodeWithSelector(IController.Zero.selector, "authority"));
        factory.create(bad);
    }

    function test_a_provider_needs_the_least_stake() public {
        fund(provider, MIN_STAKE);
        vm.expectRevert(abi.encodeWithSelector(IController.StakeTooLow.selector, MIN_STAKE - 1, MIN_STAKE));
        vm.prank(provider);
        controller.registerProvider(provider, MIN_STAKE - 1);
    }

    function test_stake_comes_back_after_the_delay() public {
        _join(provider);
        vm.prank(provider);
        controller.unbond(MIN_STAKE);
        uint40 readyAt = uint40(block.timestamp + UNBOND_S);
        vm.warp(readyAt - 1);
        vm.expectRevert(abi.encodeWithSelector(IController.NotReady.selector, MIN_STAKE, readyAt));
        vm.prank(provider);
        controller.withdrawStake(provider);
        vm.warp(readyAt);
        vm.prank(provider);
        controller.withdrawStake(provider);
        same(token.balanceOf(provider), MIN_STAKE, "back");
        same(token.balanceOf(address(controller)), 0, "nothing left");
    }

    function test_unbonding_leaves_none_or_the_least_stake() public {
        _join(provider);
        vm.expectRevert(abi.encodeWithSelector(IController.StakeTooLow.selector, MIN_STAKE - 1, MIN_STAKE));
        vm.prank(provider);
        controller.unbond(1);
    }

    function test_a_node_joins_by_its_own_keys_signature() public {
        _join(provider);
        _bind(provider);
        (address owner, uint32 nonce) = controller.nodeOf(node);
        same(owner, provider, "owner");
        same(nonce, 1, "nonce");
    }

    function test_a_node_cannot_be_bound_by_another_key() public {
        _join(provider);
        (bytes32 r, bytes32 vs) = compact(SESSION_KEY, controller.nodeBindingDigest(node, provider));
        vm.expectRevert(abi.encodeWithSelector(IController.BadNodeSignature.selector, node, session));
        vm.prank(provider);
        controller.registerNode(node, r, vs);
    }

    function test_a_binding_for_one_provider_is_no_use_to_another() public {
        _join(provider);
        _join(rival);
        (bytes32 r, bytes32 vs) = compact(NODE_KEY, controller.nodeBindingDigest(node, provider));
        vm.expectRevert();
        vm.prank(rival);
        controller.registerNode(node, r, vs);
    }

    function test_an_old_binding_cannot_take_the_node_back() public {
        _join(provider);
        _join(rival);
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
    }

    function test_only_the_nodes_provider_sets_and_closes_its_offer() public {
        _join(provider);
        _join(rival);
        _bind(provider);
        _offer(provider);
        (bytes32 specHash, uint8 classes, string memory cid) = controller.offerOf(node);
        same(specHash, bytes32(uint256(1)), "hash");
        same(classes, WHOLE, "classes");
        same(keccak256(bytes(cid)), keccak256("cid"), "cid");
        vm.expectRevert(abi.encodeWithSelector(IController.NotNodeProvider.selector, rival, node, provider));
        vm.prank(rival);
        controller.closeOffer(node);
        vm.prank(provider);
        controller.closeOffer(node);
        vm.expectRevert(abi.encodeWithSelector(IController.NoOffer.selector, node));
        vm.prank(provider);
        controller.closeOffer(node);
    }

    function test_a_provider_who_left_offers_nothing() public {
        _join(provider);
        _bind(provider);
        vm.prank(provider);
        controller.unbond(MIN_STAKE);
        vm.expectRevert(abi.encodeWithSelector(IController.NotStaked.selector, provider, 0, MIN_STAKE));
        _offer(provider);
    }

    function test_simulated_gpus_need_a_pool_that_allows_them() public {
        _join(provider);
        _bind(provider);
        vm.expectRevert(abi.encodeWithSelector(IController.SimulatedRefused.selector, 33));
        vm.prank(provider);
        controller.setOffer(node, bytes32(uint256(1)), 33, "");
        vm.expectRevert(abi.encodeWithSelector(IController.UnknownClasses.selector, 64));
        vm.prank(provider);
        controller.setOffer(node, bytes32(uint256(1)), 64, "");
    }

    function test_components_are_found_until_they_expire() public {
        vm.prank(authority);
        controller.registerComponent(ComponentKind.Controller, "http://here", uint40(block.timestamp + 60));
        (string memory endpoint,) = controller.component(authority, ComponentKind.Controller);
        same(keccak256(bytes(endpoint)), keccak256("http://here"), "endpoint");
        vm.warp(block.timestamp + 60);
        (endpoint,) = controller.component(authority, ComponentKind.Controller);
        same(bytes(endpoint).length, 0, "expired");
        vm.expectRevert(abi.encodeWithSelector(IController.NotMember.selector, renter));
        vm.prank(renter);
        controller.registerComponent(ComponentKind.Relay, "http://spam", UNTIL);
    }

    function test_only_the_authority_of_the_epoch_anchors_and_the_size_grows() public {
        vm.prank(authority);
        controller.anchor(1, 5, "root", "digest");
        vm.expectRevert(abi.encodeWithSelector(IController.SizeNotAbove.selector, 5, 5));
        vm.prank(authority);
        controller.anchor(1, 5, "root2", "digest");
        vm.expectRevert(abi.encodeWithSelector(IController.NotAuthority.selector, renter, authority));
        vm.prank(renter);
        controller.anchor(1, 6, "root", "digest");
        vm.expectRevert(abi.encodeWithSelector(IController.WrongEpoch.selector, 2, 1));
        vm.prank(authority);
        controller.anchor(2, 6, "root", "digest");
        (uint32 epoch, uint64 size, uint128 commitment, uint40 seenAt) = controller.head();
        same(epoch, 1, "epoch");
        same(size, 5, "size");
        same(commitment, uint256(keccak256(abi.encode(bytes32("root"), bytes32("digest")))) >> 128, "commitment");
        same(seenAt, block.timestamp, "seen");
    }

    function test_authority_passes_with_a_new_epoch_and_the_old_one_is_done() public {
        vm.prank(authority);
        controller.anchor(1, 5, "root", "digest");
        vm.prank(authority);
        controller.passAuthority(rival);
        same(controller.epoch(), 2, "epoch");
        same(controller.authority(), rival, "authority");
        (, uint64 size,,) = controller.head();
        same(size, 5, "the head stays");
        vm.expectRevert(abi.encodeWithSelector(IController.NotAuthority.selector, authority, rival));
        vm.prank(authority);
        controller.anchor(2, 6, "root", "digest");
        vm.prank(rival);
        controller.anchor(2, 6, "root", "digest");
        (, uint40 until) = vault.authorityOf(1);
        same(until, block.timestamp + GRACE_S, "grace");
        (address signer,) = vault.authorityOf(2);
        same(signer, rival, "in the vault too");
        vm.expectRevert(abi.encodeWithSelector(IController.SameAuthority.selector, rival));
        vm.prank(rival);
        controller.passAuthority(rival);
    }
}
