//! Things turned on and off, and the work they stand for.
//!
//! With one region server the balancer has nothing to move: it says whether it ran, and that it did nothing.

use halcyon_proto::pb;

use super::{Answer, tables};
use crate::Master;
use crate::procedure::Engine;
use crate::state::MasterState;
use crate::switches::Switch;
use crate::{cleaner, errors};

fn set(core: &MasterState, switch: Switch, on: bool) -> Answer<bool> {
    core.set_switch(switch, on).map_err(|error| errors::from_error(&error))
}

pub(super) fn set_balancer(
    core: &MasterState,
    request: pb::SetBalancerRunningRequest,
) -> Answer<pb::SetBalancerRunningResponse> {
    let prev_balance_value = Some(set(core, Switch::Balancer, request.on)?);
    Ok(pb::SetBalancerRunningResponse { prev_balance_value })
}

pub(super) fn balance(master: &Master, request: &pb::BalanceRequest) -> pb::BalanceResponse {
    let (balancer_ran, calculated, executed) = master.balance(request.dry_run());
    let count = |moves: usize| Some(u32::try_from(moves).unwrap_or(u32::MAX));
    pb::BalanceResponse { balancer_ran, moves_calculated: count(calculated), moves_executed: count(executed) }
}

pub(super) fn set_normalizer(
    core: &MasterState,
    request: pb::SetNormalizerRunningRequest,
) -> Answer<pb::SetNormalizerRunningResponse> {
    let prev_normalizer_value = Some(set(core, Switch::Normalizer, request.on)?);
    Ok(pb::SetNormalizerRunningResponse { prev_normalizer_value })
}

/// Has the tables that the request names looked at soon; without a filter all but those of the system.
pub(super) fn normalize(master: &Master, request: &pb::NormalizeRequest) -> Answer<pb::NormalizeResponse> {
    let filter = pb::GetTableDescriptorsRequest {
        table_names: request.table_names.clone(),
        regex: request.regex.clone(),
        namespace: request.namespace.clone(),
        include_sys_tables: Some(false),
    };
    let found = tables::find(&master.core, &filter)?;
    let names = found.iter().map(|table| table.name().clone()).collect();
    Ok(pb::NormalizeResponse { normalizer_ran: master.normalizer.ask(names) })
}

pub(super) fn enable_catalog_janitor(
    core: &MasterState,
    request: pb::EnableCatalogJanitorRequest,
) -> Answer<pb::EnableCatalogJanitorResponse> {
    let prev_value = Some(set(core, Switch::CatalogJanitor, request.enable)?);
    Ok(pb::EnableCatalogJanitorResponse { prev_value })
}

/// -1 if the janitor is off, else the regions that it found done with and begins to take away.
pub(super) fn catalog_scan(core: &MasterState, engine: &Engine) -> Answer<pb::RunCatalogScanResponse> {
    let found = cleaner::scan_catalog(core, engine).map_err(|error| errors::from_error(&error))?;
    Ok(pb::RunCatalogScanResponse { scan_result: Some(found.map_or(-1, |count| count as i32)) })
}

pub(super) fn set_cleaner_chore(
    core: &MasterState,
    request: pb::SetCleanerChoreRunningRequest,
) -> Answer<pb::SetCleanerChoreRunningResponse> {
    let prev_value = Some(set(core, Switch::CleanerChore, request.on)?);
    Ok(pb::SetCleanerChoreRunningResponse { prev_value })
}

pub(super) fn set_snapshot_cleanup(
    core: &MasterState,
    request: pb::SetSnapshotCleanupRequest,
) -> Answer<pb::SetSnapshotCleanupResponse> {
    let prev_snapshot_cleanup = set(core, Switch::SnapshotCleanup, request.enabled)?;
    Ok(pb::SetSnapshotCleanupResponse { prev_snapshot_cleanup })
}

fn split_or_merge(switch: pb::MasterSwitchType) -> Switch {
    match switch {
        pb::MasterSwitchType::Split => Switch::Split,
        pb::MasterSwitchType::Merge => Switch::Merge,
    }
}

/// One value before for each switch asked for.
pub(super) fn set_split_or_merge(
    core: &MasterState,
    request: pb::SetSplitOrMergeEnabledRequest,
) -> Answer<pb::SetSplitOrMergeEnabledResponse> {
    let asked = request.switch_types();
    let prev_value = asked.map(|switch| set(core, split_or_merge(switch), request.enabled));
    Ok(pb::SetSplitOrMergeEnabledResponse { prev_value: prev_value.collect::<Answer<_>>()? })
}

pub(super) fn is_split_or_merge(
    core: &MasterState,
    request: &pb::IsSplitOrMergeEnabledRequest,
) -> pb::IsSplitOrMergeEnabledResponse {
    let enabled = core.switches.lock().get(split_or_merge(request.switch_type()));
    pb::IsSplitOrMergeEnabledResponse { enabled }
}
