//! `\Q...\E`: everything between stands for itself.

/// A character of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) char: char,
    /// It stood between `\Q` and `\E` and has no meaning but itself.
    pub(super) quoted: bool,
}

/// Takes the marks away. A quote that is not closed goes to the end of the pattern; an `\E` without its `\Q`
/// stays, and is refused later, as Java does.
pub(super) fn unquote(pattern: &str) -> Vec<Token> {
    let mut tokens = Vec::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(start) = find_quote(rest) {
        tokens.extend(rest[..start].chars().map(|char| Token { char, quoted: false }));
        let quoted = &rest[start + 2..];
        let (quoted, behind) = quoted.split_once("\\E").unwrap_or((quoted, ""));
        tokens.extend(quoted.chars().map(|char| Token { char, quoted: true }));
        rest = behind;
    }
    tokens.extend(rest.chars().map(|char| Token { char, quoted: false }));
    tokens
}

/// The place of the first `\Q` whose backslash is not itself escaped.
fn find_quote(pattern: &str) -> Option<usize> {
    let bytes = pattern.as_bytes();
    let mut at = 0;
    while at + 1 < bytes.len() {
        match (bytes[at], bytes[at + 1]) {
            (b'\\', b'Q') => return Some(at),
            (b'\\', _) => at += 2,
            _ => at += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_end_at_their_mark_or_at_the_end() {
        let text = |pattern| -> String {
            let mark = |token: &Token| [if token.quoted { '!' } else { '.' }, token.char];
            unquote(pattern).iter().flat_map(mark).collect()
        };
        assert_eq!(text(r"a\Q+\Eb"), ".a!+.b");
        assert_eq!(text(r"\Qa\"), r"!a!\");
        assert_eq!(text(r"\\Qa"), r".\.\.Q.a");
        assert_eq!(text(r"\Q\E\Qx\Ey\E"), r"!x.y.\.E");
    }
}
