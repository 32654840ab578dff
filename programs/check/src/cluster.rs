//! `halcyon check --zookeeper`: looks at a running cluster through its calls, Halcyon or HBase.
//!
//! - `look.rs` reads what the master, the servers and `hbase:meta` say
//! - `checks.rs` is a function from a look to findings; what `hbase:meta` says is judged as in a directory
//! - `repair.rs` asks the master for repairs, only with `--repair`
//!
//! The parts of a look are read one after the other while the cluster works. So a finding counts only if a second look
//! has it, too. After repairs, looks are taken until the findings are gone. What is new then counts if another look has it.

mod checks;
mod look;
mod repair;

use std::time::Duration;

use halcyon_client::{Admin, ClientError};
use halcyon_env::Env;
use halcyon_inspect::Stop;

use crate::CheckArgs;
use crate::finding::{Call, Finding};
use look::Look;

/// A state that is on its way elsewhere is gone by then.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Pauses between looks after a repair.
const SETTLE_PERIOD: Duration = Duration::from_secs(1);
/// Looks after a repair. HBase answers `FixMeta` before regions are open.
const SETTLE_LOOKS_MAX: usize = 30;
/// A repair may bring to light what the next one repairs.
const ROUNDS_MAX: usize = 3;

struct Cluster<'a> {
    admin: Admin,
    env: &'a Env,
    args: &'a CheckArgs,
    regions_count: usize,
}

/// The findings, repaired if wanted, and how many regions `hbase:meta` has.
pub(crate) fn check(env: &Env, args: &CheckArgs) -> Result<(Vec<Finding>, usize), Stop> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| Stop::Failed(format!("cannot start threads: {error}")))?;
    let checked = runtime.block_on(check_cluster(env, args));
    runtime.shutdown_background();
    checked.map_err(Stop::Failed)
}

async fn check_cluster(env: &Env, args: &CheckArgs) -> Result<(Vec<Finding>, usize), String> {
    let cluster = args.load_args().connect(1, halcyon_rpc::Codec::KeyValue).await?;
    let admin = cluster.admin().await.map_err(|error| format!("cannot reach the master: {error}"))?;
    let mut cluster = Cluster { admin, env, args, regions_count: 0 };
    let failed = |error: ClientError| format!("the cluster cannot be checked: {error}");
    let mut findings = cluster.look().await.map_err(failed)?;
    if !findings.is_empty() {
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        let again = cluster.look().await.map_err(failed)?;
        findings.retain(|finding| again.iter().any(|other| other.is_same(finding)));
    }
    if args.repair {
        cluster.repair(&mut findings).await.map_err(failed)?;
    }
    Ok((findings, cluster.regions_count))
}

impl Cluster<'_> {
    async fn look(&mut self) -> Result<Vec<Finding>, ClientError> {
        let look = Look::at(&self.admin).await?;
        self.regions_count = look.facts.regions.len();
        let wait_seconds = self.args.transition_seconds();
        let mut findings = checks::check(&look, self.env.clock.now_ms(), wait_seconds, self.args.bypass);
        crate::keep_wanted(&mut findings, self.args);
        Ok(findings)
    }

    async fn repair(&mut self, findings: &mut Vec<Finding>) -> Result<(), ClientError> {
        for _ in 0..ROUNDS_MAX {
            let open = findings.iter().filter(|finding| !finding.is_repaired && finding.failure.is_none());
            let calls: Vec<Call> = open.flat_map(|finding| finding.calls().to_vec()).collect();
            if calls.is_empty() {
                return Ok(());
            }
            let outcomes = repair::make(&self.admin, &calls).await;
            let mut left = self.settle(findings, &outcomes).await?;
            let look_again = async || {
                tokio::time::sleep(LOOK_AGAIN_AFTER).await;
                self.look().await
            };
            keep_what_stays(findings, &mut left, look_again).await?;
            judge(findings, left, &outcomes);
        }
        Ok(())
    }

    /// Looks until nothing is left of what the calls repair.
    async fn settle(
        &mut self,
        findings: &[Finding],
        outcomes: &repair::Outcomes,
    ) -> Result<Vec<Finding>, ClientError> {
        let is_done = |finding: &&Finding| {
            !finding.calls().is_empty()
                && outcomes.error(finding.calls()).is_none()
                && finding.failure.is_none()
        };
        let mut left = self.look().await?;
        for _ in 1..SETTLE_LOOKS_MAX {
            let mut awaited = findings.iter().filter(is_done);
            if !awaited.any(|finding| left.iter().any(|other| other.is_same(finding))) {
                break;
            }
            tokio::time::sleep(SETTLE_PERIOD).await;
            left = self.look().await?;
        }
        Ok(left)
    }
}

fn is_known(findings: &[Finding], finding: &Finding) -> bool {
    findings.iter().any(|known| known.is_same(finding))
}

/// What is new is left out, unless another look has it, too.
async fn keep_what_stays(
    known: &[Finding],
    left: &mut Vec<Finding>,
    look_again: impl AsyncFnOnce() -> Result<Vec<Finding>, ClientError>,
) -> Result<(), ClientError> {
    if left.iter().any(|finding| !is_known(known, finding)) {
        let again = look_again().await?;
        left.retain(|finding| is_known(known, finding) || is_known(&again, finding));
    }
    Ok(())
}

/// What is gone is repaired. What is left says why, and what is new is added.
fn judge(findings: &mut Vec<Finding>, left: Vec<Finding>, outcomes: &repair::Outcomes) {
    for finding in findings.iter_mut() {
        let same = left.iter().find(|other| other.is_same(finding));
        finding.is_repaired = same.is_none();
        let Some(same) = same else { continue };
        if finding.calls().is_empty() {
            finding.repair = same.repair.clone(); // it may have one now
        } else if finding.failure.is_none() {
            let error = outcomes.error(finding.calls()).cloned();
            finding.failure = Some(error.unwrap_or_else(|| "it is as before".to_string()));
        }
    }
    let new: Vec<Finding> = left.into_iter().filter(|finding| !is_known(findings, finding)).collect();
    findings.extend(new);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that had just joined was named dead by the look after a repair, and the next round had the master recover it.
    #[tokio::test]
    async fn what_one_look_after_a_repair_has_alone_is_not_repaired() {
        let finding = |what: &str| Finding::new("server", None, what, "recover it");
        let known = [finding("known")];
        let mut left = vec![finding("known"), finding("fleeting"), finding("stays")];
        keep_what_stays(&known, &mut left, async || Ok(vec![finding("stays"), finding("later")]))
            .await
            .unwrap();
        assert_eq!(left, [finding("known"), finding("stays")]);
        let mut left = known.to_vec();
        keep_what_stays(&known, &mut left, async || unreachable!("nothing is new")).await.unwrap();
        assert_eq!(left, known);
    }
}
