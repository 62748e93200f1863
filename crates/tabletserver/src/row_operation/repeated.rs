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

/// The outcome of an operation whose cells are not remembered: the newest cells of the columns that its rules changed.
pub(super) fn outcome(matched: bool, cells: &[Cell], steps: &[Step]) -> RowOutcome {
    let newest = |step: &Step| match step {
        Step::Modify(rule) => newest_within(versions(cells, rule.family, &rule.qualifier), None).cloned(),
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
