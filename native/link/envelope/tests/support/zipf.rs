//! Skewed loads.

/// Ranks from 0, the first with the most weight: of Zipf's law with this exponent.
pub struct Zipf(Vec<f64>);

impl Zipf {
    pub fn new(ranks: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=ranks).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Zipf(sums.collect())
    }

    pub fn rank(&self, random: &mut fastrand::Rng) -> u32 {
        let at = random.f64() * self.0.last().expect("ranks");
        self.0.partition_point(|&sum| sum < at) as u32
    }
}
