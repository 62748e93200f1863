//! A possible state of a row, its change by writes, and the results of reads.

use super::Keeps;
use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use stele_types::{Cell, FamilyId, Mutation, Timestamp};

/// Adds a state unless a known one covers it.
pub(super) fn add(states: &mut Vec<State>, state: State) {
    if !states.iter().any(|known| known.covers(&state)) {
        states.retain(|known| !state.covers(known));
        states.push(state);
    }
}

/// Family, qualifier and timestamp, in the order of a row's cells.
type VersionName = (FamilyId, Bytes, Reverse<Timestamp>);

/// A possible state of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    versions: BTreeMap<VersionName, Version>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    value: Bytes,
    /// Whether a compaction may have dropped it or may be about to.
    droppable: bool,
}

/// The position of a version in its column, counted from the newest one.
#[derive(Clone, Default)]
struct Place {
    column: Option<(FamilyId, Bytes)>,
    /// Versions so far.
    count: usize,
}

impl Place {
    /// Moves on to a version; returns whether the rule keeps it.
    fn is_kept(&mut self, (family, qualifier, _): &VersionName, keeps: Keeps) -> bool {
        let is_same = |(f, q): &(FamilyId, Bytes)| f == family && q == qualifier;
        if !self.column.as_ref().is_some_and(is_same) {
            self.column = Some((*family, qualifier.clone()));
            self.count = 0;
        }
        keeps(*family).is_none_or(|most| self.count < most)
    }
}

/// A result under construction.
#[derive(Clone, Default)]
struct Partial {
    place: Place,
    cells: Vec<Cell>,
    /// The versions that were dropped if this is the result.
    dropped: Vec<VersionName>,
}

impl State {
    /// Applies one write: its mutations in order, atomically.
    pub(super) fn apply(&mut self, mutations: &[Mutation], keeps: Keeps) {
        for mutation in mutations {
            match mutation {
                Mutation::Put {
                    family,
                    qualifier,
                    timestamp,
                    value,
                } => {
                    let version = Version {
                        value: value.clone(),
                        droppable: false,
                    };
                    let name = (*family, qualifier.clone(), Reverse(*timestamp));
                    self.versions.insert(name, version);
                }
                delete => self.versions.retain(|name, _| !deletes(delete, name)),
            }
        }
        let mut place = Place::default();
        for (name, version) in &mut self.versions {
            version.droppable |= !place.is_kept(name, keeps);
            place.count += 1;
        }
    }

    /// All possible results of a read, each with the row's state after it.
    pub(super) fn answers(&self, keeps: Keeps) -> Vec<(State, Vec<Cell>)> {
        let mut partials = vec![Partial::default()];
        for (name, version) in &self.versions {
            let mut without = Vec::new();
            for partial in &mut partials {
                if !partial.place.is_kept(name, keeps) {
                    continue;
                }
                if version.droppable {
                    let mut other = partial.clone();
                    other.dropped.push(name.clone());
                    without.push(other);
                }
                partial.place.count += 1;
                let (family, qualifier, Reverse(timestamp)) = name;
                let cell = Cell::put(*family, qualifier.clone(), *timestamp, version.value.clone());
                partial.cells.push(cell);
            }
            partials.append(&mut without);
        }
        let answer = |partial: Partial| {
            let mut state = self.clone();
            state.versions.retain(|name, _| !partial.dropped.contains(name));
            (state, partial.cells)
        };
        partials.into_iter().map(answer).collect()
    }

    /// Whether this state covers `other`: it can give all results that `other` can give, now and after any writes.
    fn covers(&self, other: &State) -> bool {
        let has = |(name, version): (&VersionName, &Version)| {
            let own = self.versions.get(name);
            own.is_some_and(|own| own.value == version.value && (own.droppable || !version.droppable))
        };
        let may_lack = |(name, own): (&VersionName, &Version)| own.droppable || other.versions.contains_key(name);
        other.versions.iter().all(has) && self.versions.iter().all(may_lack)
    }

    /// A short form with the number at the beginning of a value; `?` marks versions that may have been dropped.
    pub(super) fn show(&self) -> String {
        let version = |((family, qualifier, Reverse(timestamp)), version): (&VersionName, &Version)| {
            let number = version
                .value
                .first_chunk()
                .map_or(0, |bytes| u64::from_be_bytes(*bytes));
            let mark = if version.droppable { "?" } else { "" };
            format!("{family}:{}@{timestamp}={number}{mark}", qualifier.escape_ascii())
        };
        self.versions.iter().map(version).collect::<Vec<_>>().join(" ")
    }
}

/// Whether a mutation deletes that version.
fn deletes(mutation: &Mutation, (family, qualifier, Reverse(timestamp)): &VersionName) -> bool {
    match mutation {
        Mutation::DeleteRow { up_to } => timestamp <= up_to,
        Mutation::DeleteFamily { family: of, up_to } => of == family && timestamp <= up_to,
        Mutation::DeleteFamilyVersion {
            family: of,
            timestamp: at,
        } => of == family && at == timestamp,
        Mutation::DeleteColumn {
            family: of,
            qualifier: column,
            from,
            to,
        } => of == family && column == qualifier && from <= timestamp && timestamp <= to,
        Mutation::DeleteVersion {
            family: of,
            qualifier: column,
            timestamp: at,
        } => of == family && column == qualifier && at == timestamp,
        // There are no aggregates in these families, and no clients that give cells a lifetime.
        Mutation::Put { .. } | Mutation::ExpiringPut { .. } | Mutation::Merge { .. } => false,
    }
}
