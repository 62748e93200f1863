//! The social network as it is loaded: row keys, columns and every value, each a function of the user alone.
//!
//! Terms: the *ring*: users stand in a circle, and each is a friend of the `friends / 2` nearest on either side, as in BG.
//! A *card* is what a list shows of a user: profile and thumbnail.
//!
//! Values do not depend on a run's seed, so that any run can check what another one loaded. They are pieces of two pools
//! of pseudo-random bytes, starting where a hash of user and column says: made and compared without computing or copying
//! anything, which matters at 512 kB. Two users' images agree by accident in one of a million pairs; names come with them.

use super::chance::{Chance, scatter};
use crate::plan::SocialSpec;
use crate::target::{Columns, Put};
use bytes::Bytes;
use std::sync::Arc;

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
/// Users who have sent an invitation that is not answered: qualifiers are their row keys.
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
/// A resource's fields and their bytes, as in BG. The owner is in the row key; who made it is a user's number.
pub const RESOURCE_FIELDS: [(&str, usize); 4] = [("body", 100), ("creator", 10), ("doc", 19), ("type", 100)];
/// Comments on each resource when loaded.
pub const COMMENTS_PER_RESOURCE: u32 = 1;
/// Characters of a comment.
const COMMENT_BYTES: usize = 100;

/// Most users: what [`super::dzipfian`] has a table for.
pub const USERS_MAX: u64 = super::dzipfian::RANKS_MAX;
/// Most friends of a user when loaded: twenty times what the document used.
pub const FRIENDS_MAX: u32 = 1000;
/// Most resources of a user: their numbers have four digits in row keys.
pub const RESOURCES_MAX: u32 = 10_000;
/// Most bytes of an image: an HBase client refuses cells above 10 MB.
pub const IMAGE_BYTES_MAX: u32 = 8 << 20;
/// Most bytes of a thumbnail.
const THUMB_BYTES_MAX: u32 = 12 << 10;

/// Bytes of a user's row key: four hex digits of salt, a dash, ten digits.
pub const USER_KEY_BYTES: usize = 15;
/// Places in a pool at which a piece may start.
const POOL_STARTS: usize = 1 << 20;

/// What is in the tables after the load.
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
    /// Letters that texts are pieces of.
    letters: Bytes,
    /// Bytes that images are pieces of.
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
    /// One that makes no sense or exceeds a limit.
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

    /// Whether a specification describes this network, whatever is done with it.
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
    pub fn field(&self, user: u64, field: usize) -> Bytes {
        let bytes = PROFILE_FIELDS.get(field).map_or(0, |(_, bytes)| *bytes);
        piece(&self.letters, user, field as u64, bytes)
    }

    /// A user's image; empty if there are none.
    pub fn image(&self, user: u64) -> Bytes {
        piece(&self.pixels, user, 100, self.image_bytes as usize)
    }

    /// A user's thumbnail; empty if there are none.
    pub fn thumb(&self, user: u64) -> Bytes {
        piece(&self.pixels, user, 101, self.thumb_bytes as usize)
    }

    /// The value of a resource's field.
    pub fn resource_field(&self, owner: u64, resource: u32, field: usize) -> Bytes {
        match RESOURCE_FIELDS.get(field) {
            Some(("creator", _)) => Bytes::copy_from_slice(&user_key_bytes(owner)[USER_KEY_BYTES - 10..]),
            Some((_, bytes)) => piece(
                &self.letters,
                owner,
                1000 + u64::from(resource) * 100 + field as u64,
                *bytes,
            ),
            None => Bytes::new(),
        }
    }

    /// The text of a comment.
    pub fn comment(&self, owner: u64, resource: u32, comment: u32) -> Bytes {
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
                self.field(user, field),
            ));
        }
        if self.image_bytes > 0 {
            cells.push((names.image.clone(), IMAGE_QUALIFIER, self.image(user)));
            cells.push((names.thumb.clone(), IMAGE_QUALIFIER, self.thumb(user)));
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
            let value = self.resource_field(owner, resource, field);
            cells.push((names.resource.clone(), Bytes::from_static(name.as_bytes()), value));
        }
        for comment in 0..COMMENTS_PER_RESOURCE {
            cells.push((
                names.comments.clone(),
                comment_qualifier(comment),
                self.comment(owner, resource, comment),
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

    /// The write that leaves an invitation by `inviter` with `user`.
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

/// First rows of all tablets but the first, for either table: row keys start with four evenly spread hex digits.
pub fn splits(tablets: u32) -> Vec<Vec<u8>> {
    (1..tablets)
        .map(|tablet| format!("{:04x}", u64::from(tablet) * 0x1_0000 / u64::from(tablets)).into_bytes())
        .collect()
}

/// A user's row key.
pub fn user_key(user: u64) -> Bytes {
    Bytes::copy_from_slice(&user_key_bytes(user))
}

fn user_key_bytes(user: u64) -> [u8; USER_KEY_BYTES] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let salt = scatter(user) >> 48;
    let mut key = [b'-'; USER_KEY_BYTES];
    for (place, byte) in key.iter_mut().take(4).enumerate() {
        *byte = HEX[(salt >> (12 - 4 * place)) as usize & 15];
    }
    let mut rest = user;
    for byte in key.iter_mut().skip(5).rev() {
        *byte = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// The user whose row key this is, if it is one's.
pub fn user_of(key: &[u8]) -> Option<u64> {
    let digits = key.get(5..USER_KEY_BYTES)?;
    let user = digits.iter().try_fold(0u64, |number, byte| {
        byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0'))
    })?;
    (user_key_bytes(user) == key).then_some(user)
}

/// A resource's row key: its owner's, and four digits that fall as the resource's number rises, so that the newest is first.
pub fn resource_key(owner: u64, resource: u32) -> Bytes {
    let mut key = Vec::with_capacity(USER_KEY_BYTES + 5);
    key.extend_from_slice(&user_key_bytes(owner));
    key.push(b'/');
    key.extend_from_slice(&four_digits(RESOURCES_MAX.saturating_sub(1 + resource)));
    Bytes::from(key)
}

/// The rows of all of a user's resources: first, and first behind.
pub fn resource_range(owner: u64) -> (Bytes, Bytes) {
    let mut start = user_key_bytes(owner).to_vec();
    let mut end = start.clone();
    start.push(b'/');
    end.push(b'/' + 1);
    (Bytes::from(start), Bytes::from(end))
}

/// Qualifier of a comment.
pub fn comment_qualifier(comment: u32) -> Bytes {
    Bytes::copy_from_slice(&four_digits(comment))
}

fn four_digits(number: u32) -> [u8; 4] {
    let digit = |place: u32| b'0' + (number / place % 10) as u8;
    [digit(1000), digit(100), digit(10), digit(1)]
}

fn pool(seed: u64, bytes: usize, letter: impl Fn(u8) -> u8) -> Bytes {
    let mut chance = Chance::new(seed, 0);
    let mut pool = Vec::with_capacity(bytes + 8);
    while pool.len() < bytes {
        pool.extend(chance.bits().to_le_bytes().map(&letter));
    }
    Bytes::from(pool)
}

/// The bytes of a pool that belong to an item of a user.
fn piece(pool: &Bytes, user: u64, item: u64, bytes: usize) -> Bytes {
    if bytes == 0 {
        return Bytes::new();
    }
    let start = Chance::new(user, item).below(POOL_STARTS as u64) as usize;
    pool.slice(start..start + bytes)
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
    fn keys_lead_back_to_users_and_spread_over_tablets() {
        let mut tablets = [0u32; 16];
        let splits = splits(16);
        assert_eq!(splits.len(), 15);
        assert!(splits.is_sorted());
        for user in 0..16_000 {
            let key = user_key(user);
            assert_eq!(user_of(&key), Some(user));
            tablets[splits.partition_point(|s| s.as_slice() <= &key[..])] += 1;
        }
        assert!(tablets.iter().all(|&n| (850..1150).contains(&n)), "{tablets:?}");
        assert_eq!(user_of(b""), None);
        assert_eq!(user_of(b"0000-000000000x"), None);
        let mut salted_otherwise = user_key(5).to_vec();
        salted_otherwise[0] = if salted_otherwise[0] == b'0' { b'1' } else { b'0' };
        assert_eq!(user_of(&salted_otherwise), None);
    }

    #[test]
    fn the_newest_resource_is_first_in_its_owners_range() {
        let (start, end) = resource_range(77);
        let keys: Vec<_> = [RESOURCES_MAX - 1, 9, 1, 0].map(|r| resource_key(77, r)).into();
        assert!(keys.is_sorted());
        assert!(keys.iter().all(|k| start <= *k && *k < end));
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
