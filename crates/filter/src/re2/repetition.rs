//! Repetition operators of RE2 patterns.

/// Largest count, and largest product of counts within each other, as in RE2.
pub(super) const REPEAT_MAX: u32 = 1_000;

/// Lowest and highest count of a repetition operator, and its length in the pattern.
pub(super) type Repetition = (u32, Option<u32>, usize);

/// Parses a repetition operator at the front of `input`. A brace that does not begin one is a literal.
pub(super) fn repetition(input: &[u8]) -> Result<Option<Repetition>, &'static str> {
    let counts = match input {
        [b'*', ..] => return Ok(Some((0, None, 1))),
        [b'+', ..] => return Ok(Some((1, None, 1))),
        [b'?', ..] => return Ok(Some((0, Some(1), 1))),
        [_, counts @ ..] => counts,
        [] => return Ok(None),
    };
    let length = counts.iter().take_while(|b| b.is_ascii_digit() || **b == b',').count();
    if counts.get(length) != Some(&b'}') {
        return Ok(None);
    }
    let counts = counts.get(..length).unwrap_or_default();
    let (low, high) = match counts.iter().position(|b| *b == b',') {
        None => (count(counts), count(counts).map(Some)),
        Some(comma) => {
            let high = counts.get(comma + 1..).unwrap_or_default();
            let high = if high.is_empty() {
                Some(None)
            } else {
                count(high).map(Some)
            };
            (count(counts.get(..comma).unwrap_or_default()), high)
        }
    };
    let (Some(low), Some(high)) = (low, high) else {
        return Ok(None);
    };
    if low.max(high.unwrap_or(0)) > REPEAT_MAX || high.is_some_and(|high| high < low) {
        return Err("invalid repetition size");
    }
    Ok(Some((low, high, length + 2)))
}

/// A decimal number without leading zeros; one that is far too large is just too large.
fn count(digits: &[u8]) -> Option<u32> {
    let leading_zero = digits.len() > 1 && digits.first() == Some(&b'0');
    if digits.is_empty() || leading_zero || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(
        digits
            .iter()
            .fold(0u32, |n, d| n.saturating_mul(10).saturating_add(u32::from(d - b'0'))),
    )
}
