//! `bigtable://host:port/INSTANCE`: driver for the Cloud Bigtable API.
//!
//! Messages are Google's own definitions. Calls are made over HTTP/2 directly ([`http2`]), because the client's cost is
//! part of every figure. Parameters:
//! * `connections=N`: sockets of each generator thread, used in turn; default 4, as Google's Go client has for a process.
//! * `peer=HOST:PORT`: another server of the same cluster; may be repeated. The sockets of a thread are divided over all servers, and a
//!   socket whose server cannot be reached goes to the next one.
//! * `project=P`: default `bench`; emulators and Stele take any.
//! * `app_profile=ID`: the application profile; the instance's default when absent.
//! * `token=FILE`: a bearer token, sent with each call.
//! * those of TLS ([`super::dial`]); without them, plain text over TCP.
//!
//! The API does not let a client choose compression, block size, or whether a family stays in memory. The server
//! chooses them. Puts are at the server's time. There is no flush call. The credentials that the
//! managed service requires are not supported: the measured servers are on the user's own machines.

mod assembly;
mod bulk;
mod connection;
pub(super) mod frames;
mod http2;
mod requests;
mod retry;

use super::dial;
use super::{Connection, Result, TableSpec, Target, TargetError, TargetUrl};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use connection::BigtableConnection;
use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::FeatureFlags;
use http2::{Failure, Method, Origin};
use prost::Message;
use retry::Safety;
use std::sync::Arc;
use tonic::Code;
use tonic::codegen::http::HeaderValue;

/// Sockets of a generator thread without that parameter.
const CONNECTIONS: u64 = 4;

/// Most sockets of a generator thread.
const CONNECTIONS_MAX: u64 = 256;

/// Most pages of the list of tables that are read.
const PAGES_MAX: usize = 100;

/// Constant after [`open`].
struct Settings {
    /// The servers, at least one.
    origins: Arc<[Origin]>,
    /// `projects/P/instances/I`.
    instance: String,
    app_profile: String,
    connections: usize,
    /// The features that the client supports.
    features: HeaderValue,
    /// A bearer token.
    authorization: Option<HeaderValue>,
}

/// A server that speaks the Cloud Bigtable API.
struct BigtableTarget {
    name: String,
    settings: Arc<Settings>,
}

/// A target at this address.
///
/// # Errors
/// An unknown parameter.
pub fn open(url: &TargetUrl) -> Result<Arc<dyn Target>> {
    let bad = |why: &str| TargetError::Unsupported(format!("{}: {why}", url.text));
    if url.parameter("tls").is_some_and(|tls| tls != "false") {
        return Err(bad("give the authority of a server under TLS: ca=FILE"));
    }
    let own = ["connections", "peer", "project", "app_profile", "tls"];
    url.allow_parameters(&[&dial::PARAMETERS[..], &own].concat())?;
    let port = url.port.ok_or_else(|| bad("a port is needed"))?;
    let plain = |part: &str| !part.is_empty() && !part.contains('/');
    let project = url.parameter("project").unwrap_or("bench");
    if url.host.is_empty() || !plain(&url.path) || !plain(project) {
        return Err(bad("expected bigtable://HOST:PORT/INSTANCE"));
    }
    let connections = url.number("connections", 1..=CONNECTIONS_MAX, CONNECTIONS)? as usize;
    let dial = dial::dial(url, b"h2")?;
    let peers = url.parameters.iter().filter(|(name, _)| name == "peer");
    let peers = peers.map(|(_, peer)| peer.clone());
    let servers = std::iter::once(format!("{}:{port}", url.host)).chain(peers);
    let origins: std::result::Result<_, _> = servers.map(|server| Origin::new(server, dial.clone())).collect();
    let settings = Settings {
        origins: origins.map_err(|e| bad(&e.to_string()))?,
        instance: format!("projects/{project}/instances/{}", url.path),
        app_profile: url.parameter("app_profile").unwrap_or_default().to_owned(),
        connections,
        authorization: authorization(url)?,
        features: features().map_err(|e| bad(&e.to_string()))?,
    };
    Ok(Arc::new(BigtableTarget {
        name: url.name_or("bigtable")?,
        settings: Arc::new(settings),
    }))
}

fn authorization(url: &TargetUrl) -> Result<Option<HeaderValue>> {
    let Some(token) = dial::token(url)? else {
        return Ok(None);
    };
    let bad = |why: String| TargetError::Unsupported(format!("the token: {why}"));
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|e| bad(e.to_string()))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn features() -> std::result::Result<HeaderValue, tonic::codegen::http::header::InvalidHeaderValue> {
    let flags = FeatureFlags {
        last_scanned_row_responses: true,
        ..FeatureFlags::default()
    };
    HeaderValue::from_str(&URL_SAFE.encode(flags.encode_to_vec()))
}

impl BigtableTarget {
    /// One call outside of any run.
    async fn admin<A: Message + Default>(
        &self,
        method: Method,
        routing: &str,
        request: &impl Message,
        safety: Safety,
    ) -> std::result::Result<A, Failure> {
        let connection = BigtableConnection::new(self.settings.clone(), 1);
        let routing: String = url::form_urlencoded::byte_serialize(self.settings.instance.as_bytes())
            .fold(format!("{routing}="), |text, piece| text + piece);
        let headers = http2::headers(&self.settings.features, self.settings.authorization.as_ref(), &routing)
            .map_err(|e| Failure::Protocol(format!("header {routing:?}: {e}")))?;
        connection.unary(method, &headers, request, safety).await
    }

    fn only_our_own(&self, table: &str) -> Result<()> {
        if table.starts_with("bench-") {
            Ok(())
        } else {
            Err(TargetError::Unsupported(format!(
                "table {table:?}: only tables bench-… are made and dropped"
            )))
        }
    }
}

#[async_trait]
impl Target for BigtableTarget {
    fn name(&self) -> &str {
        &self.name
    }

    async fn create_table(&self, table: &TableSpec) -> Result<()> {
        self.only_our_own(&table.name)?;
        let request = requests::create_table(self.settings.instance.clone(), table);
        let made = self.admin::<admin::Table>(Method::CreateTable, "parent", &request, Safety::Once);
        made.await.map(drop).map_err(error)
    }

    async fn drop_table(&self, name: &str) -> Result<()> {
        self.only_our_own(name)?;
        let request = admin::DeleteTableRequest {
            name: format!("{}/tables/{name}", self.settings.instance),
        };
        // Dropping twice is no error: the second time there is no such table.
        match self
            .admin::<()>(Method::DeleteTable, "name", &request, Safety::Put)
            .await
        {
            Err(Failure::Status(status)) if status.code() == Code::NotFound => Ok(()),
            other => other.map_err(error),
        }
    }

    async fn flush_table(&self, _name: &str) -> Result<()> {
        Err(TargetError::Unsupported(
            "the Cloud Bigtable API has no call to flush a table".into(),
        ))
    }

    async fn connect(&self) -> Result<Arc<dyn Connection>> {
        let connection = BigtableConnection::new(self.settings.clone(), self.settings.connections);
        connection.dial().await.map_err(error)?;
        Ok(Arc::new(connection))
    }

    async fn describe(&self) -> Result<Vec<(String, String)>> {
        let mut request = admin::ListTablesRequest {
            parent: self.settings.instance.clone(),
            view: admin::table::View::NameOnly.into(),
            ..admin::ListTablesRequest::default()
        };
        let mut tables = 0;
        for _ in 0..PAGES_MAX {
            let page = self.admin::<admin::ListTablesResponse>(Method::ListTables, "parent", &request, Safety::Read);
            let page = page.await.map_err(error)?;
            tables += page.tables.len();
            request.page_token = page.next_page_token;
            if request.page_token.is_empty() {
                break;
            }
        }
        Ok(vec![
            ("instance".into(), self.settings.instance.clone()),
            ("tables at the start".into(), tables.to_string()),
        ])
    }
}

/// The error for a failure that is not retried, or not any more.
fn error(failure: Failure) -> TargetError {
    let status = match failure {
        Failure::Status(status) => status,
        Failure::Broken(why) => return TargetError::Connection(why),
        Failure::Protocol(why) => return TargetError::Protocol(why),
        Failure::Late => return TargetError::Timeout(http2::CALL_MS_MAX),
    };
    of_code(status.code(), status.message())
}

fn of_code(code: Code, message: &str) -> TargetError {
    let text = format!("{code:?}: {message}");
    match code {
        Code::Unavailable => TargetError::Connection(text),
        Code::Aborted | Code::ResourceExhausted | Code::DeadlineExceeded => TargetError::Busy(text),
        Code::Unimplemented => TargetError::Unsupported(text),
        _ => TargetError::Refused(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_make_no_sense_are_refused() {
        for (address, good) in [
            ("bigtable://127.0.0.1:8086/i", true),
            (
                "bigtable://[::1]:8086/i?connections=2&project=p&app_profile=a&tls=false",
                true,
            ),
            ("bigtable://127.0.0.1:8086/i?peer=127.0.0.1:8087&peer=[::1]:8086", true),
            ("bigtable://127.0.0.1:8086/i?peer=a%20b", false),
            ("bigtable://127.0.0.1/i", false),
            ("bigtable://127.0.0.1:8086", false),
            ("bigtable://127.0.0.1:8086/i/j", false),
            ("bigtable://127.0.0.1:8086/i?connections=0", false),
            ("bigtable://127.0.0.1:8086/i?tls=true", false),
            ("bigtable://127.0.0.1:8086/i?table=t", false),
        ] {
            let opened = open(&TargetUrl::parse(address).unwrap());
            assert_eq!(opened.is_ok(), good, "{address}: {:?}", opened.err());
        }
    }

    #[tokio::test]
    async fn tables_of_others_are_left_alone() {
        let target = open(&TargetUrl::parse("bigtable://127.0.0.1:1/i").unwrap()).unwrap();
        assert_eq!(target.drop_table("users").await.unwrap_err().kind(), "unsupported");
    }
}
