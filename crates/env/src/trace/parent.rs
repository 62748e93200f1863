//! The span above a request, as a client or another server names it.
//!
//! Clients send it in the form of W3C Trace Context, level 1: `traceparent`, and `tracestate` that is passed on unread.
//! Anything malformed counts as absent, as the standard has it. Servers send the identity alone ([`Carried`]), and only of
//! sampled traces.

use std::sync::Arc;

/// Bytes of the longest `tracestate` that is kept; the standard asks for as many.
const STATE_BYTES_MAX: usize = 512;

/// Bytes of a `traceparent` of version 00. Later versions may append more.
const PARENT_BYTES: usize = 55;

/// The identity of a sampled span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The trace; not 0.
    pub trace: u128,
    /// The span; not 0.
    pub span: u64,
}

/// The span above a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Its identity.
    pub at: Carried,
    /// Whether it is sampled, which decides for the request.
    pub is_sampled: bool,
    /// The `tracestate` that came with it.
    pub state: Option<Arc<str>>,
}

impl Parent {
    /// Of a sampled span of another server.
    pub fn sampled(at: Carried) -> Parent {
        Parent {
            at,
            is_sampled: true,
            state: None,
        }
    }

    /// Of the headers `traceparent` and `tracestate`.
    pub fn of_headers(traceparent: &[u8], tracestate: Option<&[u8]>) -> Option<Parent> {
        let version = hexadecimal(traceparent.get(..2)?)?;
        let has_its_length = match version {
            0 => traceparent.len() == PARENT_BYTES,
            0xff => false,
            _ => matches!(traceparent.get(PARENT_BYTES), None | Some(b'-')),
        };
        let dashes = [2, 35, 52].map(|at| traceparent.get(at) == Some(&b'-'));
        if !has_its_length || dashes.contains(&false) {
            return None;
        }
        let trace = hexadecimal(traceparent.get(3..35)?).filter(|trace| *trace != 0)?;
        let span = u64::try_from(hexadecimal(traceparent.get(36..52)?)?).ok();
        let flags = hexadecimal(traceparent.get(53..PARENT_BYTES)?)?;
        Some(Parent {
            at: Carried {
                trace,
                span: span.filter(|span| *span != 0)?,
            },
            is_sampled: flags & 1 != 0,
            state: tracestate.and_then(state),
        })
    }
}

/// A number in lower-case digits; at most 32 of them.
fn hexadecimal(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0u128, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

/// A `tracestate` of printable characters.
fn state(bytes: &[u8]) -> Option<Arc<str>> {
    let is_kept = (1..=STATE_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(|byte| matches!(byte, b' '..=b'~'));
    let text = is_kept.then(|| std::str::from_utf8(bytes).ok()).flatten()?;
    Some(Arc::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn of(text: &str) -> Option<Parent> {
        Parent::of_headers(text.as_bytes(), None)
    }

    #[test]
    fn the_standards_example_is_read() {
        let parent = Parent::of_headers(SAMPLED.as_bytes(), Some(b"congo=t61rcWkgMzE")).unwrap();
        assert_eq!(
            parent.at,
            Carried {
                trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
                span: 0x00f0_67aa_0ba9_02b7,
            }
        );
        assert!(parent.is_sampled);
        assert_eq!(parent.state.as_deref(), Some("congo=t61rcWkgMzE"));
        assert!(!of(&SAMPLED.replace("-01", "-02")).unwrap().is_sampled);
    }

    #[test]
    fn a_later_version_may_have_more() {
        let later = SAMPLED.replacen("00", "cc", 1);
        assert!(of(&later).is_some());
        assert!(of(&(later.clone() + "-more")).is_some());
        assert!(of(&(later + "more")).is_none());
    }

    #[test]
    fn malformed_parents_are_absent() {
        for text in [
            "",
            "00",
            &SAMPLED[..54],
            &(SAMPLED.to_owned() + "-"),
            &SAMPLED.replacen("00", "ff", 1),
            &SAMPLED.to_uppercase(),
            &SAMPLED.replace('-', "_"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn a_state_that_cannot_be_passed_on_is_dropped() {
        let of = |bytes: &[u8]| Parent::of_headers(SAMPLED.as_bytes(), Some(bytes)).unwrap().state;
        assert_eq!(of(b""), None);
        assert_eq!(of(b"a=\n"), None);
        assert_eq!(of("a=ä".as_bytes()), None);
        assert_eq!(of(&[b'a'; STATE_BYTES_MAX + 1]), None);
        assert!(of(&[b'a'; STATE_BYTES_MAX]).is_some());
    }
}
