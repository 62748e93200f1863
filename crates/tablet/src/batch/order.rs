//! The order in which a batch takes its rows.

use std::cmp::Ordering;
use stele_types::RowWrites;

/// Indexes of the rows in the order of their keys, equal ones in the order given; `None` when they are so already.
///
/// Keys of a batch often share a prefix, so the comparison is of the eight bytes behind the common prefix of all keys.
/// Only where these are equal are the whole keys compared.
pub fn of(rows: &RowWrites) -> Option<Vec<u32>> {
    if rows.iter().is_sorted_by(|a, b| a.row <= b.row) {
        return None;
    }
    let first = rows.get(0)?.row;
    let common = rows
        .iter()
        // Mostly it has been found with the first few.
        .fold(first.len(), |common, row| match row.row.starts_with(&first[..common]) {
            true => common,
            false => common_prefix(&first[..common], row.row),
        });
    let mut order: Vec<(u64, u32)> = rows
        .iter()
        .map(|row| eight_bytes(&row.row[common..]))
        .zip(0..)
        .collect();
    let key = |index: u32| rows.get(index as usize).map_or(&[][..], |row| row.row);
    order.sort_unstable_by(|a, b| match a.0.cmp(&b.0) {
        Ordering::Equal => key(a.1).cmp(key(b.1)).then(a.1.cmp(&b.1)),
        different => different,
    });
    debug_assert!(
        order
            .windows(2)
            .all(|pair| matches!(pair, [a, b] if key(a.1) <= key(b.1))),
        "rows are in key order"
    );
    Some(order.into_iter().map(|(_, index)| index).collect())
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The first eight bytes as a number that compares as they do, zeros where there are fewer.
fn eight_bytes(key: &[u8]) -> u64 {
    if let Some(eight) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*eight);
    }
    let mut padded = [0; 8];
    padded[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(padded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use stele_types::RowMutation;

    #[test]
    fn rows_come_in_key_order_and_equal_ones_as_given() {
        let check = |keys: &[&'static str], expected: Option<&[u32]>| {
            let rows: Vec<RowMutation> = keys
                .iter()
                .map(|key| RowMutation {
                    row: Bytes::from_static(key.as_bytes()),
                    mutations: Vec::new(),
                })
                .collect();
            assert_eq!(of(&rows.into()).as_deref(), expected, "{keys:?}");
        };
        check(&[], None);
        check(&["b"], None);
        check(&["a", "a", "b"], None);
        check(&["b", "a", "b", "a", ""], Some(&[4, 1, 3, 0, 2]));
        check(&["user10", "user1", "user1\0", "user"], Some(&[3, 1, 2, 0]));
        check(&["k-12345678-b", "k-12345678-a", "k-0"], Some(&[2, 1, 0]));
    }
}
