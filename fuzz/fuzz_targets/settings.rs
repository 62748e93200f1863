//! Settings as people write them: configuration files, options, places, sizes and times.
//!
//! They are refused or keep their meaning when they are written out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::time::Duration;
use stele_etcd::EtcdAddress;
use stele_settings::{Place, sizes};

/// The integers that a float represents exactly.
const EXACT_MAX: u64 = 1 << 53;

const UNITS: [(&str, u64); 16] = [
    ("", 1),
    ("B", 1),
    ("k", 1_000),
    ("kB", 1_000),
    ("KB", 1_000),
    ("M", 1_000_000),
    ("MB", 1_000_000),
    ("G", 1_000_000_000),
    ("GB", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("TB", 1_000_000_000_000),
    ("K", 1 << 10),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    value(text);
    place(text);
    etcd(text);
    let Ok(values) = stele_settings::parse_file(text) else {
        return;
    };
    let line = |(key, value): (&String, &String)| format!("{key} = {}\n", toml::Value::String(value.clone()));
    let again: String = values.iter().map(line).collect();
    assert_eq!(stele_settings::parse_file(&again).expect("what was written out"), values);
    values.values().for_each(|text| value(text));
});

/// A value of any setting.
fn value(text: &str) {
    size(text);
    if let Ok(time) = stele_settings::parse_seconds("key", text) {
        assert!(time <= Duration::from_secs(3600));
        let written = format!("{}s", time.as_secs());
        assert_eq!(stele_settings::parse_seconds("key", &written).expect("what was written out"), time);
    }
    if let Ok(options) = stele_settings::parse_options(text) {
        let given = text.split(',').filter(|option| !option.trim().is_empty());
        assert_eq!(options.len(), given.count());
        for (key, value) in &options {
            assert!(
                !key.is_empty() && key == key.trim() && value == value.trim(),
                "{key:?}={value:?}"
            );
        }
        let written = options.iter().map(|(key, value)| format!("{key}={value}"));
        let written = written.collect::<Vec<_>>().join(",");
        assert_eq!(stele_settings::parse_options(&written).expect("what was written out"), options);
    }
}

fn size(text: &str) {
    if let Ok(bytes) = sizes::parse_bytes(text) {
        let shown = sizes::parse_bytes(&sizes::show_bytes(bytes)).expect("what is shown");
        // Of three digits and more the last is rounded, or of less the one behind the point.
        assert!(shown.abs_diff(bytes) <= bytes / 20 + 1, "{text:?} is shown as {shown}");
        if bytes <= EXACT_MAX {
            assert_eq!(sizes::parse_bytes(&bytes.to_string()), Ok(bytes));
        }
    }
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let scale = UNITS.iter().find(|(name, _)| *name == unit.trim());
    if let (Ok(number), Some((_, scale))) = (number.parse::<u64>(), scale)
        && let Some(bytes) = number.checked_mul(*scale).filter(|bytes| *bytes <= EXACT_MAX)
    {
        assert_eq!(sizes::parse_bytes(text), Ok(bytes));
    }
    for whole in [0, 1_000, 1 << 40] {
        if let Ok(share) = sizes::parse_share(text, whole) {
            assert!(!trimmed.ends_with('%') || share <= whole, "{text:?} of {whole}");
        }
    }
}

/// An address of etcd.
fn etcd(text: &str) {
    if let Ok(address) = EtcdAddress::parse(text) {
        assert!(EtcdAddress::is_one(text));
        assert!(!address.members().is_empty() && !address.name().is_empty());
        assert_eq!(EtcdAddress::parse(&address.to_string()), Ok(address));
    }
}

/// An address, and options in the lines behind it; not of an object store, whose options name files to read.
fn place(text: &str) {
    let (address, options) = text.split_once('\n').unwrap_or((text, ""));
    let is_store = ["s3://", "gs://", "az://"]
        .iter()
        .any(|scheme| address.starts_with(scheme));
    let options = stele_settings::parse_options(options).unwrap_or_default();
    let options = if is_store { &[] } else { &options[..] };
    match stele_settings::parse_place(address, options) {
        Ok(Place::Folder(folder)) => assert_eq!(folder, Path::new(address)),
        Ok(Place::Objects(found)) => assert!(is_store && found.to_string() == address),
        Ok(found @ Place::Hdfs(_)) => {
            let again = stele_settings::parse_place(&found.to_string(), options).expect("what was written out");
            assert_eq!(format!("{again:?}"), format!("{found:?}"));
            assert!(address.trim_end_matches('/') == found.to_string());
        }
        Err(_) => {}
    }
}
