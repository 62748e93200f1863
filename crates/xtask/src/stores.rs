//! Object stores for tests, and the tests on each of them.
//!
//! They listen on loopback only, and begin empty.
//!
//! | store | its stand-in |
//! |---|---|
//! | S3 | versitygw over a folder, a real server: conditional puts, ranges, uploads in pieces and listings as S3 has them |
//! | Azure Blob Storage | Azurite, the emulator of its makers |
//! | Google Cloud Storage | `tests/clients/go/cmd/gcs`, written from the reference of its XML API |
//!
//! * [`conformance`]: the storage suite and the fencing tests, over the network.
//! * [`survive`]: acknowledged rows outlive SIGKILL and an empty local disk.
//! * [`zombie`]: a second server takes over while the first is written to.

mod azure;
mod gcs;
mod s3;

use crate::cargo_tests;
use crate::hosts::Host;
use crate::remote::{self, Remote};
use crate::server::{Process, Scratch};
use crate::tally::Tally;
use crate::zombie as takeover;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// The bucket, or container, in each of them.
const BUCKET: &str = "stele";

/// Whose store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Amazon's, and other stores with its protocol.
    S3,
    /// Google's.
    Gcs,
    /// Microsoft's.
    Azure,
}

impl Service {
    /// Whether the machine can run one.
    pub fn available(self) -> bool {
        match self {
            Service::S3 | Service::Gcs => true,
            Service::Azure => azure::available(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Service::S3 => "s3",
            Service::Gcs => "gcs",
            Service::Azure => "azure",
        }
    }

    fn start(self, scratch: &Scratch) -> Result<Store> {
        match self {
            Service::S3 => s3::start(scratch, &Host::local()),
            Service::Gcs => gcs::start(scratch),
            Service::Azure => azure::start(scratch),
        }
    }
}

/// A running store with an empty bucket; killed when dropped.
pub struct Store {
    process: Process,
    /// Such as `s3://bucket`.
    url: String,
    /// The value of `--data-option`.
    options: String,
    /// Where the objects of the bucket are, each in a file of its name, where the store keeps them so.
    folder: Option<PathBuf>,
}

impl Store {
    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Such as `s3://bucket`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The value of `--data-option`.
    pub fn options(&self) -> &str {
        &self.options
    }
}

/// An empty S3 server on this host.
pub fn start_s3(scratch: &Scratch, host: &Host) -> Result<Store> {
    s3::start(scratch, host)
}

impl Remote for Store {
    fn data(&self, prefix: &str) -> PathBuf {
        PathBuf::from(format!("{}/{prefix}", self.url))
    }

    fn arguments(&self) -> Vec<String> {
        vec!["--data-option".to_owned(), self.options.clone()]
    }
}

/// The storage suite and the fencing tests, and on S3 the repairing of damaged objects, and backups.
pub fn conformance(service: Service) -> Result<Tally> {
    let scratch = Scratch::new(service.name())?;
    let store = service.start(&scratch)?;
    let folder = store.folder.clone().unwrap_or_default();
    let environment = [
        ("STELE_TEST_STORE", Path::new(&store.url)),
        ("STELE_TEST_STORE_OPTIONS", Path::new(&store.options)),
        ("STELE_TEST_STORE_FOLDER", &folder),
    ];
    let mut tally = cargo_tests::run_one("objects::services", None, &environment)?;
    if store.folder.is_some() {
        tally.add(cargo_tests::run_one("server::all", Some("s3::"), &environment)?);
    }
    if tally.failed == 0 {
        scratch.passed();
    }
    Ok(tally)
}

/// Whether `rows` acknowledged rows are all there after SIGKILL and a start with an empty cache folder.
pub fn survive(service: Service, rows: u64) -> Result<bool> {
    let scratch = Scratch::new(&format!("{}-survive", service.name()))?;
    let store = service.start(&scratch)?;
    let passed = remote::survive(&store, &scratch, rows)?;
    if passed {
        scratch.passed();
    }
    Ok(passed)
}

/// Whether no acknowledged write is lost while servers take one prefix from each other.
pub fn zombie(service: Service, rounds: u32) -> Result<bool> {
    let scratch = Scratch::new(&format!("{}-zombie", service.name()))?;
    let store = service.start(&scratch)?;
    let passed = takeover::run(&store, &scratch, rounds)?;
    if passed {
        scratch.passed();
    }
    Ok(passed)
}
