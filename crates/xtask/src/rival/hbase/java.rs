//! The jars, and the command lines of JVMs that run them.

use crate::rival::Place;
use crate::shell::{Run, root, target_dir};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// Where the project with the list of jars and our small programs is.
const PROJECT: &str = "tests/rivals/hbase";

/// The options that HBase's own launcher passes to a JVM of version 11 or later: HBase and Hadoop reach into the JDK.
const OPENED: [&str; 11] = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.reflect",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
];
const EXPORTED: [&str; 3] = [
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.util.random",
    "java.security.jgss/sun.security.krb5",
];

/// The jars, ready to be run.
pub struct Java {
    build: PathBuf,
}

impl Java {
    /// The JVM of the path, which is also Maven's unless told otherwise.
    pub fn program() -> PathBuf {
        PathBuf::from("java")
    }

    /// Fetches and compiles, unless that was done for the project as it is. Only when no part runs: a JVM whose jars are
    /// taken away dies at the next class it wants.
    pub fn build() -> Result<Java> {
        let java = Java::in_target();
        let project = root().join(PROJECT);
        let wanted = fingerprint(&project)?;
        // In the directory, so that it goes when the jars go.
        let stamp = java.build.join("stamp");
        if fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
            return Ok(java);
        }
        say!("fetching HBase and Hadoop with Maven");
        // Jars of other versions must not stay on the class path.
        if java.build.exists() {
            fs::remove_dir_all(&java.build).with_context(|| format!("emptying {}", java.build.display()))?;
        }
        fs::create_dir_all(&java.build).with_context(|| format!("making {}", java.build.display()))?;
        Run::new("mvn")
            .args(["--batch-mode", "--quiet", "package"])
            .args([format!("-Drival.build={}", java.build.display())])
            .dir(project)
            .check()
            .context("Maven and a JDK of version 17 or later are needed for this rival")?;
        fs::write(&stamp, wanted).with_context(|| format!("writing {}", stamp.display()))?;
        Ok(java)
    }

    /// The request from which the running parts were started.
    pub fn built() -> Result<Java> {
        let java = Java::in_target();
        let jar = java.jar();
        if !jar.exists() {
            bail!(
                "there is no {}; cargo xtask rival stop hbase, then start it",
                jar.display()
            );
        }
        Ok(java)
    }

    fn in_target() -> Java {
        Java {
            build: target_dir().join("rivals/build/hbase"),
        }
    }

    /// The small programs of the project.
    fn jar(&self) -> PathBuf {
        self.build.join("hbase-rival.jar")
    }

    fn class_path(&self, place: &Place) -> String {
        let (conf, jars) = (place.conf(), self.build.join("lib/*"));
        format!("{}:{}:{}", conf.display(), self.jar().display(), jars.display())
    }

    /// Arguments of a JVM that serves, with a GC log.
    pub fn server(&self, place: &Place, part: &str, flags: &[String], main: &str, arguments: &[&str]) -> Vec<String> {
        let mut line = flags.to_vec();
        line.push(gc_log_flag(&place.gc_log(part)));
        // Out of memory, a JVM limps; a dead process is a clear result.
        line.push("-XX:+ExitOnOutOfMemoryError".to_owned());
        line.push(format!("-Dproc_{part}"));
        line.extend(self.common(place));
        line.push(main.to_owned());
        line.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        line
    }

    /// A JVM that runs a client or a tool; it logs only warnings, on standard error.
    pub fn client(&self, place: &Place, heap: &str, main: &str) -> Run {
        self.tool(place, heap, main, "SYSTEM_ERR")
    }

    /// The same with its log on standard output.
    pub fn talkative_client(&self, place: &Place, heap: &str, main: &str) -> Run {
        self.tool(place, heap, main, "SYSTEM_OUT")
    }

    fn tool(&self, place: &Place, heap: &str, main: &str, log: &str) -> Run {
        Run::new(Java::program())
            .args([
                format!("-Xmx{heap}"),
                "-Drival.log=WARN".to_owned(),
                format!("-Drival.log.target={log}"),
            ])
            .args(self.common(place))
            .args([main])
    }

    fn common(&self, place: &Place) -> Vec<String> {
        let mut line = Vec::new();
        for package in OPENED {
            line.extend(["--add-opens".to_owned(), format!("{package}=ALL-UNNAMED")]);
        }
        for package in EXPORTED {
            line.extend(["--add-exports".to_owned(), format!("{package}=ALL-UNNAMED")]);
        }
        line.push("-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true".to_owned());
        line.push("-Djava.net.preferIPv4Stack=true".to_owned());
        line.extend(["-cp".to_owned(), self.class_path(place)]);
        line
    }
}

/// All collections and safepoints, with wall-clock time to hold against other time series. Five files of 100 MB are
/// hours of the busiest load.
fn gc_log_flag(path: &Path) -> String {
    let path = path.display();
    format!("-Xlog:gc*,safepoint:file={path}:utctime,uptime,level,tags:filecount=5,filesize=100m")
}

/// Every input of Maven's build.
fn fingerprint(project: &Path) -> Result<String> {
    let mut files = vec![project.join("pom.xml")];
    let sources = project.join("src/main/java/stele/rivals/hbase");
    for entry in fs::read_dir(&sources).with_context(|| format!("reading {}", sources.display()))? {
        files.push(entry?.path());
    }
    files.sort();
    let mut text = String::new();
    for file in files {
        text.push_str(&fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?);
    }
    Ok(text)
}
