//! Names of servers in calls and answers: where they are, and what becomes of them.
//!
//! Clients learn servers from the registry, from `hbase:meta`, from the master's list of servers, and from an exception that
//! says where a region has moved. They send names back in calls to the master.

use bytes::{Bytes, BytesMut};
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_rpc::{Codec, Compressor, decode_cells, encode_cell};
use prost::Message;

use crate::proxy::directory::Directory;
use crate::proxy::wire::Path;

/// Uncompressed bytes of a cell block that is looked into.
pub(crate) const CELLS_BYTES_MAX: usize = 64 << 20;
const MOVED: &str = "RegionMovedException";
const HOST_KEY: &str = "hostname=";
const PORT_KEY: &str = " port=";

/// Paths to server names in the answer to a method.
pub(crate) fn in_answer(service: &str, method: &str) -> &'static [Path] {
    match (service, method) {
        ("ClientMetaService", "GetActiveMaster") => &[&[1]],
        ("ClientMetaService", "GetMasters") => &[&[1, 1]],
        ("ClientMetaService", "GetMetaRegionLocations") => &[&[1, 2]],
        ("ClientMetaService", "GetBootstrapNodes") | ("BootstrapNodeService", "GetAllBootstrapNodes") => {
            &[&[1]]
        }
        // live and dead servers, master, backup masters, names, and the unknown or decommissioned ones
        ("MasterService", "GetClusterStatus") => {
            &[&[1, 2, 1], &[1, 3], &[1, 7], &[1, 8], &[1, 11], &[1, 14], &[1, 15]]
        }
        ("MasterService", "ListDecommissionedRegionServers" | "ClearDeadServers") => &[&[1]],
        _ => &[],
    }
}

/// Paths to server names in a call.
pub(crate) fn in_call(service: &str, method: &str) -> &'static [Path] {
    match (service, method) {
        ("MasterService", "MoveRegion") => &[&[2]],
        ("MasterService", "DecommissionRegionServers" | "RecommissionRegionServer" | "ClearDeadServers")
        | ("HbckService", "ScheduleServerCrashProcedure") => &[&[1]],
        _ => &[],
    }
}

/// An exception as clients get it. `None`: as it is.
pub(crate) fn exception(
    sent: &pb::ExceptionResponse,
    directory: &Directory,
) -> Option<pb::ExceptionResponse> {
    if !sent.exception_class_name().ends_with(MOVED) {
        return None;
    }
    let mut shown = sent.clone();
    shown.stack_trace =
        sent.stack_trace.as_deref().and_then(|trace| moved_text(trace, directory)).or(shown.stack_trace);
    if let (Some(host), Some(port)) = (&sent.hostname, sent.port.and_then(|port| u16::try_from(port).ok()))
        && let Some(own) = directory.port_of(host, port)
    {
        (shown.hostname, shown.port) = (Some(directory.host().to_string()), Some(own.into()));
    }
    Some(shown)
}

/// `... hostname=<host> port=<port> startCode=<code>. ...`, as `RegionMovedException` writes it and reads it.
fn moved_text(text: &str, directory: &Directory) -> Option<String> {
    let host_at = text.find(HOST_KEY)? + HOST_KEY.len();
    let host_end = host_at + text[host_at..].find(' ')?;
    let rest = text[host_end..].strip_prefix(PORT_KEY)?;
    let port_end = rest.find(|digit: char| !digit.is_ascii_digit())?;
    let (host, port) = (&text[host_at..host_end], rest[..port_end].parse().ok()?);
    let own = directory.port_of(host, port)?;
    Some(format!("{}{}{PORT_KEY}{own}{}", &text[..host_at], directory.host(), &rest[port_end..]))
}

/// Whether the answer to a `Multi` may say where a region has moved.
pub(crate) fn tells_of_moves(message: &[u8]) -> bool {
    let needle = MOVED.as_bytes();
    message.len() > needle.len() && message.windows(needle.len()).any(|window| window == needle)
}

/// The answer to a `Multi` with exceptions as clients get them.
pub(crate) fn multi(message: &Bytes, directory: &Directory) -> Option<Bytes> {
    let mut response = pb::MultiResponse::decode(message.clone()).ok()?;
    let mut is_changed = false;
    let mut change = |pair: &mut Option<pb::NameBytesPair>| {
        let Some(pair) = pair.as_mut().filter(|pair| pair.name.ends_with(MOVED)) else { return };
        let text = pair.value.as_deref().and_then(|value| std::str::from_utf8(value).ok());
        if let Some(shown) = text.and_then(|text| moved_text(text, directory)) {
            pair.value = Some(shown.into());
            is_changed = true;
        }
    };
    for result in &mut response.region_action_result {
        change(&mut result.exception);
        result.result_or_exception.iter_mut().for_each(|one| change(&mut one.exception));
    }
    is_changed.then(|| response.encode_to_vec().into())
}

/// How cells come on a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellForm {
    pub(crate) codec: Option<Codec>,
    pub(crate) compressor: Option<Compressor>,
}

impl CellForm {
    /// The cells of a block. The error says what is wrong with it.
    pub(crate) fn decode(self, block: &Bytes) -> Result<Vec<Cell>, String> {
        if block.is_empty() {
            return Ok(Vec::new());
        }
        let codec = self.codec.ok_or("a cell block without a codec")?;
        let raw = match self.compressor {
            Some(compressor) => {
                compressor.decompress(block, CELLS_BYTES_MAX).map_err(|error| error.to_string())?
            }
            None => block.clone(),
        };
        decode_cells(codec, raw).map_err(|error| error.to_string())
    }

    fn encode(self, cells: &[Cell]) -> Bytes {
        let mut block = BytesMut::new();
        if let Some(codec) = self.codec {
            cells.iter().for_each(|cell| encode_cell(codec, cell.get(), &mut block));
        }
        match self.compressor {
            Some(compressor) if !block.is_empty() => compressor.compress(&block),
            _ => block.freeze(),
        }
    }
}

/// The answer to a read of `hbase:meta` as clients get it: message and cell block. `None`: as it is.
///
/// Of a `Multi` the region actions with these numbers are for meta; other reads are for meta as a whole.
pub(crate) fn meta_answer(
    method: &str,
    message: &Bytes,
    block: &Bytes,
    form: CellForm,
    of_meta_actions: &[u32],
    directory: &Directory,
) -> Result<Option<(Bytes, Bytes)>, String> {
    let mut cells = form.decode(block)?;
    let malformed = |error: prost::DecodeError| error.to_string();
    let mut is_changed = false;
    let mut inline = |results: &mut [pb::Result]| {
        for cell in results.iter_mut().flat_map(|result| &mut result.cell) {
            let value = shown_value(
                cell.family.as_deref().unwrap_or_default(),
                cell.qualifier.as_deref().unwrap_or_default(),
                cell.value.as_deref().unwrap_or_default(),
                directory,
            );
            if let Some(value) = value {
                cell.value = Some(value.into());
                is_changed = true;
            }
        }
    };
    let mut of_meta = vec![true; cells.len()];
    let changed_message: Bytes = match method {
        "Get" => {
            let mut response = pb::GetResponse::decode(message.clone()).map_err(malformed)?;
            inline(response.result.as_mut_slice());
            response.encode_to_vec().into()
        }
        "Scan" => {
            let mut response = pb::ScanResponse::decode(message.clone()).map_err(malformed)?;
            inline(&mut response.results);
            response.encode_to_vec().into()
        }
        _ => {
            let mut response = pb::MultiResponse::decode(message.clone()).map_err(malformed)?;
            let mut at = 0usize;
            for (nth, action) in response.region_action_result.iter_mut().enumerate() {
                let is_meta = u32::try_from(nth).is_ok_and(|nth| of_meta_actions.binary_search(&nth).is_ok());
                for result in action.result_or_exception.iter_mut().filter_map(|one| one.result.as_mut()) {
                    if is_meta {
                        inline(std::slice::from_mut(result));
                    }
                    let count = usize::try_from(result.associated_cell_count()).unwrap_or(0);
                    let end = at.saturating_add(count).min(of_meta.len());
                    of_meta[at..end].fill(is_meta);
                    at = end;
                }
            }
            response.encode_to_vec().into()
        }
    };
    let mut are_cells_changed = false;
    for (cell, _) in cells.iter_mut().zip(of_meta).filter(|(_, of_meta)| *of_meta) {
        if let Some(value) = shown_value(cell.family(), cell.qualifier(), cell.value(), directory) {
            let (row, family, qualifier) = (cell.row(), cell.family(), cell.qualifier());
            *cell = Cell::build(
                row,
                family,
                qualifier,
                cell.timestamp(),
                cell.cell_type(),
                value.as_bytes(),
                cell.tags(),
                cell.seq(),
            );
            are_cells_changed = true;
        }
    }
    Ok(match (is_changed, are_cells_changed) {
        (false, false) => None,
        (message_changed, cells_changed) => {
            let message = if message_changed { changed_message } else { message.clone() };
            Some((message, if cells_changed { form.encode(&cells) } else { block.clone() }))
        }
    })
}

/// A value of a column of `hbase:meta` that names a server: `info:server` is `host:port`, `info:sn` is
/// `host,port,startcode`; those of replicas end with `_` and a number (HBase: `CatalogFamilyFormat`).
fn shown_value(family: &[u8], qualifier: &[u8], value: &[u8], directory: &Directory) -> Option<String> {
    if family != b"info" {
        return None;
    }
    let name = qualifier.split(|byte| *byte == b'_').next()?;
    let value = std::str::from_utf8(value).ok()?;
    match name {
        b"server" => directory.shown_address(value),
        b"sn" => {
            let (address, start_code) = value.rsplit_once(',')?;
            let (host, port) = address.rsplit_once(',')?;
            let shown = directory.shown_address(&format!("{host}:{port}"))?;
            Some(format!("{},{start_code}", shown.replacen(':', ",", 1)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn directory() -> Directory {
        let (sender, _receiver) = tokio::sync::mpsc::unbounded_channel();
        Directory::new("proxy".to_string(), IpAddr::from([127, 0, 0, 1]), 0, sender)
    }

    fn meta_cells() -> Vec<Cell> {
        let put = |qualifier: &str, value: &str| {
            Cell::put(b"t,,1.abc.", b"info", qualifier.as_bytes(), 5, value.as_bytes())
        };
        vec![
            put("regioninfo", "x"),
            put("server", "rs1:16020"),
            put("serverstartcode", "12345678"),
            put("sn", "rs1,16020,9"),
        ]
    }

    #[test]
    fn rows_of_meta_name_ports_of_the_proxy() {
        let directory = directory();
        for form in [
            CellForm { codec: Some(Codec::KeyValue), compressor: None },
            CellForm { codec: Some(Codec::Message), compressor: Some(Compressor::Gzip) },
        ] {
            let block = form.encode(&meta_cells());
            let message: Bytes =
                pb::ScanResponse { cells_per_result: vec![4], ..Default::default() }.encode_to_vec().into();
            let (same, changed) =
                meta_answer("Scan", &message, &block, form, &[], &directory).unwrap().unwrap();
            assert_eq!(same, message);
            let cells = form.decode(&changed).unwrap();
            let own = directory.port_of("rs1", 16020).unwrap();
            let values: Vec<_> =
                cells.iter().map(|cell| String::from_utf8_lossy(cell.value()).into_owned()).collect();
            assert_eq!(values, ["x", &format!("proxy:{own}"), "12345678", &format!("proxy,{own},9")]);
            assert!(cells.iter().all(|cell| cell.timestamp() == 5));
        }
    }

    #[test]
    fn a_multi_for_two_tables_changes_meta_alone() {
        let directory = directory();
        let form = CellForm { codec: Some(Codec::KeyValue), compressor: None };
        let user = Cell::put(b"r", b"info", b"server", 1, b"rs1:16020");
        let result = |count| pb::RegionActionResult {
            result_or_exception: vec![pb::ResultOrException {
                index: Some(0),
                result: Some(pb::Result { associated_cell_count: Some(count), ..Default::default() }),
                ..Default::default()
            }],
            ..Default::default()
        };
        let message =
            pb::MultiResponse { region_action_result: vec![result(1), result(4)], ..Default::default() };
        let block = form.encode(&[vec![user.clone()], meta_cells()].concat());
        let message: Bytes = message.encode_to_vec().into();
        let (_, changed) = meta_answer("Multi", &message, &block, form, &[1], &directory).unwrap().unwrap();
        let cells = form.decode(&changed).unwrap();
        assert_eq!(cells[0], user);
        assert_ne!(cells[2].value(), b"rs1:16020");
    }

    #[test]
    fn a_region_that_moved_is_behind_the_proxy_too() {
        let directory = directory();
        let text = "org.apache.hadoop.hbase.exceptions.RegionMovedException: Region moved to: hostname=rs2 port=16021 startCode=77. As of locationSeqNum=3.";
        let sent = pb::ExceptionResponse {
            exception_class_name: Some("org.apache.hadoop.hbase.exceptions.RegionMovedException".to_string()),
            stack_trace: Some(text.to_string()),
            hostname: Some("rs2".to_string()),
            port: Some(16021),
            ..Default::default()
        };
        let shown = exception(&sent, &directory).unwrap();
        let own = directory.port_of("rs2", 16021).unwrap();
        assert!(
            shown
                .stack_trace()
                .contains(&format!("hostname=proxy port={own} startCode=77. As of locationSeqNum=3."))
        );
        assert_eq!((shown.hostname(), shown.port()), ("proxy", i32::from(own)));
        let other =
            pb::ExceptionResponse { exception_class_name: Some("x.IOException".to_string()), ..sent.clone() };
        assert!(exception(&other, &directory).is_none());
        let pair =
            pb::NameBytesPair { name: sent.exception_class_name().to_string(), value: Some(text.into()) };
        let result = pb::RegionActionResult { exception: Some(pair), ..Default::default() };
        let message: Bytes = pb::MultiResponse { region_action_result: vec![result], ..Default::default() }
            .encode_to_vec()
            .into();
        assert!(tells_of_moves(&message) && !tells_of_moves(b"RegionMovedExceptio"));
        let changed = multi(&message, &directory).unwrap();
        assert!(String::from_utf8_lossy(&changed).contains("hostname=proxy"));
    }
}
