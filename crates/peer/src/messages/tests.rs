use super::*;
use proptest::prelude::*;
use stele_client::{CellsTest, EncodedTest};

/// Golden bytes of version 1: a change of these is a new version of the protocol.
const GOLDEN: &[u8] = include_bytes!("../../testdata/v1.bodies");
/// The same of calls that were added to version 1 later.
const GOLDEN_TESTED: &[u8] = include_bytes!("../../testdata/v1-tested.bodies");
/// The same of answers.
const GOLDEN_FIGURES: &[u8] = include_bytes!("../../testdata/v1-figures.bodies");

fn golden(bodies: &[Bytes]) -> Vec<u8> {
    let mut all = Vec::new();
    for body in bodies {
        all.extend_from_slice(&(body.len() as u32).to_le_bytes());
        all.extend_from_slice(body);
    }
    all
}

#[test]
fn bodies_are_those_of_version_1() {
    let (requests, answers) = samples::bodies();
    assert_eq!(golden(&[requests.clone(), answers].concat()), GOLDEN);
    assert_eq!(golden(&samples::tested()), GOLDEN_TESTED);
    assert_eq!(golden(&samples::figures()), GOLDEN_FIGURES);
    // The time, and then the body of a mutate.
    let (at, mutate) = (0x0102_i64.to_le_bytes(), requests[1].slice(1..));
    assert_eq!(samples::timed(), [&at[..], &[0], &mutate].concat());
}

#[test]
fn bodies_round_trip() {
    let (requests, answers) = samples::bodies();
    requests.iter().for_each(crate::fuzzing::requests);
    answers.iter().for_each(crate::fuzzing::answers);
    assert!(decode_read(requests[0].clone()).is_ok());
    assert!(decode_mutate(requests[1].clone()).is_ok());
    assert!(decode_row_operation(requests[2].clone()).is_ok());
    assert!(decode_sample_request(requests[3].clone()).is_ok());
    assert!(crate::rows::decode(answers[0].clone()).is_ok());
    assert!(decode_outcome(answers[1].clone()).is_ok());
    assert!(decode_sample(answers[2].clone()).is_ok());
    crate::fuzzing::requests(&samples::timed());
    assert!(decode_timed_mutate(samples::timed()).is_ok());
    let tested = samples::tested();
    tested.iter().for_each(crate::fuzzing::requests);
    assert!(decode_tested_row_operation(tested[0].clone()).is_ok());
    assert!(decode_rows_operation(tested[1].clone()).is_ok());
    assert_eq!(decode_held(encode_held(true).into_bytes()), Ok(true));
    let figures = samples::figures();
    figures.iter().for_each(crate::fuzzing::answers);
    assert!(figures.into_iter().all(|body| decode_figures(body).is_ok()));
    assert!(decode_figures_request(Bytes::new()).is_ok());
}

fn tested_by(test: Arc<dyn CellsTest>) -> TabletRowOperation {
    TabletRowOperation {
        row: Bytes::from_static(b"r"),
        condition: Some(Condition {
            reads: None,
            test: ConditionTest::Cells(test),
        }),
        steps: Vec::new(),
        otherwise: Vec::new(),
        durability: None,
        token: None,
    }
}

/// A test with an encoding.
struct Travels;

impl CellsTest for Travels {
    fn decide(&self, _: &[stele_types::Cell]) -> ServiceResult<(bool, Option<stele_types::Timestamp>)> {
        Ok((true, None))
    }

    fn encoded(&self) -> Option<EncodedTest> {
        Some(EncodedTest {
            language: 9,
            test: Bytes::from_static(b"t"),
        })
    }
}

#[test]
fn a_test_travels_in_its_language_or_stays_where_it_is() {
    let stays = tested_by(Arc::new(|_: &[stele_types::Cell]| Ok(true)));
    let refused = encode_row_operation(&stays).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unimplemented);
    let (kind, body) = encode_row_operation(&tested_by(Arc::new(Travels))).unwrap();
    assert_eq!(kind, CallKind::TestedRowOperation);
    let body = body.into_bytes();
    let decoded = decode_tested_row_operation(body.clone()).unwrap();
    match decoded.condition.map(|condition| condition.test) {
        Some(ConditionTest::Encoded(test)) => assert_eq!(Some(test), Travels.encoded()),
        other => unreachable!("another test: {other:?}"),
    }
    // The same without the flag of a condition, which is behind the test and the durability.
    let mut without = body.to_vec();
    without[7] = 0;
    assert!(decode_tested_row_operation(without.into()).is_err());
}

#[test]
fn errors_keep_their_kind_and_their_message_its_beginning() {
    for kind in ErrorKind::ALL {
        let error = ServiceError::new(kind, "é".repeat(4_000));
        let (header, body) = encode_error(&error);
        let decoded = decode_error(Bytes::copy_from_slice(&header), body.into_bytes()).unwrap();
        assert_eq!(decoded.kind, kind);
        assert_eq!(decoded.message.len(), MESSAGE_BYTES_MAX);
    }
    let unknown = decode_error(Bytes::from_static(&[99, 0]), Bytes::new()).unwrap();
    assert_eq!(unknown.kind, ErrorKind::Internal);
    assert!(decode_error(Bytes::from_static(&[1, 0]), Bytes::from_static(&[0xff])).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn headers_of_requests_round_trip(kind in any::<u16>(), partial in any::<bool>(), caller in any::<bool>(), trace in any::<bool>(), work in any::<bool>(), millis in prop::option::of(1u32..),
                                      tablet in any::<u64>(), credit in any::<u64>()) {
        let header = CallHeader {
            kind: CallKind::from_number(kind),
            takes_partial_rows: partial,
            has_caller: caller,
            has_trace: trace,
            tells_work: work,
            left: millis.map(|millis| Duration::from_millis(u64::from(millis))),
            tablet: TabletId(tablet),
            credit,
        };
        prop_assert_eq!(CallHeader::decode(Bytes::copy_from_slice(&header.encode())), Ok(header));
    }

    #[test]
    fn any_bytes_are_refused_or_decoded(which in 0usize..9, at in any::<prop::sample::Index>(), to in any::<u8>(),
                                        cut in any::<prop::sample::Index>()) {
        let (requests, answers) = samples::bodies();
        let tested = samples::tested();
        let mut body = requests.iter().chain(&answers).chain(&tested).nth(which).unwrap().to_vec();
        let at = at.index(body.len());
        body[at] = to;
        let whole = Bytes::from(body);
        let short = whole.slice(..cut.index(whole.len()));
        for body in [whole, short] {
            crate::fuzzing::requests(&body);
            crate::fuzzing::answers(&body);
        }
    }
}
