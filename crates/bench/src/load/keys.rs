//! Row keys: the conversion of numbers to keys and back.
//!
//! Every format can be decoded, hashed ones too, because their hash is a bijection of 64-bit words ([`mix64`]). A scan
//! can therefore check for each row whether it belongs there, in any order of rows.
//!
//! Terms: a key's *place* is its position in the order of rows. It is the number itself for padded decimals, the hash
//! for hashed keys, day and hash for dated ones.

use super::random::{mix64, unmix64};
use crate::plan::KeyFormat;
use anyhow::ensure;
use bytes::{BufMut, BytesMut};

/// Widest number of a format. HBase and Bigtable would take more, but no document did.
const DIGITS_MAX: u8 = 64;
/// Most dates of a format: a century, so that the table of dates stays small.
const DAYS_MAX: u32 = 36_525;
/// Decimal digits of the largest 64-bit number.
const HASH_DIGITS: usize = 20;
/// The prefix of YCSB's keys.
const YCSB_PREFIX: &[u8] = b"user";

/// Encodes and decodes the row keys of one format.
#[derive(Debug, Clone)]
pub struct KeyCoder {
    coding: Coding,
}

#[derive(Debug, Clone)]
enum Coding {
    Decimal { prefix: Vec<u8>, digits: usize },
    Hashed,
    Dated { dates: Vec<[u8; 8]> },
}

impl KeyCoder {
    /// For a format.
    ///
    /// # Errors
    /// A width or number of days that is zero or too large.
    pub fn new(format: &KeyFormat) -> anyhow::Result<Self> {
        let coding = match format {
            KeyFormat::Padded { digits } => decimal("", *digits)?,
            KeyFormat::Prefixed { prefix, digits } => decimal(prefix, *digits)?,
            KeyFormat::YcsbHashed => Coding::Hashed,
            KeyFormat::DateHash { days } => {
                ensure!(
                    (1..=DAYS_MAX).contains(days),
                    "days must be 1 to {DAYS_MAX}, found {days}"
                );
                Coding::Dated {
                    dates: (0..*days).map(date).collect(),
                }
            }
        };
        Ok(Self { coding })
    }

    /// Whether rows are in the order of their numbers.
    pub fn is_ordered(&self) -> bool {
        matches!(self.coding, Coding::Decimal { .. })
    }

    /// Bytes of each key.
    pub fn key_bytes(&self) -> usize {
        match &self.coding {
            Coding::Decimal { prefix, digits } => prefix.len() + digits,
            Coding::Hashed => YCSB_PREFIX.len() + HASH_DIGITS,
            Coding::Dated { .. } => 8 + 16,
        }
    }

    /// Numbers that have a key: those below this.
    pub fn capacity(&self) -> u64 {
        match &self.coding {
            Coding::Decimal { digits, .. } => 10u64.checked_pow(*digits as u32).unwrap_or(u64::MAX),
            Coding::Hashed | Coding::Dated { .. } => u64::MAX,
        }
    }

    /// Place of the key of `number` in the order of rows: keys are in the order of their places.
    pub fn place(&self, number: u64) -> u128 {
        match &self.coding {
            Coding::Decimal { .. } => number.into(),
            Coding::Hashed => mix64(number).into(),
            Coding::Dated { dates } => {
                let day = number % dates.len().max(1) as u64;
                u128::from(day) << 64 | u128::from(mix64(number))
            }
        }
    }

    /// One beyond the last place.
    pub fn places(&self) -> u128 {
        match &self.coding {
            Coding::Decimal { .. } => self.capacity().into(),
            Coding::Hashed => 1 << 64,
            Coding::Dated { dates } => (dates.len() as u128) << 64,
        }
    }

    /// Appends the key at a place below [`Self::places`]: a bound of a range of rows.
    pub fn write_place(&self, place: u128, out: &mut BytesMut) {
        match &self.coding {
            Coding::Decimal { .. } => self.write(place as u64, out),
            Coding::Hashed => self.write(unmix64(place as u64), out),
            Coding::Dated { dates } => {
                out.put_slice(date_of(dates, (place >> 64) as u64));
                put_hex(place as u64, out);
            }
        }
    }

    /// Appends the key of `number`, which must be below [`Self::capacity`] (only its last digits are written otherwise).
    pub fn write(&self, number: u64, out: &mut BytesMut) {
        match &self.coding {
            Coding::Decimal { prefix, digits } => {
                out.put_slice(prefix);
                put_decimal(number, *digits, out);
            }
            Coding::Hashed => {
                out.put_slice(YCSB_PREFIX);
                put_decimal(mix64(number), HASH_DIGITS, out);
            }
            Coding::Dated { dates } => {
                out.put_slice(date_of(dates, number));
                put_hex(mix64(number), out);
            }
        }
    }

    /// The number of this key; `None` if it is no key of this format.
    pub fn number(&self, key: &[u8]) -> Option<u64> {
        match &self.coding {
            Coding::Decimal { prefix, digits } => {
                let rest = key.strip_prefix(prefix.as_slice())?;
                (rest.len() == *digits).then(|| read_decimal(rest))?
            }
            Coding::Hashed => {
                let rest = key.strip_prefix(YCSB_PREFIX)?;
                let hash = (rest.len() == HASH_DIGITS).then(|| read_decimal(rest))??;
                Some(unmix64(hash))
            }
            Coding::Dated { dates } => {
                let (date, hash) = key.split_at_checked(8)?;
                let number = unmix64(read_hex(hash)?);
                (date == date_of(dates, number)).then_some(number)
            }
        }
    }
}

fn decimal(prefix: &str, digits: u8) -> anyhow::Result<Coding> {
    ensure!(
        (1..=DIGITS_MAX).contains(&digits),
        "digits must be 1 to {DIGITS_MAX}, found {digits}"
    );
    Ok(Coding::Decimal {
        prefix: prefix.as_bytes().to_vec(),
        digits: usize::from(digits),
    })
}

fn put_decimal(mut number: u64, digits: usize, out: &mut BytesMut) {
    let start = out.len();
    out.put_bytes(b'0', digits);
    for place in out[start..].iter_mut().rev() {
        if number == 0 {
            break;
        }
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn read_decimal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |number, &digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then_some(())?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

fn put_hex(number: u64, out: &mut BytesMut) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 16];
    for (place, digit) in text.iter_mut().enumerate() {
        *digit = DIGITS[(number >> (60 - 4 * place)) as usize & 15];
    }
    out.put_slice(&text);
}

fn read_hex(digits: &[u8]) -> Option<u64> {
    (digits.len() == 16).then_some(())?;
    digits.iter().try_fold(0u64, |number, &digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(value))
    })
}

fn date_of(dates: &[[u8; 8]], number: u64) -> &[u8] {
    dates
        .get((number % dates.len().max(1) as u64) as usize)
        .map_or(&[], |date| date.as_slice())
}

/// `yyyyMMdd` of the day this many days after the first of January 2010, the year of the document that has such keys.
fn date(days: u32) -> [u8; 8] {
    let (mut year, mut rest) = (2010u32, days);
    let is_leap = |year: u32| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while rest >= 365 + u32::from(is_leap(year)) {
        rest -= 365 + u32::from(is_leap(year));
        year += 1;
    }
    let months = [
        31,
        28 + u32::from(is_leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let mut month = 1;
    for length in months {
        if rest < length {
            break;
        }
        rest -= length;
        month += 1;
    }
    let mut number = year * 10_000 + month * 100 + rest + 1;
    let mut text = [b'0'; 8];
    for digit in text.iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(format: &KeyFormat, number: u64) -> Vec<u8> {
        let mut out = BytesMut::new();
        let coder = KeyCoder::new(format).unwrap();
        coder.write(number, &mut out);
        assert_eq!(out.len(), coder.key_bytes());
        out.to_vec()
    }

    fn formats() -> Vec<KeyFormat> {
        vec![
            KeyFormat::Padded { digits: 20 },
            KeyFormat::Prefixed {
                prefix: "row-".into(),
                digits: 12,
            },
            KeyFormat::YcsbHashed,
            KeyFormat::DateHash { days: 500 },
        ]
    }

    #[test]
    fn keys_look_as_described() {
        assert_eq!(key(&KeyFormat::Padded { digits: 10 }, 42), b"0000000042");
        let prefixed = KeyFormat::Prefixed {
            prefix: "u".into(),
            digits: 3,
        };
        assert_eq!(key(&prefixed, 7), b"u007");
        assert!(key(&KeyFormat::YcsbHashed, 1).starts_with(b"user"));
        assert!(key(&KeyFormat::DateHash { days: 60 }, 58).starts_with(b"20100228"));
        assert!(key(&KeyFormat::DateHash { days: 60 }, 59).starts_with(b"20100301"));
        assert!(key(&KeyFormat::DateHash { days: 60 }, 60).starts_with(b"20100101"));
        assert_eq!(&date(730 + 59), b"20120229");
        assert_eq!(&date(730 + 365), b"20121231");
    }

    #[test]
    fn every_format_reads_its_own_keys() {
        for format in formats() {
            let coder = KeyCoder::new(&format).unwrap();
            for number in (0..2_000).chain([999_999_999_999]) {
                assert_eq!(coder.number(&key(&format, number)), Some(number), "{format:?}");
            }
        }
    }

    #[test]
    fn foreign_keys_are_not_read() {
        for format in formats() {
            let coder = KeyCoder::new(&format).unwrap();
            let good = key(&format, 123);
            let longer = [good.as_slice(), b"0"].concat();
            let mut other = good.clone();
            other[5] = b'x';
            for bad in [&b""[..], &good[1..], &longer, &other, b"user99999999999999999999"] {
                assert_eq!(coder.number(bad), None, "{format:?} {}", String::from_utf8_lossy(bad));
            }
        }
        // A right hash under a wrong date.
        let coder = KeyCoder::new(&KeyFormat::DateHash { days: 500 }).unwrap();
        let mut wrong = key(&KeyFormat::DateHash { days: 500 }, 0);
        wrong[7] = b'2';
        assert_eq!(coder.number(&wrong), None);
    }

    #[test]
    fn padded_keys_are_in_the_order_of_their_numbers() {
        for format in &formats()[..2] {
            assert!(KeyCoder::new(format).unwrap().is_ordered());
            assert!((1..3_000).all(|n| key(format, n - 1) < key(format, n)));
        }
        assert!(!KeyCoder::new(&KeyFormat::YcsbHashed).unwrap().is_ordered());
    }

    #[test]
    fn keys_are_in_the_order_of_their_places() {
        for format in formats() {
            let coder = KeyCoder::new(&format).unwrap();
            let mut numbers: Vec<u64> = (0..3_000).collect();
            numbers.sort_by_key(|&number| coder.place(number));
            assert!(
                numbers
                    .windows(2)
                    .all(|pair| key(&format, pair[0]) < key(&format, pair[1])),
                "{format:?}"
            );
            for number in numbers {
                let mut bound = BytesMut::new();
                assert!(coder.place(number) < coder.places());
                coder.write_place(coder.place(number), &mut bound);
                assert_eq!(bound, key(&format, number));
            }
        }
    }

    #[test]
    fn senseless_formats_are_refused() {
        assert!(KeyCoder::new(&KeyFormat::Padded { digits: 0 }).is_err());
        assert!(KeyCoder::new(&KeyFormat::Padded { digits: 65 }).is_err());
        assert!(KeyCoder::new(&KeyFormat::DateHash { days: 0 }).is_err());
        assert_eq!(
            KeyCoder::new(&KeyFormat::Padded { digits: 3 }).unwrap().capacity(),
            1_000
        );
    }
}
