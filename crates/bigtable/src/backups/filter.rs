//! The filter of `ListBackups`: comparisons of fields, joined by AND, OR, NOT and parentheses.
//!
//! OR binds more tightly than AND, as in all filters of this family of APIs. Expressions side by side are joined by AND.
//! Text is compared without regard to case. `:` finds a part of a text unless the value is quoted.

use crate::context::micros_of;
use crate::pb::admin;
use crate::status::invalid;
use std::cmp::Ordering;
use tonic::Status;

/// Longest filter: far more than the fields need.
const BYTES_MAX: usize = 4 << 10;
/// Deepest nesting.
const DEPTH_MAX: usize = 32;

/// A parsed filter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    All(Vec<Filter>),
    Any(Vec<Filter>),
    Not(Box<Filter>),
    Compare(Field, Operator, Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Name,
    SourceTable,
    State,
    StartTime,
    EndTime,
    ExpireTime,
    SizeBytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    Has,
}

/// The right side of a comparison, in the type of its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// In lower case, and whether it was quoted.
    Text(String, bool),
    /// Microseconds since 1970, or bytes.
    Number(i64),
}

impl Filter {
    /// Parses a filter; an empty one lets everything pass.
    pub fn parse(text: &str) -> Result<Filter, Status> {
        if text.len() > BYTES_MAX {
            return Err(invalid(format!("A filter has at most {BYTES_MAX} bytes")));
        }
        let mut parser = Parser {
            tokens: tokens(text)?,
            at: 0,
        };
        let filter = parser.sequence(0)?;
        match parser.peek() {
            None => Ok(filter),
            Some(token) => Err(unexpected(token)),
        }
    }

    /// Whether a backup passes.
    pub fn passes(&self, backup: &admin::Backup) -> bool {
        match self {
            Filter::All(parts) => parts.iter().all(|part| part.passes(backup)),
            Filter::Any(parts) => parts.iter().any(|part| part.passes(backup)),
            Filter::Not(part) => !part.passes(backup),
            Filter::Compare(field, operator, value) => compare(*field, *operator, value, backup),
        }
    }
}

fn compare(field: Field, operator: Operator, value: &Value, backup: &admin::Backup) -> bool {
    let time = |time: &Option<prost_types::Timestamp>| time.as_ref().and_then(micros_of).unwrap_or(i64::MAX);
    let number = match field {
        Field::Name => return compare_text(&backup.name, operator, value),
        Field::SourceTable => return compare_text(&backup.source_table, operator, value),
        Field::State => return compare_text(backup.state().as_str_name(), operator, value),
        Field::StartTime => time(&backup.start_time),
        Field::EndTime => time(&backup.end_time),
        Field::ExpireTime => time(&backup.expire_time),
        Field::SizeBytes => backup.size_bytes,
    };
    match value {
        Value::Number(wanted) => holds(operator, number.cmp(wanted)),
        Value::Text(..) => false,
    }
}

fn compare_text(text: &str, operator: Operator, value: &Value) -> bool {
    let Value::Text(wanted, is_quoted) = value else {
        return false;
    };
    let text = text.to_lowercase();
    // A full name, or the id at its end.
    let is_equal = text == *wanted || text.rsplit('/').next() == Some(wanted.as_str());
    match operator {
        Operator::Has if *is_quoted => is_equal,
        Operator::Has => text.contains(wanted.as_str()),
        Operator::Equal => is_equal,
        Operator::NotEqual => !is_equal,
        _ => holds(operator, text.as_str().cmp(wanted.as_str())),
    }
}

fn holds(operator: Operator, order: Ordering) -> bool {
    match operator {
        Operator::Less => order.is_lt(),
        Operator::LessOrEqual => order.is_le(),
        Operator::Greater => order.is_gt(),
        Operator::GreaterOrEqual => order.is_ge(),
        Operator::Equal | Operator::Has => order.is_eq(),
        Operator::NotEqual => order.is_ne(),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Open,
    Close,
    Operator(Operator),
    Word(String),
    Quoted(String),
}

fn tokens(text: &str) -> Result<Vec<Token>, Status> {
    let (mut tokens, mut rest) = (Vec::new(), text.trim_start());
    while let Some(first) = rest.chars().next() {
        let (token, bytes) = match first {
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            '"' | '\'' => quoted(rest, first)?,
            _ => match operator(rest) {
                Some((operator, bytes)) => (Token::Operator(operator), bytes),
                None => word(rest),
            },
        };
        tokens.push(token);
        rest = rest.get(bytes..).unwrap_or_default().trim_start();
    }
    Ok(tokens)
}

fn quoted(text: &str, quote: char) -> Result<(Token, usize), Status> {
    let inner = text.get(1..).unwrap_or_default();
    let end = inner
        .find(quote)
        .ok_or_else(|| invalid("A quote in the filter does not end"))?;
    Ok((Token::Quoted(inner.get(..end).unwrap_or_default().to_owned()), end + 2))
}

fn operator(text: &str) -> Option<(Operator, usize)> {
    const OPERATORS: [(&str, Operator); 7] = [
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("!=", Operator::NotEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
        ("=", Operator::Equal),
        (":", Operator::Has),
    ];
    let found = OPERATORS.iter().find(|(sign, _)| text.starts_with(sign));
    found.map(|(sign, operator)| (*operator, sign.len()))
}

/// A field, a connective or a bare value. A bare time has colons in it.
fn word(text: &str) -> (Token, usize) {
    let is_time = text.starts_with(|c: char| c.is_ascii_digit());
    let ends = |c: char| c.is_whitespace() || "()<>=!\"'".contains(c) || (c == ':' && !is_time);
    let end = text.find(ends).unwrap_or(text.len());
    // A character that begins nothing is a word by itself, which is refused later.
    let end = end.max(text.chars().next().map_or(1, char::len_utf8));
    (Token::Word(text.get(..end).unwrap_or_default().to_owned()), end)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let is_there = matches!(self.peek(), Some(Token::Word(found)) if found.eq_ignore_ascii_case(word));
        self.at += usize::from(is_there);
        is_there
    }

    /// Factors joined by AND, written or not.
    fn sequence(&mut self, depth: usize) -> Result<Filter, Status> {
        if depth > DEPTH_MAX {
            return Err(invalid(format!("A filter is nested at most {DEPTH_MAX} deep")));
        }
        let mut parts = Vec::new();
        loop {
            match self.peek() {
                None | Some(Token::Close) => break,
                Some(_) => parts.push(self.factor(depth)?),
            }
            if self.takes_word("AND") && matches!(self.peek(), None | Some(Token::Close)) {
                return Err(invalid("AND in the filter has no right side"));
            }
        }
        Ok(Filter::All(parts))
    }

    /// Terms joined by OR.
    fn factor(&mut self, depth: usize) -> Result<Filter, Status> {
        let mut parts = vec![self.term(depth)?];
        while self.takes_word("OR") {
            parts.push(self.term(depth)?);
        }
        match (parts.len(), parts.pop()) {
            (1, Some(only)) => Ok(only),
            (_, last) => {
                parts.extend(last);
                Ok(Filter::Any(parts))
            }
        }
    }

    fn term(&mut self, depth: usize) -> Result<Filter, Status> {
        let mut is_negated = false;
        while self.takes_word("NOT") {
            is_negated = !is_negated;
        }
        let term = match self.next() {
            Some(Token::Open) => {
                let inner = self.sequence(depth + 1)?;
                match self.next() {
                    Some(Token::Close) => inner,
                    _ => return Err(invalid("A parenthesis in the filter is not closed")),
                }
            }
            Some(Token::Word(field)) => self.comparison(&field)?,
            Some(token) => return Err(unexpected(&token)),
            None => return Err(invalid("The filter ends too early")),
        };
        Ok(match is_negated {
            true => Filter::Not(Box::new(term)),
            false => term,
        })
    }

    fn comparison(&mut self, name: &str) -> Result<Filter, Status> {
        let field = match name.to_lowercase().as_str() {
            "name" => Field::Name,
            "source_table" => Field::SourceTable,
            "state" => Field::State,
            "start_time" => Field::StartTime,
            "end_time" => Field::EndTime,
            "expire_time" => Field::ExpireTime,
            "size_bytes" => Field::SizeBytes,
            _ => return Err(invalid(format!("Backups cannot be filtered by \"{name}\""))),
        };
        let Some(Token::Operator(operator)) = self.next() else {
            return Err(invalid(format!("A comparison with {name} has no operator")));
        };
        let (text, is_quoted) = match self.next() {
            Some(Token::Word(text)) => (text, false),
            Some(Token::Quoted(text)) => (text, true),
            _ => return Err(invalid(format!("A comparison with {name} has no value"))),
        };
        let value = match field {
            Field::Name | Field::SourceTable | Field::State => Value::Text(text.to_lowercase(), is_quoted),
            Field::SizeBytes => {
                let bytes = text.parse();
                Value::Number(bytes.map_err(|_| invalid(format!("\"{text}\" is no number of bytes")))?)
            }
            Field::StartTime | Field::EndTime | Field::ExpireTime => Value::Number(time(&text)?),
        };
        Ok(Filter::Compare(field, operator, value))
    }
}

fn unexpected(token: &Token) -> Status {
    invalid(format!("The filter cannot have {token:?} there"))
}

fn time(text: &str) -> Result<i64, Status> {
    let parsed: Result<prost_types::Timestamp, _> = text.to_uppercase().parse();
    let micros = parsed.ok().as_ref().and_then(micros_of);
    micros.ok_or_else(|| invalid(format!("\"{text}\" is no time like 2018-03-28T14:50:00Z")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::timestamp_of;

    fn passes(filter: &str) -> bool {
        let backup = admin::Backup {
            name: "projects/p/instances/i/clusters/c/backups/Howling".to_owned(),
            source_table: "projects/p/instances/i/tables/prod-1".to_owned(),
            // 2018-03-28T14:50:00Z.
            start_time: Some(timestamp_of(1_522_248_600_000_000)),
            size_bytes: 100,
            state: admin::backup::State::Ready as i32,
            ..admin::Backup::default()
        };
        Filter::parse(filter).expect(filter).passes(&backup)
    }

    #[test]
    fn the_published_examples_do_as_they_say() {
        for right in [
            "",
            "name:howl",
            "name:\"howling\"",
            "source_table:prod",
            "state:READY",
            "state = ready",
            "(name:howl) AND (start_time < \"2018-03-28T14:50:01Z\")",
            "(name:howl) (size_bytes >= 100)",
            "start_time = 2018-03-28T14:50:00Z",
            "size_bytes > 10 AND NOT name:x",
            "name:x OR size_bytes!=7 AND state:READY",
            "NOT (name:x OR state:CREATING)",
            "source_table = prod-1",
        ] {
            assert!(passes(right), "{right}");
        }
        for wrong in [
            "name:\"howl\"",
            "state:CREATING",
            "size_bytes > 10000000000",
            "size_bytes = 100 AND name:x OR name:y",
            "start_time < 2018-03-28T14:50:00Z",
            "source_table != prod-1",
        ] {
            assert!(!passes(wrong), "{wrong}");
        }
    }

    #[test]
    fn mistakes_are_refused() {
        let deep = "(".repeat(DEPTH_MAX + 2);
        for bad in [
            "labels:x",
            "name",
            "name howl",
            "name:",
            "(name:x",
            "name:x)",
            "AND",
            "name:x AND",
            "size_bytes:many",
            "start_time < yesterday",
            "name:\"x",
            "NOT",
            "%",
            "é:x",
            &deep,
            &"x".repeat(BYTES_MAX + 1),
        ] {
            let refused = Filter::parse(bad).expect_err(bad);
            assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{bad}");
        }
    }
}
