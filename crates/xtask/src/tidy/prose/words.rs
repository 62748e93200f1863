//! Finds words with a better one: private terms of this project, archaisms, and metaphors.
//!
//! A phrase matches its words in any letter case, also across lines. It ends before a word that the third column
//! names: `looks` is not said of a check, but `looks up` is the usual word.

use super::paragraphs::Sentence;

/// Phrases, the words to use instead, and words behind them that make them acceptable.
const BANNED: [(&[&str], &str, &[&str]); 29] = [
    (&["anew"], "`again`", &[]),
    (&["of late"], "`recently`", &[]),
    (&["beside"], "`besides`, `next to` or `concurrently with`", &[]),
    (&["so many", "so much"], "a number, `that many` or `as many as`", &[]),
    (
        &["a look", "looks", "look again"],
        "`checks`, `probes` or `polls`",
        &["up", "like"],
    ),
    (&["whoever"], "`a caller that …` or the noun", &[]),
    (
        &["draws lots", "draw lots", "lots are drawn", "drawn lots"],
        "`samples`",
        &[],
    ),
    (
        &["give way", "gives way", "giving way", "gave way"],
        "`shrink` or `evict under memory pressure`",
        &[],
    ),
    (
        &["room", "rooms"],
        "`memory reservation`, `budget`, `capacity` or `space`",
        &[],
    ),
    (&["allowance", "goes beyond"], "`overdraft`", &[]),
    (&["crowding", "crowded", "crowds"], "`compaction debt`", &[]),
    (&["yield of"], "`throughput of`", &[]),
    (&["haste"], "`urgent`", &[]),
    (&["stuck"], "`unflushable` or `blocked`", &[]),
    (&["forsaken", "forsakes", "forsake"], "`not durable`", &[]),
    (&["relieved", "relieves", "relieve"], "`rotated`", &[]),
    (&["residue", "residues"], "`misplaced cells`", &[]),
    (
        &["lend", "lends", "lent", "lending"],
        "`borrow` or `scratch buffer`",
        &[],
    ),
    (&["alike"], "`the same` or `equal`", &[]),
    (&["at hand", "in hand"], "`resident`, `in memory` or `buffered`", &[]),
    (&["at once"], "`immediately`, `concurrently` or `without waiting`", &[]),
    (&["medium", "media"], "`storage`, `backend` or `device`", &[]),
    (&["waist"], "`service interface`", &[]),
    (&["marker", "markers"], "`tombstone`", &[]),
    (&["shelf"], "`response buffer`", &[]),
    (&["parked"], "`detached`", &[]),
    (&["learnt"], "`compaction statistics` or `learned`", &[]),
    (&["census"], "`size estimate`", &[]),
    (&["ledger"], "`call accounting`", &[]),
];

/// The places of banned phrases, each as written, with the words to use instead.
pub fn find(sentence: &Sentence) -> Vec<(usize, &'static str, &'static str)> {
    let words: Vec<String> = sentence.tokens.iter().map(|token| token.lower()).collect();
    let mut found = Vec::new();
    for (phrases, better, unless) in BANNED {
        for phrase in phrases {
            let wanted: Vec<&str> = phrase.split(' ').collect();
            let places = words
                .windows(wanted.len())
                .enumerate()
                .filter(|(_, window)| *window == wanted);
            for (at, _) in places {
                let next = words.get(at + wanted.len());
                if !next.is_some_and(|next| unless.contains(&next.as_str())) {
                    found.push((at, *phrase, better));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::paragraphs::of_markdown;
    use super::*;

    fn check(text: &str) -> Vec<(&'static str, &'static str)> {
        let paragraphs = of_markdown(text);
        let sentences = paragraphs.iter().flat_map(|paragraph| paragraph.sentences());
        sentences
            .flat_map(|s| find(&s))
            .map(|(_, found, better)| (found, better))
            .collect()
    }

    #[test]
    fn a_phrase_is_found_across_lines_with_the_words_to_use() {
        assert_eq!(check("It is tried Anew."), [("anew", "`again`")]);
        assert_eq!(
            check("Writers give\nway."),
            [("give way", "`shrink` or `evict under memory pressure`")]
        );
        assert_eq!(check("A mushroom, renewed; `room` too."), []);
    }

    #[test]
    fn some_words_are_fine_before_others() {
        assert_eq!(check("It looks up a row that looks like this."), []);
        assert_eq!(check("It looks at a row.").len(), 1);
    }
}
