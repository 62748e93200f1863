//! Groups and flags of RE2 patterns. Captures are not kept, so every group becomes a plain one.

use super::{Atom, Flags, Parser};

/// Deepest nesting of groups. RE2 allows 1,000; the compiler behind us recurses, and in a debug build 100 groups with
/// four levels of syntax each overflow the 2 MiB stack of a worker thread.
const GROUPS_DEEP_MAX: usize = 32;

/// An open group.
pub(super) struct Group {
    /// Where it begins in the output.
    start: usize,
    /// To restore when it closes.
    outer_flags: Flags,
    outer_weight: usize,
    outer_repeats: u32,
}

impl<'a> Parser<'a> {
    /// Parses an opening parenthesis with its flags or name, or flags for the rest of the group.
    pub(super) fn open(&mut self) -> Result<(), &'static str> {
        let flags = self.flags;
        if let Some(after) = self.input.strip_prefix(b"(?") {
            let name = after.strip_prefix(b"P<").or_else(|| after.strip_prefix(b"<"));
            match name {
                Some([b'=' | b'!', ..]) => return Err("invalid perl operator"),
                Some(name) => self.name(name)?,
                None => {
                    self.input = after;
                    if !self.parse_flags()? {
                        return Ok(());
                    }
                }
            }
        } else {
            self.skip(1);
        }
        if self.groups.len() >= GROUPS_DEEP_MAX {
            return Err("expression nests too deeply");
        }
        self.close_prefix();
        self.flush_atom();
        self.groups.push(Group {
            start: self.out.len(),
            outer_flags: flags,
            outer_weight: std::mem::take(&mut self.weight),
            outer_repeats: std::mem::replace(&mut self.repeats, 1),
        });
        self.out.push_str("(?:");
        Ok(())
    }

    /// Parses `name>`. Captures are not kept, so a name may come twice.
    fn name(&mut self, input: &'a [u8]) -> Result<(), &'static str> {
        let length = input
            .iter()
            .position(|b| *b == b'>')
            .ok_or("invalid named capture group")?;
        let (name, rest) = input.split_at(length);
        let word = name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
        if name.is_empty() || !word {
            return Err("invalid named capture group");
        }
        self.input = rest.get(1..).unwrap_or_default();
        Ok(())
    }

    /// Parses flags up to `:` or `)`; returns whether a group begins.
    fn parse_flags(&mut self) -> Result<bool, &'static str> {
        let (mut on, mut dangling) = (true, false);
        loop {
            let byte = *self.input.first().ok_or("missing closing )")?;
            self.skip(1);
            match byte {
                b'i' => self.flags.fold_case = on,
                b's' => self.flags.dot_newline = on,
                b'm' => self.flags.multi_line = on,
                b'U' => {}
                b'-' if on => (on, dangling) = (false, true),
                b':' | b')' if !dangling => return Ok(byte == b':'),
                _ => return Err("invalid perl operator"),
            }
            dangling &= byte == b'-';
        }
    }

    /// Parses a closing parenthesis: the group becomes the current atom.
    pub(super) fn close(&mut self) -> Result<(), &'static str> {
        let group = self.groups.pop().ok_or("unexpected )")?;
        self.skip(1);
        self.flush_atom();
        self.out.push(')');
        self.atom = Some(Atom {
            start: group.start,
            weight: self.weight.saturating_add(1),
            repeats: self.repeats,
            repeated: false,
        });
        self.flags = group.outer_flags;
        self.weight = group.outer_weight;
        self.repeats = group.outer_repeats;
        self.check_weight()
    }
}
