//! The address of the source.

use std::str::FromStr;

/// Servers of the source's cluster, as `hbase://HOST:PORT[,HOST:PORT...]`, or `hbases://…` for those under TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// `host:port` of each.
    pub servers: Vec<String>,
    /// They are under TLS.
    pub is_tls: bool,
}

/// The server that takes the tables, as `HOST:PORT`, `hbase://HOST:PORT` or `hbases://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its `host:port`.
    pub server: String,
    /// It is under TLS.
    pub is_tls: bool,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rest, is_tls) = without_scheme(text).unwrap_or((text, false));
        match is_address(rest) {
            true => Ok(Target {
                server: rest.to_owned(),
                is_tls,
            }),
            false => Err(format!("`{text}` is not HOST:PORT or hbases://HOST:PORT")),
        }
    }
}

/// The text behind the scheme, and whether the scheme asks for TLS.
fn without_scheme(text: &str) -> Option<(&str, bool)> {
    let tls = text.strip_prefix("hbases://").map(|rest| (rest, true));
    tls.or_else(|| text.strip_prefix("hbase://").map(|rest| (rest, false)))
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("`{text}` is not hbase://HOST:PORT[,HOST:PORT...]");
        let (list, is_tls) = without_scheme(text).ok_or_else(expected)?;
        let list = list.strip_suffix('/').unwrap_or(list);
        let servers: Vec<String> = list.split(',').map(str::to_owned).collect();
        match servers.iter().all(|server| is_address(server)) {
            true => Ok(Source { servers, is_tls }),
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
        assert!(!source.is_tls && "hbases://a:1".parse::<Source>().unwrap().is_tls);
        assert!("hbase://a:1/".parse::<Source>().is_ok());
        for (text, is_tls) in [("a:1", false), ("hbase://a:1", false), ("hbases://a:1", true)] {
            let target: Target = text.parse().unwrap();
            assert_eq!((target.server.as_str(), target.is_tls), ("a:1", is_tls));
        }
        assert!("https://a:1".parse::<Target>().is_err() && "hbases://a:1,b:1".parse::<Target>().is_err());
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
