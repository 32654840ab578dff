//! What other peers of a side would get because of the migration.
//!
//! The migration gives scopes to tables and makes the table of marks at both sides. A peer that gets all tables begins to get
//! these, too. If its cluster lacks one of them, it refuses the edits, and the source of that peer tries again for ever: all
//! edits behind them wait. That does not end with the migration, since the edits are in the WALs. So each cluster is asked
//! before anything is changed.

use std::time::Duration;

use bytes::Bytes;
use halcyon_client::{Cluster, ClusterAddress, ClusterOptions, Peer, TableDescriptor};
use halcyon_schema::{ClusterKey, TableName};
use tokio::time::timeout;

use crate::side::{MARKS, PEER, Side};

/// Longest time to ask the cluster of a peer.
const ASK_TIME_MAX: Duration = Duration::from_secs(10);

/// A table that is replicated as long as the migration lasts.
#[derive(Clone, Debug)]
pub(crate) struct Replicated {
    pub(crate) name: TableName,
    /// Families that the cluster of a peer must have.
    pub(crate) families: Vec<String>,
    /// Whether peers get nothing of some family of it yet.
    pub(crate) begins: bool,
}

impl Replicated {
    pub(crate) fn of(table: &TableDescriptor, begins: bool) -> Replicated {
        let families = table.families().iter().map(|family| family.name_str().into_owned()).collect();
        Replicated { name: table.name().clone(), families, begins }
    }
}

/// What the cluster of a peer says of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
enum There {
    /// It has these families.
    Families(Vec<String>),
    Missing,
    /// Why it could not be asked.
    Unknown(String),
}

/// Ids of the peers of a side that are not the migration's.
pub(crate) async fn others(side: &Side) -> Result<Vec<Peer>, String> {
    let peers = side.admin.peers().await.map_err(|error| side.failed("list of peers", error))?;
    // the peer of the way back has a longer name that begins the same way
    Ok(peers.into_iter().filter(|peer| !peer.id.starts_with(PEER)).collect())
}

/// Why the migration would disturb other peers of a side; empty: it does not. `accepted`: they may begin to get tables.
pub(crate) async fn reasons(
    side: &Side,
    tables: &[Replicated],
    accepted: bool,
) -> Result<Vec<String>, String> {
    let mut reasons = Vec::new();
    for peer in others(side).await? {
        let gets: Vec<Replicated> = tables.iter().filter_map(|table| part(&peer, table)).collect();
        if gets.is_empty() {
            continue;
        }
        let there = ask(&peer, &gets).await;
        let of_each = gets.iter().zip(there);
        reasons
            .extend(of_each.filter_map(|(table, there)| reason(side.name, &peer, table, &there, accepted)));
    }
    Ok(reasons)
}

/// A table with the families that a peer gets; `None`: it gets none.
fn part(peer: &Peer, table: &Replicated) -> Option<Replicated> {
    if !peer.gets(&table.name) {
        return None;
    }
    let of_table = |listed: &[(TableName, Vec<Bytes>)]| -> Vec<Bytes> {
        let of_table = listed.iter().filter(|(name, _)| *name == table.name);
        of_table.flat_map(|(_, families)| families.iter().cloned()).collect()
    };
    let (only, without) =
        (of_table(peer.tables.as_deref().unwrap_or_default()), of_table(&peer.excluded_tables));
    let by_namespace = peer.namespaces.iter().any(|name| name == table.name.namespace());
    let is_sent = |family: &String| {
        let is_in = |listed: &[Bytes]| listed.iter().any(|one| one == family.as_bytes());
        match &peer.tables {
            Some(_) => by_namespace || only.is_empty() || is_in(&only),
            None => !is_in(&without),
        }
    };
    let families: Vec<String> = table.families.iter().filter(|family| is_sent(family)).cloned().collect();
    (!families.is_empty()).then(|| Replicated { families, ..table.clone() })
}

/// What the cluster of a peer says of each table.
async fn ask(peer: &Peer, tables: &[Replicated]) -> Vec<There> {
    let asked = async {
        let key = ClusterKey::parse(&peer.cluster_key).map_err(|error| error.message().to_string())?;
        let address = ClusterAddress::ZooKeeper { quorum: key.quorum, base: key.base };
        let options = ClusterOptions { operation_timeout: ASK_TIME_MAX, ..ClusterOptions::default() };
        let cluster = Cluster::connect(address, options).await.map_err(|error| error.to_string())?;
        let admin = cluster.admin().await.map_err(|error| error.to_string())?;
        let mut all = Vec::new();
        for table in tables {
            let found = admin.descriptor(&table.name).await.map_err(|error| error.to_string())?;
            all.push(match found {
                Some(found) => There::Families(Replicated::of(&found, false).families),
                None => There::Missing,
            });
        }
        Ok::<_, String>(all)
    };
    let unknown = |why: String| vec![There::Unknown(why); tables.len()];
    match &peer.endpoint_class {
        Some(class) if !class.ends_with("HBaseInterClusterReplicationEndpoint") => {
            unknown(format!("its endpoint is {class}"))
        }
        _ => match timeout(ASK_TIME_MAX, asked).await {
            Ok(Ok(all)) => all,
            Ok(Err(why)) => unknown(why),
            Err(_) => unknown(format!("no answer within {ASK_TIME_MAX:?}")),
        },
    }
}

/// Why a peer must not get a table as it is now, with the command that helps.
fn reason(side: &str, peer: &Peer, table: &Replicated, there: &There, accepted: bool) -> Option<String> {
    let (name, id) = (&table.name, &peer.id);
    let leave_out = leave_out(peer, name);
    let is_marks = *name.full_name() == MARKS.as_bytes();
    let lacks = |what: &str, help: &str| {
        Some(format!(
            "the peer {id} of the {side} gets {name}, and its cluster {} lacks {what}: all edits for that peer would wait. \
             {leave_out}, or there: {help}",
            peer.cluster_key
        ))
    };
    match there {
        There::Missing => {
            let families: Vec<String> = table.families.iter().map(|family| format!("'{family}'")).collect();
            lacks("that table", &format!("create '{name}', {}", families.join(", ")))
        }
        There::Families(there) => match table.families.iter().find(|family| !there.contains(family)) {
            Some(family) => lacks(&format!("its family {family}"), &format!("alter '{name}', '{family}'")),
            None if table.begins && !accepted && !is_marks => Some(format!(
                "the peer {id} of the {side} would begin to get {name}, because REPLICATION_SCOPE becomes 1: \
                 --accept-other-peers, or {leave_out}"
            )),
            None => None,
        },
        There::Unknown(why) if table.begins && !accepted => Some(format!(
            "the peer {id} of the {side} gets {name}, and its cluster '{}' cannot be asked whether it has that table \
             ({why}): {leave_out}, or create it there and add --accept-other-peers",
            peer.cluster_key
        )),
        There::Unknown(_) => None,
    }
}

/// The command of the shell that leaves a table out.
fn leave_out(peer: &Peer, table: &TableName) -> String {
    let id = &peer.id;
    match &peer.tables {
        None => format!("append_peer_exclude_tableCFs '{id}', {{\"{table}\" => []}}"),
        Some(tables) if tables.iter().any(|(name, _)| name == table) => {
            format!("remove_peer_tableCFs '{id}', {{\"{table}\" => []}}")
        }
        Some(_) => format!("remove_peer_namespaces '{id}', [\"{}\"]", table.namespace()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str, begins: bool) -> Replicated {
        let name = TableName::parse(name.as_bytes()).unwrap();
        Replicated { name, families: vec!["f".to_string()], begins }
    }

    fn told(table: &Replicated, there: There, accepted: bool) -> Option<String> {
        reason("source", &Peer::new("dr", "h:1:/b"), table, &there, accepted)
    }

    #[test]
    fn a_cluster_without_the_table_is_never_accepted() {
        for (begins, accepted) in [(false, false), (false, true), (true, false), (true, true)] {
            let text = told(&table(MARKS, begins), There::Missing, accepted).unwrap();
            assert!(text.contains("the peer dr of the source gets halcyon_migrate"), "{text}");
            assert!(
                text.contains("append_peer_exclude_tableCFs 'dr', {\"halcyon_migrate\" => []}"),
                "{text}"
            );
            assert!(text.contains("create 'halcyon_migrate', 'f'"), "{text}");
            let other = There::Families(vec!["g".to_string()]);
            assert!(told(&table("n:t", begins), other, accepted).unwrap().contains("alter 'n:t', 'f'"));
        }
    }

    #[test]
    fn what_begins_is_asked_for() {
        let has = There::Families(vec!["f".to_string()]);
        assert_eq!(told(&table("t", false), has.clone(), false), None);
        assert!(told(&table("t", true), has.clone(), false).unwrap().contains("would begin to get t"));
        assert_eq!(told(&table("t", true), has.clone(), true), None);
        assert_eq!(told(&table(MARKS, true), has, false), None, "its cluster was prepared for the marks");
        let unknown = There::Unknown("no route".to_string());
        assert!(told(&table(MARKS, true), unknown.clone(), false).unwrap().contains("no route"));
        assert_eq!(told(&table(MARKS, true), unknown.clone(), true), None);
        assert_eq!(told(&table("t", false), unknown, false), None, "it gets the table already");
    }

    #[test]
    fn families_that_a_peer_does_not_get_are_not_asked_for() {
        let name = TableName::parse(b"t").unwrap();
        let both = Replicated { families: vec!["f".to_string(), "g".to_string()], ..table("t", false) };
        let families = |peer: &Peer| part(peer, &both).map(|table| table.families.concat());
        let listed = vec![(name.clone(), vec![Bytes::from_static(b"g")])];
        let without = Peer { excluded_tables: listed.clone(), ..Peer::new("p", "h:1:/b") };
        assert_eq!(families(&without).as_deref(), Some("f"));
        let only = Peer { tables: Some(listed.clone()), ..Peer::new("p", "h:1:/b") };
        assert_eq!(families(&only).as_deref(), Some("g"));
        let more = Peer { namespaces: vec!["default".to_string()], ..only };
        assert_eq!(families(&more).as_deref(), Some("fg"));
        let none = Peer { excluded_tables: vec![(name, Vec::new())], ..Peer::new("p", "h:1:/b") };
        assert_eq!(families(&none), None);
    }

    #[test]
    fn the_command_fits_the_peer() {
        let name = TableName::parse(b"t").unwrap();
        let listed = Peer::of_tables("p", "h:1:/b", [name.clone()]);
        assert_eq!(leave_out(&listed, &name), "remove_peer_tableCFs 'p', {\"t\" => []}");
        let namespace = Peer {
            tables: Some(Vec::new()),
            namespaces: vec!["default".to_string()],
            ..Peer::new("p", "h:1:/b")
        };
        assert!(namespace.gets(&name));
        assert_eq!(leave_out(&namespace, &name), "remove_peer_namespaces 'p', [\"default\"]");
    }
}
