//! An address selects members of etcd and a name: `etcd://host:2379,host:2379,host:2379/name`, or `etcds://…` under TLS.
//!
//! The name is the prefix of all keys, so that several clusters can share one etcd.

use std::fmt;
use std::net::IpAddr;

/// The scheme of an address.
const SCHEME: &str = "etcd://";
/// The scheme of members that talk under TLS.
const TLS_SCHEME: &str = "etcds://";
/// The port of clients, where an address gives none.
const PORT: u16 = 2379;
/// Most members. More than seven make etcd slower, not safer.
pub(crate) const MEMBERS_MAX: usize = 16;
/// Longest name. With it, the largest transaction stays below etcd's limit of a request.
pub(crate) const NAME_BYTES_MAX: usize = 64;
/// Longest host name of the domain name system.
const HOST_BYTES_MAX: usize = 253;

/// The members of an etcd, and the name of a coordinator in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdAddress {
    members: Vec<String>,
    name: String,
    is_tls: bool,
}

/// An error in an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address}: {reason}")]
pub struct AddressError {
    address: String,
    reason: String,
}

impl fmt::Display for EtcdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { TLS_SCHEME } else { SCHEME };
        write!(f, "{scheme}{}/{}", self.members.join(","), self.name)
    }
}

impl EtcdAddress {
    /// Whether a text is meant as an address of etcd.
    pub fn is_one(text: &str) -> bool {
        text.starts_with(SCHEME) || text.starts_with(TLS_SCHEME)
    }

    /// Parses `etcd://host[:port][,host[:port]…]/name`, or the same with `etcds://`.
    ///
    /// # Errors
    /// Names the part that is missing, malformed, duplicate or too long.
    pub fn parse(text: &str) -> Result<EtcdAddress, AddressError> {
        parse(text).map_err(|reason| AddressError {
            address: text.chars().take(200).collect(),
            reason,
        })
    }

    /// The members, each `host:port`.
    pub fn members(&self) -> &[String] {
        &self.members
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the members talk under TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Whether all members are on this machine, as their addresses have it.
    pub fn is_on_loopback(&self) -> bool {
        self.members.iter().all(|member| {
            let host = member.rsplit_once(':').map_or("", |(host, _)| host);
            let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
        })
    }
}

fn parse(text: &str) -> Result<EtcdAddress, String> {
    let (rest, is_tls) = match (text.strip_prefix(SCHEME), text.strip_prefix(TLS_SCHEME)) {
        (Some(rest), _) => (rest, false),
        (None, Some(rest)) => (rest, true),
        (None, None) => return Err(format!("expected {SCHEME}host:port,host:port/name, or {TLS_SCHEME}…")),
    };
    if rest.contains('@') {
        return Err("an address has no user and no password: there are settings for them".to_owned());
    }
    let Some((hosts, name)) = rest.split_once('/') else {
        return Err("expected /name after the members".to_owned());
    };
    check_name(name)?;
    let mut members: Vec<String> = Vec::new();
    for host in hosts.split(',') {
        let member = parse_member(host)?;
        if members.contains(&member) {
            return Err(format!("{member} is given twice"));
        }
        if members.len() >= MEMBERS_MAX {
            return Err(format!("more than {MEMBERS_MAX} members"));
        }
        members.push(member);
    }
    Ok(EtcdAddress {
        members,
        name: name.to_owned(),
        is_tls,
    })
}

fn check_name(name: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() {
        Err("the name after the members is empty".to_owned())
    } else if name.len() > NAME_BYTES_MAX {
        Err(format!(
            "a name of {} bytes, at most {NAME_BYTES_MAX} are allowed",
            name.len()
        ))
    } else if let Some(bad) = name.chars().find(|c| !allowed(*c)) {
        Err(format!(
            "{bad:?} in the name; it may have letters, digits, '-', '_' and '.'"
        ))
    } else {
        Ok(())
    }
}

/// `host`, `host:port`, `[IPv6]` or `[IPv6]:port`, as `host:port`.
fn parse_member(text: &str) -> Result<String, String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or_else(|| format!("{text:?} has no ']'"))?;
            let parsed: std::net::Ipv6Addr = address
                .parse()
                .map_err(|_| format!("{address:?} is not an IPv6 address"))?;
            let port = match port.strip_prefix(':') {
                Some(port) => Some(port),
                None if port.is_empty() => None,
                None => return Err(format!("{port:?} after the IPv6 address is not a port")),
            };
            (format!("[{parsed}]"), port)
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host.to_ascii_lowercase(), Some(port)),
            None => (text.to_ascii_lowercase(), None),
        },
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if host.is_empty() || host.len() > HOST_BYTES_MAX {
        return Err(format!("a host name of {} bytes", host.len()));
    }
    if !host.starts_with('[') && !host.chars().all(is_host) {
        return Err(format!("{host:?} is not a host name"));
    }
    let port = match port {
        None => PORT,
        Some(port) => match port.parse::<u16>() {
            Ok(number) if number > 0 && port.bytes().all(|b| b.is_ascii_digit()) => number,
            _ => return Err(format!("{port:?} is not a port")),
        },
    };
    Ok(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_name_are_read() {
        let cases = [
            ("etcd://one/prod", "etcd://one:2379/prod"),
            (
                "etcd://One:1,two:22,10.0.0.3:333/a.B_c-9",
                "etcd://one:1,two:22,10.0.0.3:333/a.B_c-9",
            ),
            ("etcd://[::1],[fe80::0:1]:80/x", "etcd://[::1]:2379,[fe80::1]:80/x"),
            ("etcds://one,two:1/x", "etcds://one:2379,two:1/x"),
        ];
        for (text, shown) in cases {
            let address = EtcdAddress::parse(text).expect(text);
            assert_eq!(address.to_string(), shown);
            assert_eq!(EtcdAddress::parse(shown), Ok(address));
        }
    }

    #[test]
    fn members_on_this_machine_are_known() {
        let is_near = |text: &str| EtcdAddress::parse(text).expect(text).is_on_loopback();
        assert!(is_near("etcd://127.0.0.1:1,localhost,[::1]:2/x"));
        assert!(!is_near("etcd://127.0.0.1,192.0.2.1/x") && !is_near("etcd://localhost.example/x"));
    }

    #[test]
    fn errors_name_the_part() {
        let many: Vec<String> = (0..=MEMBERS_MAX).map(|i| format!("h{i}")).collect();
        let cases = [
            ("http://h/n", "expected etcd://"),
            ("etcd://h", "expected /name"),
            ("etcd://h/", "name after the members is empty"),
            ("etcd:///n", "a host name of 0 bytes"),
            ("etcd://h,,i/n", "a host name of 0 bytes"),
            ("etcd://h/a/b", "'/' in the name"),
            ("etcd://h/a?x", "'?' in the name"),
            ("etcd://u:p@h/n", "there are settings"),
            ("etcd://h,H:2379/n", "h:2379 is given twice"),
            ("etcd://h:0/n", "\"0\" is not a port"),
            ("etcd://h:+1/n", "\"+1\" is not a port"),
            ("etcd://h:65536/n", "is not a port"),
            ("etcd://h h/n", "is not a host name"),
            ("etcd://[::g]/n", "is not an IPv6 address"),
            ("etcd://[::1/n", "has no ']'"),
            ("etcd://[::1]x/n", "is not a port"),
            (&format!("etcd://{}/n", many.join(",")), "more than 16 members"),
            (&format!("etcd://h/{}", "n".repeat(65)), "a name of 65 bytes"),
        ];
        for (text, reason) in cases {
            let error = EtcdAddress::parse(text).expect_err(text).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
