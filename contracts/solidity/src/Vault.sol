// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {IVault, Item, Item2, ProviderItems} from "./interfaces/IVault.sol";
import {AccountWord, KeyWord, PairWord, ThawingWord, TotalsWord, VoucherWords} from "./lib/Lanes.sol";
import {Coin} from "./lib/Coin.sol";
import {Relayed} from "./lib/Relayed.sol";
import {Signatures} from "./lib/Signatures.sol";

/// See {IVault}.
/// @dev Every function that moves tokens has the guard; claims call nothing but precompiles.
contract Vault is IVault, Relayed, ReentrancyGuardTransient {
    using AccountWord for uint256;
    using VoucherWords for uint256;

    /// A signer is valid without end while its epoch is the present one.
    uint40 private constant PRESENT = type(uint40).max;
    bytes32 private constant NAME = keccak256("Selion Vault");

    address public immutable controller;
    address public immutable token;
    uint256 public immutable scale;
    uint256 private immutable FEE_BPS;
    uint256 private immutable THAW_DELAY_S;
    uint256 private immutable CHAIN_ID;
    bytes32 private immutable DOMAIN;

    /// Renter to AccountWord: the only slot of a renter that a claim writes.
    mapping(address => uint256) private _accounts;
    /// Renter to ThawingWord.
    mapping(address => uint256) private _thawing;
    /// Provider to renter to PairWord.
    mapping(address => mapping(address => uint256)) private _pairs;
    /// Provider to TotalsWord.
    mapping(address => uint256) private _totals;
    /// Renter to key to KeyWord: delegated and retired keys only.
    mapping(address => mapping(address => uint256)) private _keys;
    /// Epoch to signer(160) | validUntil(40).
    mapping(uint256 => uint256) private _authorities;
    /// signer(160) | epoch(32) of the present authority.
    uint256 private _present;

    constructor(
        address controller_,
        address token_,
        address authority_,
        uint16 feeBps_,
        uint32 thawDelayS_,
        address forwarder_
    ) Relayed(forwarder_) {
        controller = controller_;
        token = token_;
        scale = Coin.scaleOf(token_);
        FEE_BPS = feeBps_;
        THAW_DELAY_S = thawDelayS_;
        CHAIN_ID = block.chainid;
        DOMAIN = Signatures.domain(NAME, block.chainid, address(this));
        _authorities[1] = uint256(uint160(authority_)) << 40 | PRESENT;
        _present = uint256(uint160(authority_)) << 32 | 1;
    }

    // -- renters

    function deposit(uint64 amount) external nonReentrant {
        if (amount == 0) revert Zero("amount");
        address renter = _caller();
        _accounts[renter] = _take(renter, amount);
        emit Deposited(renter, amount);
    }

    function enter(uint64 amount, address key, uint32 until) external nonReentrant {
        _refuseAsKey(key);
        address renter = _caller();
        uint256 word = _take(renter, amount);
        address old = word.key();
        if (old == key && until < word.until()) revert UntilFalls(word.until());
        _accounts[renter] = AccountWord.pack(key, word.balance(), until);
        if (old != address(0) && old != key) _retire(renter, old, word.until());
        emit Entered(renter, amount, key, until);
    }

    function grant(address key, uint64 cap, uint32 until) external {
        _refuseAsKey(key);
        address renter = _caller();
        uint256 word = _keys[renter][key];
        uint8 kind = KeyWord.kind(word);
        bool revoked = KeyWord.deadFrom(word) != 0;
        if (kind == KeyWord.RETIRED || revoked || _accounts[renter].key() == key) revert KeyInUse(key);
        // A grant that could fall would let a renter undo vouchers that a provider already holds.
        if (cap < KeyWord.capLeft(word) || until < KeyWord.until(word)) {
            revert GrantFalls(KeyWord.capLeft(word), KeyWord.until(word));
        }
        _keys[renter][key] = KeyWord.pack(cap, until, 0, KeyWord.DELEGATED);
        emit KeyGranted(renter, key, cap, until);
    }

    function revoke(address key) external {
        address renter = _caller();
        uint256 account_ = _accounts[renter];
        if (key != address(0) && account_.key() == key) {
            _accounts[renter] = AccountWord.pack(address(0), account_.balance(), 0);
            _retire(renter, key, account_.until());
            emit KeyCleared(renter);
            return;
        }
        uint256 word = _keys[renter][key];
        if (KeyWord.kind(word) != KeyWord.DELEGATED || KeyWord.deadFrom(word) != 0) revert NoSuchKey(key);
        _end(renter, key, KeyWord.capLeft(word), KeyWord.until(word), KeyWord.DELEGATED);
    }

    function thaw(uint64 amount) external {
        address renter = _caller();
        uint64 balance = _accounts[renter].balance();
        if (amount > balance) revert BalanceTooLow(amount, balance);
        uint40 readyAt = amount == 0 ? 0 : uint40(block.timestamp + THAW_DELAY_S);
        _thawing[renter] = ThawingWord.pack(amount, readyAt, ThawingWord.withdrawnAt(_thawing[renter]));
        emit Thawed(renter, amount, readyAt);
    }

    function withdraw(address to) external nonReentrant {
        _refuseAsPayee(to);
        address renter = _caller();
        (uint64 amount, uint40 readyAt) = thawing(renter);
        if (amount == 0 || block.timestamp < readyAt) revert NotReady(amount, readyAt);
        uint256 account_ = _accounts[renter];
        uint64 balance = account_.balance();
        if (amount > balance) amount = balance;
        _thawing[renter] = ThawingWord.pack(0, 0, uint40(block.timestamp));
        _accounts[renter] = account_ - (uint256(amount) << 32); // not above the balance
        emit Withdrawn(renter, to, amount);
        _pay(to, amount);
    }

    // -- claims

    function claim(address provider, Item2[] calldata items) external {
        _claim(_domain(), provider, items);
    }

    function claimMany(ProviderItems[] calldata claims) external {
        bytes32 domain = _domain();
        for (uint256 i; i < claims.length; ++i) {
            _claim(domain, claims[i].provider, claims[i].items);
        }
    }

    function claimAggregated(address provider, uint32 epoch, bytes32 ar, bytes32 avs, Item[] calldata items) external {
        bytes32 domain = _domain();
        bytes32[] memory digests = new bytes32[](items.length);
        for (uint256 i; i < items.length; ++i) {
            digests[i] = Signatures.voucher(domain, provider, items[i].a, items[i].b);
        }
        bytes32 vouchers;
        assembly ("memory-safe") {
            vouchers := keccak256(add(digests, 0x20), shl(5, mload(digests)))
        }
        bytes32 batch = _batchDigest(domain, provider, epoch, vouchers);
        address authority = Signatures.recover(batch, ar, avs);
        if (authority == address(0) || authority != _validAuthority(epoch)) revert BadBatchSignature(epoch, authority);

        Tally memory tally = _open(items.length);
        mapping(address => uint256) storage pairs = _pairs[provider];
        for (uint256 i; i < items.length; ++i) {
            Item calldata item = items[i];
            (uint256 a, uint256 b) = (item.a, item.b);
            uint256 pairWord = pairs[a.renter()];
            if (a.cumulative() <= PairWord.claimed(pairWord) || a.epoch() > epoch) continue;
            address signer = Signatures.recover(digests[i], item.r, item.vs);
            if (signer == address(0) || signer == authority) continue;
            uint256 settled = _settle(tally, pairWord, signer, a, b);
            if (settled != 0) pairs[a.renter()] = settled;
        }
        _close(tally, provider);
    }

    // -- exits of the earners

    function cashOut(address payee) external nonReentrant {
        _refuseAsPayee(payee);
        address provider = _caller();
        uint256 word = _totals[provider];
        uint64 due = TotalsWord.earned(word) - TotalsWord.paidOut(word);
        if (due == 0) revert NothingDue(provider);
        _totals[provider] = word + (uint256(due) << 64); // paidOut rises to earned
        emit CashedOut(provider, payee, due);
        _pay(payee, due);
    }

    function cashOutFees(address payee, address[] calldata providers) external nonReentrant {
        address authority = address(uint160(_present >> 32));
        address caller = _caller();
        if (caller != authority) revert NotAuthority(caller, authority);
        _refuseAsPayee(payee);
        uint64 sum;
        for (uint256 i; i < providers.length; ++i) {
            uint256 word = _totals[providers[i]];
            uint64 due = TotalsWord.fee(word) - TotalsWord.feeOut(word);
            if (due == 0) continue;
            _totals[providers[i]] = word + due; // feeOut rises to fee
            sum += due; // checked
            emit FeesCashedOut(providers[i], payee, due);
        }
        if (sum == 0) revert NothingDue(authority);
        _pay(payee, sum);
    }

    // -- the controller

    function authorityPassed(uint32 epoch, address signer, uint40 oldValidUntil) external {
        // The sender itself: a controller signs no requests.
        if (msg.sender != controller) revert NotController(msg.sender);
        _authorities[epoch - 1] = _authorities[epoch - 1] >> 40 << 40 | oldValidUntil;
        _authorities[epoch] = uint256(uint160(signer)) << 40 | PRESENT;
        _present = uint256(uint160(signer)) << 32 | epoch;
    }

    // -- reading

    function account(address renter) external view returns (address key, uint64 balance, uint32 until) {
        uint256 word = _accounts[renter];
        return (word.key(), word.balance(), word.until());
    }

    function thawing(address renter) public view returns (uint64 amount, uint40 readyAt) {
        uint256 word = _thawing[renter];
        return (ThawingWord.amount(word), ThawingWord.readyAt(word));
    }

    function withdrawnAt(address renter) external view returns (uint40) {
        return ThawingWord.withdrawnAt(_thawing[renter]);
    }

    function pair(address provider, address renter) external view returns (uint64 claimed, uint64 usedThroughMs) {
        uint256 word = _pairs[provider][renter];
        return (PairWord.claimed(word), PairWord.usedThroughMs(word));
    }

    function totals(address provider)
        external
        view
        returns (uint64 earned, uint64 fee, uint64 paidOut, uint64 feeOut)
    {
        uint256 word = _totals[provider];
        return (TotalsWord.earned(word), TotalsWord.fee(word), TotalsWord.paidOut(word), TotalsWord.feeOut(word));
    }

    function keyOf(address renter, address key)
        external
        view
        returns (uint64 capLeft, uint32 until, uint32 deadFrom, uint8 kind)
    {
        uint256 word = _keys[renter][key];
        return (KeyWord.capLeft(word), KeyWord.until(word), KeyWord.deadFrom(word), KeyWord.kind(word));
    }

    function authorityOf(uint32 epoch) external view returns (address signer, uint40 validUntil) {
        uint256 word = _authorities[epoch];
        return (address(uint160(word >> 40)), uint40(word));
    }

    function domainSeparator() external view returns (bytes32) {
        return _domain();
    }

    function voucherDigest(address provider, uint256 a, uint256 b) external view returns (bytes32) {
        return Signatures.voucher(_domain(), provider, a, b);
    }

    function batchDigest(address provider, uint32 epoch, bytes32 vouchers) external view returns (bytes32) {
        return _batchDigest(_domain(), provider, epoch, vouchers);
    }

    // -- inside: money and keys

    /// Takes `amount` from the renter and returns the account word with it; the caller stores it.
    function _take(address renter, uint64 amount) private returns (uint256) {
        if (amount != 0) Coin.take(token, scale, renter, amount);
        // Read after the transfer: a claim made from a token's hook must not be overwritten.
        uint256 word = _accounts[renter];
        _fits(uint256(word.balance()) + amount);
        return word + (uint256(amount) << 32);
    }

    function _pay(address to, uint64 amount) private {
        Coin.pay(token, scale, to, amount);
    }

    /// Keeps a former own key claimable for the thaw delay. What an earlier life of the key allowed is not taken back.
    function _retire(address renter, address key, uint32 until) private {
        uint32 before = KeyWord.until(_keys[renter][key]);
        _end(renter, key, 0, until > before ? until : before, KeyWord.RETIRED);
    }

    function _end(address renter, address key, uint64 capLeft, uint32 until, uint8 kind) private {
        uint32 deadFrom = _deadFrom();
        _keys[renter][key] = KeyWord.pack(capLeft, until, deadFrom, kind);
        emit KeyRevoked(renter, key, deadFrom);
    }

    function _deadFrom() private view returns (uint32) {
        uint256 moment = block.timestamp + THAW_DELAY_S;
        return moment > type(uint32).max ? type(uint32).max : uint32(moment);
    }

    function _refuseAsKey(address key) private view {
        if (key == address(0)) revert Zero("key");
        if (key == address(uint160(_present >> 32))) revert KeyIsAuthority(key);
    }

    function _refuseAsPayee(address payee) private view {
        if (payee == address(0) || payee == address(this)) revert BadPayee(payee);
    }

    // -- inside: claims

    /// What a batch for one provider has moved so far.
    struct Tally {
        uint256 gross;
        uint256 fee;
        uint256[] rows;
        uint256 end; // where in memory the next row goes
    }

    function _open(uint256 items) private pure returns (Tally memory tally) {
        uint256[] memory rows = new uint256[](2 * items);
        tally.rows = rows;
        assembly ("memory-safe") {
            mstore(add(tally, 0x60), add(rows, 0x20))
        }
    }

    function _claim(bytes32 domain, address provider, Item2[] calldata items) private {
        Tally memory tally = _open(items.length);
        mapping(address => uint256) storage pairs = _pairs[provider];
        uint256 lastEpoch; // epoch 0 never was
        address authority;
        for (uint256 i; i < items.length; ++i) {
            Item2 calldata item = items[i];
            (uint256 a, uint256 b) = (item.a, item.b);
            // Staleness first: it is the cheapest test, and a batch of stale vouchers is the commonest waste.
            uint256 pairWord = pairs[a.renter()];
            if (a.cumulative() <= PairWord.claimed(pairWord)) continue;
            if (a.epoch() != lastEpoch) {
                lastEpoch = a.epoch();
                authority = _validAuthority(lastEpoch);
            }
            if (authority == address(0)) continue;
            bytes32 digest = Signatures.voucher(domain, provider, a, b);
            if (Signatures.recover(digest, item.ar, item.avs) != authority) continue;
            address signer = Signatures.recover(digest, item.r, item.vs);
            if (signer == address(0) || signer == authority) continue;
            uint256 settled = _settle(tally, pairWord, signer, a, b);
            if (settled != 0) pairs[a.renter()] = settled;
        }
        _close(tally, provider);
    }

    /// Pays one voucher whose signatures are good, as far as key and balance reach. Returns the new pair word; 0 if
    /// nothing moved. The caller has checked that the voucher is above what was claimed.
    function _settle(Tally memory tally, uint256 pairWord, address signer, uint256 a, uint256 b)
        private
        returns (uint256)
    {
        // Nothing here can wrap: paid <= cumulative - before and paid <= balance, both below 2^64.
        unchecked {
            uint256 accountWord = _accounts[a.renter()];
            uint256 before = PairWord.claimed(pairWord);
            uint256 paid = a.cumulative() - before;
            if (paid > accountWord.balance()) paid = accountWord.balance();
            // Expiry is tested against the use, not the block's time: a provider who claims late loses nothing.
            if (signer != accountWord.key() || b.usedThroughMs() > uint256(accountWord.until()) * 1000) {
                paid = _spendOtherKey(a.renter(), signer, b.usedThroughMs(), paid);
            }
            if (paid == 0) return 0;
            _accounts[a.renter()] = accountWord - (paid << 32);
            uint256 claimed = before + paid;
            tally.gross += paid;
            // On the pair's total, so that no order or batching of claims gains a rounding.
            tally.fee += claimed * FEE_BPS / 10_000 - before * FEE_BPS / 10_000;
            uint256 row = claimed << 192 | paid << 128 | uint128(b);
            assembly ("memory-safe") {
                let end := mload(add(tally, 0x60))
                mstore(end, a)
                mstore(add(end, 0x20), row)
                mstore(add(tally, 0x60), add(end, 0x40))
            }
            return PairWord.pack(
                uint64(claimed), claimed == a.cumulative() ? b.usedThroughMs() : PairWord.usedThroughMs(pairWord)
            );
        }
    }

    /// What a delegated or retired key may still move of `paid`; takes it from the cap of a delegated one.
    function _spendOtherKey(address renter, address key, uint64 usedThroughMs, uint256 paid) private returns (uint256) {
        uint256 word = _keys[renter][key];
        uint32 until = KeyWord.until(word);
        uint32 deadFrom = KeyWord.deadFrom(word);
        uint8 kind = KeyWord.kind(word);
        if (kind == KeyWord.NONE || usedThroughMs > uint256(until) * 1000) return 0;
        if (deadFrom != 0 && block.timestamp >= deadFrom) return 0;
        if (kind == KeyWord.RETIRED) return paid;
        uint64 cap = KeyWord.capLeft(word);
        if (paid > cap) paid = cap;
        if (paid == 0) return 0;
        cap -= uint64(paid);
        _keys[renter][key] = KeyWord.pack(cap, until, deadFrom, kind);
        emit KeyGranted(renter, key, cap, until);
        return paid;
    }

    function _close(Tally memory tally, address provider) private {
        if (tally.gross == 0) return;
        uint256[] memory rows = tally.rows;
        assembly ("memory-safe") {
            // Shorter than allocated: skipped items have no row.
            mstore(rows, shr(5, sub(sub(mload(add(tally, 0x60)), rows), 0x20)))
        }
        uint256 word = _totals[provider];
        uint256 net = tally.gross - tally.fee;
        _fits(TotalsWord.earned(word) + net);
        _fits(TotalsWord.fee(word) + tally.fee);
        word += net << 192 | tally.fee << 128;
        _totals[provider] = word;
        emit Claimed(provider, word, rows);
    }

    /// The authority of an epoch, or zero if there is none or its grace is over.
    function _validAuthority(uint256 epoch) private view returns (address) {
        uint256 word = _authorities[epoch];
        return block.timestamp <= uint40(word) ? address(uint160(word >> 40)) : address(0);
    }

    function _batchDigest(bytes32 domain, address provider, uint32 epoch, bytes32 vouchers)
        private
        pure
        returns (bytes32)
    {
        return Signatures.typed(domain, keccak256(abi.encode(Signatures.BATCH_TYPE, provider, epoch, vouchers)));
    }

    /// The domain; made anew after a chain split, so that a voucher is good on one side only.
    function _domain() private view returns (bytes32) {
        return block.chainid == CHAIN_ID ? DOMAIN : Signatures.domain(NAME, block.chainid, address(this));
    }

    function _fits(uint256 sum) private pure {
        if (sum > type(uint64).max) revert Overflow(sum);
    }
}
