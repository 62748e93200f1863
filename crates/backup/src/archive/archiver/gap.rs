//! Gives up log that the archive cannot take, and begins a range behind it.
//!
//! Order: the chain ends in the catalog, then segments go, then the first part of the next range says why.

use super::{Archiver, State};
use crate::archive::format::Part;
use crate::archive::round::{Round, Waiting};
use crate::error::{BackupError, Result};

/// Rounds in a row that cannot read the log before it is given up. A file that grows may be listed while some of its objects replace
/// others, and a store that lists them one by one shows neither. The next listing shows them.
const UNREADABLE_MAX: u32 = 6;

impl Archiver {
    /// The first part of a range: it has nothing of the log.
    pub(super) async fn begin_range(&self, state: &mut State, gap: String) -> Result<Round> {
        let from_start = self
            .life
            .filter(|life| state.last.is_none() && life.chain() == state.chain);
        let now = match from_start {
            // All log of the server is there.
            Some(life) => life.from_micros,
            None => {
                self.let_go(state).await?;
                // Where the clock stands still, a backup from before the gap may have this very time, and would seem to be in the range.
                let noted = self.notes.noted_moment().await?;
                self.log.clock().raise(noted.saturating_add(1));
                self.log.clock().now()
            }
        };
        if let Some(tables) = &self.tables {
            tables.changes.take();
            state.noted.clear();
            tables.changes.archived();
            state.restated = Some((now, tables.catalog.view()));
        }
        let number = state.last.as_ref().map_or(1, |last| last.number + 1);
        let part = Part {
            range_first: number,
            range_from: now,
            from_micros: now,
            to_micros: now,
            gap,
            ..self.part(state, number)
        };
        Ok(Round::new(part, state.restated.clone(), Vec::new()))
    }

    pub(super) fn give_up_round(&self, state: &mut State) {
        if let Some(round) = state.pending.take() {
            state.first_piece = state.first_piece.saturating_add(round.numbers());
            state.noted = round.noted;
        }
    }

    /// Lets all closed segments go that wait, and skips the rest of the log as it is now. The chain ends before.
    async fn let_go(&self, state: &mut State) -> Result<()> {
        if !state.is_fresh {
            // Records of the log that goes have earlier times than this. The next owner of their tablets may look for them in vain.
            self.notes.note_moment(self.log.clock().now()).await?;
            state.chain = self.notes.begin_chain().await?;
            state.is_fresh = true;
        }
        let positions = self.log.positions();
        state.done = Waiting::of(&positions, &state.done).ends;
        self.log
            .archived(positions.iter().filter(|at| at.is_closed).map(|at| at.number));
        Ok(())
    }

    /// Gives up the log that waits if it is too much, or cannot be read.
    pub(super) async fn bound(&self, state: &mut State, error: &BackupError) {
        let waiting = Waiting::of(&self.log.positions(), &state.done).bytes;
        state.unreadable = if is_unreadable(error) { state.unreadable + 1 } else { 0 };
        let is_damaged = state.unreadable >= UNREADABLE_MAX || matches!(error, BackupError::TooMuch(_));
        let is_taken = matches!(error, BackupError::OtherArchiver(_));
        // The archive of a life begins with all of its log: that is no gap, and the first part may be tried again.
        let begins = self
            .life
            .is_some_and(|life| state.last.is_none() && life.chain() == state.chain);
        if state.gap.is_none() || begins {
            if waiting <= self.settings.waiting_bytes_max && !is_damaged && !is_taken {
                return;
            }
            state.gap = Some(match (is_damaged, is_taken) {
                (true, _) => format!("the log could not be archived: {error}"),
                (_, true) => error.to_string(),
                _ => format!("the archive could not be written while {waiting} bytes of log came: {error}"),
            });
            tracing::error!(waiting, %error, "the archive of the log will have a gap: writes from here on cannot be restored to a moment, until the archive is back and a backup is taken");
        }
        self.give_up_round(state);
        if let Err(error) = self.let_go(state).await {
            tracing::error!(%error, "the log stays although it will not be archived");
        }
    }
}

/// Whether the log itself seems damaged or gone, so that no later attempt can read it.
fn is_unreadable(error: &BackupError) -> bool {
    use stele_storage::StorageError::{Lost, NotFound, OutOfBounds, Unreadable};
    match error {
        BackupError::Damaged { .. } => true,
        BackupError::Data(error) => matches!(
            error,
            NotFound { .. } | OutOfBounds { .. } | Unreadable { .. } | Lost { .. }
        ),
        _ => false,
    }
}
