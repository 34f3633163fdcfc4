// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ICourt, IWithdrawals, Owed, Shown, SignedHead, SignedPromise} from "./interfaces/ICourt.sol";
import {IVault, Item2} from "./interfaces/IVault.sol";
import {Evidence} from "./lib/Evidence.sol";
import {KeyWord, VoucherWords} from "./lib/Lanes.sol";
import {Signatures} from "./lib/Signatures.sol";

/// Reads evidence for courts: what an authority's log and vouchers say. A court passes a call on to the function of the
/// same name and arguments here, byte for byte; it answers what the evidence shows, and reverts where that is nothing. Whom
/// it convicts, and of what, is the court's to judge. Holds nothing, and knows of a pool what the court that asks tells, so
/// one serves all; it can change nothing, so anyone may ask.
contract Reader {
    using VoucherWords for uint256;

    /// The end of a signer's validity while its epoch is the present one.
    uint40 private constant PRESENT = type(uint40).max;

    /// Two leaves at one index of two trees. Always true.
    function proveFork(
        SignedHead memory one,
        SignedHead memory other,
        uint64 index,
        bytes32 leafOfOne,
        bytes32[] memory pathInOne,
        bytes32 leafOfOther,
        bytes32[] memory pathInOther
    ) external view returns (bool) {
        if (leafOfOne == leafOfOther) revert ICourt.SameLeaf(leafOfOne);
        Evidence.prove(leafOfOne, index, one.size, pathInOne, one.root);
        Evidence.prove(leafOfOther, index, other.size, pathInOther, other.root);
        return true;
    }

    /// Another leaf than the promised one at its index: whose promise it was, who signed it (zero: nobody), its index.
    function proveBrokenPromise(
        SignedPromise memory promised,
        SignedHead memory head,
        bytes32 leaf,
        bytes32[] memory path
    ) external view returns (address account, address signer, uint64 seq) {
        if (promised.epoch != head.epoch) revert ICourt.OtherEpoch(promised.epoch, head.epoch);
        if (promised.leaf == leaf) revert ICourt.SameLeaf(leaf);
        (account, seq) = (promised.account, promised.seq);
        Evidence.prove(leaf, seq, head.size, path, head.root);
        bytes32 pool = Evidence.poolOf(block.chainid, ICourt(msg.sender).controller());
        signer = Signatures.recover(Evidence.digestOf(promised, pool), promised.r, promised.vs);
    }

    /// Vouchers that the court's vault would take and the renter's balance does not cover: the present authority, what is
    /// owed in all, what of it is missing, and what each provider is owed.
    function proveOverPromise(Owed[] calldata vouchers)
        external
        view
        returns (address authority, uint256 sum, uint256 missing, uint256[] memory owed)
    {
        if (vouchers.length == 0) revert ICourt.Zero("vouchers");
        IVault vault = _vault();
        uint256 a = vouchers[0].voucher.a;
        address renter = a.renter();
        uint256 sinceMs;
        (authority, sinceMs) = _present(vault, a.epoch(), renter);
        (address own, uint64 balance, uint32 until) = vault.account(renter);
        owed = new uint256[](vouchers.length);
        address last;
        for (uint256 i; i < vouchers.length; ++i) {
            (address provider, Item2 calldata voucher) = (vouchers[i].provider, vouchers[i].voucher);
            if (provider <= last) revert ICourt.NotAscending(provider);
            last = provider;
            // One renter and one epoch: the ends of the word.
            if ((voucher.a ^ a) & ~(uint256(type(uint64).max) << 32) != 0) revert ICourt.OtherRenter(voucher.a);
            uint64 usedThroughMs = voucher.b.usedThroughMs();
            if (usedThroughMs <= sinceMs) revert ICourt.TooOld(usedThroughMs, sinceMs);
            address key = _keyOf(vault, authority, provider, voucher);
            if (key != own || usedThroughMs > uint256(until) * 1000) {
                // A delegated or retired key as the vault would take it now. What a cap leaves is promised all the same.
                (, uint32 end, uint32 deadFrom, uint8 kind) = vault.keyOf(renter, key);
                bool dead = deadFrom != 0 && block.timestamp >= deadFrom;
                if (kind == KeyWord.NONE || dead || usedThroughMs > uint256(end) * 1000) {
                    revert ICourt.BadKey(key, usedThroughMs);
                }
            }
            (uint64 claimed,) = vault.pair(provider, renter);
            if (voucher.a.cumulative() > claimed) sum += owed[i] = voucher.a.cumulative() - claimed;
        }
        if (sum <= balance) revert ICourt.WithinBalance(sum, balance);
        missing = sum - balance;
    }

    /// A voucher by a delegated key, and the authority that countersigned it.
    function accuseOverBill(address provider, Item2 calldata voucher) external view returns (address authority) {
        if (voucher.a.cumulative() == 0) revert ICourt.Zero("cumulative");
        IVault vault = _vault();
        address renter = voucher.a.renter();
        (authority,) = vault.authorityOf(voucher.a.epoch());
        address key = _keyOf(vault, authority, provider, voucher);
        (,,, uint8 kind) = vault.keyOf(renter, key);
        (address own,,) = vault.account(renter);
        if (kind != KeyWord.DELEGATED || key == own) revert ICourt.NotDelegated(key, kind);
    }

    /// What of a pair is due, at least `cumulative`.
    function answerOverBill(uint64 cumulative, SignedHead memory head, Shown memory due)
        external
        view
        returns (address renter, address provider)
    {
        Evidence.prove(due, head);
        uint64 total;
        (renter, provider, total) = Evidence.voucherDueOf(due.effect);
        if (total < cumulative) revert ICourt.BelowVoucher(total, cumulative);
    }

    /// The runs of two grants that cannot both stand, whose the later one is, and where they stand: from(128) | to(128).
    function accuseDoubleLease(SignedHead memory head, Shown memory first, Shown memory second)
        external
        view
        returns (uint256 earlier, uint256 later, address renter, uint256 places)
    {
        (uint128 from,) = Evidence.prove(first, head);
        (uint128 to, uint32 epoch) = Evidence.prove(second, head);
        if (epoch != head.epoch) revert ICourt.OtherEpoch(epoch, head.epoch);
        if (from >= to) revert ICourt.OutOfOrder(from, 0, to);
        (earlier,) = Evidence.grantOf(first.effect);
        (later, renter) = Evidence.grantOf(second.effect);
        if (earlier == later || !Evidence.overlap(first.effect, second.effect)) {
            revert ICourt.NoOverlap(earlier, later);
        }
        places = uint256(from) << 128 | to;
    }

    /// The run that was freed, and the place where the log says so.
    function answerDoubleLease(uint256 second, SignedHead memory head, Shown memory freed)
        external
        view
        returns (uint256 run, uint128 place)
    {
        (place,) = Evidence.prove(freed, head);
        run = Evidence.freedOf(freed.effect);
    }

    // -- inside

    function _vault() private view returns (IVault) {
        return IVault(ICourt(msg.sender).vault());
    }

    /// The renter's key that signed a voucher which the authority countersigned.
    function _keyOf(IVault vault, address authority, address provider, Item2 calldata voucher)
        private
        view
        returns (address key)
    {
        bytes32 digest = Signatures.voucher(vault.domainSeparator(), provider, voucher.a, voucher.b);
        address signer = Signatures.recover(digest, voucher.ar, voucher.avs);
        if (authority == address(0) || signer != authority) revert ICourt.NotSigned(authority, signer);
        key = Signatures.recover(digest, voucher.r, voucher.vs);
        if (key == address(0) || key == authority) revert ICourt.BadKey(key, voucher.b.usedThroughMs());
    }

    /// The authority of the present epoch, and the moment before which its promises prove nothing: see {ICourt}, d.
    function _present(IVault vault, uint32 epoch, address renter)
        private
        view
        returns (address authority, uint256 sinceMs)
    {
        uint40 validUntil;
        (authority, validUntil) = vault.authorityOf(epoch);
        if (validUntil != PRESENT) revert ICourt.NotPresent(epoch);
        (, validUntil) = vault.authorityOf(epoch - 1); // epoch 0 never was: nothing
        uint256 since = uint256(validUntil) + ICourt(msg.sender).answerDelayS();
        uint256 withdrawn = IWithdrawals(address(vault)).withdrawnAt(renter);
        sinceMs = (withdrawn > since ? withdrawn : since) * 1000;
    }
}
