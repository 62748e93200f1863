//! Merges the records of the archives of several servers by their times.
//!
//! Invariants:
//! * Records of a row come in the order of their sequence numbers. A server serves a tablet when its clock is behind all times of former owners, and
//!   records of one time are sorted by sequence numbers.
//! * An archive is opened when its time has come, and forgotten at its end: as many are in memory as servers lived at one time.

use super::format::Part;
use super::memory::RestoreMemory;
use super::replay::Replay;
use super::store::{Archive, Range};
use crate::error::{BackupError, Result};
use crate::work::Work;
use std::sync::Arc;
use stele_commitlog::Record;

/// Bytes of records of one time that are sorted.
const SORTED_BYTES: usize = 64 << 20;

/// The part of an archive that a restore reads.
#[derive(Clone)]
pub(crate) struct LogOf {
    pub(crate) archive: Archive,
    pub(crate) range: Range,
    /// The part to begin with.
    pub(crate) first: u64,
    /// No record has an earlier time, in wall-clock microseconds.
    pub(crate) from: i64,
}

/// Records of one time, with the number of a part that has some of them.
pub(crate) struct Records {
    pub(crate) micros: i64,
    pub(crate) part: u64,
    pub(crate) records: Vec<Record>,
}

/// A reader of several archives.
pub(crate) struct Merged<'a> {
    work: &'a Arc<Work>,
    memory: &'a RestoreMemory,
    at: i64,
    /// In the order of their first moments, the last one first.
    coming: Vec<&'a LogOf>,
    open: Vec<Reader<'a>>,
}

/// A reader of one archive.
struct Reader<'a> {
    log: &'a LogOf,
    replay: Replay<'a>,
    /// The part that comes next.
    next: u64,
    /// No part follows.
    is_ended: bool,
    head: Option<Records>,
}

impl<'a> Merged<'a> {
    /// Of the records up to a moment.
    pub(crate) fn new(logs: &'a [LogOf], at: i64, (work, memory): (&'a Arc<Work>, &'a RestoreMemory)) -> Merged<'a> {
        let mut coming: Vec<&LogOf> = logs.iter().collect();
        coming.sort_by_key(|log| std::cmp::Reverse(log.from));
        Merged {
            work,
            memory,
            at,
            coming,
            open: Vec::new(),
        }
    }

    /// The next records.
    pub(crate) async fn next(&mut self) -> Result<Option<Records>> {
        self.work.check()?;
        let Some(micros) = self.next_time().await? else {
            return Ok(None);
        };
        let is_next = |reader: &Reader<'_>| reader.head.as_ref().is_some_and(|head| head.micros == micros);
        let of_several = self.open.iter().filter(|reader| is_next(reader)).count() > 1;
        let mut found: Option<Records> = None;
        let mut bytes = 0;
        for reader in &mut self.open {
            while let Some(some) = reader.head.take_if(|head| head.micros == micros) {
                reader.fill(self.at, self.work).await?;
                let Some(found) = &mut found else {
                    found = Some(some);
                    if of_several {
                        continue;
                    }
                    break;
                };
                bytes += some
                    .records
                    .iter()
                    .map(|record| record.payload.bytes().len())
                    .sum::<usize>();
                if bytes > SORTED_BYTES {
                    return Err(at_one_time(micros));
                }
                found.records.extend(some.records);
            }
        }
        if let Some(found) = found.as_mut().filter(|_| of_several) {
            found.records.sort_by_key(|record| record.first);
        }
        self.open.retain(|reader| reader.head.is_some());
        Ok(found)
    }

    /// The earliest time of records that are left. The archives that may have such are open then.
    async fn next_time(&mut self) -> Result<Option<i64>> {
        loop {
            let earliest = self.open.iter().filter_map(|reader| reader.head.as_ref());
            let earliest = earliest.map(|head| head.micros).min();
            let is_due = |log: &&LogOf| earliest.is_none_or(|earliest| log.from <= earliest);
            let Some(log) = self.coming.pop_if(|log| is_due(&*log)) else {
                return Ok(earliest);
            };
            let mut reader = Reader::new(log, self.at, self.memory).await?;
            reader.fill(self.at, self.work).await?;
            if reader.head.is_some() {
                self.open.push(reader);
            }
        }
    }
}

impl<'a> Reader<'a> {
    async fn new(log: &'a LogOf, at: i64, memory: &'a RestoreMemory) -> Result<Reader<'a>> {
        let before = match log.first > log.range.first {
            true => Some(log.archive.part(log.first - 1).await?),
            false => None,
        };
        Ok(Reader {
            log,
            replay: Replay::new((&log.archive, memory), at, before.as_ref()),
            next: log.first,
            is_ended: false,
            head: None,
        })
    }

    /// Reads on to the next records, over as many parts as it takes.
    async fn fill(&mut self, at: i64, work: &Arc<Work>) -> Result<()> {
        while self.head.is_none() {
            match self.replay.next().await? {
                Some(records) if records.is_empty() => work.check()?,
                Some(records) => {
                    self.head = Some(Records {
                        micros: self.replay.micros(),
                        part: self.next.saturating_sub(1),
                        records,
                    });
                }
                None if self.is_ended => return Ok(()),
                None => self.begin_part(at, work).await?,
            }
        }
        Ok(())
    }

    async fn begin_part(&mut self, at: i64, work: &Arc<Work>) -> Result<()> {
        work.begin("replaying the log")?;
        let part: Part = self.log.archive.part(self.next).await?;
        let (to_micros, bytes) = (part.to_micros, part.pieces.iter().map(|piece| piece.len).sum());
        work.expect(1, bytes);
        self.replay.begin_part(part)?;
        self.is_ended = to_micros > at || self.next == self.log.range.last;
        self.next += 1;
        if self.is_ended {
            self.replay.end_parts();
        }
        work.moved(bytes, false).await?;
        work.was_read();
        Ok(())
    }
}

fn at_one_time(micros: i64) -> BackupError {
    BackupError::Moment(format!(
        "the moment cannot be restored: the clocks of servers stood still at {micros}, so the order of the writes of that time is not known; the latest moment that can be restored with this backup is {}, and a later backup leads further",
        micros.saturating_sub(1)
    ))
}
