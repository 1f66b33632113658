//! Bytes for packets, different for each.

/// Bytes that differ from place to place and from seed to seed.
pub fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(bytes).collect()
}
