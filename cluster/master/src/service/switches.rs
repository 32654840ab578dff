//! Things turned on and off, and the work they stand for.
//!
//! With one region server the balancer has nothing to move, and without a normalizer nothing is normalized: each
//! says whether it ran, and that it did nothing.

use halcyon_proto::pb;

use super::Answer;
use crate::procedure::Engine;
use crate::state::Core;
use crate::switches::Switch;
use crate::{errors, janitor};

fn set(core: &Core, switch: Switch, on: bool) -> Answer<bool> {
    core.set_switch(switch, on).map_err(|error| errors::from_error(&error))
}

pub(super) fn set_balancer(
    core: &Core,
    request: pb::SetBalancerRunningRequest,
) -> Answer<pb::SetBalancerRunningResponse> {
    let prev_balance_value = Some(set(core, Switch::Balancer, request.on)?);
    Ok(pb::SetBalancerRunningResponse { prev_balance_value })
}

pub(super) fn balance(core: &Core, request: &pb::BalanceRequest) -> pb::BalanceResponse {
    let balancer_ran = request.dry_run() || core.switches.lock().get(Switch::Balancer);
    pb::BalanceResponse { balancer_ran, moves_calculated: Some(0), moves_executed: Some(0) }
}

pub(super) fn set_normalizer(
    core: &Core,
    request: pb::SetNormalizerRunningRequest,
) -> Answer<pb::SetNormalizerRunningResponse> {
    let prev_normalizer_value = Some(set(core, Switch::Normalizer, request.on)?);
    Ok(pb::SetNormalizerRunningResponse { prev_normalizer_value })
}

pub(super) fn enable_catalog_janitor(
    core: &Core,
    request: pb::EnableCatalogJanitorRequest,
) -> Answer<pb::EnableCatalogJanitorResponse> {
    let prev_value = Some(set(core, Switch::CatalogJanitor, request.enable)?);
    Ok(pb::EnableCatalogJanitorResponse { prev_value })
}

/// -1 if the janitor is off, else the regions that it found done with and begins to take away.
pub(super) fn catalog_scan(core: &Core, engine: &Engine) -> Answer<pb::RunCatalogScanResponse> {
    let found = janitor::run(core, engine).map_err(|error| errors::from_error(&error))?;
    Ok(pb::RunCatalogScanResponse { scan_result: Some(found.map_or(-1, |count| count as i32)) })
}

pub(super) fn set_cleaner_chore(
    core: &Core,
    request: pb::SetCleanerChoreRunningRequest,
) -> Answer<pb::SetCleanerChoreRunningResponse> {
    let prev_value = Some(set(core, Switch::CleanerChore, request.on)?);
    Ok(pb::SetCleanerChoreRunningResponse { prev_value })
}

pub(super) fn set_snapshot_cleanup(
    core: &Core,
    request: pb::SetSnapshotCleanupRequest,
) -> Answer<pb::SetSnapshotCleanupResponse> {
    let prev_snapshot_cleanup = set(core, Switch::SnapshotCleanup, request.enabled)?;
    Ok(pb::SetSnapshotCleanupResponse { prev_snapshot_cleanup })
}

pub(super) fn set_rpc_throttle(
    core: &Core,
    request: pb::SwitchRpcThrottleRequest,
) -> Answer<pb::SwitchRpcThrottleResponse> {
    let previous_rpc_throttle_enabled = set(core, Switch::RpcThrottle, request.rpc_throttle_enabled)?;
    Ok(pb::SwitchRpcThrottleResponse { previous_rpc_throttle_enabled })
}

pub(super) fn set_exceed_throttle_quota(
    core: &Core,
    request: pb::SwitchExceedThrottleQuotaRequest,
) -> Answer<pb::SwitchExceedThrottleQuotaResponse> {
    let on = request.exceed_throttle_quota_enabled;
    let previous_exceed_throttle_quota_enabled = set(core, Switch::ExceedThrottleQuota, on)?;
    Ok(pb::SwitchExceedThrottleQuotaResponse { previous_exceed_throttle_quota_enabled })
}

fn split_or_merge(switch: pb::MasterSwitchType) -> Switch {
    match switch {
        pb::MasterSwitchType::Split => Switch::Split,
        pb::MasterSwitchType::Merge => Switch::Merge,
    }
}

/// One value before for each switch asked for.
pub(super) fn set_split_or_merge(
    core: &Core,
    request: pb::SetSplitOrMergeEnabledRequest,
) -> Answer<pb::SetSplitOrMergeEnabledResponse> {
    let asked = request.switch_types();
    let prev_value = asked.map(|switch| set(core, split_or_merge(switch), request.enabled));
    Ok(pb::SetSplitOrMergeEnabledResponse { prev_value: prev_value.collect::<Answer<_>>()? })
}

pub(super) fn is_split_or_merge(
    core: &Core,
    request: &pb::IsSplitOrMergeEnabledRequest,
) -> pb::IsSplitOrMergeEnabledResponse {
    let enabled = core.switches.lock().get(split_or_merge(request.switch_type()));
    pb::IsSplitOrMergeEnabledResponse { enabled }
}
