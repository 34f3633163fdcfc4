//! Means and their errors.

use serde::Serialize;

/// A mean over runs, and the sample standard deviation between them (0 for one run).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation.
    pub sd: f64,
}

/// A mean of paired differences, and its standard error (0 for one pair).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Difference {
    /// Mean of ours minus theirs.
    pub mean: f64,
    /// Standard error of that mean.
    pub se: f64,
}

/// The arithmetic mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Mean and sample standard deviation.
pub fn spread(values: &[f64]) -> Spread {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let sd = if values.len() < 2 { 0.0 } else { (squares / (values.len() - 1) as f64).sqrt() };
    Spread { mean, sd }
}

/// `ours` minus `theirs`, run by run.
pub fn pairs(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| ours - theirs).collect()
}

/// The mean of paired differences, with its standard error.
pub fn difference(pairs: &[f64]) -> Difference {
    let spread = spread(pairs);
    Difference { mean: spread.mean, se: spread.sd / (pairs.len().max(1) as f64).sqrt() }
}

/// The value that `per_cent` of the values do not pass (nearest rank); 0 of nothing. Sorts `values`.
pub fn percentile(values: &mut [f64], per_cent: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let rank = (per_cent / 100.0 * values.len() as f64).ceil() as usize;
    values.get(rank.max(1) - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_of_a_known_sample() {
        assert_eq!(spread(&[2.0, 4.0, 6.0]), Spread { mean: 4.0, sd: 2.0 });
        assert_eq!(spread(&[3.0]), Spread { mean: 3.0, sd: 0.0 });
        assert_eq!(spread(&[]), Spread::default());
    }

    #[test]
    fn a_constant_difference_has_no_error() {
        let found = difference(&pairs(&[3.0, 5.0, 9.0], &[1.0, 3.0, 7.0]));
        assert_eq!(found, Difference { mean: 2.0, se: 0.0 });
    }

    #[test]
    fn percentiles_are_values_of_the_sample() {
        let mut values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&mut values, 95.0), 95.0);
        assert_eq!(percentile(&mut values, 100.0), 100.0);
        assert_eq!(percentile(&mut [5.0], 95.0), 5.0);
        assert_eq!(percentile(&mut [], 95.0), 0.0);
    }
}
