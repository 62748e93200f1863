//! Samples of every body, for golden files and as seeds.

use super::{
    encode_figures, encode_mutate, encode_outcome, encode_read, encode_row_operation, encode_rows_operation,
    encode_sample, encode_sample_request, encode_timed_mutate,
};
use crate::rows;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use stele_client::{
    Condition, ConditionTest, EncodedTest, RmwOperation, RmwRule, RowOutcome, Step, TabletFigures, TabletOperations,
    TabletRead, TabletRowOperation, TabletRowsOperation, TabletSample, TabletStorage,
};
use stele_filter::Filter;
use stele_types::{
    Cell, CellKind, Durability, FamilyId, Labels, Mutation, ReadCounts, RowBatch, RowMutation, RowRange, RowSet,
    RowWrites, Timestamp,
};

/// Bodies of requests, and of answers.
pub(crate) fn bodies() -> (Vec<Bytes>, Vec<Bytes>) {
    let requests = [
        encode_read(&read()).expect("a small filter"),
        encode_mutate(&RowWrites::from(writes()), Some(Durability::Sync)),
        encode_row_operation(&operation()).expect("a condition on any cell").1,
        encode_sample_request(1 << 20),
    ];
    let answers = [
        rows::encode(&batch()),
        encode_outcome(&outcome()),
        encode_sample(&sample()),
    ];
    let bytes = |body: crate::segments::Segments| body.into_bytes();
    (
        requests.into_iter().map(bytes).collect(),
        answers.into_iter().map(bytes).collect(),
    )
}

/// Bodies of the requests that were added to version 1 later: operations whose conditions have tests.
pub(crate) fn tested() -> Vec<Bytes> {
    let test = EncodedTest {
        language: EncodedTest::HBASE,
        test: text("test"),
    };
    let of_cells = Condition {
        reads: Some(Arc::new(filter())),
        test: ConditionTest::Encoded(test),
    };
    let one = TabletRowOperation {
        condition: Some(of_cells.clone()),
        ..operation()
    };
    let several = TabletRowsOperation {
        conditions: vec![(text("row"), of_cells), (text("s"), Condition::any_cell(None))],
        rows: vec![(text("row"), operation().steps), (text("t"), operation().otherwise)],
        durability: Some(Durability::Sync),
    };
    let bodies = [
        encode_row_operation(&one).expect("an encoded test").1,
        encode_rows_operation(&several).expect("an encoded test"),
    ];
    bodies.into_iter().map(|body| body.into_bytes()).collect()
}

/// The body of a mutate with the caller's time, which was added to version 1 later.
pub(crate) fn timed() -> Bytes {
    encode_timed_mutate(&RowWrites::from(writes()), None, Timestamp(0x0102)).into_bytes()
}

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// A filter with every kind of node that the golden files have. Lists of families came later: `filter_tree/tests.rs` has them.
pub(crate) fn filter() -> Filter {
    let leaves = vec![
        Filter::Sink,
        Filter::PassAll,
        Filter::BlockAll,
        Filter::RowKeyRegex(text("row.*")),
        Filter::RowSample(0.25),
        Filter::FamilyRegex(text("f")),
        Filter::QualifierRegex(text("q")),
        Filter::ColumnRange {
            family: "f".to_owned(),
            start: Bound::Included(text("a")),
            end: Bound::Excluded(text("b")),
        },
        Filter::TimestampRange {
            start: -5,
            end: Some(7),
        },
        Filter::TimestampRange { start: 1, end: None },
        Filter::ValueRegex(text("v")),
        Filter::ValueRange {
            start: Bound::Unbounded,
            end: Bound::Included(text("z")),
        },
        Filter::ValueBitmask(Bytes::from_static(&[1, 2])),
        Filter::CellsPerRowOffset(1),
        Filter::CellsPerRow(2),
        Filter::CellsPerColumn(3),
        Filter::StripValue,
        Filter::ApplyLabel("label".to_owned()),
    ];
    Filter::Chain(vec![
        Filter::Condition {
            predicate: Box::new(Filter::PassAll),
            on_true: Some(Box::new(Filter::StripValue)),
            on_false: None,
        },
        Filter::Interleave(leaves),
    ])
}

fn read() -> TabletRead {
    TabletRead {
        rows: RowSet::new(vec![
            RowRange::single(&text("row")),
            RowRange {
                start: text("s"),
                end: None,
            },
        ]),
        filter: Some(Arc::new(filter())),
        reversed: true,
        raw: true,
        rows_limit: Some(9),
        waits: true,
    }
}

/// Every kind of mutation.
pub(crate) fn mutations() -> Vec<Mutation> {
    let (family, qualifier, timestamp) = (FamilyId(1), text("q"), Timestamp(-7));
    vec![
        Mutation::Put {
            family,
            qualifier: qualifier.clone(),
            timestamp,
            value: text("value"),
        },
        Mutation::Merge {
            family,
            qualifier: qualifier.clone(),
            timestamp,
            operand: Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0, 9]),
        },
        Mutation::DeleteRow { up_to: Timestamp::MAX },
        Mutation::DeleteFamily {
            family,
            up_to: timestamp,
        },
        Mutation::DeleteFamilyVersion { family, timestamp },
        Mutation::DeleteColumn {
            family,
            qualifier: qualifier.clone(),
            from: Timestamp::MIN,
            to: timestamp,
        },
        Mutation::DeleteVersion {
            family,
            qualifier,
            timestamp,
        },
    ]
}

fn writes() -> Vec<RowMutation> {
    vec![
        RowMutation {
            row: text("row"),
            mutations: mutations(),
        },
        RowMutation {
            row: text("s"),
            mutations: vec![Mutation::DeleteRow { up_to: Timestamp(3) }],
        },
    ]
}

fn operation() -> TabletRowOperation {
    let family = FamilyId(2);
    let mut steps: Vec<Step> = mutations().into_iter().map(Step::Mutate).collect();
    steps.push(Step::DeleteNewest {
        family,
        qualifier: text("q"),
    });
    let append = RmwRule::new(family, text("q"), RmwOperation::Append(text("tail")));
    steps.push(Step::Modify(RmwRule {
        times: Some((1, 5)),
        timestamp: Some(Timestamp(4)),
        is_new_version: true,
        ..append
    }));
    let increment = RmwRule::new(family, text("r"), RmwOperation::Increment(-3));
    TabletRowOperation {
        row: text("row"),
        condition: Some(Condition::any_cell(Some(Arc::new(filter())))),
        steps,
        otherwise: vec![Step::Modify(increment)],
        durability: Some(Durability::Flush),
        token: None,
    }
}

fn cells() -> Vec<Cell> {
    let put = |qualifier, value| Cell::put(FamilyId(1), text(qualifier), Timestamp(5), text(value));
    let mut labels = Labels::none();
    labels.push("a".to_owned());
    labels.push("bé".to_owned());
    let marker = Cell {
        kind: CellKind::DeleteColumn,
        labels,
        ..put("q", "")
    };
    vec![put("p", "value"), marker]
}

fn batch() -> RowBatch {
    let mut batch = RowBatch::default();
    batch.push_row("row", cells());
    batch.push_row("s", cells());
    batch.scanned_through = Some(text("t"));
    (batch.continues, batch.unfinished, batch.unstable) = (true, true, true);
    batch.seen = ReadCounts { rows: 3, cells: 8 };
    batch
}

fn outcome() -> RowOutcome {
    RowOutcome {
        matched: true,
        written: cells(),
    }
}

/// Figures of a tablet with all of their parts, and with none: answers that were added to version 1 later.
pub(crate) fn figures() -> Vec<Bytes> {
    let all = TabletFigures {
        bytes: 0x0102,
        storage: Some(TabletStorage {
            file_bytes: 0x0100,
            files: 3,
            memtable_bytes: 2,
        }),
        operations: Some(TabletOperations { reads: 4, writes: 5 }),
    };
    let all = [all, TabletFigures::of_bytes(6)];
    all.iter().map(|figures| encode_figures(figures).into_bytes()).collect()
}

fn sample() -> TabletSample {
    TabletSample {
        bytes: 1_000,
        rows: vec![(text("row"), 10), (text("s"), 20)],
    }
}
