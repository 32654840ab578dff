//! Deletes of rows in a table with many families: each brings its key once and writes it for each of them.

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::MutationType;
use halcyon_schema::{FamilyDescriptor, RegionInfo, TableDescriptor, TableName};

use crate::common::{Lab, mutation};

const FAMILIES_COUNT: usize = 40;

/// A server with a region of such a table.
fn lab() -> (Lab, pb::RegionSpecifier) {
    let lab = Lab::new();
    let table = (0..FAMILIES_COUNT)
        .map(|at| FamilyDescriptor::new(format!("f{at}")).unwrap())
        .fold(TableDescriptor::new(TableName::parse(b"wide").unwrap()), TableDescriptor::with_family);
    let info = RegionInfo::new(table.name().clone(), Bytes::new(), Bytes::new(), 2);
    lab.server.region_files().create_region_files(&info, &table).unwrap();
    lab.server.open_region(&info, &table.into()).unwrap();
    let region = pb::RegionSpecifier { r#type: 1, value: info.region_name().clone() };
    (lab, region)
}

fn delete(first: usize, row_len: usize) -> pb::MutationProto {
    let row = format!("{first:0row_len$}").into_bytes().into();
    pb::MutationProto { row: Some(row), associated_cell_count: None, ..mutation(MutationType::Delete, 0) }
}

/// How many calls went to the pool meanwhile, in the best of three attempts: a call whose log another thread writes at that moment goes there too.
fn least_pooled(lab: &Lab, calls: &dyn Fn()) -> u64 {
    let pooled = |_| {
        let before = lab.server.counters.pooled.get();
        calls();
        lab.server.counters.pooled.get() - before
    };
    (0..3).map(pooled).min().expect("there are three")
}

/// A thread that serves connections wrote some MB for a message of some KB, and all others waited for it.
#[test]
fn deletes_of_many_families_go_to_the_pool() {
    let (lab, region) = lab();
    for (row_len, expected) in [(100, 0), (32_000, 1)] {
        let request = pb::MutateRequest {
            region: region.clone(),
            mutation: delete(0, row_len),
            condition: None,
            nonce_group: None,
        };
        let mutate = || drop(lab.call::<pb::MutateResponse>("Mutate", &request, Vec::new()).unwrap());
        assert_eq!(least_pooled(&lab, &mutate), expected, "{row_len}");
    }
    let action = |deletes: Vec<pb::MutationProto>, atomic| pb::RegionAction {
        region: region.clone(),
        atomic: Some(atomic),
        action: deletes.into_iter().zip(0..).map(|(it, index)| pb::Action::of_mutation(index, it)).collect(),
        condition: None,
    };
    for (row_len, expected) in [(100, 0), (2_000, 1)] {
        let deletes = || (0..30).map(|at| delete(at, row_len));
        let one_by_one = |atomic| -> Vec<pb::RegionAction> {
            deletes().map(|delete| action(vec![delete], atomic)).collect()
        };
        for region_action in [vec![action(deletes().collect(), false)], one_by_one(false), one_by_one(true)] {
            let actions_count = region_action.len();
            let request = pb::MultiRequest { region_action, ..Default::default() };
            let multi = || {
                let (response, _): (pb::MultiResponse, _) = lab.call("Multi", &request, Vec::new()).unwrap();
                let results = &response.region_action_result;
                assert_eq!(results.len(), actions_count);
                let entries = || results.iter().flat_map(|result| &result.result_or_exception);
                assert!(entries().count() == 30 && entries().all(|entry| entry.exception.is_none()));
                assert!(results.iter().all(|result| result.exception.is_none()));
            };
            assert_eq!(least_pooled(&lab, &multi), expected, "{row_len}, {actions_count} region actions");
        }
    }
}
