//! Finds free relatives: relative clauses that stand in place of a noun.
//!
//! `Frees what is taken` leaves the reader to find the noun; `frees the reserved memory` names it. English allows both,
//! and technical English uses the noun.
//!
//! Counted: `what`, `whatever`, `whoever` and `who` before another word, where a noun could stand. Not counted:
//! questions, infinitives ("decides what to compact"), `what` before a noun ("what kind of error"), and `who` behind
//! the noun it belongs to ("a client who waits"). There is no dictionary of verbs: a rare miscount is cheaper.

use super::paragraphs::Sentence;

/// Words before which `what` is no pronoun.
const DETERMINED: [&str; 14] = [
    "to", "if", "else", "about", "kind", "kinds", "sort", "sorts", "order", "size", "time", "number", "unit", "version",
];

/// Words after which `who` has no noun of its own.
const BEFORE_WHO: [&str; 30] = [
    "of", "that", "for", "to", "by", "from", "with", "in", "on", "and", "or", "than", "as", "about", "ask", "asks",
    "tell", "tells", "know", "knows", "say", "says", "see", "sees", "show", "shows", "decide", "decides", "whether",
    "but",
];

/// The places of free relatives in a sentence.
pub fn find(sentence: &Sentence) -> Vec<usize> {
    if sentence.is_question() {
        return Vec::new();
    }
    (0..sentence.tokens.len()).filter(|at| is_free(sentence, *at)).collect()
}

fn is_free(sentence: &Sentence, at: usize) -> bool {
    let word = |at: usize| {
        sentence
            .tokens
            .get(at)
            .filter(|token| token.is_word())
            .map(|token| token.lower())
    };
    let (Some(word_here), Some(next)) = (word(at), word(at + 1)) else {
        return false;
    };
    match word_here.as_str() {
        "what" | "whatever" => !DETERMINED.contains(&next.as_str()),
        "whoever" => true,
        "who" => {
            let previous = at.checked_sub(1).and_then(|before| sentence.tokens.get(before));
            previous.is_none_or(|token| {
                let text = token.lower();
                matches!(text.as_str(), ";" | ":" | "(" | "–" | "—") || BEFORE_WHO.contains(&text.as_str())
            })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::paragraphs::of_markdown;
    use super::*;

    fn count(text: &str) -> usize {
        let paragraphs = of_markdown(text);
        let sentences = paragraphs.iter().flat_map(|paragraph| paragraph.sentences());
        sentences.map(|sentence| find(&sentence).len()).sum()
    }

    #[test]
    fn relatives_without_a_noun_count() {
        for text in [
            "What is taken is freed.",
            "Frees what it took.",
            "Of what a scan reads, half is cached.",
            "It keeps (what waits) apart.",
            "Keeps whatever\ncomes.",
            "Whoever reads waits.",
            "It goes to who was refused.",
            "Who asks gets an answer.",
            "Knows what `Run` does.",
        ] {
            assert_eq!(count(text), 1, "{text}");
        }
        assert_eq!(count("What waits gets what is left."), 2);
    }

    #[test]
    fn questions_infinitives_determiners_and_real_relatives_do_not() {
        for text in [
            "What is taken?",
            "Decides what to compact.",
            "Says what kind of error it is.",
            "A client who waits is told.",
            "Those who wait are told.",
            "No matter what.",
            "`what is taken`",
        ] {
            assert_eq!(count(text), 0, "{text}");
        }
    }
}
