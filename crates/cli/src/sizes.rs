//! Numbers of bytes as people write them.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("65536"), Ok(65536));
        assert_eq!(parse_size("64KiB"), Ok(65536));
        assert_eq!(parse_size("2 GiB"), Ok(2 << 30));
        assert!(parse_size("64KB").is_err() && parse_size("").is_err() && parse_size("99999999999GiB").is_err());
    }
}
