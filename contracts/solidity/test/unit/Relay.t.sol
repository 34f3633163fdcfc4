// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ERC2771Forwarder} from "@openzeppelin/contracts/metatx/ERC2771Forwarder.sol";
import {Errors} from "@openzeppelin/contracts/utils/Errors.sol";
import {PermitToken, Relays, Wallet} from "../utils/Relays.sol";
import {Court} from "../../src/Court.sol";
import {Forwarder} from "../../src/Forwarder.sol";
import {IController} from "../../src/interfaces/IController.sol";
import {IVault} from "../../src/interfaces/IVault.sol";

/// Who has no gas signs a request, and anyone may bring it: the pool sees the signer as its caller, and nobody else.
contract RelayTest is Relays {
    uint256 private constant RENTER_KEY = 0x4E47E4;
    uint256 private constant PROVIDER_KEY = 0x94071D;
    uint256 private constant NODE_KEY = 0x40DE;
    address private poor = vm.addr(RENTER_KEY);

    function _asks(bytes memory data) private {
        relay(poor, RENTER_KEY, address(vault), data);
    }

    function test_a_provider_without_gas_joins_binds_a_node_and_offers_it() public {
        address owner = vm.addr(PROVIDER_KEY);
        address node = vm.addr(NODE_KEY);
        fund(owner, MIN_STAKE);
        (bytes32 r, bytes32 vs) = compact(NODE_KEY, controller.nodeBindingDigest(node, owner));
        bytes[] memory calls = new bytes[](3);
        calls[0] = abi.encodeCall(IController.registerProvider, (owner, MIN_STAKE));
        calls[1] = abi.encodeCall(IController.registerNode, (node, r, vs));
        calls[2] = abi.encodeCall(IController.setOffer, (node, bytes32(uint256(1)), 1 << 4, "cid"));
        for (uint256 i; i < 3; ++i) {
            relay(owner, PROVIDER_KEY, address(controller), calls[i]);
        }
        (address bound,) = controller.nodeOf(node);
        same(bound, owner, "the signer's node");
        (bytes32 specHash,,) = controller.offerOf(node);
        same(specHash, bytes32(uint256(1)), "on offer");
        (, uint64 stake,,) = controller.provider(RELAYER);
        same(stake, 0, "nothing is the relayer's");
    }

    function test_a_renter_without_gas_lives_a_whole_life() public {
        fund(poor, 100e6);
        _asks(abi.encodeCall(IVault.enter, (100e6, session, UNTIL)));
        _asks(abi.encodeCall(IVault.grant, (vm.addr(1), 30e6, UNTIL)));
        (,,, uint8 kind) = vault.keyOf(poor, vm.addr(1));
        same(kind, 1, "granted");
        _asks(abi.encodeCall(IVault.thaw, (100e6)));
        Voucher memory v = voucher(50e6);
        (v.renter, v.provider) = (poor, vm.addr(PROVIDER_KEY));
        vault.claim(v.provider, one(sign(v)));
        vm.warp(block.timestamp + THAW_S);
        _asks(abi.encodeCall(IVault.withdraw, (poor)));
        same(token.balanceOf(poor), 50e6, "the rest is back");
        relay(v.provider, PROVIDER_KEY, address(vault), abi.encodeCall(IVault.cashOut, (v.provider)));
        same(token.balanceOf(v.provider), 49e6, "cashed out");
    }

    /// The allowance too is given by signature: the pool needs no code for it.
    function test_a_renter_who_never_had_gas_joins_by_permit() public {
        PermitToken odd = new PermitToken();
        (controller, vault) = open(terms(address(odd)));
        odd.mint(poor, 100e6);
        bytes32 content = keccak256(
            abi.encode(
                keccak256("Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"),
                poor,
                address(vault),
                100e6,
                0,
                block.timestamp
            )
        );
        bytes32 digest = keccak256(abi.encodePacked(hex"1901", odd.DOMAIN_SEPARATOR(), content));
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(RENTER_KEY, digest);
        vm.prank(RELAYER);
        odd.permit(poor, address(vault), 100e6, block.timestamp, v, r, s);
        _asks(abi.encodeCall(IVault.enter, (100e6, session, UNTIL)));
        same(balanceOf(poor), 100e6, "joined");
    }

    function test_a_contract_wallet_asks_by_its_present_owners_signature() public {
        Wallet wallet = new Wallet(poor);
        address who = address(wallet);
        fund(who, 100e6);
        relay(who, RENTER_KEY, address(vault), abi.encodeCall(IVault.enter, (100e6, session, UNTIL)));
        same(balanceOf(who), 100e6, "the wallet's money");
        ERC2771Forwarder.ForwardRequestData memory old =
            request(who, RENTER_KEY, address(vault), abi.encodeCall(IVault.thaw, (100e6)));
        vm.prank(poor);
        wallet.pass(vm.addr(PROVIDER_KEY));
        _refused(old); // signed, but not brought before the wallet changed hands
        relay(who, PROVIDER_KEY, address(vault), abi.encodeCall(IVault.thaw, (60e6)));
        (uint64 amount,) = vault.thawing(who);
        same(amount, 60e6, "by the new owner");
    }

    /// The plain signature is tried first: an account of a key may have code (EIP-7702) that knows no EIP-1271.
    function test_an_account_with_code_asks_by_its_own_key() public {
        fund(poor, 100e6);
        vm.etch(poor, hex"00");
        _asks(abi.encodeCall(IVault.enter, (100e6, session, UNTIL)));
        same(balanceOf(poor), 100e6, "entered");
    }

    // -- refused

    function _refused(ERC2771Forwarder.ForwardRequestData memory made) private {
        yes(!forwarder.verify(made), "not good");
        vm.expectRevert();
        forwarder.execute(made);
    }

    function test_a_forged_request_is_refused() public {
        bytes memory data = abi.encodeCall(IVault.enter, (0, session, UNTIL));
        ERC2771Forwarder.ForwardRequestData memory forged = request(poor, PROVIDER_KEY, address(vault), data);
        vm.expectRevert(
            abi.encodeWithSelector(
                ERC2771Forwarder.ERC2771ForwarderInvalidSigner.selector, vm.addr(PROVIDER_KEY), poor
            )
        );
        forwarder.execute(forged);
        // A good one with another content.
        ERC2771Forwarder.ForwardRequestData memory changed = request(poor, RENTER_KEY, address(vault), data);
        changed.data = abi.encodeCall(IVault.enter, (0, vm.addr(1), UNTIL));
        _refused(changed);
        // A wallet that says nothing, and an account without code.
        _refused(request(address(token), RENTER_KEY, address(vault), data));
        _refused(request(renter, RENTER_KEY, address(vault), data));
    }

    function test_a_request_is_good_once() public {
        ERC2771Forwarder.ForwardRequestData memory made =
            request(poor, RENTER_KEY, address(vault), abi.encodeCall(IVault.enter, (0, session, UNTIL)));
        forwarder.execute(made);
        _refused(made);
    }

    function test_a_request_is_good_through_its_deadline() public {
        ERC2771Forwarder.ForwardRequestData memory made =
            request(poor, RENTER_KEY, address(vault), abi.encodeCall(IVault.enter, (0, session, UNTIL)));
        vm.warp(made.deadline + 1);
        vm.expectRevert(
            abi.encodeWithSelector(ERC2771Forwarder.ERC2771ForwarderExpiredRequest.selector, made.deadline)
        );
        forwarder.execute(made);
        vm.warp(made.deadline);
        forwarder.execute(made);
    }

    function test_a_request_for_another_chain_or_forwarder_is_refused() public {
        bytes memory data = abi.encodeCall(IVault.enter, (0, session, UNTIL));
        _refused(request(poor, RENTER_KEY, address(vault), data, forwarder, block.chainid + 1));
        Forwarder other = new Forwarder();
        ERC2771Forwarder.ForwardRequestData memory made =
            request(poor, RENTER_KEY, address(vault), data, other, block.chainid);
        _refused(made);
        // And the pool does not trust the other one, however well it was asked.
        vm.expectRevert(
            abi.encodeWithSelector(
                ERC2771Forwarder.ERC2771UntrustfulTarget.selector, address(vault), address(other)
            )
        );
        other.execute(made);
        vm.prank(address(other));
        (bool done,) = address(vault).call(bytes.concat(data, bytes20(poor)));
        yes(done, "a stranger enters for himself");
        (address key,,) = vault.account(poor);
        same(key, address(0), "and for nobody else");
    }

    function test_an_address_at_the_end_of_a_direct_call_is_nobodys_signature() public {
        enter(renter, 100e6, SESSION_KEY);
        bytes memory data = abi.encodeCall(IVault.thaw, (100e6));
        vm.expectRevert(abi.encodeWithSelector(IVault.BalanceTooLow.selector, 100e6, 0));
        vm.prank(RELAYER);
        (bool done,) = address(vault).call(bytes.concat(data, bytes20(renter)));
        done;
        bytes memory announce = abi.encodeCall(IController.announceOwner, (RELAYER));
        vm.prank(RELAYER);
        (done,) = address(controller).call(bytes.concat(announce, bytes20(owner)));
        yes(!done, "nor the owner's");
        (address announced,) = controller.announced();
        same(announced, address(0), "nothing happened");
    }

    function test_the_authoritys_acts_are_relayed_by_its_own_signature_only() public {
        bytes memory data = abi.encodeCall(IController.anchor, (1, 5, bytes32("root"), bytes32("digest")));
        ERC2771Forwarder.ForwardRequestData memory made = request(poor, RENTER_KEY, address(controller), data);
        vm.expectRevert(abi.encodeWithSelector(Errors.FailedCall.selector));
        forwarder.execute(made); // a good request of somebody else
        relay(authority, AUTHORITY_KEY, address(controller), data);
        (, uint64 size,,) = controller.head();
        same(size, 5, "anchored");
        // Not even the forwarder's word makes a controller of a signer.
        data = abi.encodeCall(IVault.authorityPassed, (3, poor, 0));
        vm.expectRevert(abi.encodeWithSelector(IVault.NotController.selector, address(forwarder)));
        vm.prank(address(forwarder));
        (bool done,) = address(vault).call(bytes.concat(data, bytes20(address(controller))));
        done;
    }

    /// A call of fewer than 20 bytes by the forwarder is its own: it names nobody.
    function test_a_short_call_by_the_forwarder_is_its_own() public {
        vm.prank(address(forwarder));
        (bool done, bytes memory why) = address(controller).call(abi.encodeCall(IController.renew, ()));
        yes(!done, "refused");
        bytes memory want = abi.encodeWithSelector(IController.NotAuthority.selector, address(forwarder), authority);
        same(keccak256(why), keccak256(want), "as the forwarder's");
    }

    // -- batches

    /// A renter who asked to withdraw too early keeps the request: nobody burns its nonce.
    function test_a_request_that_fails_is_not_used_up() public {
        fund(poor, 100e6);
        _asks(abi.encodeCall(IVault.enter, (100e6, session, UNTIL)));
        _asks(abi.encodeCall(IVault.thaw, (100e6)));
        uint256 ready = 1_800_000_000 + THAW_S;
        ERC2771Forwarder.ForwardRequestData[] memory requests = new ERC2771Forwarder.ForwardRequestData[](1);
        requests[0] = _long(abi.encodeCall(IVault.withdraw, (poor)), uint48(ready + 60));
        uint256 nonce = forwarder.nonces(poor);
        vm.expectRevert(abi.encodeWithSelector(Errors.FailedCall.selector));
        forwarder.execute(requests[0]);
        vm.expectRevert(abi.encodeWithSelector(Forwarder.RefundRefused.selector, RELAYER));
        vm.prank(RELAYER);
        forwarder.executeBatch(requests, payable(RELAYER)); // how somebody else would burn it
        vm.expectRevert(abi.encodeWithSelector(Errors.FailedCall.selector));
        forwarder.executeBatch(requests, payable(address(0)));
        same(forwarder.nonces(poor), nonce, "still good");
        vm.warp(ready);
        forwarder.executeBatch(requests, payable(address(0)));
        same(token.balanceOf(poor), 100e6, "withdrawn when it was ripe");
    }

    function test_a_batch_is_all_or_nothing() public {
        fund(poor, 100e6);
        address other = vm.addr(PROVIDER_KEY);
        ERC2771Forwarder.ForwardRequestData[] memory requests = new ERC2771Forwarder.ForwardRequestData[](2);
        requests[0] = request(poor, RENTER_KEY, address(vault), abi.encodeCall(IVault.deposit, (100e6)));
        requests[1] = request(other, PROVIDER_KEY, address(vault), abi.encodeCall(IVault.deposit, (1)));
        vm.expectRevert(abi.encodeWithSelector(Errors.FailedCall.selector));
        forwarder.executeBatch(requests, payable(address(0)));
        same(balanceOf(poor), 0, "nothing");
        fund(other, 1);
        forwarder.executeBatch(requests, payable(address(0)));
        yes(balanceOf(poor) == 100e6 && balanceOf(other) == 1, "all");
    }

    function _long(bytes memory data, uint48 deadline)
        private
        view
        returns (ERC2771Forwarder.ForwardRequestData memory made)
    {
        return request(poor, RENTER_KEY, address(vault), data, forwarder, block.chainid, deadline);
    }

    function test_the_pool_names_its_forwarder() public view {
        same(controller.trustedForwarder(), address(forwarder), "the pool's");
        yes(vault.isTrustedForwarder(address(forwarder)), "vault");
        yes(controller.isTrustedForwarder(address(forwarder)), "controller");
        yes(Court(controller.court()).isTrustedForwarder(address(forwarder)), "court");
        yes(!vault.isTrustedForwarder(address(controller)), "and no other");
    }
}
