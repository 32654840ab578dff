//! The name of the table in which HBase's `backup` command keeps what it knows.

use halcyon_contract::BackupTables;
use halcyon_settings::Codec;

pub(crate) struct BackupTable;

impl Codec<BackupTables> for BackupTable {
    fn parse(text: &str) -> Option<BackupTables> {
        BackupTables::new(text).ok()
    }

    fn print(value: &BackupTables) -> Option<String> {
        Some(value.system.to_string())
    }

    fn refused(_: &BackupTables) -> &'static str {
        "is not the name of a table"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tables_come_back() {
        let tables = BackupTable::parse("ops:books").unwrap();
        assert_eq!(
            (tables.bulk.to_string(), BackupTable::print(&tables)),
            ("ops:books_bulk".to_string(), Some("ops:books".to_string()))
        );
        assert_eq!(BackupTable::print(&BackupTables::default()).as_deref(), Some("backup:system"));
        assert!(BackupTable::parse("a b").is_none() && BackupTable::parse("").is_none());
    }
}
