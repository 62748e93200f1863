//! Verifies a backup.
//!
//! Every file is read and compared with its checksum, and the documents with each other.

use crate::copy;
use crate::destination::Destination;
use crate::error::{BackupError, Result};
use crate::format::{ListedFile, Record};
use crate::work::Work;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_client::BackupOutcome;
use stele_tablet::StoredFile;
use stele_types::ErrorKind;

/// Damage that is reported piece by piece.
const DAMAGE_MAX: usize = 100;

/// Damage that was found.
#[derive(Default)]
struct Found {
    damage: Vec<String>,
    more: u64,
}

impl Found {
    /// Notes damage; other errors end the work.
    fn note(&mut self, error: BackupError) -> Result<()> {
        if error.kind() != ErrorKind::Corruption {
            return Err(error);
        }
        match self.damage.len() < DAMAGE_MAX {
            true => self.damage.push(error.to_string()),
            false => self.more += 1,
        }
        Ok(())
    }
}

/// Reads all files of a backup; the damage that was found.
pub async fn verify(destination: &Destination, name: &str, work: &Arc<Work>) -> Result<BackupOutcome> {
    work.begin("reading the backup")?;
    let id = Destination::complete(&destination.state().await?, name)?.id;
    let mut found = Found::default();
    match destination.record(id).await {
        Ok(record) => {
            let listed = listed_files(destination, &record, &mut found).await?;
            work.expect(listed.len() as u64, listed.values().map(|file| file.len).sum());
            check_tables(destination, &record, &listed, &mut found).await?;
            work.begin("reading files")?;
            read_files(destination, listed, work, &mut found).await?;
        }
        Err(error) => found.note(error)?,
    }
    Ok(BackupOutcome {
        damage: found.damage,
        more_damage: found.more,
        ..BackupOutcome::default()
    })
}

async fn listed_files(
    destination: &Destination,
    record: &Record,
    found: &mut Found,
) -> Result<BTreeMap<StoredFile, ListedFile>> {
    let mut files = BTreeMap::new();
    for number in 0..record.lists {
        match destination.list(record.id, number).await {
            Ok(listed) => files.extend(listed.into_iter().filter_map(|file| Some((file.stored()?, file)))),
            Err(error) => found.note(error)?,
        }
    }
    Ok(files)
}

/// Whether the lists name every file of the tablets.
async fn check_tables(
    destination: &Destination,
    record: &Record,
    listed: &BTreeMap<StoredFile, ListedFile>,
    found: &mut Found,
) -> Result<()> {
    for (index, table) in (0..).zip(&record.tables) {
        if let Err(why) = stele_catalog::record::decode_table(&table.table) {
            let path = crate::paths::record(record.id);
            found.note(crate::destination::damaged(&path, format!("table {index}: {why}")))?;
        }
        let mut tablets = 0;
        for number in 0..table.parts {
            let part = match destination.part(record.id, index, number).await {
                Ok(part) => part,
                Err(error) => {
                    found.note(error)?;
                    continue;
                }
            };
            tablets += part.tablets.len() as u64;
            for (file, len) in part.stored() {
                if listed.get(&file).is_none_or(|listed| listed.len != len) {
                    let path = crate::paths::part(record.id, index, number);
                    let detail = format!("it names {} of {len} bytes, and no list does", file.path());
                    found.note(crate::destination::damaged(&path, detail))?;
                }
            }
        }
        if tablets != table.tablets && found.damage.is_empty() {
            let path = crate::paths::record(record.id);
            let detail = format!("table {index} has {tablets} tablets instead of {}", table.tablets);
            found.note(crate::destination::damaged(&path, detail))?;
        }
    }
    Ok(())
}

async fn read_files(
    destination: &Destination,
    listed: BTreeMap<StoredFile, ListedFile>,
    work: &Arc<Work>,
    found: &mut Found,
) -> Result<()> {
    let reading = listed
        .into_values()
        .map(|file| copy::check_listed(work, destination, file));
    let mut reading = futures::stream::iter(reading).buffer_unordered(work.parallel());
    while let Some(read) = reading.next().await {
        if let Err(error) = read {
            found.note(error)?;
        }
    }
    Ok(())
}
