//! What a translated pattern that takes steps back is without them. An automaton of that is about as large as all those together that
//! `fancy-regex` makes of the parts of the pattern, and tells what a search may cost.

/// See the head of the file.
pub(super) struct Outline {
    pub pattern: String,
    /// The parts with an automaton of their own, at most.
    pub parts_count: usize,
}

/// `translated` has backslashes and parentheses only where they have a meaning: characters that could be taken for these are written
/// as numbers.
pub(super) fn outline(translated: &str) -> Outline {
    let mut pattern = String::with_capacity(translated.len());
    let mut parts_count = 1;
    let mut rest = translated;
    while let Some(char) = rest.chars().next() {
        // What is left out, and what stands there instead.
        let opened = ["(?=", "(?!", "(?<=", "(?<!", "(?>"].into_iter().find(|open| rest.starts_with(open));
        let (left_out, instead) = match (opened, reference_len(rest)) {
            (Some(open), _) => (open.len(), "(?:"),
            (None, Some(len)) => (len, ""),
            (None, None) => (0, ""),
        };
        if left_out > 0 {
            parts_count += 2; // one for what stands inside, and one for what follows
            pattern.push_str(instead);
            rest = &rest[left_out..];
            continue;
        }
        parts_count += usize::from(char == '|');
        pattern.push(char);
        rest = &rest[char.len_utf8()..];
    }
    Outline { pattern, parts_count }
}

/// The length of the reference to a group that the text begins with.
fn reference_len(text: &str) -> Option<usize> {
    let digits = text.strip_prefix('\\')?.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then_some(1 + digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_back_are_left_out() {
        let outlined = |translated: &str| {
            let Outline { pattern, parts_count } = outline(translated);
            (pattern, parts_count)
        };
        assert_eq!(outlined("a(?:b|c)\\x{31}\\b"), ("a(?:b|c)\\x{31}\\b".to_string(), 2));
        assert_eq!(outlined("(?=a)(?!)(?<=b)(?<!c)(?>d)"), ("(?:a)(?:)(?:b)(?:c)(?:d)".to_string(), 11));
        assert_eq!(outlined("(é)(?:\\12)(?i:\\3)"), ("(é)(?:)(?i:)".to_string(), 5));
    }
}
