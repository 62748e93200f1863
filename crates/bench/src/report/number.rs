//! Numbers in readable form: three significant digits, thousands separated, SI prefixes. Pure.

/// A no-break space, so that a number and its unit stay on one line.
pub const SPACE: char = '\u{a0}';

/// `value` with three significant digits and an SI prefix from a million on: `0.0851`, `12.3`, `14,500`, `3.21 M`.
pub fn short(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    match value.abs() {
        size if size >= 1e9 => format!("{}{SPACE}G", digits(value / 1e9)),
        size if size >= 1e6 => format!("{}{SPACE}M", digits(value / 1e6)),
        _ => digits(value),
    }
}

/// Three significant digits, all digits before the point, thousands separated.
fn digits(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    let places = (2 - size.log10().floor() as i32).clamp(0, 6) as usize;
    // 9.999 has two places, and becomes 10.00; so digits are counted again after rounding.
    let rounded: f64 = format!("{size:.places$}").parse().unwrap_or(size);
    let places = if rounded == 0.0 {
        places
    } else {
        (2 - rounded.log10().floor() as i32).clamp(0, 6) as usize
    };
    // Beyond three digits the rest is noise: 14,523 operations are 14,500.
    let unit = if rounded >= 10_000.0 {
        10f64.powi(rounded.log10().floor() as i32 - 2)
    } else {
        1.0
    };
    let text = format!("{:.places$}", (size / unit).round_to(places) * unit);
    let sign = if value < 0.0 { "−" } else { "" };
    format!("{sign}{}", separate(&text))
}

/// Rounding to decimal places, as formatting does it.
trait RoundTo {
    fn round_to(self, places: usize) -> Self;
}

impl RoundTo for f64 {
    fn round_to(self, places: usize) -> Self {
        let unit = 10f64.powi(places as i32);
        (self * unit).round() / unit
    }
}

/// `value` with at most three places and no zeros at their end: for round numbers.
pub fn round(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A count with all its digits, thousands separated.
pub fn count(value: u64) -> String {
    separate(&value.to_string())
}

fn separate(text: &str) -> String {
    let (whole, fraction) = text
        .split_once('.')
        .map_or((text, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut out = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// Microseconds as milliseconds without unit.
pub fn millis(micros: f64) -> String {
    short(micros / 1000.0)
}

/// A ratio: `1.62`, `0.085`.
pub fn ratio(value: f64) -> String {
    short(value)
}

/// A duration: `8.0 s`, `12 min`, `3.5 h`.
pub fn seconds(value: f64) -> String {
    match value {
        value if value < 120.0 => format!("{}{SPACE}s", digits(value)),
        value if value < 7200.0 => format!("{:.1}{SPACE}min", value / 60.0),
        value => format!("{:.1}{SPACE}h", value / 3600.0),
    }
}

/// Bytes with a decimal prefix: `1.23 GB`.
pub fn bytes(value: f64) -> String {
    let (divisor, prefix) = prefix(value);
    format!("{}{SPACE}{prefix}B", digits(value / divisor))
}

/// The SI prefix with which `value` has one to three digits before the point, and its factor.
pub fn prefix(value: f64) -> (f64, &'static str) {
    match value.abs() {
        size if size >= 1e9 => (1e9, "G"),
        size if size >= 1e6 => (1e6, "M"),
        size if size >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    }
}

/// A moment, seconds since 1970, as UTC date and time.
pub fn date(at: f64) -> String {
    let total = at.clamp(0.0, 253_402_300_799.0) as u64;
    let (days, rest) = (total / 86_400, total % 86_400);
    // Days since 0000-03-01 in the proleptic Gregorian calendar: eras of 400 years, with the leap day at the end of
    // each year.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let in_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let in_month = in_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let (hours, minutes) = (rest / 3600, rest / 60 % 60);
    format!(
        "{:04}-{month:02}-{in_month:02} {hours:02}:{minutes:02} UTC",
        era * 400 + year + carry
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let cases = [
            (0.0, "0"),
            (0.085_12, "0.0851"),
            (9.999, "10.0"),
            (12.345, "12.3"),
            (999.6, "1,000"),
            (1_234.0, "1,234"),
            (14_523.0, "14,500"),
            (999_999.0, "1,000,000"),
            (3_214_000.0, "3.21\u{a0}M"),
            (7.77e10, "77.7\u{a0}G"),
            (-5.0, "−5.00"),
            (1e-12, "0.000000"),
        ];
        for (value, expected) in cases {
            assert_eq!(short(value), expected, "{value}");
        }
        assert_eq!((short(f64::NAN), short(f64::INFINITY)), ("–".into(), "–".into()));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let cases = [
            (0.0, "1970-01-01 00:00 UTC"),
            (951_782_400.0, "2000-02-29 00:00 UTC"),
            (1_767_225_600.0, "2026-01-01 00:00 UTC"),
            (1_709_251_199.0, "2024-02-29 23:59 UTC"),
        ];
        for (at, expected) in cases {
            assert_eq!(date(at), expected);
        }
        assert!(date(f64::INFINITY).starts_with("9999-12-31"));
    }

    #[test]
    fn counts_are_separated() {
        assert_eq!(
            (count(7), count(1_234_567), count(999)),
            ("7".into(), "1,234,567".into(), "999".into())
        );
        assert_eq!(bytes(1_230_000_000.0), "1.23\u{a0}GB");
    }
}
