// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Item2} from "../../src/interfaces/IVault.sol";
import {PoolConfig} from "../../src/interfaces/PoolConfig.sol";
import {Controller} from "../../src/Controller.sol";
import {TestToken} from "../../src/TestToken.sol";
import {Vault} from "../../src/Vault.sol";

/// The one cheat code of halmos that is used: every storage word of `target` becomes any word.
interface Svm {
    function enableSymbolicStorage(address target) external;
}

/// Proved by halmos on the contracts' own bytecode: from any storage, no call of these functions, by anybody and with any
/// arguments, lets a total fall.
contract MonotoneSymbolic {
    Svm private constant SVM = Svm(0xF3993A62377BCd56AE39D773740A5390411E8BC9);

    address private constant FORWARDER = address(0xF0F0);

    Controller private _controller;
    Vault private _vault;

    function setUp() public {
        PoolConfig memory config;
        config.token = address(new TestToken());
        (config.owner, config.authority) = (address(this), address(this));
        config.allowSimulated = true; // a pool for trials: no floors
        config.feeBps = 200;
        _controller = new Controller(config, FORWARDER);
    }

    /// What the controller asks of its maker, who is a factory elsewhere. No function here calls the court.
    function makeParts(PoolConfig calldata config) external returns (address vault, address court) {
        _vault = new Vault(msg.sender, config.token, config.authority, config.feeBps, config.thawDelayS, FORWARDER);
        return (address(_vault), address(0));
    }

    function check_no_anchor_lowers_the_head(uint32 epoch, uint64 size, bytes32 root, bytes32 digest) external {
        SVM.enableSymbolicStorage(address(_controller));
        (uint32 before, uint64 old,,) = _controller.head();
        try _controller.anchor(epoch, size, root, digest) {
            (uint32 e, uint64 s,,) = _controller.head();
            assert(e == before && e == epoch && s == size && s > old && s - old <= 1 << 32);
        } catch {
            (uint32 e, uint64 s,,) = _controller.head();
            assert(e == before && s == old);
        }
    }

    function check_replacing_the_authority_raises_the_epoch_by_one(address next, bytes32 r, bytes32 vs) external {
        SVM.enableSymbolicStorage(address(_controller));
        (uint32 before, uint64 old, uint128 commitment,) = _controller.head();
        try _controller.replaceAuthority(next, r, vs) {
            (uint32 e, uint64 s, uint128 c,) = _controller.head();
            assert(e == before + 1 && s == old && c == commitment);
        } catch {}
    }

    /// One voucher of any words and signatures.
    function check_no_claim_lowers_a_total(address provider, address renter, Item2 calldata item) external {
        SVM.enableSymbolicStorage(address(_vault));
        Item2[] memory items = new Item2[](1);
        items[0] = item;
        (uint64 claimed,) = _vault.pair(provider, renter);
        (uint64 earned, uint64 fee, uint64 paidOut) = _vault.totals(provider);
        try _vault.claim(provider, items) {} catch {}
        (uint64 claimedAfter,) = _vault.pair(provider, renter);
        assert(claimedAfter >= claimed);
        if (claimedAfter != claimed) assert(claimedAfter <= uint64(item.a >> 32));
        (uint64 earnedAfter, uint64 feeAfter, uint64 paidOutAfter) = _vault.totals(provider);
        assert(earnedAfter >= earned && feeAfter >= fee && paidOutAfter == paidOut);
    }
}
