//! Reads that last longer than the token with which they began.

use super::*;
use crate::tokens::{NewToken, RANDOM_BYTES, Tokens, make};
use std::time::Duration;
use stele_env::{BlockingWork, Priority, Runtime};

/// The test's runtime, whose time passes as the test says.
struct Clocked(Env, tokio::time::Instant);

impl Runtime for Clocked {
    fn now(&self) -> Duration {
        self.1.elapsed()
    }

    fn wall_micros(&self) -> i64 {
        self.0.wall_micros()
    }

    fn random_u64(&self) -> u64 {
        self.0.random_u64()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let env = self.0.clone();
        Box::pin(async move { env.sleep(duration).await })
    }

    fn spawn(&self, _: Priority, name: &'static str, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.spawn(name, task);
    }

    fn run_blocking(&self, work: BlockingWork) {
        work();
    }
}

/// A read of a caller that shows a token.
async fn read(setting: &Setting, token: &str) -> Box<dyn stele_client::RowStream> {
    let shown = Shown {
        token: Some(token),
        ..Shown::default()
    };
    let caller = setting.access.identify(shown).unwrap();
    let (service, tables) = (setting.fake.clone(), setting.fake.clone());
    let guard = Guard::new(Arc::clone(&setting.access), caller, service, tables);
    guard.shown(token).through("v").read_rows(all_rows()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_read_ends_when_its_token_counts_no_longer() {
    let clocked = Clocked(TokioRuntime::current(), tokio::time::Instant::now());
    let setting = Setting::with(false, Env::new(Arc::new(clocked))).await;
    setting.give("alice", Resource::Table(table()), Rights::READ).await;
    setting.fake.serve_streams();
    let make = |seed: u8| make("alice", &[seed; RANDOM_BYTES], None).unwrap();
    let (gone, stays): (NewToken, NewToken) = (make(1), make(2));
    let both = format!("{}\n{}", gone.line, stays.line);
    setting.access.set_tokens(Tokens::parse(&both).unwrap());
    let mut ending = read(&setting, &gone.token).await;
    let mut lasting = read(&setting, &stays.token).await;
    let mut of_certificate = setting.guard("alice").read_rows(all_rows()).await.unwrap();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(ending.next().await.is_ok());
    setting.access.set_tokens(Tokens::parse(&stays.line).unwrap());
    assert!(ending.next().await.is_ok(), "it was looked at just now");
    tokio::time::advance(Duration::from_secs(5)).await;
    let error = ending.next().await.unwrap_err();
    // The client begins it again, with the token that it has by then.
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    assert!(ending.next().await.is_err());
    assert!(lasting.next().await.is_ok() && of_certificate.next().await.is_ok());
    // The token is the same, and names another caller.
    setting
        .access
        .set_tokens(Tokens::parse(&stays.line.replace("alice", "bob")).unwrap());
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(lasting.next().await.unwrap_err().kind, ErrorKind::Unavailable);
    assert!(of_certificate.next().await.is_ok());
    let log = setting.log().await;
    assert!(log.contains("read_rows") && log.contains("unauthenticated"), "{log}");
}
