//! What an import remembers between runs: one JSON file, replaced as a whole.

use std::path::{Path, PathBuf};

use halcyon_env::Env;
use serde::{Deserialize, Serialize};

use crate::sum::Sum;

/// The form of the file.
pub(crate) const FORMAT: u32 = 1;

/// How far an import is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Phase {
    /// The sources are checked; the table is being made.
    Checked,
    /// Entries are being written.
    Copying,
    /// All are written; they are being compared.
    Comparing,
    /// The table has what the source has.
    Ended,
}

/// A range of rows, as HBase has ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Range {
    /// Its first row; empty: the table's first.
    #[serde(with = "hex")]
    pub(crate) start: Vec<u8>,
    /// The first row behind it; empty: the table's end.
    #[serde(with = "hex")]
    pub(crate) end: Vec<u8>,
    pub(crate) tablet: usize,
    /// What the source has; of a scan only once it was copied.
    pub(crate) sum: Option<Sum>,
    pub(crate) is_copied: bool,
}

/// A file as it was when it was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileOfState {
    pub(crate) path: String,
    pub(crate) len: u64,
}

/// See the head of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) format: u32,
    /// The options that say what is imported and how. A run with others is another import.
    pub(crate) options: Vec<String>,
    pub(crate) phase: Phase,
    pub(crate) files: Vec<FileOfState>,
    /// The highest number of versions of a column.
    pub(crate) versions: u64,
    pub(crate) splits: Vec<String>,
    pub(crate) ranges: Vec<Range>,
}

impl State {
    pub(crate) fn total(&self) -> Sum {
        let mut total = Sum::default();
        self.ranges.iter().filter_map(|range| range.sum.as_ref()).for_each(|sum| total.add(sum));
        total
    }
}

/// The file, locked for this process.
pub(crate) struct StateFile {
    env: Env,
    path: PathBuf,
    _lock: Box<dyn halcyon_env::FileLock>,
}

impl StateFile {
    /// Locks the file. The error is a sentence for the user.
    pub(crate) fn open(env: &Env, path: &Path) -> Result<StateFile, String> {
        let lock_path = path.with_extension("lock");
        let lock = env.local.lock(&lock_path).map_err(|error| {
            format!("another run may have this import: cannot lock {}: {error}", lock_path.display())
        })?;
        Ok(StateFile { env: env.clone(), path: path.to_path_buf(), _lock: lock })
    }

    /// What the last run has left; `None` if there was none.
    pub(crate) fn load(&self) -> Result<Option<State>, String> {
        let path = self.path.display();
        let exists = self.env.local.exists(&self.path).map_err(|error| format!("{path}: {error}"))?;
        if !exists {
            return Ok(None);
        }
        let bytes = self.env.local.read(&self.path).map_err(|error| format!("{path}: {error}"))?;
        let state: State = serde_json::from_slice(&bytes).map_err(|error| {
            format!("{path} is no state of an import ({error}): name another one by --state")
        })?;
        if state.format != FORMAT {
            return Err(format!("{path} has format {}; this program knows {FORMAT}", state.format));
        }
        Ok(Some(state))
    }

    pub(crate) fn save(&self, state: &State) -> Result<(), String> {
        let mut text = serde_json::to_vec_pretty(state).expect("it has no maps with other keys than text");
        text.push(b'\n');
        let saved = self.env.local.replace(&self.path, &text);
        saved.map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

/// Bytes as text.
pub(crate) mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn text(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn bytes(text: &str) -> Option<Vec<u8>> {
        let digit = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        (0..text.len()).step_by(2).map(digit).collect()
    }

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        bytes(&text).ok_or_else(|| D::Error::custom(format!("'{text}' is no row key")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let dir = std::env::temp_dir().join(format!("halcyon-import-state-{}", std::process::id()));
        let env = Env::real();
        env.local.create_dir_all(&dir).unwrap();
        let file = StateFile::open(&env, &dir.join("i.json")).unwrap();
        assert!(file.load().unwrap().is_none());
        assert!(StateFile::open(&env, &dir.join("i.json")).is_err_and(|error| error.contains("another run")));
        let mut sum = Sum::default();
        sum.add_cell(&halcyon_client::Cell::put(b"r", b"f", b"q", 1, b"v"));
        let range =
            Range { start: vec![0, 0xff], end: Vec::new(), tablet: 3, sum: Some(sum), is_copied: true };
        let state = State {
            format: FORMAT,
            options: vec!["a".to_string()],
            phase: Phase::Copying,
            files: vec![FileOfState { path: "/a".to_string(), len: 7 }],
            versions: 2,
            splits: vec!["00".to_string()],
            ranges: vec![range],
        };
        file.save(&state).unwrap();
        assert_eq!(format!("{:?}", file.load().unwrap().unwrap()), format!("{state:?}"));
        file.save(&State { format: 9, ..state }).unwrap();
        assert!(file.load().unwrap_err().contains("format 9"));
        env.local.replace(&dir.join("i.json"), b"{}").unwrap();
        assert!(file.load().unwrap_err().contains("--state"));
        env.local.remove_dir_all(&dir).unwrap();
    }
}
