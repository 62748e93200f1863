//! Hadoop's configuration files: a list of `<property>` elements.
//!
//! A later property replaces an earlier one, also across included files.

use std::path::{Path, PathBuf};

enum Entry {
    Property(String, String),
    Include(PathBuf),
}

/// A file in the making.
#[derive(Default)]
pub struct Site {
    entries: Vec<Entry>,
}

impl Site {
    /// An empty one.
    pub fn new() -> Site {
        Site::default()
    }

    /// Sets a property.
    pub fn set(&mut self, name: &str, value: impl ToString) -> &mut Site {
        self.entries.push(Entry::Property(name.to_owned(), value.to_string()));
        self
    }

    /// Takes in another file at this place.
    pub fn include(&mut self, path: &Path) -> &mut Site {
        self.entries.push(Entry::Include(path.to_owned()));
        self
    }

    /// The text of the file.
    pub fn xml(&self) -> String {
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        text.push_str("<configuration xmlns:xi=\"http://www.w3.org/2001/XInclude\">\n");
        for entry in &self.entries {
            match entry {
                Entry::Property(name, value) => {
                    let (name, value) = (escape(name), escape(value));
                    text.push_str(&format!(
                        "  <property><name>{name}</name><value>{value}</value></property>\n"
                    ));
                }
                Entry::Include(path) => {
                    text.push_str(&format!(
                        "  <xi:include href=\"{}\"/>\n",
                        escape(&path.to_string_lossy())
                    ));
                }
            }
        }
        text.push_str("</configuration>\n");
        text
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_order_and_are_escaped() {
        let mut site = Site::new();
        site.set("a", 1).include(Path::new("/x&y/z.xml")).set("b<", "\"&'>");
        let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<configuration xmlns:xi="http://www.w3.org/2001/XInclude">
  <property><name>a</name><value>1</value></property>
  <xi:include href="/x&amp;y/z.xml"/>
  <property><name>b&lt;</name><value>&quot;&amp;&apos;&gt;</value></property>
</configuration>
"#;
        assert_eq!(site.xml(), expected);
    }
}
