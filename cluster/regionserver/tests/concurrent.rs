//! Many clients at once, while the region is flushed, compacted, closed and opened under them.

use crate::common;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::Lab;
use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_env::{Env, spawn_thread};
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::MutationType;

const CLIENTS: usize = 4;
const ROUNDS: u64 = 8000;
const ROWS: u64 = 5;
/// Flushes between two compactions. Without them each flush adds a file, and reads become slower and slower.
const COMPACTED_EACH: u32 = 20;

/// Asks for a compaction, which runs beside the clients. Nobody else closes the region.
fn compact(lab: &Lab) {
    let request = pb::CompactRegionRequest { region: lab.specifier(), major: Some(true), family: None };
    lab.admin::<pb::CompactRegionResponse>("CompactRegion", &request).unwrap();
}

fn increment(lab: &Lab, row: u64, nonce: u64) -> bool {
    let mutation = pb::MutationProto { nonce: Some(nonce), ..common::mutation(MutationType::Increment, 1) };
    let row = format!("n{row}");
    let cell = Cell::put(row.as_bytes(), b"f", b"n", i64::MAX, &1i64.to_be_bytes());
    match lab.mutate(mutation, vec![cell]) {
        Ok(_) => true,
        Err(error) if error.class.ends_with(".NotServingRegionException") => false,
        Err(error) if error.class.ends_with(".RegionOpeningException") => false,
        Err(error) => panic!("{error}"),
    }
}

/// One client: increments with nonces (each sent twice now and then), and puts of its own row in a Multi.
fn client(lab: &Lab, number: u64, sum: &AtomicU64) {
    for round in 0..ROUNDS {
        let nonce = number * ROUNDS + round + 1;
        let row = round % ROWS;
        while !increment(lab, row, nonce) {
            std::thread::yield_now();
        }
        sum.fetch_add(1, Ordering::SeqCst);
        if round % 7 == 0 {
            increment(lab, row, nonce); // a retry of what was done
        }
        let own = format!("c{number}");
        let cell = Cell::put(own.as_bytes(), b"f", b"q", i64::MAX, round.to_string().as_bytes());
        let read = pb::Get { row: own.clone().into(), ..Default::default() };
        let action = pb::RegionAction {
            region: lab.specifier(),
            atomic: None,
            action: vec![pb::Action::of_mutation(0, common::put(1)), pb::Action::of_get(1, read)],
            condition: None,
        };
        let request = pb::MultiRequest { region_action: vec![action], ..Default::default() };
        let (response, cells) = lab.call::<pb::MultiResponse>("Multi", &request, vec![cell]).unwrap();
        let result = &response.region_action_result[0];
        let failed = result.exception.is_some()
            || result.result_or_exception.iter().any(|entry| entry.exception.is_some());
        if !failed {
            assert_eq!(common::text(&cells), [round.to_string()], "what was written is read");
        }
    }
}

/// Scans count every row once, whatever goes on.
fn scan(lab: &Lab) {
    let scan = pb::Scan { start_row: Some("n".into()), ..Default::default() };
    let Ok((mut response, mut cells)) = lab.scan(&lab.open(2, scan)) else { return };
    let mut rows: Vec<Bytes> = Vec::new();
    for seq in 0.. {
        rows.extend(cells.iter().map(|cell| Bytes::copy_from_slice(cell.row())));
        if !response.more_results_in_region() {
            assert!(rows.windows(2).all(|pair| pair[0] < pair[1]), "{rows:?}");
            return;
        }
        let next = pb::ScanRequest {
            scanner_id: response.scanner_id,
            number_of_rows: Some(2),
            next_call_seq: Some(seq),
            client_handles_partials: Some(true),
            client_handles_heartbeats: Some(true),
            ..Default::default()
        };
        match lab.scan(&next) {
            Ok(answer) => (response, cells) = answer,
            Err(error) => {
                let known = ["NotServingRegionException", "UnknownScannerException", "ScannerResetException"];
                assert!(known.iter().any(|name| error.class.ends_with(name)), "{error}");
                return;
            }
        }
    }
}

#[test]
fn increments_count_once_whatever_happens_to_the_region() {
    let lab = Arc::new(Lab::new());
    let sum = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS as u64)
        .map(|number| {
            let (lab, sum) = (lab.clone(), sum.clone());
            spawn_thread("client", move || client(&lab, number, &sum)).unwrap()
        })
        .collect();
    let scanner = {
        let (lab, done) = (lab.clone(), done.clone());
        let body = move || {
            while !done.load(Ordering::SeqCst) {
                scan(&lab);
            }
        };
        spawn_thread("scanner", body).unwrap()
    };
    let keeper = {
        let (lab, done) = (lab.clone(), done.clone());
        let body = move || {
            let name = lab.info.encoded_name().to_string();
            for turn in 0_u32.. {
                if done.load(Ordering::SeqCst) {
                    assert!(turn > COMPACTED_EACH, "{turn} flushes");
                    return;
                }
                lab.server.flush_region(&name, &[]).unwrap();
                if turn % 3 == 2 {
                    lab.server.close_region(&name, false).unwrap();
                    lab.server.open_region(&lab.info, &common::table().into()).unwrap();
                }
                if turn % COMPACTED_EACH == 0 {
                    compact(&lab);
                }
                lab.clock.advance(std::time::Duration::from_millis(1));
                Env::real().clock.sleep(std::time::Duration::from_millis(2));
            }
        };
        spawn_thread("keeper", body).unwrap()
    };
    for client in clients {
        client.join().unwrap();
    }
    done.store(true, Ordering::SeqCst);
    scanner.join().unwrap();
    keeper.join().unwrap();
    let stored: u64 = (0..ROWS)
        .map(|row| {
            let (_, cells) = lab.get(common::get(&format!("n{row}"))).unwrap();
            u64::from_be_bytes(cells[0].value().try_into().unwrap())
        })
        .sum();
    assert_eq!(stored, sum.load(Ordering::SeqCst));
    assert_eq!(stored, CLIENTS as u64 * ROUNDS);
}
