//! Sequence ids up to which edits are in files, as region servers report them.
//!
//! A server that splits a WAL asks for them, and leaves out edits that are in files already. So an id that is too high loses
//! edits, and one that is too low costs time. They outlive the server that has reported them, and not the files: an operator may set a
//! damaged one aside. The ids of a region go on above those of its files, so an opening with a lower number tells of that.

use std::collections::HashMap;

use bytes::Bytes;
use halcyon_env::Mutex;
use halcyon_proto::pb;
use halcyon_schema::{META_ENCODED_NAME, RegionInfo};
use tracing::warn;

/// HBase's "no sequence id".
pub(crate) const NO_SEQ_NUM: u64 = u64::MAX;
/// Regions that are remembered. Those of the reports of an hour ago and older make room for others.
const REGIONS_MAX: usize = 1 << 20;
const KEPT_MS: i64 = 3_600_000;
const FAMILIES_MAX: usize = 1_000;
const ENCODED_NAME_LEN: usize = 32;

/// Up to where a region's edits are in its files, as its servers have reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlushedIds {
    /// `None` if it was never reported.
    pub region: Option<u64>,
    /// By family.
    pub stores: Vec<(Bytes, u64)>,
}

#[derive(Default)]
pub(crate) struct FlushedTable(Mutex<HashMap<String, Reported>>);

struct Reported {
    ids: FlushedIds,
    at_ms: i64,
}

impl FlushedTable {
    pub(crate) fn get(&self, encoded_region: &str) -> FlushedIds {
        self.0.lock().get(encoded_region).map(|reported| reported.ids.clone()).unwrap_or_default()
    }

    /// A region was closed, and its last edit is this one: all of its families have everything up to it in files.
    pub(crate) fn note_closed(&self, encoded_region: &str, id: u64, now_ms: i64) {
        if id == NO_SEQ_NUM {
            return;
        }
        let mut regions = self.0.lock();
        if regions.len() < REGIONS_MAX || regions.contains_key(encoded_region) {
            let new = || Reported { ids: FlushedIds::default(), at_ms: now_ms };
            let reported = regions.entry(encoded_region.to_string()).or_insert_with(new);
            reported.at_ms = now_ms;
            reported.ids.region = Some(reported.ids.region.map_or(id, |known| known.max(id)));
            // Who asks takes no more of the region than the lowest of its families.
            reported.ids.stores.iter_mut().for_each(|(_, known)| *known = id.max(*known));
            assert!(
                reported.ids.stores.iter().all(|(_, known)| *known >= id),
                "a region that was closed at {id} has all of its families in files up to there"
            );
        }
    }

    /// A region is open, and its edits have this id and higher ones from now on. If ids up to it or beyond are known of its files, the
    /// files that had them are gone.
    pub(crate) fn note_opened(&self, encoded_region: &str, open_seq_num: u64) {
        let mut regions = self.0.lock();
        let highest = regions.get(encoded_region).and_then(|reported| reported.ids.highest());
        if highest.is_some_and(|id| id >= open_seq_num) {
            warn!(region = encoded_region, open_seq_num, highest, "a region has fewer files than it had");
            regions.remove(encoded_region);
        }
        let left = regions.get(encoded_region).and_then(|reported| reported.ids.highest());
        assert!(
            left.is_none_or(|id| id < open_seq_num),
            "{encoded_region} gets edits from {open_seq_num} on, which a split would leave out as flushed up to {left:?}"
        );
    }

    pub(crate) fn take(&self, load: &pb::ServerLoad, now_ms: i64) {
        let mut regions = self.0.lock();
        if regions.len() + load.region_loads.len() > REGIONS_MAX {
            regions.retain(|_, reported| now_ms - reported.at_ms < KEPT_MS);
        }
        for load in &load.region_loads {
            let Some(name) = encoded_name(&load.region_specifier) else { continue };
            if let Some(reported) = regions.get_mut(name) {
                reported.at_ms = now_ms;
                reported.ids.take(load);
            } else if regions.len() < REGIONS_MAX {
                let mut ids = FlushedIds::default();
                ids.take(load);
                regions.insert(name.to_string(), Reported { ids, at_ms: now_ms });
            }
        }
        assert!(regions.len() <= REGIONS_MAX, "what reports say of regions has a limit");
    }
}

impl FlushedIds {
    fn highest(&self) -> Option<u64> {
        self.stores.iter().map(|(_, id)| *id).chain(self.region).max()
    }

    /// Ids never go back, as in HBase (`ServerManager.updateLastFlushedSequenceIds`).
    fn take(&mut self, load: &pb::RegionLoad) {
        let (before, known) = (self.region, |id: &u64| *id != NO_SEQ_NUM);
        if let Some(id) = load.complete_sequence_id.filter(known) {
            if self.region.is_some_and(|region| id < region) {
                return;
            }
            self.region = Some(id);
        }
        for store in load.store_complete_sequence_id.iter().filter(|store| known(&store.sequence_id)) {
            if let Some((_, id)) = self.stores.iter_mut().find(|(family, _)| *family == store.family_name) {
                *id = store.sequence_id.max(*id);
            } else if self.stores.len() < FAMILIES_MAX {
                // A copy: the buffer of the report need not stay.
                self.stores.push((Bytes::copy_from_slice(&store.family_name), store.sequence_id));
            }
        }
        assert!(self.region >= before, "what is in files stays there: {before:?}, and now {:?}", self.region);
        assert!(self.stores.len() <= FAMILIES_MAX, "a report does not name families without end");
    }
}

/// Of a region's name, or of its encoded name.
fn encoded_name(region: &pb::RegionSpecifier) -> Option<&str> {
    let value = &region.value[..];
    let front = value.strip_suffix(b".").unwrap_or(value);
    let encoded = match front.len().checked_sub(ENCODED_NAME_LEN) {
        Some(0) => Some(front),
        Some(at) if front[at - 1] == b'.' => Some(&front[at..]),
        _ => None,
    };
    let is_hex = |encoded: &&[u8]| encoded.iter().all(u8::is_ascii_hexdigit);
    if let Some(encoded) = encoded.filter(is_hex) {
        return std::str::from_utf8(encoded).ok();
    }
    let is_meta = value == META_ENCODED_NAME.as_bytes() || value == &RegionInfo::meta().region_name()[..];
    is_meta.then_some(META_ENCODED_NAME)
}

#[cfg(test)]
mod tests {
    use halcyon_schema::TableName;

    use super::*;

    fn load(region: &RegionInfo, id: u64, store: u64) -> pb::ServerLoad {
        let of_region = pb::RegionLoad {
            region_specifier: crate::orders::specifier(region),
            complete_sequence_id: Some(id),
            store_complete_sequence_id: vec![pb::StoreSequenceId {
                family_name: "f".into(),
                sequence_id: store,
            }],
            ..Default::default()
        };
        pb::ServerLoad { region_loads: vec![of_region], ..Default::default() }
    }

    #[test]
    fn ids_never_go_back() {
        let table = FlushedTable::default();
        let region = RegionInfo::new(TableName::parse(b"t").unwrap(), "a".into(), "b".into(), 3);
        assert_eq!(table.get(region.encoded_name()), FlushedIds::default());
        for (id, store) in [(NO_SEQ_NUM, NO_SEQ_NUM), (7, 9), (5, 20), (NO_SEQ_NUM, 8)] {
            table.take(&load(&region, id, store), 1);
        }
        let ids = FlushedIds { region: Some(7), stores: vec![("f".into(), 9)] };
        assert_eq!(table.get(region.encoded_name()), ids);
        table.take(&load(&RegionInfo::meta(), 3, 3), 1);
        assert_eq!(table.get(META_ENCODED_NAME).region, Some(3));
    }

    /// Whoever splits a WAL believes no more of the region than of the family that has the least.
    #[test]
    fn a_region_that_was_closed_has_all_of_its_families_in_files() {
        let table = FlushedTable::default();
        let region = RegionInfo::new(TableName::parse(b"t").unwrap(), "a".into(), "b".into(), 3);
        table.note_closed(region.encoded_name(), 4, 1);
        assert_eq!(table.get(region.encoded_name()), FlushedIds { region: Some(4), stores: vec![] });
        for (closed_at, expected) in [(30, 30), (20, 30), (NO_SEQ_NUM, 30)] {
            table.take(&load(&region, 7, 9), 1);
            table.note_closed(region.encoded_name(), closed_at, 1);
            let ids = FlushedIds { region: Some(expected), stores: vec![("f".into(), expected)] };
            assert_eq!(table.get(region.encoded_name()), ids, "{closed_at}");
        }
    }

    #[test]
    fn names_that_make_no_sense_are_left_out() {
        for value in [&b""[..], b".", b"t,,1", b"zz", &[0xff; 40], &[b'.'; 40]] {
            let region = pb::RegionSpecifier { r#type: 1, value: Bytes::copy_from_slice(value) };
            assert_eq!(encoded_name(&region), None, "{}", value.escape_ascii());
        }
    }
}
