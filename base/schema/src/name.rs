//! Names of tables and namespaces.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use halcyon_cell::{Error, Result};
use halcyon_proto::pb;

use crate::layout;

/// `qualifier` in namespace `default`, else `namespace:qualifier`. Always UTF-8. Cheap to clone.
#[derive(Clone)]
pub struct TableName {
    full: Bytes,
    /// Length of the namespace in `full`; `None` for the default namespace, which is not written.
    namespace_len: Option<usize>,
}

impl TableName {
    pub const DEFAULT_NAMESPACE: &'static str = "default";
    pub const SYSTEM_NAMESPACE: &'static str = "hbase";
    /// `hbase:meta`.
    pub const META: TableName = TableName { full: Bytes::from_static(b"hbase:meta"), namespace_len: Some(5) };
    /// `hbase:namespace`, a real table up to HBase 2.x.
    pub const NAMESPACE: TableName =
        TableName { full: Bytes::from_static(b"hbase:namespace"), namespace_len: Some(5) };
    /// `hbase:rsgroup`, which is there with region server groups.
    pub const GROUPS: TableName =
        TableName { full: Bytes::from_static(b"hbase:rsgroup"), namespace_len: Some(5) };
    /// `master:store`, which HBase's master keeps for itself outside the tables' directory.
    pub const MASTER_STORE: TableName =
        TableName { full: Bytes::from_static(b"master:store"), namespace_len: Some(6) };

    /// Reads `q`, `ns:q` or `default:q`. Invalid if a name breaks HBase's rules.
    pub fn parse(name: &[u8]) -> Result<TableName> {
        match name.iter().rposition(|&byte| byte == b':') {
            Some(at) => TableName::new(&name[..at], &name[at + 1..]),
            None => TableName::new(TableName::DEFAULT_NAMESPACE.as_bytes(), name),
        }
    }

    /// Invalid if a name breaks HBase's rules (`TableName.isLegalFullyQualifiedTableName`).
    pub fn new(namespace: &[u8], qualifier: &[u8]) -> Result<TableName> {
        check_namespace_name(namespace)?;
        check_table_qualifier(qualifier)?;
        if namespace == TableName::DEFAULT_NAMESPACE.as_bytes() {
            return Ok(TableName { full: Bytes::copy_from_slice(qualifier), namespace_len: None });
        }
        let full = [namespace, b":", qualifier].concat();
        Ok(TableName { full: Bytes::from(full), namespace_len: Some(namespace.len()) })
    }

    pub fn from_pb(name: &pb::TableName) -> Result<TableName> {
        if name.namespace == TableName::DEFAULT_NAMESPACE {
            check_table_qualifier(&name.qualifier)?;
            return Ok(TableName { full: name.qualifier.clone(), namespace_len: None });
        }
        TableName::new(&name.namespace, &name.qualifier)
    }

    pub fn to_pb(&self) -> pb::TableName {
        pb::TableName { namespace: self.namespace_bytes(), qualifier: self.qualifier_bytes() }
    }

    /// `q` or `ns:q`.
    pub fn full_name(&self) -> &Bytes {
        &self.full
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.full).expect("names are checked to be UTF-8")
    }

    pub fn namespace(&self) -> &str {
        match self.namespace_len {
            Some(len) => &self.as_str()[..len],
            None => TableName::DEFAULT_NAMESPACE,
        }
    }

    pub fn qualifier(&self) -> &str {
        match self.namespace_len {
            Some(len) => &self.as_str()[len + 1..],
            None => self.as_str(),
        }
    }

    pub fn namespace_bytes(&self) -> Bytes {
        match self.namespace_len {
            Some(len) => self.full.slice(..len),
            None => Bytes::from_static(TableName::DEFAULT_NAMESPACE.as_bytes()),
        }
    }

    pub fn qualifier_bytes(&self) -> Bytes {
        match self.namespace_len {
            Some(len) => self.full.slice(len + 1..),
            None => self.full.clone(),
        }
    }

    pub fn is_meta(&self) -> bool {
        *self == TableName::META
    }

    /// Whether the table is in namespace `hbase`.
    pub fn is_system(&self) -> bool {
        self.namespace() == TableName::SYSTEM_NAMESPACE
    }

    /// The table's directory, `data/<namespace>/<qualifier>` under `root`.
    pub fn dir(&self, root: &Path) -> PathBuf {
        layout::table_dir(root, self)
    }
}

impl PartialEq for TableName {
    fn eq(&self, other: &TableName) -> bool {
        self.full == other.full
    }
}

impl Eq for TableName {}

impl Hash for TableName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.full.hash(state);
    }
}

impl PartialOrd for TableName {
    fn partial_cmp(&self, other: &TableName) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TableName {
    fn cmp(&self, other: &TableName) -> Ordering {
        self.full.cmp(&other.full)
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The longest name of a file or directory, in bytes: that of HDFS (`dfs.namenode.fs-limits.max-component-length`) and of the
/// file systems of Linux.
pub const FILE_NAME_LEN_MAX: usize = 255;

/// Invalid if no file or directory can have this name because of its length. `what` it is the name of begins the message.
pub fn check_file_name(what: &str, name: &str) -> Result<()> {
    if name.len() <= FILE_NAME_LEN_MAX {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{what} has a name of {} bytes. A directory has it, too, and names there have {FILE_NAME_LEN_MAX} bytes at most: {}...",
        name.len(),
        shortened(name)
    )))
}

/// As much of a long name as a person needs to know which it is.
fn shortened(name: &str) -> &str {
    const SHOWN: usize = 32;
    let end = (0..=SHOWN.min(name.len())).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    &name[..end]
}

/// A name ZooKeeper keeps for itself, and HBase therefore refuses.
const DISALLOWED_NAME: &str = "zookeeper";

/// Not empty; letters and digits of any language and `_`; not `zookeeper`.
pub fn check_namespace_name(name: &[u8]) -> Result<()> {
    let text = utf8("Namespace", name)?;
    if text.is_empty() {
        return Err(Error::invalid("Namespace name must not be empty"));
    }
    if text == DISALLOWED_NAME {
        return Err(Error::invalid(format!("Tables may not be named '{DISALLOWED_NAME}'")));
    }
    for (at, c) in text.char_indices() {
        if !(c == '_' || is_letter_or_digit(c)) {
            return Err(Error::invalid(format!(
                "Illegal character <{c}> at {at}. A namespace is made of letters, digits and '_': {text}"
            )));
        }
    }
    Ok(())
}

/// Not empty; letters and digits of any language, `_`, `-` and `.`; the last two not in front; not `zookeeper`.
pub fn check_table_qualifier(name: &[u8]) -> Result<()> {
    let text = utf8("Table qualifier", name)?;
    let Some(first) = text.chars().next() else {
        return Err(Error::invalid("Table qualifier must not be empty"));
    };
    if first == '.' || first == '-' {
        return Err(Error::invalid(format!(
            "Illegal first character <{first}> at 0. A table's name starts with a letter, digit or '_': {text}"
        )));
    }
    if text == DISALLOWED_NAME {
        return Err(Error::invalid(format!("Tables may not be named '{DISALLOWED_NAME}'")));
    }
    for (at, c) in text.char_indices() {
        if !(matches!(c, '_' | '-' | '.') || is_letter_or_digit(c)) {
            return Err(Error::invalid(format!(
                "Illegal character code:{}, <{c}> at {at}. A table's name is made of letters, digits, '_', '-' \
                 and '.': {text}",
                u32::from(c)
            )));
        }
    }
    Ok(())
}

fn utf8<'a>(what: &str, name: &'a [u8]) -> Result<&'a str> {
    std::str::from_utf8(name)
        .map_err(|_| Error::invalid(format!("{what} \"{}\" is not UTF-8", name.escape_ascii())))
}

fn is_letter_or_digit(c: char) -> bool {
    c.is_alphabetic() || c.is_numeric()
}

/// A namespace and its configuration (quotas, for one).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceDescriptor {
    pub name: String,
    pub configuration: BTreeMap<String, String>,
}

impl NamespaceDescriptor {
    pub fn new(name: impl Into<String>) -> NamespaceDescriptor {
        NamespaceDescriptor { name: name.into(), configuration: BTreeMap::new() }
    }

    pub fn from_pb(descriptor: &pb::NamespaceDescriptor) -> Result<NamespaceDescriptor> {
        check_namespace_name(&descriptor.name)?;
        Ok(NamespaceDescriptor {
            name: utf8("Namespace", &descriptor.name)?.to_string(),
            configuration: crate::options::configuration_from_pb(&descriptor.configuration),
        })
    }

    pub fn to_pb(&self) -> pb::NamespaceDescriptor {
        pb::NamespaceDescriptor {
            name: Bytes::copy_from_slice(self.name.as_bytes()),
            configuration: crate::options::configuration_to_pb(&self.configuration),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_names() {
        let plain = TableName::parse(b"t1").unwrap();
        assert_eq!((plain.namespace(), plain.qualifier(), plain.as_str()), ("default", "t1", "t1"));
        assert_eq!(TableName::parse(b"default:t1").unwrap(), plain);
        let spaced = TableName::parse(b"ns:t.1-x").unwrap();
        assert_eq!(
            (spaced.namespace(), spaced.qualifier(), &spaced.full_name()[..]),
            ("ns", "t.1-x", &b"ns:t.1-x"[..])
        );
        assert_eq!(TableName::from_pb(&spaced.to_pb()).unwrap(), spaced);
        assert_eq!(TableName::from_pb(&plain.to_pb()).unwrap(), plain);
        assert_eq!(TableName::parse(b"hbase:meta").unwrap(), TableName::META);
        assert!(TableName::META.is_system() && TableName::META.is_meta());
        assert_eq!(spaced.dir(Path::new("/r")), Path::new("/r/data/ns/t.1-x"));
        TableName::parse("größe".as_bytes()).unwrap();
    }

    #[test]
    fn names_that_no_directory_can_have_are_told_by_their_length() {
        check_file_name("Table t", &"ü".repeat(127)).unwrap();
        let error = check_file_name("Table", &"ü".repeat(128)).unwrap_err();
        assert!(error.message().starts_with("Table has a name of 256 bytes."), "{error}");
        assert!(error.message().len() < 250, "{error}");
        assert_eq!(shortened("ab"), "ab");
        assert_eq!(shortened(&format!("{}ü", "a".repeat(31))), "a".repeat(31));
    }

    #[test]
    fn refuses_bad_names() {
        let long = ["", ".t", "-t", "a b", "a/b", "a$b", "zookeeper", ":t", "n-s:t", "n.s:t", "ns:", "a:b:c"];
        for name in long {
            assert!(TableName::parse(name.as_bytes()).is_err(), "{name}");
        }
        assert!(TableName::parse(&[0xff]).is_err());
    }
}
