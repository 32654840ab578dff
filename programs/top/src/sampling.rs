//! The cluster's state, again and again.

use std::time::Duration;

use halcyon_client::{Cluster, ClusterMetrics};
use tokio::sync::watch;

/// The newest state, or why there is none.
pub type Sample = Result<ClusterMetrics, String>;

pub async fn sample(cluster: &Cluster) -> Sample {
    let failed = |error| format!("the master does not answer: {error}");
    cluster.admin().await.map_err(failed)?.cluster_metrics().await.map_err(failed)
}

/// Asks after each `delay`, and at once when `asked` is notified. Ends when nobody receives.
pub async fn sample_forever(
    cluster: Cluster,
    delay: Duration,
    asked: std::sync::Arc<tokio::sync::Notify>,
    to: watch::Sender<Option<Sample>>,
) {
    while !to.is_closed() {
        let newest = sample(&cluster).await;
        if to.send(Some(newest)).is_err() {
            return;
        }
        let _ = tokio::time::timeout(delay, asked.notified()).await;
    }
}
