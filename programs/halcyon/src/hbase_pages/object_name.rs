//! Names of beans, and patterns of them, as `javax.management.ObjectName` has them.
//!
//! `Hadoop:service=HBase,name=RegionServer,sub=Server` has a domain and properties in any order. In a pattern `*` and `?`
//! stand for characters in the domain and in values, and the item `*` for any further properties.

/// Bytes of a name or pattern. The longest name of HBase has about a hundred.
const NAME_BYTES_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName<'a> {
    domain: &'a str,
    properties: Vec<(&'a str, &'a str)>,
    /// Any further properties are allowed.
    is_open: bool,
}

impl<'a> ObjectName<'a> {
    /// The error is a sentence.
    pub fn parse(text: &'a str) -> Result<ObjectName<'a>, String> {
        if text.len() > NAME_BYTES_MAX {
            return Err(format!("A name of a bean has at most {NAME_BYTES_MAX} bytes."));
        }
        let (domain, rest) = text.split_once(':').ok_or("A name of a bean has a domain and a colon.")?;
        let (mut properties, mut is_open) = (Vec::new(), false);
        for item in rest.split(',') {
            if item == "*" {
                is_open = true;
                continue;
            }
            let (key, value) = item.split_once('=').ok_or("Properties are written as key=value.")?;
            if key.is_empty() || value.is_empty() || properties.iter().any(|(other, _)| *other == key) {
                return Err("Properties have a key, once, and a value.".to_string());
            }
            properties.push((key, value));
        }
        Ok(ObjectName { domain, properties, is_open })
    }

    /// Whether this pattern is one of `name`.
    pub fn matches(&self, name: &ObjectName<'_>) -> bool {
        let count_fits = self.is_open || self.properties.len() == name.properties.len();
        let has = |(key, value): &(&str, &str)| {
            name.properties.iter().any(|(other, of_name)| key == other && is_like(value, of_name))
        };
        count_fits && is_like(self.domain, name.domain) && self.properties.iter().all(has)
    }
}

/// `*`: any characters, `?`: one. Each star is tried at most once for each character of the text.
pub fn is_like(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut in_text) = (0, 0);
    let mut star = None;
    while in_text < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, in_text));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[in_text] => {
                at += 1;
                in_text += 1;
            }
            _ => match &mut star {
                Some((star_at, from)) => {
                    *from += 1;
                    (at, in_text) = (*star_at + 1, *from);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_java() {
        let name = "Hadoop:service=HBase,name=RegionServer,sub=Server";
        for (pattern, expected) in [
            (name, true),
            ("Hadoop:sub=Server,name=RegionServer,service=HBase", true),
            ("*:*", true),
            ("Hadoop:*", true),
            ("Had??p:*", true),
            ("Hadoop:service=HBase,*", true),
            ("Hadoop:service=HBase,name=*,sub=S*r", true),
            ("Hadoop:service=HBase,name=RegionServer", false),
            ("Hadoop:service=HBase,name=Master,*", false),
            ("java.lang:*", false),
            ("Hadoop:service=HBase,name=RegionServer,sub=Server,x=1", false),
        ] {
            let matches = ObjectName::parse(pattern).unwrap().matches(&ObjectName::parse(name).unwrap());
            assert_eq!(matches, expected, "{pattern}");
        }
        for bad in ["", "Hadoop", "Hadoop:", "a:b", "a:=c", "a:b=", "a:b=1,b=2", "a:b=1,", &"x".repeat(2000)]
        {
            assert!(ObjectName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn stars_are_cheap() {
        assert!(is_like("a*b?d*", "axxbbcd") && is_like("*", "") && !is_like("?", ""));
        let (pattern, text) = ("*a".repeat(500) + "b", "a".repeat(100_000));
        assert!(!is_like(&pattern, &text));
    }
}
