//! The callers of the API.
//!
//! With access rules a request shows a bearer token in its `authorization` header, and everything behind it goes through the
//! caller's guard. A browser does not add that header by itself, so no other page can make requests in the name of a caller.
//!
//! Without access rules everybody may do everything, as on the other ports. Rows and changes are then for programs of this machine
//! only ([`check_here`]). The name by which the request came must be one of this machine as well: a page of another host that has its name
//! point here is refused.

use crate::failure::Failure;
use crate::text::Keys;
use crate::{Console, Parts};
use axum::http::request::Parts as Request;
use axum::http::{HeaderMap, Method, StatusCode, header};
use std::net::IpAddr;
use std::sync::Arc;
use stele_access::{Access, Guard, Rules, Shown};
use stele_types::{Resource, Rights, TableName};

/// The header that a change has, which only scripts of the console send: another page would have to ask for permission first.
const OWN_HEADER: &str = "x-stele-console";

/// A caller as far as its rights go.
pub(crate) struct Called {
    /// The parts of the server: the services are the guard of a known caller.
    pub parts: Parts,
    /// `None` where callers are not known.
    pub guard: Option<Arc<Guard>>,
    /// The access rules as the caller has them.
    pub rules: Rules,
}

impl Called {
    /// The caller of a request.
    pub fn of(request: &Request, served: &Parts) -> Result<Called, Failure> {
        let Some(access) = &served.access else {
            return Ok(Called {
                parts: served.clone(),
                guard: None,
                rules: served.rules.clone(),
            });
        };
        let guard = guard(request, served, access)?;
        let mut parts = served.clone();
        (parts.service, parts.admin) = (guard.clone(), guard.clone());
        Ok(Called {
            rules: served.rules.of(Arc::clone(&guard)),
            guard: Some(guard),
            parts,
        })
    }

    /// The keys of a table. A caller that may see the cluster need not know the rows of others.
    pub fn keys_of(&self, table: &TableName) -> Keys {
        let may_know = |guard: &Arc<Guard>| {
            let rights = guard.rights(&Resource::Table(table.clone()));
            rights.has(Rights::READ) || rights.has(Rights::ADMIN)
        };
        Keys {
            are_shown: self.guard.as_ref().is_none_or(may_know),
        }
    }

    /// Whether the caller may know the sizes of a table and the operations on it.
    pub fn knows_figures(&self, table: &TableName) -> bool {
        self.guard.as_ref().is_none_or(|guard| guard.knows_figures(table))
    }

    /// Fails unless the caller may see the whole cluster.
    pub fn check_cluster(&self) -> Result<(), Failure> {
        match &self.guard {
            Some(guard) => Ok(guard.check_cluster("console", Rights::VIEW)?),
            None => Ok(()),
        }
    }
}

fn guard(request: &Request, served: &Parts, access: &Arc<Access>) -> Result<Arc<Guard>, Failure> {
    let token = token(&request.headers);
    let shown = Shown {
        token,
        ..Shown::default()
    };
    let caller = access.identify(shown).map_err(|refused| {
        // A page that is opened has none yet.
        if token.is_some() {
            access.audit_refused(shown, "console", &refused);
        }
        Failure::new(StatusCode::UNAUTHORIZED, refused.to_string())
    })?;
    let (service, admin) = (Arc::clone(&served.service), Arc::clone(&served.admin));
    Ok(Guard::new(Arc::clone(access), caller, service, admin))
}

/// The bearer token of a request. A header that is none is a token that nobody has.
fn token(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().unwrap_or_default();
    let (scheme, token) = text.split_once(' ').unwrap_or_default();
    Some(match scheme.eq_ignore_ascii_case("bearer") {
        true => token.trim(),
        false => "",
    })
}

/// Fails for rows and changes where callers are not known, unless the request comes from this machine and for this machine.
pub(crate) fn check_here(request: &Request, console: &Console) -> Result<(), Failure> {
    if console.0.about.is_guarded {
        return Ok(());
    }
    match console.0.about.is_local && is_own_name(host(&request.headers)) {
        true => Ok(()),
        false => Err(Failure::new(
            StatusCode::FORBIDDEN,
            "rows and changes need access rules, or an HTTP port and an address of this machine alone",
        )),
    }
}

/// Fails for a change that another page may have asked a browser for.
pub(crate) fn check_change(request: &Request) -> Result<(), Failure> {
    if request.method != Method::POST {
        return Ok(());
    }
    let headers = &request.headers;
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let is_own = text(OWN_HEADER).is_some();
    let is_same_site = text("sec-fetch-site").is_none_or(|site| site == "same-origin");
    let of_origin = |origin: &str| {
        origin
            .split_once("://")
            .is_some_and(|(_, host)| Some(host) == text("host"))
    };
    let is_json = text("content-type").is_some_and(|kind| kind.starts_with("application/json"));
    match is_own && is_same_site && is_json && text("origin").is_none_or(of_origin) {
        true => Ok(()),
        false => Err(Failure::new(
            StatusCode::FORBIDDEN,
            "a change needs the header x-stele-console, JSON, and no other origin",
        )),
    }
}

/// The host of a request, without the port.
fn host(headers: &HeaderMap) -> &str {
    let text = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default();
    match (text.starts_with('['), text.rsplit_once(':')) {
        (true, _) => text
            .split_once(']')
            .map_or(text, |(host, _)| host.trim_start_matches('[')),
        (false, Some((host, _))) => host,
        (false, None) => text,
    }
}

fn is_own_name(host: &str) -> bool {
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    host == "localhost" || host.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, headers: &[(&str, &str)]) -> Request {
        let mut request = axum::http::Request::builder().method(method);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn only_names_of_this_machine_count() {
        let is_own = |host_header: &str| {
            let request = request(Method::GET, &[("host", host_header)]);
            is_own_name(host(&request.headers))
        };
        for own in [
            "localhost",
            "localhost:8088",
            "127.0.0.1:8088",
            "127.0.0.2",
            "[::1]:8088",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(is_own(own), "{own}");
        }
        for other in [
            "",
            "example.com",
            "localhost.example.com:80",
            "10.0.0.1:8088",
            "[::2]:1",
            "127.0.0.1.example.com",
        ] {
            assert!(!is_own(other), "{other}");
        }
    }

    #[test]
    fn changes_of_other_pages_are_refused() {
        let good = [
            ("x-stele-console", "1"),
            ("content-type", "application/json"),
            ("host", "localhost:8088"),
            ("origin", "http://localhost:8088"),
            ("sec-fetch-site", "same-origin"),
        ];
        assert!(check_change(&request(Method::POST, &good)).is_ok());
        assert!(check_change(&request(Method::POST, &good[..3])).is_ok());
        assert!(check_change(&request(Method::GET, &[])).is_ok());
        for (at, other) in [
            (0, ("x-other", "1")),
            (1, ("content-type", "text/plain")),
            (3, ("origin", "http://evil.example")),
            (3, ("origin", "null")),
            (4, ("sec-fetch-site", "same-site")),
            (4, ("sec-fetch-site", "cross-site")),
        ] {
            let mut headers = good;
            headers[at] = other;
            assert!(check_change(&request(Method::POST, &headers)).is_err(), "{other:?}");
        }
    }

    #[test]
    fn only_bearer_tokens_count() {
        let of = |value: &str| token(&request(Method::GET, &[("authorization", value)]).headers).map(str::to_owned);
        assert_eq!(of("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(of("Basic abc").as_deref(), Some(""));
        assert_eq!(token(&HeaderMap::new()), None);
    }
}
