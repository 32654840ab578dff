//! Where entries come from: files or a running instance.

use crate::export::TableConfig;
use crate::files::FileSource;
use crate::live::LiveSource;
use crate::merge::{Entries, ReadError};
use crate::state::Range;

pub(crate) enum Source {
    Files(FileSource),
    Live(LiveSource),
}

impl Source {
    /// The entries of a range. Blocks its caller, as reading them does.
    pub(crate) fn entries(&self, range: &Range) -> Result<Box<dyn Entries>, ReadError> {
        Ok(match self {
            Source::Files(source) => Box::new(source.entries(range)?),
            Source::Live(source) => Box::new(source.entries(range)?),
        })
    }

    pub(crate) fn config(&self) -> &TableConfig {
        match self {
            Source::Files(source) => &source.config,
            Source::Live(source) => &source.config,
        }
    }

    /// An error with the file that it is about.
    pub(crate) fn shown(&self, error: &ReadError) -> String {
        match (self, error.file) {
            (Source::Files(source), Some(file)) => format!("{}: {error}", source.files[file].shown()),
            _ => error.to_string(),
        }
    }
}
