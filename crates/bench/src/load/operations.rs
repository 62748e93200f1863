//! Kind and key of operation `i`: a pure function of workload, seed and `i`.
//!
//! Since it has no other input, any worker can repeat a range of operations, and the writes of a run can be replayed
//! afterwards without a record.
//!
//! Terms: a *slot* is a place in a block of [`BLOCK`] operations. Each block has the same number of inserts, at slots
//! that a permutation of the block chooses. Inserts are thereby numbered without gaps in closed form: insert number =
//! block × inserts per block + slot. The share of inserts is rounded to thousandths; other kinds are chosen
//! independently.
//!
//! Popular keys are scattered over the key space by a permutation that does not depend on the seed: a warm-up reads the
//! keys that the measurement will use.

use super::random::{Permutation, Stream, mix64};
use super::zipf::Zipf;
use crate::plan::{KeyOrder, Operation, Workload};
use anyhow::ensure;

/// Operations of a block; inserts have a fixed number in each.
const BLOCK: u64 = 1_000;
/// Key of the permutation that scatters popular keys.
const SCATTER: u64 = 0x5ca7_7e2d_0b5e_55ed;

/// One operation.
#[derive(Debug, Clone, Copy)]
pub struct Chosen {
    /// Index into the workload's mix.
    pub kind: u8,
    /// Number of its key. For [`KeyOrder::Latest`] that of a table without further inserts.
    pub key: u64,
    /// [`KeyOrder::Latest`] only: number of keys that are newer than the requested one.
    pub age: Option<u64>,
    /// Random numbers for its further choices.
    pub random: Stream,
}

/// All operations of a run.
#[derive(Debug, Clone)]
pub struct Operations {
    seed: u64,
    records: u64,
    order: Order,
    /// Kinds but inserts, with the upper end of each one's share of the 64-bit words.
    thresholds: Vec<(u64, u8)>,
    /// The kind that inserts, and its operations in each block.
    insert: Option<(u8, u64)>,
    block: Permutation,
}

#[derive(Debug, Clone)]
enum Order {
    Sequential,
    Uniform,
    Zipf {
        zipf: Zipf,
        scatter: Permutation,
    },
    Latest {
        zipf: Zipf,
    },
    Hotspot {
        hot: u64,
        operations: f64,
        scatter: Permutation,
    },
}

impl Operations {
    /// The operations of a workload under a seed.
    ///
    /// # Errors
    /// Invalid weights, shares or exponents, or no keys.
    pub fn new(workload: &Workload, seed: u64) -> anyhow::Result<Self> {
        let records = workload.keys.records;
        ensure!(records > 0, "a workload needs keys; records is zero");
        let (thresholds, insert) = shares(&workload.mix)?;
        Ok(Self {
            seed,
            records,
            order: Order::new(workload.keys.order, records)?,
            thresholds,
            insert,
            block: Permutation::new(BLOCK),
        })
    }

    /// Operation `index`.
    pub fn at(&self, index: u64) -> Chosen {
        let mut random = Stream::new(self.seed, index);
        if let Some((kind, each)) = self.insert
            && let Some(number) = self.insert_number(index, each)
        {
            return Chosen {
                kind,
                key: self.records.saturating_add(number),
                age: None,
                random,
            };
        }
        let kind = match self.thresholds.as_slice() {
            [(_, kind)] => *kind,
            several => {
                let bits = random.bits();
                several
                    .iter()
                    .find(|(end, _)| bits <= *end)
                    .map_or(0, |(_, kind)| *kind)
            }
        };
        let (key, age) = self.order.key(index, self.records, &mut random);
        Chosen { kind, key, age, random }
    }

    /// Inserts among the first `operations` operations.
    pub fn inserts_before(&self, operations: u64) -> u64 {
        let each = self.insert.map_or(0, |(_, each)| each);
        let tail = (operations / BLOCK * BLOCK..operations).filter(|&i| self.insert_number(i, each).is_some());
        operations / BLOCK * each + tail.count() as u64
    }

    fn insert_number(&self, index: u64, each: u64) -> Option<u64> {
        if each == BLOCK {
            return Some(index);
        }
        let block = index / BLOCK;
        let slot = self.block.apply(index % BLOCK, mix64(self.seed ^ block));
        (slot < each).then(|| block * each + slot)
    }
}

impl Order {
    fn new(order: KeyOrder, records: u64) -> anyhow::Result<Self> {
        let zipf = |exponent: f64| {
            ensure!(
                exponent.is_finite() && exponent > 0.0,
                "a Zipf exponent must be above 0, found {exponent}"
            );
            Ok(Zipf::new(records, exponent))
        };
        let scatter = Permutation::new(records);
        Ok(match order {
            KeyOrder::Sequential => Self::Sequential,
            KeyOrder::Uniform => Self::Uniform,
            KeyOrder::Zipf { exponent } => Self::Zipf {
                zipf: zipf(exponent)?,
                scatter,
            },
            KeyOrder::Latest { exponent } => Self::Latest { zipf: zipf(exponent)? },
            KeyOrder::Hotspot { keys, operations } => {
                let is_share = |share: f64| share > 0.0 && share < 1.0;
                ensure!(
                    is_share(keys) && is_share(operations),
                    "shares of a hotspot must be between 0 and 1, found {keys} and {operations}"
                );
                ensure!(records > 1, "a hotspot needs two keys");
                let hot = ((records as f64 * keys).round() as u64).clamp(1, records - 1);
                Self::Hotspot {
                    hot,
                    operations,
                    scatter,
                }
            }
        })
    }

    fn key(&self, index: u64, records: u64, random: &mut Stream) -> (u64, Option<u64>) {
        match self {
            Self::Sequential => (index % records, None),
            Self::Uniform => (random.below(records), None),
            Self::Zipf { zipf, scatter } => {
                let rank = zipf.sample(&mut || random.bits());
                (scatter.apply(rank, SCATTER), None)
            }
            Self::Latest { zipf } => {
                let age = zipf.sample(&mut || random.bits());
                (records - 1 - age, Some(age))
            }
            Self::Hotspot {
                hot,
                operations,
                scatter,
            } => {
                let rank = if random.unit() < *operations {
                    random.below(*hot)
                } else {
                    hot + random.below(records - hot)
                };
                (scatter.apply(rank, SCATTER), None)
            }
        }
    }
}

/// Ends of the kinds' shares of the 64-bit words, and the inserting kind with its number in each block.
type Shares = (Vec<(u64, u8)>, Option<(u8, u64)>);

fn shares(mix: &[(Operation, f64)]) -> anyhow::Result<Shares> {
    ensure!(
        !mix.is_empty() && mix.len() <= 200,
        "a mix needs 1 to 200 operations, found {}",
        mix.len()
    );
    let is_weight = |weight: f64| weight.is_finite() && weight >= 0.0;
    ensure!(
        mix.iter().all(|&(_, weight)| is_weight(weight)),
        "weights must be 0 or above"
    );
    let total: f64 = mix.iter().map(|(_, weight)| weight).sum();
    ensure!(total > 0.0 && total.is_finite(), "weights sum to {total}");
    let is_insert = |operation: &Operation| *operation == Operation::Insert;
    ensure!(
        mix.iter().filter(|(o, _)| is_insert(o)).count() <= 1,
        "a mix may name insert only once"
    );
    let insert = mix
        .iter()
        .zip(0u8..)
        .find(|((o, weight), _)| is_insert(o) && *weight > 0.0);
    let insert = insert.map(|((_, weight), kind)| (kind, insert_slots(weight / total)));
    let rest: f64 = mix
        .iter()
        .filter(|(o, _)| !is_insert(o))
        .map(|(_, weight)| weight)
        .sum();
    let mut thresholds = Vec::with_capacity(mix.len());
    let mut sum = 0.0;
    for ((operation, weight), kind) in mix.iter().zip(0u8..) {
        if !is_insert(operation) && *weight > 0.0 {
            sum += weight;
            // A cast from float saturates, so the last kind reaches the end.
            thresholds.push((((sum / rest) * 2f64.powi(64)) as u64, kind));
        }
    }
    if let Some(last) = thresholds.last_mut() {
        last.0 = u64::MAX;
    }
    Ok((thresholds, insert))
}

fn insert_slots(share: f64) -> u64 {
    if share >= 1.0 {
        return BLOCK;
    }
    ((share * BLOCK as f64).round() as u64).clamp(1, BLOCK - 1)
}

#[cfg(test)]
mod tests;
