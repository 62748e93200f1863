//! Calls of the HTTP port of a server: its console, and its state.
//!
//! One request for each connection, over plain text or TLS. An answer is at most [`ANSWER_BYTES_MAX`] long.

use crate::client::SecurityOptions;
use anyhow::{Context, Result, bail};
use clap::Args;
use rustls::pki_types::ServerName;
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// The console's answers are a megabyte at most.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Time of a call.
const WAIT_MAX: Duration = Duration::from_secs(15);

/// Where the HTTP port is.
#[derive(Args, Clone, Debug)]
pub struct HttpConnection {
    /// HOST:PORT of the server's HTTP port, with https:// in front if it is under TLS
    #[arg(long, value_name = "HOST:PORT", env = "STELE_HTTP", default_value = "127.0.0.1:8088")]
    pub http: String,
    #[command(flatten)]
    security: SecurityOptions,
}

impl HttpConnection {
    /// The answer to a call of the console.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let (bare, is_tls) = self.security.tls.is_tls(&self.http)?;
        let token = self.security.bearer(bare, is_tls, "https://")?;
        let (status, body) = self.ask_as(path, token.as_deref()).await?;
        if status != 200 {
            bail!("{}: {}", self.http, error_of(status, &body));
        }
        serde_json::from_slice(&body).with_context(|| format!("{} is not a server of this version", self.http))
    }

    /// The status and the body of the answer to a call that everybody may make. The token stays here.
    pub async fn ask(&self, path: &str) -> Result<(u16, Vec<u8>)> {
        self.ask_as(path, None).await
    }

    async fn ask_as(&self, path: &str, token: Option<&str>) -> Result<(u16, Vec<u8>)> {
        let answer = timeout(WAIT_MAX, self.exchange(path, token)).await;
        let answer = answer.with_context(|| format!("{} does not answer", self.http))??;
        let (_, is_tls) = self.security.tls.is_tls(&self.http)?;
        let hint = if is_tls { "" } else { ", or it is under TLS (https://)" };
        let (status, body) = parse(&answer).with_context(|| format!("{} does not speak HTTP{hint}", self.http))?;
        Ok((status, body.to_vec()))
    }

    async fn exchange(&self, path: &str, token: Option<&str>) -> Result<Vec<u8>> {
        let (bare, is_tls) = self.security.tls.is_tls(&self.http)?;
        let connecting = TcpStream::connect(bare).await;
        let stream = connecting.with_context(|| format!("cannot connect to {bare}"))?;
        if !is_tls {
            return request(stream, bare, path, token).await;
        }
        let connector = TlsConnector::from(Arc::new(self.security.tls.of_stream()?));
        let secured = connector.connect(server_name(bare)?, stream).await;
        let secured = secured.with_context(|| format!("TLS with {bare}"))?;
        request(secured, bare, path, token).await
    }
}

/// Sends a request, and returns the answer up to its end.
async fn request(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    path: &str,
    token: Option<&str>,
) -> Result<Vec<u8>> {
    let token = token
        .map(|token| format!("Authorization: Bearer {token}\r\n"))
        .unwrap_or_default();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{token}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    match stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await {
        // A connection that ends without TLS's own end; the length of the answer tells whether it is complete.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof && !answer.is_empty() => {}
        read => drop(read?),
    }
    Ok(answer)
}

/// The name that the server's certificate must have.
fn server_name(address: &str) -> Result<ServerName<'static>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = match host.parse::<IpAddr>() {
        // A server listens there, and is asked on its own machine.
        Ok(ip) if ip.is_unspecified() => "localhost",
        _ => host,
    };
    ServerName::try_from(host.to_owned()).with_context(|| format!("{host:?} is not the name of a host"))
}

/// The status and the body of an answer.
fn parse(answer: &[u8]) -> Result<(u16, &[u8])> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.context("an answer without an end of its head")?;
    let head = std::str::from_utf8(answer.get(..end).unwrap_or_default())?;
    let body = answer.get(end + 4..).unwrap_or_default();
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1."));
    let status = status.and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let status = status.context("an answer without a status")?;
    let header = |name: &str| {
        let mut values = lines.clone().filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        });
        values.next()
    };
    if header("transfer-encoding").is_some() {
        bail!("an answer in chunks");
    }
    if let Some(length) = header("content-length").and_then(|length| length.parse::<usize>().ok())
        && length != body.len()
    {
        bail!("an answer that is cut");
    }
    Ok((status, body))
}

/// The sentence of the server, if it is one.
fn error_of(status: u16, body: &[u8]) -> String {
    let value: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let sentence = value.as_ref().and_then(|value| value.get("error")?.as_str());
    sentence.map_or_else(|| format!("status {status}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_for_the_host() {
        let name = |address: &str| server_name(address).unwrap().to_str().into_owned();
        assert_eq!(name("node-1:8088"), "node-1");
        assert_eq!(name("[::1]:8088"), "::1");
        assert_eq!(name("0.0.0.0:8088"), "localhost");
        assert!(server_name("a b:1").is_err());
    }

    #[tokio::test]
    async fn the_token_is_for_calls_that_need_it() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let served = tokio::spawn(async move {
            let mut requests = Vec::new();
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 1024];
                let length = stream.read(&mut request).await.unwrap();
                requests.push(String::from_utf8_lossy(&request[..length]).into_owned());
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n1").await.unwrap();
            }
            requests
        });
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "secret").unwrap();
        let mut connection = HttpConnection {
            http: address,
            security: SecurityOptions {
                token_file: Some(file.path().to_owned()),
                ..SecurityOptions::default()
            },
        };
        assert_eq!(connection.get::<u64>("/api").await.unwrap(), 1);
        assert_eq!(connection.ask("/readyz").await.unwrap().0, 200);
        let has_token: Vec<bool> = served.await.unwrap().iter().map(|r| r.contains("secret")).collect();
        assert_eq!(has_token, [true, false]);
        connection.http = "192.0.2.1:1".to_owned();
        let refused = connection.get::<u64>("/api").await.unwrap_err().to_string();
        assert!(refused.contains("as plain text"), "{refused}");
    }

    #[test]
    fn answers_are_parsed() {
        let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 16\r\n\r\n{\"error\": \"not\"}";
        let (status, body) = parse(answer).unwrap();
        assert_eq!((status, error_of(status, body).as_str()), (503, "not"));
        assert_eq!(error_of(404, b"<html>"), "status 404");
        for bad in [
            &b"SSH-2.0\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"",
        ] {
            assert!(parse(bad).is_err(), "{}", bad.escape_ascii());
        }
    }
}
