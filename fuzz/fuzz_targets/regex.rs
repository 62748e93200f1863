//! Patterns: any bytes are refused or match in bounded time.
//!
//! The shortcuts agree with the automaton.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_filter::re2::{Pattern, translate};

fuzz_target!(|input: (&[u8], &[u8])| {
    let (pattern, subject) = input;
    let translated = translate(pattern).is_ok();
    let Ok(compiled) = Pattern::compile(pattern) else {
        return;
    };
    assert!(translated);
    if compiled.is_match(subject) {
        assert!(subject.starts_with(compiled.literal_prefix()));
    }
    if let Some(literal) = compiled.as_literal() {
        assert_eq!(compiled.is_match(subject), subject == literal);
    }
    // Within two groups a pattern is neither a literal with a tail nor a list of strings. An unclosed construct, as by
    // `\Q`, takes the end of the groups for itself.
    let Ok(automaton) = Pattern::compile(&[&b"(?:(?:"[..], pattern, b"))"].concat()) else {
        return;
    };
    let behind_prefix = [compiled.literal_prefix(), subject].concat();
    for subject in [subject, &behind_prefix] {
        assert_eq!(compiled.is_match(subject), automaton.is_match(subject));
    }
});
