//! The file of a history while it is recorded.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use parking_lot::Mutex;

use crate::history::{History, Operation};
use crate::text;

/// Where all processes write. The line `end` shows that nothing is missing.
pub struct Output {
    path: String,
    open: Mutex<Open>,
}

struct Open {
    file: BufWriter<File>,
    rows: BTreeSet<String>,
    count: u64,
    unknown: u64,
}

impl Output {
    /// The errors of all methods are sentences that name the file.
    pub fn create(path: &Path, head: &History) -> Result<Output, String> {
        let path_text = path.display().to_string();
        let file = File::create(path).map_err(|error| format!("{path_text}: {error}"))?;
        let mut file = BufWriter::new(file);
        file.write_all(text::head(head).as_bytes()).map_err(|error| format!("{path_text}: {error}"))?;
        let open = Open { file, rows: BTreeSet::new(), count: 0, unknown: 0 };
        Ok(Output { path: path_text, open: Mutex::new(open) })
    }

    pub fn write(&self, operations: &[Operation]) -> Result<(), String> {
        let mut open = self.open.lock();
        for one in operations {
            writeln!(open.file, "{}", text::line(one)).map_err(|error| format!("{}: {error}", self.path))?;
            open.count += 1;
            open.unknown += u64::from(one.is_unknown());
            if !open.rows.contains(&*one.row) {
                open.rows.insert(one.row.to_string());
            }
        }
        Ok(())
    }

    /// The rows of all operations so far.
    pub fn rows(&self) -> Vec<String> {
        self.open.lock().rows.iter().cloned().collect()
    }

    /// Ends the file. Returns how many operations it has, and how many of them have no answer.
    pub fn finish(&self) -> Result<(u64, u64), String> {
        let mut open = self.open.lock();
        let count = open.count;
        let ended = writeln!(open.file, "end {count}").and_then(|()| open.file.flush());
        ended.map_err(|error| format!("{}: {error}", self.path))?;
        Ok((count, open.unknown))
    }
}
