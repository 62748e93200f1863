//! Archives the rest of the log of a server that has ended.
//!
//! The leader of a cluster does so before it deletes the log.
//!
//! The caller is the owner of the log, which is settled, and has noted that the server lets nothing go any more. The last part says that nothing follows.

use super::format::{Life, Part, StreamEnd};
use super::metrics::ArchiveMetrics;
use super::round::{Round, Waiting};
use super::site::ClusterArchive;
use super::store::Archive;
use crate::error::{BackupError, Result};
use std::collections::BTreeMap;
use std::time::Duration;
use stele_commitlog::{LogClock, LogError, LogPosition, replay};
use stele_env::{Env, PlantedBug};
use stele_storage::Storage;
use stele_tabletserver::Moments;

/// Tries to write the last part, where the server that was given up still writes parts.
const TRIES_MAX: u32 = 10;
/// Bytes of log in a part, at least, if there is more: an attempt that is interrupted goes on behind the last part.
const PART_BYTES: u64 = 256 << 20;
/// Longest time for a part.
const PART_WAIT_MAX: Duration = Duration::from_secs(600);
/// Numbers of pieces of one attempt, at least: those of attempts before it, and of the server itself, are others.
const PIECES_SHIFT: u32 = 16;

/// The log of a server that has ended.
pub struct Rest<'a> {
    /// The environment of the caller.
    pub env: &'a Env,
    /// The number of the data root.
    pub root: [u8; 16],
    /// The number of the caller, for the names of files.
    pub epoch: u32,
    /// The server, as the coordinator has it.
    pub life: Life,
    /// The root of its log.
    pub log: &'a dyn Storage,
    /// The clock of the caller.
    pub clock: &'a LogClock,
    /// The moments of all servers.
    pub moments: &'a dyn Moments,
    /// Counts.
    pub metrics: &'a ArchiveMetrics,
}

/// Archives the groups that the archive does not have, and ends the archive of the server. It may be repeated.
pub async fn archive_rest(archive: &ClusterArchive, rest: &Rest<'_>) -> Result<()> {
    let archive = archive.server(rest.life.server).open(true).await?;
    let mut tries = 0;
    while tries < TRIES_MAX {
        // The caller deletes the log.
        let last = archive.settled_last().await?;
        if let Some(last) = &last {
            if last.root != rest.root {
                let message = "the archive is that of another data root: give another place";
                return Err(BackupError::Invalid(message.to_owned()));
            }
            if last.is_last && last.chain == rest.life.chain() {
                return Ok(());
            }
        }
        let round = rest.round(last).await?;
        let (number, is_last) = (round.part.number, round.part.is_last);
        let written = rest.env.timeout(PART_WAIT_MAX, rest.write(&archive, round)).await;
        match written.map_err(|_| BackupError::ArchiveTooSlow)?? {
            true if is_last => return Ok(()),
            true => tracing::debug!(number, "a part of the log of a server that has ended is archived"),
            false => tries += 1,
        }
    }
    Err(BackupError::Contended)
}

/// Some of the log: whole segments from the first on. `complete` has the segments that are left for later parts.
fn some_segments(waiting: Waiting, done: &BTreeMap<u32, StreamEnd>) -> Waiting {
    let mut some = Waiting {
        ends: done.clone(),
        ..Waiting::default()
    };
    for (piece, path) in waiting.pieces {
        let is_begun = some
            .pieces
            .last()
            .is_some_and(|(last, _)| last.segment == piece.segment);
        if some.bytes >= PART_BYTES && !is_begun {
            some.complete.push(piece.segment);
            continue;
        }
        let (stream, segment, end) = (piece.stream, piece.segment, piece.from + piece.len);
        some.ends.insert(stream, StreamEnd { stream, segment, end });
        some.bytes += piece.len;
        some.pieces.push((piece, path));
    }
    some
}

impl Rest<'_> {
    /// The next part, which is the last one unless it begins the archive.
    async fn round(&self, last: Option<Part>) -> Result<Round> {
        let report = replay::<LogError>(self.log, |_| Ok(()))
            .await
            .map_err(|error| BackupError::Damaged {
                path: "log".to_owned(),
                detail: error.to_string(),
            })?;
        self.clock.raise(report.last_micros.saturating_add(1));
        let now = self.clock.now();
        let part = Part {
            root: self.root.to_vec(),
            chain: self.life.chain().to_vec(),
            epoch: self.epoch,
            first_piece: (self.env.random_u64() as u32 >> 1) >> PIECES_SHIFT << PIECES_SHIFT,
            ..Part::default()
        };
        let Some(last) = last else {
            return Ok(self.first(part, now));
        };
        let positions: Vec<LogPosition> = report
            .segments
            .into_iter()
            .map(|(_, number, info)| LogPosition {
                number,
                path: info.path,
                end: info.end,
                is_closed: true,
            })
            .collect();
        let done: BTreeMap<u32, StreamEnd> = last.ends.iter().map(|end| (end.stream, *end)).collect();
        let positions = match self.env.planted(PlantedBug::ForgetRest) {
            true => Vec::new(),
            false => positions,
        };
        let waiting = some_segments(Waiting::of(&positions, &done), &done);
        let number = last.number + 1;
        let to_micros = now.max(last.to_micros);
        if last.chain != self.life.chain() {
            // The server has let log go, so nothing of the rest can be followed to.
            return Ok(self.only_end(part, &last, to_micros));
        }
        let is_last = waiting.complete.is_empty();
        let part = Part {
            number,
            range_first: last.range_first,
            range_from: last.range_from,
            from_micros: last.to_micros,
            // Log that a later part has may be as old as the end of the last one.
            to_micros: if is_last { to_micros } else { last.to_micros },
            pieces: waiting.pieces.iter().map(|(piece, _)| *piece).collect(),
            ends: waiting.ends.values().copied().collect(),
            is_last,
            ..part
        };
        Ok(Round::new(part, None, waiting.pieces))
    }

    /// The part that begins the archive of a server that has written none. It has nothing of the log.
    fn first(&self, part: Part, now: i64) -> Round {
        // Without a gap all log of the server is there.
        let (from, is_last) = match self.life.gaps {
            0 => (self.life.from_micros, false),
            _ => (now, true),
        };
        let part = Part {
            number: 1,
            range_first: 1,
            range_from: from,
            from_micros: from,
            to_micros: from,
            gap: "the archive of a server that has ended begins".to_owned(),
            is_last,
            ..part
        };
        Round::new(part, None, Vec::new())
    }

    fn only_end(&self, part: Part, last: &Part, now: i64) -> Round {
        let number = last.number + 1;
        let part = Part {
            number,
            range_first: number,
            range_from: now,
            from_micros: now,
            to_micros: now,
            ends: last.ends.clone(),
            gap: "the server let log go that was not archived, and has ended".to_owned(),
            is_last: true,
            ..part
        };
        Round::new(part, None, Vec::new())
    }

    /// Writes a part; whether it is in the archive, and not another one in its place.
    async fn write(&self, archive: &Archive, mut round: Round) -> Result<bool> {
        while round.upload_segment(archive, self.log, self.metrics).await? {}
        self.moments.note(round.part.to_micros).await?;
        let other = archive.put_part(&round.part).await?;
        Ok(other.is_none())
    }
}
