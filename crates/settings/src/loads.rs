//! Settings of bulk loads.

use super::{Place, Setting, parse_options};
use anyhow::{Context, bail};
use std::path::PathBuf;
use stele_hdfs::HdfsAddress;
use stele_objects::Address;

/// The flags.
#[derive(clap::Args, Default)]
pub struct LoadArgs {
    /// Folder whose HFiles bulk loads may read: file:///DIR, s3://, gs:// or az://BUCKET/PREFIX, or hdfs://HOST:PORT/DIR; may
    /// be repeated [default: none, no bulk loads]
    #[arg(long, env = "STELE_BULK_LOAD_ROOT", value_name = "URL", value_delimiter = ',')]
    bulk_load_root: Vec<String>,
    /// Setting of the object store or of HDFS of these folders; may be repeated
    #[arg(
        long,
        env = "STELE_BULK_LOAD_OPTION",
        value_name = "KEY=VALUE",
        value_delimiter = ','
    )]
    bulk_load_option: Vec<String>,
}

/// Their descriptions.
pub(super) const SETTINGS: [Setting; 2] = [
    Setting {
        key: "bulk_load_root",
        meaning: "Folders whose HFiles bulk loads of HBase clients may read. A caller that may write to a table can load, and then \
                  read, every HFile below them. Without one no bulk load is served.",
        unit: "file:///folder, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, hdfs://host:port/directory; \
               several separated by commas",
        default: "",
        range: "empty for none",
    },
    Setting {
        key: "bulk_load_option",
        meaning: "Settings of the object store or of HDFS of bulk_load_root, as data_option has those of data.",
        unit: "key=value, several separated by commas",
        default: "",
        range: "",
    },
];

impl LoadArgs {
    /// The folders that bulk loads may read.
    pub(super) fn resolve(&self, text: &impl Fn(&str, &Option<String>) -> String) -> anyhow::Result<Vec<Place>> {
        let joined = |values: &[String]| (!values.is_empty()).then(|| values.join(","));
        let options = text("bulk_load_option", &joined(&self.bulk_load_option));
        let options = parse_options(&options).context("bulk_load_option")?;
        let roots = text("bulk_load_root", &joined(&self.bulk_load_root));
        let roots = roots.split(',').map(str::trim).filter(|root| !root.is_empty());
        roots
            .map(|root| parse_root(root, &options).context("bulk_load_root"))
            .collect()
    }
}

fn parse_root(text: &str, options: &[(String, String)]) -> anyhow::Result<Place> {
    if Address::is_one(text) {
        return Ok(Place::Objects(Address::parse(text, options)?));
    }
    if HdfsAddress::is_one(text) {
        return Ok(Place::Hdfs(HdfsAddress::parse(text, options)?));
    }
    let path = text.strip_prefix("file://").unwrap_or(text);
    if path.contains("://") {
        bail!("{text:?} has none of the schemes file://, s3://, gs://, az:// and hdfs://");
    }
    match PathBuf::from(path) {
        folder if folder.is_absolute() && folder.parent().is_some() => Ok(Place::Folder(folder)),
        _ => bail!("{text:?} is not the absolute path of a folder below /"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_folders_and_addresses() {
        let parse = |text: &str| parse_root(text, &[]).map(|root| root.to_string());
        for (given, shown) in [
            ("file:///var/stage", "/var/stage"),
            ("/var/stage", "/var/stage"),
            ("s3://bucket/stage", "s3://bucket/stage"),
            ("hdfs://host:1/stage", "hdfs://host:1/stage"),
        ] {
            assert_eq!(parse(given).unwrap(), shown);
        }
        for (bad, why) in [
            ("stage", "absolute"),
            ("/", "absolute"),
            ("file://", "absolute"),
            ("ftp://host/x", "schemes"),
            ("hdfs://host:1", "no directory"),
        ] {
            let error = format!("{:#}", parse(bad).unwrap_err());
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn several_are_separated_by_commas() {
        let args = LoadArgs {
            bulk_load_root: vec!["/a".into(), "/b".into()],
            ..LoadArgs::default()
        };
        let text = |_: &str, flag: &Option<String>| flag.clone().unwrap_or_default();
        assert_eq!(args.resolve(&text).unwrap().len(), 2);
        assert!(LoadArgs::default().resolve(&text).unwrap().is_empty());
    }
}
