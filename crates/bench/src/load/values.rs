//! Values whose content follows from key, column and version, so that readers can check them.
//!
//! Layout of a value:
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | little-endian word: version (40 bits) above a check of key, column and version (24 bits), xored with a pad that follows from key and column |
//! | 8.. | a part of the *pool*: pseudo-random bytes, or the user's text. Its start follows from key, column and version |
//!
//! So the first eight bytes are never text and never compress: all but two of a 10-byte value's, and less than one in a
//! hundred of a 1000-byte value's. A pool is far larger than any block that a store compresses by itself. A store that
//! searched for repetitions over tens of megabytes would find some.
//!
//! Terms: a *version* is a writer (12 bits; zero if every worker writes the same value) and a number (28 bits), which
//! counts that writer's values of the key. Content does not depend on the seed of a run, so one run's reads can check
//! another's writes.

use super::random::{Stream, mix64, scale};
use crate::plan::{ValueSource, Values};
use anyhow::{Context, ensure};
use bytes::{BufMut, BytesMut};
use std::fmt;
use std::io::Read;
use xxhash_rust::xxh3::xxh3_64;

/// Fewest bytes of a value: its version and a check of its key.
pub const VALUE_BYTES_MIN: u32 = 8;
/// Most bytes of a value: above any document's (512 kB), and half of the smallest pool.
pub const VALUE_BYTES_MAX: u32 = 8 << 20;
/// Pseudo-random bytes from which incompressible values are cut. They exceed any processor cache from which a store
/// could profit.
const RANDOM_POOL_BYTES: usize = 16 << 20;
/// Most text in memory. The documents cut their values from 200 MB.
const CORPUS_BYTES_MAX: u64 = 256 << 20;
const COUNT_BITS: u32 = 28;
const WRITER_BITS: u32 = 12;
const CHECK_BITS: u32 = 24;

/// Which of a key's values this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(u64);

impl Version {
    /// The version of rows written without a `Ledger`: the first and only one, from any writer.
    pub const LOADED: Self = Self(1);
    /// Versions of one key that a writer can number.
    pub const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;
    /// The largest writer number. Zero is no particular writer.
    pub const WRITER_MAX: u16 = (1 << WRITER_BITS) - 1;

    /// A writer's `count`-th version. Both are cut to their widths.
    pub fn new(writer: u16, count: u32) -> Self {
        Self(u64::from(writer & Self::WRITER_MAX) << COUNT_BITS | u64::from(count & Self::COUNT_MAX))
    }

    /// Its writer.
    pub fn writer(self) -> u16 {
        (self.0 >> COUNT_BITS) as u16
    }

    /// Its number among its writer's values of the key.
    pub fn count(self) -> u32 {
        (self.0 & u64::from(Self::COUNT_MAX)) as u32
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.writer() {
            0 => write!(f, "{}", self.count()),
            writer => write!(f, "{}.{}", writer, self.count()),
        }
    }
}

/// Reasons why a value was never written under its key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Too short for its head.
    #[error("value of {0} B, shorter than its {VALUE_BYTES_MIN} B head")]
    TooShort(usize),
    /// Its head belongs to another key or column, or is damaged.
    #[error("head of the value fits no version of this key and column")]
    Head,
    /// Another length than its version has.
    #[error("version {version} has {expected} B, found {found} B")]
    Length {
        /// The version in its head.
        version: Version,
        /// As written.
        expected: usize,
        /// As read.
        found: usize,
    },
    /// Other content than its version has.
    #[error("version {version} differs from the written value at byte {at}")]
    Content {
        /// The version in its head.
        version: Version,
        /// First byte that differs.
        at: usize,
    },
}

/// Bytes from which values are cut.
pub struct Pool(Vec<u8>);

impl Pool {
    /// Generates random bytes or reads the text.
    ///
    /// # Errors
    /// A text that cannot be read, or is shorter than the longest value twice over.
    pub fn open(source: &ValueSource) -> anyhow::Result<Self> {
        match source {
            ValueSource::Incompressible => Ok(Self::random(RANDOM_POOL_BYTES)),
            ValueSource::Corpus { path } => {
                let mut text = Vec::new();
                std::fs::File::open(path)
                    .and_then(|file| file.take(CORPUS_BYTES_MAX).read_to_end(&mut text))
                    .with_context(|| format!("reading the corpus {path}"))?;
                let least = 1 << 20;
                ensure!(
                    text.len() >= least,
                    "corpus {path} has {} B, fewer than {least}",
                    text.len()
                );
                Ok(Self(text))
            }
        }
    }

    fn random(bytes: usize) -> Self {
        let mut stream = Stream::new(0x7075_6c70, 0);
        let mut pool = Vec::with_capacity(bytes);
        while pool.len() < bytes {
            pool.extend_from_slice(&stream.bits().to_le_bytes());
        }
        Self(pool)
    }
}

/// Hash of a row key, from which the content of its values follows.
pub fn key_hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// Makes values and checks them.
pub struct ValueMaker {
    pool: std::sync::Arc<Pool>,
    bytes_min: u32,
    /// How many different sizes there are.
    sizes: u32,
}

impl ValueMaker {
    /// For values of these sizes.
    ///
    /// # Errors
    /// Sizes too small for the head, too large, or beyond half of the pool.
    pub fn new(values: &Values, pool: std::sync::Arc<Pool>) -> anyhow::Result<Self> {
        let (least, most) = (values.bytes, values.bytes_max.unwrap_or(values.bytes));
        ensure!(
            least >= VALUE_BYTES_MIN && least <= most && most <= VALUE_BYTES_MAX,
            "values of {least} to {most} B; they must have {VALUE_BYTES_MIN} to {VALUE_BYTES_MAX} B"
        );
        let room = pool.0.len() / 2;
        ensure!(
            most as usize <= room,
            "values of {most} B cut from a text of {} B",
            pool.0.len()
        );
        Ok(Self {
            pool,
            bytes_min: least,
            sizes: most - least + 1,
        })
    }

    /// Most bytes that a value has.
    pub fn bytes_max(&self) -> usize {
        (self.bytes_min + self.sizes - 1) as usize
    }

    /// Appends a value; returns its size.
    pub fn write(&self, key_hash: u64, column: u32, version: Version, out: &mut BytesMut) -> usize {
        let plan = self.plan(key_hash, column, version);
        out.put_slice(&plan.head.to_le_bytes());
        out.put_slice(plan.body);
        plan.body.len() + VALUE_BYTES_MIN as usize
    }

    /// The version of a value.
    ///
    /// # Errors
    /// A value that was never written under this key and column.
    pub fn read(&self, key_hash: u64, column: u32, value: &[u8]) -> Result<Version, Mismatch> {
        let Some((head, body)) = value.split_first_chunk::<{ VALUE_BYTES_MIN as usize }>() else {
            return Err(Mismatch::TooShort(value.len()));
        };
        let word = u64::from_le_bytes(*head) ^ pad(key_hash, column);
        let version = Version(word >> CHECK_BITS);
        let plan = self.plan(key_hash, column, version);
        if plan.head != u64::from_le_bytes(*head) {
            return Err(Mismatch::Head);
        }
        if plan.body == body {
            return Ok(version);
        }
        Err(if plan.body.len() == body.len() {
            let same = plan.body.iter().zip(body).take_while(|(a, b)| a == b).count();
            Mismatch::Content {
                version,
                at: same + VALUE_BYTES_MIN as usize,
            }
        } else {
            Mismatch::Length {
                version,
                expected: plan.body.len() + VALUE_BYTES_MIN as usize,
                found: value.len(),
            }
        })
    }

    fn plan(&self, key_hash: u64, column: u32, version: Version) -> Plan<'_> {
        let pad = pad(key_hash, column);
        let seed = mix64(pad.wrapping_add(version.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let check = seed >> (u64::BITS - CHECK_BITS);
        let place = mix64(seed);
        let size = self.bytes_min as usize + scale(mix64(place), u64::from(self.sizes)) as usize;
        let body = size - VALUE_BYTES_MIN as usize;
        // `new` made sure that bodies are shorter than the pool.
        let start = scale(place, (self.pool.0.len() - body) as u64) as usize;
        Plan {
            head: (version.0 << CHECK_BITS | check) ^ pad,
            body: &self.pool.0[start..start + body],
        }
    }
}

struct Plan<'p> {
    head: u64,
    body: &'p [u8],
}

fn pad(key_hash: u64, column: u32) -> u64 {
    mix64(key_hash.wrapping_add(u64::from(column).wrapping_mul(0xd6e8_feb8_6659_fd93)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::Arc;

    fn maker(bytes: u32, bytes_max: Option<u32>) -> ValueMaker {
        let values = Values {
            bytes,
            bytes_max,
            ..Values::default()
        };
        ValueMaker::new(&values, Arc::new(Pool::random(1 << 20))).unwrap()
    }

    fn value(maker: &ValueMaker, key: u64, column: u32, version: Version) -> Vec<u8> {
        let mut out = BytesMut::new();
        assert_eq!(maker.write(key, column, version, &mut out), out.len());
        out.to_vec()
    }

    #[test]
    fn a_value_tells_its_version() {
        for maker in [maker(8, None), maker(10, None), maker(1_000, None), maker(8, Some(200))] {
            for key in 0..200 {
                let version = Version::new(key as u16, key as u32 * 1_000);
                let value = value(&maker, key, 3, version);
                assert_eq!(maker.read(key, 3, &value), Ok(version));
                assert_eq!((version.writer(), version.count()), (key as u16, key as u32 * 1_000));
                assert!(value.len() <= maker.bytes_max());
            }
        }
    }

    #[test]
    fn any_change_is_noticed() {
        let maker = maker(64, None);
        let good = value(&maker, 7, 0, Version::new(5, 9));
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(maker.read(7, 0, &bad).is_err(), "byte {at} bit {bit}");
            }
        }
        assert_eq!(maker.read(7, 1, &good), Err(Mismatch::Head), "another column");
        assert_eq!(maker.read(8, 0, &good), Err(Mismatch::Head), "another key");
        assert!(matches!(maker.read(7, 0, &good[..63]), Err(Mismatch::Length { .. })));
        assert_eq!(maker.read(7, 0, &good[..7]), Err(Mismatch::TooShort(7)));
        let mut bad = good.clone();
        bad[20] ^= 1;
        assert!(matches!(maker.read(7, 0, &bad), Err(Mismatch::Content { at: 20, .. })));
    }

    #[test]
    fn the_check_alone_rejects_foreign_heads() {
        // Values of eight bytes are only a head: one of another key passes once in 2^24.
        let maker = maker(8, None);
        let accepted = (0..100_000).filter(|&key| {
            let value = value(&maker, key, 0, Version::LOADED);
            maker.read(key + 1, 0, &value).is_ok()
        });
        assert_eq!(accepted.count(), 0);
    }

    #[test]
    fn sizes_are_uniform_and_follow_from_the_key() {
        let maker = maker(100, Some(199));
        let sizes: Vec<usize> = (0..20_000)
            .map(|key| value(&maker, key, 0, Version::LOADED).len())
            .collect();
        let mean = sizes.iter().sum::<usize>() as f64 / sizes.len() as f64;
        assert!((mean - 149.5).abs() < 1.0, "mean {mean}");
        assert_eq!((sizes.iter().min(), sizes.iter().max()), (Some(&100), Some(&199)));
    }

    #[test]
    fn random_values_do_not_compress() {
        let maker = maker(1_000, None);
        let block: Vec<u8> = (0..64).flat_map(|key| value(&maker, key, 0, Version::LOADED)).collect();
        let packed = zstd::bulk::compress(&block, 3).unwrap();
        assert!(
            packed.len() as f64 > 0.99 * block.len() as f64,
            "{} of {}",
            packed.len(),
            block.len()
        );
    }

    #[test]
    fn text_values_are_text_after_their_head() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for line in 0..100_000 {
            writeln!(file, "This is line {line} of a text.").unwrap();
        }
        let source = ValueSource::Corpus {
            path: file.path().to_string_lossy().into_owned(),
        };
        let values = Values {
            bytes: 500,
            source: source.clone(),
            ..Values::default()
        };
        let maker = ValueMaker::new(&values, Arc::new(Pool::open(&source).unwrap())).unwrap();
        let made = value(&maker, 1, 0, Version::LOADED);
        assert!(made[8..].is_ascii() && String::from_utf8_lossy(&made).contains("This is line"));
        assert_eq!(maker.read(1, 0, &made), Ok(Version::LOADED));
    }

    #[test]
    fn senseless_sizes_and_short_texts_are_refused() {
        let pool = Arc::new(Pool::random(1 << 20));
        for (bytes, bytes_max) in [
            (7, None),
            (100, Some(99)),
            (1 << 20, None),
            (8, Some(VALUE_BYTES_MAX + 1)),
        ] {
            let values = Values {
                bytes,
                bytes_max,
                ..Values::default()
            };
            assert!(
                ValueMaker::new(&values, Arc::clone(&pool)).is_err(),
                "{bytes} {bytes_max:?}"
            );
        }
        let short = tempfile::NamedTempFile::new().unwrap();
        for path in [short.path().to_string_lossy().into_owned(), "/no/such/file".into()] {
            assert!(Pool::open(&ValueSource::Corpus { path }).is_err());
        }
    }
}
