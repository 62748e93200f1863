//! Finds import cycles among the top-level modules of each crate.
//!
//! A *top-level module* is a module that `lib.rs` or `main.rs` declares, with everything below it. Module `a` imports
//! `b` if code of `a` names `crate::b`, reaches `b` through `super::`, or names an item that the root re-exports from
//! `b`. Roots may import everything and are no modules themselves; tests are left out.
//!
//! In a cycle no module can be read, tested or moved without the others. The ratchet holds the number of modules that
//! are part of a cycle.

use super::product::ProductFile;
use std::collections::{BTreeMap, BTreeSet};

/// An import: the file and the line that contain it.
pub type Witness = (String, usize);

/// The imports of one crate: from, to, and the first place.
type Imports = BTreeMap<String, BTreeMap<String, Witness>>;

/// Modules of one crate that import each other, directly or through others.
#[derive(Debug, PartialEq, Eq)]
pub struct Cycle {
    pub crate_name: String,
    /// Each module with one import that keeps it in the cycle: the imported module and the place.
    pub modules: BTreeMap<String, (String, Witness)>,
}

impl Cycle {
    /// Whether the crate is below this path, or the path is below the crate.
    pub fn is_below(&self, path: &str) -> bool {
        let own = format!("crates/{}/", self.crate_name);
        own.starts_with(path) || path.starts_with(&own)
    }

    /// One line for each module.
    pub fn describe(&self) -> String {
        let mut text = format!("cycle of {} modules in `{}`:", self.modules.len(), self.crate_name);
        for (module, (to, (file, line))) in &self.modules {
            text.push_str(&format!("\n  {module} -> {to} ({file}:{line})"));
        }
        text
    }
}

/// The cycles of all crates.
pub fn find(files: &[ProductFile]) -> Vec<Cycle> {
    let names: BTreeSet<&str> = files.iter().map(|file| file.crate_name.as_str()).collect();
    let mut cycles = Vec::new();
    for name in names {
        let own: Vec<&ProductFile> = files.iter().filter(|file| file.crate_name == name).collect();
        cycles.extend(components(name, &imports(&own)));
    }
    cycles
}

fn imports(files: &[&ProductFile]) -> Imports {
    let modules: BTreeSet<&str> = files
        .iter()
        .filter_map(|file| file.module.first())
        .map(String::as_str)
        .collect();
    let exports = exports(files, &modules);
    let mut imports = Imports::new();
    for file in files {
        let Some(from) = file.module.first() else { continue };
        for (name, line) in names_at_root(&file.code, file.module.len()) {
            let to = match modules.contains(name.as_str()) {
                true => Some(name),
                false => exports.get(&name).cloned(),
            };
            let Some(to) = to.filter(|to| to != from) else { continue };
            let edges = imports.entry(from.clone()).or_default();
            edges.entry(to).or_insert_with(|| (file.path.clone(), line));
        }
    }
    imports
}

/// Items that the root re-exports with `use`, and the modules they come from.
fn exports(files: &[&ProductFile], modules: &BTreeSet<&str>) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for file in files.iter().filter(|file| file.module.is_empty()) {
        for statement in file.code.split(';') {
            let Some((_, tree)) = statement.rsplit_once("use ") else {
                continue;
            };
            let tree = tree.trim().trim_start_matches("crate::").trim_start_matches("self::");
            let Some((module, rest)) = tree.split_once("::").filter(|(module, _)| modules.contains(module)) else {
                continue;
            };
            // Names of modules on the way are taken for items too, which does no harm: they come from the same module.
            for name in rest.split(|c: char| !is_word(c)).filter(|name| !name.is_empty()) {
                exports.insert(name.to_owned(), module.to_owned());
            }
        }
    }
    exports
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The names that code of a module `depth` below the root looks up in the root, with their lines.
fn names_at_root(code: &str, depth: usize) -> Vec<(String, usize)> {
    let mut names = Vec::new();
    for (index, line_start, line) in lines_with_offsets(code) {
        for (at, word) in words(line) {
            let rest = code.get(line_start + at + word.len()..).unwrap_or_default();
            let preceded = line[..at].ends_with("::");
            let path = match word {
                "crate" => rest.trim_start().strip_prefix("::"),
                "super" if !preceded => above_root(rest, depth),
                _ => None,
            };
            names.extend(path.into_iter().flat_map(first_names).map(|name| (name, index + 1)));
        }
    }
    names
}

fn lines_with_offsets(code: &str) -> impl Iterator<Item = (usize, usize, &str)> {
    let mut offset = 0;
    code.split_inclusive('\n').enumerate().map(move |(index, line)| {
        let start = offset;
        offset += line.len();
        (index, start, line)
    })
}

/// Words with their places.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    line.split_inclusive(|c: char| !is_word(c)).filter_map(move |piece| {
        let start = at;
        at += piece.len();
        let word = piece.trim_end_matches(|c: char| !is_word(c));
        (!word.is_empty()).then_some((start, word))
    })
}

/// The rest of a path behind the `super::` that reach the root, if they reach it.
fn above_root(mut rest: &str, depth: usize) -> Option<&str> {
    let mut supers = 1;
    loop {
        rest = rest.trim_start().strip_prefix("::")?.trim_start();
        match rest.strip_prefix("super").filter(|more| !more.starts_with(is_word)) {
            Some(more) => rest = more,
            None => return (supers == depth).then_some(rest),
        }
        supers += 1;
    }
}

/// The first segments of a path or of a group of paths: `a` of `a::B`, `a` and `c` of `{a::{B, D}, c}`.
fn first_names(path: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| is_word(*c)).collect::<String>();
    let path = path.trim_start();
    let Some(group) = path.strip_prefix('{') else {
        return Some(word(path)).filter(|name| !name.is_empty()).into_iter().collect();
    };
    let mut names = Vec::new();
    let (mut depth, mut expects_name) = (0, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => expects_name = true,
            c if is_word(c) && expects_name => {
                names.push(word(&group[at..]));
                expects_name = false;
            }
            _ => {}
        }
    }
    names
}

/// The strongly connected components of more than one module.
fn components(crate_name: &str, imports: &Imports) -> Vec<Cycle> {
    let reach: BTreeMap<&str, BTreeSet<&str>> = imports
        .keys()
        .map(|from| (from.as_str(), reachable(imports, from)))
        .collect();
    let together = |a: &str, b: &str| {
        let reaches = |from: &str, to: &str| reach.get(from).is_some_and(|set| set.contains(to));
        reaches(a, b) && reaches(b, a)
    };
    let mut cycles = Vec::new();
    let mut seen = BTreeSet::new();
    for start in imports.keys().filter(|name| together(name, name)) {
        if seen.contains(start.as_str()) {
            continue;
        }
        let mut modules = BTreeMap::new();
        for module in imports.keys().filter(|name| together(start, name)) {
            seen.insert(module.as_str());
            let edge = imports[module].iter().find(|(to, _)| together(start, to));
            if let Some((to, witness)) = edge {
                modules.insert(module.clone(), (to.clone(), witness.clone()));
            }
        }
        cycles.push(Cycle {
            crate_name: crate_name.to_owned(),
            modules,
        });
    }
    cycles
}

fn reachable<'a>(imports: &'a Imports, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        for to in imports.get(module).into_iter().flat_map(BTreeMap::keys) {
            if found.insert(to.as_str()) {
                next.push(to);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{SourceFile, product};

    fn check(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<SourceFile> = files
            .iter()
            .map(|(path, text)| SourceFile {
                path: format!("crates/x/src/{path}.rs"),
                text: (*text).to_owned(),
            })
            .collect();
        find(&product::files(&sources)).iter().map(Cycle::describe).collect()
    }

    #[test]
    fn a_cycle_is_named_with_a_witness_for_each_module() {
        let found = check(&[
            ("lib", "mod a; mod b; mod c; mod d;"),
            ("a", "use crate::{b::{B, C},\n d};"),
            ("b/deep", "\nuse super::super::c::C;"),
            ("c", "fn f() { crate::a::f() }"),
            ("d", "// crate::a\nconst A: &str = \"crate::a\";"),
        ]);
        assert_eq!(
            found,
            [concat!(
                "cycle of 3 modules in `x`:",
                "\n  a -> b (crates/x/src/a.rs:1)",
                "\n  b -> c (crates/x/src/b/deep.rs:2)",
                "\n  c -> a (crates/x/src/c.rs:1)"
            )]
        );
    }

    #[test]
    fn names_of_the_root_lead_to_their_modules() {
        let files = [
            ("lib", "mod a; mod b;\npub use a::{inner::Thing, Other as Another};"),
            ("a", "use super::b;"),
            ("b", "use crate::Another;"),
        ];
        assert_eq!(check(&files).len(), 1);
    }

    #[test]
    fn tests_roots_and_own_modules_close_no_cycle() {
        let found = check(&[
            ("lib", "mod a; mod b; use crate::a::A;"),
            (
                "a",
                "use crate::b; use crate::a::inner; #[cfg(test)] mod tests { use crate::b; }",
            ),
            ("a/inner", "use super::A; pub(crate) fn f() {}"),
            ("b", "#[cfg(test)]\nmod tests { use crate::a; }"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }
}
