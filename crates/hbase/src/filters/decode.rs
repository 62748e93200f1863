//! Builds a tree of filters from the messages of a client.

use super::comparator::Comparator;
use super::comparison::Comparison;
use super::cost::{Cost, Subject};
use super::error::FilterError;
use super::node::{BoxNode, Node};
use super::scan::Random;
use super::{columns, first, fuzzy, list, ranges, rows, single, values, wrapping};
use bytes::Bytes;
use std::collections::HashSet;
use stele_wire::decoded_size::{self, LISTED_FILTER_BYTES, decoded_bytes, decoded_bytes_up_to};
use stele_wire::messages::{self, CompareType, ListOperator, decode};

/// Deepest nesting. Decoding, evaluating and dropping a tree call themselves for each level.
const DEPTH_MAX: usize = 64;

/// Most filters of a tree: some programs send a list with a filter for each of thousands of rows.
const NODES_MAX: usize = 16_384;

/// Most patterns of a tree. Each may take 2 MiB.
const PATTERNS_MAX: usize = 32;

/// Memory of a filter besides its arguments, at most.
const NODE_BYTES: usize = 256;

/// Memory of a filter's arguments, as a multiple of their encoding.
const ARGUMENTS_FACTOR: usize = 8;

/// The same of a list of times: one of a byte has eight in memory, in a list that is copied when it doubles.
const TIMES_FACTOR: usize = 24;

/// Memory of the elements of a list, as a multiple of their decoded form: that, and the form in which the filter keeps them.
const ELEMENT_FORMS: usize = 3;

/// Takes bytes of memory before they are used. Whether there were enough.
pub type Charge<'a> = dyn FnMut(usize) -> bool + 'a;

const PACKAGE: &str = "org.apache.hadoop.hbase.filter.";

/// Decodes a tree.
pub(super) fn tree(
    filter: &messages::Filter,
    random: &Random,
    charge: &mut Charge<'_>,
) -> Result<(BoxNode, Cost), FilterError> {
    let mut decoder = Decoder {
        random,
        charge,
        depth: 0,
        cost: Cost::default(),
    };
    decoder.add_nodes(1)?;
    let tree = decoder.filter(filter)?;
    Ok((tree, decoder.cost))
}

struct Decoder<'a, 'c> {
    random: &'a Random,
    charge: &'a mut Charge<'c>,
    depth: usize,
    cost: Cost,
}

fn boxed(node: impl Node + 'static) -> Result<BoxNode, FilterError> {
    Ok(Box::new(node))
}

impl Decoder<'_, '_> {
    /// Counts filters, before [`Decoder::filter`] decodes each.
    fn add_nodes(&mut self, count: usize) -> Result<(), FilterError> {
        self.cost.nodes = self.cost.nodes.saturating_add(count);
        match self.cost.nodes <= NODES_MAX {
            true => Ok(()),
            false => Err(FilterError::TooLarge("at most 16384 filters")),
        }
    }

    fn take(&mut self, bytes: usize) -> Result<(), FilterError> {
        match (self.charge)(bytes) {
            true => Ok(()),
            false => Err(FilterError::NoMemory),
        }
    }

    fn filter(&mut self, filter: &messages::Filter) -> Result<BoxNode, FilterError> {
        if self.depth >= DEPTH_MAX {
            return Err(FilterError::TooLarge("at most 64 levels"));
        }
        self.depth += 1;
        let unknown = || FilterError::UnknownClass(String::from_utf8_lossy(&filter.name).into_owned());
        let name = std::str::from_utf8(&filter.name).ok();
        let name = name.and_then(|name| name.strip_prefix(PACKAGE)).ok_or_else(unknown)?;
        let bytes = filter.serialized_filter.clone().unwrap_or_default();
        let (arguments, factor) = match name {
            // A filter around others has no other arguments, and those charge themselves.
            "FilterList" | "FilterWrapper" | "SkipFilter" | "WhileMatchFilter" => (0, 0),
            "TimestampsFilter" => (bytes.len(), TIMES_FACTOR),
            _ => (bytes.len(), ARGUMENTS_FACTOR),
        };
        self.take(NODE_BYTES + arguments.saturating_mul(factor))?;
        self.cost.add_arguments(arguments);
        let node = match self.rows(name, &bytes)? {
            Some(node) => node,
            None => match self.cells(name, &bytes)? {
                Some(node) => node,
                None => self.groups(name, bytes)?.ok_or_else(unknown)?,
            },
        };
        self.depth -= 1;
        Ok(node)
    }

    /// Filters that judge rows by their keys.
    fn rows(&mut self, name: &str, bytes: &Bytes) -> Result<Option<BoxNode>, FilterError> {
        let bytes = bytes.clone();
        let node = match name {
            "FilterAllFilter" => boxed(rows::FilterAll),
            "FuzzyRowFilter" => {
                let filter = fuzzy::FuzzyRow::new(&self.with_elements("FuzzyRowFilter", bytes)?)?;
                self.cost.add_row_units(filter.row_units());
                boxed(filter)
            }
            "InclusiveStopFilter" => {
                let message: messages::InclusiveStopFilter = decode("InclusiveStopFilter", bytes)?;
                let stop = message.stop_row_key;
                let stop = stop.ok_or_else(|| FilterError::argument("an InclusiveStopFilter needs a row"))?;
                boxed(rows::InclusiveStop::new(stop))
            }
            "MultiRowRangeFilter" => boxed(ranges::MultiRowRange::new(
                self.with_elements("MultiRowRangeFilter", bytes)?,
            )?),
            "PageFilter" => {
                let message: messages::PageFilter = decode("PageFilter", bytes)?;
                boxed(rows::Page::new(message.page_size)?)
            }
            "PrefixFilter" => {
                let message: messages::PrefixFilter = decode("PrefixFilter", bytes)?;
                boxed(rows::Prefix::new(message.prefix))
            }
            "RandomRowFilter" => {
                let message: messages::RandomRowFilter = decode("RandomRowFilter", bytes)?;
                boxed(rows::RandomRow::new(message.chance, self.random.clone()))
            }
            "RowFilter" => boxed(rows::RowKey::new(self.comparing("RowFilter", Subject::Key, bytes)?)),
            _ => return Ok(None),
        };
        node.map(Some)
    }

    /// Filters that judge cells by themselves or by their place in the row.
    fn cells(&mut self, name: &str, bytes: &Bytes) -> Result<Option<BoxNode>, FilterError> {
        let bytes = bytes.clone();
        let node = match name {
            "ColumnCountGetFilter" => {
                let message: messages::ColumnCountGetFilter = decode("ColumnCountGetFilter", bytes)?;
                boxed(columns::ColumnCount::new(message.limit)?)
            }
            "ColumnPaginationFilter" => boxed(columns::ColumnPagination::new(decode(
                "ColumnPaginationFilter",
                bytes,
            )?)?),
            "ColumnPrefixFilter" => {
                let message: messages::ColumnPrefixFilter = decode("ColumnPrefixFilter", bytes)?;
                boxed(columns::ColumnPrefix(message.prefix))
            }
            "ColumnRangeFilter" => boxed(columns::ColumnRange::new(decode("ColumnRangeFilter", bytes)?)),
            "FamilyFilter" => boxed(columns::Family(self.comparing("FamilyFilter", Subject::Key, bytes)?)),
            "FirstKeyOnlyFilter" => boxed(first::FirstKey::default()),
            "FirstKeyValueMatchingQualifiersFilter" => {
                let message: messages::FirstKeyValueMatchingQualifiersFilter =
                    self.with_elements("FirstKeyValueMatchingQualifiersFilter", bytes)?;
                boxed(first::FirstMatching::new(message.qualifiers))
            }
            "KeyOnlyFilter" => {
                let message: messages::KeyOnlyFilter = decode("KeyOnlyFilter", bytes)?;
                let length_as_value = message.len_as_val;
                boxed(first::KeyOnly { length_as_value })
            }
            "MultipleColumnPrefixFilter" => {
                let message: messages::MultipleColumnPrefixFilter =
                    self.with_elements("MultipleColumnPrefixFilter", bytes)?;
                boxed(columns::ColumnPrefixes::new(message.sorted_prefixes)?)
            }
            "QualifierFilter" => boxed(columns::Qualifier(self.comparing(
                "QualifierFilter",
                Subject::Key,
                bytes,
            )?)),
            "TimestampsFilter" => {
                let message: messages::TimestampsFilter = decode("TimestampsFilter", bytes)?;
                let hinting = message.can_hint.unwrap_or_default();
                boxed(values::Timestamps::new(message.timestamps, hinting)?)
            }
            "ValueFilter" => boxed(values::Value(self.comparing("ValueFilter", Subject::Value, bytes)?)),
            _ => return Ok(None),
        };
        node.map(Some)
    }

    /// Filters that judge a row by one of its columns, and filters around others.
    fn groups(&mut self, name: &str, bytes: Bytes) -> Result<Option<BoxNode>, FilterError> {
        let node = match name {
            "ColumnValueFilter" => {
                let message: messages::ColumnValueFilter = decode("ColumnValueFilter", bytes)?;
                let comparison = self.comparison(message.compare_op, Subject::Value, Some(&message.comparator))?;
                boxed(values::ColumnValue::new(message.family, message.qualifier, comparison))
            }
            "DependentColumnFilter" => self.dependent(decode("DependentColumnFilter", bytes)?),
            "SingleColumnValueFilter" => self.single(decode("SingleColumnValueFilter", bytes)?, false),
            "SingleColumnValueExcludeFilter" => {
                let message: messages::SingleColumnValueExcludeFilter =
                    decode("SingleColumnValueExcludeFilter", bytes)?;
                self.single(message.single_column_value_filter, true)
            }
            "FilterList" => self.list(bytes),
            "FilterWrapper" => boxed(wrapping::Wrapper(self.inner("FilterWrapper", bytes)?)),
            "SkipFilter" => boxed(wrapping::SkipRow::new(self.inner("SkipFilter", bytes)?)),
            "WhileMatchFilter" => boxed(wrapping::WhileMatch::new(self.inner("WhileMatchFilter", bytes)?)),
            _ => return Ok(None),
        };
        node.map(Some)
    }

    fn inner(&mut self, what: &'static str, bytes: Bytes) -> Result<BoxNode, FilterError> {
        let message: messages::WrappingFilter = decode(what, bytes)?;
        self.add_nodes(1)?;
        self.filter(&message.filter)
    }

    /// Decodes a message with a list. Its elements are charged before: an empty one has two bytes on the wire.
    fn with_elements<M: decoded_size::Request>(&mut self, what: &'static str, bytes: Bytes) -> Result<M, FilterError> {
        let elements = decoded_bytes::<M>(what, &bytes)?;
        self.take(elements.saturating_mul(ELEMENT_FORMS))?;
        Ok(decode(what, bytes)?)
    }

    /// Decodes a list of filters. They are counted and charged before: the list may consist of millions of empty ones.
    fn list(&mut self, bytes: Bytes) -> Result<BoxNode, FilterError> {
        let most = NODES_MAX.saturating_sub(self.cost.nodes) * LISTED_FILTER_BYTES;
        let listed = decoded_bytes_up_to::<messages::FilterList>("FilterList", &bytes, most)?;
        self.add_nodes(listed / LISTED_FILTER_BYTES)?;
        self.take(listed)?;
        let message: messages::FilterList = decode("FilterList", bytes)?;
        let operator = ListOperator::try_from(message.operator);
        let operator = operator.map_err(|_| FilterError::argument("a FilterList needs an operator"))?;
        let filters = message.filters.iter().map(|filter| self.filter(filter));
        let filters = filters.collect::<Result<_, _>>()?;
        match operator {
            ListOperator::MustPassAll => boxed(list::All::new(filters)),
            ListOperator::MustPassOne => boxed(list::One::new(filters)),
        }
    }

    fn single(&mut self, message: messages::SingleColumnValueFilter, exclude: bool) -> Result<BoxNode, FilterError> {
        if message.compare_op == CompareType::NoOp as i32 {
            return Err(FilterError::argument("a SingleColumnValueFilter must compare"));
        }
        boxed(single::SingleColumn {
            comparison: self.comparison(message.compare_op, Subject::Value, Some(&message.comparator))?,
            family: message.column_family.unwrap_or_default(),
            qualifier: message.column_qualifier.unwrap_or_default(),
            if_missing: message.filter_if_missing.unwrap_or_default(),
            latest_only: message.latest_version_only.unwrap_or_default(),
            exclude,
            state: single::SingleColumnState::default(),
        })
    }

    fn dependent(&mut self, message: messages::DependentColumnFilter) -> Result<BoxNode, FilterError> {
        let compare = &message.compare_filter;
        let comparison = match &compare.comparator {
            None => None,
            comparator => Some(self.comparison(compare.compare_op, Subject::Value, comparator.as_ref())?),
        };
        boxed(single::DependentColumn {
            comparison,
            family: message.column_family.unwrap_or_default(),
            qualifier: message.column_qualifier.unwrap_or_default(),
            drop_column: message.drop_dependent_column.unwrap_or_default(),
            timestamps: HashSet::new(),
        })
    }

    fn comparing(&mut self, what: &'static str, subject: Subject, bytes: Bytes) -> Result<Comparison, FilterError> {
        let message: messages::ComparingFilter = decode(what, bytes)?;
        let compare = message.compare_filter;
        self.comparison(compare.compare_op, subject, compare.comparator.as_ref())
    }

    fn comparison(
        &mut self,
        op: i32,
        subject: Subject,
        comparator: Option<&messages::Comparator>,
    ) -> Result<Comparison, FilterError> {
        let op = CompareType::try_from(op).map_err(|_| FilterError::argument("no such operator"))?;
        let charge = &mut *self.charge;
        let comparator = comparator.map(|given| Comparator::decode(given, charge)).transpose()?;
        if let Some(comparator) = &comparator {
            self.cost.add_comparator(subject, comparator.reading());
        }
        if self.cost.patterns > PATTERNS_MAX {
            return Err(FilterError::TooLarge("at most 32 patterns"));
        }
        Comparison::new(op, comparator)
    }
}
