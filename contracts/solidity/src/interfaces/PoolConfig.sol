// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// The fixed terms of a pool. Nothing here can change after creation but the owner and the authority. Bounds: {Terms}.
struct PoolConfig {
    /// ERC-20 with 6 to 18 decimals in which everything is paid. No fee on transfer, no rebasing.
    address token;
    /// First owner: names authorities and standbys, bonds, takes fees. A cold key or a contract.
    address owner;
    /// First authority: the hot key that countersigns vouchers and signs heads. Its epoch is 1.
    address authority;
    /// Operator's fee in ten-thousandths of what is paid. Rounded down on a pair's running total.
    uint16 feeBps;
    /// Seconds between a renter's thaw and the withdrawal, and between a key's revocation and its death.
    uint32 thawDelayS;
    /// Seconds between unbonding and the return of a provider's stake or an owner's bond.
    uint32 unbondDelayS;
    /// Least stake of a provider, in units (millionths of a token).
    uint64 minStake;
    /// Blocks on top that make a block final; type(uint32).max means the chain's own `finalized` tag.
    uint32 finalityDepth;
    /// Seconds for which the vouchers of the old authority stay claimable after an epoch ended.
    uint32 graceS;
    /// Whether simulated GPUs may be offered. Such a pool is for trials: its terms have no floors.
    bool allowSimulated;
    /// Whether nodes without a sandbox may be leased. Enforced off chain: the spec is only a hash here.
    bool allowUnsandboxed;
    /// What an owner must keep at stake to become one, and cannot unbond while one, in units; 0: nothing.
    uint64 minBond;
    /// Seconds between announcing a new owner and the earliest moment at which it can accept.
    uint32 handOverDelayS;
    /// Seconds of the authority's silence after which a standby may take over; 0: nobody ever can.
    uint32 takeOverAfterS;
    /// Content id of a description for people; may be empty.
    string metadataCid;
}
