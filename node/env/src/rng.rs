/// A source of bytes that others cannot predict.
pub trait Rng: Send + Sync {
    /// Fills all of `out`.
    fn fill(&self, out: &mut [u8]);

    /// Sixty-four random bits.
    fn u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}
