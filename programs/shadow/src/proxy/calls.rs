//! What the proxy has to know of a call before it passes it on: whether it reads `hbase:meta`, whose answer names servers,
//! and whether it is a read that is to be observed. Only the beginnings of messages are looked at.

use crate::proxy::wire::{Field, bytes_field, next_field, number_field};

/// Encoded name of the region of `hbase:meta`, and how its region name begins.
const META_ENCODED: &[u8] = b"1588230740";
const META_START: &[u8] = b"hbase:meta,";
/// Region actions for `hbase:meta` in one call, at most.
const META_ACTIONS_MAX: usize = 256;

/// A method of `ClientService`, as far as the proxy tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Scan,
    /// Whose first action is a get.
    MultiGet,
    /// A write: Mutate, BulkLoadHFile, a Multi whose first action is none.
    Write,
    Other,
}

impl Method {
    pub(crate) fn of(name: &str, message: &[u8]) -> Method {
        match name {
            "Get" => Method::Get,
            "Scan" => Method::Scan,
            "Multi" => match first_action_is_get(message) {
                true => Method::MultiGet,
                false => Method::Write,
            },
            "Mutate" | "BulkLoadHFile" => Method::Write,
            _ => Method::Other,
        }
    }

    pub(crate) fn is_read(self) -> bool {
        matches!(self, Method::Get | Method::Scan | Method::MultiGet)
    }
}

/// `MultiRequest.regionAction = 1`, `RegionAction.action = 3`, `Action.get = 3`.
fn first_action_is_get(message: &[u8]) -> bool {
    let action = bytes_field(message, 1).and_then(|region_action| bytes_field(region_action, 3));
    action.is_some_and(|action| bytes_field(action, 3).is_some())
}

/// The scanner that a `ScanRequest` names; `None` of one that opens a scanner.
pub(crate) fn scanner_of_call(message: &[u8]) -> Option<u64> {
    number_field(message, 3)
}

/// The scanner of a `ScanResponse`.
pub(crate) fn scanner_of_answer(message: &[u8]) -> Option<u64> {
    number_field(message, 2)
}

/// Whether the server has closed the scanner, by a `ScanResponse`: no more results in the region, or at all.
pub(crate) fn is_end_of_scan(message: &[u8]) -> bool {
    number_field(message, 8) == Some(0) || number_field(message, 3) == Some(0)
}

/// Whether a `GetRequest` or a `ScanRequest` that opens a scanner is for `hbase:meta`.
pub(crate) fn is_for_meta(message: &[u8]) -> bool {
    bytes_field(message, 1).is_some_and(is_meta_specifier)
}

/// The numbers of the region actions of a `MultiRequest` that are for `hbase:meta`, in their order. The error ends the connection:
/// they are kept until the answer comes, and a client has one for each region.
pub(crate) fn meta_actions(message: &[u8]) -> Result<Vec<u32>, String> {
    let (mut rest, mut found, mut number_of_action) = (message, Vec::new(), 0);
    while let Some((number, field, _)) = next_field(&mut rest) {
        if let (1, Field::Bytes(region_action)) = (number, field) {
            if is_for_meta(region_action) {
                if found.len() >= META_ACTIONS_MAX {
                    return Err(format!(
                        "more than {META_ACTIONS_MAX} region actions for hbase:meta in one call"
                    ));
                }
                found.push(number_of_action);
            }
            number_of_action += 1;
        }
    }
    Ok(found)
}

/// `RegionSpecifier.value = 2`.
fn is_meta_specifier(specifier: &[u8]) -> bool {
    bytes_field(specifier, 2).is_some_and(|value| value.starts_with(META_START) || value == META_ENCODED)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use halcyon_proto::pb;
    use prost::Message;

    use super::*;

    fn region(name: &str) -> pb::RegionSpecifier {
        pb::RegionSpecifier { r#type: 1, value: Bytes::copy_from_slice(name.as_bytes()) }
    }

    #[test]
    fn reads_are_told_apart_from_writes() {
        let multi = |table: &str, action| {
            let region_action =
                pb::RegionAction { region: region(table), action: vec![action], ..Default::default() };
            pb::MultiRequest { region_action: vec![region_action], ..Default::default() }.encode_to_vec()
        };
        let get = pb::Action::of_get(0, pb::Get { row: Bytes::from_static(b"r"), ..Default::default() });
        let put = pb::Action::of_mutation(0, pb::MutationProto::default());
        assert_eq!(Method::of("Multi", &multi("t,,1", get.clone())), Method::MultiGet);
        assert_eq!(Method::of("Multi", &multi("t,,1", put)), Method::Write);
        assert_eq!(Method::of("Multi", &[0xff; 9]), Method::Write);
        assert_eq!(meta_actions(&multi("hbase:meta,,1", get.clone())).unwrap(), [0]);
        assert!(meta_actions(&multi("t,,1", get)).unwrap().is_empty());
    }

    /// A flag was kept for each region action until the answer came, whatever their number was.
    #[test]
    fn region_actions_for_meta_have_a_limit() {
        let action = |name: &str| pb::RegionAction { region: region(name), ..Default::default() };
        let of = |region_action| pb::MultiRequest { region_action, ..Default::default() }.encode_to_vec();
        let mut actions = vec![action("t,,1"); 1_000];
        (0..META_ACTIONS_MAX).for_each(|at| actions[at * 2] = action("hbase:meta,,1"));
        let found = meta_actions(&of(actions.clone())).unwrap();
        assert!(found.iter().copied().eq((0..META_ACTIONS_MAX as u32).map(|at| at * 2)));
        actions[999] = action("hbase:meta,,1");
        assert!(meta_actions(&of(actions)).unwrap_err().contains("256 region actions"));
    }

    #[test]
    fn scans_are_told_by_their_numbers() {
        let open = pb::ScanRequest {
            region: Some(region("hbase:meta,,1")),
            scan: Some(pb::Scan::default()),
            ..Default::default()
        };
        let open = open.encode_to_vec();
        assert!(is_for_meta(&open) && scanner_of_call(&open).is_none());
        let next = pb::ScanRequest { scanner_id: Some(u64::MAX), ..Default::default() }.encode_to_vec();
        assert_eq!(scanner_of_call(&next), Some(u64::MAX));
        let answer = |more_results, more_in_region| {
            let answer = pb::ScanResponse {
                cells_per_result: vec![1, 2],
                scanner_id: Some(7),
                more_results,
                more_results_in_region: more_in_region,
                ..Default::default()
            };
            answer.encode_to_vec()
        };
        assert_eq!(scanner_of_answer(&answer(Some(true), Some(true))), Some(7));
        assert!(!is_end_of_scan(&answer(Some(true), Some(true))) && !is_end_of_scan(&answer(None, None)));
        assert!(
            is_end_of_scan(&answer(Some(true), Some(false))) && is_end_of_scan(&answer(Some(false), None))
        );
    }
}
