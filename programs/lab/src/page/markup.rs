//! Markup that is well-formed by how it is made: elements close where their closure ends, and whatever is not written in
//! this program's source is escaped.
//!
//! The same text is HTML and XML, so that an XML reader can check it in tests.

use std::fmt::{Display, Write};

/// An attribute's name and value; the value is escaped.
pub type Attribute<'a> = (&'static str, &'a dyn Display);

#[derive(Debug, Default)]
pub struct Markup {
    text: String,
}

impl Markup {
    pub fn new() -> Markup {
        Markup::default()
    }

    pub fn into_string(self) -> String {
        self.text
    }

    /// As it is: only for what stands in this program.
    pub fn raw(&mut self, text: &'static str) {
        self.text.push_str(text);
    }

    pub fn text(&mut self, text: &str) {
        escape(text, &mut self.text);
    }

    /// An element with text.
    pub fn element(&mut self, name: &'static str, attributes: &[Attribute<'_>], text: &str) {
        self.within(name, attributes, |inner| inner.text(text));
    }

    /// An element that is always empty, as `meta` and `br` are.
    pub fn void(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        self.tag(name, attributes);
        self.text.push_str("/>");
    }

    /// An element and what `inside` puts into it.
    pub fn within(
        &mut self,
        name: &'static str,
        attributes: &[Attribute<'_>],
        inside: impl FnOnce(&mut Markup),
    ) {
        self.tag(name, attributes);
        self.text.push('>');
        inside(self);
        write!(self.text, "</{name}>").expect("a string takes everything");
        if matches!(
            name,
            "p" | "section" | "figure" | "tr" | "h2" | "h3" | "li" | "div" | "table" | "details"
        ) {
            self.text.push('\n');
        }
    }

    fn tag(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        write!(self.text, "<{name}").expect("a string takes everything");
        for (name, value) in attributes {
            write!(self.text, " {name}=\"").expect("a string takes everything");
            escape(&value.to_string(), &mut self.text);
            self.text.push('"');
        }
    }
}

/// What would be read as markup becomes a reference. Control characters, which XML does not know at all, and those that turn
/// the direction of what follows, which could make a text look like another, become the replacement character.
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}' => {
                out.push('\u{fffd}')
            }
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_is_text() {
        let mut page = Markup::new();
        page.within("p", &[("title", &"\"><script>alert('1')</script>")], |p| {
            p.text("a & b < c > d\u{0}\u{202e}\u{b}é");
        });
        let expected = "<p title=\"&quot;&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;\">\
                        a &amp; b &lt; c &gt; d\u{fffd}\u{fffd}\u{fffd}é</p>\n";
        assert_eq!(page.into_string(), expected);
    }
}
