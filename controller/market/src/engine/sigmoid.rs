//! The published score of a gradient, 0 to 99: `floor(100 x sigmoid(x / 1000))` with x in milli, as integers.

use alloc::vec::Vec;

/// The least gradient, in millionths of a milli, that scores 1, 2 .. 99: 1000 ln(k / (100 - k)), rounded up. Only
/// the one of 50 is a whole number, so no rounding moves a gradient over a threshold that it does not reach.
const THRESHOLDS: [i64; 99] = [
    -4_595_119_850,
    -3_891_820_298,
    -3_476_098_689,
    -3_178_053_830,
    -2_944_438_979,
    -2_751_535_313,
    -2_586_689_344,
    -2_442_347_035,
    -2_313_634_929,
    -2_197_224_577,
    -2_090_741_096,
    -1_992_430_164,
    -1_900_958_761,
    -1_815_289_966,
    -1_734_601_055,
    -1_658_228_076,
    -1_585_627_263,
    -1_516_347_489,
    -1_450_010_175,
    -1_386_294_361,
    -1_324_925_414,
    -1_265_666_373,
    -1_208_311_205,
    -1_152_679_509,
    -1_098_612_288,
    -1_045_968_555,
    -994_622_575,
    -944_461_608,
    -895_384_047,
    -847_297_860,
    -800_119_300,
    -753_771_802,
    -708_185_057,
    -663_294_217,
    -619_039_208,
    -575_364_144,
    -532_216_813,
    -489_548_225,
    -447_312_218,
    -405_465_108,
    -363_965_377,
    -322_773_392,
    -281_851_152,
    -241_162_056,
    -200_670_695,
    -160_342_650,
    -120_144_311,
    -80_042_707,
    -40_005_334,
    0,
    40_005_335,
    80_042_708,
    120_144_312,
    160_342_651,
    200_670_696,
    241_162_057,
    281_851_153,
    322_773_393,
    363_965_378,
    405_465_109,
    447_312_219,
    489_548_226,
    532_216_814,
    575_364_145,
    619_039_209,
    663_294_218,
    708_185_058,
    753_771_803,
    800_119_301,
    847_297_861,
    895_384_048,
    944_461_609,
    994_622_576,
    1_045_968_556,
    1_098_612_289,
    1_152_679_510,
    1_208_311_206,
    1_265_666_374,
    1_324_925_415,
    1_386_294_362,
    1_450_010_176,
    1_516_347_490,
    1_585_627_264,
    1_658_228_077,
    1_734_601_056,
    1_815_289_967,
    1_900_958_762,
    1_992_430_165,
    2_090_741_097,
    2_197_224_578,
    2_313_634_930,
    2_442_347_036,
    2_586_689_345,
    2_751_535_314,
    2_944_438_980,
    3_178_053_831,
    3_476_098_690,
    3_891_820_299,
    4_595_119_851,
];

const MILLIONTHS: i128 = 1_000_000;

/// The thresholds for gradients that are multiplied by some weight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sigmoid {
    least: Vec<i64>,
}

impl Sigmoid {
    /// For gradients in milli times `weight`.
    #[must_use]
    pub fn new(weight: u64) -> Self {
        let scaled = |threshold: &i64| {
            let exact = i128::from(*threshold) * i128::from(weight);
            i64::try_from(-(-exact).div_euclid(MILLIONTHS)).unwrap_or(i64::MAX)
        };
        Self { least: THRESHOLDS.iter().map(scaled).collect() }
    }

    /// The score of a gradient.
    #[must_use]
    pub fn score(&self, gradient: i64) -> i32 {
        i32::try_from(self.least.partition_point(|least| *least <= gradient)).unwrap_or(0)
    }

    /// The least gradient that has that score.
    #[must_use]
    pub fn least(&self, score: i32) -> i64 {
        usize::try_from(score)
            .ok()
            .and_then(|score| score.checked_sub(1))
            .and_then(|at| self.least.get(at).copied())
            .unwrap_or(i64::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_is_the_published_one_at_points_computed_by_hand() {
        let sigmoid = Sigmoid::new(1);
        // 100 x sigmoid(-1) = 26.89, (-0.1) = 47.50, (0.19) = 54.73, (1) = 73.11, (8) = 99.97
        for (gradient, score) in [(-1000, 26), (-100, 47), (-1, 49), (0, 50), (190, 54), (1000, 73), (8000, 99)] {
            assert_eq!(sigmoid.score(gradient), score, "{gradient}");
        }
        assert_eq!((sigmoid.score(i64::MIN), sigmoid.score(i64::MAX)), (0, 99));
    }

    #[test]
    fn a_weight_scales_the_thresholds_and_the_least_of_a_score_scores_it() {
        let sigmoid = Sigmoid::new(12_345);
        assert_eq!((sigmoid.score(0), sigmoid.score(-1), sigmoid.score(1000 * 12_345)), (50, 49, 73));
        for score in 1..=99 {
            assert_eq!(sigmoid.score(sigmoid.least(score)), score);
            assert_eq!(sigmoid.score(sigmoid.least(score) - 1), score - 1);
        }
    }
}
