//! Repairs by calls of the master.

use std::collections::BTreeMap;
use std::time::Duration;

use halcyon_client::{
    Admin, ClientError, NamespaceDescriptor, Procedure, Put, RegionInfo, ServerName, TableName,
};

use crate::finding::Call;

/// How often it is looked for merges of regions, and how often they may be there: for a minute.
const MERGE_PERIOD: Duration = Duration::from_millis(200);
const MERGE_LOOKS_MAX: usize = 300;
/// So many looks in a row without one: a merge may begin when another procedure has ended.
const LOOKS_WITHOUT: usize = 2;
/// The procedures of merges, and Halcyon's before them.
const REPAIRS: [&str; 2] = [".MergeTableRegionsProcedure", ".FixRegionsProcedure"];

/// What came of calls: the error of each that failed, by the call's text.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(BTreeMap<String, String>);

impl Outcomes {
    pub(crate) fn error(&self, calls: &[Call]) -> Option<&String> {
        calls.iter().find_map(|call| self.0.get(&format!("{call:?}")))
    }

    fn note(&mut self, call: &Call, done: Result<(), String>) {
        if let Err(error) = done {
            self.0.insert(format!("{call:?}"), error);
        }
    }
}

/// Makes each call once, kind after kind.
pub(crate) async fn make(admin: &Admin, calls: &[Call]) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let mut ordered: Vec<&Call> = Vec::new();
    for call in calls {
        if !ordered.contains(&call) {
            ordered.push(call);
        }
    }
    ordered.sort_by_key(|call| rank(call));
    for same in ordered.chunk_by(|left, right| rank(left) == rank(right)) {
        match same[0] {
            Call::Unassign { .. } | Call::Assign { .. } => transit(admin, same, &mut outcomes).await,
            _ => {
                for call in same {
                    outcomes.note(call, one(admin, call).await);
                }
            }
        }
    }
    outcomes
}

fn rank(call: &Call) -> usize {
    match call {
        Call::Bypass(_) => 0,
        Call::CreateNamespace(_) => 1,
        Call::SetTableState(..) => 2,
        Call::WriteRow { .. } => 3,
        Call::FixMeta => 4,
        Call::SetRegionState { .. } => 5,
        Call::CrashServer(_) => 6,
        Call::Unassign { .. } => 7,
        Call::Assign { force: false, .. } => 8,
        Call::Assign { force: true, .. } => 9,
    }
}

/// The error is a sentence.
async fn one(admin: &Admin, call: &Call) -> Result<(), String> {
    let done = match call {
        Call::Bypass(id) => match admin.bypass_procedures(&[*id], true, true).await.as_deref() {
            Ok([true]) => Ok(()),
            Ok(_) => return Err(format!("the master does not bypass procedure {id}")),
            Err(error) => Err(error.clone()),
        },
        Call::CreateNamespace(name) => admin.create_namespace(&NamespaceDescriptor::new(name.as_str())).await,
        Call::SetTableState(table, state) => admin.set_table_state_in_meta(table, *state).await.map(drop),
        Call::WriteRow { region, server } => write_row(admin, region, server).await,
        Call::FixMeta => fix_meta(admin).await,
        Call::SetRegionState { region, state } => {
            admin.set_region_state_in_meta(region.as_bytes(), state).await.map(drop)
        }
        Call::CrashServer(server) => admin.schedule_server_crashes(std::slice::from_ref(server)).await,
        Call::Unassign { .. } | Call::Assign { .. } => unreachable!("regions are opened and closed together"),
    };
    done.map_err(|error| error.to_string())
}

/// As the master writes it when a region is open, but for the sequence id, which clients do without.
async fn write_row(admin: &Admin, region: &RegionInfo, server: &ServerName) -> Result<(), ClientError> {
    let put = Put::new(region.region_name())
        .column("info", "regioninfo", region.encode_value())
        .column("info", "state", "OPEN")
        .column("info", "server", server.address())
        .column("info", "serverstartcode", server.start_code.to_be_bytes());
    admin.cluster().table(TableName::META, 0).put(put).await
}

/// HBase repairs what the catalog janitor has found last. Regions that overlap are merged by procedures that the call does not wait
/// for. While they run nothing is found of the overlap, and rows are read from neither region.
async fn fix_meta(admin: &Admin) -> Result<(), ClientError> {
    admin.run_catalog_janitor().await?;
    admin.fix_meta().await?;
    let mut looks_without = 0;
    for _ in 0..MERGE_LOOKS_MAX {
        let procedures = admin.procedures().await?;
        looks_without = if procedures.iter().any(repairs) { 0 } else { looks_without + 1 };
        if looks_without == LOOKS_WITHOUT {
            break;
        }
        tokio::time::sleep(MERGE_PERIOD).await;
    }
    Ok(())
}

/// Whether a procedure that `fix_meta` may have begun has not ended.
fn repairs(procedure: &Procedure) -> bool {
    let is_one = REPAIRS.iter().any(|class| procedure.class.ends_with(class));
    is_one && !["SUCCESS", "FAILED", "ROLLEDBACK"].contains(&procedure.state.as_str())
}

/// Opens or closes regions with one request.
async fn transit(admin: &Admin, calls: &[&Call], outcomes: &mut Outcomes) {
    let region = |call: &&Call| match call {
        Call::Unassign { region } | Call::Assign { region, .. } => region.clone(),
        other => unreachable!("{other:?} opens and closes no region"),
    };
    let regions: Vec<String> = calls.iter().map(region).collect();
    let results = match calls[0] {
        Call::Assign { force, .. } => admin.assigns(&regions, *force).await,
        // Masters close no region of a disabled table unless they are forced to.
        _ => admin.unassigns(&regions, true).await,
    };
    match results {
        Ok(results) => {
            let texts = results.into_iter().map(|result| result.map_err(|error| error.to_string()));
            calls.iter().zip(texts).for_each(|(call, result)| outcomes.note(call, result));
        }
        Err(error) => calls.iter().for_each(|call| outcomes.note(call, Err(error.to_string()))),
    }
}
