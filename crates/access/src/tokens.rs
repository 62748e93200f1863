//! Bearer tokens: a file of their hashes.
//!
//! A token is `stele_ID_SECRET`: the id finds its line in the file, and the secret is 256 random bits. The file has a salted
//! SHA-256 of the secret, so it shows nobody a token. A slow hash is for secrets that can be guessed, which these cannot.
//!
//! ```text
//! # name  id            hash                       expires: seconds since 1970, or never
//! alice   3f2a9c01be77  sha256:<salt>:<digest>     1798761600
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, hash_map};
use std::fmt::Write as _;
use stele_types::Member;

/// The beginning of every token, by which scanners of source code recognise them.
const PREFIX: &str = "stele_";

/// Bytes of an id, which is written in hexadecimal.
const ID_BYTES: usize = 6;
const SALT_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;
const DIGEST_BYTES: usize = 32;

/// Random bytes that a new token is made of.
pub const RANDOM_BYTES: usize = ID_BYTES + SALT_BYTES + SECRET_BYTES;

/// Tokens of one file.
const TOKENS_MAX: usize = 100_000;

/// Whether a token is one of those that this module makes.
pub fn is_own(token: &str) -> bool {
    token.starts_with(PREFIX)
}

/// The tokens of a file, by id.
#[derive(Default)]
pub struct Tokens(HashMap<String, Entry>);

struct Entry {
    name: String,
    salt: Vec<u8>,
    digest: [u8; DIGEST_BYTES],
    /// Seconds since 1970 from which on it is refused.
    expires: Option<u64>,
}

/// The reason for which a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// There is no such token, or its secret is another one.
    #[error("the bearer token is not known")]
    Unknown,
    /// Its time is over.
    #[error("the bearer token has expired")]
    Expired,
}

/// The lines of a file that do not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The first of them, and its mistake.
    pub first: String,
    /// How many there are.
    pub lines: usize,
}

/// A new token.
pub struct NewToken {
    /// The token, to be shown once.
    pub token: String,
    /// The line of the file.
    pub line: String,
}

impl Tokens {
    /// Parses a file; the error names the first faulty line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (tokens, faults) = Tokens::parse_lines(text.as_bytes());
        match faults {
            None => Ok(tokens),
            Some(faults) => Err(faults.first),
        }
    }

    /// Parses a file whose faulty lines do not count. A mistake in one line must not keep a token that another line had.
    pub fn parse_lines(bytes: &[u8]) -> (Self, Option<Faults>) {
        let mut tokens = HashMap::new();
        let mut faults: Option<Faults> = None;
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let Err(why) = add_line(&mut tokens, line) else {
                continue;
            };
            let faults = faults.get_or_insert_with(|| Faults {
                first: format!("line {}: {why}", index + 1),
                lines: 0,
            });
            faults.lines += 1;
        }
        (Tokens(tokens), faults)
    }

    /// The name of the holder of a token, and the seconds since 1970 from which on the token is refused.
    pub fn holder(&self, token: &str, now_seconds: u64) -> Result<(&str, Option<u64>), TokenRefused> {
        let (id, secret) = split(token).ok_or(TokenRefused::Unknown)?;
        let entry = self.0.get(id).ok_or(TokenRefused::Unknown)?;
        if !is_same(&digest(&entry.salt, secret), &entry.digest) {
            return Err(TokenRefused::Unknown);
        }
        match entry.expires {
            Some(end) if now_seconds >= end => Err(TokenRefused::Expired),
            expires => Ok((&entry.name, expires)),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Makes a token of random bytes. `None` for a name that no caller can have.
pub fn make(name: &str, random: &[u8; RANDOM_BYTES], expires: Option<u64>) -> Option<NewToken> {
    let is_name = Member::parse(&format!("user:{name}")).is_some();
    if !is_name || name.contains(char::is_whitespace) || name.starts_with('#') {
        return None;
    }
    let (id, rest) = random.split_at(ID_BYTES);
    let (salt, secret) = rest.split_at(SALT_BYTES);
    let id = id.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let secret = URL_SAFE_NO_PAD.encode(secret);
    let digest = URL_SAFE_NO_PAD.encode(digest(salt, &secret));
    let salt = URL_SAFE_NO_PAD.encode(salt);
    let expires = expires.map_or_else(|| "never".to_owned(), |end| end.to_string());
    Some(NewToken {
        line: format!("{name} {id} sha256:{salt}:{digest} {expires}"),
        token: format!("{PREFIX}{id}_{secret}"),
    })
}

/// The id and the secret of a token.
fn split(token: &str) -> Option<(&str, &str)> {
    let rest = token.strip_prefix(PREFIX)?;
    let (id, secret) = rest.split_once('_')?;
    (id.len() == ID_BYTES * 2).then_some((id, secret))
}

/// Adds the token of a line, if it has one.
fn add_line(tokens: &mut HashMap<String, Entry>, line: &[u8]) -> Result<(), &'static str> {
    let line = std::str::from_utf8(line).map_err(|_| "not text")?.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(());
    }
    let (id, entry) = parse_line(line)?;
    if tokens.len() >= TOKENS_MAX {
        return Err("more than 100000 tokens");
    }
    match tokens.entry(id) {
        hash_map::Entry::Occupied(_) => Err("another line has the same id"),
        hash_map::Entry::Vacant(vacant) => {
            vacant.insert(entry);
            Ok(())
        }
    }
}

fn parse_line(line: &str) -> Result<(String, Entry), &'static str> {
    let mut words = line.split_whitespace();
    let mut next = || words.next().ok_or("four words are expected: name, id, hash and expiry");
    let (name, id, hash, expires) = (next()?, next()?, next()?, next()?);
    if words.next().is_some() {
        return Err("more than four words");
    }
    if Member::parse(&format!("user:{name}")).is_none() {
        return Err("the name is longer than 256 bytes");
    }
    if id.len() != ID_BYTES * 2 || !id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return Err("the id is not twelve hexadecimal digits");
    }
    let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
    let parts = hash.strip_prefix("sha256:").and_then(|rest| rest.split_once(':'));
    let parts = parts.and_then(|(salt, digest)| bytes(salt).zip(bytes(digest)?.try_into().ok()));
    let (salt, digest) = parts.ok_or("the hash is not sha256:SALT:DIGEST")?;
    let expires = match expires {
        "never" => None,
        seconds => Some(
            seconds
                .parse()
                .map_err(|_| "the expiry is neither seconds since 1970 nor never")?,
        ),
    };
    let name = name.to_owned();
    let entry = Entry {
        name,
        salt,
        digest,
        expires,
    };
    Ok((id.to_owned(), entry))
}

fn digest(salt: &[u8], secret: &str) -> [u8; DIGEST_BYTES] {
    let mut hash = Sha256::new();
    hash.update(salt);
    hash.update(secret.as_bytes());
    hash.finalize().into()
}

/// Compares secrets in a time that does not depend on where the difference is.
pub fn is_same(a: &[u8], b: &[u8]) -> bool {
    let difference = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: u8) -> [u8; RANDOM_BYTES] {
        std::array::from_fn(|at| seed.wrapping_mul(31).wrapping_add(at as u8))
    }

    #[test]
    fn a_token_is_known_by_its_line_until_it_expires() {
        let alice = make("alice", &random(1), Some(1_000)).unwrap();
        let bob = make("bob@example.com", &random(2), None).unwrap();
        assert!(!alice.line.contains(alice.token.rsplit('_').next().unwrap()));
        let file = format!("# tokens\n\n{}\n  {}  \n", alice.line, bob.line);
        let tokens = Tokens::parse(&file).unwrap();
        assert_eq!(tokens.len(), 2);
        assert_eq!(tokens.holder(&alice.token, 999), Ok(("alice", Some(1_000))));
        assert_eq!(tokens.holder(&alice.token, 1_000), Err(TokenRefused::Expired));
        assert_eq!(tokens.holder(&bob.token, u64::MAX), Ok(("bob@example.com", None)));
    }

    #[test]
    fn other_tokens_are_refused() {
        let alice = make("alice", &random(1), None).unwrap();
        let bob = make("bob", &random(2), None).unwrap();
        let tokens = Tokens::parse(&format!("{}\n{}", alice.line, bob.line)).unwrap();
        let (id, _) = split(&alice.token).unwrap();
        let (_, secret) = split(&bob.token).unwrap();
        let mixed = format!("{PREFIX}{id}_{secret}");
        let cut = &alice.token[..alice.token.len() - 1];
        let longer = format!("{}A", alice.token);
        let unknown = make("alice", &random(3), None).unwrap().token;
        for token in [
            &*mixed,
            cut,
            &*longer,
            &*unknown,
            "",
            PREFIX,
            "stele__",
            "alice",
            &alice.line,
        ] {
            assert_eq!(tokens.holder(token, 0), Err(TokenRefused::Unknown), "{token}");
        }
    }

    #[test]
    fn a_faulty_line_keeps_no_token_of_another() {
        let [alice, bob, carol] = [1, 2, 3].map(|seed| make("name", &random(seed), None).unwrap());
        // Alice's line is gone, and Bob's has a mistake, as has one that is no text.
        let typo = bob.line.replace("sha256", "sha265");
        let file = [typo.as_bytes(), b"\n\xff x\r\n", carol.line.as_bytes(), b"\n"].concat();
        let (tokens, faults) = Tokens::parse_lines(&file);
        let faults = faults.unwrap();
        assert_eq!(
            (&*faults.first, faults.lines),
            ("line 1: the hash is not sha256:SALT:DIGEST", 2)
        );
        for gone in [&alice, &bob] {
            assert_eq!(tokens.holder(&gone.token, 0), Err(TokenRefused::Unknown));
        }
        assert!(tokens.holder(&carol.token, 0).is_ok());
        assert_eq!(Tokens::parse_lines(b"# none\n").1, None);
    }

    #[test]
    fn mistakes_in_the_file_are_named() {
        let good = make("alice", &random(1), None).unwrap().line;
        let twice = format!("{good}\n{good}");
        let cases = [
            ("alice", "line 1: four words"),
            ("alice 1 2 3 4", "line 1: more than four"),
            ("alice xyz sha256:a:b never", "line 1: the id"),
            (&*good.replace("sha256", "md5"), "line 1: the hash"),
            (&*good.replace("never", "soon"), "line 1: the expiry"),
            (&*twice, "line 2: another line"),
        ];
        for (text, expected) in cases {
            let error = Tokens::parse(text).err().unwrap();
            assert!(error.starts_with(expected), "{error}");
        }
        for name in ["", "a b", "a\tb", "#a", &"n".repeat(257)] {
            assert!(make(name, &random(1), None).is_none(), "{name}");
        }
    }
}
