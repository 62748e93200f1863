//! The revision at which a watch continues after a lost connection. Pure.
//!
//! etcd tells the events of a revision together, in the order of the writes, unless a large response comes in pieces. If a
//! connection ends between pieces, the revision is told again from its beginning, and the events that are known are
//! skipped.

/// The position between two events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// All revisions before this one were told.
    next: i64,
    /// Events of revision `next` that were told.
    told: usize,
    /// Events of revision `next` that come again.
    again: usize,
}

impl Position {
    /// The next event is the first after `revision`.
    pub(crate) fn after(revision: i64) -> Position {
        assert!(revision >= 0, "revisions are not negative");
        Position {
            next: revision + 1,
            told: 0,
            again: 0,
        }
    }

    /// A new connection begins; the revision to begin with. It is one that etcd has: a watch of the future is told no progress.
    pub(crate) fn reconnect(&mut self) -> i64 {
        self.again = self.told;
        assert!(
            self.next > 0,
            "a watch never begins at etcd's \"from now on\", which is zero"
        );
        (self.next - 1).max(1)
    }

    /// Takes the next event; whether it is new.
    pub(crate) fn is_new(&mut self, revision: i64) -> bool {
        if revision < self.next {
            return false;
        }
        if revision > self.next {
            *self = Position::after(revision - 1);
        }
        if self.again > 0 {
            self.again -= 1;
            return false;
        }
        self.told += 1;
        true
    }

    /// A response ended, and no more pieces of it follow: the revision of its last event is complete.
    pub(crate) fn complete(&mut self, revision: i64) {
        if revision >= self.next {
            *self = Position::after(revision);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_revisions_are_not_told_again() {
        let mut position = Position::after(10);
        assert_eq!(position.reconnect(), 10);
        for revision in [12, 12, 15] {
            assert!(position.is_new(revision));
        }
        position.complete(15);
        assert_eq!(position.reconnect(), 15);
        assert!(!position.is_new(15));
        assert!(position.is_new(16));
    }

    #[test]
    fn pieces_that_came_are_skipped() {
        let mut position = Position::after(10);
        for revision in [11, 12, 12] {
            assert!(position.is_new(revision));
        }
        // The connection ends before the next piece, twice.
        assert_eq!(position.reconnect(), 11);
        assert!(!position.is_new(11) && !position.is_new(12));
        assert_eq!(position.reconnect(), 11);
        let told: Vec<bool> = [12, 12, 12, 13].map(|revision| position.is_new(revision)).into();
        assert_eq!(told, [false, false, true, true]);
    }
}
