//! HBase's filter language (`ParseFilter`).
//!
//! ```text
//! any     = all { "OR" all }
//! all     = one { "AND" one }
//! one     = ("SKIP" | "WHILE") one | "(" any ")" | name "(" [argument { "," argument }] ")"
//! argument = 'text with '' for a quote' | number | true | false | < <= = != > >=
//! ```

use super::{Comparator, CompareOp, Filter, SingleColumnValue};
use crate::ClientError;

/// Parentheses and wrappers inside each other.
const DEPTH_MAX: usize = 50;

/// Reads one filter expression.
pub(super) fn parse(text: &[u8]) -> Result<Filter, ClientError> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    let filter = parser.any()?;
    parser.skip_space();
    match parser.at == text.len() {
        true => Ok(filter),
        false => Err(parser.error("expected AND, OR or the end")),
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

enum Argument {
    Text(Vec<u8>),
    /// A number, a flag or an operator.
    Word(String),
}

impl Parser<'_> {
    fn error(&self, what: &str) -> ClientError {
        ClientError::invalid(format!("filter, at character {}: {what}", self.at + 1))
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Takes a byte behind space.
    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Takes an operator: a word, with a space or parenthesis behind it.
    fn take_word(&mut self, word: &str) -> bool {
        self.skip_space();
        let rest = &self.text[self.at..];
        let behind = rest.get(word.len()).is_none_or(|byte| byte.is_ascii_whitespace() || *byte == b'(');
        let found = rest.starts_with(word.as_bytes()) && behind;
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn any(&mut self) -> Result<Filter, ClientError> {
        let mut filters = vec![self.all()?];
        while self.take_word("OR") {
            filters.push(self.all()?);
        }
        Ok(one_or(filters, Filter::any))
    }

    fn all(&mut self) -> Result<Filter, ClientError> {
        let mut filters = vec![self.one()?];
        while self.take_word("AND") {
            filters.push(self.one()?);
        }
        Ok(one_or(filters, Filter::all))
    }

    fn one(&mut self) -> Result<Filter, ClientError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error("too many parentheses inside each other"));
        }
        let filter = if self.take_word("SKIP") {
            Filter::skip(self.one()?)
        } else if self.take_word("WHILE") {
            Filter::while_match(self.one()?)
        } else if self.take(b'(') {
            let filter = self.any()?;
            if !self.take(b')') {
                return Err(self.error("expected )"));
            }
            filter
        } else {
            self.simple()?
        };
        self.depth -= 1;
        Ok(filter)
    }

    fn simple(&mut self) -> Result<Filter, ClientError> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_alphanumeric()) {
            self.at += 1;
        }
        let name = String::from_utf8_lossy(&self.text[start..self.at]).into_owned();
        if name.is_empty() || !self.take(b'(') {
            return Err(self.error("expected a filter, as in PrefixFilter('a')"));
        }
        let mut arguments = Vec::new();
        while !self.take(b')') {
            if !arguments.is_empty() && !self.take(b',') {
                return Err(self.error("expected , or )"));
            }
            arguments.push(self.argument()?);
        }
        build(&name, Arguments { name: &name, arguments })
    }

    fn argument(&mut self) -> Result<Argument, ClientError> {
        if !self.take(b'\'') {
            let start = self.at;
            while self.peek().is_some_and(|byte| !byte.is_ascii_whitespace() && !b",)'(".contains(&byte)) {
                self.at += 1;
            }
            return match self.at > start {
                true => Ok(Argument::Word(String::from_utf8_lossy(&self.text[start..self.at]).into_owned())),
                false => Err(self.error("expected an argument")),
            };
        }
        let mut text = Vec::new();
        loop {
            match (self.peek(), self.text.get(self.at + 1)) {
                (None, _) => return Err(self.error("a ' is missing")),
                (Some(b'\''), Some(b'\'')) => {
                    text.push(b'\'');
                    self.at += 2;
                }
                (Some(b'\''), _) => {
                    self.at += 1;
                    return Ok(Argument::Text(text));
                }
                (Some(byte), _) => {
                    text.push(byte);
                    self.at += 1;
                }
            }
        }
    }
}

fn one_or(mut filters: Vec<Filter>, list: impl Fn(Vec<Filter>) -> Filter) -> Filter {
    match filters.len() {
        1 => filters.remove(0),
        _ => list(filters),
    }
}

struct Arguments<'a> {
    name: &'a str,
    arguments: Vec<Argument>,
}

impl Arguments<'_> {
    fn error(&self, what: impl std::fmt::Display) -> ClientError {
        ClientError::invalid(format!("{}: {what}", self.name))
    }

    fn len(&self) -> usize {
        self.arguments.len()
    }

    fn count(&self, allowed: &[usize]) -> Result<(), ClientError> {
        if allowed.contains(&self.len()) {
            return Ok(());
        }
        let allowed: Vec<_> = allowed.iter().map(usize::to_string).collect();
        Err(self.error(format_args!("expected {} arguments, found {}", allowed.join(" or "), self.len())))
    }

    fn text(&self, at: usize) -> Result<&[u8], ClientError> {
        match self.arguments.get(at) {
            Some(Argument::Text(text)) => Ok(text),
            _ => Err(self.error(format_args!("argument {} must be in quotes", at + 1))),
        }
    }

    fn word(&self, at: usize) -> Result<&str, ClientError> {
        match self.arguments.get(at) {
            Some(Argument::Word(word)) => Ok(word),
            _ => Err(self.error(format_args!("argument {} must be without quotes", at + 1))),
        }
    }

    fn number<N: std::str::FromStr>(&self, at: usize) -> Result<N, ClientError> {
        let word = self.word(at)?;
        word.parse().map_err(|_| self.error(format_args!("'{word}' is not a number in range")))
    }

    fn flag(&self, at: usize) -> Result<bool, ClientError> {
        match self.word(at)?.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(self.error(format_args!("'{other}' is neither true nor false"))),
        }
    }

    fn compare(&self, at: usize) -> Result<(CompareOp, Comparator), ClientError> {
        let op = match self.word(at)? {
            "<" => CompareOp::Less,
            "<=" => CompareOp::LessOrEqual,
            "=" => CompareOp::Equal,
            "!=" => CompareOp::NotEqual,
            ">=" => CompareOp::GreaterOrEqual,
            ">" => CompareOp::Greater,
            other => return Err(self.error(format_args!("'{other}' is not one of < <= = != >= >"))),
        };
        let text = self.text(at + 1)?;
        let colon = text.iter().position(|byte| *byte == b':');
        let unknown = || self.error("expected a comparator, as in 'binary:abc'");
        let (kind, value) = text.split_at(colon.ok_or_else(unknown)?);
        let value = &value[1..];
        let utf8 = || std::str::from_utf8(value).map_err(|_| self.error("the pattern is not UTF-8"));
        let (comparator, is_ordered) = match &kind.to_ascii_lowercase()[..] {
            b"binary" => (Comparator::binary(value), true),
            b"binaryprefix" => (Comparator::prefix(value), true),
            b"regexstring" => (Comparator::regex(utf8()?), false),
            b"regexstringnocase" => (Comparator::regex_ignoring_case(utf8()?), false),
            b"substring" => (Comparator::substring(utf8()?), false),
            _ => return Err(unknown()),
        };
        if !is_ordered && !matches!(op, CompareOp::Equal | CompareOp::NotEqual) {
            return Err(self.error("patterns and substrings can only be compared with = and !="));
        }
        Ok((op, comparator))
    }
}

/// The filter of a name (`createFilterFromArguments` of each class).
fn build(name: &str, arguments: Arguments<'_>) -> Result<Filter, ClientError> {
    let a = &arguments;
    Ok(match name {
        "KeyOnlyFilter" => {
            a.count(&[0, 1])?;
            Filter::key_only(a.len() == 1 && a.flag(0)?)
        }
        "FirstKeyOnlyFilter" => {
            a.count(&[0])?;
            Filter::first_key_only()
        }
        "PrefixFilter" | "ColumnPrefixFilter" | "InclusiveStopFilter" => {
            a.count(&[1])?;
            match name {
                "PrefixFilter" => Filter::prefix(a.text(0)?),
                "ColumnPrefixFilter" => Filter::column_prefix(a.text(0)?),
                _ => Filter::inclusive_stop(a.text(0)?),
            }
        }
        "MultipleColumnPrefixFilter" => {
            Filter::column_prefixes((0..a.len()).map(|at| a.text(at)).collect::<Result<Vec<_>, _>>()?)
        }
        "ColumnCountGetFilter" | "PageFilter" => {
            a.count(&[1])?;
            let count = a.number(0)?;
            if name == "PageFilter" { Filter::page(count) } else { Filter::column_count(count) }
        }
        "ColumnPaginationFilter" => {
            a.count(&[2])?;
            Filter::column_page(a.number(0)?, a.number(1)?)
        }
        "TimestampsFilter" => {
            Filter::timestamps((0..a.len()).map(|at| a.number(at)).collect::<Result<Vec<i64>, _>>()?)
        }
        "ColumnRangeFilter" => {
            a.count(&[4])?;
            let (min, max) = (a.text(0)?, a.text(2)?);
            let (min_inclusive, max_inclusive) = (a.flag(1)?, a.flag(3)?);
            let bound =
                |bound, inclusive| Some((bound, inclusive)).filter(|(text, _): &(&[u8], _)| !text.is_empty());
            Filter::column_range(bound(min, min_inclusive), bound(max, max_inclusive))
        }
        _ => return build_comparison(name, a),
    })
}

fn build_comparison(name: &str, a: &Arguments<'_>) -> Result<Filter, ClientError> {
    match name {
        "RowFilter" | "FamilyFilter" | "QualifierFilter" | "ValueFilter" => {
            a.count(&[2])?;
            let (op, comparator) = a.compare(0)?;
            Ok(match name {
                "RowFilter" => Filter::row(op, comparator),
                "FamilyFilter" => Filter::family(op, comparator),
                "QualifierFilter" => Filter::qualifier(op, comparator),
                _ => Filter::value(op, comparator),
            })
        }
        "SingleColumnValueFilter" | "SingleColumnValueExcludeFilter" => {
            a.count(&[4, 6])?;
            let (op, comparator) = a.compare(2)?;
            let mut filter = SingleColumnValue::new(a.text(0)?, a.text(1)?, op, comparator);
            if a.len() == 6 {
                filter = filter.filter_if_missing(a.flag(4)?).latest_version_only(a.flag(5)?);
            }
            let exclude = name == "SingleColumnValueExcludeFilter";
            Ok(if exclude { filter.exclude_column() } else { filter }.build())
        }
        "ColumnValueFilter" => {
            a.count(&[4])?;
            let (op, comparator) = a.compare(2)?;
            Ok(Filter::column_value(a.text(0)?, a.text(1)?, op, comparator))
        }
        "DependentColumnFilter" => {
            a.count(&[2, 3, 5])?;
            let drop_column = a.len() > 2 && a.flag(2)?;
            let compares = (a.len() == 5).then(|| a.compare(3)).transpose()?;
            Ok(Filter::dependent_column(a.text(0)?, a.text(1)?, drop_column, compares))
        }
        _ => Err(ClientError::invalid(format!("the filter language has no {name}"))),
    }
}
