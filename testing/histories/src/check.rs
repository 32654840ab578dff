//! Files of histories in, reports out.

use std::path::Path;

use crate::history::{History, Kind};
use crate::limits::Limits;
use crate::report::Report;
use crate::{lists, registers, rows, text, versions};

/// Reads files and checks them. Histories of the same kind and table are of the same rows, and are checked together. The
/// error is a sentence that names the file.
pub fn check_files<P: AsRef<Path>>(
    paths: impl IntoIterator<Item = P>,
    limits: &Limits,
) -> Result<Vec<(History, Report)>, String> {
    let mut histories = Vec::new();
    for path in paths {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let text = String::from_utf8(bytes).map_err(|_| format!("{}: this is not text", path.display()))?;
        histories.push(text::read(&path.display().to_string(), &text)?);
    }
    check_histories(histories, limits)
}

/// As [`check_files`], for histories that were read.
pub fn check_histories(histories: Vec<History>, limits: &Limits) -> Result<Vec<(History, Report)>, String> {
    let mut merged: Vec<History> = Vec::new();
    for history in histories {
        match merged.iter_mut().find(|other| other.is_of_same_rows(&history)) {
            Some(other) => other.merge(history)?,
            None => merged.push(history),
        }
    }
    let mut results = Vec::new();
    for history in merged {
        history.validate()?;
        let report = check(&history, limits);
        results.push((history, report));
    }
    Ok(results)
}

/// Checks one valid history.
pub fn check(history: &History, limits: &Limits) -> Report {
    match history.kind {
        Kind::Lists => lists::check(history),
        Kind::Registers => registers::check(history, limits),
        Kind::Rows => rows::check(history, limits),
        Kind::Versions => versions::check(history, limits),
    }
}
