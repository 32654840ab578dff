//! Names of store files, and where the HFiles are that they stand for.
//!
//! ```text
//! <hfile>                                             an HFile of the region
//! <hfile>.<parent>                                    a reference to one of the parent
//! [<namespace>=]<table>=<region>-<hfile>              a link to one of any region; the file itself is empty
//! [<namespace>=]<table>=<region>-<hfile>.<parent>     a reference to one that the parent has a link to
//! ```
//!
//! HBase makes links when it clones a snapshot, and when all rows of a file belong to one daughter of a split. It archives
//! the HFile whenever its own region no longer needs it, and keeps it in the archive as long as the link is in its
//! store. So a link is archived like a store file when its cells are in another one, and its HFile stays where it is: the
//! master's `HFileLinkCleaner` finds that the link is gone, and removes the back reference and the HFile.

use std::path::{Path, PathBuf};

use halcyon_cell::SeqId;
use halcyon_schema::{TableName, layout};

/// Between the name of a bulk-loaded file and its sequence id.
const SEQ_ID: &str = "_SeqId_";

/// The name of a store file, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreFileName<'a> {
    /// The HFile.
    pub hfile: &'a str,
    /// The table and the encoded region that the HFile belongs to, if the name is a link's or a reference's to a link.
    pub link: Option<(TableName, &'a str)>,
    /// The encoded name of the region that the HFile or the link belongs to, if the name is a reference's.
    pub parent: Option<&'a str>,
}

impl<'a> StoreFileName<'a> {
    /// `None` for any other name.
    pub fn parse(name: &'a str) -> Option<StoreFileName<'a>> {
        let (name, parent) = match layout::parse_reference_name(name) {
            Some((name, parent)) => (name, Some(parent)),
            None => (name, None),
        };
        if is_hfile_name(name) {
            return Some(StoreFileName { hfile: name, link: None, parent });
        }
        let (table, region, hfile) = layout::parse_link_name(name)?;
        (is_hex(region) && is_hfile_name(hfile)).then_some(StoreFileName {
            hfile,
            link: Some((table, region)),
            parent,
        })
    }

    pub fn is_own_hfile(&self) -> bool {
        self.link.is_none() && self.parent.is_none()
    }

    /// Where the HFile of a link or reference may be. `table` is that of the region which has the link or reference. HBase
    /// moves an HFile from each of these places to the next ones only, beginning with `.tmp`.
    pub fn places(&self, root: &Path, table: &TableName, family: &str) -> Vec<PathBuf> {
        let (table, region, is_link) = match (&self.link, self.parent) {
            (Some((table, region)), _) => (table, *region, true),
            (None, Some(parent)) => (table, parent, false),
            (None, None) => return Vec::new(),
        };
        let below = |root: &Path| layout::region_dir(root, table, region).join(family).join(self.hfile);
        let mut places = vec![below(root), below(&layout::archive_dir(root))];
        if is_link {
            places.insert(1, below(&layout::tmp_dir(root))); // a table that is being made of a snapshot
        }
        places
    }
}

/// The sequence id in the name of a bulk-loaded file: `<32 hex>_SeqId_<n>_`.
pub fn seq_in_name(name: &str) -> Option<SeqId> {
    name.split_once(SEQ_ID)?.1.strip_suffix('_')?.parse().ok().map(SeqId::new)
}

/// A name for a bulk-loaded file with this sequence id (HBase: `StoreFileInfo.formatBulkloadSeqId`).
pub(crate) fn bulk_file_name(seq: SeqId) -> String {
    format!("{}{SEQ_ID}{seq}_", crate::place::random_name())
}

/// Whether a name in a family directory is an HFile's or a reference's to one. Links are apart: they are empty.
pub fn is_store_file_name(name: &str) -> bool {
    StoreFileName::parse(name).is_some_and(|name| name.link.is_none())
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn is_hfile_name(name: &str) -> bool {
    let hex = name.find(SEQ_ID).map_or(name, |at| &name[..at]);
    is_hex(hex) && (hex.len() == name.len() || seq_in_name(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "2140f686c386930b96c060b1030c2875";

    fn table(name: &str) -> TableName {
        TableName::parse(name.as_bytes()).unwrap()
    }

    #[test]
    fn names_of_store_files() {
        assert!(is_store_file_name("0123456789abcdef0123456789abcdef"));
        assert!(is_store_file_name("0123456789abcdef0123456789abcdef_SeqId_42_"));
        assert!(is_store_file_name("0123456789abcdef0123456789abcdef.2140f686c386930b96c060b1030c2875"));
        assert!(is_store_file_name("01_SeqId_42_.2140f686c386930b96c060b1030c2875"));
        assert!(!is_store_file_name(".tmp"));
        assert!(!is_store_file_name("0123.parent"));
        assert!(!is_store_file_name("t=0f-1a"), "a link is no HFile");
        assert_eq!(seq_in_name("ab_SeqId_42_"), Some(SeqId::new(42)));
    }

    #[test]
    fn links_and_references_to_them() {
        let link = |table_name: &str, hfile, parent| {
            Some(StoreFileName { hfile, link: Some((table(table_name), "0f")), parent })
        };
        assert_eq!(StoreFileName::parse("a.b-c=0f-1a"), link("a.b-c", "1a", None));
        assert_eq!(StoreFileName::parse("ns=t=0f-1a_SeqId_7_"), link("ns:t", "1a_SeqId_7_", None));
        let reference = format!("ns=t=0f-1a.{PARENT}");
        assert_eq!(StoreFileName::parse(&reference), link("ns:t", "1a", Some(PARENT)));
    }

    #[test]
    fn garbage_is_no_store_file() {
        let long = format!("t=0f-1a.{PARENT}.{PARENT}");
        let names = [
            "",
            "=",
            "=-",
            "t=0f",
            "t=-1a",
            "t=0f-",
            "=0f-1a",
            "t=0F-1a",
            "t=0f-1A",
            "t=0f-1a.parent",
            "a=b=c=0f-1a",
            "..=0f-1a",
            "..=t=0f-1a",
            ".=.=0f-1a",
            "t=0f-1a_SeqId_",
            "t=0f-1a_SeqId_x_",
            "t=0f-1a_SeqId_7_8",
            "t=0f-1a_del",
            "t=0f-..",
            "0f-1a",
            ".links-1a",
            &long,
        ];
        for name in names {
            assert_eq!(StoreFileName::parse(name), None, "{name:?}");
        }
    }

    #[test]
    fn places_in_the_order_in_which_they_are_looked_at() {
        let places = |name: &str| {
            let found = StoreFileName::parse(name).unwrap().places(Path::new("/r"), &table("n:own"), "f");
            found.into_iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert!(places("1a").is_empty());
        let of_link = ["/r/data/ns/t/0f/f/1a", "/r/.tmp/data/ns/t/0f/f/1a", "/r/archive/data/ns/t/0f/f/1a"];
        assert_eq!(places("ns=t=0f-1a"), of_link);
        assert_eq!(places(&format!("ns=t=0f-1a.{PARENT}")), of_link);
        let own = [format!("/r/data/n/own/{PARENT}/f/1a"), format!("/r/archive/data/n/own/{PARENT}/f/1a")];
        assert_eq!(places(&format!("1a.{PARENT}")), own);
    }
}
