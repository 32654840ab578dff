//! Requests by key range against time: the key visualizer.
//!
//! Every region counts its reads and writes. Each few seconds their growth goes into [`Columns`]. A request for the map
//! cuts each table's key space at every boundary that a region had in that time, so that a region and the daughters
//! it was split into share rows. A region's requests are divided equally among the rows it covers.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use halcyon_schema::RegionInfo;
use serde::{Deserialize, Serialize};

use super::columns::{COLUMNS_COUNT, Columns, column_s, first_slot};
use super::keys_text::key_text;
use super::timeline::Range;

/// Regions of one column. Of more, the busiest are kept. All columns together take about 10 MB at most.
const REGIONS_MAX: usize = 1024;
/// Rows of a map. More ranges are joined with their neighbours.
pub const ROWS_MAX: usize = 200;

/// Which requests are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Requests {
    Reads,
    Writes,
    #[default]
    All,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    pub reads: f64,
    pub writes: f64,
}

/// Growth of one region's counters.
#[derive(Clone, Copy, Default)]
struct Growth {
    reads: u32,
    writes: u32,
}

/// Growth by region number.
type Column = HashMap<u32, Growth>;

/// The key range of a region, open or not.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyRange {
    table: String,
    start: Vec<u8>,
    /// Empty: to the end of the table.
    end: Vec<u8>,
}

/// What was counted of an open region last.
struct Counted {
    number: u32,
    at_s: u64,
    reads: u64,
    writes: u64,
    rate: Rate,
}

/// See the head of the file.
#[derive(Default)]
pub struct KeyTraffic {
    columns: Columns<Column>,
    ranges: HashMap<u32, KeyRange>,
    /// By encoded name.
    counted: HashMap<String, Counted>,
    next_number: u32,
}

/// One row of a map.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub table: String,
    /// Escaped; empty: from the first key.
    pub start: String,
    /// Escaped, not included; empty: to the last key.
    pub end: String,
    /// Key ranges of regions that are joined in this row.
    pub ranges: usize,
}

/// Requests per second of each row in each column.
#[derive(Debug, Serialize)]
pub struct KeyMap {
    /// Start of the first column, in seconds since the start of the console.
    #[serde(skip)]
    pub first_s: i64,
    pub step_s: u64,
    pub columns: usize,
    pub rows: Vec<Row>,
    /// `rows` times `columns` numbers, row by row.
    pub values: Vec<Vec<f32>>,
    pub largest: f32,
}

/// Growth of a counter that begins at 0 when its region is opened.
fn grown(before: u64, now: u64) -> u32 {
    let growth = if now < before { now } else { now - before };
    u32::try_from(growth).unwrap_or(u32::MAX)
}

impl KeyTraffic {
    /// Takes the counters of all open regions: region, reads, writes.
    pub fn push<'r>(&mut self, at_s: u64, regions: impl Iterator<Item = (&'r RegionInfo, (u64, u64))>) {
        let mut growth: Vec<(u32, Growth)> = Vec::new();
        let mut open = HashSet::new();
        for (info, (reads, writes)) in regions {
            open.insert(info.encoded_name().to_string());
            if let Some(grown) = self.count(at_s, info, reads, writes) {
                growth.push(grown);
            }
        }
        self.counted.retain(|name, _| open.contains(name));
        growth.sort_by_key(|(_, it)| std::cmp::Reverse(u64::from(it.reads) + u64::from(it.writes)));
        self.columns.add(at_s, |column| {
            for (number, more) in &growth {
                if column.len() < REGIONS_MAX || column.contains_key(number) {
                    let sum = column.entry(*number).or_default();
                    sum.reads = sum.reads.saturating_add(more.reads);
                    sum.writes = sum.writes.saturating_add(more.writes);
                }
            }
        });
        self.forget_ranges();
    }

    fn count(&mut self, at_s: u64, info: &RegionInfo, reads: u64, writes: u64) -> Option<(u32, Growth)> {
        let Some(before) = self.counted.get_mut(info.encoded_name()) else {
            let number = self.next_number;
            self.next_number += 1;
            self.ranges.insert(number, KeyRange::of(info));
            let rate = Rate::default();
            self.counted
                .insert(info.encoded_name().to_string(), Counted { number, at_s, reads, writes, rate });
            return None; // what it counted before is of no known time
        };
        let growth = Growth { reads: grown(before.reads, reads), writes: grown(before.writes, writes) };
        let seconds = at_s.saturating_sub(before.at_s).max(1) as f64;
        let rate =
            Rate { reads: f64::from(growth.reads) / seconds, writes: f64::from(growth.writes) / seconds };
        *before = Counted { number: before.number, at_s, reads, writes, rate };
        (growth.reads + growth.writes > 0).then_some((before.number, growth))
    }

    /// Removes ranges of closed regions that no column has.
    fn forget_ranges(&mut self) {
        if self.ranges.len() <= 2 * self.counted.len() + REGIONS_MAX {
            return;
        }
        let mut used: HashSet<u32> = self.counted.values().map(|it| it.number).collect();
        used.extend(self.columns.all().flat_map(|column| column.keys().copied()));
        self.ranges.retain(|number, _| used.contains(number));
    }

    /// Memory that they take.
    pub fn held_bytes(&self) -> u64 {
        let columns = self.columns.held_bytes(|column| map_bytes::<u32, Growth>(column.capacity()));
        let keys = |range: &KeyRange| range.table.len() + range.start.len() + range.end.len();
        let ranges = map_bytes::<u32, KeyRange>(self.ranges.capacity())
            + self.ranges.values().map(keys).sum::<usize>();
        let counted = map_bytes::<String, Counted>(self.counted.capacity())
            + self.counted.keys().map(String::len).sum::<usize>();
        columns + (ranges + counted) as u64
    }

    /// Requests per second of an open region, over the last few seconds.
    pub fn rate(&self, encoded_name: &str) -> Rate {
        self.counted.get(encoded_name).map_or(Rate::default(), |it| it.rate)
    }

    /// The map of a range that ends now. With `table` only that one.
    pub fn map(
        &self,
        range: Range,
        now_s: u64,
        what: Requests,
        table: Option<&str>,
        rows_max: usize,
    ) -> KeyMap {
        let is_wanted = |range: &KeyRange| table.is_none_or(|table| range.table == table);
        let columns: Vec<(usize, &Column)> = self.columns.of(range, now_s).collect();
        let seen = columns.iter().flat_map(|(_, column)| column.keys());
        let open = self.counted.values().map(|it| &it.number);
        let numbers: BTreeSet<u32> = seen.chain(open).copied().collect();
        let ranges = numbers.iter().filter_map(|number| Some((*number, self.ranges.get(number)?)));
        let ranges: Vec<(u32, &KeyRange)> = ranges.filter(|(_, range)| is_wanted(range)).collect();
        let rows = Rows::of(&ranges);
        let rows_max = rows_max.clamp(1, ROWS_MAX);
        let joined = rows.joined(rows_max);
        let step_s = column_s(range);
        let mut values = vec![vec![0.0f32; COLUMNS_COUNT]; joined.rows.len()];
        for (number, range) in &ranges {
            let covered = rows.covered(range);
            for (at, column) in &columns {
                let Some(growth) = column.get(number) else { continue };
                let count = match what {
                    Requests::Reads => f64::from(growth.reads),
                    Requests::Writes => f64::from(growth.writes),
                    Requests::All => f64::from(growth.reads) + f64::from(growth.writes),
                };
                let share = (count / step_s as f64 / covered.len().max(1) as f64) as f32;
                for row in covered.clone() {
                    values[joined.row_of[row]][*at] += share;
                }
            }
        }
        let largest = values.iter().flatten().copied().fold(0.0, f32::max);
        let first_s = first_slot(range, now_s) * step_s as i64;
        KeyMap { first_s, step_s, columns: COLUMNS_COUNT, rows: joined.rows, values, largest }
    }
}

/// Memory of a hash map that has room for so many entries: seven of eight places may be used, and each has one more byte.
fn map_bytes<K, V>(capacity: usize) -> usize {
    capacity * 8 / 7 * (size_of::<(K, V)>() + 1)
}

impl KeyRange {
    fn of(info: &RegionInfo) -> KeyRange {
        let table = info.table().to_string();
        KeyRange { table, start: info.start_key().to_vec(), end: info.end_key().to_vec() }
    }
}

/// Each table's key space, cut at every boundary.
struct Rows<'k> {
    /// Table and first key, in order.
    starts: Vec<(&'k str, &'k [u8])>,
}

/// Rows of a map, and in which of them each cut range is.
struct Joined {
    rows: Vec<Row>,
    row_of: Vec<usize>,
}

impl<'k> Rows<'k> {
    fn of(ranges: &[(u32, &'k KeyRange)]) -> Rows<'k> {
        let mut starts: BTreeMap<&str, BTreeSet<&[u8]>> = BTreeMap::new();
        for (_, range) in ranges {
            let of_table = starts.entry(&range.table).or_default();
            of_table.insert(&range.start);
            if !range.end.is_empty() {
                of_table.insert(&range.end);
            }
        }
        let mut rows: Vec<_> = starts
            .into_iter()
            .flat_map(|(table, keys)| keys.into_iter().map(move |key| (table, key)))
            .collect();
        // the end of the last range begins no row
        let begins = |(table, key): &(&str, &[u8])| {
            ranges.iter().any(|(_, range)| {
                range.table == *table
                    && range.start[..] <= **key
                    && (range.end.is_empty() || range.end[..] > **key)
            })
        };
        rows.retain(begins);
        Rows { starts: rows }
    }

    /// The rows that a region covers.
    fn covered(&self, range: &KeyRange) -> std::ops::Range<usize> {
        let first = self.starts.partition_point(|row| *row < (&*range.table, &range.start[..]));
        let end = if range.end.is_empty() {
            self.starts.partition_point(|(table, _)| *table <= &*range.table)
        } else {
            self.starts.partition_point(|row| *row < (&*range.table, &range.end[..]))
        };
        first..end
    }

    /// Joins neighbours of one table until at most `rows_max` rows are left, or one for each table.
    fn joined(&self, rows_max: usize) -> Joined {
        let in_one = self.starts.len().div_ceil(rows_max).max(1);
        let mut joined = Joined { rows: Vec::new(), row_of: Vec::with_capacity(self.starts.len()) };
        for (at, (table, start)) in self.starts.iter().enumerate() {
            let next = self.starts.get(at + 1).filter(|(next, _)| next == table);
            let end = next.map_or(String::new(), |(_, key)| key_text(key));
            match joined.rows.last_mut() {
                Some(row) if row.table == *table && row.ranges < in_one => {
                    row.ranges += 1;
                    row.end = end;
                }
                _ => {
                    let row = Row { table: table.to_string(), start: key_text(start), end, ranges: 1 };
                    joined.rows.push(row);
                }
            }
            joined.row_of.push(joined.rows.len() - 1);
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use halcyon_schema::TableName;

    use super::*;

    fn region(table: &str, start: &str, end: &str, id: u64) -> RegionInfo {
        let key = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        RegionInfo::new(TableName::parse(table.as_bytes()).unwrap(), key(start), key(end), id)
    }

    fn row(table: &str, start: &str, end: &str, ranges: usize) -> Row {
        Row { table: table.to_string(), start: start.to_string(), end: end.to_string(), ranges }
    }

    /// Every column of every range has as many regions as it takes.
    #[test]
    fn memory_is_bounded_and_counted() {
        let regions: Vec<RegionInfo> = (0..2 * REGIONS_MAX)
            .map(|at| region("t", &format!("{at:05}"), &format!("{:05}", at + 1), 1))
            .collect();
        let mut traffic = KeyTraffic::default();
        let push = |traffic: &mut KeyTraffic, second: u64| {
            traffic.push(second, regions.iter().map(|region| (region, (second, second))));
        };
        let in_range = |range: Range| {
            let step_s = column_s(range);
            (0..COLUMNS_COUNT as u64).map(move |at| 86_400 - range.seconds() + at * step_s)
        };
        let seconds: BTreeSet<u64> = Range::ALL.into_iter().flat_map(in_range).collect();
        push(&mut traffic, 0);
        let without_columns = traffic.held_bytes();
        seconds.into_iter().for_each(|second| push(&mut traffic, second + 1));
        let columns = traffic.held_bytes() - without_columns;
        let least = (Range::COUNT * (COLUMNS_COUNT - 1) * REGIONS_MAX * 12) as u64;
        assert!((least..11_000_000).contains(&columns), "{columns}");
    }

    #[test]
    fn growth_is_a_rate_in_its_column_and_the_first_count_is_none() {
        let (a, b) = (region("t", "", "m", 1), region("t", "m", "", 2));
        let mut traffic = KeyTraffic::default();
        traffic.push(0, [(&a, (1000, 5)), (&b, (0, 0))].into_iter());
        traffic.push(10, [(&a, (1100, 5)), (&b, (0, 50))].into_iter());
        assert_eq!(traffic.rate(a.encoded_name()), Rate { reads: 10.0, writes: 0.0 });
        let map = traffic.map(Range::Minutes15, 10, Requests::All, None, 100);
        assert_eq!(map.rows, [row("t", "", "m", 1), row("t", "m", "", 1)]);
        assert_eq!((map.values[0][89], map.values[1][89], map.largest), (10.0, 5.0, 10.0));
        assert_eq!(map.first_s, -880);
        let writes = traffic.map(Range::Minutes15, 10, Requests::Writes, None, 100);
        assert_eq!((writes.values[0][89], writes.values[1][89]), (0.0, 5.0));
        traffic.push(20, [(&a, (30, 0)), (&b, (0, 50))].into_iter());
        assert_eq!(traffic.rate(a.encoded_name()).reads, 3.0, "a counter that begins anew");
    }

    #[test]
    fn a_parent_and_its_daughters_share_rows() {
        let (parent, left, right) =
            (region("t", "", "", 1), region("t", "", "k", 2), region("t", "k", "", 3));
        let mut traffic = KeyTraffic::default();
        traffic.push(0, [(&parent, (0, 0))].into_iter());
        traffic.push(10, [(&parent, (100, 0))].into_iter());
        traffic.push(20, [(&left, (0, 0)), (&right, (0, 0))].into_iter());
        traffic.push(30, [(&left, (0, 0)), (&right, (40, 0))].into_iter());
        let map = traffic.map(Range::Minutes15, 30, Requests::All, Some("t"), 100);
        assert_eq!(map.rows, [row("t", "", "k", 1), row("t", "k", "", 1)]);
        assert_eq!((map.values[0][87], map.values[1][87]), (5.0, 5.0), "the parent's are divided");
        assert_eq!((map.values[0][89], map.values[1][89]), (0.0, 4.0));
        assert!(traffic.map(Range::Minutes15, 30, Requests::All, Some("u"), 100).rows.is_empty());
    }

    #[test]
    fn many_ranges_are_joined_within_their_table() {
        let key = |at: usize| format!("{at:03}");
        let mut regions: Vec<RegionInfo> = (0..10).map(|at| region("a", &key(at), &key(at + 1), 1)).collect();
        regions.push(region("b", "", "", 1));
        let mut traffic = KeyTraffic::default();
        traffic.push(0, regions.iter().map(|region| (region, (0, 0))));
        traffic.push(10, regions.iter().map(|region| (region, (10, 0))));
        let map = traffic.map(Range::Minutes15, 10, Requests::Reads, None, 4);
        assert_eq!(map.rows[0], row("a", "000", "003", 3));
        assert_eq!(map.rows.len(), 5);
        assert_eq!((map.values[0][89], map.values[3][89], map.values[4][89]), (3.0, 1.0, 1.0));
    }

    #[test]
    fn memory_is_bounded_and_ranges_of_closed_regions_go() {
        let mut traffic = KeyTraffic::default();
        for second in 0..40u64 {
            let regions: Vec<RegionInfo> = (0..200)
                .map(|at| region("t", &format!("{at:04}"), &format!("{:04}", at + 1), second / 2))
                .collect();
            traffic.push(second * 100_000, regions.iter().map(|region| (region, (second, 0))));
        }
        assert!(traffic.ranges.len() <= 2 * 200 + REGIONS_MAX + 200, "{}", traffic.ranges.len());
        let many: Vec<RegionInfo> =
            (0..3000).map(|at| region("u", &format!("{at:04}"), &format!("{:04}", at + 1), 1)).collect();
        let now = 50 * 100_000;
        traffic.push(now, many.iter().map(|region| (region, (0, 0))));
        traffic.push(now + 1, many.iter().enumerate().map(|(at, region)| (region, (at as u64, 0))));
        assert!(traffic.columns.all().all(|column| column.len() <= REGIONS_MAX));
        let map = traffic.map(Range::Minutes15, now + 1, Requests::All, None, 1_000_000);
        assert_eq!(map.rows.len(), ROWS_MAX);
        assert!(map.values[ROWS_MAX - 1].iter().sum::<f32>() > 0.0, "the busiest are kept");
    }
}
