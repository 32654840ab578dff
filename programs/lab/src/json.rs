//! Values written as JSON.

use std::fmt::{self, Display};

/// A JSON value. Numbers that are not finite are written as `null`.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Whole(u64),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    /// In the order given.
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    /// Null for nothing.
    pub fn or_null<T: Into<Json>>(value: Option<T>) -> Json {
        value.map_or(Json::Null, Into::into)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Json {
        Json::Text(text.to_string())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Json {
        Json::Text(text)
    }
}

impl From<u64> for Json {
    fn from(number: u64) -> Json {
        Json::Whole(number)
    }
}

/// Rounded to a millionth, which is a nanosecond where milliseconds are meant.
impl From<f64> for Json {
    fn from(number: f64) -> Json {
        Json::Number((number * 1e6).round() / 1e6)
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Json {
        Json::Bool(value)
    }
}

/// Lists of simple values and small objects on one line, others with one element a line.
impl Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

impl Json {
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(value) => write!(f, "{value}"),
            Json::Whole(number) => write!(f, "{number}"),
            Json::Number(number) if number.is_finite() => write!(f, "{number}"),
            Json::Number(_) => f.write_str("null"),
            Json::Text(text) => quoted(f, text),
            Json::List(values) => {
                let parts: Vec<_> = values.iter().map(|value| (None, value)).collect();
                self.parts(f, depth, ('[', ']'), &parts)
            }
            Json::Object(fields) => {
                let parts: Vec<_> = fields.iter().map(|(name, value)| (Some(*name), value)).collect();
                self.parts(f, depth, ('{', '}'), &parts)
            }
        }
    }

    fn parts(
        &self,
        f: &mut fmt::Formatter<'_>,
        depth: usize,
        (open, close): (char, char),
        parts: &[(Option<&str>, &Json)],
    ) -> fmt::Result {
        let flat = parts.iter().all(|(_, value)| !matches!(value, Json::List(_) | Json::Object(_)));
        let inline = parts.is_empty() || flat && depth > 0;
        write!(f, "{open}")?;
        for (at, (name, value)) in parts.iter().enumerate() {
            match (at, inline) {
                (0, true) => {}
                (_, true) => f.write_str(", ")?,
                (0, false) => write!(f, "\n{:1$}", "", depth * 2 + 2)?,
                (_, false) => write!(f, ",\n{:1$}", "", depth * 2 + 2)?,
            }
            if let Some(name) = name {
                quoted(f, name)?;
                f.write_str(": ")?;
            }
            value.write(f, depth + 1)?;
        }
        if !inline {
            write!(f, "\n{:1$}", "", depth * 2)?;
        }
        write!(f, "{close}")
    }
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            c if (c as u32) < 0x20 => write!(f, "\\u{:04x}", c as u32)?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let value = Json::Object(vec![
            ("a", Json::List(vec![1u64.into(), 0.5.into(), f64::NAN.into(), Json::Null])),
            ("b", "q\"\\\n\u{1}é".into()),
            ("c", Json::Object(vec![("d", true.into())])),
            ("e", Json::List(vec![])),
        ]);
        let text = "{\n  \"a\": [1, 0.5, null, null],\n  \"b\": \"q\\\"\\\\\\n\\u0001é\",\n  \"c\": {\"d\": true},\n  \"e\": []\n}";
        assert_eq!(value.to_string(), text);
    }
}
