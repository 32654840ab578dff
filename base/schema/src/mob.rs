//! Medium-sized objects (MOB): values that stand in files of their own, and how store files refer to these.
//!
//! ```text
//! mobdir/data/<namespace>/<table>/<encoded mob region>/<family>/<mob file>     one region for all mob files of a table
//! mob file       = md5 hex of the start key | yyyyMMdd | 32 hex | _ | encoded region that wrote it
//! reference cell = key of the cell | int32 length of its value | name of the mob file | tags: MOB reference, table name, its own
//! MOB_FILE_REFS  = <table>/<file>,<file>//<table>/<file>     file info of a store file; one zero byte: it refers to none
//! ```
//!
//! Checked against HBase's `MobUtils`, `MobFileName`, `MobConstants` and `HStoreFile`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use halcyon_cell::{Cell, CellRef, CellType, Error, Result, TagType, append_tag};
use md5::{Digest, Md5};

use crate::{RegionInfo, TableName, parse_region_name};

/// File info of a mob file: how many cells it has, an int64.
pub const MOB_CELLS_COUNT: &str = "MOB_CELLS_COUNT";
/// File info of a store file: the mob files that it refers to, see [`MobFileRefs`].
pub const MOB_FILE_REFS: &str = "MOB_FILE_REFS";
/// File info of a bulk-loaded file: the task that wrote it (`HStoreFile.BULKLOAD_TASK_KEY`).
pub const BULK_LOAD_TASK: &str = "BULKLOAD_SOURCE_TASK";

/// Start key of the region that stands for all mob files of a table.
const START_KEY: &[u8] = b".mob";
/// Digits of the start key's MD5, of the date, and of the random part of a mob file's name.
const MD5_LEN: usize = 32;
const DATE_END: usize = MD5_LEN + 8;
const RANDOM_END: usize = DATE_END + 32;
/// What a store file without references has for [`MOB_FILE_REFS`] (`HStoreFile.NULL_VALUE`).
const NO_REFS: &[u8] = &[0];
/// The int32 in front of the name in a reference cell's value.
const LEN_BYTES: usize = 4;

impl RegionInfo {
    /// The region under which the mob files of a table stand. No server has it open, and `hbase:meta` does not know it.
    pub fn of_mob_files(table: &TableName) -> RegionInfo {
        RegionInfo::new(table.clone(), Bytes::from_static(START_KEY), Bytes::new(), 0)
    }

    /// The table whose mob files stand under the region of this name; `None`: it is another region. `hbase:meta` has no mob files, and
    /// its name is that of its one region, whatever the start key (checked against `MobUtils.isMobRegionName`).
    pub fn table_of_mob_files(region_name: &Bytes) -> Result<Option<TableName>> {
        let table = parse_region_name(region_name)?.table;
        let is_mob = !table.is_meta() && RegionInfo::of_mob_files(&table).region_name() == region_name;
        Ok(is_mob.then_some(table))
    }

    /// Whether this is the region of its table's mob files.
    pub fn is_of_mob_files(&self) -> bool {
        self.start_key() == START_KEY && self.region_id() == 0 && self.replica_id() == 0
    }
}

/// The name of a mob file, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MobFileName<'a> {
    /// Newest timestamp of its cells, as a date where the server stood: 20261126.
    pub day: u32,
    /// The encoded name of the region that wrote it; empty in files of HBase before 2.5.
    pub region: &'a str,
}

impl<'a> MobFileName<'a> {
    /// `None` for any other name.
    pub fn parse(name: &'a str) -> Option<MobFileName<'a>> {
        let (hex, region) = name.split_once('_').unwrap_or((name, ""));
        let is_region = region.is_empty() == (hex.len() == name.len()) && is_hex_or_empty(region);
        if hex.len() != RANDOM_END || !is_hex_or_empty(hex) || !is_region {
            return None;
        }
        Some(MobFileName { day: hex[MD5_LEN..DATE_END].parse().ok()?, region })
    }

    /// A name for a new mob file of a region that begins with `start_key`. `random`: 32 hex digits.
    pub fn make(start_key: &[u8], day: u32, random: &str, region: &str) -> String {
        assert!(random.len() == RANDOM_END - DATE_END && day <= 99_991_231, "{random}, {day}");
        let mut name: String = Md5::digest(start_key).iter().map(|byte| format!("{byte:02x}")).collect();
        name.push_str(&format!("{day:08}{random}_{region}"));
        name
    }
}

fn is_hex_or_empty(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// The tags that stand first in each reference cell of a table's store files.
pub fn mob_reference_tags(table: &TableName) -> Vec<u8> {
    let mut tags = Vec::new();
    append_tag(&mut tags, TagType::MOB_REFERENCE, b"");
    append_tag(&mut tags, TagType::MOB_TABLE_NAME, table.full_name());
    tags
}

/// The cell that stands in a store file for `cell`, whose value is in the mob file `file`. `tags` are those of
/// [`mob_reference_tags`].
pub fn mob_reference_of(cell: CellRef<'_>, file: &str, tags: &[u8]) -> Result<Cell> {
    let mut value = Vec::with_capacity(LEN_BYTES + file.len());
    value.extend_from_slice(&(cell.value_len() as u32).to_be_bytes());
    value.extend_from_slice(file.as_bytes());
    let tags = [tags, cell.tags()].concat();
    Cell::check_parts(cell.row(), cell.family(), &tags)?;
    let (row, family, qualifier) = (cell.row(), cell.family(), cell.qualifier());
    let reference =
        Cell::build(row, family, qualifier, cell.timestamp(), CellType::Put, &value, &tags, cell.seq());
    debug_assert!(is_mob_reference(reference.get()), "who reads it has to know it for one");
    Ok(reference)
}

/// Whether the value of the cell stands in a mob file.
#[inline]
pub fn is_mob_reference(cell: CellRef<'_>) -> bool {
    cell.tag_iter().any(|tag| tag.tag_type == TagType::MOB_REFERENCE)
}

/// Where the value of a cell stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MobReference<'a> {
    /// The table whose mob file it is: that which the cell was first flushed in, which need not be that which has it now.
    pub table: TableName,
    pub file: &'a str,
    pub value_len: u32,
}

impl<'a> MobReference<'a> {
    /// Of a cell with the tag of a reference. `Corrupt` if it lacks the table's name, or its value is no length and name.
    pub fn of(cell: CellRef<'a>) -> Result<MobReference<'a>> {
        let wrong = |what: &str| Error::corrupt(format!("MOB reference {cell:?}: {what}"));
        let tag = cell.tag_iter().find(|tag| tag.tag_type == TagType::MOB_TABLE_NAME);
        let table = tag.ok_or_else(|| wrong("expected a tag with the name of its table, found none"))?.value;
        let table = TableName::parse(table).map_err(|error| wrong(error.message()))?;
        let Some((len, file)) = cell.value().split_first_chunk::<LEN_BYTES>() else {
            return Err(wrong("expected a length and the name of a file as its value"));
        };
        let file = std::str::from_utf8(file).ok().filter(|file| is_file_name(file));
        let file = file.ok_or_else(|| wrong("its value names no file"))?;
        Ok(MobReference { table, file, value_len: u32::from_be_bytes(*len) })
    }
}

/// A name that leads nowhere else when a path is made of it.
fn is_file_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0', ','])
}

/// The mob files that a store file refers to, by the table whose they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MobFileRefs(BTreeMap<TableName, BTreeSet<String>>);

impl MobFileRefs {
    pub fn add(&mut self, table: &TableName, file: &str) {
        if !self.contains(table, file) {
            self.0.entry(table.clone()).or_default().insert(file.to_string());
        }
    }

    pub fn contains(&self, table: &TableName, file: &str) -> bool {
        self.0.get(table).is_some_and(|files| files.contains(file))
    }

    pub fn extend(&mut self, others: MobFileRefs) {
        for (table, files) in others.0 {
            self.0.entry(table).or_default().extend(files);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&TableName, &str)> {
        self.0.iter().flat_map(|(table, files)| files.iter().map(move |file| (table, &**file)))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of [`MOB_FILE_REFS`].
    pub fn encode(&self) -> Vec<u8> {
        if self.0.is_empty() { NO_REFS.to_vec() } else { self.to_string().into_bytes() }
    }

    /// `Corrupt` if these are not the bytes of [`MOB_FILE_REFS`].
    pub fn decode(bytes: &[u8]) -> Result<MobFileRefs> {
        let wrong = |what: String| Error::corrupt(format!("file info {MOB_FILE_REFS}: {what}"));
        let mut refs = MobFileRefs::default();
        if bytes.len() <= NO_REFS.len() {
            return Ok(refs);
        }
        let text = std::str::from_utf8(bytes).map_err(|error| wrong(error.to_string()))?;
        for part in text.split("//") {
            let Some((table, files)) = part.split_once('/').filter(|(table, _)| !table.is_empty()) else {
                return Err(wrong("expected the name of a table and a slash".to_string()));
            };
            let table = TableName::parse(table.as_bytes()).map_err(|error| wrong(error.to_string()))?;
            for file in files.split(',') {
                if !is_file_name(file) {
                    return Err(wrong(format!("'{}' is no name of a file", file.escape_default())));
                }
                refs.add(&table, file);
            }
        }
        Ok(refs)
    }
}

impl fmt::Display for MobFileRefs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (table, files)) in self.0.iter().enumerate() {
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            write!(f, "{}{table}/{}", if at > 0 { "//" } else { "" }, files.join(","))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use halcyon_testkit::Random;

    use super::*;

    const REGION: &str = "2140f686c386930b96c060b1030c2875";

    fn table(name: &str) -> TableName {
        TableName::parse(name.as_bytes()).unwrap()
    }

    #[test]
    fn names_of_mob_files() {
        let random = "0123456789abcdef0123456789abcdef";
        let name = MobFileName::make(b"", 20_261_126, random, REGION);
        assert_eq!(name, format!("d41d8cd98f00b204e9800998ecf8427e20261126{random}_{REGION}"));
        assert_eq!(MobFileName::parse(&name), Some(MobFileName { day: 20_261_126, region: REGION }));
        let old = &name[..RANDOM_END];
        assert_eq!(MobFileName::parse(old).unwrap().region, "");
        for wrong in ["", "ab", &name[1..], &format!("{old}_"), &format!("{old}_xy"), &format!("t=0f-{name}")]
        {
            assert_eq!(MobFileName::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_region_of_mob_files() {
        let region = RegionInfo::of_mob_files(&table("ns:t"));
        assert!(region.is_of_mob_files() && region.region_name().starts_with(b"ns:t,.mob,0."));
        let other = RegionInfo::new(table("t"), Bytes::from_static(b".mob"), Bytes::new(), 1);
        assert!(!other.is_of_mob_files());
        let table_of = |region: &RegionInfo| RegionInfo::table_of_mob_files(region.region_name()).unwrap();
        assert_eq!(table_of(&region), Some(table("ns:t")));
        for other in [other, RegionInfo::meta(), RegionInfo::meta().replica(1)] {
            assert_eq!(table_of(&other), None, "{other}");
        }
        assert!(RegionInfo::table_of_mob_files(&Bytes::from_static(b"x")).is_err());
    }

    #[test]
    fn a_reference_names_its_file() {
        let mut own_tags = Vec::new();
        append_tag(&mut own_tags, TagType::TTL, &7i64.to_be_bytes());
        let value = vec![b'v'; 70_000];
        let cell = Cell::build(b"r", b"f", b"q", 5, CellType::Put, &value, &own_tags, 9);
        let tags = mob_reference_tags(&table("ns:t"));
        let reference = mob_reference_of(cell.get(), "file", &tags).unwrap();
        assert!(is_mob_reference(reference.get()) && !is_mob_reference(cell.get()));
        assert_eq!(reference.get().key().bytes(), cell.get().key().bytes());
        assert_eq!((reference.seq(), &reference.value()[..4]), (9, &70_000u32.to_be_bytes()[..]));
        assert!(reference.tags().ends_with(&own_tags));
        let found = MobReference::of(reference.get()).unwrap();
        assert_eq!(found, MobReference { table: table("ns:t"), file: "file", value_len: 70_000 });
    }

    #[test]
    fn a_damaged_reference_is_an_error() {
        let tags = mob_reference_tags(&table("t"));
        let value = |value: &[u8], tags: &[u8]| {
            let cell = Cell::build(b"r", b"f", b"q", 5, CellType::Put, value, tags, 9);
            MobReference::of(cell.get()).map(|_| ()).map_err(|error| error.kind())
        };
        assert_eq!(value(b"\0\0\0\x05file", &tags), Ok(()));
        for bytes in
            [&b""[..], b"\0\0\0", b"\0\0\0\x05", b"\0\0\0\x05../x", b"\0\0\0\x05.x", b"\0\0\0\x05\xff"]
        {
            assert_eq!(value(bytes, &tags), Err(halcyon_cell::ErrorKind::Corrupt), "{bytes:?}");
        }
        assert!(value(b"\0\0\0\x05file", &tags[..3]).is_err(), "without a table");
    }

    #[test]
    fn references_of_a_file_are_those_of_hbase() {
        let mut refs = MobFileRefs::default();
        assert_eq!((refs.encode(), MobFileRefs::decode(&[0]).unwrap()), (vec![0], refs.clone()));
        refs.add(&table("exampleTable"), "b");
        refs.add(&table("exampleTable"), "a");
        refs.add(&table("example:table"), "c");
        let encoded = refs.encode();
        assert_eq!(MobFileRefs::decode(&encoded).unwrap(), refs);
        let text = b"exampleTable/a,b//example:table/c//otherTable/d,e";
        let read = MobFileRefs::decode(text).unwrap();
        assert_eq!(read.iter().count(), 5);
        assert!(read.contains(&table("otherTable"), "e") && !read.contains(&table("otherTable"), "a"));
        assert_eq!(
            MobFileRefs::decode(b"x").unwrap(),
            MobFileRefs::default(),
            "one byte: none, as HBase reads it"
        );
        for wrong in [&b"/a"[..], b"tt", b"t/", b"t/a,,b", b"t/../x", b"t/a//", b"\xff\xff", b"a b/c"] {
            assert!(MobFileRefs::decode(wrong).is_err(), "{}", wrong.escape_ascii());
        }
    }

    /// Also run by `cargo xtask fuzz mob`.
    #[test]
    fn damaged_references_never_panic() {
        let seed = std::env::var("HALCYON_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
        let mut random = Random::new(seed);
        let cell = Cell::put(b"r", b"f", b"q", 5, b"value");
        let reference = mob_reference_of(cell.get(), "file", &mob_reference_tags(&table("ns:t"))).unwrap();
        let whole = [reference.bytes().to_vec(), b"exampleTable/a,b//example:table/c".to_vec()];
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut data = whole[random.below(whole.len())].clone();
            for _ in 0..=random.below(4) {
                let at = random.below(data.len());
                match random.below(4) {
                    0 => data.truncate(at.max(1)),
                    1 => data.insert(at, random.below(256) as u8),
                    2 => data[at] ^= 1 << random.below(8),
                    _ => data[at] = b"\0/,:.\xff"[random.below(6)],
                }
            }
            let list = MobFileRefs::decode(&data);
            if let Ok(refs) = &list {
                assert_eq!(MobFileRefs::decode(&refs.encode()).unwrap(), *refs, "seed {seed}");
                let is_name = |file: &str| !file.contains('/') && !file.starts_with('.');
                assert!(refs.iter().all(|(_, file)| is_name(file)), "seed {seed}: {refs}");
            }
            let cell = CellRef::parse(&data, 0).and_then(|cell| MobReference::of(cell).map(drop));
            refused += usize::from(list.is_err()) + usize::from(cell.is_err());
        }
        assert!(refused > 20_000, "seed {seed}: the damage was noticed {refused} times only");
    }
}
