//! Asks whether the process of a server is still there.

use crate::handshake::{ANSWER_BYTES, Answer, Hello, Identity, Refusal, VERSIONS};
use crate::remote::Peer;
use std::io;
use std::time::Duration;
use stele_env::Env;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The outcome of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The server answered.
    Answered,
    /// No process listens at the address, or one that is not this server: its process is gone.
    Gone,
    /// No answer. The server may be slow, paused, or cut off.
    Silent,
}

/// Connects to a server and shakes hands, within a time.
pub async fn probe(env: &Env, own: Identity, peer: &Peer, wait: Duration) -> Probe {
    match env.timeout(wait, greet(env, own, peer)).await {
        Ok(Ok(answer)) => judge(&answer, peer),
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Probe::Gone,
        Ok(Err(_)) | Err(_) => Probe::Silent,
    }
}

fn judge(answer: &Answer, peer: &Peer) -> Probe {
    let wanted = peer.identity;
    let is_other = answer.owner.cluster != wanted.cluster
        || answer.owner.server != wanted.server
        || (wanted.epoch != 0 && answer.owner.epoch != wanted.epoch);
    match answer.version {
        Err(Refusal::Server | Refusal::Epoch | Refusal::Cluster) if is_other => Probe::Gone,
        _ => Probe::Answered,
    }
}

async fn greet(env: &Env, own: Identity, peer: &Peer) -> io::Result<Answer> {
    let mut socket = env.connect(&peer.address).await?;
    let hello = Hello {
        versions: VERSIONS,
        caller: own,
        owner: peer.identity,
    };
    socket.write_all(&hello.encode()).await?;
    socket.flush().await?;
    let mut answer = [0; ANSWER_BYTES];
    socket.read_exact(&mut answer).await?;
    let decoded = Answer::decode(&answer);
    let _ = socket.shutdown().await;
    decoded.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
