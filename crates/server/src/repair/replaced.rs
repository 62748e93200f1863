//! Splits and merges that the catalog lost.
//!
//! Such a catalog names tablets without a manifest, and omits those that have their rows. The manifests of these tell it. With consent the
//! catalog names them again, and none of their data is given up.
//!
//! A replacement is recognised where omitted tablets of the table cover the rows of its gone neighbours completely and once, and have
//! everything that the log has of these. Where they have only some of the rows, nothing is changed: a tablet without files in their
//! place would hide them.

use super::Mode;
use super::loss::{describe_aside, set_aside};
use crate::check::overlay::Overlay;
use crate::check::report::Progress;
use crate::check::tablets::TabletInfo;
use crate::check::{self, Examined};
use anyhow::{Context, bail};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use stele_catalog::Catalog;
use stele_coord::EmbeddedCoord;
use stele_env::Env;
use stele_storage::Storage;
use stele_tablet::Manifest;
use stele_tablet::manifest::{self, ManifestLog};
use stele_types::{ErrorKind, RowRange, TableId, TableName, TabletId};

/// A split or a merge that the catalog lost.
struct LostReplacement {
    table: TableName,
    /// The tablets that the catalog names and that have no manifest.
    gone: Vec<TabletId>,
    /// The tablets that have their rows.
    parts: Vec<(TabletId, RowRange)>,
}

impl LostReplacement {
    /// The tablets that the catalog omits.
    fn parts(&self) -> impl Iterator<Item = TabletId> {
        self.parts.iter().map(|part| part.0)
    }

    fn describe(&self, text: &mut String) {
        let parts: Vec<TabletId> = self.parts().collect();
        let (gone, of_gone) = numbered(&self.gone);
        let (parts, of_parts) = numbered(&parts);
        let has = |count| if count == 1 { "has" } else { "have" };
        let _ = writeln!(
            text,
            "{gone} of {} {} no manifest, and {parts} {} its rows: --accept-loss has the catalog name that",
            self.table,
            has(of_gone),
            has(of_parts),
        );
    }
}

/// Tablets in words, and how many they are.
fn numbered(tablets: &[TabletId]) -> (String, usize) {
    let numbers: Vec<String> = tablets.iter().map(ToString::to_string).collect();
    let word = if tablets.len() == 1 { "tablet" } else { "tablets" };
    (format!("{word} {}", numbers.join(", ")), tablets.len())
}

/// Names the parts of lost replacements in the catalog, with consent. Returns the storage to go on with and the findings
/// there. In a dry run the change is in memory only.
pub(super) async fn replacements(
    storage: Arc<dyn Storage>,
    env: &Env,
    progress: &Progress,
    mode: Mode,
    examined: Examined,
    text: &mut String,
) -> anyhow::Result<(Arc<dyn Storage>, Examined)> {
    let lost = lost_replacements(&storage, &examined).await?;
    lost.iter().for_each(|one| one.describe(text));
    if lost.is_empty() || !mode.accept_loss {
        return Ok((storage, examined));
    }
    let as_if: Arc<dyn Storage> = Overlay::over(storage.clone());
    replace_again(&as_if, env, &lost).await?;
    let then = check::examine(as_if.clone(), env.clone(), progress.clone()).await?;
    if mode.dry_run {
        describe_aside(&as_if, &then, text).await?;
        return Ok((as_if, then));
    }
    // This comes first: a write to the catalog ends the doubt about its completeness, and the next start would sweep
    // unnamed files.
    set_aside(&storage, &then, &BTreeMap::new(), text).await?;
    replace_again(&storage, env, &lost).await?;
    Ok((storage, then))
}

async fn replace_again(storage: &Arc<dyn Storage>, env: &Env, lost: &[LostReplacement]) -> anyhow::Result<()> {
    let coord = EmbeddedCoord::open(storage.clone(), env.clone())
        .await
        .context("coordination")?;
    let catalog = Catalog::load(coord).await.context("catalog")?;
    for one in lost {
        let replaced = catalog.replace_tablets(&one.table, &one.gone, one.parts.clone());
        replaced.await.context("catalog")?;
    }
    Ok(())
}

/// The replacements that the catalog lost.
async fn lost_replacements(storage: &Arc<dyn Storage>, examined: &Examined) -> anyhow::Result<Vec<LostReplacement>> {
    Ok(Found::find(storage, examined).await?.replacements(examined))
}

/// The tablets that the catalog omits and that replace others. Fails if omitted ones have only some rows of a tablet that has no manifest.
/// Those rows are whole, and a tablet without files would take their place.
pub(super) async fn replacing(storage: &Arc<dyn Storage>, examined: &Examined) -> anyhow::Result<BTreeSet<TabletId>> {
    let found = Found::find(storage, examined).await?;
    let replaced = found.replacements(examined);
    let is_replaced = |gone: &TabletInfo| replaced.iter().any(|one| one.gone.contains(&gone.id));
    for (table, gone) in &found.gone {
        for info in gone.iter().filter(|gone| !is_replaced(gone)) {
            let overlaps = |orphan: &&Manifest| !orphan.range().intersect(&info.range).is_empty();
            let hidden = found.orphans.get(table).into_iter().flatten().filter(overlaps);
            let hidden: Vec<TabletId> = hidden.map(Manifest::tablet).collect();
            if !hidden.is_empty() {
                bail!(
                    "tablet {} has no manifest, and {}, which the catalog does not name, {} some of its rows: restore coord/ \
                     from a backup, or move the manifests of these out of tablets/ to give those rows up",
                    info.id,
                    numbered(&hidden).0,
                    if hidden.len() == 1 { "has" } else { "have" },
                );
            }
        }
    }
    Ok(replaced.iter().flat_map(LostReplacement::parts).collect())
}

/// Tablets without a manifest, and manifests of tablets that the catalog does not name. Of each table, in the order of rows.
#[derive(Default)]
struct Found {
    gone: BTreeMap<TableId, Vec<TabletInfo>>,
    orphans: BTreeMap<TableId, Vec<Manifest>>,
}

impl Found {
    async fn find(storage: &Arc<dyn Storage>, examined: &Examined) -> anyhow::Result<Found> {
        let (tablets, mut found) = (&examined.tablets, Found::default());
        let all = manifest::list_all(&**storage).await?;
        for tablet in tablets.unreadable.iter().filter(|tablet| !all.contains_key(*tablet)) {
            if let Some(info) = tablets.known.get(tablet)
                && let Some(schema) = &info.schema
            {
                found.gone.entry(schema.id).or_default().push(info.clone());
            }
        }
        if found.gone.is_empty() {
            return Ok(found);
        }
        for tablet in all.keys().filter(|tablet| !tablets.known.contains_key(*tablet)) {
            match ManifestLog::open(storage.clone(), *tablet).await {
                Ok((_, orphan)) => found.orphans.entry(orphan.table()).or_default().push(orphan),
                // Its rows are unknown.
                Err(error) if error.kind() == ErrorKind::Corruption => {}
                Err(error) => return Err(error.into()),
            }
        }
        for gone in found.gone.values_mut() {
            gone.sort_by(|a, b| a.range.start.cmp(&b.range.start));
        }
        for orphans in found.orphans.values_mut() {
            orphans.sort_by(|a, b| a.start.cmp(&b.start));
        }
        Ok(found)
    }

    fn replacements(&self, examined: &Examined) -> Vec<LostReplacement> {
        let mut lost = Vec::new();
        for (table, gone) in &self.gone {
            let Some(orphans) = self.orphans.get(table) else {
                continue;
            };
            let mut left = gone.as_slice();
            while !left.is_empty() {
                let (one, taken) = replaced_first(left, orphans, examined);
                lost.extend(one);
                left = left.get(taken..).unwrap_or_default();
            }
        }
        lost
    }
}

/// The replacement of the first of some gone tablets, and of as few neighbours behind it as possible; and how many that are, or one that was
/// not replaced.
fn replaced_first(gone: &[TabletInfo], orphans: &[Manifest], examined: &Examined) -> (Option<LostReplacement>, usize) {
    let Some((first, schema)) = gone.first().and_then(|first| Some((first, first.schema.as_ref()?))) else {
        return (None, 1);
    };
    let mut end = Some(&first.range.start);
    for (at, last) in gone.iter().enumerate() {
        if end != Some(&last.range.start) {
            break;
        }
        end = last.range.end.as_ref();
        let taken = gone.get(..=at).unwrap_or_default();
        let parts = cover(orphans, &first.range.start, end);
        let logged = taken.iter().filter_map(|info| examined.logged.get(&info.id));
        let newest = logged.map(|logged| logged.last).max();
        let has_all = |part: &&Manifest| newest.is_none_or(|newest| newest <= part.flushed_through());
        if !parts.is_empty() && parts.iter().all(has_all) {
            let replacement = LostReplacement {
                table: schema.name.clone(),
                gone: taken.iter().map(|info| info.id).collect(),
                parts: parts.iter().map(|part| (part.tablet(), part.range())).collect(),
            };
            return (Some(replacement), taken.len());
        }
    }
    (None, 1)
}

/// Tablets that cover a range of rows once, if there are. Where a replaced tablet still has its manifest, the later ones are taken: those
/// with the higher numbers.
fn cover<'m>(orphans: &'m [Manifest], start: &Bytes, end: Option<&Bytes>) -> Vec<&'m Manifest> {
    // By first row: a tablet from which on the rest of the range is covered.
    let mut covers: BTreeMap<&Bytes, &Manifest> = BTreeMap::new();
    for orphan in orphans.iter().rev() {
        let reaches = match &orphan.end {
            own_end if own_end.as_ref() == end => true,
            Some(next) => covers.contains_key(next),
            None => false,
        };
        let is_later = |other: &&Manifest| other.tablet() < orphan.tablet();
        if reaches && covers.get(&orphan.start).is_none_or(is_later) {
            covers.insert(&orphan.start, orphan);
        }
    }
    let mut parts = Vec::new();
    let mut next = covers.get(start);
    while let Some(part) = next {
        parts.push(*part);
        next = part
            .end
            .as_ref()
            .filter(|own_end| Some(*own_end) != end)
            .and_then(|own_end| covers.get(own_end));
    }
    parts
}
