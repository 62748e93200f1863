//! Carries out BG's actions.
//!
//! Seed and `i` alone (and this worker's share of the users) determine the action, the acting member and the viewed
//! member of operation `i`. The partner of an update depends on the `Ledger`: a stranger to invite, an inviter to
//! answer, a friend to part with. If the chosen member has no such partner, a member who has one is taken, as BG does.
//! If there is none, nothing is done ([`super::IDLE`]).
//!
//! View Profile and View Top Resources read the chosen other member (rarely the acting one itself). View Friend
//! Requests reads the acting one, as in BG.

use super::chance::Chance;
use super::ledger::{Ledger, List, Shown};
use super::network::{self, CONFIRMED, Network, PENDING, RESOURCES_TABLE, USERS_TABLE};
use super::stage::{Cast, Stage};
use super::{check, is_update};
use crate::activity::{Actor, ActorContext, Step};
use crate::outcome::Verdict;
use crate::plan::SocialAction;
use crate::target::{Connection, Result, Row, Scan};
use anyhow::Context;
use async_trait::async_trait;
use futures::future::{join_all, try_join};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Number of resources in View Top Resources, as in BG.
const TOP_RESOURCES: u32 = 5;
/// Profiles that one list reads concurrently. Longer lists are read in parts.
const CARDS_AT_ONCE: usize = 64;

pub(super) struct Player {
    network: Arc<Network>,
    cast: Cast,
    connection: Arc<dyn Connection>,
    /// Actions and the sums of their weights up to them.
    mix: Vec<(SocialAction, f64)>,
    seed: u64,
    confirmed: Shown,
    pending: Shown,
}

/// The choices of one operation.
#[derive(Debug, Clone, Copy)]
struct Draw {
    /// Index into the mix.
    kind: u8,
    action: SocialAction,
    /// The acting member.
    member: u64,
    /// The viewed member.
    viewed: u64,
    /// For all other choices.
    chance: u64,
}

impl Player {
    pub(super) fn new(stage: Arc<Stage>, mix: &[(SocialAction, f64)], context: ActorContext) -> anyhow::Result<Self> {
        let cast = stage.cast.clone().context("no run of actions has been prepared")?;
        anyhow::ensure!(
            !mix.is_empty() && mix.len() < usize::from(u8::MAX),
            "{} actions in the mix",
            mix.len()
        );
        let mut sum = 0.0;
        let mut cumulated = Vec::with_capacity(mix.len());
        for &(action, weight) in mix {
            anyhow::ensure!(weight.is_finite() && weight >= 0.0, "weight {weight} of {action:?}");
            sum += weight;
            cumulated.push((action, sum));
        }
        anyhow::ensure!(sum > 0.0, "all weights of the mix are zero");
        Ok(Self {
            network: stage.network.clone(),
            cast,
            connection: context.connection,
            mix: cumulated,
            seed: context.seed,
            confirmed: Shown::default(),
            pending: Shown::default(),
        })
    }

    fn draw(&self, index: u64) -> Draw {
        let mut chance = Chance::new(self.seed, index);
        let sum = self.mix.last().map_or(0.0, |(_, sum)| *sum);
        let point = chance.unit() * sum;
        let kind = self
            .mix
            .partition_point(|(_, sum)| *sum <= point)
            .min(self.mix.len() - 1);
        let first = self.cast.ledger.block().start;
        Draw {
            kind: kind as u8,
            action: self.mix[kind].0,
            member: first + self.cast.popularity.sample(&mut chance),
            viewed: first + self.cast.popularity.sample(&mut chance),
            chance: chance.bits(),
        }
    }

    /// A step that found no user to act on. It yields to the scheduler, so that a mix of only such steps cannot starve
    /// its thread.
    async fn idle(&self) -> Step {
        tokio::task::yield_now().await;
        Step {
            kind: self.mix.len() as u8,
            ..Step::default()
        }
    }

    async fn view_profile(&mut self, draw: Draw) -> Result<Step> {
        self.forget_shown();
        let columns = if draw.member == draw.viewed {
            &self.network.columns.own_page
        } else {
            &self.network.columns.page
        };
        let user = draw.viewed;
        let sent = self.cast.ledger.now();
        let row = self
            .connection
            .get(USERS_TABLE, network::user_key(user), columns)
            .await?;
        let mut step = read(draw);
        match &row {
            None => check::no_user(user, &mut step.verdict),
            Some(row) => {
                count(row, &mut step);
                let (confirmed, pending) = (&mut self.confirmed, &mut self.pending);
                check::user(&self.network, user, columns, row, confirmed, pending, &mut step.verdict);
                self.cast
                    .ledger
                    .judge(user, List::Confirmed, sent, confirmed, &mut step.verdict);
                if draw.member == user {
                    self.cast
                        .ledger
                        .judge(user, List::Pending, sent, pending, &mut step.verdict);
                }
            }
        }
        Ok(step)
    }

    /// Reads a list of users, then the card of each of them.
    async fn view_list(&mut self, draw: Draw, user: u64, list: List) -> Result<Step> {
        self.forget_shown();
        let columns = match list {
            List::Confirmed => &self.network.columns.confirmed,
            List::Pending => &self.network.columns.pending,
        };
        let sent = self.cast.ledger.now();
        let row = self
            .connection
            .get(USERS_TABLE, network::user_key(user), columns)
            .await?;
        let mut step = read(draw);
        // A row without a column in the list does not exist for this read. The `Ledger` decides whether that can be.
        if let Some(row) = &row {
            count(row, &mut step);
            let (confirmed, pending) = (&mut self.confirmed, &mut self.pending);
            check::user(&self.network, user, columns, row, confirmed, pending, &mut step.verdict);
        }
        let mut shown = std::mem::take(match list {
            List::Confirmed => &mut self.confirmed,
            List::Pending => &mut self.pending,
        });
        self.cast.ledger.judge(user, list, sent, &mut shown, &mut step.verdict);
        let cards = self.cards(&shown.users, &mut step).await;
        match list {
            List::Confirmed => self.confirmed = shown,
            List::Pending => self.pending = shown,
        }
        cards.map(|()| step)
    }

    /// Reads and checks the cards of these users.
    async fn cards(&mut self, users: &[u64], step: &mut Step) -> Result<()> {
        let Self {
            network, connection, ..
        } = self;
        let columns = &network.columns.card;
        for users in users.chunks(CARDS_AT_ONCE) {
            let gets = users
                .iter()
                .map(|&user| connection.get(USERS_TABLE, network::user_key(user), columns));
            for (&user, row) in users.iter().zip(join_all(gets).await) {
                let Some(row) = row? else {
                    check::no_user(user, &mut step.verdict);
                    continue;
                };
                count(&row, step);
                // Cards have no lists: a column of one would be reported as unexpected, and not be added.
                let (confirmed, pending) = (&mut self.confirmed, &mut self.pending);
                check::user(network, user, columns, &row, confirmed, pending, &mut step.verdict);
            }
        }
        Ok(())
    }

    async fn view_top_resources(&self, draw: Draw) -> Result<Step> {
        let network = &self.network;
        let owner = draw.viewed;
        let wanted = network.resources.min(TOP_RESOURCES);
        let (start, end) = network::resource_range(owner);
        let scan = Scan {
            start,
            end,
            limit: Some(u64::from(TOP_RESOURCES)),
            rows_per_fetch: Some(TOP_RESOURCES),
            columns: network.columns.resource.clone(),
        };
        let mut step = read(draw);
        let mut sink = |row: &Row| {
            count(row, &mut step);
            match network.resources.checked_sub(step.rows) {
                Some(resource) if step.rows <= wanted => {
                    check::resource(network, owner, resource, row, &mut step.verdict);
                    ControlFlow::Continue(())
                }
                _ => {
                    step.verdict.unexpected += 1;
                    step.verdict
                        .example(|| format!("user {owner}: more than {wanted} resources"));
                    ControlFlow::Break(())
                }
            }
        };
        self.connection.scan(RESOURCES_TABLE, &scan, &mut sink).await?;
        for nth in step.rows..wanted {
            check::no_resource(owner, network.resources - 1 - nth, &mut step.verdict);
        }
        Ok(step)
    }

    async fn view_comments(&self, draw: Draw) -> Result<Step> {
        let network = &self.network;
        let owner = draw.viewed;
        let resource = (draw.chance % u64::from(network.resources)) as u32;
        let key = network::resource_key(owner, resource);
        let row = self
            .connection
            .get(RESOURCES_TABLE, key, &network.columns.comments)
            .await?;
        let mut step = read(draw);
        match &row {
            None => check::no_resource(owner, resource, &mut step.verdict),
            Some(row) => {
                count(row, &mut step);
                check::comments(network, owner, resource, row, &mut step.verdict);
            }
        }
        Ok(step)
    }

    async fn invite(&self, draw: Draw) -> Result<Step> {
        let ledger: &Ledger = &self.cast.ledger;
        let Some(pair) = ledger.strangers(draw.member, draw.chance) else {
            return Ok(self.idle().await);
        };
        let put = self.network.invite(pair.user(), pair.other());
        let bytes = put.volume();
        let change = pair.change_user(List::Pending, true);
        self.connection.put(USERS_TABLE, put).await?;
        change.acknowledge();
        ledger.note_invited(pair.user());
        Ok(wrote(draw, 1, bytes))
    }

    async fn accept(&self, draw: Draw) -> Result<Step> {
        let Some(pair) = self.cast.ledger.invited(draw.member, draw.chance) else {
            return Ok(self.idle().await);
        };
        let (user, inviter) = (pair.user(), pair.other());
        let puts = vec![
            self.network.befriend(user, inviter),
            self.network.befriend(inviter, user),
        ];
        let bytes = puts.iter().map(|put| put.volume()).sum::<u64>() + DELETE_BYTES;
        let changes = [
            pair.change_user(List::Confirmed, true),
            pair.change_other(List::Confirmed, true),
        ];
        self.connection.put_many(USERS_TABLE, puts).await?;
        for change in changes {
            change.acknowledge();
        }
        // Last, so that a friendship that failed half-way can be accepted again.
        let answered = pair.change_user(List::Pending, false);
        self.delete(user, PENDING, inviter).await?;
        answered.acknowledge();
        Ok(wrote(draw, 2, bytes))
    }

    async fn reject(&self, draw: Draw) -> Result<Step> {
        let Some(pair) = self.cast.ledger.invited(draw.member, draw.chance) else {
            return Ok(self.idle().await);
        };
        let answered = pair.change_user(List::Pending, false);
        self.delete(pair.user(), PENDING, pair.other()).await?;
        answered.acknowledge();
        Ok(wrote(draw, 1, DELETE_BYTES))
    }

    async fn thaw(&self, draw: Draw) -> Result<Step> {
        let Some(pair) = self.cast.ledger.friends(draw.member, draw.chance) else {
            return Ok(self.idle().await);
        };
        let (user, friend) = (pair.user(), pair.other());
        // Each side is acknowledged when it is, not when both are.
        let mine = async {
            let change = pair.change_user(List::Confirmed, false);
            self.delete(user, CONFIRMED, friend)
                .await
                .map(|()| change.acknowledge())
        };
        let theirs = async {
            let change = pair.change_other(List::Confirmed, false);
            self.delete(friend, CONFIRMED, user)
                .await
                .map(|()| change.acknowledge())
        };
        try_join(mine, theirs).await?;
        Ok(wrote(draw, 2, 2 * DELETE_BYTES))
    }

    async fn delete(&self, user: u64, family: &str, other: u64) -> Result<()> {
        let qualifiers = [network::user_key(other)];
        self.connection
            .delete(USERS_TABLE, network::user_key(user), Some(family), &qualifiers)
            .await
    }

    fn forget_shown(&mut self) {
        self.confirmed.users.clear();
        self.pending.users.clear();
    }
}

/// Bytes in a delete of one tie: row key and qualifier.
const DELETE_BYTES: u64 = 2 * network::USER_KEY_BYTES as u64;

/// A step that reads, before its response is known.
fn read(draw: Draw) -> Step {
    let verdict = Verdict {
        checked: 1,
        ..Verdict::default()
    };
    Step {
        kind: draw.kind,
        operations: 1,
        verdict,
        ..Step::default()
    }
}

fn wrote(draw: Draw, rows: u32, bytes: u64) -> Step {
    Step {
        kind: draw.kind,
        operations: 1,
        rows,
        bytes,
        ..Step::default()
    }
}

fn count(row: &Row, step: &mut Step) {
    step.rows += 1;
    step.bytes += check::volume(row);
}

#[async_trait]
impl Actor for Player {
    fn begin(&mut self, _range: Range<u64>) {}

    async fn step(&mut self, index: u64) -> Result<Step> {
        use SocialAction as Action;
        let draw = self.draw(index);
        let mut step = match draw.action {
            Action::ViewProfile => self.view_profile(draw).await,
            Action::ListFriends => self.view_list(draw, draw.viewed, List::Confirmed).await,
            Action::ViewFriendRequests => self.view_list(draw, draw.member, List::Pending).await,
            Action::InviteFriend => self.invite(draw).await,
            Action::AcceptFriend => self.accept(draw).await,
            Action::RejectFriend => self.reject(draw).await,
            Action::ThawFriendship => self.thaw(draw).await,
            Action::ViewTopResources => self.view_top_resources(draw).await,
            Action::ViewComments => self.view_comments(draw).await,
        }?;
        debug_assert!(!is_update(draw.action) || step.verdict == Verdict::default());
        step.verdict.stale = step.verdict.stale.min(1);
        Ok(step)
    }

    async fn finish(&mut self) -> Result<Step> {
        Ok(Step::default())
    }
}
