//! The targets' effective configurations side by side, which a reader must know before comparing figures.
//!
//! Systems of the same kind share keys. Of those, only the values that differ are of interest. Keys of a single system
//! are listed too, because they show how it was tuned.

use super::Party;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// All configurations as one table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Differences {
    /// The targets' names: the columns.
    pub parties: Vec<String>,
    /// Keys that several targets have, with different values.
    pub differing: Vec<Setting>,
    /// Keys that several targets have, with one value.
    pub equal: Vec<Setting>,
    /// Keys of a single target.
    pub single: Vec<Setting>,
}

/// One key and its values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The key.
    pub key: String,
    /// A value for each target that has one, in the targets' order.
    pub values: Vec<Option<String>>,
}

/// Compares the configurations of `parties`.
pub fn between(parties: &[Party]) -> Differences {
    let keys: BTreeSet<&String> = parties.iter().flat_map(|party| party.configuration.keys()).collect();
    let names = parties.iter().map(|party| party.name.clone()).collect();
    let mut table = Differences {
        parties: names,
        ..Differences::default()
    };
    for key in keys {
        let values: Vec<_> = parties
            .iter()
            .map(|party| party.configuration.get(key).cloned())
            .collect();
        let present: Vec<_> = values.iter().flatten().collect();
        let list = match present.as_slice() {
            [_] => &mut table.single,
            [first, rest @ ..] if rest.iter().all(|value| value == first) => &mut table.equal,
            _ => &mut table.differing,
        };
        list.push(Setting {
            key: key.clone(),
            values,
        });
    }
    table
}

impl Differences {
    /// Keys that only the target at `index` has, with their values.
    pub fn only(&self, index: usize) -> BTreeMap<&str, &str> {
        let of_party = |setting: &'_ Setting| setting.values.get(index).is_some_and(Option::is_some);
        let own = self.single.iter().filter(|setting| of_party(setting));
        own.filter_map(|setting| Some((setting.key.as_str(), setting.values.get(index)?.as_deref()?)))
            .collect()
    }

    /// The table as Markdown.
    pub fn text(&self) -> String {
        let mut text = String::from("# Configurations side by side\n");
        let parts = [
            ("Same key, different values", &self.differing),
            ("Same key, same value", &self.equal),
            ("Keys of one target alone", &self.single),
        ];
        for (title, settings) in parts {
            _ = writeln!(text, "\n## {title}\n");
            if settings.is_empty() {
                text.push_str("None.\n");
                continue;
            }
            let names: Vec<_> = self.parties.iter().map(|name| cell(name)).collect();
            _ = writeln!(
                text,
                "| key | {} |\n|---|{}",
                names.join(" | "),
                "---|".repeat(names.len())
            );
            for Setting { key, values } in settings {
                let values: Vec<_> = values
                    .iter()
                    .map(|value| value.as_deref().map_or(String::new(), cell))
                    .collect();
                _ = writeln!(text, "| {} | {} |", cell(key), values.join(" | "));
            }
        }
        text
    }
}

/// `text` as a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('|', "\\|")
        .replace('<', "&lt;")
        .replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(name: &str, settings: &[(&str, &str)]) -> Party {
        let configuration = settings
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect();
        Party {
            name: name.into(),
            configuration,
            ..Party::default()
        }
    }

    #[test]
    fn settings_are_sorted_by_who_has_them() {
        let parties = [
            party("a", &[("heap", "8g"), ("wal", "hsync"), ("own", "1")]),
            party("b", &[("heap", "4g"), ("wal", "hsync")]),
            party("c", &[("block_cache", "512 MiB")]),
        ];
        let table = between(&parties);
        let keys = |settings: &[Setting]| settings.iter().map(|setting| setting.key.clone()).collect::<Vec<_>>();
        assert_eq!(keys(&table.differing), ["heap"]);
        assert_eq!(keys(&table.equal), ["wal"]);
        assert_eq!(keys(&table.single), ["block_cache", "own"]);
        assert_eq!(table.only(2), BTreeMap::from([("block_cache", "512 MiB")]));
        assert!(table.text().contains("| heap | 8g | 4g |  |"), "{}", table.text());
    }

    #[test]
    fn hostile_values_stay_in_their_cells() {
        let text = between(&[party("a|b", &[("k\n", "v|w\r\n<script>")])]).text();
        assert!(text.contains("| key | a\\|b |"), "{text}");
        assert!(text.contains("| k  | v\\|w  &lt;script> |"), "{text}");
    }

    #[test]
    fn no_parties_no_lines() {
        assert_eq!(between(&[]), Differences::default());
        assert!(between(&[]).text().contains("None."));
    }
}
