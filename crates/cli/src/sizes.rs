//! Numbers of bytes as people write them, and counts and times as they read them.

/// Reads a number of bytes: `65536`, `64KiB`, `8MiB`, `1GiB`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let unit = units
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (number, shift) = unit.unwrap_or((text, 0));
    let number: Option<u64> = number.trim().parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("`{text}` is not a number of bytes, such as 65536 or 64KiB"))
}

/// A number with a unit: three digits, or four below a thousand.
fn scaled(mut number: f64, base: f64, units: &[&str]) -> String {
    let mut at = 0;
    while number >= base && at + 1 < units.len() {
        number /= base;
        at += 1;
    }
    let unit = units.get(at).copied().unwrap_or_default();
    match number >= 100.0 || (at == 0 && number.fract() == 0.0) {
        true => format!("{number:.0}{unit}"),
        false => format!("{number:.1}{unit}"),
    }
}

/// `1.5MiB`.
pub(crate) fn show_bytes(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// `12.3k`.
pub(crate) fn show_count(count: f64) -> String {
    scaled(count, 1000.0, &["", "k", "M", "G", "T"])
}

/// `4.2ms`, `1.5s`, `7.0min`.
pub(crate) fn show_seconds(seconds: f64) -> String {
    if seconds <= 0.0 {
        return "0s".to_owned();
    }
    let (number, unit) = match seconds {
        s if s < 0.001 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s if s < 100.0 => (s, "s"),
        s if s < 6_000.0 => (s / 60.0, "min"),
        s if s < 172_800.0 => (s / 3_600.0, "h"),
        s => (s / 86_400.0, "d"),
    };
    match number >= 100.0 {
        true => format!("{number:.0}{unit}"),
        false => format!("{number:.1}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(
            [0, 1023, 1536, 200 << 20].map(show_bytes),
            ["0B", "1023B", "1.5KiB", "200MiB"]
        );
        assert_eq!(
            [0.0, 0.5, 999.0, 12_345.0].map(show_count),
            ["0", "0.5", "999", "12.3k"]
        );
        let times = [0.0, 0.000_05, 0.0042, 1.5, 420.0, 10_800.0, 864_000.0].map(show_seconds);
        assert_eq!(times, ["0s", "50.0µs", "4.2ms", "1.5s", "7.0min", "3.0h", "10.0d"]);
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("65536"), Ok(65536));
        assert_eq!(parse_size("64KiB"), Ok(65536));
        assert_eq!(parse_size("2 GiB"), Ok(2 << 30));
        assert!(parse_size("64KB").is_err() && parse_size("").is_err() && parse_size("99999999999GiB").is_err());
    }
}
