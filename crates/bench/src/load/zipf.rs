//! Zipf's distribution over any number of ranks, for any exponent above zero, without tables.
//!
//! Rank `r` (counted from zero) has probability `(r + 1)^-s / H(n, s)`, where `H(n, s)` is the sum of `k^-s` for `k` from 1
//! to `n`. Sampling is rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone
//! discrete distributions", 1996). The integral `h` of `x^-s`, which can be inverted in closed form, covers the histogram,
//! and few samples are rejected. Exact for every exponent, 1 included, unlike the approximation that YCSB took from Gray
//! et al. (1994), which needs `s < 1` and a sum over all ranks beforehand.

/// A Zipf distribution.
#[derive(Debug, Clone, Copy)]
pub struct Zipf {
    ranks: u64,
    exponent: f64,
    /// The integral up to the lower and the upper end of the sampled area.
    area: (f64, f64),
    /// Samples that land this little above their rank are accepted without a further check.
    squeeze: f64,
}

/// Ranks whose weights are added one by one in [`harmonic`]; the rest is an integral with corrections.
const SUMMED_RANKS: u64 = 1_000;

impl Zipf {
    /// Over `ranks` ranks; zero stands for one. The exponent must be above zero and finite; others are taken to be the
    /// nearest such number, so that no sample can be nonsense.
    pub fn new(ranks: u64, exponent: f64) -> Self {
        let ranks = ranks.max(1);
        let exponent = if exponent.is_finite() {
            exponent.clamp(1e-9, 1e3)
        } else {
            1.0
        };
        let lower = integral(1.5, exponent) - 1.0;
        let upper = integral(ranks as f64 + 0.5, exponent);
        let squeeze = 2.0 - inverse_integral(integral(2.5, exponent) - weight(2.0, exponent), exponent);
        Self {
            ranks,
            exponent,
            area: (lower, upper),
            squeeze,
        }
    }

    /// Samples a rank, counted from zero, the most frequent first. Takes one or more words of `random`.
    pub fn sample(&self, random: &mut impl FnMut() -> u64) -> u64 {
        let (lower, upper) = self.area;
        loop {
            let u = upper + super::random::unit(random()) * (lower - upper);
            let x = inverse_integral(u, self.exponent);
            // A float beyond the ends saturates, and is clamped: rounding may leave the area by one.
            let rank = ((x + 0.5) as u64).clamp(1, self.ranks);
            let k = rank as f64;
            if k - x <= self.squeeze || u >= integral(k + 0.5, self.exponent) - weight(k, self.exponent) {
                return rank - 1;
            }
        }
    }

    /// Probability of a rank counted from zero. Takes microseconds: for tests and reports.
    pub fn probability(&self, rank: u64) -> f64 {
        if rank >= self.ranks {
            return 0.0;
        }
        weight((rank + 1) as f64, self.exponent) / harmonic(self.ranks, self.exponent)
    }

    /// Probability of the `top` most frequent ranks together. Takes microseconds.
    pub fn share(&self, top: u64) -> f64 {
        harmonic(top.min(self.ranks), self.exponent) / harmonic(self.ranks, self.exponent)
    }
}

/// `x^-s`.
fn weight(x: f64, s: f64) -> f64 {
    (-s * x.ln()).exp()
}

/// The integral of `t^-s` from 1 to `x`, written so that it is exact near `s = 1`: `ln x * expm1((1-s) ln x) / ((1-s) ln x)`.
fn integral(x: f64, s: f64) -> f64 {
    let log = x.ln();
    log * expm1_ratio((1.0 - s) * log)
}

fn inverse_integral(y: f64, s: f64) -> f64 {
    // Rounding may request a point just outside of the integral's range.
    let t = (y * (1.0 - s)).max(-1.0);
    (y * ln_1p_ratio(t)).exp()
}

/// `ln(1 + x) / x`, continued through zero.
fn ln_1p_ratio(x: f64) -> f64 {
    if x.abs() > 1e-8 {
        x.ln_1p() / x
    } else {
        1.0 - x * (0.5 - x / 3.0)
    }
}

/// `(e^x - 1) / x`, continued through zero.
fn expm1_ratio(x: f64) -> f64 {
    if x.abs() > 1e-8 {
        x.exp_m1() / x
    } else {
        1.0 + x * 0.5 * (1.0 + x / 3.0)
    }
}

/// The sum of `k^-s` for `k` in 1..=n: the first terms one by one, the rest by the Euler–Maclaurin formula, whose error
/// here is below 1e-12.
fn harmonic(n: u64, s: f64) -> f64 {
    // Smallest first, so that rounding errors stay small.
    let head: f64 = (1..=n.min(SUMMED_RANKS)).rev().map(|k| weight(k as f64, s)).sum();
    if n <= SUMMED_RANKS {
        return head;
    }
    let (a, b) = (SUMMED_RANKS as f64, n as f64);
    let ends = (weight(b, s) - weight(a, s)) / 2.0;
    let slopes = s * (weight(a, s + 1.0) - weight(b, s + 1.0)) / 12.0;
    head + (integral(b, s) - integral(a, s)) + ends + slopes
}

#[cfg(test)]
mod tests;
