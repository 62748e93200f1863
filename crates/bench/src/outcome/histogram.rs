//! Latency histograms: recording, encoding as text, decoding and addition.
//!
//! A histogram counts microseconds from 1 µs to one hour with three significant digits: it distinguishes two values
//! that differ by more than a thousandth. Values outside are counted at the nearest end, never dropped, so that counts
//! always equal the number of steps. As text it is base64 of HdrHistogram's V2 + DEFLATE serialisation, which the
//! HdrHistogram tools of all languages read.

use super::{EncodedHistogram, KindOutcome};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use std::collections::BTreeMap;
use std::io::Read;

/// Significant decimal digits of every latency.
pub const DIGITS: u8 = 3;
/// Smallest latency that is distinguished, µs.
pub const MICROS_MIN: u64 = 1;
/// Largest latency that is distinguished, µs: one hour, longer than any client waits.
pub const MICROS_MAX: u64 = 3_600_000_000;
/// Most bytes of a histogram before compression: our range has 23,552 counters of at most 9 bytes each, and a header.
const PLAIN_BYTES_MAX: usize = 23_552 * 9 + HEADER_BYTES;
/// Bytes before the counters: cookie, payload length, offset, digits, low, high, ratio.
const HEADER_BYTES: usize = 40;
/// Longest text that is decoded: deflate grows incompressible data by less than a hundredth, base64 all data by a third.
pub const TEXT_BYTES_MAX: usize = PLAIN_BYTES_MAX / 2 * 3;
/// First word of V2 + DEFLATE.
const DEFLATE_COOKIE: u32 = 0x1c84_9314;

/// A new, empty histogram of our range.
pub fn new() -> Histogram<u64> {
    of(DIGITS)
}

/// A new, empty histogram of our range with this number of digits, at most [`DIGITS`].
pub fn of(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(MICROS_MIN, MICROS_MAX, digits.min(DIGITS))
        .expect("the bounds are constants and in order")
}

/// Counts one latency. A value out of range is counted at the nearest end.
pub fn record(histogram: &mut Histogram<u64>, micros: u64) {
    histogram.saturating_record(micros.clamp(MICROS_MIN, MICROS_MAX));
}

impl EncodedHistogram {
    /// The text of `histogram`; empty if nothing was recorded.
    pub fn encode(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(histogram, &mut bytes)
            .expect("a vector takes all bytes, and our range is far below the format's limit");
        Self(STANDARD.encode(bytes))
    }

    /// The histogram of this text, which may come from anywhere; empty text is an empty histogram.
    pub fn decode(&self) -> Result<Histogram<u64>, String> {
        self.decode_of(DIGITS)
    }

    /// The same for a histogram with another number of digits, at most [`DIGITS`].
    pub fn decode_of(&self, digits: u8) -> Result<Histogram<u64>, String> {
        if self.0.is_empty() {
            return Ok(of(digits));
        }
        if self.0.len() > TEXT_BYTES_MAX {
            return Err(format!(
                "histogram of {} bytes, expected at most {TEXT_BYTES_MAX}",
                self.0.len()
            ));
        }
        let bytes = STANDARD
            .decode(&self.0)
            .map_err(|error| format!("histogram is not base64: {error}"))?;
        let plain = inflate(&bytes)?;
        check_header(&plain, digits)?;
        Deserializer::new()
            .deserialize(&mut plain.as_slice())
            .map_err(|error| format!("histogram is not HdrHistogram V2: {error}"))
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The V2 form inside of a V2 + DEFLATE one. Written by hand because the library would accept a stream that ends early,
/// and trust any length.
fn inflate(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let (cookie, length) = (word(bytes, 0)?, word(bytes, 4)? as usize);
    let body = bytes.get(8..).unwrap_or_default();
    if cookie != DEFLATE_COOKIE || length != body.len() {
        return Err(format!(
            "histogram begins with {cookie:08x} and {length}, expected {DEFLATE_COOKIE:08x} and {}",
            body.len()
        ));
    }
    let mut plain = Vec::new();
    let mut stream = ZlibDecoder::new(body).take(PLAIN_BYTES_MAX as u64 + 1);
    stream
        .read_to_end(&mut plain)
        .map_err(|error| format!("histogram cannot be inflated: {error}"))?;
    if plain.len() > PLAIN_BYTES_MAX {
        return Err(format!("histogram inflates to more than {PLAIN_BYTES_MAX} bytes"));
    }
    Ok(plain)
}

/// Checks that the V2 form is of our range and has the length in its header.
fn check_header(plain: &[u8], expected: u8) -> Result<(), String> {
    let long = |at| Ok::<u64, String>(u64::from(word(plain, at)?) << 32 | u64::from(word(plain, at + 4)?));
    let (length, digits, low, high) = (word(plain, 4)? as usize, word(plain, 12)?, long(16)?, long(24)?);
    if length.saturating_add(HEADER_BYTES) != plain.len() {
        return Err(format!(
            "histogram announces {length} bytes of counters, found {} in all",
            plain.len()
        ));
    }
    if (low, high, digits) != (MICROS_MIN, MICROS_MAX, u32::from(expected)) {
        return Err(format!(
            "histogram of {low} to {high} with {digits} digits, expected {MICROS_MIN} to {MICROS_MAX} with {expected}"
        ));
    }
    Ok(())
}

/// The big-endian 32-bit integer at `at`.
fn word(bytes: &[u8], at: usize) -> Result<u32, String> {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    four.map(|four| u32::from_be_bytes(*four))
        .ok_or_else(|| format!("histogram ends at byte {}", bytes.len()))
}

/// The sum of several histograms.
pub fn merge<'a>(parts: impl IntoIterator<Item = &'a EncodedHistogram>) -> Result<Histogram<u64>, String> {
    let mut sum = new();
    for part in parts {
        if !part.is_empty() {
            sum.add(part.decode()?)
                .map_err(|error| format!("histograms cannot be added: {error}"))?;
        }
    }
    Ok(sum)
}

/// All workers' statistics by kind, in the order in which kinds appear first.
pub fn merge_kinds<'a>(workers: impl IntoIterator<Item = &'a [KindOutcome]>) -> Result<Vec<KindOutcome>, String> {
    let mut order: Vec<String> = Vec::new();
    let mut sums: BTreeMap<String, (KindOutcome, Histogram<u64>, Histogram<u64>)> = BTreeMap::new();
    for part in workers.into_iter().flatten() {
        if !sums.contains_key(&part.name) {
            order.push(part.name.clone());
        }
        let empty = || {
            (
                KindOutcome {
                    name: part.name.clone(),
                    ..KindOutcome::default()
                },
                new(),
                new(),
            )
        };
        let (sum, histogram, failed) = sums.entry(part.name.clone()).or_insert_with(empty);
        sum.add_counts(part);
        for (sum, more) in [(histogram, &part.histogram), (failed, &part.failed)] {
            if !more.is_empty() {
                sum.add(more.decode()?)
                    .map_err(|error| format!("histograms cannot be added: {error}"))?;
            }
        }
    }
    let kinds = order.into_iter().filter_map(|name| sums.remove(&name));
    Ok(kinds
        .map(|(sum, histogram, failed)| KindOutcome {
            histogram: EncodedHistogram::encode(&histogram),
            failed: EncodedHistogram::encode(&failed),
            ..sum
        })
        .collect())
}

impl KindOutcome {
    /// Adds all fields of `other` except its histograms. Failure texts beyond the limit are counted under `other`.
    pub fn add_counts(&mut self, other: &Self) {
        self.operations = self.operations.saturating_add(other.operations);
        self.steps = self.steps.saturating_add(other.steps);
        self.rows = self.rows.saturating_add(other.rows);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.micros_sum += other.micros_sum;
        self.micros_square_sum += other.micros_square_sum;
        self.micros_max = self.micros_max.max(other.micros_max);
        for (text, count) in &other.failures {
            let known = self.failures.contains_key(text) || self.failures.len() < super::FAILURE_TEXTS_MAX;
            let text = if known { text.as_str() } else { "other" };
            let sum = self.failures.entry(text.to_owned()).or_default();
            *sum = sum.saturating_add(*count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exponentially spread latencies over six decades from a fixed linear congruence.
    fn latencies(count: u64) -> Vec<u64> {
        let mut state = 88_172_645_463_325_252u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            10f64.powf((state >> 11) as f64 / (1u64 << 53) as f64 * 6.0) as u64
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn percentiles_are_within_a_thousandth_of_exact_ones() {
        let mut sorted = latencies(50_000);
        let mut histogram = new();
        sorted.iter().for_each(|&micros| record(&mut histogram, micros));
        sorted.sort_unstable();
        let decoded = EncodedHistogram::encode(&histogram).decode().unwrap();
        for percentile in [1.0, 50.0, 90.0, 99.0, 99.9, 100.0] {
            let rank = (percentile / 100.0 * sorted.len() as f64).ceil() as usize;
            let exact = sorted[rank - 1] as f64;
            let found = decoded.value_at_percentile(percentile) as f64;
            assert!(
                (found - exact).abs() <= exact / 1000.0 + 1.0,
                "p{percentile}: {found}, exactly {exact}"
            );
        }
    }

    #[test]
    fn out_of_range_latencies_are_counted_at_the_ends() {
        let mut histogram = new();
        record(&mut histogram, 0);
        record(&mut histogram, u64::MAX);
        let decoded = EncodedHistogram::encode(&histogram).decode().unwrap();
        assert_eq!(decoded.len(), 2);
        assert_eq!(decoded.min(), MICROS_MIN);
        assert!(decoded.max() >= MICROS_MAX && decoded.max() < MICROS_MAX + MICROS_MAX / 1000);
    }

    #[test]
    fn nothing_recorded_is_empty_text() {
        assert!(EncodedHistogram::encode(&new()).is_empty());
        assert!(EncodedHistogram::default().decode().unwrap().is_empty());
    }

    #[test]
    fn damaged_text_is_an_error() {
        let mut histogram = new();
        latencies(1000)
            .into_iter()
            .for_each(|micros| record(&mut histogram, micros));
        let text = EncodedHistogram::encode(&histogram).0;
        for cut in [1, 4, text.len() / 2, text.len() - 4] {
            assert!(
                EncodedHistogram(text[..cut].to_owned()).decode().is_err(),
                "cut at {cut}"
            );
        }
        assert!(
            EncodedHistogram("not base64!".into())
                .decode()
                .unwrap_err()
                .contains("base64")
        );
        assert!(
            EncodedHistogram("A".repeat(TEXT_BYTES_MAX + 1))
                .decode()
                .unwrap_err()
                .contains("at most")
        );
    }

    #[test]
    fn a_histogram_of_fewer_digits_is_read_as_such_only() {
        let mut coarse = of(2);
        record(&mut coarse, 12_345);
        let text = EncodedHistogram::encode(&coarse);
        assert_eq!(text.decode_of(2).unwrap(), coarse);
        assert!(text.decode().unwrap_err().contains("digits"));
    }

    #[test]
    fn a_foreign_range_is_an_error() {
        let mut foreign = Histogram::<u64>::new_with_bounds(1, 1000, 2).unwrap();
        foreign.record(5).unwrap();
        assert!(
            EncodedHistogram::encode(&foreign)
                .decode()
                .unwrap_err()
                .contains("digits")
        );
    }

    #[test]
    fn merged_kinds_hold_every_step_of_every_worker() {
        let part = |name: &str, micros: &[u64]| {
            let mut histogram = new();
            micros.iter().for_each(|&m| record(&mut histogram, m));
            KindOutcome {
                name: name.into(),
                operations: micros.len() as u64,
                steps: micros.len() as u64,
                micros_sum: micros.iter().sum::<u64>() as f64,
                micros_max: micros.iter().copied().max().unwrap_or(0),
                failures: BTreeMap::from([("busy".to_owned(), 1)]),
                histogram: EncodedHistogram::encode(&histogram),
                ..KindOutcome::default()
            }
        };
        let one = [part("put", &[10, 20]), part("get", &[5])];
        let two = [part("get", &[7, 900]), part("put", &[])];
        let kinds = merge_kinds([one.as_slice(), two.as_slice()]).unwrap();
        assert_eq!(
            kinds.iter().map(|k| k.name.as_str()).collect::<Vec<_>>(),
            ["put", "get"]
        );
        assert_eq!(
            (kinds[1].operations, kinds[1].micros_sum, kinds[1].micros_max),
            (3, 912.0, 900)
        );
        assert_eq!(kinds[1].failures["busy"], 2);
        assert_eq!(kinds[1].histogram.decode().unwrap().len(), 3);
        let all = merge(kinds.iter().map(|kind| &kind.histogram)).unwrap();
        assert_eq!(all.len(), 5);
    }
}
