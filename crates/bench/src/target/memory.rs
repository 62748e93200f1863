//! `memory://NAME`: a table store inside the bench's own process, to test the bench itself.
//!
//! Every operation fulfils the contract of a target, so that any error over it is the bench's fault. It is not a
//! server: there is no wire, and its figures mean nothing. Stores are shared by name within one process, and live as
//! long as it does.
//!
//! Every call yields once to other tasks, as a call over a socket would. Otherwise a closed loop of clients on one
//! thread would delay that thread's timers.
//!
//! Timestamps count writes. A store refuses writes beyond [`STORE_BYTES_MAX`].

mod store;

use super::{Columns, Connection, Put, Result, Row, Scan, TableSpec, Target, TargetError, TargetUrl};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, LazyLock};
use store::{Family, Table};

/// Most bytes of keys and values in one store. Tests need megabytes. A real experiment sent here by mistake must end
/// with an error before the machine's memory is exhausted.
pub const STORE_BYTES_MAX: u64 = 1 << 30;

/// Stores of one process at most.
const STORES_MAX: usize = 4096;

/// Rows read from a table under one acquisition of its lock.
const SCAN_ROWS: usize = 128;

/// All stores of this process by name.
static STORES: LazyLock<Mutex<HashMap<String, Arc<Store>>>> = LazyLock::new(Mutex::default);

/// A store: its tables by name.
#[derive(Default)]
struct Store {
    tables: Mutex<BTreeMap<String, Arc<Mutex<Table>>>>,
}

impl Store {
    fn table(&self, name: &str) -> Result<Arc<Mutex<Table>>> {
        let table = self.tables.lock().get(name).cloned();
        table.ok_or_else(|| TargetError::Refused(format!("no table {name:?}")))
    }

    /// Checks that `bytes` more fit into the store.
    fn admit(&self, bytes: u64) -> Result<()> {
        let tables: Vec<_> = self.tables.lock().values().cloned().collect();
        let held: u64 = tables.iter().map(|table| table.lock().bytes()).sum();
        if held + bytes > STORE_BYTES_MAX {
            Err(TargetError::Refused(format!(
                "more than {STORE_BYTES_MAX} bytes in a memory store"
            )))
        } else {
            Ok(())
        }
    }
}

/// A store under its name in charts.
struct MemoryTarget {
    name: String,
    store: Arc<Store>,
}

/// The store of this name, created if there is none yet.
///
/// # Errors
/// An address without a name, or too many stores.
pub fn open(url: &TargetUrl) -> Result<Arc<dyn Target>> {
    url.allow_parameters(&[])?;
    if url.host.is_empty() {
        return Err(TargetError::Unsupported(
            "memory:// needs a name, as in memory://test".into(),
        ));
    }
    let name = url.name_or("memory")?;
    let mut stores = STORES.lock();
    if stores.len() >= STORES_MAX && !stores.contains_key(&url.host) {
        return Err(TargetError::Refused(format!("more than {STORES_MAX} memory stores")));
    }
    let store = stores.entry(url.host.clone()).or_default().clone();
    Ok(Arc::new(MemoryTarget { name, store }))
}

#[async_trait]
impl Target for MemoryTarget {
    fn name(&self) -> &str {
        &self.name
    }

    async fn create_table(&self, table: &TableSpec) -> Result<()> {
        if table.families.is_empty() {
            return Err(TargetError::Refused(format!("table {:?} has no family", table.name)));
        }
        let mut tables = self.store.tables.lock();
        if tables.contains_key(&table.name) {
            return Err(TargetError::Refused(format!("table {:?} exists", table.name)));
        }
        tables.insert(table.name.clone(), Arc::new(Mutex::new(Table::new(table))));
        Ok(())
    }

    async fn drop_table(&self, name: &str) -> Result<()> {
        self.store.tables.lock().remove(name);
        Ok(())
    }

    async fn flush_table(&self, name: &str) -> Result<()> {
        self.store.table(name).map(drop)
    }

    async fn connect(&self) -> Result<Arc<dyn Connection>> {
        let store = self.store.clone();
        Ok(Arc::new(MemoryConnection { store }))
    }

    async fn describe(&self) -> Result<Vec<(String, String)>> {
        Ok(vec![("store".into(), "a map in the bench's own process".into())])
    }
}

/// A connection to a store. It has no state of its own.
struct MemoryConnection {
    store: Arc<Store>,
}

impl MemoryConnection {
    /// Yields, as a call over a socket does, and finds the table.
    async fn table(&self, name: &str) -> Result<Arc<Mutex<Table>>> {
        tokio::task::yield_now().await;
        self.store.table(name)
    }
}

#[async_trait]
impl Connection for MemoryConnection {
    async fn put(&self, table: &str, put: Put) -> Result<()> {
        let table = self.table(table).await?;
        self.store.admit(put.volume())?;
        table.lock().put(put)
    }

    async fn put_many(&self, table: &str, puts: Vec<Put>) -> Result<()> {
        let table = self.table(table).await?;
        self.store.admit(puts.iter().map(Put::volume).sum())?;
        let mut table = table.lock();
        puts.into_iter().try_for_each(|put| table.put(put))
    }

    async fn get(&self, table: &str, key: Bytes, columns: &Columns) -> Result<Option<Row>> {
        let table = self.table(table).await?;
        let table = table.lock();
        Ok(table.row(&key, columns))
    }

    async fn scan(
        &self,
        table: &str,
        scan: &Scan,
        sink: &mut (dyn for<'r> FnMut(&'r Row) -> ControlFlow<()> + Send),
    ) -> Result<()> {
        let mut left = scan.limit.unwrap_or(u64::MAX);
        let mut from = Bound::Included(scan.start.clone());
        while left > 0 {
            let table = self.table(table).await?;
            let most = SCAN_ROWS.min(usize::try_from(left).unwrap_or(usize::MAX));
            let (rows, seen) = table.lock().rows(from, &scan.end, &scan.columns, most);
            left -= rows.len() as u64;
            if rows.iter().any(|row| sink(row).is_break()) {
                return Ok(());
            }
            match seen {
                Some(last) => from = Bound::Excluded(last),
                None => return Ok(()),
            }
        }
        Ok(())
    }

    async fn increment(&self, table: &str, key: Bytes, family: &str, qualifier: Bytes, by: i64) -> Result<i64> {
        let table = self.table(table).await?;
        let mut table = table.lock();
        let old = match table.newest(&key, family, &qualifier)? {
            None => 0,
            Some(value) => i64::from_be_bytes(value.as_ref().try_into().map_err(|_| {
                TargetError::Refused(format!("a counter has 8 bytes, and this column has {}", value.len()))
            })?),
        };
        let new = old.wrapping_add(by);
        let value = Bytes::copy_from_slice(&new.to_be_bytes());
        table.put(Put {
            key,
            cells: vec![(Family::from(family), qualifier, value)],
        })?;
        Ok(new)
    }

    async fn check_and_put(
        &self,
        table: &str,
        family: &str,
        qualifier: Bytes,
        expected: Option<Bytes>,
        put: Put,
    ) -> Result<bool> {
        let table = self.table(table).await?;
        self.store.admit(put.volume())?;
        let mut table = table.lock();
        let equal = table.newest(&put.key, family, &qualifier)? == expected;
        if equal {
            table.put(put)?;
        }
        Ok(equal)
    }

    async fn delete(&self, table: &str, key: Bytes, family: Option<&str>, qualifiers: &[Bytes]) -> Result<()> {
        let table = self.table(table).await?;
        table.lock().delete(&key, family, qualifiers)
    }

    fn retries(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests;
