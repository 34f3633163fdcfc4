//! Gas limits and prices of the chain.

/// Gas limit of every block.
pub(crate) const BLOCK_GAS_LIMIT: u64 = 30_000_000;
/// Base fee of block 0, wei per gas.
pub(crate) const FIRST_BASE_FEE: u64 = 1_000_000_000;
/// The tip suggested to clients, wei per gas.
pub(crate) const SUGGESTED_TIP: u64 = 1_000_000_000;

/// The base fee of the block after one with this fee and use. Source: EIP-1559.
pub(crate) fn next_base_fee(base_fee: u64, gas_used: u64) -> u64 {
    let target = BLOCK_GAS_LIMIT / 2;
    let step = |distance: u64| {
        u64::try_from(u128::from(base_fee) * u128::from(distance) / u128::from(target) / 8).unwrap_or(u64::MAX)
    };
    if gas_used > target {
        base_fee.saturating_add(step(gas_used - target).max(1))
    } else {
        base_fee.saturating_sub(step(target - gas_used))
    }
}

/// What a transaction pays per gas, wei, under `base_fee`. `tip` is absent for the types before EIP-1559.
pub(crate) fn effective_price(max_fee: u128, tip: Option<u128>, base_fee: u64) -> u128 {
    tip.map_or(max_fee, |tip| max_fee.min(u128::from(base_fee).saturating_add(tip)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_fee_moves_an_eighth_at_most_and_rests_at_the_target() {
        assert_eq!(next_base_fee(1_000_000_000, 0), 875_000_000);
        assert_eq!(next_base_fee(1_000_000_000, BLOCK_GAS_LIMIT), 1_125_000_000);
        assert_eq!(next_base_fee(1_000_000_000, BLOCK_GAS_LIMIT / 2), 1_000_000_000);
        assert_eq!(next_base_fee(7, 0), 7);
    }

    #[test]
    fn a_tip_is_paid_only_up_to_the_max_fee() {
        assert_eq!(effective_price(100, Some(5), 20), 25);
        assert_eq!(effective_price(22, Some(5), 20), 22);
        assert_eq!(effective_price(100, None, 20), 100);
    }
}
