//! Checks a filter tree and brings it into the form for evaluation.
//!
//! Everything is checked wherever it stands, also where no row could ever reach it, so that whether a filter is accepted
//! depends on the filter alone. Only filters whose patterns are tried on, or match, very many families of a
//! table are refused for that table.

mod families;

use crate::ast::Filter;
use crate::compiled::CompiledFilter;
use crate::compiled_size::automata;
use crate::error::FilterError;
use crate::labels::check_labels;
use crate::limits::{FILTER_BYTES_MAX, LABEL_BYTES_MAX, NESTING_MAX, WEIGHT_MAX};
use crate::need::pushdown;
use crate::node::{CellTest, Node, RowTest};
use crate::pushdown::{Pushdown, TimestampBounds};
use crate::qualifier_range::QualifierRange;
use crate::re2::Pattern;
use bytes::Bytes;
use families::FamilyFinder;
use std::ops::Bound;
use std::sync::Arc;
use stele_types::{FamilyId, TableSchema, Timestamp};

/// Bytes of a pattern that an error message shows.
const SHOWN_BYTES_MAX: usize = 200;

impl Filter {
    /// Checks the whole tree, including branches that no row can reach, and prepares it for rows of tables with this
    /// schema.
    pub fn compile(&self, schema: &TableSchema) -> Result<CompiledFilter, FilterError> {
        self.compile_sized(schema).map(|(compiled, _)| compiled)
    }

    /// The same, and how large it is.
    pub(crate) fn compile_sized(&self, schema: &TableSchema) -> Result<(CompiledFilter, FilterSize), FilterError> {
        let mut compiler = Compiler {
            families: FamilyFinder::new(schema),
            bytes: 0,
            listed_bytes: 0,
            weight: 0,
            automata: automata(&self.patterns()),
            families_before: Vec::new(),
        };
        let root = compiler.node(
            self,
            Place {
                nesting: 0,
                in_condition: false,
                only_chains: true,
            },
        )?;
        check_labels(self)?;
        let pushdown = Pushdown {
            families_before: std::mem::take(&mut compiler.families_before),
            ..pushdown(&root)
        };
        let (guards, root) = hoist(root);
        let size = FilterSize {
            bytes: compiler.bytes.saturating_add(compiler.listed_bytes),
            weight: compiler.weight,
        };
        let compiled = CompiledFilter {
            guards,
            has_labels: root.has_labels(),
            root,
            pushdown,
        };
        Ok((compiled, size))
    }
}

/// How large a compiled filter is.
pub(crate) struct FilterSize {
    /// The least number of bytes that it takes when serialized, with the lists of families that the server has added.
    pub(crate) bytes: usize,
    /// Of its patterns.
    pub(crate) weight: usize,
}

struct Compiler<'a> {
    families: FamilyFinder<'a>,
    /// The least number of bytes of the serialized filters so far.
    bytes: usize,
    /// Bytes of lists of families, which only servers make. The number of families bounds them.
    listed_bytes: usize,
    /// Of the patterns seen so far.
    weight: usize,
    /// How many patterns of the filter may take an automaton.
    automata: usize,
    /// Of the node that says it.
    families_before: Vec<(FamilyId, Timestamp)>,
}

/// Where in the tree a filter stands.
#[derive(Clone, Copy)]
struct Place {
    nesting: usize,
    in_condition: bool,
    /// Only chains are around it.
    only_chains: bool,
}

impl Compiler<'_> {
    fn node(&mut self, filter: &Filter, place: Place) -> Result<Node, FilterError> {
        self.count_bytes(filter)?;
        Ok(match filter {
            Filter::Chain(members) => chain(self.members(members, "Chain", place)?),
            Filter::Interleave(members) => Node::Interleave(self.members(members, "Interleave", place)?),
            Filter::Condition {
                predicate,
                on_true,
                on_false,
            } => {
                let place = Place {
                    in_condition: true,
                    only_chains: false,
                    ..inner(place)?
                };
                let mut branch = |filter: &Option<Box<Filter>>| match filter {
                    Some(filter) => self.node(filter, place).map(Box::new),
                    None => Ok(Box::new(Node::BlockAll)),
                };
                let (on_true, on_false) = (branch(on_true)?, branch(on_false)?);
                let predicate = Box::new(self.node(predicate, place)?);
                Node::Condition {
                    predicate,
                    on_true,
                    on_false,
                }
            }
            Filter::Sink if place.in_condition => {
                let reason = "a sink filter cannot be used in a condition filter";
                return Err(FilterError::Structure(reason.to_owned()));
            }
            Filter::Sink => Node::Sink,
            Filter::PassAll => Node::PassAll,
            Filter::FamiliesBefore(families) => {
                self.note_families_before(families, place)?;
                Node::PassAll
            }
            Filter::BlockAll => Node::BlockAll,
            Filter::RowKeyRegex(pattern) => {
                not_empty("row_key_regex_filter", pattern)?;
                Node::Row(RowTest::Key(self.pattern("row_key_regex_filter", pattern)?))
            }
            Filter::RowSample(probability) if *probability > 0.0 && *probability < 1.0 => {
                Node::Row(RowTest::Sample(*probability))
            }
            Filter::RowSample(_) => {
                return Err(argument("row_sample_filter", "argument must be between 0.0 and 1.0"));
            }
            Filter::CellsPerRowOffset(count) => {
                let reason = "argument must not be negative";
                Node::Offset(at_least(0, *count, "cells_per_row_offset_filter", reason)?)
            }
            Filter::CellsPerRow(count) => {
                let reason = "argument must be > 0";
                Node::PerRow(at_least(1, *count, "cells_per_row_limit_filter", reason)?)
            }
            Filter::CellsPerColumn(count) => {
                let reason = "argument must be > 0";
                Node::PerColumn(at_least(1, *count, "cells_per_column_limit_filter", reason)?)
            }
            Filter::StripValue => Node::Strip,
            Filter::ApplyLabel(label) => Node::Label(checked_label(label)?),
            _ => Node::Cells(vec![self.cell_test(filter)?]),
        })
    }

    fn note_families_before(&mut self, families: &[(FamilyId, Timestamp)], place: Place) -> Result<(), FilterError> {
        if !place.only_chains || !self.families_before.is_empty() {
            let reason = "the time before which families are read is one of the whole filter";
            return Err(FilterError::Structure(reason.to_owned()));
        }
        self.listed_bytes += size_of_val(families);
        self.families_before = families.to_vec();
        // Stable: of a family that is there twice the first counts.
        self.families_before.sort_by_key(|(family, _)| *family);
        self.families_before.dedup_by_key(|(family, _)| *family);
        Ok(())
    }

    fn cell_test(&mut self, filter: &Filter) -> Result<CellTest, FilterError> {
        Ok(match filter {
            Filter::FamilyRegex(pattern) => CellTest::Families(self.families(pattern)?),
            Filter::Families(families) => {
                self.listed_bytes += size_of_val(&families[..]);
                CellTest::Families(self.families.existing(families))
            }
            Filter::QualifierRegex(pattern) => {
                CellTest::Qualifier(self.pattern("column_qualifier_regex_filter", pattern)?)
            }
            Filter::ColumnRange { family, start, end } => {
                not_inverted("column_range_filter", start, end)?;
                let range = QualifierRange {
                    start: start.clone(),
                    end: end.clone(),
                };
                match self.families.named(family) {
                    Some(family) => CellTest::Columns(family, range),
                    None => CellTest::Families(Arc::default()),
                }
            }
            Filter::TimestampRange { start, end } => {
                if end.is_some_and(|end| end < *start) {
                    return Err(argument("timestamp_range_filter", "start is after end"));
                }
                let (start, end) = (Timestamp(*start), end.map(Timestamp));
                CellTest::Timestamps(TimestampBounds { start, end })
            }
            Filter::ValueRegex(pattern) => CellTest::Value(self.pattern("value_regex_filter", pattern)?),
            Filter::ValueRange { start, end } => {
                not_inverted("value_range_filter", start, end)?;
                CellTest::ValueRange(start.clone(), end.clone())
            }
            Filter::ValueBitmask(mask) => CellTest::ValueMask(mask.clone()),
            // Every other kind is a step of its own and never gets here.
            _ => return Err(FilterError::Structure("not a filter of cells".to_owned())),
        })
    }

    fn members(&mut self, members: &[Filter], kind: &str, place: Place) -> Result<Vec<Node>, FilterError> {
        if members.len() < 2 {
            let reason = format!("{kind} must contain at least two RowFilters");
            return Err(FilterError::Structure(reason));
        }
        let mut place = inner(place)?;
        place.only_chains &= kind == "Chain";
        members.iter().map(|member| self.node(member, place)).collect()
    }

    /// The families whose name matches, sorted.
    fn families(&mut self, pattern: &Bytes) -> Result<Arc<[FamilyId]>, FilterError> {
        let field = "family_name_regex_filter";
        not_empty(field, pattern)?;
        if pattern.contains(&b':') {
            return Err(bad_pattern(field, pattern, "must not contain ':'".to_owned()));
        }
        if let Some(known) = self.families.known(pattern) {
            return Ok(known);
        }
        let compiled = self.pattern(field, pattern)?;
        self.families.matching(pattern, &compiled).ok_or_else(|| {
            let reason = "the patterns of families are tried on, or match, too many families together".to_owned();
            FilterError::Structure(reason)
        })
    }

    fn pattern(&mut self, field: &'static str, pattern: &Bytes) -> Result<Pattern, FilterError> {
        let compiled = Pattern::compile_among(pattern, self.automata);
        let compiled = compiled.map_err(|reason| bad_pattern(field, pattern, reason))?;
        // Lists of names take no automaton. One may be the caller's families, which must not count against a client's filter.
        if compiled.has_automaton() {
            self.weight = self.weight.saturating_add(compiled.weight());
        }
        if self.weight > WEIGHT_MAX {
            let reason = "the patterns of the filter are too large together".to_owned();
            return Err(FilterError::Structure(reason));
        }
        Ok(compiled)
    }

    /// Counts a filter without its members. The count never exceeds the size in which a client sends it, so that no filter within a
    /// client's limit is refused here. The front end has the serialized form and checks the exact size.
    fn count_bytes(&mut self, filter: &Filter) -> Result<(), FilterError> {
        let bound = |bound: &Bound<Bytes>| match bound {
            Bound::Included(b) | Bound::Excluded(b) => b.len(),
            Bound::Unbounded => 0,
        };
        let payload = match filter {
            Filter::RowKeyRegex(bytes)
            | Filter::FamilyRegex(bytes)
            | Filter::QualifierRegex(bytes)
            | Filter::ValueRegex(bytes)
            | Filter::ValueBitmask(bytes) => bytes.len(),
            Filter::ColumnRange { family, start, end } => family.len() + bound(start) + bound(end),
            Filter::ValueRange { start, end } => bound(start) + bound(end),
            Filter::ApplyLabel(label) => label.len(),
            _ => 0,
        };
        // Every filter has at least a tag and one byte more.
        self.bytes = self.bytes.saturating_add(2).saturating_add(payload);
        if self.bytes > FILTER_BYTES_MAX {
            let reason = format!("the filter is larger than {FILTER_BYTES_MAX} bytes");
            return Err(FilterError::Structure(reason));
        }
        Ok(())
    }
}

fn inner(place: Place) -> Result<Place, FilterError> {
    if place.nesting >= NESTING_MAX {
        let reason = format!("filters are nested more than {NESTING_MAX} deep");
        return Err(FilterError::Structure(reason));
    }
    Ok(Place {
        nesting: place.nesting + 1,
        ..place
    })
}

fn argument(field: &'static str, reason: &str) -> FilterError {
    FilterError::Argument {
        field,
        reason: reason.to_owned(),
    }
}

fn bad_pattern(field: &'static str, pattern: &[u8], reason: String) -> FilterError {
    let shown = pattern.get(..SHOWN_BYTES_MAX).unwrap_or(pattern);
    FilterError::Pattern {
        field,
        reason,
        pattern: shown.escape_ascii().to_string(),
    }
}

/// No row key and no family name is empty, so an empty pattern for them is a mistake. Qualifiers and values may be.
fn not_empty(field: &'static str, pattern: &[u8]) -> Result<(), FilterError> {
    if pattern.is_empty() {
        return Err(argument(field, "argument must not be empty"));
    }
    Ok(())
}

fn not_inverted(field: &'static str, start: &Bound<Bytes>, end: &Bound<Bytes>) -> Result<(), FilterError> {
    match (start, end) {
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end))
            if start > end =>
        {
            Err(argument(field, "start is after end"))
        }
        _ => Ok(()),
    }
}

fn at_least(least: i32, count: i32, field: &'static str, reason: &str) -> Result<usize, FilterError> {
    match usize::try_from(count) {
        Ok(found) if count >= least => Ok(found),
        _ => Err(argument(field, reason)),
    }
}

fn checked_label(label: &str) -> Result<String, FilterError> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if label.is_empty() || label.len() > LABEL_BYTES_MAX || !label.bytes().all(allowed) {
        let reason = format!("argument must match RE2([a-z0-9\\-]+) and have at most {LABEL_BYTES_MAX} characters");
        return Err(argument("apply_label_transformer", &reason));
    }
    Ok(label.to_owned())
}

/// Flattens the members of a chain: opens inner chains, drops members without effect or that no cell reaches, and joins
/// neighbouring tests of cells.
fn chain(members: Vec<Node>) -> Node {
    let mut flat: Vec<Node> = Vec::new();
    let opened = members.into_iter().flat_map(|member| match member {
        Node::Chain(inner) => inner,
        other => vec![other],
    });
    for member in opened {
        let nothing_left = matches!(flat.last(), Some(Node::BlockAll | Node::Sink));
        match (member, flat.last_mut()) {
            (Node::PassAll, _) => {}
            (_, _) if nothing_left => break,
            (Node::Cells(more), Some(Node::Cells(tests))) => tests.extend(more),
            (member, _) => flat.push(member),
        }
    }
    match flat.len() {
        0 => Node::PassAll,
        1 => flat.remove(0),
        _ => Node::Chain(flat),
    }
}

/// Takes the tests of whole rows that decide about every cell out of the top-level chain: those before any sink. A row
/// test has the same result anywhere in a chain, because it lets everything through or nothing.
fn hoist(root: Node) -> (Vec<RowTest>, Node) {
    let members = match root {
        Node::Chain(members) => members,
        other => vec![other],
    };
    let (mut guards, mut rest, mut sunk) = (Vec::new(), Vec::new(), false);
    for member in members {
        match member {
            Node::Row(test) if !sunk => guards.push(test),
            member => {
                sunk |= member.has_sink();
                rest.push(member);
            }
        }
    }
    // Chained again, because tests of cells may have become neighbours.
    (guards, chain(rest))
}
