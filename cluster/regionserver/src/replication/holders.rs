//! Who has the queues of a peer: the names of files in `replication/queues` below the root directory.
//!
//! | name | of |
//! |---|---|
//! | `<peer>` | a standalone server, for all WALs |
//! | `<peer>-<server>` | a region server of a cluster, for its own WALs |
//! | `<peer>-<server>+<claimer>` | the claimer, for WALs of a server that is gone (HBase: a queue id with a dead server) |
//! | `<peer>--<master>` | an active master, which only notes what was sent to the end |
//!
//! Servers are named as in the names of WALs. No id of a peer has a hyphen, no name of a host begins with one, and none has a plus.

use std::io;
use std::path::Path;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::Env;
use halcyon_schema::ServerName;
use halcyon_schema::layout::replication_queues_dir;

/// A list is taken twice, because files are renamed meanwhile. So often until two are equal.
const LISTS_MAX: usize = 20;

/// See the head of the file. In the order in which lists have them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    Alone,
    Server(String),
    Claimer { server: String, by: String },
    Master(String),
}

impl Holder {
    /// The name of the file.
    pub(super) fn name(&self, peer: &str) -> String {
        match self {
            Holder::Alone => peer.to_string(),
            Holder::Server(server) => format!("{peer}-{server}"),
            Holder::Claimer { server, by } => format!("{peer}-{server}+{by}"),
            Holder::Master(master) => format!("{peer}--{master}"),
        }
    }

    /// `None` if it is no queue of this peer. A file that is being replaced has such a name for a moment.
    pub(super) fn parse(peer: &str, name: &str) -> Option<Holder> {
        let rest = name.strip_prefix(peer)?;
        if rest.is_empty() {
            return Some(Holder::Alone);
        }
        let server = |name: &str| is_server(name).then(|| name.to_string());
        match (rest.strip_prefix("--"), rest.strip_prefix('-')?.split_once('+')) {
            (Some(master), _) => server(master).map(Holder::Master),
            (None, Some((of, by))) => Some(Holder::Claimer { server: server(of)?, by: server(by)? }),
            (None, None) => server(&rest[1..]).map(Holder::Server),
        }
    }

    /// The server of a cluster whose WALs it is for.
    pub(super) fn server(&self) -> Option<&str> {
        match self {
            Holder::Server(server) | Holder::Claimer { server, .. } => Some(server),
            Holder::Alone | Holder::Master(_) => None,
        }
    }

    /// All that have a queue of this peer. `Busy` if they change too often meanwhile.
    pub(super) fn all(env: &Env, root: &Path, peer: &str) -> Result<Vec<Holder>> {
        let mut before = None;
        for _ in 0..LISTS_MAX {
            let listed = match env.fs.list(&replication_queues_dir(root)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                listed => listed?,
            };
            let files = listed.iter().filter(|entry| !entry.is_dir);
            let mut found: Vec<Holder> = files.filter_map(|file| Holder::parse(peer, &file.name)).collect();
            found.sort();
            found.dedup();
            if before.as_ref() == Some(&found) {
                return Ok(found);
            }
            before = Some(found);
        }
        Err(Error::new(ErrorKind::Busy, format!("the queues of peer {peer} change while they are listed")))
    }
}

/// Whether a name is that of a server, as in the names of WALs.
pub(super) fn is_server(name: &str) -> bool {
    ServerName::parse(&name.replace("%2C", ",")).is_ok()
}

#[cfg(test)]
mod tests {
    use halcyon_env::sim::SimFileSystem;

    use super::*;

    const SERVER: &str = "h-1.x%2C16020%2C7";
    const OTHER: &str = "h-2.x%2C16020%2C9";

    fn some() -> Vec<Holder> {
        vec![
            Holder::Alone,
            Holder::Server(SERVER.to_string()),
            Holder::Claimer { server: SERVER.to_string(), by: OTHER.to_string() },
            Holder::Master(OTHER.to_string()),
        ]
    }

    #[test]
    fn names_tell_who_has_a_queue() {
        for holder in some() {
            for peer in ["p", "a+b", "p.q_1"] {
                assert_eq!(Holder::parse(peer, &holder.name(peer)), Some(holder.clone()), "{peer}");
            }
            assert_eq!(Holder::parse("q", &holder.name("p")), None);
            if holder != Holder::Alone {
                assert_eq!(Holder::parse("p", &format!("{}.tmp", holder.name("p"))), None);
            }
        }
        let bad = ["p-", "p--", "p-x", "p--x", "p+", "p2", &format!("p-{SERVER}+"), &format!("p-+{SERVER}")];
        for name in bad {
            assert_eq!(Holder::parse("p", name), None, "{name}");
        }
        assert_eq!(Holder::parse("p", &format!("p-{SERVER}+{OTHER}+{OTHER}")), None);
    }

    #[test]
    fn those_of_one_peer_are_found() {
        let (fs, root) = (SimFileSystem::new(), Path::new("/hbase"));
        let env = fs.env();
        assert!(Holder::all(&env, root, "p").unwrap().is_empty());
        let dir = replication_queues_dir(root);
        env.fs.create_dir_all(&dir).unwrap();
        let names = some().into_iter().map(|holder| holder.name("p"));
        for name in names.chain([format!("p2-{SERVER}"), "p-no-server".to_string()]) {
            env.fs.put_new(&dir.join(name), b"x").unwrap();
        }
        assert_eq!(Holder::all(&env, root, "p").unwrap(), some());
        assert_eq!(Holder::all(&env, root, "p2").unwrap(), [Holder::Server(SERVER.to_string())]);
    }
}
