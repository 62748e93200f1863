mod meaning;

use super::*;

#[track_caller]
fn check(pattern: &[u8], yes: &[&[u8]], no: &[&[u8]]) {
    let compiled = Pattern::compile(pattern).unwrap();
    for subject in yes {
        assert!(
            compiled.is_match(subject),
            "{} {}",
            pattern.escape_ascii(),
            subject.escape_ascii()
        );
        assert!(
            subject.starts_with(compiled.literal_prefix()),
            "{}",
            pattern.escape_ascii()
        );
    }
    for subject in no {
        assert!(
            !compiled.is_match(subject),
            "{} {}",
            pattern.escape_ascii(),
            subject.escape_ascii()
        );
    }
}

#[track_caller]
fn refuse(pattern: &[u8], reason: &str) {
    let error = Pattern::compile(pattern).map(|_| pattern.escape_ascii().to_string());
    assert_eq!(error.unwrap_err(), reason);
}

#[test]
fn whole_subject() {
    check(b"abc", &[b"abc"], &[b"abcd", b"xabc", b"", b"abc\n"]);
    check(b"a|ab", &[b"a", b"ab"], &[b"abb"]);
    check(b"", &[b""], &[b"a"]);
    check(b"a||b", &[b"a", b"", b"b"], &[b"ab"]);
    check(b"()", &[b""], &[b"a"]);
    check(b"(|a)b", &[b"b", b"ab"], &[b"a"]);
    check(b"^abc$", &[b"abc"], &[b"abc\n", b"ab"]);
    check(b"\\Aabc\\z", &[b"abc"], &[b"abc\n"]);
    check(b"a^b", &[], &[b"ab", b"a", b"b"]);
    check(b"a$b", &[], &[b"ab", b"a"]);
    check(b"^*a", &[b"a"], &[b""]);
    check(b"a$*", &[b"a"], &[b"aa", b""]);
    check(b"a$.*", &[b"a"], &[b"ab", b"a\n", b""]);
    check(b"a\\z\\C*", &[b"a"], &[b"ab", b"a\n"]);
    check(b"$\\C*", &[b""], &[b"a", b"\n"]);
    check(b"a$$.*?", &[b"a"], &[b"ab"]);
    check(b"(?m)a$\\C^b", &[b"a\nb"], &[b"a b", b"ab"]);
}

#[test]
fn bytes_not_characters() {
    check("§".as_bytes(), &["§".as_bytes()], &[b"\xC2", b"\xA7"]);
    check(b"a.b", &[b"a\xFFb", b"a b"], &["a§b".as_bytes(), b"a\nb"]);
    check(b"a\\C{2}b", &["a§b".as_bytes(), b"a\n\nb"], &[b"a\nb"]);
    check(b"\\C*", &[b"", b"\n", b"\xFF\0"], &[]);
    check(b"(?s).", &[b"\n", b"\x80"], &["§".as_bytes()]);
    check(b"[^a]", &[b"\n", b"\x80", b"\xFF"], &[b"a"]);
    check(b"\xC2\xA7*", &[b"\xC2", b"\xC2\xA7\xA7"], &[b"", b"\xC2\xA7\xC2"]);
    check(b"[\x80-\xFE]", &[b"\x80", b"\xFE"], &[b"\x7F", b"\xFF"]);
    check(b"a\0b", &[b"a\0b"], &[b"ab"]);
    check(b"\\w", &[b"_", b"9"], &[b"\xE9", b"-"]);
    check(b"\\bfoo\\b.*", &[b"foo bar", b"foo\xE9"], &[b"fooo"]);
}

#[test]
fn escapes() {
    check(b"\\0", &[b"\0"], &[b"0"]);
    check(b"\\012\\12", &[b"\n\n"], &[]);
    check(b"\\1234", &[b"S4"], &[]);
    check(b"\\377", &[b"\xFF"], &[]);
    check(b"\\a\\f\\t\\n\\r\\v", &[b"\x07\x0C\t\n\r\x0B"], &[]);
    check(b"\\x7F\\x{7f}\\x{0000FF}", &[b"\x7F\x7F\xFF"], &[]);
    check(b"\\_\\-\\.\\\\\\{\\ ", &[b"_-.\\{ "], &[]);
    check(b"\\Qa.b*\\E*", &[b"a.b", b"a.b**"], &[b"axb"]);
    check(b"x\\Q\\E+", &[b"x", b"xx"], &[b""]);
    check(b"\\Q\\n", &[b"\\n"], &[b"\n"]);
    check(b"\\pN\\p{Lu}", &[b"1A", b"\xB2\xC9"], &[b"1a", b"AA"]);
    check(b"\\p{^Lu}", &[b"a", b"\xE9"], &[b"A", b"\xC9"]);
    check(b"\\PL|[\\pL]", &[b"1", b"\xE9"], &[b""]);
    check(b"\\p{Greek}", &[], &[b"a", b"\xCE", b""]);
    check(b"\\s", &[b" ", b"\t", b"\x0C"], &[b"\x0B"]);
    for bad in [
        &b"\\1"[..],
        b"\\8",
        b"\\400",
        b"\\x{100}",
        b"\\x{10FFFF}",
        b"\\x1",
        b"\\xg0",
    ] {
        refuse(bad, "invalid escape sequence");
    }
    for bad in [
        &b"\\q"[..],
        b"\\Z",
        b"\\G",
        b"\\E",
        b"\\x{}",
        b"\\\xE9",
        b"[\\b]",
        b"[\\C]",
    ] {
        refuse(bad, "invalid escape sequence");
    }
    refuse(b"a\\", "trailing \\");
    refuse(b"\\p{Klingon}", "invalid character class range");
    refuse(b"\\pX", "invalid character class range");
}

#[test]
fn classes() {
    check(b"[]a]", &[b"]", b"a"], &[b"b"]);
    check(b"[^]a]", &[b"b"], &[b"]", b"a"]);
    check(b"[[a]", &[b"[", b"a"], &[b"]"]);
    check(b"[a&&b]", &[b"a", b"&", b"b"], &[b""]);
    check(b"[a~~b]", &[b"a", b"~", b"b"], &[]);
    check(b"[-a]", &[b"-", b"a"], &[]);
    check(b"[a-]", &[b"-", b"a"], &[b"b"]);
    check(b"[+--]", &[b"+", b",", b"-"], &[b"."]);
    check(b"[a-c-e]", &[b"b", b"-", b"e"], &[b"d"]);
    check(b"[\\d\\-x]", &[b"5", b"-", b"x"], &[b"y"]);
    check(b"[[:alpha:][:^ascii:]]", &[b"z", b"\x80"], &[b"1"]);
    check(b"[[:space:]]", &[b"\x0B"], &[b"a"]);
    check(b"[[:word:]-]", &[b"_", b"-"], &[b"+"]);
    check(b"[[:alpha]", &[b"[", b":", b"h"], &[b"z"]);
    check(b"[\\]\\x41-\\x43]", &[b"]", b"B"], &[b"D"]);
    check(b"[\\W]", &[b"-", b"\xFF"], &[b"w"]);
    check(b"[\\w\\W]{3}", &[b"a\n\xFF"], &[b"ab"]);
    check(b"[^\\w\\W]", &[], &[b"a", b"\0", b""]);
    refuse(b"[z-a]", "invalid character class range");
    refuse(b"[a--b]", "invalid character class range");
    refuse(b"[[:nope:]]", "invalid character class range");
    refuse(b"[a", "missing closing ]");
    refuse(b"[]", "missing closing ]");
    refuse(b"[a-\\d]", "invalid escape sequence");
}

#[test]
fn flags() {
    check(b"(?i)aB1", &[b"Ab1", b"aB1"], &[b"ac1"]);
    check(b"a(?i)b|c", &[b"aB", b"C"], &[b"Ab"]);
    check(b"(?i:a)b", &[b"Ab"], &[b"aB"]);
    check(b"((?i)a)b", &[b"Ab"], &[b"aB"]);
    check(b"(?i)(?-i)a", &[b"a"], &[b"A"]);
    check(b"(?i)[b-d]\xE9[^x]", &[b"C\xE9y"], &[b"c\xE9X", b"c\xE9x", b"c\xC9y"]);
    // Only ASCII letters have another case.
    check(
        b"(?i)\xd6\\xD6[\\xd0-\\xd6]",
        &[b"\xd6\xd6\xd6"],
        &[b"\xf6\xd6\xd6", b"\xd6\xf6\xd6", b"\xd6\xd6\xf6"],
    );
    check(b"(?i)[[:upper:]]", &[b"a"], &[b"1"]);
    check(b"(?i)\\Qk.\\E", &[b"K."], &[b"Kx"]);
    check(b"(?i)\xD7\xDF\xFF\xB5", &[b"\xD7\xDF\xFF\xB5"], &[b"\xF7\xDF\xFF\xB5"]);
    check(b"(?U)a+?", &[b"a", b"aaa"], &[b""]);
    check(b"(?)a(?:b)", &[b"ab"], &[]);
    check(b"(?P<n>a)(?<m>b)", &[b"ab"], &[]);
    check(b"(?P<n>a)(?P<n>b)", &[b"ab"], &[b"a", b"b"]);
    refuse(b"(?x)a", "invalid perl operator");
    refuse(b"(?i-)a", "invalid perl operator");
    refuse(b"(?=a)", "invalid perl operator");
    refuse(b"(?!a)", "invalid perl operator");
    refuse(b"(?<=a)", "invalid perl operator");
    refuse(b"(?<!a)", "invalid perl operator");
    refuse(b"(?#a)", "invalid perl operator");
    refuse(b"(?P=n)", "invalid perl operator");
    refuse(b"(?P<n", "invalid named capture group");
    refuse(b"(?P<>a)", "invalid named capture group");
    refuse(b"(?i", "missing closing )");
    refuse(b"(a", "missing closing )");
    refuse(b"a)", "unexpected )");
}

#[test]
fn repetition_operators() {
    check(b"a{2}", &[b"aa"], &[b"a", b"aaa"]);
    check(b"a{2,}?", &[b"aa", b"aaa"], &[b"a"]);
    check(b"(?:ab){1,2}", &[b"ab", b"abab"], &[b""]);
    check(b"ab*", &[b"a", b"abb"], &[b"abab"]);
    check(b"a{,2}", &[b"a{,2}"], &[b"aa"]);
    check(b"a{", &[b"a{"], &[b"a"]);
    check(b"a{x}", &[b"a{x}"], &[]);
    check(b"a{01}", &[b"a{01}"], &[b"a"]);
    check(b"{", &[b"{"], &[]);
    check(b"}", &[b"}"], &[]);
    check(b"a{0}", &[b""], &[b"a"]);
    check(b"a+(?i)?b", &[b"b", b"aab"], &[b"ba"]);
    check(b"a{1000}", &[&[b'a'; 1000]], &[&[b'a'; 999]]);
    for bad in [&b"a**"[..], b"a*+", b"a+*", b"a??*", b"a{2}{3}", b"a*???"] {
        refuse(bad, "bad repetition operator");
    }
    for bad in [&b"*"[..], b"+a", b"(*a)", b"a|*", b"{2}", b"?"] {
        refuse(bad, "no argument for repetition operator");
    }
    for bad in [&b"a{1001}"[..], b"a{2,1}", b"a{1,99999999999}", b"(a{32}){32}"] {
        refuse(bad, "invalid repetition size");
    }
    check(b"(a{31}){32}", &[&[b'a'; 992]], &[]);
}

#[test]
fn limits() {
    refuse(&vec![b'a'; PATTERN_BYTES_MAX + 1], "pattern too large");
    refuse(&b"[ab]{1000}".repeat(40), "pattern too large - compile failed");
    // Every second byte: each copy is a hundred times the size of one of `a-z`.
    let every_second: String = (0x81..=0xff).step_by(2).map(|byte| format!("\\x{byte:02x}")).collect();
    refuse(
        format!("[{every_second}]{{1000}}").as_bytes(),
        "pattern too large - compile failed",
    );
    translate(b"[a-z]{1000}").expect("small");
    refuse(
        &[b"(".repeat(33), b")".repeat(33)].concat(),
        "expression nests too deeply",
    );
    let deep = [b"(a|b".repeat(32), b")*".repeat(32)].concat();
    assert!(Pattern::compile(&deep).is_ok());
}

#[test]
fn literal_prefixes() {
    for (pattern, prefix, tail) in [
        (&b"abc"[..], &b"abc"[..], Tail::Empty),
        (b"^a\\.c$", b"a.c", Tail::Empty),
        (b"abc\\C*", b"abc", Tail::AnyBytes),
        (b"(?s)abc.*", b"abc", Tail::AnyBytes),
        (b"abc.*", b"abc", Tail::AnyButNewline),
        (b"abc*", b"ab", Tail::Other),
        (b"abc+d", b"ab", Tail::Other),
        (b"ab|ac", b"", Tail::Other),
        (b"ab(c|d)", b"ab", Tail::Other),
        (b"ab(?i)c", b"ab", Tail::Other),
        (b"ab$c", b"ab", Tail::Other),
        (b"ab$?", b"ab", Tail::Other),
        (b"ab$.*", b"ab", Tail::Other),
        (b"ab$$\\C*", b"ab", Tail::Other),
        (b"$\\C*", b"", Tail::Other),
        (b"ab.*|x", b"", Tail::Other),
        (b"ab.*c", b"ab", Tail::Other),
        (b"a^*b", b"a", Tail::Other),
        (b"ab$|x\\C*", b"", Tail::Other),
    ] {
        let found = translate(pattern).unwrap();
        assert_eq!(
            (&found.prefix[..], found.tail),
            (prefix, tail),
            "{}",
            pattern.escape_ascii()
        );
    }
}

#[test]
fn total_on_any_bytes() {
    // A small generator over the bytes that mean something, so that most inputs get past the first construct.
    let alphabet = b"ab(){}[]|*+?.^$\\-:,12QECpdWxiPs<>&~\n\0\xE9";
    let mut state = 7u64;
    for _ in 0..20_000 {
        let mut pattern = Vec::new();
        for _ in 0..(state >> 60) + 4 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            pattern.push(alphabet[(state >> 33) as usize % alphabet.len()]);
        }
        if let Ok(translation) = translate(&pattern) {
            let built = regex::bytes::RegexBuilder::new(&translation.regex)
                .unicode(false)
                .build();
            let built = built.expect("what the translator writes must compile");
            let compiled = Pattern::compile(&pattern).unwrap();
            for subject in [&b""[..], b"a", b"ab", b"aab", b"b\n", b"(a)", b"a\xE9", &pattern] {
                assert_eq!(
                    compiled.is_match(subject),
                    built.is_match(subject),
                    "{}",
                    pattern.escape_ascii()
                );
            }
        }
    }
}
