//! Opens an archive, and compares its end with the log of the server.
//!
//! Where they do not fit together, the archive goes on with a new range.

use super::{Archiver, State};
use crate::archive::format::{Part, StreamEnd};
use crate::archive::store::Archive;
use crate::error::{BackupError, Result};
use std::collections::BTreeMap;
use stele_commitlog::format::parse_segment_path;

impl Archiver {
    /// Opens the archive, and finds out where it ends.
    pub(super) async fn connect(&self, state: &mut State) -> Result<Archive> {
        let archive = self.site.open(true).await?;
        let last = archive.settled_last().await?;
        match &last {
            None => state.gap = Some("the archive begins".to_owned()),
            Some(last) if last.root != self.root => {
                let message = "the archive is that of another data root: give another place";
                return Err(BackupError::Invalid(message.to_owned()));
            }
            // The leader has archived the rest of the log of this server, which was given up.
            Some(last) if last.is_last && self.life.is_some() => return Err(BackupError::OtherArchiver(last.epoch)),
            Some(last) if last.epoch > self.log.epoch().0 => return Err(BackupError::OtherArchiver(last.epoch)),
            Some(last) if last.chain != state.chain => {
                let gap = state.gap.take();
                state.gap = gap.or_else(|| Some("a server ran without archiving its log here".to_owned()));
            }
            Some(last) if last.epoch == self.log.epoch().0 && !state.has_written => {
                let gap = state.gap.take();
                state.gap = gap.or_else(|| Some("the data root was put back to an earlier state".to_owned()));
            }
            Some(last) => {
                state.done = last.ends.iter().map(|end| (end.stream, *end)).collect();
                if state.gap.is_none() && self.has_less_than(&state.done) {
                    state.gap = Some("the log of the server has less than the archive".to_owned());
                }
            }
        }
        if let Some(last) = &last {
            self.catch_up(state, last);
        }
        state.last = last;
        state.archive = Some(archive.clone());
        Ok(archive)
    }

    /// Moves the clock to the end of the archive. If it was behind, writes and backups of this process have times of the range before, so
    /// that range cannot go on.
    fn catch_up(&self, state: &mut State, last: &Part) {
        let behind = last.to_micros.saturating_sub(self.log.clock().now());
        self.log.clock().raise(last.to_micros);
        let stated = state.restated.as_ref().map(|(stated, _)| *stated);
        // A former leader may have written a part when this one led already.
        let is_stated_late = self.lives.is_some() && stated.is_some_and(|stated| stated < last.to_micros);
        if is_stated_late && state.gap.is_none() {
            state.gap = Some("two leaders have archived the tables at one time".to_owned());
        }
        if behind > 0 && state.gap.is_none() {
            state.gap = Some(format!(
                "the clock of the server was {behind} microseconds behind the archive"
            ));
        }
    }

    /// Whether a segment is shorter than its part in the archive.
    fn has_less_than(&self, done: &BTreeMap<u32, StreamEnd>) -> bool {
        self.log.positions().iter().any(|position| {
            let stream = parse_segment_path(&position.path).map_or(0, |(stream, _)| stream);
            let end = done.get(&stream).filter(|end| end.segment == position.number);
            end.is_some_and(|end| end.end > position.end)
        })
    }
}
