//! Separates Rust source into code and comments.
//!
//! [`lex`] blanks comments and the contents of string and character literals, so that checks of code can search it as
//! plain text. Every blanked character becomes a space and line breaks stay, so line numbers are those of the file.
//! [`without_tests`] blanks items that are compiled only for tests.

/// How a comment begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `//!`
    Header,
    /// `///`
    Doc,
    /// `//`
    Plain,
}

/// One line comment.
#[derive(Debug, PartialEq, Eq)]
pub struct Comment {
    /// From 1.
    pub line: usize,
    pub kind: Kind,
    /// The text behind the slashes.
    pub text: String,
    /// Whether code precedes it on its line.
    pub after_code: bool,
}

/// A source file in two parts.
pub struct Lexed {
    /// As long as the file, with spaces in place of comments and of the contents of literals.
    pub code: String,
    pub comments: Vec<Comment>,
}

/// Separates code from comments. Text that is not valid Rust gives some result, never a panic.
pub fn lex(text: &str) -> Lexed {
    let mut lexer = Lexer {
        chars: text.chars().collect(),
        at: 0,
        line: 1,
        line_has_code: false,
        code: String::with_capacity(text.len()),
        comments: Vec::new(),
    };
    while let Some(c) = lexer.peek(0) {
        match (c, lexer.peek(1)) {
            ('/', Some('/')) => lexer.line_comment(),
            ('/', Some('*')) => lexer.block_comment(),
            ('"', _) => lexer.string(),
            ('r', Some('"' | '#')) if lexer.starts_raw_string() => lexer.raw_string(),
            ('\'', _) => lexer.quote(),
            _ => lexer.keep(),
        }
    }
    Lexed {
        code: lexer.code,
        comments: lexer.comments,
    }
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
    line_has_code: bool,
    code: String,
    comments: Vec<Comment>,
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn before(&self, back: usize) -> Option<char> {
        self.chars.get(self.at.checked_sub(back)?).copied()
    }

    /// Passes one character and copies it to the code.
    fn keep(&mut self) {
        let Some(c) = self.peek(0) else { return };
        self.at += 1;
        self.code.push(c);
        if c == '\n' {
            self.line += 1;
            self.line_has_code = false;
        } else if !c.is_whitespace() {
            self.line_has_code = true;
        }
    }

    /// Passes one character and leaves a space, or the line break, in its place.
    fn blank(&mut self) {
        match self.peek(0) {
            Some('\n') => self.keep(),
            Some(_) => {
                self.at += 1;
                self.code.push(' ');
            }
            None => {}
        }
    }

    fn line_comment(&mut self) {
        let mut text = String::new();
        while let Some(c) = self.peek(0).filter(|c| *c != '\n') {
            text.push(c);
            self.blank();
        }
        let (kind, text) = if let Some(rest) = text.strip_prefix("//!") {
            (Kind::Header, rest)
        } else if let Some(rest) = text.strip_prefix("///").filter(|rest| !rest.starts_with('/')) {
            (Kind::Doc, rest)
        } else {
            (Kind::Plain, text.trim_start_matches('/'))
        };
        self.comments.push(Comment {
            line: self.line,
            kind,
            text: text.to_owned(),
            after_code: self.line_has_code,
        });
    }

    /// Block comments nest. The workspace has no prose in them, so they are only blanked.
    fn block_comment(&mut self) {
        let mut depth = 0_u32;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => depth += 1,
                (Some('*'), Some('/')) => depth -= 1,
                (None, _) => return,
                _ => {
                    self.blank();
                    continue;
                }
            }
            self.blank();
            self.blank();
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.keep();
        while let Some(c) = self.peek(0) {
            match c {
                '"' => return self.keep(),
                '\\' => {
                    self.blank();
                    self.blank();
                }
                _ => self.blank(),
            }
        }
    }

    /// Whether the `r` here opens a literal: `r"`, `r#"`, or the same behind the `b` or `c` of a byte or C string.
    fn starts_raw_string(&self) -> bool {
        let prefixed = matches!(self.before(1), Some('b' | 'c')) && !self.before(2).is_some_and(is_word);
        if self.before(1).is_some_and(is_word) && !prefixed {
            return false;
        }
        let hashes = (1..).take_while(|ahead| self.peek(*ahead) == Some('#')).count();
        self.peek(1 + hashes) == Some('"')
    }

    fn raw_string(&mut self) {
        self.keep();
        let mut hashes = 0;
        while self.peek(0) == Some('#') {
            hashes += 1;
            self.keep();
        }
        self.keep();
        while let Some(c) = self.peek(0) {
            if c == '"' && (1..=hashes).all(|ahead| self.peek(ahead) == Some('#')) {
                (0..=hashes).for_each(|_| self.keep());
                return;
            }
            self.blank();
        }
    }

    /// A character literal or a lifetime.
    fn quote(&mut self) {
        let escaped = self.peek(1) == Some('\\');
        let literal = escaped || (self.peek(2) == Some('\'') && self.peek(1) != Some('\''));
        self.keep();
        if !literal {
            return;
        }
        if escaped {
            self.blank();
        }
        self.blank();
        while self.peek(0).is_some_and(|c| c != '\'' && c != '\n') {
            self.blank();
        }
        self.keep();
    }
}

/// Code without the items that only tests are compiled with.
pub struct Product {
    /// As long as the code it was made of, with spaces in place of tests.
    pub code: String,
    /// Modules in files of their own that are declared for tests only.
    pub test_modules: Vec<String>,
}

/// Blanks every item below an attribute `#[cfg(…)]` that asks for `test`; all of a file that begins with `#![cfg(test)]`.
pub fn without_tests(code: &str) -> Product {
    let mut chars: Vec<char> = code.chars().collect();
    let mut test_modules = Vec::new();
    if code.trim_start().starts_with("#![cfg(test)]") {
        blank(&mut chars, 0, code.len());
    }
    let mut at = 0;
    while at < chars.len() {
        let Some(end) = test_attribute(&chars, at) else {
            at += 1;
            continue;
        };
        let item = after_attributes(&chars, end);
        let item_end = end_of_item(&chars, item);
        let text: String = chars.iter().skip(item).take(item_end - item).collect();
        test_modules.extend(declared_module(&text));
        blank(&mut chars, at, item_end);
        at = item_end;
    }
    Product {
        code: chars.into_iter().collect(),
        test_modules,
    }
}

fn blank(chars: &mut [char], from: usize, to: usize) {
    for c in chars.iter_mut().take(to).skip(from) {
        if *c != '\n' {
            *c = ' ';
        }
    }
}

/// The end of the attribute that begins here, if it selects code for tests.
fn test_attribute(chars: &[char], at: usize) -> Option<usize> {
    let rest = chars.get(at..)?;
    let start: Vec<char> = "#[cfg(".chars().collect();
    if !rest.starts_with(&start) {
        return None;
    }
    let length = rest.iter().position(|c| *c == ']')? + 1;
    let text: String = rest.iter().take(length).collect();
    let words = text.split(|c: char| !is_word(c));
    let asks = words.clone().any(|word| word == "test") && !text.contains("not(test");
    asks.then_some(at + length)
}

/// Where the item behind further attributes begins.
fn after_attributes(chars: &[char], mut at: usize) -> usize {
    loop {
        while chars.get(at).is_some_and(|c| c.is_whitespace()) {
            at += 1;
        }
        if chars.get(at) != Some(&'#') {
            return at;
        }
        let mut depth = 0;
        while let Some(c) = chars.get(at) {
            at += 1;
            match c {
                '[' => depth += 1,
                ']' if depth == 1 => break,
                ']' => depth -= 1,
                _ => {}
            }
        }
    }
}

/// An item ends at its `;` or at the brace that closes it. A field, a variant or an arm also ends at a comma.
fn end_of_item(chars: &[char], start: usize) -> usize {
    const ITEMS: [&str; 11] = [
        "fn",
        "impl",
        "struct",
        "enum",
        "mod",
        "use",
        "trait",
        "const",
        "static",
        "type",
        "macro_rules",
    ];
    let head: String = chars
        .iter()
        .skip(start)
        .take_while(|c| **c != '{' && **c != ';')
        .collect();
    let is_item = head.split(|c: char| !is_word(c)).any(|word| ITEMS.contains(&word));
    let mut depth = 0_i32;
    for (at, c) in chars.iter().enumerate().skip(start) {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        match c {
            _ if depth < 0 => return at,
            ';' if depth == 0 => return at + 1,
            '}' if depth == 0 && is_item => return at + 1,
            ',' if depth == 0 && !is_item => return at + 1,
            _ => {}
        }
    }
    chars.len()
}

/// The name of `mod name;`.
fn declared_module(item: &str) -> Option<String> {
    let (before, name) = item.strip_suffix(';')?.rsplit_once("mod ")?;
    let visible = before.is_empty() || before.starts_with("pub");
    (visible && name.chars().all(is_word)).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        lex(text).code
    }

    #[test]
    fn comments_are_taken_out_and_lines_stay() {
        let lexed = lex("//! Why.\nlet x = 1; // one\n/// Doc.\n/* a /* b */ c */ y\n");
        assert_eq!(lexed.code.lines().count(), 4);
        assert_eq!(
            lexed.code.split_whitespace().collect::<Vec<_>>(),
            ["let", "x", "=", "1;", "y"]
        );
        let found: Vec<(usize, Kind, &str, bool)> = lexed
            .comments
            .iter()
            .map(|c| (c.line, c.kind, c.text.as_str(), c.after_code))
            .collect();
        assert_eq!(
            found,
            [
                (1, Kind::Header, " Why.", false),
                (2, Kind::Plain, " one", true),
                (3, Kind::Doc, " Doc.", false)
            ]
        );
    }

    #[test]
    fn literals_are_no_comments() {
        for text in [
            r#"f("// no \" {")"#,
            r##"f(r#"// "no" {"#)"##,
            r##"f(br#"// "no" {"#)"##,
            "f('\"', '{', '\\'', b'/', '\\u{7b}')",
        ] {
            let lexed = lex(text);
            assert!(lexed.comments.is_empty(), "{text}");
            assert!(!lexed.code.contains('{'), "{text}: {}", lexed.code);
            assert!(lexed.code.ends_with(')'), "{text}: {}", lexed.code);
        }
        assert_eq!(code("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
        assert_eq!(code("let for_r = \"x\";"), "let for_r = \" \";");
    }

    #[test]
    fn code_of_tests_goes() {
        let product = |text: &str| {
            without_tests(&code(text))
                .code
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(product("a; #[cfg(test)] mod tests { fn f() { 1 } } b;"), "a; b;");
        assert_eq!(product("#[cfg(test)] use a::{b, c};\nd;"), "; d;");
        assert_eq!(
            product("#[cfg(all(test, loom))]\n#[allow(x)]\nfn f<A, B>(a: [A; 2]) { 1 } b;"),
            "b;"
        );
        assert_eq!(
            product("struct S { #[cfg(test)] a: (u8, u8), b: u8 }"),
            "struct S { b: u8 }"
        );
        assert_eq!(product("struct S { #[cfg(test)] a: u8 }"), "struct S { }");
        assert_eq!(product("#[cfg(not(test))] fn f() {}"), "#[cfg(not(test))] fn f() {}");
        assert_eq!(product("#![cfg(test)] fn f() {}"), "");
    }

    #[test]
    fn files_of_tests_are_named() {
        let product = without_tests("#[cfg(test)]\nmod tests;\n#[cfg(test)]\npub(crate) mod testing;\nmod a;\n");
        assert_eq!(product.test_modules, ["tests", "testing"]);
    }
}
