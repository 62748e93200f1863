//! Splits a statement into words.
//!
//! Blanks separate words. Between single quotes everything is literal, and between double quotes everything but `\"`.
//! Elsewhere a backslash is one: `\xNN` belongs to the spelling of bytes. `#` at the beginning of a word begins a comment.

/// The words of a line; none for a blank line.
pub fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next() {
                        None => return Err(format!("a quote {c} is not closed")),
                        Some(end) if end == c => break,
                        Some('\\') if c == '"' && rest.peek() == Some(&'"') => word.extend(rest.next()),
                        Some(other) => word.push(other),
                    }
                }
            }
            '#' if word.is_none() => break,
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        split(line).unwrap()
    }

    #[test]
    fn quotes_keep_blanks() {
        assert_eq!(words("put i/t 'a b' f:q=\"x y\"z"), ["put", "i/t", "a b", "f:q=x yz"]);
        assert_eq!(
            words(r#"put i/t "say \"so\"" f:q='\xff\"'"#),
            ["put", "i/t", "say \"so\"", r#"f:q=\xff\""#]
        );
        assert_eq!(words("get i/t ''"), ["get", "i/t", ""]);
        assert_eq!(words(r"get i/t \x00"), ["get", "i/t", r"\x00"]);
    }

    #[test]
    fn comments_and_blanks_are_nothing() {
        assert!(words("  # tables").is_empty() && words("\t").is_empty());
        assert_eq!(words("get i/t k#1 # the first"), ["get", "i/t", "k#1"]);
    }

    #[test]
    fn an_open_quote_is_an_error() {
        assert_eq!(split("get 'i/t").unwrap_err(), "a quote ' is not closed");
        assert!(split("get \"i/t\\\"").is_err());
    }
}
