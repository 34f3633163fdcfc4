// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// The fixed terms of a pool. Nothing here can change after creation but the authority, which may pass on or be
/// taken over by a standby that it named.
struct PoolConfig {
    /// ERC-20 with 6 to 18 decimals in which everything is paid. No fee on transfer, no rebasing.
    address token;
    /// First authority: countersigns vouchers, anchors log heads, takes the fee. Its epoch is 1.
    address authority;
    /// Operator's fee in ten-thousandths of what is paid, at most 10,000. Rounded down on a pair's running total.
    uint16 feeBps;
    /// Seconds between a renter's thaw and the withdrawal, and between a key's revocation and its death.
    uint32 thawDelayS;
    /// Seconds between a provider's unbonding and the return of the stake.
    uint32 unbondDelayS;
    /// Least stake of a provider, in units (millionths of a token).
    uint64 minStake;
    /// Blocks on top that make a block final; type(uint32).max means the chain's own `finalized` tag.
    uint32 finalityDepth;
    /// Seconds for which the vouchers of the old authority stay claimable after it passed on.
    uint32 graceS;
    /// Whether simulated GPUs may be offered.
    bool allowSimulated;
    /// Whether nodes without a sandbox may be leased. Enforced off chain: the spec is only a hash here.
    bool allowUnsandboxed;
    /// What a proven offence costs an authority's bond, in units.
    uint64 penalty;
    /// Seconds in which an accusation before the court can be answered.
    uint32 answerDelayS;
    /// Seconds of the authority's silence after which a standby may take over; 0: nobody ever can.
    uint32 takeOverAfterS;
    /// Content id of a description for people; may be empty.
    string metadataCid;
}
