//! Procedures: the numbers that long calls of the master return.
//!
//! Changes of tables are complete when their call returns. So a procedure is finished as soon as a client can ask for
//! it, and only its number has to be unique.
//!
//! A client that lost the response of a call repeats it with the same nonce. It gets the number that the first call got,
//! and not an error because the table exists already. A call that makes a table is also known by the table
//! ([`crate::descriptors`]), so other servers know it, too.

use parking_lot::Mutex;
use std::collections::VecDeque;
use stele_wire::messages::{GetProcedureResultResponse, ProcedureResponse, ProcedureState};

/// Calls whose nonces are remembered: those of minutes, since changes of tables are rare.
const NONCES_MAX: usize = 1_000;

/// The nonce of a call: a group, which is one client, and a number. It is absent when both are 0.
pub(crate) type Nonce = (Option<u64>, Option<u64>);

/// Numbers of procedures.
#[derive(Debug, Default)]
pub(crate) struct Procedures {
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    last: u64,
    /// Calls with a nonce, the newest last.
    by_nonce: VecDeque<(Nonce, u64)>,
}

impl Procedures {
    /// A procedure that has finished.
    pub fn finished(&self, nonce: Nonce) -> ProcedureResponse {
        let mut given = self.given.lock();
        given.last += 1;
        let number = given.last;
        if is_set(nonce) {
            if given.by_nonce.len() == NONCES_MAX {
                given.by_nonce.pop_front();
            }
            given.by_nonce.push_back((nonce, number));
        }
        ProcedureResponse { proc_id: Some(number) }
    }

    /// The procedure of an earlier call with this nonce.
    pub fn earlier(&self, nonce: Nonce) -> Option<ProcedureResponse> {
        let given = self.given.lock();
        let earlier = given.by_nonce.iter().find(|(of, _)| is_set(nonce) && *of == nonce);
        earlier.map(|(_, number)| ProcedureResponse { proc_id: Some(*number) })
    }

    /// The state of a procedure.
    pub fn state(&self, number: u64, wall_micros: i64) -> GetProcedureResultResponse {
        let is_known = number > 0 && number <= self.given.lock().last;
        let state = if is_known {
            ProcedureState::Finished
        } else {
            ProcedureState::NotFound
        };
        let now = u64::try_from(wall_micros / 1_000).unwrap_or(0);
        GetProcedureResultResponse {
            state: state as i32,
            submitted_time: is_known.then_some(now),
            last_update: is_known.then_some(now),
            ..GetProcedureResultResponse::default()
        }
    }
}

/// Whether a call has a nonce.
pub(crate) fn is_set((group, number): Nonce) -> bool {
    group.unwrap_or(0) != 0 || number.unwrap_or(0) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_call_gets_the_number_of_the_first() {
        let procedures = Procedures::default();
        let nonce = (Some(7), Some(9));
        assert_eq!(procedures.earlier(nonce), None);
        let first = procedures.finished(nonce);
        let without = procedures.finished((Some(0), None));
        assert_eq!((procedures.earlier(nonce), without.proc_id), (Some(first), Some(2)));
        assert_eq!(procedures.earlier((Some(0), None)), None);
        let state = |number| procedures.state(number, 5_000).state;
        let (known, unknown) = (ProcedureState::Finished as i32, ProcedureState::NotFound as i32);
        assert_eq!(
            [state(0), state(1), state(2), state(3)],
            [unknown, known, known, unknown]
        );
    }
}
