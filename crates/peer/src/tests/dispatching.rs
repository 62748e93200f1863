//! The dispatcher: its own tablets directly, others over the protocol.

use super::support::*;
use crate::dispatch::{Dispatcher, Owner, Owners};
use crate::handshake::Identity;
use crate::remote::{Peer, RemoteOptions};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use stele_client::TabletService;
use stele_memory::Pool;
use stele_types::{ErrorKind, TabletId};

#[derive(Default)]
struct Known(Mutex<BTreeMap<TabletId, Owner>>);

impl Owners for Known {
    fn owner_of(&self, tablet: TabletId) -> Option<Owner> {
        self.0.lock().get(&tablet).cloned()
    }

    fn is_member(&self, server: u64) -> bool {
        let known = self.0.lock();
        known
            .values()
            .any(|owner| matches!(owner, Owner::There(peer) if peer.identity.server == server))
    }
}

#[tokio::test]
async fn a_call_goes_to_the_owner_and_follows_it() {
    let mut net = net(1 << 16, 0);
    let (here, there) = (tablets(), tablets());
    let known = Arc::new(Known::default());
    let parts = (net.env.clone(), Pool::default());
    let dispatcher = Dispatcher::new(parts, CALLER, here.clone(), known.clone(), RemoteOptions::default());
    let write = |row| dispatcher.mutate(TABLET, writes(row), None);
    let own = |epoch| {
        let peer = Peer {
            identity: Identity { epoch, ..OWNER },
            address: "owner".to_owned(),
        };
        known.0.lock().insert(TABLET, Owner::There(Arc::new(peer)));
    };
    assert_eq!(write("none").await.unwrap_err().kind, ErrorKind::Unavailable);
    known.0.lock().insert(TABLET, Owner::Here);
    write("here").await.unwrap();
    own(OWNER.epoch);
    let (written, first) = tokio::join!(write("there"), net.serve(&there, pending()));
    written.unwrap();
    assert_eq!(dispatcher.try_read_row(TABLET, &"r".into(), None), Ok(None));
    let mut stream = dispatcher.read(TABLET, scan()).await.unwrap();
    assert_eq!(stream.next().await, Ok(None));
    // The catalog knows of a later life: the old connection is not used any more.
    own(OWNER.epoch + 1);
    let (late, second) = tokio::join!(write("late"), net.serve(&there, pending()));
    assert_eq!(late.unwrap_err().kind, ErrorKind::Unavailable);
    assert!(second.await.unwrap().is_err(), "the epoch is another");
    drop(stream);
    first.await.unwrap().unwrap();
    let (here, there) = (here.written.lock().clone(), there.written.lock().clone());
    assert_eq!((here, there), (vec!["here".into()], vec!["there".into()]));
}

/// Each life of a server has its own number.
#[tokio::test(start_paused = true)]
async fn former_servers_are_forgotten() {
    let net = net(1 << 16, 0);
    let known = Arc::new(Known::default());
    let parts = (net.env.clone(), Pool::default());
    let dispatcher = Dispatcher::new(parts, CALLER, tablets(), known.clone(), RemoteOptions::default());
    for life in 0..100 {
        let peer = Peer {
            identity: Identity {
                server: OWNER.server + life,
                ..OWNER
            },
            address: "owner".to_owned(),
        };
        known.0.lock().insert(TABLET, Owner::There(Arc::new(peer)));
        dispatcher.read(TABLET, scan()).await.unwrap();
    }
    assert_eq!(dispatcher.known(), 1);
}
