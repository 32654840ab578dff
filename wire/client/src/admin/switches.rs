//! What the master does by itself, and whether it may.

use halcyon_proto::pb;
use halcyon_schema::TableName;

use super::Admin;
use crate::ClientError;

/// Something that the master does by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Moves regions from server to server.
    Balancer,
    /// Splits large and merges small regions.
    Normalizer,
    /// Executes splits.
    Split,
    /// Executes merges.
    Merge,
    /// Removes what splits and merges leave in `hbase:meta`.
    CatalogJanitor,
    /// Deletes archived files and old WALs.
    CleanerChore,
    /// Deletes snapshots whose time is over.
    SnapshotCleanup,
    /// Region servers throttle requests by their quotas. Off where there are no quotas.
    RpcThrottle,
}

impl Admin {
    /// Turns something on or off, and returns the setting from before.
    pub async fn set_switch(&self, switch: Switch, on: bool) -> Result<bool, ClientError> {
        match switch {
            Switch::Balancer => {
                let request = pb::SetBalancerRunningRequest { on, synchronous: Some(true) };
                let answer: pb::SetBalancerRunningResponse =
                    self.call("SetBalancerRunning", &request).await?;
                Ok(answer.prev_balance_value())
            }
            Switch::Normalizer => {
                let request = pb::SetNormalizerRunningRequest { on };
                let answer: pb::SetNormalizerRunningResponse =
                    self.call("SetNormalizerRunning", &request).await?;
                Ok(answer.prev_normalizer_value())
            }
            Switch::Split => self.set_split_or_merge(pb::MasterSwitchType::Split, on).await,
            Switch::Merge => self.set_split_or_merge(pb::MasterSwitchType::Merge, on).await,
            Switch::CatalogJanitor => {
                let request = pb::EnableCatalogJanitorRequest { enable: on };
                let answer: pb::EnableCatalogJanitorResponse =
                    self.call("EnableCatalogJanitor", &request).await?;
                Ok(answer.prev_value())
            }
            Switch::CleanerChore => {
                let request = pb::SetCleanerChoreRunningRequest { on };
                let answer: pb::SetCleanerChoreRunningResponse =
                    self.call("SetCleanerChoreRunning", &request).await?;
                Ok(answer.prev_value())
            }
            Switch::SnapshotCleanup => {
                let request = pb::SetSnapshotCleanupRequest { enabled: on, synchronous: Some(true) };
                let answer: pb::SetSnapshotCleanupResponse =
                    self.call("SwitchSnapshotCleanup", &request).await?;
                Ok(answer.prev_snapshot_cleanup)
            }
            Switch::RpcThrottle => {
                let request = pb::SwitchRpcThrottleRequest { rpc_throttle_enabled: on };
                let answer: pb::SwitchRpcThrottleResponse = self.call("SwitchRpcThrottle", &request).await?;
                Ok(answer.previous_rpc_throttle_enabled)
            }
        }
    }

    async fn set_split_or_merge(&self, kind: pb::MasterSwitchType, on: bool) -> Result<bool, ClientError> {
        let request = pb::SetSplitOrMergeEnabledRequest {
            enabled: on,
            synchronous: Some(true),
            switch_types: vec![kind as i32],
        };
        let answer: pb::SetSplitOrMergeEnabledResponse =
            self.call("SetSplitOrMergeEnabled", &request).await?;
        Ok(answer.prev_value.first().copied().unwrap_or(false))
    }

    /// Whether something is on.
    pub async fn switch(&self, switch: Switch) -> Result<bool, ClientError> {
        match switch {
            Switch::Balancer => {
                let request = pb::IsBalancerEnabledRequest {};
                let answer: pb::IsBalancerEnabledResponse = self.call("IsBalancerEnabled", &request).await?;
                Ok(answer.enabled)
            }
            Switch::Normalizer => {
                let request = pb::IsNormalizerEnabledRequest {};
                let answer: pb::IsNormalizerEnabledResponse =
                    self.call("IsNormalizerEnabled", &request).await?;
                Ok(answer.enabled)
            }
            Switch::Split => self.is_split_or_merge_on(pb::MasterSwitchType::Split).await,
            Switch::Merge => self.is_split_or_merge_on(pb::MasterSwitchType::Merge).await,
            Switch::CatalogJanitor => {
                let request = pb::IsCatalogJanitorEnabledRequest {};
                let answer: pb::IsCatalogJanitorEnabledResponse =
                    self.call("IsCatalogJanitorEnabled", &request).await?;
                Ok(answer.value)
            }
            Switch::CleanerChore => {
                let request = pb::IsCleanerChoreEnabledRequest {};
                let answer: pb::IsCleanerChoreEnabledResponse =
                    self.call("IsCleanerChoreEnabled", &request).await?;
                Ok(answer.value)
            }
            Switch::SnapshotCleanup => {
                let request = pb::IsSnapshotCleanupEnabledRequest {};
                let answer: pb::IsSnapshotCleanupEnabledResponse =
                    self.call("IsSnapshotCleanupEnabled", &request).await?;
                Ok(answer.enabled)
            }
            Switch::RpcThrottle => {
                let request = pb::IsRpcThrottleEnabledRequest {};
                let answer: pb::IsRpcThrottleEnabledResponse =
                    self.call("IsRpcThrottleEnabled", &request).await?;
                Ok(answer.rpc_throttle_enabled)
            }
        }
    }

    async fn is_split_or_merge_on(&self, kind: pb::MasterSwitchType) -> Result<bool, ClientError> {
        let request = pb::IsSplitOrMergeEnabledRequest { switch_type: kind as i32 };
        let answer: pb::IsSplitOrMergeEnabledResponse = self.call("IsSplitOrMergeEnabled", &request).await?;
        Ok(answer.enabled)
    }

    /// Runs the balancer once, and returns whether it ran. `force`: even while regions are in transition.
    pub async fn balance(&self, force: bool) -> Result<bool, ClientError> {
        let request = pb::BalanceRequest { ignore_rit: Some(force), dry_run: Some(false) };
        let answer: pb::BalanceResponse = self.call("Balance", &request).await?;
        Ok(answer.balancer_ran)
    }

    /// Runs the normalizer once over these tables, or over all, and returns whether it ran.
    pub async fn normalize(&self, tables: &[TableName]) -> Result<bool, ClientError> {
        let table_names = tables.iter().map(TableName::to_pb).collect();
        let request = pb::NormalizeRequest { table_names, ..Default::default() };
        let answer: pb::NormalizeResponse = self.call("Normalize", &request).await?;
        Ok(answer.normalizer_ran)
    }

    /// Runs the catalog janitor once, and returns how many entries it removed; -1 if it was running already.
    pub async fn run_catalog_janitor(&self) -> Result<i32, ClientError> {
        let answer: pb::RunCatalogScanResponse =
            self.call("RunCatalogScan", &pb::RunCatalogScanRequest {}).await?;
        Ok(answer.scan_result.unwrap_or(0))
    }

    /// Runs the cleaner once, and returns whether it ran.
    pub async fn run_cleaner_chore(&self) -> Result<bool, ClientError> {
        let answer: pb::RunCleanerChoreResponse =
            self.call("RunCleanerChore", &pb::RunCleanerChoreRequest {}).await?;
        Ok(answer.cleaner_chore_ran)
    }
}
