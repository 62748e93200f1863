//! Verifies a backup.
//!
//! Every file is read and compared with its checksum, and the documents with each other. If that is asked for, the rows of each
//! table are read as well, and their digest is compared with the one that was noted when the backup was made.

use crate::copy;
use crate::destination::Destination;
use crate::digest::{self, Digesting, TableDigest};
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

/// Reads all files of a backup, and with `digests` the rows of all tables; the damage that was found.
pub async fn verify(destination: &Destination, name: &str, digests: bool, work: &Arc<Work>) -> Result<BackupOutcome> {
    work.begin("reading the backup")?;
    let attempt = Destination::complete(&destination.state().await?, name)?.attempt();
    let mut found = Found::default();
    match destination.record(attempt).await {
        Ok(record) => {
            let listed = listed_files(destination, &record, &mut found).await?;
            work.expect(listed.len() as u64, listed.values().map(|file| file.len).sum());
            check_tables(destination, &record, &listed, &mut found).await?;
            work.begin("reading files")?;
            read_files(destination, &listed, work, &mut found).await?;
            if digests {
                work.begin("reading rows")?;
                compare_rows(destination, &record, listed, work, &mut found).await?;
            }
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
        match destination.list(record.attempt(), number).await {
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
            let path = crate::paths::record(record.attempt());
            found.note(crate::destination::damaged(&path, format!("table {index}: {why}")))?;
        }
        let mut tablets = 0;
        for number in 0..table.parts {
            let part = match destination.part(record.attempt(), index, number).await {
                Ok(part) => part,
                Err(error) => {
                    found.note(error)?;
                    continue;
                }
            };
            tablets += part.tablets.len() as u64;
            for (file, len) in part.stored() {
                if listed.get(&file).is_none_or(|listed| listed.len != len) {
                    let path = crate::paths::part(record.attempt(), index, number);
                    let detail = format!("it names {} of {len} bytes, and no list does", file.path());
                    found.note(crate::destination::damaged(&path, detail))?;
                }
            }
        }
        if tablets != table.tablets && found.damage.is_empty() {
            let path = crate::paths::record(record.attempt());
            let detail = format!("table {index} has {tablets} tablets instead of {}", table.tablets);
            found.note(crate::destination::damaged(&path, detail))?;
        }
    }
    Ok(())
}

/// Compares the digests of the rows with those that were noted.
async fn compare_rows(
    destination: &Destination,
    record: &Record,
    listed: BTreeMap<StoredFile, ListedFile>,
    work: &Arc<Work>,
    found: &mut Found,
) -> Result<()> {
    let (path, listed) = (crate::paths::record(record.attempt()), Arc::new(listed));
    for (index, table) in (0..).zip(&record.tables) {
        let noted = TableDigest::noted(table).ok_or_else(|| BackupError::NoDigests(record.name.clone()))?;
        // One that cannot be decoded was reported before.
        let Ok((schema, _)) = stele_catalog::record::decode_table(&table.table) else {
            continue;
        };
        let schema = Arc::new(schema);
        work.expect(0, table.bytes);
        let mut digesting = Digesting::of_backup(work, destination, &listed, schema.clone(), table.completed_micros);
        match add_tablets(destination, (record, index), &mut digesting).await {
            Ok(()) => {
                let digest = digesting.finish();
                if digest != noted {
                    found.note(digest::differs(&path, &schema, &noted, &digest))?;
                }
            }
            Err(error) => found.note(error)?,
        }
    }
    Ok(())
}

async fn add_tablets(
    destination: &Destination,
    (record, index): (&Record, u32),
    digesting: &mut Digesting,
) -> Result<()> {
    let parts = record.tables.get(index as usize).map_or(0, |table| table.parts);
    for part in 0..parts {
        for manifest in destination.part(record.attempt(), index, part).await?.tablets {
            digesting.add(manifest).await?;
        }
    }
    Ok(())
}

async fn read_files(
    destination: &Destination,
    listed: &BTreeMap<StoredFile, ListedFile>,
    work: &Arc<Work>,
    found: &mut Found,
) -> Result<()> {
    let files: Vec<ListedFile> = listed.values().copied().collect();
    let reading = files
        .into_iter()
        .map(|file| copy::check_listed(work, destination, file));
    let mut reading = futures::stream::iter(reading).buffer_unordered(work.parallel());
    while let Some(read) = reading.next().await {
        if let Err(error) = read {
            found.note(error)?;
        }
    }
    Ok(())
}
