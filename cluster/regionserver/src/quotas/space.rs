//! What tables may still do that use more space than they may (HBase: `RegionServerSpaceQuotaManager` and its policies).

use halcyon_proto::pb;
use halcyon_region::{Mutation, MutationKind};
use halcyon_rpc::RpcError;
use pb::SpaceViolationPolicy;

/// Of one table with a space quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpaceState {
    /// What is enforced; `None`: the table is within its limit.
    policy: Option<SpaceViolationPolicy>,
    limit_bytes: u64,
    usage_bytes: u64,
}

impl SpaceState {
    pub(super) fn of(snapshot: &pb::SpaceQuotaSnapshot) -> SpaceState {
        let status = snapshot.quota_status.as_ref().filter(|status| status.in_violation());
        SpaceState {
            policy: status.map(|status| status.violation_policy()),
            limit_bytes: snapshot.quota_limit(),
            usage_bytes: snapshot.quota_usage(),
        }
    }

    pub(super) fn to_pb(self) -> pb::SpaceQuotaSnapshot {
        let status = pb::SpaceQuotaStatus {
            violation_policy: self.policy.map(|policy| policy as i32),
            in_violation: Some(self.policy.is_some()),
        };
        pb::SpaceQuotaSnapshot {
            quota_status: Some(status),
            quota_usage: Some(self.usage_bytes),
            quota_limit: Some(self.limit_bytes),
        }
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.policy.is_some()
    }

    /// Whether compactions, which need space before they free some, are not to run.
    pub(super) fn forbids_compactions(&self) -> bool {
        self.policy == Some(SpaceViolationPolicy::NoWritesCompactions)
    }

    pub(super) fn check(&self, mutation: &Mutation) -> Result<(), RpcError> {
        let Some(policy) = self.policy else { return Ok(()) };
        let name = match mutation.kind {
            MutationKind::Put => "Put",
            MutationKind::Delete => "Delete",
            MutationKind::Increment => "Increment",
            MutationKind::Append => "Append",
        };
        match policy {
            SpaceViolationPolicy::Disable => {
                Err(refused(policy, "This table is disabled due to violating a space quota."))
            }
            SpaceViolationPolicy::NoInserts if mutation.kind == MutationKind::Delete => Ok(()),
            SpaceViolationPolicy::NoInserts
            | SpaceViolationPolicy::NoWrites
            | SpaceViolationPolicy::NoWritesCompactions => {
                Err(refused(policy, &format!("{name}s are disallowed due to a space quota.")))
            }
        }
    }

    /// Whether so many bytes of store files may be loaded.
    pub(super) fn check_bulk_load(&self, bytes: u64) -> Result<(), RpcError> {
        if let Some(policy) = self.policy {
            return Err(refused(policy, "Bulk loads are disallowed due to a space quota."));
        }
        if bytes <= self.limit_bytes.saturating_sub(self.usage_bytes) {
            return Ok(());
        }
        let text = "BulkLoadVerifying Bulk load is disallowed because the file(s) exceed the limits of a space quota.";
        Err(RpcError::space_limiting(text))
    }
}

/// The text begins with the policy: clients read it from there.
fn refused(policy: SpaceViolationPolicy, text: &str) -> RpcError {
    RpcError::space_limiting(format!("{} {text}", policy.as_str_name()))
}
