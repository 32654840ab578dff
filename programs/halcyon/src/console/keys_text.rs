//! Keys as text. Pages show keys only in this form, and never values.

use std::fmt::Write;

/// Bytes of a key that are shown.
const KEY_BYTES_MAX: usize = 64;

/// Printable ASCII as it is, the rest as `\xFF`, as HBase's shell prints keys. A long key ends with an ellipsis.
pub fn key_text(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len().min(KEY_BYTES_MAX));
    for byte in key.iter().take(KEY_BYTES_MAX) {
        match byte {
            b'\\' => text.push_str("\\x5C"),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => write!(text, "\\x{byte:02X}").expect("a string takes every character"),
        }
    }
    if key.len() > KEY_BYTES_MAX {
        text.push('…');
    }
    text
}

#[cfg(test)]
#[test]
fn keys_are_escaped_and_cut() {
    assert_eq!(key_text(b"row-1\x00\xff\\<"), "row-1\\x00\\xFF\\x5C<");
    assert_eq!(key_text(&[b'a'; 65]), format!("{}…", "a".repeat(64)));
}
