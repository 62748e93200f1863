//! Repeated operations: those whose token says that they have taken effect already.
//!
//! The caller has the row's latch. So the first attempt has ended, or has not begun, and its record is in the table of tokens
//! if it took effect.

use super::columns::{newest_within, of_cell, versions};
use bytes::Bytes;
use stele_client::{RowOutcome, ServiceError, ServiceResult, Step};
use stele_tablet::{Answer, Seen, Tablet};
use stele_types::{Cell, ErrorKind, RequestToken};

/// The answer of the first attempt, if there was one that took effect.
pub(super) fn answer(
    tablet: &Tablet,
    token: &RequestToken,
    row: &Bytes,
    now_micros: i64,
) -> ServiceResult<Option<Answer>> {
    let refused = |message: &str| Err(ServiceError::new(ErrorKind::FailedPrecondition, message));
    match tablet.tokens().seen(token, row, now_micros) {
        Seen::New => Ok(None),
        Seen::Before(answer) => Ok(Some(answer)),
        Seen::TooOld => refused(
            "the first attempt of the request is so long ago that it may have been applied and forgotten: read the row, then \
             decide",
        ),
        Seen::TooEarly => refused("the first attempt of the request is in the future: check the clock of the client"),
    }
}

/// The outcome of an operation whose cells are not remembered: the newest cells of the columns that its rules changed. A new
/// version may lie behind cells outside of its rule's times, so the newest cell within them goes first.
pub(super) fn outcome(matched: bool, cells: &[Cell], steps: &[Step]) -> RowOutcome {
    let newest = |step: &Step| match step {
        Step::Modify(rule) => {
            let versions = versions(cells, rule.family, &rule.qualifier);
            let within = rule.times.filter(|_| rule.is_new_version);
            newest_within(versions, within)
                .or_else(|| newest_within(versions, None))
                .cloned()
        }
        _ => None,
    };
    let mut written: Vec<Cell> = steps.iter().filter_map(newest).collect();
    written.sort_by(|a, b| of_cell(a).cmp(&of_cell(b)));
    written.dedup_by(|a, b| of_cell(a) == of_cell(b));
    debug_assert!(
        written.len() <= steps.len(),
        "each column is returned once, and each is of a step"
    );
    RowOutcome { matched, written }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_client::{RmwOperation, RmwRule};
    use stele_types::{FamilyId, Timestamp};

    #[test]
    fn a_repeated_new_version_is_found_behind_cells_outside_of_its_times() {
        let cell = |at: i64| Cell::put(FamilyId(1), Bytes::from_static(b"q"), Timestamp(at), Bytes::new());
        let cells = [cell(90_000), cell(7_000), cell(3_000)];
        let of = |times, is_new_version| {
            let rule = RmwRule {
                times: Some(times),
                is_new_version,
                ..RmwRule::new(FamilyId(1), Bytes::from_static(b"q"), RmwOperation::Increment(1))
            };
            let outcome = outcome(true, &cells, &[Step::Modify(rule)]);
            outcome.written.iter().map(|cell| cell.timestamp.0).collect::<Vec<_>>()
        };
        assert_eq!(of((0, 10_000), true), [7_000]);
        assert_eq!(of((0, 10_000), false), [90_000], "its cell is the newest of all");
        assert_eq!(
            of((100_000, 200_000), true),
            [90_000],
            "there was no cell to operate on"
        );
    }
}
