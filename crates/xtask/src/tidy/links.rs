//! Links between documents, and documents named in source comments, lead somewhere.

use super::{Problem, SourceFile};
use std::collections::{BTreeMap, BTreeSet};

/// The targets of links.
pub struct Documents {
    /// Files and directories of the workspace.
    paths: BTreeSet<String>,
    /// The anchors of each markdown file.
    anchors: BTreeMap<String, BTreeSet<String>>,
}

impl Documents {
    /// Takes stock of the workspace.
    pub fn new(files: &[SourceFile]) -> Documents {
        let mut paths = BTreeSet::new();
        let mut anchors = BTreeMap::new();
        for file in files {
            let mut path = file.path.as_str();
            paths.insert(path.to_owned());
            while let Some((parent, _)) = path.rsplit_once('/') {
                paths.insert(parent.to_owned());
                path = parent;
            }
            if file.path.ends_with(".md") {
                anchors.insert(file.path.clone(), headings(&file.text));
            }
        }
        Documents { paths, anchors }
    }

    /// Broken links of a markdown file.
    pub fn links_in(&self, file: &SourceFile) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (line, text) in outside_code(&file.text) {
            for target in link_targets(text) {
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                if let Err(what) = self.resolve(&file.path, target) {
                    problems.push(Problem::new(&file.path, line, what));
                }
            }
        }
        problems
    }

    /// Comments name documents by their path from the top of the workspace.
    pub fn paths_named_in(&self, file: &SourceFile) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (index, line) in file.text.lines().enumerate() {
            if !line.trim_start().starts_with("//") {
                continue;
            }
            for word in line.split(['`', ' ', '(', ')', ',', ';']) {
                let path = word.trim_end_matches(['.', ':']);
                if path.starts_with("docs/") && path.ends_with(".md") && !self.paths.contains(path) {
                    problems.push(Problem::new(&file.path, index + 1, format!("there is no `{path}`")));
                }
            }
        }
        problems
    }

    fn resolve(&self, from: &str, target: &str) -> Result<(), String> {
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let resolved = if path.is_empty() {
            from.to_owned()
        } else {
            join(from, path)
        };
        if !self.paths.contains(resolved.trim_end_matches('/')) {
            return Err(format!("link to `{target}`: there is no `{resolved}`"));
        }
        let known = self.anchors.get(&resolved).is_none_or(|set| set.contains(anchor));
        if !anchor.is_empty() && !known {
            return Err(format!("link to `{target}`: no such heading"));
        }
        Ok(())
    }
}

/// Resolves a link relative to the file it stands in.
fn join(from: &str, path: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Lines outside fenced code, with their numbers.
pub fn outside_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// The targets of `[text](target)`.
fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

/// Anchors as GitHub and rustdoc make them: lower case, punctuation dropped, spaces to dashes.
fn headings(text: &str) -> BTreeSet<String> {
    outside_code(text)
        .filter_map(|(_, line)| line.strip_prefix('#').map(|l| l.trim_start_matches('#').trim()))
        .map(|heading| {
            heading
                .to_lowercase()
                .chars()
                .filter_map(|c| match c {
                    ' ' | '-' => Some('-'),
                    c if c.is_alphanumeric() || c == '_' => Some(c),
                    _ => None,
                })
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn links_resolve() {
        let files = [
            file(
                "README.md",
                "# One `two`\n[a](docs/a.md) [b](docs/a.md#the-heading) [c](#one-two) [d](https://x/y)",
            ),
            file(
                "docs/a.md",
                "## The heading\n[up](../README.md) [dir](formats/)\n```\n[code](nowhere.md)\n```",
            ),
            file("docs/formats/x.md", ""),
        ];
        let documents = Documents::new(&files);
        for file in &files {
            assert_eq!(documents.links_in(file), []);
        }
    }

    #[test]
    fn broken_links_are_named() {
        let broken = file("docs/a.md", "# A\n[x](b.md)\n[y](#nope)\n[z](../docs/a.md#a)");
        let lines: Vec<usize> = Documents::new(&[file("docs/a.md", &broken.text)])
            .links_in(&broken)
            .iter()
            .map(|p| p.line)
            .collect();
        assert_eq!(lines, [2, 3]);
    }

    #[test]
    fn documents_in_comments_exist() {
        let documents = Documents::new(&[file("docs/a.md", "")]);
        let source = file(
            "crates/a/src/lib.rs",
            "//! See `docs/a.md`.\n// See docs/b.md.\nlet x = \"docs/c.md\";",
        );
        let problems = documents.paths_named_in(&source);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].what, "there is no `docs/b.md`");
    }
}
