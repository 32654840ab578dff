//! Output: text for people, or JSON with one object a line.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, TableStyle};
use halcyon_client::{Cell, CellType};
use jiff::Timestamp;
use serde_json::{Value as Json, json};

/// Narrowest terminal that output is wrapped for.
const WIDTH_MIN: usize = 40;
/// Width of the first column of cells, where nothing is wrapped.
const FIRST_COLUMN_CHARS: usize = 20;

/// Where output goes, and how it looks.
pub(crate) struct Printer {
    out: Box<dyn Write + Send>,
    is_terminal: bool,
    /// Columns of the terminal; `None` if output goes elsewhere and is not wrapped.
    width: Option<usize>,
    is_json: bool,
}

impl Printer {
    /// Standard output.
    pub(crate) fn stdout(is_json: bool) -> Printer {
        let is_terminal = io::stdout().is_terminal();
        // a person sees each line as it comes; files and pipes get large writes
        let out: Box<dyn Write + Send> = match is_terminal {
            true => Box::new(io::stdout()),
            false => Box::new(io::BufWriter::new(io::stdout())),
        };
        Printer { out, is_terminal, width: None, is_json }
    }

    /// Output that nobody sees.
    #[cfg(test)]
    pub(crate) fn nowhere(is_json: bool) -> Printer {
        Printer { out: Box::new(io::sink()), is_terminal: false, width: None, is_json }
    }

    /// Asks the terminal for its width, which changes when its window does.
    pub(crate) fn begin_command(&mut self) {
        let size = self.is_terminal.then(|| rustix::termios::tcgetwinsize(io::stdout()).ok()).flatten();
        self.width = size.map(|size| usize::from(size.ws_col)).filter(|width| *width >= WIDTH_MIN);
    }

    pub(crate) fn is_json(&self) -> bool {
        self.is_json
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// A line of text that JSON leaves out.
    pub(crate) fn note(&mut self, text: impl std::fmt::Display) -> io::Result<()> {
        match self.is_json {
            true => Ok(()),
            false => writeln!(self.out, "{text}"),
        }
    }

    /// One value: as text, and as an object with one name.
    pub(crate) fn value(&mut self, name: &str, value: impl Into<Json>) -> io::Result<()> {
        let value = value.into();
        match (self.is_json, &value) {
            (true, value) => writeln!(self.out, "{}", json!({ name: value })),
            (false, Json::String(text)) => writeln!(self.out, "{text}"),
            (false, value) => writeln!(self.out, "{value}"),
        }
    }

    /// An object that is printed only as JSON.
    pub(crate) fn object(&mut self, object: &Json) -> io::Result<()> {
        match self.is_json {
            true => writeln!(self.out, "{object}"),
            false => Ok(()),
        }
    }

    /// Rows with named columns.
    pub(crate) fn table(&mut self, columns: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
        if self.is_json {
            for row in rows {
                let pairs = columns.iter().zip(row);
                let object: serde_json::Map<String, Json> =
                    pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.clone().into())).collect();
                writeln!(self.out, "{}", Json::Object(object))?;
            }
            return Ok(());
        }
        let mut table = Table::new();
        table.load_style(TableStyle::new()).set_header(columns).add_rows(rows);
        if let Some(width) = self.width {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        for line in table.lines() {
            writeln!(self.out, "{}", line.trim_end())?;
        }
        self.note(rows_text(rows.len()))
    }

    /// The head of cells.
    pub(crate) fn cells_head(&mut self, left: &str, right: &str) -> io::Result<()> {
        match self.is_json {
            true => Ok(()),
            false => {
                let left_width = self.left_width();
                writeln!(self.out, "{left:<left_width$} {right}")
            }
        }
    }

    fn left_width(&self) -> usize {
        self.width.map_or(FIRST_COLUMN_CHARS, |width| (width / 4).max(FIRST_COLUMN_CHARS / 2))
    }

    /// Two columns, wrapped in a terminal.
    pub(crate) fn cell_line(&mut self, left: &str, right: &str) -> io::Result<()> {
        let left_width = self.left_width();
        let Some(width) = self.width else {
            return writeln!(self.out, "{left:<left_width$} {right}");
        };
        let left: Vec<String> = chunks(left, left_width - 1);
        let right: Vec<String> = chunks(right, width - left_width - 1);
        for at in 0..left.len().max(right.len()) {
            let empty = String::new();
            let (left, right) = (left.get(at).unwrap_or(&empty), right.get(at).unwrap_or(&empty));
            writeln!(self.out, "{}", format!("{left:<left_width$} {right}").trim_end())?;
        }
        Ok(())
    }
}

/// Pieces of so many characters; at least one.
fn chunks(text: &str, width: usize) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    match characters.is_empty() {
        true => vec![String::new()],
        false => characters.chunks(width).map(|piece| piece.iter().collect()).collect(),
    }
}

/// `1 row(s)`, as HBase's shell says and scripts look for.
pub(crate) fn rows_text(count: usize) -> String {
    format!("{count} row(s)")
}

/// Bytes as HBase prints them (`Bytes.toStringBinary`): printable ASCII but the backslash, and `\xHH`.
pub(crate) fn binary(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\\' => text.push_str("\\x5C"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "\\x{byte:02X}");
            }
        }
    }
    text
}

/// A time in milliseconds since 1970, as HBase's shell prints timestamps of cells; numbers that are no time stay numbers.
pub(crate) fn time(timestamp_ms: i64) -> String {
    match Timestamp::from_millisecond(timestamp_ms) {
        Ok(time) => time.strftime("%Y-%m-%dT%H:%M:%S%.3f").to_string(),
        Err(_) => timestamp_ms.to_string(),
    }
}

/// `value=v`, or what a delete marker deletes.
pub(crate) fn cell_text(cell: &Cell, value: &str) -> String {
    let time = time(cell.timestamp());
    match cell.cell_type() {
        CellType::Put => format!("timestamp={time}, value={value}"),
        kind => format!("timestamp={time}, type={kind:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_printed_as_hbase_prints_them() {
        assert_eq!(binary(b"a b\\\x00\xff~"), "a b\\x5C\\x00\\xFF~");
        assert_eq!(binary("é".as_bytes()), "\\xC3\\xA9");
    }

    #[test]
    fn times_are_in_utc() {
        assert_eq!(time(0), "1970-01-01T00:00:00.000");
        assert_eq!(time(1_700_000_000_123), "2023-11-14T22:13:20.123");
        assert_eq!(time(i64::MAX), i64::MAX.to_string());
    }

    #[test]
    fn long_text_is_cut_into_pieces() {
        assert_eq!(chunks("abcdefg", 3), ["abc", "def", "g"]);
        assert_eq!(chunks("", 3), [""]);
    }
}
