//! HBase's and Hadoop's configuration directory.
//!
//! Later wins: first our defaults, then the user's files (`--conf`), then places, last `--set`. Addresses and directories
//! come after the user's files because a configuration that was made for another cluster names that cluster's.

use super::options::Options;
use super::{DATANODE, DATANODE_HTTP, DATANODE_IPC, MASTER, NAMENODE, NAMENODE_HTTP, REGION, ZOOKEEPER};
use crate::rival::Place;
use crate::rival::site::Site;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

const HOST: &str = "127.0.0.1";

const CORE: &str = "core-site.xml";
const HDFS: &str = "hdfs-site.xml";
const HBASE: &str = "hbase-site.xml";

/// Where the user's files are kept, so that a part started later finds the same ones.
const USER_DIR: &str = "user";

/// Properties that say where things are.
pub const PLACEMENT: [&str; 29] = [
    "fs.defaultFS",
    "hadoop.tmp.dir",
    "hadoop.security.token.service.use_ip",
    "dfs.namenode.name.dir",
    "dfs.datanode.data.dir",
    "dfs.namenode.rpc-address",
    "dfs.namenode.http-address",
    "dfs.datanode.address",
    "dfs.datanode.ipc.address",
    "dfs.datanode.http.address",
    "dfs.datanode.hostname",
    "dfs.client.use.datanode.hostname",
    "dfs.namenode.datanode.registration.ip-hostname-check",
    "hbase.rootdir",
    "hbase.tmp.dir",
    "hbase.cluster.distributed",
    "hbase.zookeeper.quorum",
    "hbase.zookeeper.property.clientPort",
    "hbase.zookeeper.property.clientPortAddress",
    "hbase.zookeeper.property.dataDir",
    "hbase.master.hostname",
    "hbase.unsafe.regionserver.hostname",
    "hbase.master.ipc.address",
    "hbase.regionserver.ipc.address",
    "hbase.master.port",
    "hbase.regionserver.port",
    "hbase.master.info.port",
    "hbase.regionserver.info.port",
    "hbase.masters",
];

/// One logging back end for all. Level and stream are chosen on the command line of a JVM; the benchmark reports its
/// results by logging them.
const LOG4J: &str = "\
status = error
appender.out.type = Console
appender.out.name = OUT
appender.out.target = ${sys:rival.log.target:-SYSTEM_ERR}
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p [%t] %c{2}: %.1000m%n
rootLogger.level = ${sys:rival.log:-INFO}
rootLogger.appenderRef.out.ref = OUT
logger.benchmark.name = org.apache.hadoop.hbase.PerformanceEvaluation
logger.benchmark.level = INFO
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = ERROR
logger.zookeeper.name = org.apache.zookeeper
logger.zookeeper.level = WARN
logger.blocks.name = BlockStateChange
logger.blocks.level = WARN
logger.state.name = org.apache.hadoop.hdfs.StateChange
logger.state.level = WARN
logger.datanode.name = org.apache.hadoop.hdfs.server.datanode
logger.datanode.level = WARN
";

/// Where the NameNode keeps the file system's names.
pub fn name_dir(place: &Place) -> PathBuf {
    place.data().join("namenode")
}

/// Writes the directory again.
pub fn write(place: &Place, options: &Options, user: Option<&Path>) -> Result<()> {
    let conf = place.conf();
    fs::remove_dir_all(&conf)
        .and_then(|()| fs::create_dir_all(&conf))
        .with_context(|| format!("emptying {}", conf.display()))?;
    write_web_pages(&conf)?;
    write_file(&conf.join("log4j2.properties"), LOG4J)?;
    if let Some(user) = user {
        take_over(user, &conf)?;
    }
    let included = |file: &str| Some(conf.join(USER_DIR).join(file)).filter(|path| path.exists());
    write_file(&conf.join(CORE), &core(place, options, included(CORE).as_deref()).xml())?;
    write_file(&conf.join(HDFS), &hdfs(place, options, included(HDFS).as_deref()).xml())?;
    write_file(
        &conf.join(HBASE),
        &hbase(place, options, included(HBASE).as_deref()).xml(),
    )
}

/// Hadoop's servers insist on the directories of their web pages, which are not in the published jars.
fn write_web_pages(conf: &Path) -> Result<()> {
    for page in ["hdfs", "datanode", "static"] {
        let dir = conf.join("webapps").join(page).join("WEB-INF");
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        write_file(&dir.join("web.xml"), "<web-app/>\n")?;
    }
    Ok(())
}

/// The three site files are set aside to be included; anything else replaces ours.
fn take_over(user: &Path, conf: &Path) -> Result<()> {
    let aside = conf.join(USER_DIR);
    fs::create_dir_all(&aside).with_context(|| format!("making {}", aside.display()))?;
    let entries = fs::read_dir(user).with_context(|| format!("--conf {}", user.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with("-env.sh") {
            bail!("--conf: {name} is a script of a launcher that is not used here; give its flags as --set jvm=…");
        }
        if !entry.path().is_file() {
            bail!("--conf: {name} is not a file");
        }
        let to = if [CORE, HDFS, HBASE].contains(&name.as_str()) {
            aside.join(&name)
        } else {
            conf.join(&name)
        };
        fs::copy(entry.path(), &to).with_context(|| format!("copying {name} to {}", to.display()))?;
    }
    Ok(())
}

fn core(place: &Place, options: &Options, user: Option<&Path>) -> Site {
    let mut site = Site::new();
    include(&mut site, user);
    site.set("fs.defaultFS", file_system(options))
        .set("hadoop.tmp.dir", place.data().join("hadoop-tmp").display())
        .set("hadoop.security.token.service.use_ip", false);
    site
}

fn hdfs(place: &Place, options: &Options, user: Option<&Path>) -> Site {
    let mut site = Site::new();
    let directory = |dir: PathBuf| format!("file://{}", dir.display());
    site.set("dfs.replication", 1)
        .set("dfs.permissions.enabled", false)
        .set("dfs.namenode.safemode.extension", 0)
        // A test machine's disk may be small; HBase is to stop for lack of space only when there is none.
        .set("dfs.namenode.resource.du.reserved", 1 << 20)
        .set("dfs.datanode.du.reserved", 0)
        .set("dfs.datanode.handler.count", 10)
        .set("dfs.datanode.max.transfer.threads", 4096)
        // Needs a native library that is not among the published jars.
        .set("dfs.client.read.shortcircuit", false);
    include(&mut site, user);
    site.set("dfs.namenode.name.dir", directory(name_dir(place)))
        .set("dfs.datanode.data.dir", directory(place.data().join("datanode")))
        .set("dfs.namenode.rpc-address", address(options, NAMENODE))
        .set("dfs.namenode.http-address", address(options, NAMENODE_HTTP))
        .set("dfs.datanode.address", address(options, DATANODE))
        .set("dfs.datanode.ipc.address", address(options, DATANODE_IPC))
        .set("dfs.datanode.http.address", address(options, DATANODE_HTTP))
        .set("dfs.datanode.hostname", HOST)
        .set("dfs.client.use.datanode.hostname", false)
        .set("dfs.namenode.datanode.registration.ip-hostname-check", false);
    set_all(&mut site, &options.hdfs);
    site
}

fn hbase(place: &Place, options: &Options, user: Option<&Path>) -> Site {
    let mut site = Site::new();
    // HBase's own choices, which no file of its own states.
    site.set("hbase.wal.provider", "asyncfs")
        .set("hbase.wal.hsync", false)
        .set("hbase.regionserver.handler.count", 30)
        .set("hbase.unsafe.stream.capability.enforce", true)
        .set("hbase.zookeeper.property.admin.enableServer", false);
    include(&mut site, user);
    site.set("hbase.rootdir", format!("{}/hbase", file_system(options)))
        .set("hbase.tmp.dir", place.data().join("hbase-tmp").display())
        .set("hbase.cluster.distributed", true)
        .set("hbase.zookeeper.quorum", HOST)
        .set("hbase.zookeeper.property.clientPort", options.port + ZOOKEEPER)
        .set("hbase.zookeeper.property.clientPortAddress", HOST)
        .set(
            "hbase.zookeeper.property.dataDir",
            place.data().join("zookeeper").display(),
        )
        .set("hbase.master.hostname", HOST)
        .set("hbase.unsafe.regionserver.hostname", HOST)
        .set("hbase.master.ipc.address", HOST)
        .set("hbase.regionserver.ipc.address", HOST)
        .set("hbase.master.port", options.port + MASTER)
        .set("hbase.regionserver.port", options.port + REGION)
        .set("hbase.master.info.port", -1)
        .set("hbase.regionserver.info.port", -1)
        .set("hbase.masters", address(options, MASTER));
    set_all(&mut site, &options.hbase);
    site
}

fn include(site: &mut Site, user: Option<&Path>) {
    if let Some(path) = user {
        site.include(path);
    }
}

fn set_all(site: &mut Site, properties: &[(String, String)]) {
    for (name, value) in properties {
        site.set(name, value);
    }
}

fn address(options: &Options, offset: u16) -> String {
    format!("{HOST}:{}", options.port + offset)
}

fn file_system(options: &Options) -> String {
    format!("hdfs://{}", address(options, NAMENODE))
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(texts: &[&str]) -> Options {
        Options::parse(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()).expect("parses")
    }

    fn position(text: &str, part: &str) -> usize {
        text.find(part)
            .unwrap_or_else(|| unreachable!("{part} is not in {text}"))
    }

    #[test]
    fn what_says_where_things_are_comes_after_the_users_file() {
        let options = options(&["handlers=60", "dfs.blocksize=1"]);
        let user = Path::new("/user.xml");
        let text = hbase(&Place::of("x"), &options, Some(user)).xml();
        let include = position(&text, "/user.xml");
        assert!(position(&text, "<name>hbase.wal.hsync</name>") < include);
        assert!(include < position(&text, "<name>hbase.rootdir</name>"));
        assert!(position(&text, "<name>hbase.masters</name>") < position(&text, "<value>60</value>"));
        let text = hdfs(&Place::of("x"), &options, Some(user)).xml();
        assert!(position(&text, "/user.xml") < position(&text, "<name>dfs.datanode.address</name>"));
        assert!(position(&text, "dfs.datanode.address") < position(&text, "<name>dfs.blocksize</name>"));
    }

    #[test]
    fn all_that_is_placed_is_known_to_be() {
        let (place, options) = (Place::of("x"), options(&[]));
        let all = [core, hdfs, hbase]
            .map(|site| site(&place, &options, None).xml())
            .concat();
        for name in PLACEMENT {
            assert!(all.contains(&format!("<name>{name}</name>")), "{name} is set nowhere");
        }
        let placed = [core, hdfs, hbase].map(|site| {
            let text = site(&place, &options, Some(Path::new("/user.xml"))).xml();
            text.split("/user.xml").nth(1).unwrap_or_default().to_owned()
        });
        for line in placed.iter().flat_map(|text| text.lines()) {
            if let Some(name) = line.split("<name>").nth(1).and_then(|rest| rest.split('<').next()) {
                assert!(PLACEMENT.contains(&name), "{name} is placed, but --set may change it");
            }
        }
    }
}
