//! `stele cluster promote`: makes the data of a single server those of a new cluster.
//!
//! The steps, in this order:
//! 1. The command becomes the owner of the source as a start does, replays the commit log and flushes every tablet.
//! 2. It begins an attempt in the coordinator ([`stele_cluster::Promotion`]). From then on no server joins under this name.
//! 3. It copies the files that the catalog needs to the target, and compares each copy with its source ([`copying`]). Where the
//!    source itself becomes the data root of the cluster, nothing is copied.
//! 4. It writes the records of the catalog into the coordinator.
//! 5. It marks the source ([`marks`]) and makes sure that it still owns it. From then on no single server starts there.
//! 6. The target gets the `FORMAT` of a shared root, and the source one that says where its data are.
//! 7. The attempt finishes in the coordinator. From then on servers join.
//!
//! An interruption before step 5 leaves the data of the single server as usable as before. After it, another run takes the last
//! steps again. At no moment can both be served.

pub mod copying;
mod steps;

use crate::check::report::Progress;
use crate::data_dir::marks::{self, Source};
use crate::encryption::{KeyArgs, Keys};
use crate::security::EtcdCredentials;
use crate::{data_dir, logging, open_files};
use anyhow::{Context, bail};
use std::process::ExitCode;
use std::sync::Arc;
use stele_cluster::Promotion;
use stele_coord::Coord;
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_etcd::{EtcdAddress, EtcdCoord};
use stele_settings::{EtcdArgs, Place, parse_options, parse_place, sizes};
use steps::{Names, Task};

/// Files copied concurrently: each waits for the store most of the time, and holds a few megabytes.
const PARALLEL: u64 = 8;
/// More would only take memory: stores limit requests of one client.
const PARALLEL_MAX: u64 = 256;

/// The flags of `stele cluster promote`.
#[derive(clap::Args)]
pub struct PromoteArgs {
    /// The data of the stopped server: a folder, s3://, gs:// or az://BUCKET/PREFIX, or hdfs://NAMENODE/DIR
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Where the cluster will have its data: s3://, gs:// or az://BUCKET/PREFIX, or hdfs://NAMENODE/DIR; empty. SOURCE itself if
    /// not given
    #[arg(value_name = "TARGET")]
    target: Option<String>,
    /// Coordinator of the new cluster, etcd:// or etcds://HOST:PORT,…/NAME
    #[arg(long, env = "STELE_CLUSTER", value_name = "URL")]
    cluster: String,
    /// Setting of the store of SOURCE, such as endpoint=https://store:9000; may be repeated
    #[arg(long, env = "STELE_DATA_OPTION", value_name = "KEY=VALUE", value_delimiter = ',')]
    data_option: Vec<String>,
    /// Setting of the store of TARGET; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    target_option: Vec<String>,
    /// Files copied concurrently
    #[arg(long, value_name = "N", default_value_t = PARALLEL, value_parser = clap::value_parser!(u64).range(1..=PARALLEL_MAX))]
    parallel: u64,
    /// Memory for the replay of the commit log, in bytes or percent of the machine
    #[arg(long, env = "STELE_MEMORY", value_name = "BYTES|PERCENT", default_value = "50%")]
    memory: String,
    /// Sends the password of etcd as plain text to other machines
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    etcd: EtcdArgs,
    #[command(flatten)]
    keys: KeyArgs,
}

impl PromoteArgs {
    /// The source, and the target if it is another place.
    fn places(&self) -> anyhow::Result<(Place, Option<Place>)> {
        let options = |given: &[String]| parse_options(&given.join(","));
        let (own, others) = (options(&self.data_option)?, options(&self.target_option)?);
        let source = parse_place(&self.source, &own).context("SOURCE")?;
        let is_in_place = |target: &String| {
            target.trim_end_matches('/') == self.source.trim_end_matches('/') && (others.is_empty() || others == own)
        };
        let target = match self.target.as_ref().filter(|target| !is_in_place(target)) {
            Some(target) => Some(parse_place(target, &others).context("TARGET")?),
            None => None,
        };
        if let (Place::Folder(_), None) = (&source, &target) {
            bail!("the servers of a cluster cannot share a folder: give TARGET, in an object store or HDFS");
        }
        if let Some(Place::Folder(_)) = target {
            bail!("TARGET: the servers of a cluster cannot share a folder; give s3://, gs://, az:// or hdfs://");
        }
        Ok((source, target))
    }
}

/// Runs the command; the text to print.
pub async fn run(args: &PromoteArgs, env: Env) -> anyhow::Result<(ExitCode, String)> {
    logging::start("warn", false)?;
    open_files::raise_limit();
    let (source, target) = args.places()?;
    let coordinator = EtcdAddress::parse(&args.cluster).context("cluster")?;
    let files = args.etcd.files(&coordinator, args.insecure)?;
    let memory = sizes::parse_share(&args.memory, sizes::memory_of_machine());
    let memory = memory.map_err(|error| anyhow::anyhow!("memory: {error}"))?;
    let state = marks::source_at(&source, &env).await?;
    let (_, security) = EtcdCredentials::read(&files)?;
    let coord = EtcdCoord::connect(&coordinator, security, env.clone()).await;
    let coord: Arc<dyn Coord> = coord.with_context(|| coordinator.to_string())?;
    let names = Names {
        source: source.to_string(),
        target: target.as_ref().unwrap_or(&source).to_string(),
        cluster: coordinator.to_string(),
    };
    let parts = Parts {
        keys: args.keys.open(&env).await?,
        env,
        coord,
        names,
        memory,
        parallel: usize::try_from(args.parallel)?,
    };
    let text = match state {
        Source::Whole => parts.promote(&source, target.as_ref()).await?,
        Source::Left(mark) => {
            let storage = data_dir::open_beside(&source, parts.env.clone(), &parts.keys).await?;
            let target = parts.open_target(target.as_ref()).await?;
            parts.task(storage, target).end_after(&mark).await?
        }
    };
    Ok((ExitCode::SUCCESS, text))
}

/// Everything but the storages.
struct Parts {
    /// Of both places.
    keys: Keys,
    env: Env,
    coord: Arc<dyn Coord>,
    names: Names,
    memory: u64,
    parallel: usize,
}

impl Parts {
    /// Takes the source over. A refusal comes before that, as far as it can: it must not end a server.
    async fn promote(self, source: &Place, target: Option<&Place>) -> anyhow::Result<String> {
        let known = stele_cluster::promotion_of(&*self.coord).await?;
        if let Some(known) = known.as_ref().filter(|known| known.is_finished) {
            let (cluster, from) = (&self.names.cluster, &known.of.source);
            bail!("{cluster} is a cluster already, with data from {from}: give another name in --cluster");
        }
        Promotion::check_vacant(&*self.coord, known.is_some()).await?;
        if let Some(target) = target {
            data_dir::check_empty(target, &self.env).await?;
        }
        let data = data_dir::own(source, None, self.env.clone(), &Metrics::new(), &self.keys).await?;
        let target = self.open_target(target).await?;
        let outcome = self.task(data.storage.clone(), target).run().await;
        data.finish().await;
        outcome.map(|summary| summary.to_text())
    }

    async fn open_target(&self, target: Option<&Place>) -> anyhow::Result<Option<Arc<dyn stele_storage::Storage>>> {
        match target {
            None => Ok(None),
            Some(place) => {
                let opened = data_dir::open_beside(place, self.env.clone(), &self.keys).await;
                opened.map(Some).with_context(|| place.to_string())
            }
        }
    }

    fn task(&self, source: Arc<dyn stele_storage::Storage>, target: Option<Arc<dyn stele_storage::Storage>>) -> Task {
        Task {
            env: self.env.clone(),
            source,
            target,
            coord: self.coord.clone(),
            names: self.names.clone(),
            memory: self.memory,
            parallel: self.parallel,
            progress: Progress::saying("copied", self.env.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
