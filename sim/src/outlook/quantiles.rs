//! How long something takes, known by a few of its quantiles.

use rand::Rng;

/// A distribution of times, in milliseconds: straight between the quantiles that are known.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Quantiles(Vec<(f64, f64)>);

impl Quantiles {
    /// `points`: (part of all, milliseconds), both rising. Below the first it is as at the first, above the last as at
    /// the last.
    pub(crate) fn new(points: &[(f64, f64)]) -> Self {
        let mut points = points.to_vec();
        if let (Some(&(first, low)), Some(&(last, high))) = (points.first(), points.last()) {
            if first > 0.0 {
                // Half of the median is as good a guess as any for the fastest.
                points.insert(0, (0.0, low / 2.0));
            }
            if last < 1.0 {
                points.push((1.0, high));
            }
        }
        Self(points)
    }

    /// The time that `part` of all stay below, milliseconds.
    pub(crate) fn at(&self, part: f64) -> f64 {
        let above =
            self.0.iter().position(|(at, _)| *at >= part).unwrap_or_else(|| self.0.len().saturating_sub(1));
        let Some(&(at, ms)) = self.0.get(above) else { return 0.0 };
        let Some(&(at_before, ms_before)) = above.checked_sub(1).and_then(|before| self.0.get(before)) else {
            return ms;
        };
        if at <= at_before {
            ms
        } else {
            ms_before + (ms - ms_before) * (part - at_before) / (at - at_before)
        }
    }

    /// The mean, milliseconds.
    pub(crate) fn mean_ms(&self) -> f64 {
        self.0.windows(2).map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0).sum()
    }

    /// Draws a time in whole milliseconds: up or down at random, so that the mean stays.
    pub(crate) fn draw_ms(&self, rng: &mut impl Rng) -> u64 {
        let ms = self.at(rng.random::<f64>());
        (ms.floor() as u64) + u64::from(rng.random::<f64>() < ms.fract())
    }
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn quantiles_are_met_and_what_is_drawn_has_their_mean() {
        let quantiles = Quantiles::new(&[(0.0, 0.2), (0.5, 0.8), (0.99, 4.0), (1.0, 30.0)]);
        assert_eq!((quantiles.at(0.0), quantiles.at(0.5), quantiles.at(1.0)), (0.2, 0.8, 30.0));
        assert!((quantiles.at(0.25) - 0.5).abs() < 1e-9);
        let mut rng = StdRng::seed_from_u64(1);
        let drawn: u64 = (0..100_000).map(|_| quantiles.draw_ms(&mut rng)).sum();
        let mean = drawn as f64 / 100_000.0;
        assert!((mean - quantiles.mean_ms()).abs() < 0.05, "{mean} and {}", quantiles.mean_ms());
    }

    #[test]
    fn one_quantile_is_enough() {
        let quantiles = Quantiles::new(&[(0.5, 2.0)]);
        assert_eq!((quantiles.at(0.5), quantiles.at(1.0)), (2.0, 2.0));
    }
}
