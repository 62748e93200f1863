//! `AggregateService`: numbers over the cells of a region, computed where they are.
//!
//! The client scans one or two columns and names an interpreter ([`super::number`]); it combines the answers of all
//! regions. A region is read in batches of bounded memory, and the call yields between them. A client that can continue
//! gets a partial answer when half of its patience is over.
//!
//! HBase's service counts a row whose last cells a filter removes once more; here, only rows with cells count.

use super::number::{Interpreter, Number, add};
use crate::call::Call;
use crate::cells::ResultRow;
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::region_scan::RegionScanner;
use crate::regions::Region;
use crate::scan_batch::CallLimits;
use bytes::Bytes;
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;
use stele_types::TableSchema;
use stele_wire::messages::{AggregateRequest, AggregateResponse, Filter};

/// Bytes of the cells of a batch; the memory of an aggregation is a small multiple.
const BATCH_BYTES: usize = 1 << 20;

/// Time of a partial answer at most, and of a call whose client does not say how long it waits.
const PART_TIME_MAX: Duration = Duration::from_secs(30);

/// The only class that a client does not name itself: the first cell of a row says that the row is there.
const FIRST_KEY_ONLY: &[u8] = b"org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter";

/// The methods of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Max,
    Min,
    Sum,
    RowCount,
    Average,
    Deviation,
    Median,
}

impl Question {
    pub fn named(method: &str) -> Option<Self> {
        Some(match method {
            "GetMax" => Question::Max,
            "GetMin" => Question::Min,
            "GetSum" => Question::Sum,
            "GetRowNum" => Question::RowCount,
            "GetAvg" => Question::Average,
            "GetStd" => Question::Deviation,
            "GetMedian" => Question::Median,
            _ => return None,
        })
    }
}

/// Serves a method.
pub(super) async fn serve(
    shared: &Arc<Shared>,
    call: &Call,
    region: &Region,
    schema: Arc<TableSchema>,
    question: Question,
    argument: Bytes,
) -> Outcome<AggregateResponse> {
    let request: AggregateRequest = call.decode("AggregateRequest", argument)?;
    let mut tally = Tally::new(question, &request)?;
    let mut scan = request.scan.clone();
    if question == Question::RowCount && scan.filter.is_none() && scan.column.iter().all(|c| c.qualifier.is_empty()) {
        scan.filter = Some(Filter {
            name: Bytes::from_static(FIRST_KEY_ONLY),
            serialized_filter: Some(Bytes::new()),
        });
    }
    // Results of whole rows, however large they are, are cut by memory only.
    scan.batch_size = None;
    // The default of HBase's servers is not for its coprocessors.
    scan.load_column_families_on_demand.get_or_insert(false);
    let mut scanner = RegionScanner::new(shared, region, schema, &scan, None)?;
    let waits = call.request.header.timeout.filter(|timeout| *timeout > 0);
    let time = waits.map_or(PART_TIME_MAX, |ms| Duration::from_millis(u64::from(ms)) / 2);
    let deadline = shared.env.now() + time.min(PART_TIME_MAX);
    loop {
        let limits = CallLimits {
            results: usize::MAX,
            rows_left: None,
            bytes: BATCH_BYTES,
            partials: true,
            heartbeat: None,
        };
        let batch = scanner.next(shared, &limits).await?;
        let is_last = !batch.more_in_region || batch.is_over;
        let mut through = None;
        for (row, is_partial) in batch.rows.iter().zip(&batch.partial) {
            tally.row(row, *is_partial)?;
            through = Some(&row.row).filter(|_| !is_partial).or(through);
        }
        if is_last {
            return Ok(tally.response());
        }
        let may_stop = request.client_supports_partial_result() && !scan.reversed() && tally.is_between_rows();
        if let Some(row) = through.filter(|_| may_stop && shared.env.now() >= deadline) {
            return Ok(AggregateResponse {
                next_chunk_start_row: Some(stele_types::range::successor(row)),
                ..tally.response()
            });
        }
        drop(batch);
        shared.env.yield_now().await;
    }
}

/// The numbers so far.
struct Tally {
    question: Question,
    interpreter: Interpreter,
    /// The median of cells that have weights in a second column.
    is_weighted: bool,
    /// The maximum, the minimum or the sum.
    first: Option<Number>,
    /// The sum of squares, or of weights.
    second: Option<Number>,
    rows: u64,
    /// The sum of the row that was returned in part.
    of_row: Option<Number>,
    in_row: bool,
}

impl Tally {
    fn new(question: Question, request: &AggregateRequest) -> Outcome<Self> {
        let interpreter = match question {
            // It makes no numbers of cells.
            Question::RowCount => Interpreter::Long,
            _ => Interpreter::of_class(&request.interpreter_class_name)?,
        };
        if question != Question::RowCount && request.scan.column.is_empty() {
            return Err(Failure::do_not_retry("an aggregation of numbers names a column family"));
        }
        let qualifiers = request.scan.column.first().map_or(0, |column| column.qualifier.len());
        Ok(Tally {
            question,
            interpreter,
            is_weighted: qualifiers > 1,
            first: None,
            second: None,
            rows: 0,
            of_row: None,
            in_row: false,
        })
    }

    fn is_between_rows(&self) -> bool {
        !self.in_row
    }

    /// Takes the cells of a row, or of the part of one that more follows.
    fn row(&mut self, row: &ResultRow, is_partial: bool) -> Outcome<()> {
        if self.question != Question::RowCount {
            for cell in &row.cells {
                let number = self.interpreter.read(&cell.value)?;
                self.cell(number)?;
            }
        }
        self.in_row = is_partial;
        if !is_partial {
            self.end_row()?;
        }
        Ok(())
    }

    fn cell(&mut self, number: Option<Number>) -> Outcome<()> {
        match self.question {
            Question::Max => self.replace_if(number, Ordering::Greater),
            Question::Min => self.replace_if(number, Ordering::Less),
            Question::RowCount => {}
            Question::Sum | Question::Average => self.first = add(self.first, number)?,
            Question::Deviation | Question::Median => self.of_row = add(self.of_row, number)?,
        }
        Ok(())
    }

    fn replace_if(&mut self, number: Option<Number>, is: Ordering) {
        if let Some(number) = number
            && self.first.is_none_or(|first| number.cmp(&first) == is)
        {
            self.first = Some(number);
        }
    }

    fn end_row(&mut self) -> Outcome<()> {
        self.rows += 1;
        let of_row = self.of_row.take();
        self.first = add(self.first, of_row)?;
        match self.question {
            Question::Deviation => {
                let square = of_row.map(Number::squared).transpose()?;
                self.second = add(self.second, square)?;
            }
            // The interpreters of HBase ignore the column of a cell, so the weights are the same sum.
            Question::Median if self.is_weighted => self.second = add(self.second, of_row)?,
            _ => {}
        }
        Ok(())
    }

    fn response(&self) -> AggregateResponse {
        let rows = || Bytes::copy_from_slice(&self.rows.to_be_bytes());
        let mut response = AggregateResponse::default();
        match (self.question, self.first) {
            (Question::RowCount, _) => response.first_part.push(rows()),
            (Question::Median, first) => {
                response.first_part.push(self.interpreter.sum(first));
                let weights = self.second.map_or_else(|| self.interpreter.least(), Number::message);
                response.first_part.push(weights);
            }
            (_, None) => {}
            (Question::Max | Question::Min | Question::Sum, Some(number)) => response.first_part.push(number.message()),
            (Question::Average, Some(sum)) => {
                response.first_part.push(sum.message());
                response.second_part = Some(rows());
            }
            (Question::Deviation, Some(sum)) => {
                response.first_part.push(sum.message());
                response.first_part.push(self.interpreter.sum(self.second));
                response.second_part = Some(rows());
            }
        }
        response
    }
}
