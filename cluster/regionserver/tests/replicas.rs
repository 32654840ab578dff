//! Copies of a region for reads: what a client gets of them.
#![allow(clippy::disallowed_methods)] // the clock of the tests themselves

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{Lab, class, get, put, rows, table, text};
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, TableDescriptor};

fn replicated() -> Arc<TableDescriptor> {
    table().with("REGION_REPLICATION", "2").into()
}

/// A server that has a region and its copy. Calls go to the copy.
fn lab(descriptor: Arc<TableDescriptor>) -> (Lab, RegionInfo) {
    let mut lab = Lab::new();
    let primary = lab.info.clone();
    lab.server.close_region(primary.encoded_name(), false).unwrap();
    lab.server.open_region(&primary, &descriptor).unwrap();
    lab.put("a", "q", "one");
    lab.server.flush_region(primary.encoded_name(), &[]).unwrap();
    lab.info = primary.replica(1);
    lab.server.open_region(&lab.info, &descriptor).unwrap();
    (lab, primary)
}

fn put_at_primary(lab: &mut Lab, primary: &RegionInfo, row: &str, value: &str) {
    let copy = std::mem::replace(&mut lab.info, primary.clone());
    lab.put(row, "q", value);
    lab.info = copy;
}

fn await_row(lab: &Lab, row: &str, value: &str) {
    let begun = Instant::now();
    while lab.row(row) != [value] {
        assert!(begun.elapsed() < Duration::from_secs(20), "{row}: {:?}", lab.row(row));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn answers_of_a_copy_are_stale() {
    let (mut lab, primary) = lab(replicated());
    let (result, cells) = lab.get(get("a")).unwrap();
    assert_eq!((result.stale, text(&cells)), (Some(true), vec!["one".to_string()]));
    assert_eq!(lab.get(get("none")).unwrap().0.stale, Some(true), "also where there is nothing");
    let exists = pb::Get { existence_only: Some(true), ..get("a") };
    let found = lab.get(exists).unwrap().0;
    assert_eq!((found.exists, found.stale), (Some(true), Some(true)));
    let scan = lab.open(10, pb::Scan::default());
    let (response, cells) = lab.scan(&scan).unwrap();
    assert_eq!((response.stale, rows(&cells)), (Some(true), vec!["a".to_string()]));
    let action = pb::Action { index: Some(0), get: Some(Box::new(get("a"))), ..Default::default() };
    let multi = |region: pb::RegionSpecifier| {
        let action = pb::RegionAction { region, action: vec![action.clone()], ..Default::default() };
        let request = pb::MultiRequest { region_action: vec![action], ..Default::default() };
        let (response, _) = lab.call::<pb::MultiResponse>("Multi", &request, Vec::new()).unwrap();
        response.region_action_result[0].result_or_exception[0].result.clone().unwrap().stale
    };
    let of_copy = lab.specifier();
    let of_primary = pb::RegionSpecifier { value: primary.region_name().clone(), ..of_copy.clone() };
    assert_eq!((multi(of_copy), multi(of_primary)), (Some(true), Some(false)));
    lab.info = primary;
    assert_eq!(lab.get(get("a")).unwrap().0.stale, Some(false));
    assert_eq!(lab.scan(&lab.open(10, pb::Scan::default())).unwrap().0.stale, Some(false));
}

#[test]
fn a_copy_takes_no_writes() {
    let (lab, _) = lab(replicated());
    let cell = Cell::put(b"b", b"f", b"q", i64::MAX, b"v");
    let refused = lab.mutate(put(1), vec![cell]);
    assert!(refused.as_ref().is_err_and(|error| error.message.contains("region is read only")));
    assert_eq!(class(refused), "DoNotRetryIOException");
    let request = pb::GetRegionInfoRequest { region: lab.specifier(), ..Default::default() };
    let info: pb::GetRegionInfoResponse = lab.admin("GetRegionInfo", &request).unwrap();
    assert_eq!((info.splittable, info.mergeable), (Some(false), Some(false)));
}

/// Where the primary is open in the same server, a flush is enough.
#[test]
fn a_copy_follows_the_flushes_of_its_neighbour() {
    let (mut lab, primary) = lab(replicated());
    put_at_primary(&mut lab, &primary, "b", "two");
    assert_eq!(lab.row("b"), Vec::<String>::new());
    lab.server.flush_region(primary.encoded_name(), &[]).unwrap();
    await_row(&lab, "b", "two");
}

/// The primary does not say that it has copies, as if it were open in another server.
#[test]
fn a_copy_looks_for_files_from_time_to_time() {
    let (mut lab, primary) = lab(table().into());
    put_at_primary(&mut lab, &primary, "b", "two");
    lab.server.flush_region(primary.encoded_name(), &[]).unwrap();
    assert_eq!(lab.row("b"), Vec::<String>::new());
    let begun = Instant::now();
    while lab.row("b").is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the copy does not look");
        lab.clock.advance(lab.server.settings().file_refresh_period);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(lab.row("b"), ["two"]);
}

/// A copy is told from its region: neither answers for the other.
#[test]
fn a_closed_copy_is_not_served_by_its_region() {
    let (mut lab, primary) = lab(replicated());
    lab.server.close_region(lab.info.encoded_name(), false).unwrap();
    assert_eq!(class(lab.get(get("a"))), "NotServingRegionException");
    lab.info = primary;
    assert_eq!(lab.row("a"), ["one"]);
}
