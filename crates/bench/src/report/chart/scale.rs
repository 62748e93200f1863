//! From quantities to positions: linear and logarithmic scales, and ticks at 1, 2 and 5. Pure.

/// Maps `[low, high]` onto `[from, to]` (drawing units; `to` may be the smaller one).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// From zero to a round number that is at least `high`.
    pub fn from_zero(high: f64, from: f64, to: f64) -> Self {
        let high = if high.is_finite() && high > 0.0 { high } else { 1.0 };
        let step = step(high, 5.0);
        Self {
            low: 0.0,
            high: (high / step - 1e-9).ceil() * step,
            logarithmic: false,
            from,
            to,
        }
    }

    /// From `low` to `high` exactly. A single value stands in the middle.
    pub fn exact(low: f64, high: f64, from: f64, to: f64) -> Self {
        let valid = low.is_finite() && high.is_finite();
        let (low, high) = if valid {
            (low.min(high), low.max(high))
        } else {
            (0.0, 1.0)
        };
        let room = if low == high { low.abs().max(1.0) / 2.0 } else { 0.0 };
        Self {
            low: low - room,
            high: high + room,
            logarithmic: false,
            from,
            to,
        }
    }

    /// Logarithmic; both ends must be positive, otherwise the scale is linear.
    pub fn logarithmic(low: f64, high: f64, from: f64, to: f64) -> Self {
        if !(low > 0.0 && high.is_finite() && high >= low) {
            return Self::exact(low, high, from, to);
        }
        let room = if low == high { 2.0 } else { 1.0 };
        Self {
            low: low / room,
            high: high * room,
            logarithmic: true,
            from,
            to,
        }
    }

    /// Position of `value`. Values outside are put at the nearest end.
    pub fn at(&self, value: f64) -> f64 {
        let place = |value: f64| {
            if self.logarithmic {
                value.max(self.low).ln()
            } else {
                value
            }
        };
        let (low, high) = (place(self.low), place(self.high));
        let share = (place(value) - low) / (high - low);
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        self.from + share * (self.to - self.from)
    }

    /// The largest value of the scale.
    pub fn high(&self) -> f64 {
        self.high
    }

    /// Whether equal distances are equal ratios.
    pub fn is_logarithmic(&self) -> bool {
        self.logarithmic
    }

    /// Values of ticks, about `about` of them and never more than three times as many.
    pub fn ticks(&self, about: f64) -> Vec<f64> {
        if self.logarithmic {
            self.logarithmic_ticks(about)
        } else {
            self.linear_ticks(about)
        }
    }

    fn linear_ticks(&self, about: f64) -> Vec<f64> {
        let step = step(self.high - self.low, about);
        let first = (self.low / step - 1e-9).ceil();
        let count = ((self.high / step + 1e-9).floor() - first).clamp(0.0, 3.0 * about) as usize;
        (0..=count).map(|index| (first + index as f64) * step).collect()
    }

    fn logarithmic_ticks(&self, about: f64) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let decades = f64::from(last - first);
        // Fewer than every decade when there are very many, 1-2-5 when there are few.
        let every = (decades / about).ceil().max(1.0) as usize;
        let factors: &[f64] = if decades <= about / 2.0 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let all = (first..=last).step_by(every);
        let all = all.flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
        all.filter(|tick| *tick >= self.low * (1.0 - 1e-9) && *tick <= self.high * (1.0 + 1e-9))
            .collect()
    }
}

/// The smallest of 1, 2, 5 × 10ⁿ that divides `range` into at most `about` parts.
pub fn step(range: f64, about: f64) -> f64 {
    if !(range.is_finite() && range > 0.0) {
        return 1.0;
    }
    let rough = range / about;
    let unit = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|factor| factor * unit >= rough * (1.0 - 1e-9))
        .unwrap_or(10.0);
    factor * unit
}

/// A tick's label: as many places as `step` needs.
pub fn label(tick: f64, step: f64) -> String {
    let places = if step > 0.0 {
        (-step.log10().floor()).clamp(0.0, 9.0) as usize
    } else {
        0
    };
    let text = format!("{tick:.places$}");
    if text.starts_with('-') {
        text.replacen('-', "−", 1)
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_one_two_or_five() {
        let cases = [
            (100.0, 20.0),
            (97.0, 20.0),
            (43.0, 10.0),
            (1.0, 0.2),
            (0.07, 0.02),
            (2.3e9, 5e8),
            (5.0, 1.0),
        ];
        for (range, expected) in cases {
            let found = step(range, 5.0);
            assert!(
                (found / expected - 1.0).abs() < 1e-9,
                "{range}: {found}, expected {expected}"
            );
        }
        for range in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(step(range, 5.0), 1.0);
        }
    }

    #[test]
    fn a_scale_from_zero_ends_at_a_round_number() {
        let scale = Scale::from_zero(97.0, 200.0, 0.0);
        assert_eq!(
            (scale.high(), scale.at(0.0), scale.at(100.0), scale.at(50.0)),
            (100.0, 200.0, 0.0, 100.0)
        );
        assert_eq!(scale.ticks(5.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!((scale.at(-5.0), scale.at(1e9), scale.at(f64::NAN)), (200.0, 0.0, 200.0));
    }

    #[test]
    fn zero_and_single_values_have_a_place() {
        let zero = Scale::from_zero(0.0, 100.0, 0.0);
        assert_eq!((zero.at(0.0), zero.high()), (100.0, 1.0));
        let single = Scale::exact(7.0, 7.0, 0.0, 100.0);
        assert_eq!(single.at(7.0), 50.0);
        let single = Scale::logarithmic(10.0, 10.0, 0.0, 100.0);
        assert!((single.at(10.0) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn a_logarithmic_scale_gives_each_decade_the_same_room() {
        let scale = Scale::logarithmic(10.0, 10_000.0, 0.0, 300.0);
        for (value, expected) in [
            (10.0, 0.0),
            (100.0, 100.0),
            (1000.0, 200.0),
            (10_000.0, 300.0),
            (0.0, 0.0),
        ] {
            assert!(
                (scale.at(value) - expected).abs() < 1e-9,
                "{value}: {}",
                scale.at(value)
            );
        }
        assert_eq!(scale.ticks(5.0), [10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!(
            Scale::logarithmic(1.0, 10.0, 0.0, 1.0).ticks(5.0),
            [1.0, 2.0, 5.0, 10.0]
        );
        let wide = Scale::logarithmic(1.0, 1e12, 0.0, 1.0).ticks(5.0);
        assert!(wide.len() <= 5, "{wide:?}");
    }

    #[test]
    fn a_logarithmic_scale_that_cannot_be_is_linear() {
        let scale = Scale::logarithmic(0.0, 10.0, 0.0, 100.0);
        assert_eq!(scale.at(5.0), 50.0);
    }

    #[test]
    fn ticks_are_bounded_whatever_the_range() {
        for (low, high) in [
            (0.0, 1e300),
            (-1e9, 1e9),
            (1.0, 1.0 + 1e-15),
            (f64::NAN, 1.0),
            (1e-300, 1e300),
        ] {
            assert!(Scale::exact(low, high, 0.0, 1.0).ticks(5.0).len() <= 16);
            assert!(Scale::logarithmic(low, high, 0.0, 1.0).ticks(5.0).len() <= 16);
        }
    }

    #[test]
    fn labels_have_the_places_that_their_step_needs() {
        assert_eq!(
            (label(20.0, 20.0), label(0.4, 0.2), label(0.0, 0.02)),
            ("20".into(), "0.4".into(), "0.00".into())
        );
        assert_eq!(label(-2.0, 1.0), "−2");
    }
}
