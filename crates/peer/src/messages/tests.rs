use super::*;
use proptest::prelude::*;
use stele_client::CellsTest;

/// Golden bytes of version 1: a change of these is a new version of the protocol.
const GOLDEN: &[u8] = include_bytes!("../../testdata/v1.bodies");

fn golden() -> Vec<u8> {
    let (requests, answers) = samples::bodies();
    let mut all = Vec::new();
    for body in requests.iter().chain(&answers) {
        all.extend_from_slice(&(body.len() as u32).to_le_bytes());
        all.extend_from_slice(body);
    }
    all
}

#[test]
fn bodies_are_those_of_version_1() {
    assert_eq!(golden(), GOLDEN);
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
}

#[test]
fn a_condition_that_a_function_decides_stays_where_it_is() {
    let test: Arc<CellsTest> = Arc::new(|_| Ok(true));
    let request = TabletRowOperation {
        row: Bytes::from_static(b"r"),
        condition: Some(Condition {
            reads: None,
            test: ConditionTest::Cells(test),
        }),
        steps: Vec::new(),
        otherwise: Vec::new(),
        durability: None,
        token: None,
    };
    assert_eq!(
        encode_row_operation(&request).unwrap_err().kind,
        ErrorKind::Unimplemented
    );
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
    fn headers_of_requests_round_trip(kind in any::<u16>(), partial in any::<bool>(), caller in any::<bool>(), millis in prop::option::of(1u32..),
                                      tablet in any::<u64>(), credit in any::<u64>()) {
        let header = CallHeader {
            kind: CallKind::from_number(kind),
            takes_partial_rows: partial,
            has_caller: caller,
            left: millis.map(|millis| Duration::from_millis(u64::from(millis))),
            tablet: TabletId(tablet),
            credit,
        };
        prop_assert_eq!(CallHeader::decode(Bytes::copy_from_slice(&header.encode())), Ok(header));
    }

    #[test]
    fn any_bytes_are_refused_or_decoded(which in 0usize..7, at in any::<prop::sample::Index>(), to in any::<u8>(),
                                        cut in any::<prop::sample::Index>()) {
        let (requests, answers) = samples::bodies();
        let mut body = requests.iter().chain(&answers).nth(which).unwrap().to_vec();
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
