//! What a call asked for, in a line for people: region, row, numbers of actions, never values.
//!
//! The message is decoded a second time, so this is for the few calls that are noted. Forms and words are those of HBase
//! (`ProtobufUtil.getSlowLogParams`).

use std::fmt::Write;

use bytes::Bytes;
use halcyon_proto::pb;
use prost::Message;

/// Bytes of a key that are shown.
const KEY_BYTES_MAX: usize = 200;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Name of the region, of a Multi the first one; empty if the call names none.
    pub region: Bytes,
    /// Empty if nothing is known beyond the method.
    pub param: String,
    /// Of a Multi: gets, mutations, calls of endpoints.
    pub actions: Option<[i32; 3]>,
    /// Of a Scan that goes on: its scanner.
    pub scanner: Option<u64>,
}

impl Asked {
    /// Of a message that cannot be decoded, or not whole, nothing is told.
    pub(crate) fn of(method: &str, param: &Bytes) -> Asked {
        let asked = match method {
            "Get" => pb::GetRequest::decode(param.clone()).map(|get| of_row(get.region, &get.get.row)),
            "Mutate" => pb::MutateRequest::decode(param.clone())
                .map(|mutate| of_row(mutate.region, mutate.mutation.row.as_deref().unwrap_or_default())),
            "Scan" => pb::ScanRequest::decode(param.clone()).map(|scan| of_scan(&scan)),
            "Multi" => pb::MultiRequest::decode(param.clone()).map(|multi| of_multi(&multi)),
            "ExecService" | "ExecRegionServerService" => {
                pb::CoprocessorServiceRequest::decode(param.clone()).map(of_endpoint)
            }
            _ => return Asked::default(),
        };
        asked.unwrap_or_default()
    }
}

fn of_row(region: pb::RegionSpecifier, row: &[u8]) -> Asked {
    let param = format!("region= {}, row= {}", name_text(&region.value), key_text(row));
    Asked { region: region.value, param, ..Asked::default() }
}

fn of_scan(request: &pb::ScanRequest) -> Asked {
    let region = request.region.as_ref().map(|region| region.value.clone()).unwrap_or_default();
    let mut parts = Vec::new();
    if !region.is_empty() {
        parts.push(format!("region= {}", name_text(&region)));
    }
    if let Some(scanner) = request.scanner_id {
        parts.push(format!("scanner_id= {scanner}"));
    }
    if let Some(scan) = &request.scan {
        for (name, row) in [("start_row", &scan.start_row), ("stop_row", &scan.stop_row)] {
            if let Some(row) = row.as_ref().filter(|row| !row.is_empty()) {
                parts.push(format!("{name}= {}", key_text(row)));
            }
        }
        if let Some(filter) = &scan.filter {
            parts.push(format!("filter= {}", filter.name));
        }
    }
    if let Some(rows) = request.number_of_rows {
        parts.push(format!("number_of_rows= {rows}"));
    }
    if request.close_scanner() {
        parts.push("close_scanner= true".to_string());
    }
    Asked { region, param: parts.join(", "), actions: None, scanner: request.scanner_id }
}

fn of_multi(request: &pb::MultiRequest) -> Asked {
    let actions = || request.region_action.iter().flat_map(|region| &region.action);
    let count = |wanted: fn(&pb::Action) -> bool| {
        i32::try_from(actions().filter(|action| wanted(action)).count()).unwrap_or(i32::MAX)
    };
    let region = request.region_action.first().map(|first| first.region.value.clone()).unwrap_or_default();
    let param = format!("region= {}, for {} action(s)", name_text(&region), actions().count());
    let counts = [
        count(|action| action.get.is_some()),
        count(|action| action.mutation.is_some()),
        count(|action| action.service_call.is_some()),
    ];
    Asked { region, param, actions: Some(counts), scanner: None }
}

fn of_endpoint(request: pb::CoprocessorServiceRequest) -> Asked {
    let param = format!("coprocessorService= {}:{}", request.call.service_name, request.call.method_name);
    Asked { region: request.region.value, param, ..Asked::default() }
}

/// As HBase prints bytes (`Bytes.toStringBinary`).
pub(crate) fn name_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'\\' => text.push_str("\\x5C"),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => write!(text, "\\x{byte:02X}").expect("a string takes every character"),
        }
    }
    text
}

fn key_text(key: &[u8]) -> String {
    let mut text = name_text(&key[..key.len().min(KEY_BYTES_MAX)]);
    if key.len() > KEY_BYTES_MAX {
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> pb::RegionSpecifier {
        pb::RegionSpecifier { r#type: 1, value: Bytes::from_static(b"t,\x00a,1.x.") }
    }

    fn asked(method: &str, message: &impl Message) -> Asked {
        let param = Bytes::from(message.encode_to_vec());
        for end in 0..param.len() {
            Asked::of(method, &param.slice(..end)); // whatever is left of it
        }
        Asked::of(method, &param)
    }

    #[test]
    fn calls_are_told_by_region_and_row() {
        let get = pb::GetRequest {
            region: region(),
            get: pb::Get { row: Bytes::from_static(b"r\xff"), ..Default::default() },
        };
        let told = asked("Get", &get);
        assert_eq!((&told.region, &*told.param), (&region().value, "region= t,\\x00a,1.x., row= r\\xFF"));
        let row = Some(Bytes::from(vec![b'k'; 300]));
        let mutation = pb::MutationProto { row, ..Default::default() };
        let mutate = pb::MutateRequest { region: region(), mutation: mutation.clone(), ..Default::default() };
        let told = asked("Mutate", &mutate);
        assert!(told.param.ends_with(&format!("row= {}...", "k".repeat(KEY_BYTES_MAX))), "{}", told.param);
        let scan = pb::ScanRequest { scanner_id: Some(9), number_of_rows: Some(10), ..Default::default() };
        let told = asked("Scan", &scan);
        assert_eq!((&*told.param, told.scanner), ("scanner_id= 9, number_of_rows= 10", Some(9)));
        let action = vec![pb::Action::of_mutation(0, mutation), pb::Action::of_get(1, get.get)];
        let region_action = pb::RegionAction { region: region(), atomic: None, action, condition: None };
        let multi = pb::MultiRequest { region_action: vec![region_action], ..Default::default() };
        let told = asked("Multi", &multi);
        assert_eq!((told.actions, &*told.param), (Some([1, 1, 0]), "region= t,\\x00a,1.x., for 2 action(s)"));
        assert_eq!(asked("Unknown", &scan), Asked::default());
    }
}
