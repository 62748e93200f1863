//! Row keys and qualifiers of the social network's tables.
//!
//! A user's row key is four hex digits of a hash, a dash, and ten digits of the user's number: `3e1f-0000000042`. The
//! salt comes first to spread users over all tablets: neighbours in the ring, and the busiest users, whose numbers are
//! the lowest. BG's HBase client has the bare number as key.
//!
//! A resource's key is its owner's, a slash, and four digits that fall as the resource's number rises: the newest resources of
//! a user are the first rows of a short scan.

use super::RESOURCES_MAX;
use crate::social::chance::scatter;
use bytes::Bytes;

/// Bytes of a user's row key: four hex digits of salt, a dash, ten digits.
pub const USER_KEY_BYTES: usize = 15;
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

pub(super) fn user_key_bytes(user: u64) -> [u8; USER_KEY_BYTES] {
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

/// The user of this row key, if it is one.
pub fn user_of(key: &[u8]) -> Option<u64> {
    let digits = key.get(5..USER_KEY_BYTES)?;
    let user = digits.iter().try_fold(0u64, |number, byte| {
        byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0'))
    })?;
    (user_key_bytes(user) == key).then_some(user)
}

/// A resource's row key: its owner's, and four digits that fall as the resource's number rises, so that the newest is
/// first.
pub fn resource_key(owner: u64, resource: u32) -> Bytes {
    let mut key = Vec::with_capacity(USER_KEY_BYTES + 5);
    key.extend_from_slice(&user_key_bytes(owner));
    key.push(b'/');
    key.extend_from_slice(&four_digits(RESOURCES_MAX.saturating_sub(1 + resource)));
    Bytes::from(key)
}

/// The rows of all of a user's resources: the first one, and the first one behind them.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
