//! Tells the class of a call from the first bytes of its message, without decoding it, and the regions that a call names.
//!
//! | call | class |
//! |---|---|
//! | marked by the client as above others, or on a region of `hbase:meta` | meta |
//! | Get | read |
//! | Scan, calls of `AggregateService` | scan |
//! | Multi | write if a quarter of its actions or more change something, else read |
//! | Mutate, calls of other endpoints, bulk loads | write |
//!
//! HBase takes a Multi with a single mutation for a write (`RWQueueRpcExecutor.isWriteRequest`). Here a few writes
//! among many gets wait where gets wait; what they may take of memory is not decided by the class.

use halcyon_rpc::{CallClass, CallHead, Fields, Value};

/// A Multi is a write if it has a mutation for every so many actions.
const ACTIONS_PER_WRITE: usize = 4;
/// How the name of the region of meta begins, and its encoded name.
pub(super) const META_NAME_START: &[u8] = b"hbase:meta,";
const META_ENCODED: &[u8] = b"1588230740";

pub(super) fn class_of(head: &CallHead<'_>) -> CallClass {
    if head.is_above_others() {
        return CallClass::Meta;
    }
    match head.method {
        "Get" => meta_or(head.param, CallClass::Read),
        "Scan" => meta_or(head.param, CallClass::Scan),
        "Multi" => multi(head.param),
        "ExecService" => meta_or(head.param, endpoint(head.param)),
        _ => meta_or(head.param, CallClass::Write),
    }
}

/// The messages of all these calls begin with the region as their first field.
fn meta_or(param: &[u8], class: CallClass) -> CallClass {
    match Fields(param).next_bytes() {
        Some((1, region)) if is_meta(region) => CallClass::Meta,
        _ => class,
    }
}

/// `CoprocessorServiceRequest { region = 1, call = 2 { service_name = 2 } }`
fn endpoint(param: &[u8]) -> CallClass {
    let calls = Fields(param).of_bytes().filter(|(field, _)| *field == 2);
    let mut parts = calls.flat_map(|(_, call)| Fields(call).of_bytes());
    let scans = parts.any(|(field, name)| field == 2 && name.ends_with(b"AggregateService"));
    if scans { CallClass::Scan } else { CallClass::Write }
}

/// `RegionSpecifier { type = 1, value = 2 }`
fn is_meta(specifier: &[u8]) -> bool {
    let mut names = Fields(specifier).of_bytes().filter(|(field, _)| *field == 2);
    names.any(|(_, name)| name.starts_with(META_NAME_START) || name == META_ENCODED)
}

/// `MultiRequest { regionAction = 1 { region = 1, action = 3 { mutation = 2 } } }`
fn multi(param: &[u8]) -> CallClass {
    let (mut actions, mut writes) = (0, 0);
    for (_, region_action) in Fields(param).of_bytes().filter(|(field, _)| *field == 1) {
        for (field, part) in Fields(region_action).of_bytes() {
            match field {
                1 if actions == 0 && is_meta(part) => return CallClass::Meta,
                3 => {
                    actions += 1;
                    writes += usize::from(Fields(part).of_bytes().any(|(field, _)| field == 2));
                }
                _ => {}
            }
        }
    }
    // Without an action: of a large one, too little has arrived to tell. Most of these are writes.
    if writes * ACTIONS_PER_WRITE >= actions { CallClass::Write } else { CallClass::Read }
}

/// Names of the regions that a call names, as it names them; of a scan that goes on, none.
pub(super) fn regions_of<'a>(method: &str, param: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let is_multi = method == "Multi";
    let names_regions =
        is_multi || matches!(method, "Get" | "Mutate" | "Scan" | "ExecService" | "BulkLoadHFile");
    let actions = Fields(if is_multi { param } else { b"" }).filter(|(field, _)| *field == 1);
    let actions = actions.map(|(_, action)| match action {
        Value::Bytes(action) => action,
        Value::Number => b"",
    });
    let single = (names_regions && !is_multi).then_some(param);
    actions.chain(single).filter_map(|message| match Fields(message).next() {
        Some((1, Value::Bytes(specifier))) => Fields(specifier).find_map(|(field, value)| match value {
            Value::Bytes(name) if field == 2 => Some(name),
            _ => None,
        }),
        _ => None,
    })
}

/// Whether a call changes rows of a table that masters read.
pub(super) fn writes_system_table(method: &str, param: &[u8]) -> bool {
    let is_of_system = |name: &[u8]| name.starts_with(b"hbase:") || name == META_ENCODED;
    matches!(method, "Mutate" | "Multi" | "ExecService") && regions_of(method, param).any(is_of_system)
}

#[cfg(test)]
mod tests {
    use halcyon_proto::pb;
    use prost::Message;

    use super::*;

    fn class(method: &str, priority: u32, message: &impl Message) -> CallClass {
        let param = message.encode_to_vec();
        // However much of it has arrived, looking at it does no harm.
        for end in 0..param.len() {
            class_of(&CallHead { method, priority, param: &param[..end] });
        }
        class_of(&CallHead { method, priority, param: &param })
    }

    fn specifier(name: &'static str) -> pb::RegionSpecifier {
        pb::RegionSpecifier { r#type: 1, value: name.into() }
    }

    fn multi_of(region: &'static str, gets: u32, puts: u32) -> pb::MultiRequest {
        let get = |index| pb::Action::of_get(index, pb::Get { row: "row".into(), ..Default::default() });
        let put = |index| {
            let mutation = pb::MutationProto { row: Some("row".into()), ..Default::default() };
            pb::Action::of_mutation(index, mutation)
        };
        let action = (0..gets).map(get).chain((gets..gets + puts).map(put)).collect();
        let region_action =
            pb::RegionAction { region: specifier(region), atomic: None, action, condition: None };
        pb::MultiRequest { region_action: vec![region_action], ..Default::default() }
    }

    #[test]
    fn writes_of_masters_are_known_by_their_table() {
        let writes = |method, message: &dyn Fn(&'static str) -> Vec<u8>| {
            let regions = ["hbase:meta,,1", "1588230740", "hbase:rsgroup,,1.x.", "t,,1.x."];
            regions.map(|region| writes_system_table(method, &message(region)))
        };
        let mutate =
            |region| pb::MutateRequest { region: specifier(region), ..Default::default() }.encode_to_vec();
        let expected = [true, true, true, false];
        assert_eq!(writes("Mutate", &mutate), expected);
        assert_eq!(writes("ExecService", &mutate), expected);
        assert_eq!(writes("Get", &mutate), [false; 4]);
        assert_eq!(writes("Multi", &|region| multi_of(region, 0, 1).encode_to_vec()), expected);
    }

    #[test]
    fn every_call_has_its_class() {
        let get = |region| pb::GetRequest { region: specifier(region), get: pb::Get::default() };
        assert_eq!(class("Get", 0, &get("t,,1.2140f686c386930b96c060b1030c2875.")), CallClass::Read);
        assert_eq!(class("Get", 0, &get("hbase:meta,,1")), CallClass::Meta);
        assert_eq!(class("Get", 0, &get("1588230740")), CallClass::Meta);
        assert_eq!(class("Get", 200, &get("t,,1.x.")), CallClass::Meta);
        assert_eq!(class("Get", 10, &get("t,,1.x.")), CallClass::Read);
        let scan = |region| pb::ScanRequest { region: Some(specifier(region)), ..Default::default() };
        assert_eq!(class("Scan", 0, &scan("t,,1.x.")), CallClass::Scan);
        assert_eq!(class("Scan", 0, &scan("hbase:meta,,1")), CallClass::Meta);
        let next = pb::ScanRequest { scanner_id: Some(7), ..Default::default() };
        assert_eq!(class("Scan", 0, &next), CallClass::Scan);
        let mutate = pb::MutateRequest { region: specifier("t,,1.x."), ..Default::default() };
        assert_eq!(class("Mutate", 0, &mutate), CallClass::Write);
        assert_eq!(class("ExecService", 0, &mutate), CallClass::Write);
        let endpoint = |service_name: &str| {
            let call =
                pb::CoprocessorServiceCall { service_name: service_name.to_string(), ..Default::default() };
            pb::CoprocessorServiceRequest { region: specifier("t,,1.x."), call }
        };
        assert_eq!(class("ExecService", 0, &endpoint("AggregateService")), CallClass::Scan);
        assert_eq!(class("ExecService", 0, &endpoint("BulkDeleteService")), CallClass::Write);
    }

    #[test]
    fn a_multi_is_what_most_of_it_is() {
        assert_eq!(class("Multi", 0, &multi_of("t,,1.x.", 100, 0)), CallClass::Read);
        assert_eq!(class("Multi", 0, &multi_of("t,,1.x.", 100, 1)), CallClass::Read);
        assert_eq!(class("Multi", 0, &multi_of("t,,1.x.", 75, 25)), CallClass::Write);
        assert_eq!(class("Multi", 0, &multi_of("t,,1.x.", 0, 3)), CallClass::Write);
        assert_eq!(class("Multi", 0, &multi_of("hbase:meta,,1", 0, 3)), CallClass::Meta);
        assert_eq!(class("Multi", 0, &pb::MultiRequest::default()), CallClass::Write);
    }

    #[test]
    fn the_regions_that_a_call_names() {
        let named = |method: &str, message: &dyn Fn() -> Vec<u8>| -> Vec<String> {
            let param = message();
            regions_of(method, &param).map(|name| String::from_utf8_lossy(name).into_owned()).collect()
        };
        let get = pb::GetRequest { region: specifier("t,,1.x."), get: pb::Get::default() };
        assert_eq!(named("Get", &|| get.encode_to_vec()), ["t,,1.x."]);
        assert!(named("CleanupBulkLoad", &|| get.encode_to_vec()).is_empty(), "its message is another one");
        let next = pb::ScanRequest { scanner_id: Some(7), ..Default::default() };
        assert!(named("Scan", &|| next.encode_to_vec()).is_empty());
        let mut multi = multi_of("t,,1.x.", 2, 1);
        multi.region_action.extend(multi_of("t,b,1.y.", 0, 1).region_action);
        assert_eq!(named("Multi", &|| multi.encode_to_vec()), ["t,,1.x.", "t,b,1.y."]);
    }

    #[test]
    fn any_bytes_have_a_class() {
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        for len in 0..200 {
            let mut param = Vec::with_capacity(len);
            for _ in 0..len {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                param.push((random >> 56) as u8);
            }
            for method in ["Get", "Scan", "Multi", "Mutate", ""] {
                class_of(&CallHead { method, priority: 0, param: &param });
                regions_of(method, &param).for_each(drop);
            }
        }
    }
}
