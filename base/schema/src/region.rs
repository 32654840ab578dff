//! A region: a range of a table's rows, and its name.
//!
//! ```text
//! region name  = table , start key , id [ _ replica ] . md5 hex .      md5 over what stands before the first dot
//! hbase:meta   = `hbase:meta,,1` or, of a replica, `hbase:meta,,1_0001`          encoded name = Jenkins hash of it, decimal
//! encoded name = md5 hex
//! ```

use std::cmp::Ordering;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use halcyon_cell::{CellComparator, Error, ROW_LEN_MAX, Result};
use halcyon_proto::pb;
use md5::{Digest, Md5};
use prost::Message;

use crate::{TableName, decode, jenkins_hash, layout, strip_magic, with_magic};

/// The encoded name of the one region of `hbase:meta`.
pub const META_ENCODED_NAME: &str = "1588230740";
const MD5_HEX_LEN: usize = 32;
/// Digits of a creation time in ms, up to the year 2286.
const ID_LEN: usize = 13;
/// HBase has them in a Java long.
const ID_MAX: u64 = i64::MAX as u64 / 2;

/// A region's identity and range. Immutable and cheap to clone. HBase: `RegionInfo`.
///
/// One handle has the size of a pointer: a master keeps several of each of a million regions.
#[derive(Clone)]
pub struct RegionInfo(Arc<Parts>);

#[derive(Clone)]
struct Parts {
    table: TableName,
    start_key: Bytes,
    end_key: Bytes,
    region_id: u64,
    replica_id: i32,
    split: bool,
    offline: bool,
    region_name: Bytes,
    /// `None`: it stands in the region name.
    encoded_name: Option<Box<str>>,
}

impl RegionInfo {
    /// A region of `[start, end)`; an empty end is the end of the table. `id` is the creation time in ms.
    pub fn new(table: TableName, start: Bytes, end: Bytes, id: u64) -> RegionInfo {
        RegionInfo::build(table, start, end, id, 0)
    }

    /// The region of `hbase:meta`.
    pub fn meta() -> RegionInfo {
        static META: OnceLock<RegionInfo> = OnceLock::new();
        let parts = || Parts {
            table: TableName::META,
            start_key: Bytes::new(),
            end_key: Bytes::new(),
            region_id: 1,
            replica_id: 0,
            split: false,
            offline: false,
            region_name: Bytes::from_static(b"hbase:meta,,1"),
            encoded_name: Some(META_ENCODED_NAME.into()),
        };
        META.get_or_init(|| RegionInfo(Arc::new(parts()))).clone()
    }

    fn build(table: TableName, start: Bytes, end: Bytes, id: u64, replica_id: i32) -> RegionInfo {
        if table.is_meta() {
            return RegionInfo::meta().of_meta(replica_id);
        }
        let mut name = Vec::with_capacity(table.full_name().len() + start.len() + 64);
        name.extend_from_slice(table.full_name());
        name.push(b',');
        name.extend_from_slice(&start);
        name.extend_from_slice(format!(",{id}").as_bytes());
        if replica_id > 0 {
            name.extend_from_slice(format!("_{replica_id:04X}").as_bytes());
        }
        let encoded = md5_hex(&name);
        name.extend_from_slice(format!(".{encoded}.").as_bytes());
        let region_name = Bytes::from(name.into_boxed_slice());
        // One piece of memory for both.
        let start_at = table.full_name().len() + 1;
        let start_key = region_name.slice(start_at..start_at + start.len());
        RegionInfo(Arc::new(Parts {
            table,
            start_key,
            end_key: end,
            region_id: id,
            replica_id,
            split: false,
            offline: false,
            region_name,
            encoded_name: None,
        }))
    }

    /// A replica of the region of `hbase:meta`. The name is of a form that only it has.
    fn of_meta(self, replica_id: i32) -> RegionInfo {
        if replica_id == 0 {
            return self;
        }
        let name = format!("hbase:meta,,1_{replica_id:04X}");
        let encoded = i64::from(jenkins_hash(name.as_bytes(), 0).cast_signed()).abs();
        RegionInfo(Arc::new(Parts {
            replica_id,
            region_name: Bytes::from(name.into_bytes()),
            encoded_name: Some(encoded.to_string().into()),
            ..Arc::unwrap_or_clone(self.0)
        }))
    }

    /// The same range under another replica id.
    pub fn replica(&self, replica_id: i32) -> RegionInfo {
        if self.0.replica_id == replica_id {
            return self.clone();
        }
        let (table, start, end) = (self.0.table.clone(), self.0.start_key.clone(), self.0.end_key.clone());
        RegionInfo::build(table, start, end, self.0.region_id, replica_id)
            .with_flags(self.0.split, self.0.offline)
    }

    pub fn with_flags(mut self, split: bool, offline: bool) -> RegionInfo {
        if (self.0.split, self.0.offline) != (split, offline) {
            let parts = Arc::make_mut(&mut self.0);
            (parts.split, parts.offline) = (split, offline);
        }
        self
    }

    pub fn table(&self) -> &TableName {
        &self.0.table
    }

    pub fn start_key(&self) -> &Bytes {
        &self.0.start_key
    }

    /// First row behind the region; empty at the table's end.
    pub fn end_key(&self) -> &Bytes {
        &self.0.end_key
    }

    pub fn region_id(&self) -> u64 {
        self.0.region_id
    }

    pub fn replica_id(&self) -> i32 {
        self.0.replica_id
    }

    /// Whether this is a further copy for reads, and not the region that takes writes.
    pub fn is_secondary(&self) -> bool {
        self.0.replica_id != 0
    }

    /// The region that takes writes.
    pub fn primary(&self) -> RegionInfo {
        if self.is_secondary() { self.replica(0) } else { self.clone() }
    }

    /// The further copies of a region of which there are `replication` copies.
    pub fn secondaries(&self, replication: i32) -> impl Iterator<Item = RegionInfo> + '_ {
        (1..replication).map(|replica| self.replica(replica))
    }

    /// Whether this is the parent of a split.
    pub fn is_split(&self) -> bool {
        self.0.split
    }

    pub fn is_offline(&self) -> bool {
        self.0.offline
    }

    pub fn is_meta(&self) -> bool {
        self.0.table.is_meta()
    }

    /// The full name, with the encoded name at its end; the row of the default replica in `hbase:meta`.
    pub fn region_name(&self) -> &Bytes {
        &self.0.region_name
    }

    /// The longest start key that a region of a table may have: the region's name is a row of `hbase:meta`, and has the key in it.
    pub fn start_key_len_max(table: &TableName) -> usize {
        // Two commas, the creation time in ms, and the encoded name between two dots.
        let around = table.full_name().len() + 2 + ID_LEN + MD5_HEX_LEN + 2;
        ROW_LEN_MAX.saturating_sub(around)
    }

    /// Invalid if the name cannot be a row of `hbase:meta`, or has no creation time that others can come behind.
    pub fn check_name(&self) -> Result<()> {
        if self.0.region_id > ID_MAX {
            return Err(Error::invalid(format!("{} is not the creation time of a region", self.0.region_id)));
        }
        let len = self.0.region_name.len();
        if len <= ROW_LEN_MAX {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "A region of table {} cannot begin at a key of {} bytes: its name would have {len} bytes, and a row of hbase:meta has \
             {ROW_LEN_MAX} at most",
            self.0.table,
            self.0.start_key.len()
        )))
    }

    /// 32 hex digits; for meta `1588230740`.
    pub fn encoded_name(&self) -> &str {
        std::str::from_utf8(self.encoded_name_bytes()).expect("the end of a region name is digits")
    }

    /// The same as bytes, for those who ask for each write: nothing is looked at.
    pub fn encoded_name_bytes(&self) -> &[u8] {
        match &self.0.encoded_name {
            Some(name) => name.as_bytes(),
            None => {
                let end = self.0.region_name.len() - 1;
                &self.0.region_name[end - MD5_HEX_LEN..end]
            }
        }
    }

    /// Whether `row` belongs here. Meta holds every row.
    pub fn contains_row(&self, row: &[u8]) -> bool {
        self.is_meta()
            || (row >= &self.0.start_key[..] && (self.0.end_key.is_empty() || row < &self.0.end_key[..]))
    }

    /// Whether one of the two begins where the other ends (HBase: `RegionInfo.isAdjacent`).
    pub fn is_adjacent(&self, other: &RegionInfo) -> bool {
        let (left, right) = if self.0.start_key <= other.0.start_key { (self, other) } else { (other, self) };
        self.0.table == other.0.table && left.0.end_key == right.0.start_key
    }

    /// Whether both have some rows (HBase: `RegionInfo.isOverlap`). Regions of one start key do, whatever else.
    pub fn overlaps(&self, other: &RegionInfo) -> bool {
        let (left, right) = if self.0.start_key <= other.0.start_key { (self, other) } else { (other, self) };
        self.0.table == other.0.table
            && (left.0.start_key == right.0.start_key
                || left.0.end_key.is_empty()
                || left.0.end_key > right.0.start_key)
    }

    /// With keys and flags, as HBase's messages have regions (`RegionInfoBuilder.MutableRegionInfo.toString`).
    pub fn described(&self) -> String {
        let (start, end) = (self.0.start_key.escape_ascii(), self.0.end_key.escape_ascii());
        let mut text = format!(
            "{{ENCODED => {}, NAME => '{self}', STARTKEY => '{start}', ENDKEY => '{end}'",
            self.encoded_name()
        );
        if self.0.offline {
            text.push_str(", OFFLINE => true");
        }
        if self.0.split {
            text.push_str(", SPLIT => true");
        }
        if self.0.replica_id > 0 {
            text.push_str(&format!(", REPLICA_ID => {}", self.0.replica_id));
        }
        text.push('}');
        text
    }

    /// The order of the region's cells.
    pub fn comparator(&self) -> CellComparator {
        if self.is_meta() { CellComparator::Meta } else { CellComparator::Default }
    }

    /// The region's directory under `root`. Copies have that of the region that takes writes.
    pub fn dir(&self, root: &Path) -> PathBuf {
        layout::region_dir(root, &self.0.table, self.primary().encoded_name())
    }

    pub fn to_pb(&self) -> pb::RegionInfo {
        pb::RegionInfo {
            region_id: self.0.region_id,
            table_name: self.0.table.to_pb(),
            start_key: Some(self.0.start_key.clone()),
            end_key: Some(self.0.end_key.clone()),
            offline: Some(self.0.offline),
            split: Some(self.0.split),
            replica_id: Some(self.0.replica_id),
        }
    }

    /// Of what is sent for `hbase:meta` only the number of the replica counts.
    pub fn from_pb(info: &pb::RegionInfo) -> Result<RegionInfo> {
        let table = TableName::from_pb(&info.table_name)?;
        let start = info.start_key.clone().unwrap_or_default();
        let end = info.end_key.clone().unwrap_or_default();
        let region =
            RegionInfo::build(table, start, end, info.region_id, info.replica_id.unwrap_or(0).max(0));
        if region.is_meta() {
            return Ok(region);
        }
        Ok(region.with_flags(info.split.unwrap_or(false), info.offline.unwrap_or(false)))
    }

    /// The bytes of a `.regioninfo` file: `"PBUF"`, the message's length as a varint, the RegionInfo.
    pub fn encode_file(&self) -> Vec<u8> {
        let mut out = halcyon_proto::PB_MAGIC.to_vec();
        self.to_pb().encode_length_delimited(&mut out).expect("a Vec grows as needed");
        out
    }

    pub fn decode_file(bytes: &[u8]) -> Result<RegionInfo> {
        let message = pb::RegionInfo::decode_length_delimited(strip_magic(".regioninfo", bytes)?)
            .map_err(|error| Error::corrupt(format!(".regioninfo: {error}")))?;
        RegionInfo::from_pb(&message).map_err(|error| Error::corrupt(format!(".regioninfo: {error}")))
    }

    /// The value of `info:regioninfo` in meta: `"PBUF"` and the RegionInfo.
    pub fn encode_value(&self) -> Vec<u8> {
        with_magic(&self.to_pb())
    }

    pub fn decode_value(bytes: &[u8]) -> Result<RegionInfo> {
        let message: pb::RegionInfo = decode("region info", strip_magic("region info", bytes)?)?;
        RegionInfo::from_pb(&message).map_err(|error| Error::corrupt(format!("region info: {error}")))
    }

    fn sort_key(&self) -> (&TableName, &[u8], bool, &[u8], u64, i32, bool, bool) {
        let last = self.0.end_key.is_empty();
        let keys = (&self.0.start_key[..], &self.0.end_key[..]);
        (
            &self.0.table,
            keys.0,
            last,
            keys.1,
            self.0.region_id,
            self.0.replica_id,
            self.0.offline,
            self.0.split,
        )
    }
}

impl PartialEq for RegionInfo {
    fn eq(&self, other: &RegionInfo) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for RegionInfo {}

impl PartialOrd for RegionInfo {
    fn partial_cmp(&self, other: &RegionInfo) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By table, start key, end key (the table's end last), id, replica.
impl Ord for RegionInfo {
    fn cmp(&self, other: &RegionInfo) -> Ordering {
        self.sort_key().cmp(&other.sort_key())
    }
}

impl std::hash::Hash for RegionInfo {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.region_name.hash(state);
    }
}

impl fmt::Display for RegionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.region_name.escape_ascii())
    }
}

impl fmt::Debug for RegionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What stands in a region name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionNameParts {
    pub table: TableName,
    pub start_key: Bytes,
    pub region_id: u64,
    pub replica_id: i32,
    /// The 32 hex digits at the end, if the name is of the form that has them.
    pub encoded_name: Option<String>,
}

/// Takes a region name apart. Invalid if it is not one.
pub fn parse_region_name(name: &[u8]) -> Result<RegionNameParts> {
    let wrong = || Error::invalid(format!("Invalid region name {}", name.escape_ascii()));
    let (front, encoded_name) = split_encoded(name);
    let first = front.iter().position(|&byte| byte == b',').ok_or_else(wrong)?;
    let last = front.iter().rposition(|&byte| byte == b',').ok_or_else(wrong)?;
    if first == last {
        return Err(wrong());
    }
    let id = std::str::from_utf8(&front[last + 1..]).map_err(|_| wrong())?;
    let (id, replica) = match id.split_once('_') {
        Some((id, replica)) => (id, i32::from_str_radix(replica, 16).map_err(|_| wrong())?),
        None => (id, 0),
    };
    Ok(RegionNameParts {
        table: TableName::parse(&front[..first]).map_err(|error| error.context("region name"))?,
        start_key: Bytes::copy_from_slice(&front[first + 1..last]),
        region_id: id.parse().map_err(|_| wrong())?,
        replica_id: replica,
        encoded_name,
    })
}

/// Cuts `.md5hex.` off the end.
fn split_encoded(name: &[u8]) -> (&[u8], Option<String>) {
    let Some(at) = name.len().checked_sub(MD5_HEX_LEN + 2) else { return (name, None) };
    let tail = &name[at..];
    if tail[0] != b'.' || tail[MD5_HEX_LEN + 1] != b'.' {
        return (name, None);
    }
    match std::str::from_utf8(&tail[1..=MD5_HEX_LEN]) {
        Ok(text) if text.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            (&name[..at], Some(text.to_string()))
        }
        _ => (name, None),
    }
}

fn md5_hex(bytes: &[u8]) -> String {
    Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(table: &str, start: &'static str, end: &'static str) -> RegionInfo {
        let table = TableName::parse(table.as_bytes()).unwrap();
        RegionInfo::new(table, start.into(), end.into(), 1_700_000_000_000)
    }

    /// Names that HBase 2.6.4 gives these regions.
    #[test]
    fn golden_names() {
        let first = region("t1", "b", "m");
        assert_eq!(first.region_name(), "t1,b,1700000000000.2140f686c386930b96c060b1030c2875.");
        assert_eq!(first.encoded_name(), "2140f686c386930b96c060b1030c2875");
        let replica = first.replica(1);
        assert_eq!(replica.region_name(), "t1,b,1700000000000_0001.f0bd80ca15e441cf12dbc3c6c14f3e65.");
        let whole = region("ns:t1", "", "");
        assert_eq!(whole.region_name(), "ns:t1,,1700000000000.5d7f500caf79e27589faec634a78240f.");
    }

    #[test]
    fn a_name_that_cannot_be_a_row_is_refused() {
        let table = TableName::parse(b"ns:t1").unwrap();
        let longest = RegionInfo::start_key_len_max(&table);
        let of_len =
            |len| RegionInfo::new(table.clone(), vec![b'm'; len].into(), Bytes::new(), 1_700_000_000_000);
        let fits = of_len(longest);
        fits.check_name().unwrap();
        assert_eq!(fits.region_name().len(), ROW_LEN_MAX);
        let error = of_len(longest + 1).check_name().unwrap_err();
        assert!(
            error.message().contains(&format!("a key of {} bytes", longest + 1))
                && error.message().contains("32768 bytes"),
            "{error}"
        );
        assert_eq!(RegionInfo::start_key_len_max(&TableName::parse(&[b'x'; 40_000]).unwrap()), 0);
    }

    #[test]
    fn neighbours_and_overlaps() {
        let (first, second, last) = (region("t", "", "b"), region("t", "b", "d"), region("t", "d", ""));
        assert!(first.is_adjacent(&second) && second.is_adjacent(&first) && !first.overlaps(&second));
        assert!(!first.is_adjacent(&last) && !first.overlaps(&last) && !last.overlaps(&first));
        let wide = region("t", "a", "c");
        assert!(
            wide.overlaps(&first) && first.overlaps(&wide) && wide.overlaps(&second) && !wide.overlaps(&last)
        );
        let whole = region("t", "", "");
        assert!([&first, &second, &last].iter().all(|one| whole.overlaps(one) && one.overlaps(&whole)));
        assert!(region("t", "d", "e").overlaps(&last) && region("t", "x", "y").overlaps(&last));
        let other = region("u", "b", "d");
        assert!(!other.overlaps(&second) && !other.is_adjacent(&first));
        assert_eq!(
            region("t1", "b", "m").replica(1).described(),
            "{ENCODED => f0bd80ca15e441cf12dbc3c6c14f3e65, NAME => 't1,b,1700000000000_0001.\
             f0bd80ca15e441cf12dbc3c6c14f3e65.', STARTKEY => 'b', ENDKEY => 'm', REPLICA_ID => 1}"
        );
    }

    #[test]
    fn golden_bytes_of_meta() {
        let meta = RegionInfo::meta();
        assert_eq!((&meta.region_name()[..], meta.encoded_name()), (&b"hbase:meta,,1"[..], "1588230740"));
        let golden = b"PBUF\x08\x01\x12\x0d\x0a\x05hbase\x12\x04meta\x1a\x00\x22\x00\x28\x00\x30\x00\x38\x00";
        assert_eq!(meta.encode_value(), golden);
        assert_eq!(RegionInfo::decode_value(golden).unwrap(), meta);
        let file = meta.encode_file();
        assert_eq!(&file[..5], b"PBUF\x1b");
        assert_eq!(&file[5..], &golden[4..]);
        assert_eq!(RegionInfo::decode_file(&file).unwrap(), meta);
        assert!(
            meta.contains_row(b"") && meta.contains_row(b"t,,9") && meta.comparator() == CellComparator::Meta
        );
        assert_eq!(meta.dir(Path::new("/r")), Path::new("/r/data/hbase/meta/1588230740"));
    }

    /// Names that HBase 2.6.4 gives.
    #[test]
    fn golden_names_of_copies_of_meta() {
        let golden = [("hbase:meta,,1_0001", "534574363"), ("hbase:meta,,1_0002", "1657623790")];
        for (number, (name, encoded)) in (1..).zip(golden) {
            let copy = RegionInfo::meta().replica(number);
            assert_eq!((&copy.region_name()[..], copy.encoded_name()), (name.as_bytes(), encoded));
            assert_eq!(RegionInfo::decode_value(&copy.encode_value()).unwrap(), copy);
            assert_eq!(copy.dir(Path::new("/r")), RegionInfo::meta().dir(Path::new("/r")));
            let parts = parse_region_name(copy.region_name()).unwrap();
            assert_eq!((parts.table, parts.replica_id), (TableName::META, number));
            assert_eq!(copy.primary(), RegionInfo::meta());
        }
        assert_eq!(RegionInfo::meta().replica(3).encoded_name(), "1072483532");
    }

    #[test]
    fn copies_have_names_of_their_own_and_the_directory_of_the_first() {
        let first = region("t1", "b", "m");
        let copies: Vec<_> = first.secondaries(3).collect();
        assert_eq!(copies.iter().map(RegionInfo::replica_id).collect::<Vec<_>>(), [1, 2]);
        for copy in copies {
            assert!(copy.is_secondary() && copy.encoded_name() != first.encoded_name());
            assert_eq!(
                (copy.primary(), copy.dir(Path::new("/r"))),
                (first.clone(), first.dir(Path::new("/r")))
            );
        }
        assert_eq!(first.secondaries(1).count(), 0);
    }

    #[test]
    fn takes_names_apart() {
        let region = region("ns:t1", "a,b\0.c", "x");
        let parts = parse_region_name(region.region_name()).unwrap();
        assert_eq!((parts.table.as_str(), &parts.start_key[..]), ("ns:t1", &b"a,b\0.c"[..]));
        assert_eq!((parts.region_id, parts.replica_id), (1_700_000_000_000, 0));
        assert_eq!(parts.encoded_name.as_deref(), Some(region.encoded_name()));
        assert_eq!(parse_region_name(region.replica(2).region_name()).unwrap().replica_id, 2);
        let meta = parse_region_name(b"hbase:meta,,1").unwrap();
        assert_eq!((meta.table, meta.region_id, meta.encoded_name), (TableName::META, 1, None));
        for name in ["", "t", "t,1", "t,a,x", "t,a,", "t,a,1_"] {
            assert!(parse_region_name(name.as_bytes()).is_err(), "{name}");
        }
    }

    #[test]
    fn knows_its_rows_and_goes_to_protobuf_and_back() {
        let middle = region("t", "b", "m");
        let rows = [("a", false), ("b", true), ("lz", true), ("m", false)];
        for (row, inside) in rows {
            assert_eq!(middle.contains_row(row.as_bytes()), inside, "{row}");
        }
        let split = middle.clone().with_flags(true, true);
        assert_eq!(RegionInfo::decode_file(&split.encode_file()).unwrap(), split);
        assert!(split != middle);
        let mut regions = [region("t", "b", ""), region("t", "b", "m"), region("t", "", "b")];
        regions.sort();
        assert_eq!(regions[0].end_key(), "b");
        assert_eq!(regions[2].end_key(), "");
        assert!(RegionInfo::decode_file(b"PBUF\x05\x08").is_err());
    }
}
