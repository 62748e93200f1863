//! Times in settings.

use crate::table::OFF;
use anyhow::bail;
use std::time::Duration;

/// The longest time that deleted tables are kept: that of a backup of the Bigtable API.
const GRACE_SECONDS_MAX: u64 = 90 * 86_400;

pub(crate) fn parse_grace(text: &str) -> anyhow::Result<Duration> {
    let text = text.trim();
    if text == OFF || text == "0" {
        return Ok(Duration::ZERO);
    }
    let (number, unit) = match text.strip_suffix(['s', 'h', 'd']) {
        Some(number) if text.ends_with('h') => (number, 3_600),
        Some(number) if text.ends_with('d') => (number, 86_400),
        Some(number) => (number, 1),
        None => (text, 1),
    };
    let seconds = number
        .trim()
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit));
    match seconds {
        Some(seconds @ 1..=GRACE_SECONDS_MAX) => Ok(Duration::from_secs(seconds)),
        _ => bail!("keep_deleted: {text:?} is neither off nor a time from 1s to 90d"),
    }
}

pub(crate) fn parse_slow_call(text: &str) -> anyhow::Result<Duration> {
    let text = text.trim();
    if text == OFF {
        return Ok(Duration::MAX);
    }
    let parse = |number: &str| number.trim().parse::<u64>().ok();
    let millis = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(millis), _) => parse(millis),
        (None, Some(seconds)) => parse(seconds).and_then(|seconds| seconds.checked_mul(1_000)),
        (None, None) => None,
    };
    match millis {
        Some(millis @ 1..=3_600_000) => Ok(Duration::from_millis(millis)),
        _ => bail!("slow_call: {text:?} is neither off nor a time from 1ms to 3600s"),
    }
}

/// A time in seconds, with or without the unit. `key` is the setting that an error names.
pub fn parse_seconds(key: &str, text: &str) -> anyhow::Result<Duration> {
    let number = text.trim().strip_suffix('s').unwrap_or(text.trim()).trim();
    match number.parse::<u64>() {
        Ok(seconds) if seconds <= 3600 => Ok(Duration::from_secs(seconds)),
        _ => bail!("{key}: {text:?} is not a number of seconds from 0s to 3600s"),
    }
}
