use super::*;
use crate::testing::World;
use stele_types::Epoch;

const OLD: TabletId = TabletId(7);
const NEW: TabletId = TabletId(8);

#[tokio::test(start_paused = true)]
async fn a_new_tablet_that_is_replaced_at_once_is_not_coming_any_more() {
    let world = World::new().await;
    let local = world.follow(1).await;
    let control = world.elect(&local).await.control.clone();
    for committed in [false, true] {
        control.homes.note(ServerId(1), Epoch(1), [NEW].into_iter());
        control.note_preparing(OLD, ServerId(1), vec![NEW]);
        assert_eq!(control.coming(), BTreeSet::from([NEW]));
        control.end_replacement(OLD, committed).await;
        assert_eq!(control.coming(), BTreeSet::new(), "the catalog does not name it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_former_leader_tells_a_silent_server_no_outcome_any_more() {
    let world = World::new().await;
    world.note_member(2).await;
    let local = world.follow(1).await;
    let control = world.elect(&local).await.control.clone();
    control.note_preparing(OLD, ServerId(2), vec![NEW]);
    control.note_prepared(OLD, ServerId(2), 1);
    let ending = control.end_replacement(OLD, true);
    let mut ending = std::pin::pin!(ending);
    let during_the_term = world.env.timeout(Duration::from_secs(60), &mut ending).await;
    assert!(during_the_term.is_err(), "the server is a member");
    control.end_term();
    let afterwards = world.env.timeout(2 * END_WAIT, ending).await;
    assert!(afterwards.is_ok(), "the next leader tells it");
}
