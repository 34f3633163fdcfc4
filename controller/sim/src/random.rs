//! Seeded chance. The same seed draws the same on every machine.

/// The 64-bit generator SplitMix64 (Steele, Lea, Flood 2014): one word of state, any seed is good.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of `seed`. `stream` tells apart the uses of one seed: what one draws never shifts the others.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self(seed ^ stream.wrapping_mul(0xD1B5_4A32_D192_ED03));
        random.word();
        random
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A whole number below `bound`, each as likely (but for less than one part in 2^32); 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.word()) * bound as u128;
        (wide >> 64) as usize
    }

    /// Above 0, at most 1.
    pub fn unit(&mut self) -> f64 {
        ((self.word() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// Every order as likely (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_draw_equal_and_streams_differ() {
        let draw = |seed, stream| {
            let mut random = Random::new(seed, stream);
            (0..4).map(|_| random.word()).collect::<Vec<_>>()
        };
        assert_eq!(draw(42, 1), draw(42, 1));
        assert_ne!(draw(42, 1), draw(42, 2));
        assert_ne!(draw(42, 1), draw(43, 1));
    }

    #[test]
    fn means_are_what_they_should_be() {
        let mut random = Random::new(7, 0);
        let n = 100_000;
        let mean = |mut draw: Box<dyn FnMut() -> f64>| (0..n).map(|_| draw()).sum::<f64>() / f64::from(n);
        let mut other = random.clone();
        assert!((mean(Box::new(move || other.exponential())) - 1.0).abs() < 0.02);
        let mut other = random.clone();
        assert!((mean(Box::new(move || other.below(10) as f64)) - 4.5).abs() < 0.05);
        assert_eq!(random.below(1), 0);
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn a_shuffle_loses_nothing() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(1, 0).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
