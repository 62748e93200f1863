//! Files of bearer tokens, and tokens of any names.
//!
//! Any text is refused or read. A token that is made is known by its line until it expires, and by no other line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_access::tokens::{RANDOM_BYTES, TokenRefused, Tokens, make};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let of_file = Tokens::parse(text);
    if let Ok(tokens) = &of_file {
        assert!(tokens.len() <= text.lines().count());
        let holder = text.split_whitespace().map(|word| tokens.holder(word, 0).is_ok());
        assert!(
            !holder.fold(false, |any, one| any | one),
            "the file has hashes, and no token"
        );
    }
    let (name, rest) = text.split_once('\n').unwrap_or((text, ""));
    let mut random = [0; RANDOM_BYTES];
    random.iter_mut().zip(rest.bytes()).for_each(|(to, byte)| *to = byte);
    let expires = u64::from(random[0]) + 1;
    let Some(new) = make(name, &random, Some(expires)) else {
        return;
    };
    let tokens = Tokens::parse(&new.line).expect("a line that was made");
    assert_eq!(tokens.len(), 1);
    assert_eq!(tokens.holder(&new.token, expires - 1), Ok((name, Some(expires))));
    assert_eq!(tokens.holder(&new.token, expires), Err(TokenRefused::Expired));
    if let Ok(of_file) = of_file {
        let both = Tokens::parse(&format!("{text}\n{}", new.line));
        assert_eq!(both.map_or(of_file.len() + 1, |both| both.len()), of_file.len() + 1);
    }
});
