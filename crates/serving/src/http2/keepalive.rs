//! Probes silent connections, and finds clients that are gone.
//!
//! The streams of such a client would keep their reads and memory for ever.

use super::Http2Settings;
use crate::gathered_io::Output;
use futures::future::BoxFuture;
use h2::{Ping, PingPong};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use stele_env::Env;
use tokio::io::AsyncWrite;

/// Probes a connection on which nothing arrives.
pub(super) struct Keepalive {
    probe: PingPong,
    interval: Duration,
    wait: Duration,
    /// The connection ends if nothing arrives.
    is_probing: bool,
    /// The answer to the last probe has not come, or was not taken. It may come after other bytes.
    is_unanswered: bool,
    alarm: BoxFuture<'static, ()>,
    env: Env,
}

impl Keepalive {
    pub fn new(probe: PingPong, settings: &Http2Settings, env: Env) -> Self {
        Keepalive {
            probe,
            interval: settings.probe_interval,
            wait: settings.probe_wait,
            is_probing: false,
            is_unanswered: false,
            alarm: alarm(&env, settings.probe_interval),
            env,
        }
    }

    /// Ready when the client has not answered in time. Any bytes from it are an answer.
    pub fn poll<T: AsyncWrite + Unpin>(&mut self, cx: &mut Context<'_>, output: &Output<T>) -> Poll<()> {
        // It must be taken, so that another probe can be sent.
        if self.is_unanswered && self.probe.poll_pong(cx).is_ready() {
            self.is_unanswered = false;
        }
        loop {
            ready!(self.alarm.as_mut().poll(cx));
            let has_read = output.take_has_read();
            if self.is_probing && !has_read {
                return Poll::Ready(());
            }
            // Fails only if the answer to the last probe has not come, though other bytes have.
            let probes = !has_read && self.probe.send_ping(Ping::opaque()).is_ok();
            self.is_probing = probes;
            self.is_unanswered |= probes;
            self.alarm = alarm(&self.env, if probes { self.wait } else { self.interval });
        }
    }
}

fn alarm(env: &Env, after: Duration) -> BoxFuture<'static, ()> {
    let env = env.clone();
    Box::pin(async move { env.sleep(after).await })
}
