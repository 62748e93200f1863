//! The address of the source.

use std::str::FromStr;

/// Servers of the source's cluster, as `hbase://HOST:PORT[,HOST:PORT...]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// `host:port` of each.
    pub servers: Vec<String>,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("`{text}` is not hbase://HOST:PORT[,HOST:PORT...]");
        let list = text.strip_prefix("hbase://").ok_or_else(expected)?;
        let list = list.strip_suffix('/').unwrap_or(list);
        let servers: Vec<String> = list.split(',').map(str::to_owned).collect();
        match servers.iter().all(|server| is_address(server)) {
            true => Ok(Source { servers }),
            false => Err(expected()),
        }
    }
}

/// Whether a text is `host:port`. An IPv6 address is in brackets.
pub fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let is_bare = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
    let is_host = !host.is_empty() && !host.contains(['/', '?', '@', ' ']);
    is_host && is_bare && port.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_servers() {
        let source: Source = "hbase://a:1,[::1]:16020".parse().unwrap();
        assert_eq!(source.servers, ["a:1", "[::1]:16020"]);
        assert!("hbase://a:1/".parse::<Source>().is_ok());
        for bad in [
            "a:1",
            "hbase://",
            "hbase://a",
            "hbase://a:0",
            "hbase://a:1,",
            "hbase://a:1/x",
            "hbase://::1:2",
        ] {
            assert!(bad.parse::<Source>().is_err(), "{bad}");
        }
    }
}
