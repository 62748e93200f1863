//! The file of a wrapped data key, and its name.

use crate::service::{KEY_BYTES, KeyContext, Wrapped};
use std::fmt::Write;
use stele_types::TableId;

/// The directory of the data keys. Its files are never encrypted.
pub const DIRECTORY: &str = "encryption/";

/// Files of a root that a start reads before it opens the storage, and other programs than servers as well.
const PLAIN: [&str; 3] = ["FORMAT", "PROMOTED", "INCOMING"];

/// Whether a file is never encrypted.
pub fn is_plain(path: &str) -> bool {
    PLAIN.contains(&path) || path.starts_with(DIRECTORY)
}

/// The first bytes.
pub const MAGIC: [u8; 8] = *b"STELKEY1";
const VERSION: u32 = 1;
const FIXED_BYTES: usize = 48;
const ID_BYTES_MAX: usize = 64;
/// A key service may add a certificate or an envelope of its own; known ones take some 200 bytes.
const WRAPPED_BYTES_MAX: usize = 4 << 10;
/// The only flag.
const FRESH: u16 = 1;
/// The only generation so far.
const GENERATION: u32 = 1;

/// Whether a text can name a key-encryption key.
pub(crate) fn is_key_id(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

/// The use of a data key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyName {
    /// All files of the root but those of tables.
    Root,
    /// Files of a table.
    Table(TableId),
}

impl KeyName {
    /// As headers and records have it: kind, table, generation.
    pub(crate) fn fields(self) -> (u16, u64, u32) {
        match self {
            KeyName::Root => (1, 0, GENERATION),
            KeyName::Table(table) => (2, table.0, GENERATION),
        }
    }

    pub(crate) fn of_fields(kind: u16, table: u64, generation: u32) -> Option<KeyName> {
        match (kind, table, generation) {
            (1, 0, GENERATION) => Some(KeyName::Root),
            (2, table, GENERATION) => Some(KeyName::Table(TableId(table))),
            _ => None,
        }
    }

    /// The beginning of the paths of its files.
    pub fn prefix(self) -> String {
        match self {
            KeyName::Root => format!("{DIRECTORY}root-{GENERATION:08x}."),
            KeyName::Table(table) => format!("{DIRECTORY}table-{:016x}-{GENERATION:08x}.", table.0),
        }
    }

    /// The path of its file with a number.
    pub fn path(self, number: u32) -> String {
        format!("{}{number:08x}", self.prefix())
    }

    /// The name and number of a path from [`KeyName::path`].
    pub fn parse_path(path: &str) -> Option<(KeyName, u32)> {
        let (name, number) = path.strip_prefix(DIRECTORY)?.rsplit_once('.')?;
        let number = u32::from_str_radix(number, 16).ok()?;
        let mut parts = name.split('-');
        let key = match (parts.next()?, parts.next()?) {
            ("root", _) => KeyName::Root,
            ("table", id) => KeyName::Table(TableId(u64::from_str_radix(id, 16).ok()?)),
            _ => return None,
        };
        (key.path(number) == path).then_some((key, number))
    }
}

/// The content of such a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// The use of the key.
    pub name: KeyName,
    /// Whether the root had no files when the key was made. False for keys of tables.
    pub is_fresh: bool,
    /// The number of the data root.
    pub root: [u8; 16],
    /// The key.
    pub wrapped: Wrapped,
}

impl KeyRecord {
    /// The context that a wrapped key is bound to: root, kind, flags, table and generation.
    pub fn context(name: KeyName, is_fresh: bool, root: &[u8; 16]) -> KeyContext {
        let mut context = [0; 32];
        let fields = fields(name, is_fresh);
        for (to, from) in context.iter_mut().zip(root.iter().chain(&fields)) {
            *to = *from;
        }
        context
    }

    /// Whether a record can have this wrapped key.
    pub fn takes(Wrapped { by, bytes }: &Wrapped) -> bool {
        is_key_id(by) && (1..=WRAPPED_BYTES_MAX).contains(&bytes.len())
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let Wrapped { by, bytes } = &self.wrapped;
        assert!(Self::takes(&self.wrapped), "the answer of the key service was checked");
        let mut out = Vec::with_capacity(FIXED_BYTES + by.len() + bytes.len() + 4);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&fields(self.name, self.is_fresh));
        out.extend_from_slice(&(by.len() as u16).to_le_bytes());
        out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.root);
        assert_eq!(out.len(), FIXED_BYTES, "the fields before the id have a fixed size");
        out.extend_from_slice(by.as_bytes());
        out.extend_from_slice(bytes);
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the bytes of the file. An error is a description of the damage.
    pub fn decode(bytes: &[u8]) -> Result<KeyRecord, String> {
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or("it is too short")?;
        let Some((magic, rest)) = body.split_first_chunk::<8>() else {
            return Err("it is too short".to_owned());
        };
        if *magic != MAGIC {
            return Err("it does not begin as such a file does".to_owned());
        }
        if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return Err("its checksum is wrong".to_owned());
        }
        let mut rest = rest;
        let version = u32::from_le_bytes(take(&mut rest)?);
        if version != VERSION {
            return Err(format!(
                "it has version {version}, and this program knows version {VERSION}"
            ));
        }
        let kind = u16::from_le_bytes(take(&mut rest)?);
        let flags = u16::from_le_bytes(take(&mut rest)?);
        let table = u64::from_le_bytes(take(&mut rest)?);
        let generation = u32::from_le_bytes(take(&mut rest)?);
        let id_bytes = usize::from(u16::from_le_bytes(take(&mut rest)?));
        let wrapped_bytes = usize::from(u16::from_le_bytes(take(&mut rest)?));
        let root = take(&mut rest)?;
        let name = KeyName::of_fields(kind, table, generation).ok_or("its kind, table or generation is unknown")?;
        let is_fresh = flags == FRESH && name == KeyName::Root;
        if flags != 0 && !is_fresh {
            return Err(format!("its flags are {flags:#x}"));
        }
        if !(1..=WRAPPED_BYTES_MAX).contains(&wrapped_bytes) || rest.len() != id_bytes + wrapped_bytes {
            return Err("its lengths are wrong".to_owned());
        }
        let (by, wrapped) = rest.split_at_checked(id_bytes).ok_or("its lengths are wrong")?;
        let by = std::str::from_utf8(by).ok().filter(|by| is_key_id(by));
        Ok(KeyRecord {
            name,
            is_fresh,
            root,
            wrapped: Wrapped {
                by: by.ok_or("the id of its key is invalid")?.to_owned(),
                bytes: wrapped.to_vec(),
            },
        })
    }

    /// The file for people, without anything secret.
    pub fn inspect(bytes: &[u8]) -> Result<String, String> {
        let record = KeyRecord::decode(bytes)?;
        let mut out = String::from("data key");
        let _ = match record.name {
            KeyName::Root => writeln!(out, " of the root's files"),
            KeyName::Table(table) => writeln!(out, " of table {table}"),
        };
        let _ = writeln!(out, "data root      {:032x}", u128::from_be_bytes(record.root));
        if record.is_fresh {
            let _ = writeln!(out, "made           before the first other file");
        }
        let Wrapped { by, bytes } = &record.wrapped;
        let _ = writeln!(out, "wrapped by     {by}, {} bytes for {KEY_BYTES}", bytes.len());
        Ok(out)
    }
}

/// Kind, flags, table and generation.
fn fields(name: KeyName, is_fresh: bool) -> [u8; 16] {
    let (kind, table, generation) = name.fields();
    let flags = if is_fresh { FRESH } else { 0 };
    let mut fields = [0; 16];
    let bytes = kind.to_le_bytes().into_iter().chain(flags.to_le_bytes());
    let bytes = bytes.chain(table.to_le_bytes()).chain(generation.to_le_bytes());
    for (to, from) in fields.iter_mut().zip(bytes) {
        *to = from;
    }
    fields
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], String> {
    let (bytes, after) = rest.split_first_chunk::<N>().ok_or("it is too short")?;
    *rest = after;
    Ok(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> KeyRecord {
        KeyRecord {
            name: KeyName::Table(TableId(0x1234)),
            is_fresh: false,
            root: *b"sixteen bytes ok",
            wrapped: Wrapped {
                by: "2026-11".to_owned(),
                bytes: (0..60).collect(),
            },
        }
    }

    /// The golden bytes: no version of the program may read or write others.
    #[test]
    fn the_bytes_are_those_of_the_format() {
        let mut expected =
            b"STELKEY1\x01\0\0\0\x02\0\0\0\x34\x12\0\0\0\0\0\0\x01\0\0\0\x07\0\x3c\0sixteen bytes ok2026-11".to_vec();
        expected.extend(0..60);
        expected.extend([0x00; 4]);
        let bytes = record().encode();
        assert_eq!(bytes[..bytes.len() - 4], expected[..expected.len() - 4]);
        assert_eq!(bytes.len(), expected.len());
        assert_eq!(KeyRecord::decode(&bytes), Ok(record()));
        let text = KeyRecord::inspect(&bytes).unwrap();
        assert!(text.contains("table 4660") && text.contains("2026-11"), "{text}");
        let root = KeyRecord {
            name: KeyName::Root,
            is_fresh: true,
            ..record()
        };
        assert_eq!(KeyRecord::decode(&root.encode()), Ok(root));
    }

    #[test]
    fn damage_is_found() {
        let bytes = record().encode();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert!(KeyRecord::decode(&changed).is_err(), "byte {at}");
            assert!(KeyRecord::decode(&bytes[..at]).is_err(), "{at} bytes");
        }
    }

    /// With a right checksum, so that the fields themselves are checked.
    #[test]
    fn wrong_fields_are_refused() {
        for (at, byte) in [
            (8, 2),
            (12, 3),
            (14, 1),
            (14, 2),
            (24, 2),
            (28, 8),
            (28, 0),
            (30, 59),
            (31, 0x20),
            (48, b'/'),
        ] {
            let mut bytes = record().encode();
            bytes[at] = byte;
            let end = bytes.len() - 4;
            let crc = crc32fast::hash(&bytes[..end]).to_le_bytes();
            bytes[end..].copy_from_slice(&crc);
            assert!(KeyRecord::decode(&bytes).is_err(), "byte {at} is {byte}");
        }
    }

    #[test]
    fn paths_lead_back_to_names() {
        for name in [
            KeyName::Root,
            KeyName::Table(TableId(7)),
            KeyName::Table(TableId(u64::MAX)),
        ] {
            assert_eq!(KeyName::parse_path(&name.path(0x1f)), Some((name, 0x1f)));
            assert!(name.path(1).starts_with(&name.prefix()));
        }
        for other in [
            "encryption/root-00000001",
            "encryption/root-00000001.1",
            "encryption/root-00000002.00000001",
            "encryption/root-00000001-x.00000001",
            "encryption/table-7-00000001.00000001",
            "root-00000001.00000001",
        ] {
            assert_eq!(KeyName::parse_path(other), None, "{other}");
        }
    }
}
