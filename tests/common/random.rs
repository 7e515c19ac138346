//! Choices that are the same everywhere and come from a number that can be printed.

/// SplitMix64: enough for choices.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// What the state grows by from one number to the next: a generator `n` steps further on can be made directly.
    pub(crate) const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Random::STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 to below a number.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}
