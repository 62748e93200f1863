//! Lists keys in pages, all as of one revision.

use crate::failure::Failure;
use crate::keys::Keys;
use crate::members::Members;
use crate::messages::{Headed, KeyValue, RangeRequest, RangeResponse};
use crate::transaction::{number, unexpected};
use bytes::Bytes;
use stele_coord::{CoordError, Result, Versioned};

/// Keys of a page. At a few hundred bytes each, as in the catalog, a page has a fifth of a MiB.
const PAGE_KEYS: i64 = 512;
/// Lists that begin again because their revision was compacted. etcd compacts every few minutes; a list takes seconds.
const COMPACTIONS_MAX: u32 = 3;

/// Bytes of a list. Nothing counts all bytes in etcd before they are written but its own quota, which is 2 GiB unless it is raised. A
/// list that refuses less would keep every server from starting.
const LIST_BYTES_MAX: usize = 2 << 30;

type Entries = Vec<(String, Versioned)>;

/// A page, or the reason why there is none.
enum Page {
    Read(RangeResponse),
    TooLarge,
    Compacted,
}

/// All keys that begin with `prefix`, sorted.
pub(crate) async fn list(members: &Members, keys: &Keys, prefix: &str) -> Result<Entries> {
    for _ in 0..=COMPACTIONS_MAX {
        if let Some(entries) = list_once(members, keys, prefix).await? {
            return Ok(entries);
        }
    }
    Err(CoordError::Unavailable {
        message: format!("the revision of a list was compacted {COMPACTIONS_MAX} times"),
    })
}

/// `None` if the revision was compacted meanwhile.
async fn list_once(members: &Members, keys: &Keys, prefix: &str) -> Result<Option<Entries>> {
    let (mut start, end) = keys.range(prefix);
    let (mut entries, mut bytes) = (Entries::new(), 0);
    let (mut revision, mut limit) = (0, PAGE_KEYS);
    loop {
        let request = RangeRequest {
            key: start.clone(),
            range_end: end.clone(),
            limit,
            revision,
            ..RangeRequest::default()
        };
        let page = match read(members, request).await? {
            Page::Read(page) => page,
            Page::Compacted => return Ok(None),
            // One value always fits: a transaction has 1 MiB, a response may have 4.
            Page::TooLarge if limit > 1 => {
                limit = (limit / 4).max(1);
                continue;
            }
            Page::TooLarge => return Err(unexpected("a value of more than 4 MiB")),
        };
        revision = match revision {
            0 => page.revision(),
            same => same,
        };
        for kv in &page.kvs {
            bytes += kv.key.len() + kv.value.len();
            entries.push(entry(keys, kv)?);
        }
        if bytes > LIST_BYTES_MAX {
            return Err(CoordError::Full {
                message: format!("a list of more than {LIST_BYTES_MAX} bytes of keys and values"),
            });
        }
        match page.kvs.last() {
            Some(last) if page.more => start = after(&last.key),
            None if page.more => return Err(unexpected("an empty page before others")),
            _ => return Ok(Some(entries)),
        }
    }
}

async fn read(members: &Members, request: RangeRequest) -> Result<Page> {
    let page = members.repeat(members.deadline(), |member| {
        let request = request.clone();
        async move { member.range(request).await }
    });
    match page.await {
        Ok(page) => Ok(Page::Read(page)),
        Err(Failure::TooLarge) => Ok(Page::TooLarge),
        Err(Failure::Compacted) => Ok(Page::Compacted),
        Err(other) => Err(other.into_error()),
    }
}

/// A key and its value as their users know them.
pub(crate) fn entry(keys: &Keys, kv: &KeyValue) -> Result<(String, Versioned)> {
    let key = keys.shown(&kv.key).ok_or_else(|| CoordError::BadValue {
        key: kv.key.escape_ascii().to_string(),
        expected: "a key in UTF-8",
        found: "other bytes".to_owned(),
    })?;
    let current = Versioned {
        value: kv.value.clone(),
        version: number(kv.mod_revision)?,
    };
    Ok((key, current))
}

/// The smallest key after this one.
fn after(key: &[u8]) -> Bytes {
    let mut next = key.to_vec();
    next.push(0);
    Bytes::from(next)
}
