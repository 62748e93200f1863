//! The meaning of `--set` for HBase.

use super::super::settings::{self, Known, Setting};
use super::PORT_SPAN;
use super::configuration::PLACEMENT;
use anyhow::{Result, bail};

const KNOWN: [Known; 11] = [
    Known {
        key: "heap",
        meaning: "heap of the region server (8g)",
    },
    Known {
        key: "gc",
        meaning: "its collector: g1, parallel, zgc, shenandoah or serial (g1)",
    },
    Known {
        key: "jvm",
        meaning: "more flags for its JVM, separated by spaces",
    },
    Known {
        key: "hsync",
        meaning: "whether an acknowledged write survives a power cut: hbase.wal.hsync (false)",
    },
    Known {
        key: "wal",
        meaning: "hbase.wal.provider (asyncfs)",
    },
    Known {
        key: "mslab",
        meaning: "memstores in chunks of their own: hbase.hregion.memstore.mslab.enabled (true)",
    },
    Known {
        key: "blockcache",
        meaning: "share of the heap: hfile.block.cache.size (0.4)",
    },
    Known {
        key: "memstore",
        meaning: "share of the heap: hbase.regionserver.global.memstore.size (0.4)",
    },
    Known {
        key: "handlers",
        meaning: "threads that carry out calls: hbase.regionserver.handler.count (30)",
    },
    Known {
        key: "flush",
        meaning: "bytes of a memstore at which it is flushed: hbase.hregion.memstore.flush.size (134217728)",
    },
    Known {
        key: "port",
        meaning: "first of 21 ports; the region server has the last (17000)",
    },
];

const RAW: &str = "A key with a dot is a property: dfs.* of hdfs-site.xml, any other of hbase-site.xml.";

/// G1 aims at 200 ms by itself; HBase's reference guide asks for 100 ms.
const G1_FLAGS: [&str; 2] = ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=100"];

/// The caller's settings.
pub struct Options {
    heap: String,
    collector: Vec<String>,
    jvm: Vec<String>,
    /// The first port.
    pub port: u16,
    /// For hbase-site.xml, in the order given.
    pub hbase: Vec<(String, String)>,
    /// For hdfs-site.xml.
    pub hdfs: Vec<(String, String)>,
}

impl Options {
    /// From `key=value` texts.
    pub fn parse(texts: &[String]) -> Result<Options> {
        let mut options = Options {
            heap: "8g".to_owned(),
            collector: G1_FLAGS.map(str::to_owned).to_vec(),
            jvm: Vec::new(),
            port: 17_000,
            hbase: Vec::new(),
            hdfs: Vec::new(),
        };
        for setting in settings::parse(texts)? {
            options.take(&setting)?;
        }
        Ok(options)
    }

    fn take(&mut self, setting: &Setting) -> Result<()> {
        let (property, value) = match setting.key.as_str() {
            "heap" => return setting.jvm_size().map(|size| self.heap = size.to_owned()),
            "gc" => return collector(setting).map(|flags| self.collector = flags),
            "jvm" => return jvm_flags(setting).map(|flags| self.jvm = flags),
            "port" => return setting.port(PORT_SPAN).map(|port| self.port = port),
            "hsync" => ("hbase.wal.hsync", setting.boolean()?),
            "wal" => ("hbase.wal.provider", setting.value.as_str()),
            "mslab" => ("hbase.hregion.memstore.mslab.enabled", setting.boolean()?),
            "blockcache" => ("hfile.block.cache.size", setting.share()?),
            "memstore" => ("hbase.regionserver.global.memstore.size", setting.share()?),
            "handlers" => ("hbase.regionserver.handler.count", setting.count()?),
            "flush" => ("hbase.hregion.memstore.flush.size", setting.count()?),
            key if PLACEMENT.contains(&key) => {
                bail!("--set {key}: addresses and directories are decided by this command; there is --set port=N")
            }
            key if key.contains('.') => (key, setting.value.as_str()),
            _ => return setting.unknown("hbase", &KNOWN, RAW),
        };
        let site = if property.starts_with("dfs.") {
            &mut self.hdfs
        } else {
            &mut self.hbase
        };
        site.push((property.to_owned(), value.to_owned()));
        Ok(())
    }

    /// Heap, collector and whatever else was asked for.
    pub fn region_server_flags(&self) -> Vec<String> {
        let mut flags = vec![format!("-Xms{}", self.heap), format!("-Xmx{}", self.heap)];
        flags.extend_from_slice(&self.collector);
        flags.extend_from_slice(&self.jvm);
        flags
    }
}

fn collector(setting: &Setting) -> Result<Vec<String>> {
    let flags: &[&str] = match setting.value.as_str() {
        "g1" => &G1_FLAGS,
        "parallel" => &["-XX:+UseParallelGC"],
        "zgc" => &["-XX:+UseZGC"],
        "shenandoah" => &["-XX:+UseShenandoahGC"],
        "serial" => &["-XX:+UseSerialGC"],
        _ => return setting.invalid("g1, parallel, zgc, shenandoah or serial"),
    };
    Ok(flags.iter().map(|flag| (*flag).to_owned()).collect())
}

fn jvm_flags(setting: &Setting) -> Result<Vec<String>> {
    let flags: Vec<String> = setting.value.split_whitespace().map(str::to_owned).collect();
    match flags.iter().find(|flag| !flag.starts_with('-')) {
        Some(_) => setting.invalid("flags, each with a dash in front"),
        None => Ok(flags),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(texts: &[&str]) -> Result<Options> {
        Options::parse(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn defaults_are_eight_gigabytes_and_g1() -> Result<()> {
        let options = parse(&[])?;
        let flags = ["-Xms8g", "-Xmx8g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=100"];
        assert_eq!(options.region_server_flags(), flags);
        assert_eq!(options.port, 17_000);
        assert!(options.hbase.is_empty() && options.hdfs.is_empty());
        Ok(())
    }

    #[test]
    fn short_options_are_translated() -> Result<()> {
        let options = parse(&[
            "heap=4g",
            "gc=zgc",
            "jvm=-XX:+A  -XX:B=1",
            "hsync=true",
            "handlers=60",
            "blockcache=0.5",
        ])?;
        let flags = ["-Xms4g", "-Xmx4g", "-XX:+UseZGC", "-XX:+A", "-XX:B=1"];
        assert_eq!(options.region_server_flags(), flags);
        let expected = [
            pair("hbase.wal.hsync", "true"),
            pair("hbase.regionserver.handler.count", "60"),
            pair("hfile.block.cache.size", "0.5"),
        ];
        assert_eq!(options.hbase, expected);
        Ok(())
    }

    #[test]
    fn properties_go_to_their_file() -> Result<()> {
        let options = parse(&["hbase.foo.bar=a=b", "dfs.blocksize=1"])?;
        assert_eq!(options.hbase, [pair("hbase.foo.bar", "a=b")]);
        assert_eq!(options.hdfs, [pair("dfs.blocksize", "1")]);
        Ok(())
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("haep=8g", "mslab"),
            ("heap=lots", "8g or 512m"),
            ("gc=cms", "shenandoah"),
            ("jvm=Xint", "dash"),
            ("hsync=maybe", "true or false"),
            ("port=1", "1024"),
            ("hbase.rootdir=x", "port=N"),
        ] {
            let error = parse(&[text]).err().expect(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
