use super::*;
use crate::records::{self, SERVERS};
use crate::testing::{Roots, World, options};

#[tokio::test(start_paused = true)]
async fn a_server_may_take_longer_to_join_than_its_session_lives() {
    let world = World::new().await;
    let session = Duration::from_secs(10);
    let storage = ClusterStorage {
        data: world.data.clone(),
        roots: Roots::new(world.env.clone(), 2 * session),
    };
    let parts = (Arc::new(Cache::new(1 << 20)), ServerOptions::for_memory(64 << 20));
    let (env, coord) = (world.env.clone(), world.coord.clone());
    let joined = join(env, coord, storage, parts, options(session), &Metrics::new()).await;
    let node = joined.expect("joined");
    world.env.sleep(2 * session).await;
    assert!(!*node.given_up.borrow());
    let record = world.coord.get(&records::key(SERVERS, node.number)).await;
    assert!(record.expect("read").is_some(), "it is a member");
}
