// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Blueprints} from "../utils/Blueprints.sol";
import {Pools} from "../utils/Pools.sol";
import {PoolConfig} from "../../src/interfaces/PoolConfig.sol";
import {IController} from "../../src/interfaces/IController.sol";
import {Blueprint} from "../../src/lib/Blueprint.sol";
import {Data} from "../../src/lib/Data.sol";
import {Court} from "../../src/Court.sol";
import {Vault} from "../../src/Vault.sol";

/// What a factory makes from blueprints is what its source compiles to, and a factory takes nothing else.
contract BlueprintsTest is Pools {
    /// CREATE2 gives the address of its creation code: the same address is the same creation code and arguments.
    function _direct(address maker, bytes memory init, bytes32 salt) private returns (address made) {
        vm.prank(maker);
        assembly ("memory-safe") {
            made := create2(0, add(init, 0x20), mload(init), salt)
        }
    }

    function test_a_pools_code_is_what_a_direct_deployment_gives() public {
        uint256 before = vm.snapshotState();
        PoolConfig memory config = terms(address(token));
        bytes32 salt = keccak256(abi.encode(keccak256(abi.encode(config)), address(this), factory.poolCount()));
        (address c, address v) = factory.create(config);
        address j = IController(c).court();
        bytes32[3] memory codes = [c.codehash, v.codehash, j.codehash];
        vm.revertToState(before);
        bytes memory init = bytes.concat(Blueprints.codeOf("Controller"), abi.encode(config, forwarder));
        same(_direct(address(factory), init, salt), c, "controller");
        same(c.codehash, codes[0], "its code");
        vm.revertToState(before);
        salt = bytes32(uint256(uint160(c)));
        bytes memory arguments = abi.encode(c, token, authority, FEE_BPS, THAW_S, forwarder);
        same(_direct(address(factory), bytes.concat(Blueprints.codeOf("Vault"), arguments), salt), v, "vault");
        same(v.codehash, codes[1], "its code");
        arguments = abi.encode(c, v, token, UNBOND_S, MIN_BOND, forwarder);
        same(_direct(address(factory), bytes.concat(Blueprints.codeOf("Court"), arguments), salt), j, "court");
        same(j.codehash, codes[2], "its code");
    }

    function test_a_pools_parts_know_each_other() public view {
        same(Court(controller.court()).controller(), address(controller), "the court's controller");
        same(Court(controller.court()).vault(), address(vault), "the court's vault");
        same(Court(controller.court()).token(), address(token), "the court's token");
        same(Court(controller.court()).minBond(), MIN_BOND, "the court's terms");
        same(Court(controller.court()).unbondDelayS(), UNBOND_S, "and its delay");
        same(controller.vault(), address(vault), "the controller's vault");
    }

    function test_nobody_can_run_a_blueprint() public {
        (bool done,) = factory.vaultBlueprint().call("");
        yes(!done, "it is not callable");
    }

    /// A factory with this in place of one of its blueprints, each in turn: it is made with all, or with none.
    function _factory(address odd) private returns (bool made) {
        address[3] memory good = [factory.vaultBlueprint(), factory.controllerBlueprint(), factory.courtBlueprint()];
        for (uint256 i; i < 3; ++i) {
            address was = good[i];
            good[i] = odd;
            bytes memory arguments = abi.encode(forwarder, good[0], good[1], good[2]);
            good[i] = was;
            bool done = Blueprints.deploy(bytes.concat(Blueprints.codeOf("PoolFactory"), arguments)) != address(0);
            yes(i == 0 || done == made, "each blueprint is looked at");
            made = done;
        }
    }

    function test_a_factory_takes_nothing_but_blueprints() public {
        yes(_factory(factory.vaultBlueprint()), "a blueprint");
        yes(!_factory(address(vault)), "a contract");
        yes(!_factory(renter), "no code");
        address bare = Blueprints.deploy(hex"62fe71005f526003601df3");
        same(keccak256(bare.code), keccak256(hex"fe7100"), "a preamble without code");
        yes(!_factory(bare), "nothing to make");
        address other = Blueprints.deploy(hex"63fe7101005f526004601cf3");
        same(keccak256(other.code), keccak256(hex"fe710100"), "a preamble with data after it");
        yes(!_factory(other), "another kind of blueprint");
        vm.expectRevert(abi.encodeWithSelector(Blueprint.NotBlueprint.selector, other));
        this.make(other);
    }

    function make(address blueprint) external returns (address) {
        return Blueprint.create(blueprint, "", 0);
    }

    function test_what_is_not_made_is_told() public {
        address mute = Blueprints.deploy(Blueprints.initcode(hex"5f5ffd"));
        vm.expectRevert(abi.encodeWithSelector(Blueprint.NotMade.selector, mute));
        this.make(mute);
        address talking = Blueprints.deploy(Blueprints.initcode(hex"600160005260206000fd"));
        vm.expectRevert(abi.encodePacked(uint256(1)));
        this.make(talking);
        address terse = Blueprints.deploy(Blueprints.initcode(hex"60016000fd"));
        vm.expectRevert(hex"00");
        this.make(terse);
    }

    function test_anyone_may_make_parts_for_himself_and_harms_nobody() public {
        vm.prank(renter);
        (address v, address j) = factory.makeParts(terms(address(token)));
        same(Vault(v).controller(), renter, "his own");
        same(Court(j).controller(), renter, "his own");
        yes(v != address(vault), "not the pool's");
        same(factory.poolCount(), 1, "not listed");
        vm.expectRevert(abi.encodeWithSelector(Blueprint.NotMade.selector, factory.vaultBlueprint()));
        vm.prank(renter);
        factory.makeParts(terms(address(token))); // once for equal terms: the address is taken
    }

    function test_long_terms_are_kept_whole() public {
        PoolConfig memory config = terms(address(token));
        config.metadataCid = string(new bytes(500));
        (controller,) = open(config);
        same(keccak256(abi.encode(controller.config())), keccak256(abi.encode(config)), "terms");
        config.metadataCid = string(new bytes(24_200));
        vm.expectRevert(abi.encodeWithSelector(Data.NotKept.selector, abi.encode(config).length));
        factory.create(config);
    }
}
