//! Timestamps of cells: units, RFC 3339 text, and the granularity of the API.
//!
//! The API counts microseconds since 1970 and keeps milliseconds, so derived timestamps are truncated towards the past
//! to a whole millisecond. Calendar arithmetic is the proleptic Gregorian calendar without leap seconds ("days from
//! civil", H. Hinnant), as in RFC 3339 section 5.7.

use clap::ValueEnum;

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// How the text of a timestamp column is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Unit {
    /// Microseconds since 1970.
    Micros,
    /// Milliseconds since 1970.
    Millis,
    /// Seconds since 1970; a fraction is allowed.
    Seconds,
    /// Date and time such as 2024-05-01T12:00:00Z.
    Rfc3339,
}

/// Microseconds truncated to the millisecond, the granularity of the API.
pub fn to_granularity(micros: i64) -> i64 {
    micros - micros.rem_euclid(1000)
}

/// Reads one timestamp; the error is a reason for the list of bad records.
pub fn parse(text: &[u8], unit: Unit) -> Result<i64, String> {
    let shown = || String::from_utf8_lossy(text).into_owned();
    let micros = std::str::from_utf8(text)
        .ok()
        .map(str::trim)
        .and_then(|text| match unit {
            Unit::Micros => text.parse().ok(),
            Unit::Millis => text.parse::<i64>().ok()?.checked_mul(1000),
            Unit::Seconds => parse_seconds(text),
            Unit::Rfc3339 => parse_rfc3339(text),
        })
        .ok_or_else(|| format!("`{}` is not a timestamp in {unit:?}", shown()))?;
    if micros < 0 {
        return Err(format!("timestamp `{}` is before 1970", shown()));
    }
    Ok(to_granularity(micros))
}

/// A moment: a date and a time with its zone as of RFC 3339, or microseconds since 1970.
pub fn parse_moment(text: &str) -> Result<i64, String> {
    let micros = match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse().ok(),
        false => parse_rfc3339(text),
    };
    let wrong = || format!("{text:?} is neither a time such as 2026-11-27T12:00:00Z nor microseconds since 1970");
    micros.filter(|micros| *micros > 0).ok_or_else(wrong)
}

fn parse_seconds(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    whole
        .parse::<i64>()
        .ok()?
        .checked_mul(MICROS_PER_SECOND)?
        .checked_add(parse_fraction(fraction)?)
}

/// Digits after the decimal point as microseconds; further digits are cut off.
fn parse_fraction(digits: &str) -> Option<i64> {
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let padded = format!("{digits:0<6}");
    padded.get(..6)?.parse().ok()
}

fn parse_rfc3339(text: &str) -> Option<i64> {
    let (date, rest) = (text.get(..10)?, text.get(10..)?);
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (clock, rest) = (rest.get(..8)?, rest.get(8..)?);
    let (fraction, zone) = match rest.strip_prefix('.') {
        None => ("0", rest),
        Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())),
    };
    let days = parse_date(date)?;
    let seconds = parse_clock(clock)? - parse_zone(zone)?;
    days.checked_mul(SECONDS_PER_DAY)?
        .checked_add(seconds)?
        .checked_mul(MICROS_PER_SECOND)?
        .checked_add(parse_fraction(fraction)?)
}

fn number(text: &str, max: i64) -> Option<i64> {
    let digits = text.bytes().all(|digit| digit.is_ascii_digit());
    text.parse().ok().filter(|value| digits && *value <= max)
}

fn parse_date(date: &str) -> Option<i64> {
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || year.len() != 4 || month.len() != 2 || day.len() != 2 {
        return None;
    }
    let (year, month, day) = (number(year, 9999)?, number(month, 12)?, number(day, 31)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    (month >= 1 && day >= 1 && day <= length).then(|| days_from_civil(year, month, day))
}

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is the last of a year; eras are 400 years of 146,097 days.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn parse_clock(clock: &str) -> Option<i64> {
    let mut parts = clock.split(':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || [hour, minute, second].iter().any(|part| part.len() != 2) {
        return None;
    }
    // Second 60 is a leap second and counts as the first of the next minute.
    Some(number(hour, 23)? * 3600 + number(minute, 59)? * 60 + number(second, 60)?)
}

fn parse_zone(zone: &str) -> Option<i64> {
    if zone == "Z" || zone == "z" {
        return Some(0);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    if hours.len() != 2 || minutes.len() != 2 {
        return None;
    }
    Some(sign * (number(hours, 23)? * 3600 + number(minutes, 59)? * 60))
}

/// Date and time in UTC with milliseconds, for people. The inverse of [`parse`] for the years it covers.
pub fn format(micros: i64) -> String {
    let seconds = micros.div_euclid(MICROS_PER_SECOND);
    let days = seconds.div_euclid(SECONDS_PER_DAY) + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let clock = seconds.rem_euclid(SECONDS_PER_DAY);
    let millis = micros.rem_euclid(MICROS_PER_SECOND) / 1000;
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn moments_are_times_with_a_zone_or_microseconds() {
        assert_eq!(parse_moment("1600000000000001"), Ok(1_600_000_000_000_001));
        assert_eq!(parse_moment("2020-09-13T12:26:40.000001Z"), Ok(1_600_000_000_000_001));
        assert_eq!(parse_moment("2020-09-13T14:26:40+02:00"), Ok(1_600_000_000_000_000));
        for wrong in ["", "0", "-5", "yesterday", "2020-09-13", "12:26:40", "1600000000.5"] {
            assert!(parse_moment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn units() {
        assert_eq!(parse(b"1700000000123456", Unit::Micros), Ok(1_700_000_000_123_000));
        assert_eq!(parse(b"1700000000123", Unit::Millis), Ok(1_700_000_000_123_000));
        assert_eq!(parse(b" 1700000000 ", Unit::Seconds), Ok(1_700_000_000_000_000));
        assert_eq!(parse(b"1700000000.5", Unit::Seconds), Ok(1_700_000_000_500_000));
    }

    #[test]
    fn rfc3339() {
        let at = |text: &str| parse(text.as_bytes(), Unit::Rfc3339);
        assert_eq!(at("1970-01-01T00:00:00Z"), Ok(0));
        assert_eq!(at("2024-02-29T12:30:45.1239Z"), Ok(1_709_209_845_123_000));
        assert_eq!(at("2024-02-29 14:30:45+02:00"), Ok(1_709_209_845_000_000));
        assert_eq!(at("2016-12-31T23:59:60Z"), at("2017-01-01T00:00:00Z"));
        for bad in [
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:00:00",
            "2024-1-01T00:00:00Z",
            "2024-01-01T00:00:00.Z",
            "2024-01-01",
            "ééééééééééé",
        ] {
            assert!(at(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn refusals_name_the_text() {
        assert!(parse(b"yesterday", Unit::Seconds).unwrap_err().contains("yesterday"));
        assert!(parse(b"-1", Unit::Micros).unwrap_err().contains("before 1970"));
        assert!(parse(b"9223372036854775807", Unit::Seconds).is_err());
        assert!(parse(b"\xff", Unit::Micros).is_err());
    }

    proptest! {
        #[test]
        fn formatted_time_parses_back(millis in 0i64..253_402_300_799_000) {
            let text = format(millis * 1000);
            prop_assert_eq!(parse(text.as_bytes(), Unit::Rfc3339), Ok(millis * 1000));
        }
    }
}
