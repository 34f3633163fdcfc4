// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {IController} from "./interfaces/IController.sol";
import {IVault, Item, Item2, ProviderItems} from "./interfaces/IVault.sol";
import {AccountWord, AuthorityWord, KeyWord, PairWord, ThawingWord, TotalsWord, VoucherWords} from "./lib/Lanes.sol";
import {Coin} from "./lib/Coin.sol";
import {Relayed} from "./lib/Relayed.sol";
import {Signatures} from "./lib/Signatures.sol";

/// See {IVault}.
/// @dev Every function that moves tokens has the guard; claims call nothing but precompiles and a view of the controller.
contract Vault is IVault, Relayed, ReentrancyGuardTransient {
    using AccountWord for uint256;
    using VoucherWords for uint256;

    /// Which key spent the rows of a batch: none, so far.
    address private constant NOBODY = address(0);
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
    /// Epoch to AuthorityWord.
    mapping(uint256 => uint256) private _authorities;
    /// The present authority.
    address private _present;

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
        _authorities[1] = AuthorityWord.pack(authority_, AuthorityWord.PRESENT, 0);
        _present = authority_;
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
        uint32 deadFrom = KeyWord.deadFrom(word);
        if (_accounts[renter].key() == key || deadFrom > block.timestamp) revert KeyInUse(key);
        // A grant that could fall would let a renter undo vouchers that a provider already holds.
        if (deadFrom == 0 && (cap < KeyWord.capLeft(word) || until < KeyWord.until(word))) {
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
        _thawing[renter] = ThawingWord.pack(amount, readyAt);
        emit Thawed(renter, amount, readyAt);
    }

    function withdraw(address to) external nonReentrant {
        _refuseAsPayee(to);
        address renter = _caller();
        (uint64 amount, uint40 readyAt) = thawing(renter);
        if (amount == 0 || block.timestamp < readyAt) revert NotReady(amount, readyAt);
        uint256 word = _accounts[renter];
        if (amount > word.balance()) amount = word.balance();
        if (amount == 0) revert NothingDue(renter);
        _accounts[renter] = word - (uint256(amount) << 32);
        _thawing[renter] = 0;
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

        Tally memory tally = _open(provider, items.length);
        mapping(address => uint256) storage pairs = _pairs[provider];
        for (uint256 i; i < items.length; ++i) {
            Item calldata item = items[i];
            (uint256 a, uint256 b) = (item.a, item.b);
            uint256 pairWord = pairs[a.renter()];
            unchecked {
                // One comparison for epochs to come and for 0, which wraps to more: its fees would be nobody's.
                if (a.cumulative() <= PairWord.claimed(pairWord) || a.epoch() - 1 >= epoch) continue;
            }
            address signer = Signatures.recover(digests[i], item.r, item.vs);
            if (signer == address(0) || signer == authority) continue;
            uint256 settled = _settle(tally, pairWord, signer, a, b);
            if (settled != 0) pairs[a.renter()] = settled;
        }
        _close(tally);
    }

    // -- exits of the earners

    function cashOut(address provider) external nonReentrant {
        uint256 word = _totals[provider];
        uint64 due = TotalsWord.earned(word) - TotalsWord.paidOut(word);
        if (due == 0) revert NothingDue(provider);
        _totals[provider] = word + (uint256(due) << 64); // paidOut rises to earned
        address payee = IController(controller).payoutOf(provider);
        if (payee == address(0)) payee = provider;
        _refuseAsPayee(payee);
        emit CashedOut(provider, payee, due);
        _pay(payee, due);
    }

    function cashOutFees(uint32 epoch, address payee) external nonReentrant {
        address owner = IController(controller).ownerOf(epoch);
        if (_caller() != owner) revert NotOwner(_caller(), owner);
        _refuseAsPayee(payee);
        uint256 word = _authorities[epoch];
        uint64 due = AuthorityWord.fees(word);
        if (due == 0) revert NothingDue(owner);
        _authorities[epoch] = word - due;
        emit FeesCashedOut(epoch, payee, due);
        _pay(payee, due);
    }

    // -- the controller

    function authorityPassed(uint32 epoch, address signer, uint32 oldValidUntil) external {
        // The sender itself: a controller signs no requests.
        if (msg.sender != controller) revert NotController(msg.sender);
        uint256 old = _authorities[epoch - 1];
        _authorities[epoch - 1] = AuthorityWord.pack(AuthorityWord.signer(old), oldValidUntil, AuthorityWord.fees(old));
        _authorities[epoch] = AuthorityWord.pack(signer, AuthorityWord.PRESENT, 0);
        _present = signer;
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

    function pair(address provider, address renter) external view returns (uint64 claimed, uint64 usedThroughMs) {
        uint256 word = _pairs[provider][renter];
        return (PairWord.claimed(word), PairWord.usedThroughMs(word));
    }

    function totals(address provider) external view returns (uint64 earned, uint64 fee, uint64 paidOut) {
        uint256 word = _totals[provider];
        return (TotalsWord.earned(word), TotalsWord.fee(word), TotalsWord.paidOut(word));
    }

    function keyOf(address renter, address key)
        external
        view
        returns (uint64 capLeft, uint32 until, uint32 deadFrom, uint8 kind)
    {
        uint256 word = _keys[renter][key];
        return (KeyWord.capLeft(word), KeyWord.until(word), KeyWord.deadFrom(word), KeyWord.kind(word));
    }

    function authorityOf(uint32 epoch) external view returns (address signer, uint32 validUntil) {
        uint256 word = _authorities[epoch];
        return (AuthorityWord.signer(word), AuthorityWord.validUntil(word));
    }

    function feesOf(uint32 epoch) external view returns (uint64) {
        return AuthorityWord.fees(_authorities[epoch]);
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
        if (key == _present) revert KeyIsAuthority(key);
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
        uint256 epoch; // of the last row
        uint256 epochFee; // of the rows of that epoch that stand together
        address key; // the delegated key that spent the last row; none if another kind of key did
        uint256 first; // the first of the rows that it spent
        uint256 registered; // 0: not asked, 1: the provider is registered, 2: it is not
        address provider;
    }

    function _open(address provider, uint256 items) private pure returns (Tally memory tally) {
        uint256[] memory rows = new uint256[](2 * items);
        (tally.provider, tally.rows) = (provider, rows);
        assembly ("memory-safe") {
            mstore(add(tally, 0x60), add(rows, 0x20))
        }
    }

    /// Rows so far.
    function _count(Tally memory tally) private pure returns (uint256 count) {
        uint256[] memory rows = tally.rows;
        assembly ("memory-safe") {
            count := shr(6, sub(sub(mload(add(tally, 0x60)), rows), 0x20))
        }
    }

    function _claim(bytes32 domain, address provider, Item2[] calldata items) private {
        Tally memory tally = _open(provider, items.length);
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
        _close(tally);
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
            address spender = NOBODY;
            // Expiry is tested against the use, not the block's time: a provider who claims late loses nothing.
            if (signer != accountWord.key() || b.usedThroughMs() > uint256(accountWord.until()) * 1000) {
                (paid, spender) = _spendOtherKey(tally, a.renter(), signer, b.usedThroughMs(), paid);
            }
            if (paid == 0) return 0;
            _accounts[a.renter()] = accountWord - (paid << 32);
            if (spender != tally.key) _spent(tally, spender);
            uint256 claimed = before + paid;
            tally.gross += paid;
            // On the pair's total, so that no order or batching of claims gains a rounding.
            uint256 fee = claimed * FEE_BPS / 10_000 - before * FEE_BPS / 10_000;
            tally.fee += fee;
            if (a.epoch() != tally.epoch) _earn(tally, a.epoch());
            tally.epochFee += fee;
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

    /// What a delegated or retired key may still move of `paid`, and the key if it is a delegated one: then it is taken from
    /// its cap.
    function _spendOtherKey(Tally memory tally, address renter, address key, uint64 usedThroughMs, uint256 paid)
        private
        returns (uint256, address)
    {
        uint256 word = _keys[renter][key];
        uint32 deadFrom = KeyWord.deadFrom(word);
        uint8 kind = KeyWord.kind(word);
        if (kind == KeyWord.NONE || usedThroughMs > uint256(KeyWord.until(word)) * 1000) return (0, NOBODY);
        if (deadFrom != 0 && block.timestamp >= deadFrom) return (0, NOBODY);
        if (kind == KeyWord.RETIRED) return (paid, NOBODY);
        if (!_isRegistered(tally)) return (0, NOBODY);
        if (paid > KeyWord.capLeft(word)) paid = KeyWord.capLeft(word);
        if (paid != 0) _keys[renter][key] = KeyWord.spend(word, paid);
        return (paid, key);
    }

    /// Whether the batch is for a registered provider. Asked once.
    function _isRegistered(Tally memory tally) private view returns (bool) {
        if (tally.registered == 0) {
            tally.registered = IController(controller).payoutOf(tally.provider) == address(0) ? 2 : 1;
        }
        return tally.registered == 1;
    }

    /// From the next row on another key spends.
    function _spent(Tally memory tally, address next) private {
        uint256 count = _count(tally);
        if (tally.key != NOBODY) emit Spent(tally.key, tally.first, count - tally.first);
        (tally.key, tally.first) = (next, count);
    }

    /// From the next row on another epoch earns the fees.
    function _earn(Tally memory tally, uint256 next) private {
        if (tally.epochFee != 0) {
            uint256 word = _authorities[tally.epoch];
            uint256 room = type(uint64).max - AuthorityWord.fees(word);
            // A claim is never stopped by fees that cannot be counted: they stay in the vault.
            _authorities[tally.epoch] = word + (tally.epochFee < room ? tally.epochFee : room);
        }
        (tally.epoch, tally.epochFee) = (next, 0);
    }

    function _close(Tally memory tally) private {
        if (tally.gross == 0) return;
        if (tally.key != NOBODY) _spent(tally, NOBODY);
        _earn(tally, 0);
        uint256[] memory rows = tally.rows;
        uint256 words = 2 * _count(tally);
        assembly ("memory-safe") {
            mstore(rows, words) // shorter than allocated: skipped items have no row
        }
        address provider = tally.provider;
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
        return block.timestamp <= AuthorityWord.validUntil(word) ? AuthorityWord.signer(word) : address(0);
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
