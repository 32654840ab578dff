//! The end of a file that another client may still write.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::failure::{Failure, kind_of};
use crate::file_system::text;

/// Between two questions. The NameNode orders the recovery of a block in its answer to a DataNode's heartbeat, so most recoveries end
/// within a second or two. They are waited for with short pauses, because regions are closed meanwhile. What takes longer waits for
/// a DataNode that is away.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
const SHORT_PAUSES: u32 = 40;
/// How long an abandoned file is sealed in the background. A file that is renamed by whoever takes over is sealed there.
const BACKGROUND: Duration = Duration::from_secs(600);

/// Takes the file away from its writer and waits until its length is final.
pub(crate) fn seal(cluster: &Cluster, path: &Path) -> io::Result<()> {
    let name = text(path)?;
    let failed = |failure: Failure| failure.into_io(path, "cannot be sealed", cluster.address());
    let end = Instant::now() + cluster.deadlines().seal;
    let mut pauses = (0..SHORT_PAUSES).map(|_| PAUSE_MIN);
    let mut pause = PAUSE_MIN;
    loop {
        let orders = cluster.recoveries().is_due(&name);
        let question = name.clone();
        let answer = cluster.ask(move |client| {
            let name = question.clone();
            async move {
                if orders { client.recover_lease(&name).await } else { client.is_file_closed(&name).await }
            }
        });
        match answer {
            Ok(true) => {
                cluster.recoveries().ended(&name);
                return Ok(());
            }
            Ok(false) if !orders => {}
            Ok(false) => cluster.recoveries().began(&name),
            Err(failure) if failure.kind() == io::ErrorKind::StaleNetworkFileHandle => {
                cluster.recoveries().began(&name)
            }
            Err(failure) => {
                cluster.recoveries().ended(&name);
                return Err(failed(failure));
            }
        }
        if Instant::now() + pause >= end {
            let text = format!(
                "{} is not sealed after {:?}: {} still waits for a DataNode with its last block; seal it again",
                path.display(),
                cluster.deadlines().seal,
                cluster.address()
            );
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        cluster.sleep(pause);
        pause = pauses.next().unwrap_or((pause * 2).min(PAUSE_MAX));
    }
}

/// Seals a file that its writer has abandoned. This also ends what the library left running for it: the DataNodes close
/// their connections.
pub(crate) fn seal_in_background(cluster: &Arc<Cluster>, path: &Path) {
    let Ok(name) = text(path) else { return };
    let (weak, limit) = (Arc::downgrade(cluster), cluster.deadlines().namenode);
    cluster.spawn(async move {
        let end = Instant::now() + BACKGROUND;
        let mut pause = PAUSE_MIN;
        while Instant::now() < end {
            let Some(cluster) = weak.upgrade() else { return };
            let (client, orders) = (cluster.client(), cluster.recoveries().is_due(&name));
            drop(cluster);
            let question = async {
                if orders { client.recover_lease(&name).await } else { client.is_file_closed(&name).await }
            };
            let answer = tokio::time::timeout(limit, question).await;
            let Some(cluster) = weak.upgrade() else { return };
            match answer {
                Ok(Ok(false)) if orders => cluster.recoveries().began(&name),
                Ok(Ok(true)) => return cluster.recoveries().ended(&name),
                // Moved or removed.
                Ok(Err(error)) if kind_of(&error) == io::ErrorKind::NotFound => {
                    return cluster.recoveries().ended(&name);
                }
                _ => {}
            }
            drop(cluster);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        tracing::warn!("{name} was abandoned and is not sealed after {BACKGROUND:?}");
    });
}

/// Removes a file that could not be made and is of no use. Nobody else has its name.
pub(crate) fn remove_in_background(cluster: &Arc<Cluster>, path: &Path) {
    let Ok(name) = text(path) else { return };
    let (weak, limit) = (Arc::downgrade(cluster), cluster.deadlines().namenode);
    cluster.spawn(async move {
        let end = Instant::now() + BACKGROUND;
        let mut pause = PAUSE_MIN;
        while Instant::now() < end {
            let Some(cluster) = weak.upgrade() else { return };
            let client = cluster.client();
            drop(cluster);
            // `false`: it is gone.
            if let Ok(Ok(_)) = tokio::time::timeout(limit, client.delete(&name, false)).await {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        tracing::warn!("{name} could not be made and is not removed after {BACKGROUND:?}; it is empty");
    });
}
