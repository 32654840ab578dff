//! Doors for `tests/garbage.rs` to what believes no byte.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_env::Env;
use halcyon_rpc::{Codec, Compressor};
use prost::Message;
use tokio::sync::Semaphore;

use crate::proxy::calls;
use crate::proxy::directory::Directory;
use crate::proxy::frames::{Frame, FrameReader, request_parts, response_parts};
use crate::proxy::names::{self, CellForm};
use crate::proxy::wire::with_server_names;
use crate::read::{Answer, Read, ScanRead};
use crate::recording::format::{Header, MAGIC, Record, RecordedPart, VERSION, encode};
use crate::recording::reader::FileReader;

/// A recording of some reads.
pub fn recording() -> Vec<u8> {
    let table = halcyon_schema::TableName::parse(b"ns:t").expect("it is a name");
    let get = halcyon_proto::pb::Get { row: Bytes::from_static(b"row"), ..Default::default() };
    let cell = halcyon_cell::Cell::put(b"row", b"f", b"q", 1, b"value");
    let scan = ScanRead { scan: halcyon_proto::pb::Scan::default(), caching: Some(5), limit: Some(3) };
    let reads = [
        Read::Get(table.clone(), get.clone()),
        Read::Multi(vec![(table.clone(), get.clone()), (table.clone(), get)]),
        Read::Scan(table, scan),
    ];
    let header = Header { version: VERSION, has_answers: true, file: 1, ..Default::default() };
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&encode(&header).expect("it is short"));
    for (at, read) in reads.iter().enumerate() {
        let (gets, is_batch, scan) = Record::gets_of(read);
        let parts = gets.len().max(1);
        let part = RecordedPart::of(&Answer::of_cells(vec![cell.clone()], 1 << 10).parts[0], true);
        let record = Record {
            at_us: at as u64,
            gets,
            is_batch,
            scan,
            answer: vec![part; parts],
            ..Default::default()
        };
        bytes.extend_from_slice(&encode(&record).expect("it is short"));
    }
    bytes
}

/// Reads a file as a recording: how many reads are in it, or why it is none.
pub fn read_recording(path: &Path) -> Result<usize, String> {
    let mut file = FileReader::open(&Env::real(), path).map_err(|error| error.to_string())?;
    let mut count = 0;
    while let Some(recorded) = file.next().map_err(|error| error.to_string())? {
        let _ = (recorded.read.describe(), recorded.answer.cells_count());
        count += 1;
    }
    Ok(count)
}

/// The first record of a recording with other bytes, and a checksum that fits.
pub fn with_checksum(payload: &[u8]) -> Vec<u8> {
    let mut bytes = recording();
    bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(payload).to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// The payload of the last record of [`recording`].
pub fn payload() -> Vec<u8> {
    let read = Read::Scan(
        halcyon_schema::TableName::parse(b"t").expect("it is a name"),
        ScanRead { scan: halcyon_proto::pb::Scan::default(), caching: None, limit: None },
    );
    let (gets, is_batch, scan) = Record::gets_of(&read);
    let part = RecordedPart::of(&Answer::of_cells(Vec::new(), 0).parts[0], true);
    Record { gets, is_batch, scan, answer: vec![part], ..Default::default() }.encode_to_vec()
}

/// Cuts a stream into frames, and does with each what the proxy does. Returns the bytes of all frames, as they would be passed on.
pub async fn frames(stream: &[u8], frame_bytes_max: usize) -> Vec<u8> {
    let (sender, _receiver) = tokio::sync::mpsc::unbounded_channel();
    let directory = Directory::new("proxy".to_string(), std::net::IpAddr::from([127, 0, 0, 1]), 0, sender);
    let mut reader = FrameReader::new(stream, frame_bytes_max, Arc::new(Semaphore::new(frame_bytes_max)));
    let mut passed = Vec::new();
    while let Ok(Some(frame)) = reader.next().await {
        match frame {
            Frame::Whole(frame, _) => {
                look(&frame, &directory);
                passed.extend_from_slice(&frame);
            }
            Frame::Large(head, mut left) => {
                passed.extend_from_slice(&head);
                while left > 0 {
                    let Ok(piece) = reader.piece(left).await else { return passed };
                    left -= piece.len();
                    passed.extend_from_slice(&piece);
                }
            }
        }
    }
    passed
}

fn look(frame: &Bytes, directory: &Directory) {
    if let Ok(parts) = request_parts(frame) {
        let message = parts.message(frame);
        let method = calls::Method::of(parts.header.method_name(), &message);
        let _ = (method, calls::meta_actions(&message), calls::is_for_meta(&message));
        let _ = (calls::scanner_of_call(&message), calls::is_end_of_scan(&message));
    }
    let Ok(parts) = response_parts(frame) else { return };
    let (message, cells) = (parts.message(frame), parts.cells(frame));
    if let Some(exception) = &parts.header.exception {
        let _ = names::exception(exception, directory);
    }
    let mut shown = |name: &halcyon_proto::pb::ServerName| directory.meant(name);
    let _ = with_server_names(&message, names::in_answer("MasterService", "GetClusterStatus"), &mut shown);
    let _ = (names::tells_of_moves(&message), names::multi(&message, directory));
    for codec in [Codec::KeyValue, Codec::Cell, Codec::Message] {
        for compressor in [None, Some(Compressor::Gzip)] {
            let form = CellForm { codec: Some(codec), compressor };
            for method in ["Get", "Scan", "Multi"] {
                let _ = names::meta_answer(method, &message, &cells, form, &[0], directory);
            }
        }
    }
}
