//! `/api/tables`: tables with their sizes, a page at a time.

use super::{Answer, Failure, Json, Parameters, Served, short, show_table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use stele_tabletserver::status::TabletLine;
use stele_types::{TableName, TableSchema};

/// Tables of a page.
const LIMIT_MAX: usize = 500;
const LIMIT: usize = 100;
/// Names of families that are listed.
const FAMILIES_MAX: usize = 50;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// Only tables with this in their names.
    search: Option<String>,
    offset: Option<usize>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct Tables {
    total: usize,
    offset: usize,
    tables: Vec<Table>,
}

#[derive(Serialize)]
struct Table {
    table: String,
    enabled: bool,
    read_only: bool,
    protected: bool,
    /// The first of its families.
    families: Vec<String>,
    family_count: usize,
    groups: usize,
    /// All tablets, and those that this server serves. The sums below are of these, or 0 for a caller that may not know them.
    tablets: usize,
    served: usize,
    #[serde(flatten)]
    sums: Sums,
}

/// Sums over tablets.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Sums {
    bytes: u64,
    memtable_bytes: u64,
    files: usize,
    debt_bytes: u64,
    reads: f64,
    writes: f64,
    waiting: usize,
}

impl Sums {
    fn add(&mut self, line: &TabletLine) {
        self.bytes += line.bytes;
        self.memtable_bytes += line.memtable_bytes;
        self.files += line.files;
        self.debt_bytes += line.debt_bytes;
        self.reads += f64::from(line.reads_per_second);
        self.writes += f64::from(line.writes_per_second);
        self.waiting += usize::from(!line.waits.is_empty());
    }
}

pub(super) async fn get(served: Served, Parameters(wanted): Parameters<Wanted>) -> Answer<Tables> {
    let search = wanted.search.unwrap_or_default();
    let schemas = all_tables(&served, &search).await?;
    let (offset, limit) = (wanted.offset.unwrap_or(0), wanted.limit.unwrap_or(LIMIT).min(LIMIT_MAX));
    let page: Vec<_> = schemas.iter().skip(offset).take(limit).collect();
    let mut sums: BTreeMap<TableName, (usize, Sums)> = BTreeMap::new();
    page.iter().for_each(|schema| {
        sums.insert(schema.name.clone(), Default::default());
    });
    for line in served.parts.server.lines(|_, name| sums.contains_key(name)) {
        if let Some((count, sum)) = sums.get_mut(&line.table) {
            *count += 1;
            if served.knows_figures(&line.table) {
                sum.add(&line);
            }
        }
    }
    let tables = page.into_iter().map(|schema| {
        let (count, mut sums) = sums.remove(&schema.name).unwrap_or_default();
        (sums.reads, sums.writes) = (short(sums.reads), short(sums.writes));
        let families = schema.families.values().map(|family| family.name.clone());
        Table {
            table: show_table(&schema.name),
            enabled: schema.enabled,
            read_only: schema.read_only,
            protected: schema.deletion_protection,
            families: families.take(FAMILIES_MAX).collect(),
            family_count: schema.families.len(),
            groups: schema.groups.len(),
            tablets: served
                .parts
                .service
                .places(&schema.name)
                .map_or(0, |places| places.len()),
            served: count,
            sums,
        }
    });
    Ok(Json(Tables {
        total: schemas.len(),
        offset,
        tables: tables.collect(),
    }))
}

/// The schemas of all tables with `search` in their names, by name.
async fn all_tables(served: &Served, search: &str) -> Result<Vec<std::sync::Arc<TableSchema>>, Failure> {
    let admin = &served.parts.admin;
    let mut schemas = Vec::new();
    for (namespace, _) in admin.list_namespaces().await? {
        schemas.extend(admin.list_tables(&namespace).await?);
    }
    schemas.retain(|schema| search.is_empty() || show_table(&schema.name).contains(search));
    schemas.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(schemas)
}
