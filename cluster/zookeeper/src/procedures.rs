//! The part of a region server in procedures that HBase's master coordinates through znodes.
//!
//! ```text
//! master                                   each server
//! creates acquired/<instance>        ───>  prepares; creates acquired/<instance>/<server>
//! waits for all; reached/<instance>  ───>  works; creates reached/<instance>/<server>
//! waits for all; removes everything
//! abort/<instance>                   <──>  whoever fails says why; all others stop
//! ```
//!
//! The master waits for the servers that had a region of the table when it began. A znode does not say which ones these
//! are, so every server takes part, as in HBase. What a server of no interest creates is ignored.
//!
//! A procedure has ended for this server when its znode below `acquired` is gone, or is another one of the same name. A master
//! that starts removes all of them. The coordinator empties and removes znodes in no fixed order, so an empty znode says nothing.
//!
//! *Limits*: [`RUNNING_MAX`] procedures of one kind at a time, [`NAMES_MAX`] names in a list, the member's own limit of time.
//!
//! Checked against `ZKProcedureMemberRpcs`, `ZKProcedureCoordinator`, `ZKProcedureUtil` and `Subprocedure` of HBase 2.6.4.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::{BarrierKind, BarrierProcedure, Cancelled, ProcedureMember, Subprocedure};
use halcyon_schema::ServerName;
use halcyon_schema::znode::{self, ProcedurePaths, ZnodePaths};
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use crate::znodes::{Change, Created, Znodes};

/// After an error, before the next attempt.
const PAUSE: Duration = Duration::from_millis(500);
/// Procedures of one kind at the same time; HBase has as many threads (`hbase.snapshot.region.pool.threads`).
const RUNNING_MAX: usize = 10;
/// More names below `acquired` than any master has; further ones are not read.
const NAMES_MAX: usize = 1000;
/// How long the server tries to tell others why a procedure fails.
const ABORT_TIME_MAX: Duration = Duration::from_secs(60);
/// Of a reason, in characters: a znode has room for a megabyte.
const REASON_CHARS_MAX: usize = 2000;
/// HBase reads no class, only the text.
const EXCEPTION: &str = "java.io.IOException";

/// A server that takes part in procedures. *Thread safety*: shared by the tasks of all kinds.
pub(crate) struct Participant<Z> {
    znodes: Arc<Z>,
    paths: ZnodePaths,
    server: ServerName,
    member: Arc<dyn ProcedureMember>,
    /// Where the work may block.
    threads: Handle,
}

/// How a procedure ended here, if not by an error of this server.
enum End {
    Completed,
    /// Somebody else says why.
    Aborted(String),
    /// The coordinator has removed its znodes.
    Removed,
}

/// A procedure that was begun here, until its znode is gone.
struct Begun {
    created: i64,
    task: AbortHandle,
}

/// Begins procedures of a kind when they appear, and drops them when they vanish. Ends with the session's tasks.
pub(crate) async fn follow<Z: Znodes>(participant: Arc<Participant<Z>>, kind: BarrierKind) {
    let paths = participant.paths.procedures(kind.signature());
    let (mut begun, mut running) = (HashMap::new(), JoinSet::new());
    loop {
        match participant.look(kind, &paths, &mut begun, &mut running).await {
            Ok(changed) => changed.await,
            Err(error) if is_final(&error) => return,
            Err(error) => {
                debug!("{error}");
                sleep(PAUSE).await;
            }
        }
    }
}

fn is_final(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Expired | ErrorKind::Stopping)
}

impl<Z: Znodes> Participant<Z> {
    pub(crate) fn new(
        znodes: Arc<Z>,
        paths: ZnodePaths,
        server: ServerName,
        member: Arc<dyn ProcedureMember>,
        threads: Handle,
    ) -> Arc<Participant<Z>> {
        Arc::new(Participant { znodes, paths, server, member, threads })
    }

    /// Compares the procedures that are there with those that were begun.
    async fn look(
        self: &Arc<Self>,
        kind: BarrierKind,
        paths: &ProcedurePaths,
        begun: &mut HashMap<String, Begun>,
        running: &mut JoinSet<()>,
    ) -> Result<Change> {
        while running.try_join_next().is_some() {}
        let (names, changed) = self.znodes.children(&paths.instances()).await?;
        let mut names = names.unwrap_or_default();
        if names.len() > NAMES_MAX {
            warn!("{}: {} procedures; only {NAMES_MAX} are read", paths.instances(), names.len());
            names.sort_unstable();
            names.truncate(NAMES_MAX);
        }
        begun.retain(|name, procedure| {
            let is_there = names.contains(name);
            if !is_there {
                procedure.task.abort();
            }
            is_there
        });
        for name in names {
            let path = paths.acquired(&name);
            let Some(znode) = self.znodes.read(&path).await?.0 else { continue };
            match begun.get(&name) {
                Some(known) if known.created == znode.created => continue,
                Some(former) => former.task.abort(),
                None => {}
            }
            if znode.data.is_empty() {
                debug!("{path}: it is empty, as a coordinator leaves it before it removes it");
                continue;
            }
            let is_full = running.len() >= RUNNING_MAX;
            let procedure = znode::payload(&path, &znode.data).map(|data| BarrierProcedure {
                kind,
                instance: name.clone(),
                data: data.to_vec(),
            });
            let (this, paths, instance) = (Arc::clone(self), paths.clone(), name.clone());
            let task = running.spawn(async move {
                let run = async {
                    let procedure = procedure?;
                    if is_full {
                        let text = format!("{RUNNING_MAX} procedures of this kind run here already");
                        return Err(Error::new(ErrorKind::Busy, text));
                    }
                    this.take_part(&paths, procedure).await
                };
                let ended = run.await;
                this.conclude(kind, &paths, &instance, ended).await;
            });
            begun.insert(name, Begun { created: znode.created, task });
        }
        Ok(changed)
    }

    /// From the preparation to the end. An error is one of this server.
    async fn take_part(&self, paths: &ProcedurePaths, procedure: BarrierProcedure) -> Result<End> {
        let abort = paths.abort(&procedure.instance);
        let (aborted, changed) = self.ask(|| self.znodes.read(&abort)).await?;
        if let Some(aborted) = aborted {
            return Ok(End::Aborted(reason(&abort, &aborted.data)));
        }
        let prepared = self.member.prepare(&procedure)?;
        info!("{}: takes part in {} {}", self.server, procedure.kind.signature(), procedure.instance);
        let time_max = prepared.time_max;
        tokio::select! {
            why = self.aborted(&abort, changed) => Ok(End::Aborted(why?)),
            passed = timeout(time_max, self.pass_barriers(paths, &procedure, prepared)) => {
                let late = |_| Error::new(ErrorKind::Expired, format!("it has taken longer than {time_max:?}"));
                passed.map_err(late)?
            }
        }
    }

    async fn pass_barriers(
        &self,
        paths: &ProcedurePaths,
        procedure: &BarrierProcedure,
        prepared: Subprocedure,
    ) -> Result<End> {
        let (acquired, reached) = (paths.acquired(&procedure.instance), paths.reached(&procedure.instance));
        let [ready, done] = [&acquired, &reached].map(|barrier| format!("{barrier}/{}", self.server));
        if self.ask(|| self.znodes.create(&ready, &[])).await? == Created::NoParent {
            return Ok(End::Removed);
        }
        loop {
            let (found, changed) = self.ask(|| self.znodes.read(&reached)).await?;
            if found.is_some() {
                break;
            }
            changed.await;
        }
        self.work(prepared).await?;
        let data = znode::encode_payload(&self.writer(), halcyon_env::random_bytes(), &[]);
        match self.ask(|| self.znodes.create(&done, &data)).await? {
            Created::NoParent => Ok(End::Removed),
            Created::Done | Created::Exists => Ok(End::Completed),
        }
    }

    /// Does the work on a thread that may block. When this future is dropped, the work is told so.
    async fn work(&self, prepared: Subprocedure) -> Result<()> {
        struct CancelOnDrop(Cancelled);
        impl Drop for CancelOnDrop {
            fn drop(&mut self) {
                self.0.set();
            }
        }
        let cancelled = Cancelled::default();
        let _guard = CancelOnDrop(cancelled.clone());
        let worked = self.threads.spawn_blocking(move || (prepared.work)(&cancelled)).await;
        worked
            .map_err(|error| Error::new(ErrorKind::Io, format!("the work has ended by a failure: {error}")))?
    }

    /// Waits for somebody who aborts the procedure.
    async fn aborted(&self, path: &str, mut changed: Change) -> Result<String> {
        loop {
            changed.await;
            let (found, next) = self.ask(|| self.znodes.read(path)).await?;
            if let Some(found) = found {
                return Ok(reason(path, &found.data));
            }
            changed = next;
        }
    }

    /// Says how it ended: to the log, and to the others if it failed here.
    async fn conclude(&self, kind: BarrierKind, paths: &ProcedurePaths, instance: &str, ended: Result<End>) {
        let (server, signature) = (&self.server, kind.signature());
        match ended {
            Ok(End::Completed) => info!("{server}: has done its part of {signature} {instance}"),
            Ok(End::Removed) => info!("{server}: {signature} {instance} has ended without this server"),
            Ok(End::Aborted(why)) => warn!("{server}: {signature} {instance} was aborted: {why}"),
            Err(error) => {
                warn!("{server}: {signature} {instance} failed here: {error}");
                let told = timeout(ABORT_TIME_MAX, self.abort(&paths.abort(instance), &error)).await;
                if let Err(error) = told.unwrap_or_else(|_| Err(Error::new(ErrorKind::Expired, "no answer")))
                {
                    warn!("{server}: nobody was told that {signature} {instance} failed here: {error}");
                }
            }
        }
    }

    /// The first who says why a procedure fails is heard.
    async fn abort(&self, path: &str, error: &Error) -> Result<()> {
        let text: String = error.to_string().chars().take(REASON_CHARS_MAX).collect();
        let message = znode::foreign_exception(&self.server, EXCEPTION, &text);
        let data = znode::encode(&self.writer(), halcyon_env::random_bytes(), &message);
        self.ask(|| self.znodes.create(path, &data)).await.map(drop)
    }

    fn writer(&self) -> String {
        format!("regionserver:{}", self.server.port)
    }

    /// Asks again while ZooKeeper cannot be reached. The caller sets the deadline.
    async fn ask<T, F: Future<Output = Result<T>>>(&self, ask: impl Fn() -> F) -> Result<T> {
        loop {
            match ask().await {
                Err(error) if error.kind() == ErrorKind::Io => {
                    debug!("{error}");
                    sleep(PAUSE).await;
                }
                answered => return answered,
            }
        }
    }
}

fn reason(path: &str, data: &[u8]) -> String {
    if data.is_empty() {
        return "it is over".to_string();
    }
    znode::decode_abort(path, data)
        .unwrap_or_else(|error| format!("for a reason that cannot be read: {error}"))
}

#[cfg(test)]
mod tests;
