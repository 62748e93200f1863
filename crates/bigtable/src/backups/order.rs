//! The order and the pages of listed backups.

use crate::pb::admin;
use crate::status::invalid;
use std::cmp::Ordering;
use tonic::Status;

/// Most backups in a response; the default, too.
const PAGE_MAX: usize = 1_000;

/// Bytes of an `order_by`. All fields with their directions take 125.
const BYTES_MAX: usize = 1 << 10;

/// A field to order by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Name,
    SourceTable,
    ExpireTime,
    StartTime,
    EndTime,
    SizeBytes,
    State,
}

/// Sorts backups as `order_by` says: fields with or without ` desc`, separated by commas. By default the newest is first.
pub(crate) fn sort(backups: &mut [admin::Backup], order_by: &str) -> Result<(), Status> {
    if order_by.len() > BYTES_MAX {
        return Err(invalid(format!("order_by has at most {BYTES_MAX} bytes")));
    }
    let mut keys: Vec<(Key, bool)> = Vec::new();
    for part in order_by.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let mut words = part.split_whitespace();
        let key = words.next().and_then(key_of);
        let descends = match words.next() {
            None => Some(false),
            Some(word) if word.eq_ignore_ascii_case("asc") => Some(false),
            Some(word) if word.eq_ignore_ascii_case("desc") => Some(true),
            Some(_) => None,
        };
        match (key, descends, words.next()) {
            // A field that is named again orders nothing: backups are equal in it by then.
            (Some(key), Some(_), None) if keys.iter().any(|(known, _)| *known == key) => {}
            (Some(key), Some(descends), None) => keys.push((key, descends)),
            _ => return Err(invalid(format!("order_by cannot be \"{part}\""))),
        }
    }
    if keys.is_empty() {
        keys.push((Key::StartTime, true));
    }
    // Names make the order total, so that pages do not overlap.
    keys.push((Key::Name, false));
    backups.sort_by(|a, b| {
        let by = |(key, descends): &(Key, bool)| {
            let order = compare(*key, a, b);
            if *descends { order.reverse() } else { order }
        };
        keys.iter()
            .map(by)
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    });
    Ok(())
}

fn key_of(word: &str) -> Option<Key> {
    Some(match word {
        "name" => Key::Name,
        "source_table" => Key::SourceTable,
        "expire_time" => Key::ExpireTime,
        "start_time" => Key::StartTime,
        "end_time" => Key::EndTime,
        "size_bytes" => Key::SizeBytes,
        "state" => Key::State,
        _ => return None,
    })
}

fn compare(key: Key, a: &admin::Backup, b: &admin::Backup) -> Ordering {
    let time = |time: &Option<prost_types::Timestamp>| time.as_ref().map(|time| (time.seconds, time.nanos));
    match key {
        Key::Name => a.name.cmp(&b.name),
        Key::SourceTable => a.source_table.cmp(&b.source_table),
        Key::ExpireTime => time(&a.expire_time).cmp(&time(&b.expire_time)),
        Key::StartTime => time(&a.start_time).cmp(&time(&b.start_time)),
        Key::EndTime => time(&a.end_time).cmp(&time(&b.end_time)),
        Key::SizeBytes => a.size_bytes.cmp(&b.size_bytes),
        Key::State => a.state.cmp(&b.state),
    }
}

/// A page of sorted backups, and the token of the next. A token is the name of the last backup of its page, with its place
/// in case it is deleted meanwhile.
pub(crate) fn page(
    backups: Vec<admin::Backup>,
    page_size: i32,
    page_token: &str,
) -> Result<admin::ListBackupsResponse, Status> {
    let begin = match page_token.split_once(':') {
        None if page_token.is_empty() => 0,
        None => return Err(bad_token(page_token)),
        Some((place, name)) => {
            let place: usize = place.parse().map_err(|_| bad_token(page_token))?;
            let found = backups.iter().position(|backup| backup.name == name);
            found.map_or(place, |found| found + 1)
        }
    };
    let size = usize::try_from(page_size)
        .ok()
        .filter(|size| *size > 0)
        .map_or(PAGE_MAX, |size| size.min(PAGE_MAX));
    let end = begin.saturating_add(size);
    let is_last = end >= backups.len();
    let page: Vec<admin::Backup> = backups.into_iter().skip(begin).take(size).collect();
    let next_page_token = match page.last() {
        Some(last) if !is_last => format!("{end}:{}", last.name),
        _ => String::new(),
    };
    Ok(admin::ListBackupsResponse {
        backups: page,
        next_page_token,
    })
}

fn bad_token(token: &str) -> Status {
    invalid(format!("page_token {token:?} is not one of a former response"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::timestamp_of;

    fn backups() -> Vec<admin::Backup> {
        let backup = |name: &str, start, size| admin::Backup {
            name: name.to_owned(),
            start_time: Some(timestamp_of(start)),
            size_bytes: size,
            ..admin::Backup::default()
        };
        vec![backup("b", 2, 7), backup("a", 1, 7), backup("c", 3, 5)]
    }

    fn sorted(order_by: &str) -> String {
        let mut all = backups();
        sort(&mut all, order_by).unwrap();
        all.into_iter().map(|backup| backup.name).collect()
    }

    #[test]
    fn backups_are_ordered_by_any_field() {
        assert_eq!(sorted(""), "cba");
        assert_eq!(sorted("start_time"), "abc");
        assert_eq!(sorted(" size_bytes  desc , name desc"), "bac");
        assert_eq!(sorted("size_bytes"), "cab");
        assert_eq!(sorted("size_bytes, name desc, size_bytes desc, name"), "cba");
        let long = format!("name{}", ",name".repeat(BYTES_MAX / 5 + 1));
        for bad in ["labels", "name down", "name desc desc", &long] {
            assert!(sort(&mut backups(), bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn pages_go_on_after_the_last_name() {
        let first = page(backups(), 2, "").unwrap();
        assert_eq!(first.backups.len(), 2);
        let mut without_last = backups();
        without_last.remove(1);
        for (all, left) in [(backups(), 1), (without_last, 0)] {
            let rest = page(all, 2, &first.next_page_token).unwrap();
            assert_eq!((rest.backups.len(), rest.next_page_token.as_str()), (left, ""));
        }
        assert_eq!(page(backups(), -1, "").unwrap().backups.len(), 3);
        assert!(page(backups(), 1, "x").is_err() && page(backups(), 1, "x:y").is_err());
    }
}
