//! Runs of one workload, the engines taking turns, and their results.

use crate::engine::Engine;
use crate::measured::Measured;
use crate::stele::{FixedDivision, SteleEngine, SteleOptions};
use crate::workload::{Against, Setup, Workload};
use serde_json::{Value, json};
use std::fmt;
use std::path::{Path, PathBuf};
use stele_types::Compression;

/// The engines that take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Stele,
    RocksDb,
    NoRowCache,
}

/// All runs of a workload.
pub struct Comparison {
    workload: Workload,
    stele: Vec<Measured>,
    rival: Vec<Measured>,
}

/// Runs a workload `repeats` times with each engine.
pub fn run(workload: Workload, setup: &Setup, repeats: usize, rival: bool) -> anyhow::Result<Comparison> {
    let sides: &[Side] = match workload.against {
        Against::NoRowCache => &[Side::Stele, Side::NoRowCache],
        Against::RocksDb if rival => &[Side::Stele, Side::RocksDb],
        Against::RocksDb => &[Side::Stele],
    };
    let mut comparison = Comparison {
        workload,
        stele: Vec::new(),
        rival: Vec::new(),
    };
    if workload.reads() {
        let mut loaded = Vec::new();
        for &side in sides {
            let folder = fresh(setup, side)?;
            let engine = open(side, &folder, &workload, setup)?;
            workload.load(&*engine, setup)?;
            workload.warm_up(&*engine, setup, &folder)?;
            loaded.push((side, engine, folder));
        }
        // While the last one was filled, the first one's blocks may have left the system's memory.
        for (_, engine, folder) in &loaded {
            workload.run_uncounted(&**engine, setup, folder)?;
        }
        for round in 1..=repeats as u64 {
            for at in turns(round, loaded.len()) {
                let (side, engine, folder) = &loaded[at];
                comparison.add(*side, workload.run(&**engine, setup, folder, round)?);
            }
        }
        for (_, engine, folder) in loaded {
            drop(engine);
            std::fs::remove_dir_all(folder)?;
        }
        return Ok(comparison);
    }
    for round in 1..=repeats as u64 {
        for at in turns(round, sides.len()) {
            let side = sides[at];
            let folder = fresh(setup, side)?;
            let engine = open(side, &folder, &workload, setup)?;
            let measured = workload.run(&*engine, setup, &folder, 0)?;
            drop(engine);
            std::fs::remove_dir_all(folder)?;
            // The writeback that one engine leaves behind must not burden the other.
            rustix::fs::sync();
            comparison.add(side, measured);
        }
    }
    Ok(comparison)
}

/// The order of the sides: each round begins with another one. So no side always meets the state that the other has
/// left in the system and on the disk.
fn turns(round: u64, sides: usize) -> impl Iterator<Item = usize> {
    (0..sides).map(move |at| (at + round as usize) % sides)
}

fn fresh(setup: &Setup, side: Side) -> anyhow::Result<PathBuf> {
    let folder = setup.folder.join(format!("{side:?}").to_lowercase());
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn open(side: Side, folder: &Path, workload: &Workload, setup: &Setup) -> anyhow::Result<Box<dyn Engine>> {
    let memory = workload.memory(setup);
    match side {
        Side::Stele | Side::NoRowCache => {
            let options = SteleOptions {
                memory,
                compression: Compression::Snappy,
                row_cache: side == Side::Stele && workload.row_cache(),
                fixed: setup.fixed_memory.then_some(FixedDivision {
                    memtables: memory / 5 * 2,
                    blocks: memory / 5 * 2,
                    rows: memory / 20,
                }),
            };
            Ok(Box::new(SteleEngine::open(folder, options)?))
        }
        #[cfg(feature = "rocksdb")]
        Side::RocksDb => Ok(Box::new(crate::rocks::RocksEngine::open(
            folder,
            memory,
            setup.rival_urgent,
            setup.fixed_memory,
        )?)),
        #[cfg(not(feature = "rocksdb"))]
        Side::RocksDb => anyhow::bail!("built without the rival"),
    }
}

impl Comparison {
    fn add(&mut self, side: Side, measured: Measured) {
        match side {
            Side::Stele => self.stele.push(measured),
            Side::RocksDb | Side::NoRowCache => self.rival.push(measured),
        }
    }

    /// Ratios of neighbouring runs.
    fn ratios(&self) -> Vec<f64> {
        let pairs = self.stele.iter().zip(&self.rival);
        pairs.map(|(stele, rival)| stele.figure / rival.figure).collect()
    }

    /// The rival's name in the results.
    fn rival_name(&self) -> &'static str {
        match self.workload.against {
            Against::RocksDb => "rocksdb",
            Against::NoRowCache => "no-row-cache",
        }
    }

    /// As the result file has it.
    pub fn json(&self) -> Value {
        let name = self.rival_name();
        let figures = |runs: &[Measured]| runs.iter().map(|m| m.figure).collect::<Vec<_>>();
        let (stele, rival, ratios) = (figures(&self.stele), figures(&self.rival), self.ratios());
        let compared = !rival.is_empty();
        json!({
            "workload": self.workload.name,
            "unit": self.workload.unit.name(),
            "stele": median(&stele),
            name: compared.then(|| median(&rival)),
            "ratio": compared.then(|| median(&ratios)),
            "spread": {
                "stele": spread(&stele),
                name: compared.then(|| spread(&rival)),
                "ratio": compared.then(|| [least(&ratios), most(&ratios)]),
            },
            "cpu_micros_per_row": {
                "stele": median_of(&self.stele, |m| m.cpu_micros),
                name: compared.then(|| median_of(&self.rival, |m| m.cpu_micros)),
            },
            "longest_ms": {
                "stele": longest(&self.stele),
                name: longest(&self.rival),
            },
            "extra": { "stele": extra(&self.stele), name: extra(&self.rival) },
            "runs": { "stele": stele, name: rival },
            "remarks": self.stele.iter().map(|m| &m.remark).collect::<Vec<_>>(),
        })
    }
}

/// Medians of the further figures, by name.
fn extra(runs: &[Measured]) -> Value {
    let names = runs.first().map(|m| m.extra.clone()).unwrap_or_default();
    let one = |(at, (name, _)): (usize, &(&'static str, f64))| {
        let median = median_of(runs, |m| m.extra.get(at).map_or(f64::NAN, |(_, figure)| *figure));
        ((*name).to_owned(), json!(median))
    };
    Value::Object(names.iter().enumerate().map(one).collect())
}

/// Milliseconds of the longest operation of all runs.
fn longest(runs: &[Measured]) -> Option<f64> {
    runs.iter()
        .filter_map(|m| m.longest)
        .max()
        .map(|d| d.as_secs_f64() * 1e3)
}

fn median_of(runs: &[Measured], figure: impl Fn(&Measured) -> f64) -> f64 {
    median(&runs.iter().map(figure).collect::<Vec<_>>())
}

/// The middle one.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The smallest.
pub fn least(figures: &[f64]) -> f64 {
    figures.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The largest.
pub fn most(figures: &[f64]) -> f64 {
    figures.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// How far the runs lie apart, as a share of their median.
fn spread(figures: &[f64]) -> f64 {
    (most(figures) - least(figures)) / median(figures)
}

/// One line for each engine, the ratio behind the first.
impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |f: &mut fmt::Formatter<'_>, name: &str, runs: &[Measured]| {
            let figures: Vec<f64> = runs.iter().map(|m| m.figure).collect();
            write!(
                f,
                "{:26} {:8} {:>12.1} {} ±{:.0} %, {:.2} µs CPU",
                self.workload.name,
                name,
                median(&figures),
                self.workload.unit.name(),
                50.0 * spread(&figures),
                median_of(runs, |m| m.cpu_micros),
            )?;
            if let Some(longest) = longest(runs) {
                write!(f, ", longest {longest:.1} ms")?;
            }
            for (at, (name, _)) in runs
                .first()
                .map(|m| m.extra.clone())
                .unwrap_or_default()
                .iter()
                .enumerate()
            {
                let figure = median_of(runs, |m| m.extra.get(at).map_or(f64::NAN, |(_, figure)| *figure));
                write!(f, ", {name} {figure:.2}")?;
            }
            for remark in runs.iter().filter_map(|run| run.remark.as_ref()) {
                write!(f, "\n    {remark}")?;
            }
            Ok(())
        };
        side(f, "stele", &self.stele)?;
        if !self.rival.is_empty() {
            writeln!(f)?;
            side(f, self.rival_name(), &self.rival)?;
            let ratios = self.ratios();
            write!(
                f,
                "\n{:26} ratio    {:.2} ({:.2}–{:.2})",
                self.workload.name,
                median(&ratios),
                least(&ratios),
                most(&ratios)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_side_begins_as_often_as_the_others() {
        assert!(turns(1, 2).eq([1, 0]));
        assert!(turns(2, 2).eq([0, 1]));
        assert!(turns(7, 1).eq([0]));
    }

    #[test]
    fn medians_and_spreads() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(spread(&[9.0, 10.0, 12.0]), 0.3);
    }
}
