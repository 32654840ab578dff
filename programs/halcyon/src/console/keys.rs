//! Requests by key range against time: the key visualizer.
//!
//! Every region counts its reads and writes. Each few seconds their growth is divided among the region's segments
//! (`segments.rs`) and goes into [`Columns`]. A request for the map cuts each table's key space at every boundary that
//! a segment had in that time (`key_rows.rs`).

use std::collections::{BTreeSet, HashMap, HashSet};

use halcyon_region::KeySample;
use halcyon_schema::RegionInfo;
use serde::{Deserialize, Serialize};

use super::columns::{COLUMNS_COUNT, Columns, column_s, first_slot};
use super::key_rows::{KeyRange, Row, Rows};
use super::keys_text::key_text;
use super::segments::{Segments, only_key};
use super::timeline::Range;

/// Segments of one column. Of more, the busiest are kept. All columns together take about 10 MB at most.
const SEGMENTS_MAX: usize = 1024;
/// Hot keys that are named.
const HOT_KEYS_MAX: usize = 20;
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

/// Growth of one segment's counters.
#[derive(Clone, Copy, Default)]
struct Growth {
    reads: u32,
    writes: u32,
}

/// Growth by number of the segment.
type Column = HashMap<u32, Growth>;

/// What a region has counted since it was opened, and rows of some of its newest requests.
pub struct Requested<'r> {
    pub info: &'r RegionInfo,
    pub reads: u64,
    pub writes: u64,
    pub samples: Vec<KeySample>,
}

/// What was counted of an open region last.
struct Counted {
    segments: Segments,
    /// Of each segment: number and requests per second.
    segment_rates: Vec<(u32, Rate)>,
    at_s: u64,
    reads: u64,
    writes: u64,
    rate: Rate,
}

/// See the head of the file.
#[derive(Default)]
pub struct KeyTraffic {
    columns: Columns<Column>,
    /// By number of the segment.
    ranges: HashMap<u32, KeyRange>,
    /// By encoded name.
    counted: HashMap<String, Counted>,
    next_number: u32,
    /// Memory of the samples that the regions gave last, for which they are about to have others.
    samples_bytes: usize,
}

/// A row that has a large share of its region's requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HotKey {
    pub table: String,
    /// Escaped.
    pub key: String,
    pub reads_per_s: f64,
    pub writes_per_s: f64,
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
    /// Those of the last few seconds, the hottest first.
    pub hot_keys: Vec<HotKey>,
}

/// Growth of a counter that begins at 0 when its region is opened.
fn grown(before: u64, now: u64) -> u32 {
    let growth = if now < before { now } else { now - before };
    u32::try_from(growth).unwrap_or(u32::MAX)
}

impl KeyTraffic {
    /// Takes the counters of all open regions.
    pub fn push<'r>(&mut self, at_s: u64, regions: impl Iterator<Item = Requested<'r>>) {
        let mut growth: Vec<(u32, Growth)> = Vec::new();
        let mut open = HashSet::new();
        self.samples_bytes = 0;
        for region in regions {
            open.insert(region.info.encoded_name().to_string());
            let sample_bytes = |sample: &KeySample| sample.row.len() + size_of::<KeySample>();
            self.samples_bytes += region.samples.iter().map(sample_bytes).sum::<usize>();
            self.count(at_s, &region, &mut growth);
        }
        self.counted.retain(|name, _| open.contains(name));
        growth.sort_by_key(|(_, it)| std::cmp::Reverse(u64::from(it.reads) + u64::from(it.writes)));
        self.columns.add(at_s, |column| {
            for (number, more) in &growth {
                if column.len() < SEGMENTS_MAX || column.contains_key(number) {
                    let sum = column.entry(*number).or_default();
                    sum.reads = sum.reads.saturating_add(more.reads);
                    sum.writes = sum.writes.saturating_add(more.writes);
                }
            }
        });
        self.forget_ranges();
    }

    fn count(&mut self, at_s: u64, region: &Requested<'_>, growth: &mut Vec<(u32, Growth)>) {
        let Requested { info, reads, writes, ref samples } = *region;
        let KeyTraffic { ranges, counted, next_number, .. } = self;
        let mut number = || {
            let number = *next_number;
            *next_number += 1;
            number
        };
        let Some(before) = counted.get_mut(info.encoded_name()) else {
            let segments = Segments::whole(info.start_key(), number());
            add_ranges(ranges, info, &segments);
            let (rate, segment_rates) = (Rate::default(), Vec::new());
            let counted_now = Counted { segments, segment_rates, at_s, reads, writes, rate };
            counted.insert(info.encoded_name().to_string(), counted_now);
            return; // what it counted before is of no known time
        };
        let seconds = at_s.saturating_sub(before.at_s).max(1) as f64;
        let rate = |reads: u32, writes: u32| Rate {
            reads: f64::from(reads) / seconds,
            writes: f64::from(writes) / seconds,
        };
        if before.segments.cut(at_s, samples, &mut number) {
            add_ranges(ranges, info, &before.segments);
        }
        let (more_reads, more_writes) = (grown(before.reads, reads), grown(before.writes, writes));
        let parts = before.segments.divide(samples, more_reads, more_writes);
        before.segment_rates.clear();
        for (number, reads, writes) in parts {
            before.segment_rates.push((number, rate(reads, writes)));
            if reads > 0 || writes > 0 {
                growth.push((number, Growth { reads, writes }));
            }
        }
        before.rate = rate(more_reads, more_writes);
        (before.at_s, before.reads, before.writes) = (at_s, reads, writes);
    }

    /// Rows with requests of their own in the last few seconds.
    fn hot_keys(&self, what: Requests, table: Option<&str>) -> Vec<HotKey> {
        let rates = self.counted.values().flat_map(|counted| &counted.segment_rates);
        let hot_key = |(number, rate): &(u32, Rate)| {
            let range = self.ranges.get(number)?;
            let key = only_key(&range.start, &range.end)?;
            let is_wanted = what.of(*rate) > 0.0 && table.is_none_or(|table| range.table == table);
            let (table, key) = (range.table.clone(), key_text(key));
            is_wanted.then_some(HotKey { table, key, reads_per_s: rate.reads, writes_per_s: rate.writes })
        };
        let mut keys: Vec<HotKey> = rates.filter_map(hot_key).collect();
        let rate = |key: &HotKey| what.of(Rate { reads: key.reads_per_s, writes: key.writes_per_s });
        keys.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
        keys.truncate(HOT_KEYS_MAX);
        keys
    }

    /// Removes ranges that no open region and no column has.
    fn forget_ranges(&mut self) {
        let open = || self.counted.values().flat_map(|it| it.segments.cuts()).map(|cut| cut.number);
        if self.ranges.len() <= 2 * open().count() + SEGMENTS_MAX {
            return;
        }
        let mut used: HashSet<u32> = open().collect();
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
            + self.counted.keys().map(String::len).sum::<usize>()
            + self.counted.values().map(Counted::held_bytes).sum::<usize>();
        columns + (ranges + counted + self.samples_bytes) as u64
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
        let open = self.counted.values().flat_map(|it| it.segments.cuts()).map(|cut| cut.number);
        let numbers: BTreeSet<u32> = seen.copied().chain(open).collect();
        let ranges = numbers.iter().filter_map(|number| Some((*number, self.ranges.get(number)?)));
        let ranges: Vec<(u32, &KeyRange)> = ranges.filter(|(_, range)| is_wanted(range)).collect();
        let rows = Rows::of(&ranges);
        let rows_max = rows_max.clamp(1, ROWS_MAX);
        let joined = rows.joined(rows_max);
        let step_s = column_s(range);
        let mut values = vec![vec![0.0f32; COLUMNS_COUNT]; joined.rows.len()];
        for (number, range) in &ranges {
            let shares = joined.shares(rows.covered(range));
            for (at, column) in &columns {
                let Some(growth) = column.get(number) else { continue };
                let rate = Rate { reads: f64::from(growth.reads), writes: f64::from(growth.writes) };
                let per_s = what.of(rate) / step_s as f64;
                for (row, share) in &shares {
                    values[*row][*at] += (per_s * share) as f32;
                }
            }
        }
        let largest = values.iter().flatten().copied().fold(0.0, f32::max);
        let first_s = first_slot(range, now_s) * step_s as i64;
        let hot_keys = self.hot_keys(what, table);
        KeyMap { first_s, step_s, columns: COLUMNS_COUNT, rows: joined.rows, values, largest, hot_keys }
    }
}

impl Requests {
    fn of(self, rate: Rate) -> f64 {
        match self {
            Requests::Reads => rate.reads,
            Requests::Writes => rate.writes,
            Requests::All => rate.reads + rate.writes,
        }
    }
}

impl Counted {
    fn held_bytes(&self) -> usize {
        self.segments.held_bytes() + self.segment_rates.capacity() * size_of::<(u32, Rate)>()
    }
}

/// Adds the ranges of a region's segments by their numbers.
fn add_ranges(ranges: &mut HashMap<u32, KeyRange>, info: &RegionInfo, segments: &Segments) {
    for cut in segments.cuts() {
        ranges.entry(cut.number).or_insert_with(|| KeyRange {
            table: info.table().to_string(),
            start: cut.start.to_vec(),
            end: cut.end.unwrap_or(info.end_key()).to_vec(),
        });
    }
}

/// Memory of a hash map that has room for so many entries: seven of eight places may be used, and each has one more byte.
fn map_bytes<K, V>(capacity: usize) -> usize {
    capacity * 8 / 7 * (size_of::<(K, V)>() + 1)
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

    /// Regions without samples: reads and writes.
    fn push<'r>(
        traffic: &mut KeyTraffic,
        at_s: u64,
        regions: impl IntoIterator<Item = (&'r RegionInfo, (u64, u64))>,
    ) {
        let requested = |(info, (reads, writes))| Requested { info, reads, writes, samples: Vec::new() };
        traffic.push(at_s, regions.into_iter().map(requested));
    }

    fn row(table: &str, start: &str, end: &str, ranges: usize) -> Row {
        Row {
            table: table.to_string(),
            start: start.to_string(),
            end: end.to_string(),
            ranges,
            is_one_key: false,
        }
    }

    /// Every column of every range has as many regions as it takes.
    #[test]
    fn memory_is_bounded_and_counted() {
        let regions: Vec<RegionInfo> = (0..2 * SEGMENTS_MAX)
            .map(|at| region("t", &format!("{at:05}"), &format!("{:05}", at + 1), 1))
            .collect();
        let mut traffic = KeyTraffic::default();
        let push_all = |traffic: &mut KeyTraffic, second: u64| {
            push(traffic, second, regions.iter().map(|region| (region, (second, second))));
        };
        let in_range = |range: Range| {
            let step_s = column_s(range);
            (0..COLUMNS_COUNT as u64).map(move |at| 86_400 - range.seconds() + at * step_s)
        };
        let seconds: BTreeSet<u64> = Range::ALL.into_iter().flat_map(in_range).collect();
        push_all(&mut traffic, 0);
        let without_columns = traffic.held_bytes();
        seconds.into_iter().for_each(|second| push_all(&mut traffic, second + 1));
        let columns = traffic.held_bytes() - without_columns;
        let least = (Range::COUNT * (COLUMNS_COUNT - 1) * SEGMENTS_MAX * 12) as u64;
        assert!((least..11_000_000).contains(&columns), "{columns}");
    }

    #[test]
    fn growth_is_a_rate_in_its_column_and_the_first_count_is_none() {
        let (a, b) = (region("t", "", "m", 1), region("t", "m", "", 2));
        let mut traffic = KeyTraffic::default();
        push(&mut traffic, 0, [(&a, (1000, 5)), (&b, (0, 0))]);
        push(&mut traffic, 10, [(&a, (1100, 5)), (&b, (0, 50))]);
        assert_eq!(traffic.rate(a.encoded_name()), Rate { reads: 10.0, writes: 0.0 });
        let map = traffic.map(Range::Minutes15, 10, Requests::All, None, 100);
        assert_eq!(map.rows, [row("t", "", "m", 1), row("t", "m", "", 1)]);
        assert_eq!((map.values[0][89], map.values[1][89], map.largest), (10.0, 5.0, 10.0));
        assert_eq!(map.first_s, -880);
        let writes = traffic.map(Range::Minutes15, 10, Requests::Writes, None, 100);
        assert_eq!((writes.values[0][89], writes.values[1][89]), (0.0, 5.0));
        push(&mut traffic, 20, [(&a, (30, 0)), (&b, (0, 50))]);
        assert_eq!(traffic.rate(a.encoded_name()).reads, 3.0, "a counter that begins anew");
    }

    #[test]
    fn a_parent_and_its_daughters_share_rows() {
        let (parent, left, right) =
            (region("t", "", "", 1), region("t", "", "k", 2), region("t", "k", "", 3));
        let mut traffic = KeyTraffic::default();
        push(&mut traffic, 0, [(&parent, (0, 0))]);
        push(&mut traffic, 10, [(&parent, (100, 0))]);
        push(&mut traffic, 20, [(&left, (0, 0)), (&right, (0, 0))]);
        push(&mut traffic, 30, [(&left, (0, 0)), (&right, (40, 0))]);
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
        push(&mut traffic, 0, regions.iter().map(|region| (region, (0, 0))));
        push(&mut traffic, 10, regions.iter().map(|region| (region, (10, 0))));
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
            push(&mut traffic, second * 100_000, regions.iter().map(|region| (region, (second, 0))));
        }
        assert!(traffic.ranges.len() <= 2 * 200 + SEGMENTS_MAX + 200, "{}", traffic.ranges.len());
        let many: Vec<RegionInfo> =
            (0..3000).map(|at| region("u", &format!("{at:04}"), &format!("{:04}", at + 1), 1)).collect();
        let now = 50 * 100_000;
        push(&mut traffic, now, many.iter().map(|region| (region, (0, 0))));
        push(&mut traffic, now + 1, many.iter().enumerate().map(|(at, region)| (region, (at as u64, 0))));
        assert!(traffic.columns.all().all(|column| column.len() <= SEGMENTS_MAX));
        let map = traffic.map(Range::Minutes15, now + 1, Requests::All, None, 1_000_000);
        assert_eq!(map.rows.len(), ROWS_MAX);
        assert!(map.values[ROWS_MAX - 1].iter().sum::<f32>() > 0.0, "the busiest are kept");
    }
}
