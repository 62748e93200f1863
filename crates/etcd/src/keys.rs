//! The layout of the keys in etcd.
//!
//! | key | content |
//! |---|---|
//! | `NAME/keys/KEY` | the value of `KEY` |
//! | `NAME/guards/ID` | the guard of one coordinator object: the last transaction that succeeded |

use bytes::Bytes;

/// The keys below one name.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    keys: String,
    guard: Bytes,
}

impl Keys {
    /// The keys of a coordinator object; `incarnation` is unique.
    pub(crate) fn new(name: &str, incarnation: &str) -> Keys {
        assert!(!name.is_empty(), "a coordinator has a name");
        Keys {
            keys: format!("{name}/keys/"),
            guard: Bytes::from(format!("{name}/guards/{incarnation}")),
        }
    }

    /// The guard.
    pub(crate) fn guard(&self) -> Bytes {
        self.guard.clone()
    }

    /// A key as etcd has it.
    pub(crate) fn stored(&self, key: &str) -> Bytes {
        Bytes::from(format!("{}{key}", self.keys))
    }

    /// A key as its users know it; `None` for bytes that they did not write.
    pub(crate) fn shown(&self, stored: &[u8]) -> Option<String> {
        let rest = stored.strip_prefix(self.keys.as_bytes())?;
        String::from_utf8(rest.to_vec()).ok().filter(|key| !key.is_empty())
    }

    /// The first stored key that begins with a prefix, and the first one after all of them.
    pub(crate) fn range(&self, prefix: &str) -> (Bytes, Bytes) {
        let start = self.stored(prefix);
        let mut end = start.to_vec();
        // UTF-8 has no byte 0xff, and the stored prefix is never empty.
        if let Some(last) = end.last_mut() {
            assert!(*last < 0xff, "keys are UTF-8");
            *last += 1;
        }
        (start, Bytes::from(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_keys_are_shown_again() {
        let keys = Keys::new("prod", "1");
        assert_eq!(keys.stored("a/b"), "prod/keys/a/b");
        assert_eq!(keys.shown(b"prod/keys/a/b"), Some("a/b".to_owned()));
        assert_eq!(keys.guard(), "prod/guards/1");
        for other in [&b"prod/guards/1"[..], b"prod2/keys/a", b"prod/keys/", b"prod/keys/\xff"] {
            assert_eq!(keys.shown(other), None);
        }
    }

    #[test]
    fn ranges_hold_exactly_the_prefix() {
        let keys = Keys::new("prod", "1");
        for prefix in ["", "a", "a/", "ä", "\u{10ffff}", "\u{7f}"] {
            let (start, end) = keys.range(prefix);
            for key in ["a", "a/", "a/b", "b", "ä", "äb", "\u{10ffff}x", "\u{7f}", "\u{80}"] {
                let stored = keys.stored(key);
                assert_eq!(
                    start <= stored && stored < end,
                    key.starts_with(prefix),
                    "{prefix:?} {key:?}"
                );
            }
        }
    }
}
