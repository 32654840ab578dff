//! Bytes, keys, times and sizes as text, in HBase's forms.

use halcyon_cell::{CellRef, KeyRef, LATEST_TIMESTAMP, OLDEST_TIMESTAMP, ROW_LEN_MAX};
use serde_json::{Value, json};

/// Printable ASCII as it is, all else as `\xNN` (`Bytes.toStringBinary`).
pub fn binary(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b' '..=b'~' if byte != b'\\' => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\x{byte:02X}")),
        }
    }
    text
}

/// The bytes that `binary` shows so (`Bytes.toBytesBinary`). The error is a sentence.
pub fn parse_row(text: &str) -> Result<Vec<u8>, String> {
    let (mut row, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let escaped = (byte == b'\\').then(|| behind.strip_prefix(b"x")?.split_first_chunk::<2>()).flatten();
        match escaped.and_then(|(hex, left)| Some((parse_hex(hex)?, left))) {
            Some((value, left)) => {
                row.push(value);
                rest = left;
            }
            None => row.push(byte),
        }
    }
    if row.is_empty() || row.len() > ROW_LEN_MAX {
        return Err(format!("a row has 1 to {ROW_LEN_MAX} bytes, \"{text}\" has {}", row.len()));
    }
    Ok(row)
}

fn parse_hex(digits: &[u8; 2]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

pub fn type_name(code: u8) -> &'static str {
    match code {
        0 => "Minimum",
        4 => "Put",
        8 => "Delete",
        10 => "DeleteFamilyVersion",
        12 => "DeleteColumn",
        14 => "DeleteFamily",
        255 => "Maximum",
        _ => "unknown",
    }
}

fn timestamp(ts: i64) -> String {
    match ts {
        LATEST_TIMESTAMP => "LATEST_TIMESTAMP".to_string(),
        OLDEST_TIMESTAMP => "OLDEST_TIMESTAMP".to_string(),
        ts => ts.to_string(),
    }
}

/// `row/family:qualifier/timestamp/type` (`KeyValue.keyToString`).
pub fn key(key: KeyRef<'_>) -> String {
    let colon = if key.family().is_empty() { "" } else { ":" };
    format!(
        "{}/{}{colon}{}/{}/{}",
        binary(key.row()),
        binary(key.family()),
        binary(key.qualifier()),
        timestamp(key.timestamp()),
        type_name(key.type_code())
    )
}

/// As `Tag.toString` within a cell of `HFilePrettyPrinter`.
pub fn tags(cell: CellRef<'_>) -> Vec<String> {
    cell.tag_iter().map(|tag| format!("{}:{}", tag.tag_type, binary(tag.value))).collect()
}

/// The fields of a cell. The value is there only if it was asked for.
pub fn cell_object(cell: CellRef<'_>, with_value: bool) -> Value {
    let mut object = json!({
        "row": binary(cell.row()),
        "family": binary(cell.family()),
        "qualifier": binary(cell.qualifier()),
        "timestamp": cell.timestamp(),
        "type": type_name(cell.type_code()),
        "vlen": cell.value_len(),
        "seqid": cell.seq(),
    });
    if with_value {
        object["value"] = binary(cell.value()).into();
        object["tags"] = tags(cell).into();
    }
    object
}

/// A time of the wall clock in UTC, or the number if it is none.
pub fn time(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |time| time.to_string())
}

/// As Java prints a `Date` in UTC.
pub fn java_date(ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(time) => time.strftime("%a %b %d %H:%M:%S UTC %Y").to_string(),
        Err(_) => ms.to_string(),
    }
}

/// `12.3m` as in HBase's tools; bytes below a kibibyte.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["k", "m", "g", "t", "p"];
    let mut value = bytes as f64;
    let mut unit = "";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit.is_empty() { bytes.to_string() } else { format!("{value:.1}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halcyon_cell::{CellType, Key};

    #[test]
    fn bytes_are_shown_as_hbase_shows_them_and_read_again() {
        let bytes = b"a\\b\x00\xff ~/%";
        assert_eq!(binary(bytes), "a\\x5Cb\\x00\\xFF ~/%");
        assert_eq!(parse_row(&binary(bytes)).unwrap(), bytes);
        assert_eq!(parse_row("\\x").unwrap(), b"\\x");
        assert_eq!(parse_row("\\xg0\\x4").unwrap(), b"\\xg0\\x4");
        assert!(parse_row("").is_err() && parse_row(&"r".repeat(40_000)).is_err());
    }

    #[test]
    fn keys_are_shown_as_hbase_shows_them() {
        let shown = |family: &[u8], ts, kind| key(Key::new(b"r\x01", family, b"q", ts, kind).get());
        assert_eq!(shown(b"f", 5, CellType::Put), "r\\x01/f:q/5/Put");
        assert_eq!(shown(b"", i64::MAX, CellType::Maximum), "r\\x01/q/LATEST_TIMESTAMP/Maximum");
        assert_eq!(shown(b"f", i64::MIN, CellType::Minimum), "r\\x01/f:q/OLDEST_TIMESTAMP/Minimum");
    }

    #[test]
    fn sizes_and_times() {
        assert_eq!((size(1023), size(1536), size(5 << 30)), ("1023".into(), "1.5k".into(), "5.0g".into()));
        assert_eq!(java_date(1_700_000_000_000), "Tue Nov 14 22:13:20 UTC 2023");
        assert_eq!(time(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(time(i64::MIN), i64::MIN.to_string());
    }
}
