//! Matching table names against Java regular expressions.

use fancy_regex::Regex;
use halcyon_rpc::RpcError;
use halcyon_schema::TableName;

/// A pattern that a whole table name must match.
pub(crate) struct NamePattern(Regex);

impl NamePattern {
    /// Translates what Java writes differently; what cannot be understood is the caller's mistake.
    pub(crate) fn new(java: &str) -> Result<NamePattern, RpcError> {
        let text = format!("^(?:{})$", translate(java));
        Regex::new(&text)
            .map(NamePattern)
            .map_err(|error| RpcError::do_not_retry(format!("Invalid regular expression {java}: {error}")))
    }

    /// Whether the whole text matches.
    pub(crate) fn matches_text(&self, text: &str) -> bool {
        self.0.is_match(text).unwrap_or(false)
    }

    /// Whether `q` or `ns:q`, or for a table of the default namespace also `default:q`, matches.
    pub(crate) fn matches(&self, table: &TableName) -> bool {
        let matches = |name: &str| self.matches_text(name);
        matches(table.as_str())
            || (table.namespace() == TableName::DEFAULT_NAMESPACE
                && matches(&format!("{}:{}", TableName::DEFAULT_NAMESPACE, table.as_str())))
    }
}

/// `\Q...\E` becomes escaped text, `\z` and `\Z` stay, Java's named classes become those of ASCII.
fn translate(java: &str) -> String {
    let mut out = String::with_capacity(java.len());
    let mut rest = java;
    while let Some(at) = rest.find("\\Q") {
        // An escaped backslash in front of the Q is not a quotation.
        let slashes = rest[..at].bytes().rev().take_while(|&byte| byte == b'\\').count();
        if slashes % 2 == 1 {
            out.push_str(&rest[..at + 2]);
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(&rest[..at]);
        let quoted = &rest[at + 2..];
        let (text, behind) = quoted.split_once("\\E").unwrap_or((quoted, ""));
        out.push_str(&fancy_regex::escape(text));
        rest = behind;
    }
    out.push_str(rest);
    for (java, here) in [
        ("\\p{Alpha}", "[a-zA-Z]"),
        ("\\p{Digit}", "[0-9]"),
        ("\\p{Alnum}", "[a-zA-Z0-9]"),
        ("\\p{Lower}", "[a-z]"),
        ("\\p{Upper}", "[A-Z]"),
        ("\\p{Punct}", "[!-/:-@\\[-`{-~]"),
    ] {
        out = out.replace(java, here);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_names_match_as_in_java() {
        let table = |name: &str| TableName::parse(name.as_bytes()).unwrap();
        let cases = [
            (".*", "t", true),
            ("t", "t1", false),
            ("t.*", "ns:t1", false),
            ("ns:t.*", "ns:t1", true),
            ("default:t.*", "t1", true),
            ("a|b", "b", true),
            ("a|b", "ab", false),
            ("\\Qa.b\\E", "a.b", true),
            ("\\Qa.b\\E", "axb", false),
            ("(?!x)\\w+", "xt", false),
            ("\\p{Lower}+", "abc", true),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(
                NamePattern::new(pattern).unwrap().matches(&table(name)),
                expected,
                "{pattern} {name}"
            );
        }
        assert!(NamePattern::new("(").is_err());
    }
}
