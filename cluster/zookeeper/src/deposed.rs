//! Region servers that a master has declared dead, though their sessions may live.
//!
//! The znode of such a server is deleted, so that its next question for its lease is answered with its loss. It may have asked a moment
//! before: so its regions open elsewhere when the lease that it may have is over. A master after this one has to wait as well, so the
//! transaction that deletes the znode leaves a note:
//!
//! ```text
//! rs/<server>                deleted
//! halcyon/deposed/<server>   created: for how many milliseconds the server may answer reads, as a decimal number
//! ```
//!
//! Without such a note, a znode that is gone went with its session, and the lease ends before that. The note goes when the server is
//! recovered.

use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_schema::ServerName;
use halcyon_schema::znode::{ZnodePaths, decode_server};
use tokio::time::timeout;
use tracing::{info, warn};
use zookeeper_client as zk;

use crate::leadership::Inner;
use crate::member::shown_lease;
use crate::own::lease_time;
use crate::session::Answer;
use crate::transaction::{Outcome, Write};
use crate::znodes::read_data;

/// The keeper of a process that has ended closes its session at once. Then there is nothing to wait for, so it is given this time.
const KEEPER_TIME: Duration = Duration::from_millis(250);
/// A znode that others create and delete at the same time is looked at so often.
const ATTEMPTS_MAX: usize = 8;
const DEPOSED: &str = "halcyon/deposed";

fn note_path(paths: &ZnodePaths, server: &ServerName) -> String {
    paths.below(&format!("{DEPOSED}/{server}"))
}

/// What a note says.
fn lease_of(data: &[u8]) -> Option<Duration> {
    std::str::from_utf8(data).ok()?.parse().ok().map(Duration::from_millis)
}

/// A znode or a note that cannot be read counts for the longest lease: whoever waits for it has to go on some time. So does a server that
/// shows none: HBase's have no lease, and end when the master refuses their next report.
fn lease_or_longest(read: Result<Option<Duration>>, longest: Duration) -> Duration {
    read.unwrap_or_else(|error| {
        warn!(%error, ?longest, "the lease of a dead server is not known: the longest is waited for");
        None
    })
    .unwrap_or(longest)
}

impl Inner {
    pub(crate) async fn depose(&self, server: &ServerName) -> Result<Duration> {
        let session = &self.own.session;
        let paths = &session.settings().paths;
        let (znode, note) = (paths.region_server(server), note_path(paths, server));
        let what = format!("depose {server}");
        let mut is_noted = false;
        for attempt in 0..ATTEMPTS_MAX {
            let (found, changed) = read_data(session, &znode).await?;
            let Some((data, _)) = found else { return self.noted(&note).await };
            if attempt == 0 && timeout(KEEPER_TIME, changed.changed()).await.is_ok() {
                continue;
            }
            let lease = lease_or_longest(shown_lease(&znode, &data), lease_time(session));
            let create = Write::Create {
                path: note.clone(),
                data: lease.as_millis().to_string().into_bytes(),
                mode: zk::CreateMode::Persistent,
            };
            let delete = Write::Delete { path: znode.clone(), version: None };
            let writes = if is_noted { vec![delete] } else { vec![delete, create] };
            match self.write(&what, &writes).await? {
                Outcome::Done => {
                    info!("{}: {server} was declared dead; {znode} is deleted", session.settings());
                    return Ok(lease);
                }
                Outcome::Refused { index: 0, why: zk::Error::NoNode } => {} // it has just gone
                Outcome::Refused { why: zk::Error::NodeExists, .. } => is_noted = true,
                Outcome::Refused { why: zk::Error::NoNode, .. } => {
                    self.create_empty(paths.below(DEPOSED)).await?
                }
                Outcome::Refused { why, .. } => return Err(self.refused(&what, &why)),
            }
        }
        Err(session.error(ErrorKind::Busy, &what, "the znode comes and goes"))
    }

    /// The note that a master has left, which was the first to delete the znode; zero if there is none.
    async fn noted(&self, note: &str) -> Result<Duration> {
        let session = &self.own.session;
        // The epoch is checked: a master that was deposed must not tell that there is nothing to wait for.
        self.write(&format!("check {note}"), &[]).await?;
        let ask = |client: zk::Client| async move { client.get_data(note).await };
        let Answer::Done((data, _)) = session.call(&format!("read {note}"), ask).await? else {
            return Ok(Duration::ZERO);
        };
        let malformed = || Error::corrupt(format!("{note} is no number of milliseconds"));
        Ok(lease_or_longest(lease_of(&data).ok_or_else(malformed).map(Some), lease_time(session)))
    }

    /// All notes. One that cannot be read counts for the longest lease.
    pub(crate) async fn deposed(&self) -> Result<Vec<(ServerName, Duration)>> {
        let session = &self.own.session;
        let paths = &session.settings().paths;
        let dir = paths.below(DEPOSED);
        let ask = |client: zk::Client| {
            let dir = &dir;
            async move { client.list_children(dir).await }
        };
        let Answer::Done(names) = session.call(&format!("list {dir}"), ask).await? else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for name in names {
            let Ok(server) = decode_server(&dir, &name) else {
                warn!("{}: {dir}/{name} is no name of a server", session.settings());
                continue;
            };
            let note = note_path(paths, &server);
            let ask = |client: zk::Client| {
                let note = &note;
                async move { client.get_data(note).await }
            };
            if let Answer::Done((data, _)) = session.call(&format!("read {note}"), ask).await? {
                found.push((server, lease_of(&data).unwrap_or_else(|| lease_time(session))));
            }
        }
        Ok(found)
    }

    pub(crate) async fn forget_deposed(&self, server: &ServerName) -> Result<()> {
        let session = &self.own.session;
        let note = note_path(&session.settings().paths, server);
        let ask = |client: zk::Client| {
            let note = &note;
            async move { client.check_stat(note).await }
        };
        match session.call(&format!("read {note}"), ask).await? {
            Answer::Done(Some(_)) => self.remove(note).await,
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Garbage in one znode ended each recovery of its server, and each start of a master that needed that.
    #[test]
    fn what_cannot_be_read_counts_for_the_longest_lease() {
        let (longest, shown) = (Duration::from_secs(4), Duration::from_millis(1500));
        assert_eq!(lease_or_longest(Ok(Some(shown)), longest), shown);
        assert_eq!(lease_or_longest(Ok(None), longest), longest);
        assert_eq!(lease_or_longest(shown_lease("/hbase/rs/h,1,2", b"garbage"), longest), longest);
        assert_eq!(lease_of(b"1500"), Some(shown));
        assert_eq!(lease_of(b"soon"), None);
    }
}
