//! A table in memory that gives wrong responses on request.

use crate::load::random::Stream;
use crate::target::{Cell, Columns, Connection, Put, Result, Row, Scan, TargetError};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// The fault of the table, in every n-th response or write.
#[derive(Debug, Clone, Default)]
pub enum Lie {
    #[default]
    None,
    FlipBitEveryNth(u64),
    DropColumnEveryNth(u64),
    SkipEveryNth(u64),
    RepeatEveryNth(u64),
    SwapEveryNth(u64),
    AnotherRowEveryNth(u64),
    StaleEveryNth(u64),
    TearEveryNth(u64),
    LoseEveryNthWrite(u64),
    FailEveryNthWriteDone(u64),
    FailEveryNthWriteUndone(u64),
    RefuseEveryNthCondition(u64),
    IgnoreConditions,
}

type Versions = Vec<BTreeMap<(Bytes, Bytes), Bytes>>;

/// The table: all versions of each row, oldest first.
#[derive(Default)]
pub struct Fake {
    pub lie: Mutex<Lie>,
    table: Mutex<BTreeMap<Bytes, Versions>>,
    answers: Mutex<u64>,
    /// Random numbers of pauses; no pauses without it.
    pauses: Mutex<Option<Stream>>,
}

impl Fake {
    pub fn rows(&self) -> u64 {
        self.table.lock().len() as u64
    }

    pub fn clear(&self) {
        self.table.lock().clear();
    }

    /// The key of the row that was dropped.
    pub fn drop_nth_row(&self, n: usize) -> Bytes {
        let mut table = self.table.lock();
        let key = table.keys().nth(n).cloned().unwrap();
        table.remove(&key);
        key
    }

    pub fn forget_newest_version(&self) {
        let mut table = self.table.lock();
        table.values_mut().find(|versions| versions.len() > 1).unwrap().pop();
    }

    /// From now on every call takes a random while before and after it takes effect.
    pub fn slow_down(&self) {
        *self.pauses.lock() = Some(Stream::new(1, 1));
    }

    async fn pause(&self) {
        let times = self.pauses.lock().as_mut().map_or(0, |random| random.below(5));
        for _ in 0..times {
            tokio::task::yield_now().await;
        }
    }

    fn is_nth(&self, n: u64) -> bool {
        let mut answers = self.answers.lock();
        *answers += 1;
        answers.is_multiple_of(n)
    }

    /// The row as the table returns it: nothing, itself, or too much.
    fn answer(&self, key: &Bytes, versions: &Versions) -> Vec<Row> {
        let row = |key: &Bytes, back: usize| Row {
            key: key.clone(),
            cells: cells(&versions[versions.len().saturating_sub(1 + back)]),
        };
        let mut honest = row(key, 0);
        match *self.lie.lock() {
            Lie::FlipBitEveryNth(n) if self.is_nth(n) => {
                let mut value = honest.cells[0].value.to_vec();
                *value.last_mut().unwrap() ^= 1;
                honest.cells[0].value = value.into();
            }
            Lie::DropColumnEveryNth(n) if self.is_nth(n) => {
                honest.cells.pop();
            }
            Lie::SkipEveryNth(n) if self.is_nth(n) => return vec![],
            Lie::RepeatEveryNth(n) if self.is_nth(n) => return vec![honest.clone(), honest],
            Lie::AnotherRowEveryNth(n) if self.is_nth(n) => {
                let mut other = key.to_vec();
                let last = other.last_mut().unwrap();
                *last = if *last == b'5' { b'6' } else { b'5' };
                honest.key = other.into();
            }
            Lie::TearEveryNth(n) if self.is_nth(n) && versions.len() > 1 => {
                honest.cells[0].value = row(key, 1).cells[0].value.clone();
            }
            Lie::StaleEveryNth(n) if self.is_nth(n) => return vec![row(key, 1)],
            _ => {}
        }
        vec![honest]
    }

    fn write(&self, put: Put) -> Result<()> {
        let is_failing = match *self.lie.lock() {
            Lie::LoseEveryNthWrite(n) if self.is_nth(n) => return Ok(()),
            Lie::FailEveryNthWriteUndone(n) if self.is_nth(n) => return Err(TargetError::Timeout(1)),
            Lie::FailEveryNthWriteDone(n) => self.is_nth(n),
            _ => false,
        };
        let mut table = self.table.lock();
        let versions = table.entry(put.key).or_default();
        let mut row = versions.last().cloned().unwrap_or_default();
        for (family, qualifier, value) in put.cells {
            row.insert((Bytes::from(family.to_string()), qualifier), value);
        }
        versions.push(row);
        if is_failing {
            Err(TargetError::Timeout(1))
        } else {
            Ok(())
        }
    }
}

fn cells(row: &BTreeMap<(Bytes, Bytes), Bytes>) -> Vec<Cell> {
    let cell = |((family, qualifier), value): (&(Bytes, Bytes), &Bytes)| Cell {
        family: family.clone(),
        qualifier: qualifier.clone(),
        timestamp: 0,
        value: value.clone(),
    };
    row.iter().map(cell).collect()
}

#[async_trait]
impl Connection for Fake {
    async fn put(&self, _table: &str, put: Put) -> Result<()> {
        self.pause().await;
        let done = self.write(put);
        self.pause().await;
        done
    }

    async fn put_many(&self, _table: &str, puts: Vec<Put>) -> Result<()> {
        for put in puts {
            self.put("", put).await?;
        }
        Ok(())
    }

    async fn get(&self, _table: &str, key: Bytes, _columns: &Columns) -> Result<Option<Row>> {
        self.pause().await;
        let answer = {
            let table = self.table.lock();
            table.get(&key).map(|versions| self.answer(&key, versions))
        };
        self.pause().await;
        Ok(answer.and_then(|rows| rows.into_iter().next()))
    }

    async fn scan(
        &self,
        _table: &str,
        scan: &Scan,
        sink: &mut (dyn for<'r> FnMut(&'r Row) -> ControlFlow<()> + Send),
    ) -> Result<()> {
        self.pause().await;
        let mut rows: Vec<Row> = {
            let table = self.table.lock();
            let in_range = |key: &Bytes| scan.end.is_empty() || *key < scan.end;
            let rows = table.range(scan.start.clone()..).take_while(|(key, _)| in_range(key));
            rows.take(scan.limit.unwrap_or(u64::MAX) as usize)
                .flat_map(|(key, versions)| self.answer(key, versions))
                .collect()
        };
        if let Lie::SwapEveryNth(n) = *self.lie.lock() {
            let swapped: Vec<usize> = (1..rows.len()).filter(|_| self.is_nth(n)).collect();
            swapped.into_iter().for_each(|place| rows.swap(place - 1, place));
        }
        for row in &rows {
            self.pause().await;
            if sink(row).is_break() {
                break;
            }
        }
        Ok(())
    }

    async fn increment(&self, _table: &str, key: Bytes, family: &str, qualifier: Bytes, by: i64) -> Result<i64> {
        let column = (Bytes::from(family.to_owned()), qualifier.clone());
        let old = self
            .table
            .lock()
            .get(&key)
            .and_then(|versions| versions.last()?.get(&column).cloned());
        let old = old.map_or(0, |value| i64::from_be_bytes(value.as_ref().try_into().unwrap()));
        let new = Bytes::copy_from_slice(&(old + by).to_be_bytes());
        self.write(Put {
            key,
            cells: vec![(family.into(), qualifier, new)],
        })?;
        Ok(old + by)
    }

    async fn check_and_put(
        &self,
        _table: &str,
        family: &str,
        qualifier: Bytes,
        expected: Option<Bytes>,
        put: Put,
    ) -> Result<bool> {
        if let Lie::RefuseEveryNthCondition(n) = *self.lie.lock()
            && self.is_nth(n)
        {
            return Ok(false);
        }
        self.pause().await;
        let column = (Bytes::from(family.to_owned()), qualifier);
        let found = self
            .table
            .lock()
            .get(&put.key)
            .and_then(|versions| versions.last()?.get(&column).cloned());
        let is_met = found == expected || matches!(*self.lie.lock(), Lie::IgnoreConditions);
        if is_met {
            self.write(put)?;
        }
        self.pause().await;
        Ok(is_met)
    }

    async fn delete(&self, _table: &str, key: Bytes, _family: Option<&str>, _qualifiers: &[Bytes]) -> Result<()> {
        self.table.lock().remove(&key);
        Ok(())
    }

    fn retries(&self) -> u64 {
        0
    }
}
