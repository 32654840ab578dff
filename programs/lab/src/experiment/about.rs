//! What an experiment is about.

use crate::outcome::Source;

/// In words.
#[derive(Debug, Clone, Copy)]
pub struct About {
    pub title: &'static str,
    pub question: &'static str,
    /// Title and address of what is repeated.
    pub sources: &'static [(&'static str, &'static str)],
    pub not_comparable: &'static [&'static str],
}

impl About {
    pub fn sources(&self) -> Vec<Source> {
        let source = |(title, address): &(&str, &str)| Source {
            title: title.to_string(),
            address: address.to_string(),
        };
        self.sources.iter().map(source).collect()
    }
}
