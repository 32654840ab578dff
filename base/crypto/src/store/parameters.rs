//! `hbase.crypto.keyprovider.parameters`: an address, `TYPE://PATH?password=TEXT&passwordFile=PATH`.

use super::Load;

/// Passwords of a store and of its keys.
pub(super) struct Passwords {
    pub(super) of_store: Option<String>,
    pub(super) by_name: Vec<(String, String)>,
}

impl Passwords {
    /// The one of the store counts more, as in HBase.
    pub(super) fn of_key(&self, name: &str) -> Option<&str> {
        let by_name =
            || self.by_name.iter().rev().find(|(of, _)| of == name).map(|(_, password)| password.as_str());
        self.of_store.as_deref().or_else(by_name)
    }
}

pub(super) struct Parameters {
    pub(super) kind: String,
    pub(super) path: String,
    password: Option<String>,
    password_file: Option<String>,
}

impl Parameters {
    /// No part of the text is in an error: it has passwords. Unlike HBase's it takes several parameters.
    pub(super) fn parse(text: &str) -> Load<Parameters> {
        let text = text.trim();
        let Some((kind, rest)) = text.split_once(':').filter(|(kind, _)| is_scheme(kind)) else {
            return Err("java.lang.RuntimeException: KeyProvider scheme should specify KeyStore type".into());
        };
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let (place, query) = rest.split_once('?').map_or((rest, ""), |(place, query)| (place, query));
        let path = match place.strip_prefix("//") {
            Some(place) => place.find('/').map_or("", |at| &place[at..]),
            None if place.starts_with('/') => place,
            None => "",
        };
        let path = decode(path, false);
        let mut parameters = Parameters { kind: kind.to_string(), path, password: None, password_file: None };
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let Some((name, value)) = part.split_once('=') else {
                return Err("java.lang.RuntimeException: Invalid parameters: one has no '='".into());
            };
            // Java decodes the query as part of an address, and HBase the value once more.
            let value = decode(&decode(value, false), true);
            match decode(name, true).to_lowercase().as_str() {
                "password" => parameters.password = Some(value),
                "passwordfile" => parameters.password_file = Some(value),
                _ => {}
            }
        }
        if parameters.path.is_empty() {
            return Err("java.lang.RuntimeException: KeyProvider parameters should specify a path".into());
        }
        Ok(parameters)
    }

    pub(super) fn passwords(&self, read: &dyn Fn(&str) -> Load<Vec<u8>>) -> Load<Passwords> {
        let by_name = match &self.password_file {
            Some(path) => properties(&read(path)?),
            None => Vec::new(),
        };
        Ok(Passwords { of_store: self.password.clone(), by_name })
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// `%41` is A and, in a form, `+` a blank.
fn decode(text: &str, is_form: bool) -> String {
    let hex = |bytes: &[u8]| {
        let digits =
            std::str::from_utf8(bytes).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()))?;
        u8::from_str_radix(digits, 16).ok()
    };
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| bytes.get(at + 1..at + 3).and_then(hex)).flatten();
        match escaped {
            Some(byte) => {
                out.push(byte);
                at += 3;
                continue;
            }
            None if bytes[at] == b'+' && is_form => out.push(b' '),
            None => out.push(bytes[at]),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Lines of `java.util.Properties`: `name=value`, `name: value`, `name value`, `#` and `!` for comments, `\` for what would
/// mean something else.
fn properties(bytes: &[u8]) -> Vec<(String, String)> {
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect(); // ISO 8859-1
    let mut found = Vec::new();
    let mut lines = text.split(['\n', '\r']).map(str::trim_start);
    while let Some(line) = lines.next() {
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let mut line = line.to_string();
        while line.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1 {
            line.pop();
            let Some(next) = lines.next() else { break };
            line += next;
        }
        found.push(property(&line));
    }
    found
}

fn property(line: &str) -> (String, String) {
    let mut is_escaped = false;
    let end = line.char_indices().find(|(_, c)| {
        let ends = !is_escaped && (c.is_ascii_whitespace() || "=:".contains(*c));
        is_escaped = *c == '\\' && !is_escaped;
        ends
    });
    let end = end.map_or(line.len(), |(at, _)| at);
    let value = line[end..].trim_start();
    let value = value.strip_prefix(['=', ':']).map_or(value, str::trim_start);
    (unescape(&line[..end]), unescape(value))
}

fn unescape(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text.chars());
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match rest.next() {
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\u{c}'),
            Some('u') => {
                let digits: String = rest.by_ref().take(4).collect();
                out.extend(u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32));
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Parameters {
        Parameters::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn parts_of_an_address() {
        let found = parse("jceks:///a%20b/store.jks?password=se%2526cret");
        assert_eq!((found.kind.as_str(), found.path.as_str()), ("jceks", "/a b/store.jks"));
        assert_eq!(found.password.as_deref(), Some("se&cret"));
        let found = parse("PKCS12://file@/a?passwordFile=/b&PASSWORD=a+b");
        assert_eq!((found.path.as_str(), found.password_file.as_deref()), ("/a", Some("/b")));
        assert_eq!(found.password.as_deref(), Some("a b"));
        assert_eq!(parse("jks:/a").path, "/a");
    }

    #[test]
    fn errors_have_no_passwords() {
        for (text, why) in [
            ("", "scheme"),
            ("/etc/store?password=hush", "scheme"),
            ("jceks:?password=hush", "a path"),
            ("jceks://host?password=hush", "a path"),
            ("jceks:///a?hush", "has no '='"),
        ] {
            let error = Parameters::parse(text).err().unwrap_or_default();
            assert!(error.contains(why) && !error.contains("hush"), "{text}: {error}");
        }
    }

    #[test]
    fn lines_of_java() {
        let text = "# a comment\n\n  master=one two\nspaced : three\nb\\=c four\\u0041\\\n   five\n!x\nlast";
        let expected = [("master", "one two"), ("spaced", "three"), ("b=c", "fourAfive"), ("last", "")];
        let expected = expected.map(|(name, value)| (name.to_string(), value.to_string()));
        assert_eq!(properties(text.as_bytes()), expected);
    }
}
