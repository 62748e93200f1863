//! The social network as loaded, whose rows are functions of the user alone.
//!
//! Terms: in the *ring*, users stand in a circle, and each is a friend of the `friends / 2` nearest on either side, as
//! in BG. A *card* is a user's entry in a list: profile and thumbnail.
//!
//! Values do not depend on a run's seed, so that any run can check the load of another one. They are parts of two pools
//! of pseudo-random bytes, and a hash of user and column determines their start. They are made and compared without
//! computation or copies, which matters at 512 kB. Two users' images agree by accident in one of a million pairs; names
//! come with them.

mod keys;

use super::chance::Chance;
use crate::plan::SocialSpec;
use crate::target::{Columns, Put};
use bytes::Bytes;
use std::sync::Arc;

pub use keys::{USER_KEY_BYTES, comment_qualifier, resource_key, resource_range, splits, user_key, user_of};

/// Users, one row each.
pub const USERS_TABLE: &str = "bench-bg-users";
/// Resources, one row each, those of one user together.
pub const RESOURCES_TABLE: &str = "bench-bg-resources";

/// A profile's fields.
pub const PROFILE: &str = "profile";
/// The profile's image.
pub const IMAGE: &str = "image";
/// Its small copy.
pub const THUMB: &str = "thumb";
/// Friends: qualifiers are their row keys.
pub const CONFIRMED: &str = "confirmed";
/// Users who have sent an unanswered invitation: qualifiers are their row keys.
pub const PENDING: &str = "pending";
/// A resource's fields.
pub const RESOURCE: &str = "resource";
/// Comments on a resource: qualifiers are their numbers.
pub const COMMENTS: &str = "comments";

/// Families of [`USERS_TABLE`].
pub const USER_FAMILIES: [&str; 5] = [PROFILE, IMAGE, THUMB, CONFIRMED, PENDING];
/// Families of [`RESOURCES_TABLE`].
pub const RESOURCE_FAMILIES: [&str; 2] = [RESOURCE, COMMENTS];

/// A profile's fields and their bytes: those of BG, with its 100 characters, or 19 for a date and time.
pub const PROFILE_FIELDS: [(&str, usize); 11] = [
    ("address", 100),
    ("dob", 19),
    ("email", 100),
    ("fname", 100),
    ("gender", 100),
    ("jdate", 19),
    ("ldate", 19),
    ("lname", 100),
    ("pw", 100),
    ("tel", 100),
    ("username", 100),
];
/// A resource's fields and their bytes, as in BG. The owner, on whose wall it is, is in the row key.
pub const RESOURCE_FIELDS: [(&str, usize); 4] = [("body", 100), ("creatorid", 10), ("doc", 19), ("type", 100)];
/// Comments on each resource when loaded.
pub const COMMENTS_PER_RESOURCE: u32 = 1;
/// Characters of a comment.
const COMMENT_BYTES: usize = 100;

/// Most users: the limit of the table of [`super::dzipfian`].
pub const USERS_MAX: u64 = super::dzipfian::RANKS_MAX;
/// Most friends of a user when loaded: twenty times the document's number.
pub const FRIENDS_MAX: u32 = 1000;
/// Most resources of a user: their numbers have four digits in row keys.
pub const RESOURCES_MAX: u32 = 10_000;
/// Most bytes of an image: an HBase client refuses cells above 10 MB.
pub const IMAGE_BYTES_MAX: u32 = 8 << 20;
/// Most bytes of a thumbnail.
const THUMB_BYTES_MAX: u32 = 12 << 10;

/// Places in a pool at which a part may start.
const POOL_STARTS: usize = 1 << 20;

/// Contents of the tables after the load.
#[derive(Debug)]
pub struct Network {
    /// Users are numbered from 0.
    pub users: u64,
    /// Friends of each.
    pub friends: u32,
    /// Resources of each.
    pub resources: u32,
    /// Bytes of an image; zero for none.
    pub image_bytes: u32,
    /// Bytes of a thumbnail; zero for none.
    pub thumb_bytes: u32,
    /// Letters from which texts are cut.
    letters: Bytes,
    /// Bytes from which images are cut.
    pixels: Bytes,
    /// Names of families, shared by all writes.
    names: Names,
    /// Columns of each kind of read.
    pub columns: Reads,
}

#[derive(Debug)]
struct Names {
    profile: Arc<str>,
    image: Arc<str>,
    thumb: Arc<str>,
    confirmed: Arc<str>,
    pending: Arc<str>,
    resource: Arc<str>,
    comments: Arc<str>,
}

/// Columns of each kind of read.
#[derive(Debug)]
pub struct Reads {
    /// Another user's page: profile, image, friends.
    pub page: Columns,
    /// One's own page: invitations as well.
    pub own_page: Columns,
    /// Profile and thumbnail.
    pub card: Columns,
    /// Friends.
    pub confirmed: Columns,
    /// Invitations.
    pub pending: Columns,
    /// A resource without comments.
    pub resource: Columns,
    /// Comments.
    pub comments: Columns,
}

impl Network {
    /// The network that a specification describes.
    ///
    /// # Errors
    /// A specification that is invalid or exceeds a limit.
    pub fn new(spec: &SocialSpec) -> anyhow::Result<Self> {
        let SocialSpec {
            users,
            friends,
            resources,
            image_bytes,
            ..
        } = *spec;
        anyhow::ensure!(
            (1..=USERS_MAX).contains(&users),
            "{users} users: expected 1 to {USERS_MAX}"
        );
        anyhow::ensure!(
            friends <= FRIENDS_MAX,
            "{friends} friends: expected at most {FRIENDS_MAX}"
        );
        anyhow::ensure!(
            friends.is_multiple_of(2),
            "{friends} friends: expected an even number, half on each side"
        );
        anyhow::ensure!(
            u64::from(friends) < users,
            "{friends} friends: expected fewer than the {users} users"
        );
        anyhow::ensure!(
            (1..=RESOURCES_MAX).contains(&resources),
            "{resources} resources: expected 1 to {RESOURCES_MAX}"
        );
        anyhow::ensure!(
            image_bytes <= IMAGE_BYTES_MAX,
            "image of {image_bytes} B: expected at most {IMAGE_BYTES_MAX}"
        );
        let names = Names::new();
        Ok(Self {
            users,
            friends,
            resources,
            image_bytes,
            thumb_bytes: (image_bytes / 12).min(THUMB_BYTES_MAX),
            letters: pool(1, POOL_STARTS + 128, |byte| b'a' + byte % 26),
            pixels: pool(
                2,
                if image_bytes == 0 {
                    0
                } else {
                    POOL_STARTS + image_bytes as usize
                },
                |byte| byte,
            ),
            columns: names.reads(image_bytes > 0),
            names,
        })
    }

    /// Whether a specification describes this network, with any actions.
    pub fn is_of(&self, spec: &SocialSpec) -> bool {
        (self.users, self.friends, self.resources, self.image_bytes)
            == (spec.users, spec.friends, spec.resources, spec.image_bytes)
    }

    /// A user's friends when loaded, ascending.
    pub fn ring(&self, user: u64, into: &mut Vec<u64>) {
        into.clear();
        for distance in 1..=u64::from(self.friends / 2) {
            into.push((user + distance) % self.users);
            into.push((user + self.users - distance) % self.users);
        }
        // No friend is on both sides: there are fewer friends than users.
        into.sort_unstable();
    }

    /// The value of a profile's field.
    pub fn field(&self, user: u64, field: usize) -> &[u8] {
        let bytes = PROFILE_FIELDS.get(field).map_or(0, |(_, bytes)| *bytes);
        piece(&self.letters, user, field as u64, bytes)
    }

    /// A user's image; empty if there are none.
    pub fn image(&self, user: u64) -> &[u8] {
        piece(&self.pixels, user, 100, self.image_bytes as usize)
    }

    /// A user's thumbnail; empty if there are none.
    pub fn thumb(&self, user: u64) -> &[u8] {
        piece(&self.pixels, user, 101, self.thumb_bytes as usize)
    }

    /// The value of a resource's field.
    pub fn resource_field(&self, owner: u64, resource: u32, field: usize) -> &[u8] {
        let bytes = RESOURCE_FIELDS.get(field).map_or(0, |(_, bytes)| *bytes);
        piece(
            &self.letters,
            owner,
            1000 + u64::from(resource) * 100 + field as u64,
            bytes,
        )
    }

    /// The text of a comment.
    pub fn comment(&self, owner: u64, resource: u32, comment: u32) -> &[u8] {
        piece(
            &self.letters,
            owner,
            1050 + u64::from(resource) * 100 + u64::from(comment),
            COMMENT_BYTES,
        )
    }

    /// The whole row of a user, as loaded. `ring` is scratch.
    pub fn user_row(&self, user: u64, ring: &mut Vec<u64>) -> Put {
        let names = &self.names;
        self.ring(user, ring);
        let mut cells = Vec::with_capacity(PROFILE_FIELDS.len() + 2 + ring.len());
        for (field, (name, _)) in PROFILE_FIELDS.iter().enumerate() {
            cells.push((
                names.profile.clone(),
                Bytes::from_static(name.as_bytes()),
                self.letters.slice_ref(self.field(user, field)),
            ));
        }
        if self.image_bytes > 0 {
            cells.push((
                names.image.clone(),
                IMAGE_QUALIFIER,
                self.pixels.slice_ref(self.image(user)),
            ));
            cells.push((
                names.thumb.clone(),
                IMAGE_QUALIFIER,
                self.pixels.slice_ref(self.thumb(user)),
            ));
        }
        for &friend in ring.iter() {
            cells.push((names.confirmed.clone(), user_key(friend), TIE_VALUE));
        }
        Put {
            key: user_key(user),
            cells,
        }
    }

    /// The row of a resource, as loaded.
    pub fn resource_row(&self, owner: u64, resource: u32) -> Put {
        let names = &self.names;
        let mut cells = Vec::with_capacity(RESOURCE_FIELDS.len() + COMMENTS_PER_RESOURCE as usize);
        for (field, (name, _)) in RESOURCE_FIELDS.iter().enumerate() {
            let value = self.letters.slice_ref(self.resource_field(owner, resource, field));
            cells.push((names.resource.clone(), Bytes::from_static(name.as_bytes()), value));
        }
        for comment in 0..COMMENTS_PER_RESOURCE {
            cells.push((
                names.comments.clone(),
                comment_qualifier(comment),
                self.letters.slice_ref(self.comment(owner, resource, comment)),
            ));
        }
        Put {
            key: resource_key(owner, resource),
            cells,
        }
    }

    /// The write that makes `other` a friend of `user`, on the user's side.
    pub fn befriend(&self, user: u64, other: u64) -> Put {
        Put {
            key: user_key(user),
            cells: vec![(self.names.confirmed.clone(), user_key(other), TIE_VALUE)],
        }
    }

    /// Each side is acknowledged by itself, not when both are.
    pub fn invite(&self, user: u64, inviter: u64) -> Put {
        Put {
            key: user_key(user),
            cells: vec![(self.names.pending.clone(), user_key(inviter), TIE_VALUE)],
        }
    }
}

impl Names {
    fn new() -> Self {
        Self {
            profile: PROFILE.into(),
            image: IMAGE.into(),
            thumb: THUMB.into(),
            confirmed: CONFIRMED.into(),
            pending: PENDING.into(),
            resource: RESOURCE.into(),
            comments: COMMENTS.into(),
        }
    }

    fn reads(&self, images: bool) -> Reads {
        let columns = |families: &[&Arc<str>]| Columns {
            families: families
                .iter()
                .map(|&f| f.clone())
                .filter(|f| images || !matches!(&**f, IMAGE | THUMB))
                .collect(),
            qualifiers: Vec::new(),
            versions: 1,
        };
        Reads {
            page: columns(&[&self.profile, &self.image, &self.confirmed]),
            own_page: columns(&[&self.profile, &self.image, &self.confirmed, &self.pending]),
            card: columns(&[&self.profile, &self.thumb]),
            confirmed: columns(&[&self.confirmed]),
            pending: columns(&[&self.pending]),
            resource: columns(&[&self.resource]),
            comments: columns(&[&self.comments]),
        }
    }
}

/// Qualifier of images and thumbnails.
pub const IMAGE_QUALIFIER: Bytes = Bytes::from_static(b"data");
/// Value of the columns of friends and inviters, which say all with their qualifier.
pub const TIE_VALUE: Bytes = Bytes::from_static(b"1");

fn pool(seed: u64, bytes: usize, letter: impl Fn(u8) -> u8) -> Bytes {
    let mut chance = Chance::new(seed, 0);
    let mut pool = Vec::with_capacity(bytes + 8);
    while pool.len() < bytes {
        pool.extend(chance.bits().to_le_bytes().map(&letter));
    }
    Bytes::from(pool)
}

/// The bytes of a pool that belong to an item of a user.
fn piece(pool: &Bytes, user: u64, item: u64, bytes: usize) -> &[u8] {
    let start = Chance::new(user, item).below(POOL_STARTS as u64) as usize;
    pool.get(start..start + bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(users: u64, friends: u32, image_bytes: u32) -> SocialSpec {
        SocialSpec {
            users,
            friends,
            resources: 10,
            image_bytes,
            ..SocialSpec::default()
        }
    }

    #[test]
    fn the_ring_is_symmetric() {
        let (mut mine, mut theirs) = (Vec::new(), Vec::new());
        for (users, friends) in [(100, 10), (11, 10), (3, 2), (5, 0)] {
            let network = Network::new(&spec(users, friends, 0)).unwrap();
            for user in 0..users {
                network.ring(user, &mut mine);
                assert_eq!(mine.len(), friends as usize, "{users} {friends}");
                for &friend in &mine {
                    network.ring(friend, &mut theirs);
                    assert!(friend != user && theirs.contains(&user));
                }
            }
        }
    }

    #[test]
    fn values_differ_between_users_and_stay_the_same() {
        let network = Network::new(&spec(100, 4, 12 << 10)).unwrap();
        let again = Network::new(&spec(100, 4, 12 << 10)).unwrap();
        assert_eq!(network.image(3), again.image(3));
        assert_ne!(network.image(3), network.image(4));
        assert_ne!(network.field(3, 0), network.field(3, 2));
        assert_eq!((network.image(3).len(), network.thumb(3).len()), (12 << 10, 1 << 10));
        let mut ring = Vec::new();
        let row = network.user_row(3, &mut ring);
        assert_eq!(row.cells.len(), 11 + 2 + 4);
        assert_eq!(network.columns.page.families.len(), 3);
        let bare = Network::new(&spec(100, 4, 0)).unwrap();
        assert_eq!(bare.user_row(3, &mut ring).cells.len(), 11 + 4);
        assert_eq!(bare.columns.card.families.len(), 1);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(Network::new(&spec(0, 0, 0)).is_err());
        assert!(Network::new(&spec(10, 3, 0)).is_err());
        assert!(Network::new(&spec(10, 10, 0)).is_err());
        assert!(Network::new(&spec(10, 2, u32::MAX)).is_err());
        assert!(
            Network::new(&SocialSpec {
                resources: 0,
                ..spec(10, 2, 0)
            })
            .is_err()
        );
    }
}
