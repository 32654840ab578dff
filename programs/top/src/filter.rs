//! Filters, in the form that `hbtop` has: `[!]FIELD OP VALUE`.
//!
//! `=` is a part of a text or an equal number, `==` the whole text; `>`, `>=`, `<` and `<=` compare. `!` in front turns a
//! filter around.

use std::cmp::Ordering;

use crate::args::Mode;
use crate::fields::{Field, Value};
use crate::records::Record;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Contains,
    Equal,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

/// The longer one first where one begins with another.
const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Equal),
    (">=", Operator::GreaterOrEqual),
    ("<=", Operator::LessOrEqual),
    ("=", Operator::Contains),
    (">", Operator::Greater),
    ("<", Operator::Less),
];

#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// As it was typed.
    pub text: String,
    field: Field,
    operator: Operator,
    value: Value,
    is_turned: bool,
}

impl Filter {
    pub fn parse(mode: Mode, text: &str) -> Result<Filter, String> {
        let wrong = |why: String| format!("filter \"{text}\": {why}");
        let (is_turned, rest) = match text.trim().strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text.trim()),
        };
        let at = rest.find(['=', '<', '>']).ok_or_else(|| wrong("FIELD OP VALUE is wanted".into()))?;
        let (name, rest) = rest.split_at(at);
        let field = Field::parse(mode, name).map_err(wrong)?;
        let starts = |(sign, operator)| Some((operator, rest.strip_prefix(sign)?));
        let (operator, value) = OPERATORS.into_iter().find_map(starts).expect("one of the signs stands here");
        let value = match (field.is_text(), value.trim()) {
            (_, "") => return Err(wrong("the value is missing".into())),
            (true, value) => Value::Text(value.to_string()),
            (false, value) => match value.parse::<f64>() {
                Ok(number) if number.is_finite() => Value::Part(number),
                _ => return Err(wrong(format!("\"{value}\" is no number"))),
            },
        };
        Ok(Filter { text: text.trim().to_string(), field, operator, value, is_turned })
    }

    /// Whether a record is to be shown. One without the field is not.
    pub fn passes(&self, record: &Record) -> bool {
        let Some(value) = record.value(self.field) else { return false };
        let order = value.compare(&self.value);
        let passes = match (self.operator, value, &self.value) {
            (Operator::Contains, Value::Text(text), Value::Text(part)) => text.contains(part.as_str()),
            (Operator::Contains | Operator::Equal, ..) => order == Ordering::Equal,
            (Operator::Greater, ..) => order == Ordering::Greater,
            (Operator::GreaterOrEqual, ..) => order != Ordering::Less,
            (Operator::Less, ..) => order == Ordering::Less,
            (Operator::LessOrEqual, ..) => order != Ordering::Greater,
        };
        passes != self.is_turned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::records;
    use crate::records::tests::example;

    fn passing(mode: Mode, filter: &str) -> Vec<String> {
        let (metrics, rates) = example(3000);
        let filter = Filter::parse(mode, filter).unwrap();
        let records = records(&metrics, &rates, mode).into_iter().filter(|record| filter.passes(record));
        let name = if mode == Mode::Tables { Field::Table } else { Field::Server };
        records.map(|record| record.value(name).unwrap().to_string()).collect()
    }

    #[test]
    fn every_operator() {
        for (filter, expected) in [
            ("TABLE=ord", vec!["orders"]),
            ("table == ord", vec![]),
            ("TABLE==orders", vec!["orders"]),
            ("!TABLE==orders", vec!["log"]),
            ("#REQ/S>50", vec!["orders"]),
            ("#REQ/S >= 50", vec!["orders", "log"]),
            ("#REQ/S<410", vec!["log"]),
            ("#REQ/S<=410", vec!["orders", "log"]),
            ("#READ/S=0", vec!["log"]),
            ("!#READ/S==0", vec!["orders"]),
        ] {
            assert_eq!(passing(Mode::Tables, filter), expected, "{filter}");
        }
        assert_eq!(passing(Mode::Servers, "SERVER=:16020"), ["a:16020", "b:16020"]);
    }

    #[test]
    fn what_is_no_filter_is_refused_with_its_text() {
        for (filter, why) in [
            ("", "wanted"),
            ("TABLE", "wanted"),
            ("COLOUR==red", "there is no field \"COLOUR\" in mode tables; there are NAMESPACE, TABLE"),
            ("TABLE==", "missing"),
            ("#REQ/S>many", "\"many\" is no number"),
            ("#REQ/S>NaN", "no number"),
            ("=x", "there is no field \"\""),
            ("SERVER=a", "no field"),
        ] {
            let error = Filter::parse(Mode::Tables, filter).unwrap_err();
            assert!(error.contains(why) && error.contains(&format!("\"{filter}\"")), "{filter}: {error}");
        }
    }
}
