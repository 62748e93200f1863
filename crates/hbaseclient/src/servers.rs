//! The services of servers, and the one socket to each of them.

use crate::failure::Failure;
use crate::settings::Settings;
use crate::socket::Socket;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for which an unreachable server is left alone, as in HBase's client. Later callers get the same error
/// immediately and do not wait for another connection to fail.
const SHUN: Duration = Duration::from_secs(2);

/// Most services in the map: several for each server of a large cluster. The map is emptied when there would be more,
/// at the cost of new connections.
const SERVICES_MAX: usize = 4096;

/// One service of one server, and the socket to it.
#[derive(Debug)]
pub struct Server {
    /// `host:port`.
    address: String,
    service: &'static str,
    settings: Arc<Settings>,
    socket: Mutex<Option<Arc<Socket>>>,
    /// Held while connecting. Time and error of the last failed attempt.
    connecting: tokio::sync::Mutex<Option<(Instant, Failure)>>,
}

impl Server {
    /// A service of the server at `address`.
    pub fn new(address: String, service: &'static str, settings: Arc<Settings>) -> Self {
        Self {
            address,
            service,
            settings,
            socket: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    /// `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The socket, if there is one.
    pub fn live(&self) -> Option<Arc<Socket>> {
        self.socket.lock().as_ref().filter(|socket| socket.is_alive()).cloned()
    }

    /// The socket, connected if need be.
    ///
    /// # Errors
    /// A server that cannot be reached now, or could not be reached a moment ago.
    pub async fn socket(&self) -> Result<Arc<Socket>, Failure> {
        if let Some(socket) = self.live() {
            return Ok(socket);
        }
        let mut failed = self.connecting.lock().await;
        if let Some(socket) = self.live() {
            return Ok(socket);
        }
        if let Some((at, failure)) = &*failed
            && at.elapsed() < SHUN
        {
            return Err(failure.clone());
        }
        match Socket::connect(&self.address, self.service, &self.settings).await {
            Ok(socket) => {
                let socket = Arc::new(socket);
                *self.socket.lock() = Some(socket.clone());
                *failed = None;
                Ok(socket)
            }
            Err(failure) => {
                *failed = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }
}

/// All services that have been called.
#[derive(Debug)]
pub struct Servers {
    settings: Arc<Settings>,
    known: Mutex<HashMap<(String, &'static str), Arc<Server>>>,
}

impl Servers {
    /// None yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings: Arc::new(settings),
            known: Mutex::default(),
        }
    }

    /// A service of the server at `address`.
    pub fn get(&self, address: &str, service: &'static str) -> Arc<Server> {
        let mut known = self.known.lock();
        if known.len() >= SERVICES_MAX {
            known.clear();
        }
        let new = || Arc::new(Server::new(address.to_owned(), service, self.settings.clone()));
        known.entry((address.to_owned(), service)).or_insert_with(new).clone()
    }

    /// Addresses of servers whose `service` has been called, at most `limit`.
    pub fn addresses(&self, service: &str, limit: usize) -> Vec<String> {
        let known = self.known.lock();
        known
            .keys()
            .filter(|(_, s)| *s == service)
            .map(|(address, _)| address.clone())
            .take(limit)
            .collect()
    }
}
