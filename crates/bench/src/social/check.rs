//! Compares rows with the contents that the network and the `Ledger` expect.
//!
//! An action counts as one checked response, and as at most one stale response, however many rows it reads. BG counts
//! reads, and a share of stale ones, in the same way. (BG counts View Profile twice, for both counts, and does not
//! check View Top Resources. In the published mixes these are equally frequent, so that the share has the same
//! denominator.)
//!
//! No byte from a server is trusted: a cell that is not understood is unexpected.

use super::ledger::Shown;
use super::network::{self, COMMENTS_PER_RESOURCE, Network, PROFILE_FIELDS, RESOURCE_FIELDS};
use crate::outcome::Verdict;
use crate::target::{Cell, Columns, Row};

/// Bit of the image among the cells found in a user's row. Those of the fields come first.
const IMAGE_BIT: u32 = 1 << PROFILE_FIELDS.len();
/// Bit of the thumbnail.
const THUMB_BIT: u32 = IMAGE_BIT << 1;

/// Key and value bytes of a row as documents count them: the key once.
pub fn volume(row: &Row) -> u64 {
    let cells: usize = row
        .cells
        .iter()
        .map(|cell| cell.qualifier.len() + cell.value.len())
        .sum();
    (row.key.len() + cells) as u64
}

/// Checks the fixed cells of a user's row, and collects friends and inviters for the `Ledger`.
pub fn user(
    network: &Network,
    user: u64,
    columns: &Columns,
    row: &Row,
    confirmed: &mut Shown,
    pending: &mut Shown,
    verdict: &mut Verdict,
) {
    if network::user_of(&row.key) != Some(user) {
        verdict.unexpected += 1;
        verdict.example(|| format!("user {user}: the row is {:?}", row.key));
        return;
    }
    let mut seen = 0u32;
    for cell in &row.cells {
        let family = std::str::from_utf8(&cell.family).unwrap_or_default();
        if !columns.families.iter().any(|asked| **asked == *family) {
            unexpected(user, cell, verdict);
            continue;
        }
        match family {
            network::CONFIRMED => tie(user, cell, confirmed, verdict),
            network::PENDING => tie(user, cell, pending, verdict),
            _ => match fixed(network, user, family, cell) {
                Some((bit, _)) if seen & bit != 0 => unexpected(user, cell, verdict),
                Some((bit, value)) => {
                    seen |= bit;
                    compare(user, cell, value, verdict);
                }
                None => unexpected(user, cell, verdict),
            },
        }
    }
    let missing = expected_bits(columns) & !seen;
    if missing != 0 {
        verdict.missing += 1;
        verdict.example(|| format!("user {user}: columns missing from the profile (set {missing:#b})"));
    }
}

/// Records that the row of a user was not returned although it must have columns.
pub fn no_user(user: u64, verdict: &mut Verdict) {
    verdict.missing += 1;
    verdict.example(|| format!("user {user}: no row"));
}

/// A profile's cell: its bit among those found, and its value.
fn fixed<'a>(network: &'a Network, user: u64, family: &str, cell: &Cell) -> Option<(u32, &'a [u8])> {
    match family {
        network::PROFILE => {
            let field = PROFILE_FIELDS
                .iter()
                .position(|(name, _)| *name.as_bytes() == *cell.qualifier)?;
            Some((1 << field, network.field(user, field)))
        }
        network::IMAGE if cell.qualifier == network::IMAGE_QUALIFIER => Some((IMAGE_BIT, network.image(user))),
        network::THUMB if cell.qualifier == network::IMAGE_QUALIFIER => Some((THUMB_BIT, network.thumb(user))),
        _ => None,
    }
}

fn expected_bits(columns: &Columns) -> u32 {
    let bits = columns.families.iter().map(|family| match &**family {
        network::PROFILE => IMAGE_BIT - 1,
        network::IMAGE => IMAGE_BIT,
        network::THUMB => THUMB_BIT,
        _ => 0,
    });
    bits.fold(0, |all, bits| all | bits)
}

fn tie(user: u64, cell: &Cell, shown: &mut Shown, verdict: &mut Verdict) {
    match network::user_of(&cell.qualifier) {
        Some(other) => shown.users.push(other),
        None => unexpected(user, cell, verdict),
    }
    compare(user, cell, &network::TIE_VALUE, verdict);
}

fn compare(user: u64, cell: &Cell, value: &[u8], verdict: &mut Verdict) {
    if cell.value != value {
        verdict.wrong += 1;
        verdict.example(|| {
            let (family, qualifier) = (cell.family.escape_ascii(), cell.qualifier.escape_ascii());
            let (found, expected) = (cell.value.len(), value.len());
            format!("user {user}: {family}:{qualifier} has {found} B that are not the {expected} B written there")
        });
    }
}

fn unexpected(user: u64, cell: &Cell, verdict: &mut Verdict) {
    verdict.unexpected += 1;
    verdict.example(|| {
        let (family, qualifier) = (cell.family.escape_ascii(), cell.qualifier.escape_ascii());
        format!("user {user}: column {family}:{qualifier} cannot be there, or is there twice")
    });
}

/// Checks the row of a resource, read without its comments.
pub fn resource(network: &Network, owner: u64, resource: u32, row: &Row, verdict: &mut Verdict) {
    if row.key != network::resource_key(owner, resource) {
        verdict.unexpected += 1;
        verdict.example(|| format!("user {owner}: {:?} is not the row of resource {resource}", row.key));
        return;
    }
    let mut seen = 0u32;
    for cell in &row.cells {
        let field = RESOURCE_FIELDS
            .iter()
            .position(|(name, _)| *name.as_bytes() == *cell.qualifier);
        match field {
            Some(field) if *cell.family == *network::RESOURCE.as_bytes() && seen & 1 << field == 0 => {
                seen |= 1 << field;
                compare(owner, cell, network.resource_field(owner, resource, field), verdict);
            }
            _ => unexpected(owner, cell, verdict),
        }
    }
    if seen != (1 << RESOURCE_FIELDS.len()) - 1 {
        no_resource(owner, resource, verdict);
    }
}

/// Records that a resource, or part of it, was not returned.
pub fn no_resource(owner: u64, resource: u32, verdict: &mut Verdict) {
    verdict.missing += 1;
    verdict.example(|| format!("user {owner}: resource {resource} is missing or incomplete"));
}

/// Checks a resource's comments.
pub fn comments(network: &Network, owner: u64, resource: u32, row: &Row, verdict: &mut Verdict) {
    if row.key != network::resource_key(owner, resource) {
        verdict.unexpected += 1;
        verdict.example(|| format!("user {owner}: {:?} is not the row of resource {resource}", row.key));
        return;
    }
    let mut seen = 0;
    for cell in &row.cells {
        let is_next = seen < COMMENTS_PER_RESOURCE && cell.qualifier == network::comment_qualifier(seen);
        if is_next && *cell.family == *network::COMMENTS.as_bytes() {
            compare(owner, cell, network.comment(owner, resource, seen), verdict);
            seen += 1;
        } else {
            unexpected(owner, cell, verdict);
        }
    }
    if seen != COMMENTS_PER_RESOURCE {
        no_resource(owner, resource, verdict);
    }
}
