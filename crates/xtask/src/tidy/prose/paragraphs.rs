//! Reads comments and documents as paragraphs of sentences.
//!
//! A *token* is a word, a code span or a punctuation mark. Markup is dropped: emphasis, targets of links, bullets.
//! A paragraph ends at an empty line, a list item, a heading, a table row or fenced code; each cell of a table is a
//! paragraph of its own.

use crate::tidy::lexer::{Comment, Kind, lex};

/// Words that end with a full stop inside a sentence.
const ABBREVIATIONS: [&str; 5] = ["e.g", "i.e", "cf", "vs", "approx"];

/// A part of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// As written; a code span is `\u{60}`.
    pub text: String,
    pub line: usize,
}

impl Token {
    /// The token in lower case.
    pub fn lower(&self) -> String {
        self.text.to_lowercase()
    }

    /// Whether it is a word or a code span.
    pub fn is_word(&self) -> bool {
        self.is_code() || self.text.starts_with(char::is_alphanumeric)
    }

    /// Whether it stands for a code span.
    pub fn is_code(&self) -> bool {
        self.text == "`"
    }
}

/// Tokens up to and including the mark that ends the sentence.
pub struct Sentence {
    pub tokens: Vec<Token>,
}

impl Sentence {
    /// The number of words; a code span is one.
    pub fn words(&self) -> usize {
        self.tokens.iter().filter(|token| token.is_word()).count()
    }

    /// Whether it ends with a question mark.
    pub fn is_question(&self) -> bool {
        self.tokens
            .iter()
            .rev()
            .find(|token| token.text != ")")
            .is_some_and(|token| token.text == "?")
    }

    /// The line of a token.
    pub fn line_of(&self, at: usize) -> usize {
        self.tokens.get(at).map_or(0, |token| token.line)
    }

    /// A few words around a token.
    pub fn excerpt(&self, at: usize) -> String {
        let from = at.saturating_sub(2);
        let tokens = self.tokens.iter().skip(from).take(at - from + 5);
        tokens
            .map(|token| if token.is_code() { "…" } else { &token.text })
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Text without a break.
pub struct Paragraph {
    tokens: Vec<Token>,
    /// Whether it is the first of the `//!` header of a file.
    pub opens_file: bool,
}

impl Paragraph {
    /// The sentences, in order.
    pub fn sentences(&self) -> Vec<Sentence> {
        let mut sentences = Vec::new();
        let mut tokens: Vec<Token> = Vec::new();
        for token in &self.tokens {
            let abbreviation = tokens
                .last()
                .is_some_and(|last| ABBREVIATIONS.contains(&last.lower().as_str()));
            let ends = matches!(token.text.as_str(), "." | "!" | "?") && !abbreviation;
            tokens.push(token.clone());
            if ends {
                sentences.push(Sentence {
                    tokens: std::mem::take(&mut tokens),
                });
            }
        }
        if !tokens.is_empty() {
            sentences.push(Sentence { tokens });
        }
        sentences
    }
}

/// The paragraphs of the comments of a Rust file, and the number of lines with a comment.
pub fn of_rust(text: &str) -> (Vec<Paragraph>, usize) {
    let comments = lex(text).comments;
    let mut paragraphs = Vec::new();
    let mut block: Vec<(usize, &str)> = Vec::new();
    let mut last: Option<&Comment> = None;
    for comment in &comments {
        let continues =
            last.is_some_and(|last| last.line + 1 == comment.line && last.kind == comment.kind && !comment.after_code);
        if !continues {
            paragraphs.extend(of_lines(&std::mem::take(&mut block)));
        }
        block.push((comment.line, &comment.text));
        last = Some(comment);
    }
    paragraphs.extend(of_lines(&block));
    let opens = comments
        .first()
        .is_some_and(|comment| comment.kind == Kind::Header && comment.line == 1);
    if let Some(first) = paragraphs.first_mut() {
        first.opens_file = opens;
    }
    (paragraphs, comments.len())
}

/// The paragraphs of a document.
pub fn of_markdown(text: &str) -> Vec<Paragraph> {
    let lines: Vec<(usize, &str)> = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
        .collect();
    of_lines(&lines)
}

fn of_lines(lines: &[(usize, &str)]) -> Vec<Paragraph> {
    let mut paragraphs = Vec::new();
    let mut open: Vec<(usize, String)> = Vec::new();
    let mut fenced = false;
    let mut close = |open: &mut Vec<(usize, String)>| {
        let tokens = tokens(&std::mem::take(open));
        if !tokens.is_empty() {
            paragraphs.push(Paragraph {
                tokens,
                opens_file: false,
            });
        }
    };
    for (number, line) in lines {
        let text = line.trim();
        let fence = text.starts_with("```");
        fenced ^= fence;
        if fence || fenced || text.is_empty() {
            close(&mut open);
            continue;
        }
        if let Some(row) = text.strip_prefix('|') {
            close(&mut open);
            for cell in cells(row) {
                open.push((*number, cell));
                close(&mut open);
            }
        } else if text.starts_with('#') {
            close(&mut open);
            open.push((*number, text.trim_start_matches('#').to_owned()));
            close(&mut open);
        } else {
            let item = item(text);
            if item.is_some() {
                close(&mut open);
            }
            open.push((*number, item.unwrap_or(text).to_owned()));
        }
    }
    close(&mut open);
    paragraphs
}

/// The cells of a table row, which may hold `|` in code spans.
fn cells(row: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut code = false;
    for c in row.chars() {
        code ^= c == '`';
        match (c, cells.last_mut()) {
            ('|', _) if !code => cells.push(String::new()),
            (c, Some(cell)) => cell.push(c),
            _ => {}
        }
    }
    cells
}

/// The text of a list item.
fn item(text: &str) -> Option<&str> {
    let bullet = ["* ", "- ", "+ "]
        .into_iter()
        .find_map(|bullet| text.strip_prefix(bullet));
    let numbered = || {
        let (number, rest) = text.split_once(". ")?;
        number.parse::<u32>().ok().map(|_| rest)
    };
    bullet.or_else(numbered)
}

fn tokens(lines: &[(usize, String)]) -> Vec<Token> {
    let mut chars = Vec::new();
    for (number, line) in lines {
        chars.extend(line.chars().map(|c| (*number, c)));
        chars.push((*number, '\n'));
    }
    Scanner { chars, at: 0 }.tokens()
}

struct Scanner {
    chars: Vec<(usize, char)>,
    at: usize,
}

impl Scanner {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).map(|(_, c)| *c)
    }

    fn tokens(mut self) -> Vec<Token> {
        let mut tokens = Vec::new();
        while let Some((line, c)) = self.chars.get(self.at).copied() {
            let text = match c {
                '`' => {
                    self.code_span();
                    "`".to_owned()
                }
                ']' => {
                    self.link_target();
                    continue;
                }
                '<' if self.peek(1).is_some_and(char::is_alphabetic) => {
                    self.skip_past('>');
                    continue;
                }
                c if c.is_alphanumeric() => self.word(),
                '.' | '!' | '?' | ',' | ';' | ':' | '(' | ')' | '–' | '—' => {
                    self.at += 1;
                    c.to_string()
                }
                _ => {
                    self.at += 1;
                    continue;
                }
            };
            tokens.push(Token { text, line });
        }
        tokens
    }

    fn code_span(&mut self) {
        let ticks = (0..).take_while(|ahead| self.peek(*ahead) == Some('`')).count();
        self.at += ticks;
        while self.peek(0).is_some() {
            let closing = (0..).take_while(|ahead| self.peek(*ahead) == Some('`')).count();
            self.at += closing.max(1);
            if closing == ticks {
                return;
            }
        }
    }

    /// Passes `](target)` or `][name]`.
    fn link_target(&mut self) {
        self.at += 1;
        match self.peek(0) {
            Some('(') => self.skip_past(')'),
            Some('[') => {
                self.at += 1;
                self.skip_past(']');
            }
            _ => {}
        }
    }

    fn skip_past(&mut self, end: char) {
        while self.peek(0).is_some_and(|c| c != end) {
            self.at += 1;
        }
        self.at += 1;
    }

    /// Letters and digits with marks between them: `1.5`, `e.g`, `a/b`, `tablet::scan`, `doesn't`.
    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.peek(0) {
            let joins = matches!(c, '.' | ',' | '-' | '/' | ':' | '\'' | '’' | '_' | '=' | '@')
                && self.peek(1).is_some_and(|next| next.is_alphanumeric() || next == c);
            let digits_only = c == ',' && !self.peek(1).is_some_and(|next| next.is_ascii_digit());
            if !(c.is_alphanumeric() || c == '_' || joins && !digits_only) {
                break;
            }
            word.push(c);
            self.at += 1;
        }
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(text: &str) -> Vec<String> {
        let paragraphs = of_markdown(text);
        let sentences = paragraphs.iter().flat_map(Paragraph::sentences);
        let joined = |s: Sentence| s.tokens.iter().map(|t| t.text.clone()).collect::<Vec<_>>().join(" ");
        sentences.map(joined).collect()
    }

    #[test]
    fn sentences_span_lines_and_end_at_marks() {
        assert_eq!(
            sentences("One thing, e.g. this\nof 1.5 MB. Another?\n\nA third"),
            ["One thing , e.g . this of 1.5 MB .", "Another ?", "A third"]
        );
    }

    #[test]
    fn markup_is_dropped() {
        assert_eq!(
            sentences("See *the* [page](docs/a.md#b) and [`Run`], [x][y] or <https://a.b>."),
            ["See the page and ` , x or ."]
        );
        assert_eq!(sentences("Of ``a ` b`` and 1,000 of `c`."), ["Of ` and 1,000 of ` ."]);
    }

    #[test]
    fn items_headings_and_cells_stand_alone() {
        assert_eq!(
            sentences("# A title\nText:\n* one\n  more\n1. two\n\n| a | `b|c` d |\n|---|---|\n"),
            ["A title", "Text :", "one more", "two", "a", "` d"]
        );
        assert_eq!(sentences("a\n```text\nno\n```\nb"), ["a", "b"]);
    }

    #[test]
    fn comments_of_one_kind_on_consecutive_lines_are_one_text() {
        let text = "//! Head.\n//!\n//! More.\n\n/// Doc\n/// on.\nlet x = 1; // Aside.\nlet y = 2; // Other.\n";
        let (paragraphs, lines) = of_rust(text);
        assert_eq!(lines, 7);
        let opening: Vec<bool> = paragraphs.iter().map(|p| p.opens_file).collect();
        assert_eq!(opening, [true, false, false, false, false]);
        assert_eq!(paragraphs[2].sentences()[0].words(), 2);
    }
}
