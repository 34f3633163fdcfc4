// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// A voucher with both signatures (R2). Every field is packed from the high end:
/// a = renter(160) | cumulative(64) | epoch(32); b = 0(128) | usedThroughMs(64) | logSize(64).
/// r, vs: compact signature (EIP-2098) of the renter's session key; ar, avs: of the authority of that epoch; both over
/// the EIP-712 digest of Voucher(address renter,address provider,uint64 cumulative,uint64 usedThroughMs,uint32 epoch,uint64 logSize).
struct Item2 {
    uint256 a;
    uint256 b;
    bytes32 r;
    bytes32 vs;
    bytes32 ar;
    bytes32 avs;
}

/// The same voucher without the authority's signature (R1): one signature stands for the batch.
struct Item {
    uint256 a;
    uint256 b;
    bytes32 r;
    bytes32 vs;
}

/// Vouchers for one provider.
struct ProviderItems {
    address provider;
    Item2[] items;
}

/// The escrow of one pool. Amounts are units: millionths of a token, whatever its decimals. `until` and `deadFrom` are
/// seconds since 1970 UTC, `usedThroughMs` milliseconds.
///
/// Invariants:
/// 1. The vault holds at least the renters' balances, the unpaid earnings and the unpaid fees.
/// 2. Deposits = withdrawals + cash-outs + fees paid out + what is held.
/// 3. A pair's claimed total and a provider's totals never fall; no more is claimed than a session key of the renter signed.
/// 4. The claimed totals of a provider's pairs sum to earned + fee, and fee is the sum of floor(claimed * feeBps / 10^4).
/// 5. Order, batching, caller and path (R1 or R2) of claims do not change the end state while balances suffice.
/// 6. A bad, stale, expired or foreign item moves nothing and stops no other item.
/// 7. Nobody can block a withdrawal after its delay, a claim of countersigned vouchers, or a cash-out.
/// 8. The events, with those of the controller and the times of their blocks, give every stored field.
///
/// The caller of a function is the sender, or whoever signed the request that the pool's forwarder brings. Nothing here
/// can be paused.
interface IVault {
    /// Money came in; the renter's balance grew by `amount`.
    event Deposited(address indexed renter, uint64 amount);
    /// The renter's balance grew by `amount` (may be 0), and the own session key is now `key`, good for use through `until`.
    event Entered(address indexed renter, uint64 amount, address key, uint32 until);
    /// The renter has no own session key any more.
    event KeyCleared(address indexed renter);
    /// A delegated key may spend `cap` from now on.
    event KeyGranted(address indexed renter, address key, uint64 cap, uint32 until);
    /// A key takes no new vouchers; those signed before can be claimed before `deadFrom`.
    event KeyRevoked(address indexed renter, address key, uint32 deadFrom);
    /// `amount` in all is thawing and can be withdrawn from `readyAt`.
    event Thawed(address indexed renter, uint64 amount, uint40 readyAt);
    /// Thawed money left; the renter's balance fell by `amount`, and nothing is thawing.
    event Withdrawn(address indexed renter, address to, uint64 amount);
    /// The `count` rows from the row `first` on of the next {Claimed} were spent from caps of this delegated key.
    event Spent(address indexed key, uint256 first, uint256 count);
    /// Vouchers were paid. Two words a voucher: its `a`, and claimed(64) | paid(64) | usedThroughMs(64) | logSize(64), where
    /// `claimed` is the pair's total after it. If that is the voucher's cumulative total, the pair's usedThroughMs is the
    /// voucher's; else it stays. `totals` is the provider's slot after it: earned(64) | fee(64) | paidOut(64) | feeOut(64).
    event Claimed(address indexed provider, uint256 totals, uint256[] rows);
    /// A provider took earnings out.
    event CashedOut(address indexed provider, address payee, uint64 amount);
    /// The owner in this epoch took out the fees of vouchers that were countersigned in it.
    event FeesCashedOut(uint32 indexed epoch, address payee, uint64 amount);

    /// Only the pool's controller may do this.
    error NotController(address caller);
    /// Only the owner in that epoch may do this.
    error NotOwner(address caller, address owner);
    /// `what` may not be zero.
    error Zero(string what);
    /// The sum does not fit in 64 bits.
    error Overflow(uint256 sum);
    /// A session key may not be the authority's: one signature would count twice.
    error KeyIsAuthority(address key);
    /// The key is the renter's own, or was retired or revoked and is not dead yet: it cannot be a delegated one now.
    error KeyInUse(address key);
    /// A grant may be raised or extended; to lower it, revoke.
    error GrantFalls(uint64 capLeft, uint32 until);
    /// The own key's end may be moved out only; to shorten it, revoke.
    error UntilFalls(uint32 until);
    /// The renter has no such key, or it is revoked already.
    error NoSuchKey(address key);
    /// More than the balance.
    error BalanceTooLow(uint64 asked, uint64 balance);
    /// Nothing is thawing, or not ready before `readyAt`.
    error NotReady(uint64 amount, uint40 readyAt);
    /// Nothing is due.
    error NothingDue(address account);
    /// The vault cannot be paid by itself.
    error BadPayee(address payee);
    /// The batch is not signed by an authority that is valid now: claim with both signatures instead.
    error BadBatchSignature(uint32 epoch, address recovered);

    // -- renters

    /// Adds `amount` to the caller's balance from the caller's token allowance.
    function deposit(uint64 amount) external;
    /// Deposits (0 allowed) and sets the caller's own session key. A former own key stays claimable for the thaw delay.
    function enter(uint64 amount, address key, uint32 until) external;
    /// Lets a delegated key spend up to `cap` in vouchers for use through `until`; raising or extending is allowed. A key
    /// that was revoked can be granted anew when it is dead; vouchers of its earlier life count against the new cap.
    function grant(address key, uint64 cap, uint32 until) external;
    /// Ends the caller's own or a delegated key: claimable for the thaw delay, then dead. A delegated key pays only
    /// accounts that are registered as providers; an own one pays whom it likes.
    function revoke(address key) external;
    /// Asks for `amount` in all (0 cancels) of the balance; restarts the delay. Claims still reach thawing money.
    function thaw(uint64 amount) external;
    /// Pays what has thawed, or what claims left of it, to `to`. Reverts if that is nothing.
    function withdraw(address to) external;

    // -- claims: anyone, any time; credit goes to the provider only

    /// Claims vouchers with two signatures each. Bad and stale items are skipped; an owed sum above the balance is paid
    /// in part, and the rest stays claimable.
    function claim(address provider, Item2[] calldata items) external;
    /// The same for many providers in one transaction.
    function claimMany(ProviderItems[] calldata claims) external;
    /// The same vouchers with one signature of the authority of `epoch` over
    /// Batch(address provider,uint32 epoch,bytes32 vouchers), vouchers = keccak256 of the voucher digests in order.
    /// Reverts if that signature is bad; vouchers of older epochs are covered by it.
    function claimAggregated(address provider, uint32 epoch, bytes32 ar, bytes32 avs, Item[] calldata items) external;

    // -- exits of the earners

    /// Pays all unpaid earnings of the provider to who is paid by the registry, or to the provider itself if it is not
    /// registered. Anyone.
    function cashOut(address provider) external;
    /// Pays the unpaid fees of an epoch to `payee`. Only the owner in that epoch.
    function cashOutFees(uint32 epoch, address payee) external;

    // -- the controller

    /// Makes `signer` the authority of `epoch`; the one before stays valid until `oldValidUntil`. Only the controller.
    function authorityPassed(uint32 epoch, address signer, uint32 oldValidUntil) external;

    // -- reading

    /// A renter's own key, balance, and the second through which the key may sign use.
    function account(address renter) external view returns (address key, uint64 balance, uint32 until);
    /// What is thawing and from when it can be withdrawn.
    function thawing(address renter) external view returns (uint64 amount, uint40 readyAt);
    /// What the provider has claimed of the renter, and through which use.
    function pair(address provider, address renter) external view returns (uint64 claimed, uint64 usedThroughMs);
    /// A provider's totals, which never fall.
    function totals(address provider) external view returns (uint64 earned, uint64 fee, uint64 paidOut);
    /// A delegated (`kind` 1) or retired own (`kind` 2) key; 0 is unknown. `deadFrom` 0: not revoked.
    function keyOf(address renter, address key)
        external
        view
        returns (uint64 capLeft, uint32 until, uint32 deadFrom, uint8 kind);
    /// Who signs for `epoch` and until when that counts (type(uint32).max: present).
    function authorityOf(uint32 epoch) external view returns (address signer, uint32 validUntil);
    /// The unpaid fees of an epoch.
    function feesOf(uint32 epoch) external view returns (uint64);
    /// The EIP-712 domain separator: name "Selion Vault", version "1", this chain, this contract.
    function domainSeparator() external view returns (bytes32);
    /// The digest that both signers of a voucher sign.
    function voucherDigest(address provider, uint256 a, uint256 b) external view returns (bytes32);
    /// The digest that the authority signs over a batch; `vouchers` as in claimAggregated.
    function batchDigest(address provider, uint32 epoch, bytes32 vouchers) external view returns (bytes32);
    /// Token base units in one unit of this vault.
    function scale() external view returns (uint256);
    /// The token.
    function token() external view returns (address);
    /// The pool's controller.
    function controller() external view returns (address);
}
