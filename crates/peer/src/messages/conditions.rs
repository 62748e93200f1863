//! Encodes conditions of operations on rows.
//!
//! A test over cells is a function of a front end. It travels in the language of that front end, and the server of the row has it
//! decoded by its own ([`stele_client::TestDecoder`]).

use crate::cursor::{Cursor, Decoded};
use crate::filter_tree;
use crate::segments::Segments;
use std::sync::Arc;
use stele_client::{Condition, ConditionTest, EncodedTest, ServiceError, ServiceResult};
use stele_types::ErrorKind;

const FILTERED: u8 = 1;
const TESTED: u8 = 2;

/// The test of a condition over cells, if it has one. `Unimplemented` for one that cannot travel.
pub(super) fn test_of(condition: &Condition) -> ServiceResult<Option<EncodedTest>> {
    match &condition.test {
        ConditionTest::AnyCell => Ok(None),
        ConditionTest::Encoded(encoded) => Ok(Some(encoded.clone())),
        ConditionTest::Cells(test) => {
            let stays = || {
                let message = "the row is on another server, and its cells cannot be compared there for this condition";
                ServiceError::new(ErrorKind::Unimplemented, message)
            };
            test.encoded().ok_or_else(stays).map(Some)
        }
    }
}

/// Appends a test.
pub(super) fn encode_test(test: &EncodedTest, out: &mut Segments) {
    out.u8(test.language);
    out.size(test.test.len());
    out.shared(&test.test);
}

/// Reads a test.
pub(super) fn decode_test(fields: &mut Cursor) -> Decoded<EncodedTest> {
    Ok(EncodedTest {
        language: fields.u8()?,
        test: fields.bytes()?,
    })
}

/// Appends a condition.
pub(super) fn encode(condition: &Condition, out: &mut Segments) -> ServiceResult<()> {
    let test = test_of(condition)?;
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.u8(flag(condition.reads.is_some(), FILTERED) | flag(test.is_some(), TESTED));
    if let Some(filter) = &condition.reads {
        filter_tree::encode(filter, out)?;
    }
    if let Some(test) = &test {
        encode_test(test, out);
    }
    Ok(())
}

/// Reads a condition.
pub(super) fn decode(fields: &mut Cursor) -> Decoded<Condition> {
    let flags = fields.flags(FILTERED | TESTED)?;
    let reads = match flags & FILTERED {
        0 => None,
        _ => Some(Arc::new(filter_tree::decode(fields)?)),
    };
    let test = match flags & TESTED {
        0 => ConditionTest::AnyCell,
        _ => ConditionTest::Encoded(decode_test(fields)?),
    };
    Ok(Condition { reads, test })
}
