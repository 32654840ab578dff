//! What is looked at again before a cut over: much may have happened since the tables were compared.
//!
//! Edits that never went through a WAL, or while a table had no scope, are at one side only, and their timestamps need not show
//! that they are new: bulk loads, restored snapshots, tables that were truncated, families that were deleted and added again. A
//! comparison of all rows finds them. So there is another one if the last is old, or if something hints at such a change.

use std::time::Duration;

use halcyon_client::{Get, Peer, TableName};
use xxhash_rust::xxh3::Xxh3;

use crate::plan::{self, Drops};
use crate::progress::duration;
use crate::receivers::{self, Replicated};
use crate::side::{PEER, PEER_BACK, Side};
use crate::state::{Phase, Walk};
use crate::{Migration, Way, marks};

/// Fails if something stands against a cut over, with every reason. What cannot have reached the other side makes the last
/// comparison void.
pub(crate) async fn check(migration: &Migration) -> Result<(), String> {
    let mut reasons = Vec::new();
    // Edits may be missing at the side that follows.
    for (side, peer) in [(&migration.source, PEER), (&migration.target, PEER_BACK)] {
        reasons.extend(own_peer(migration, side, peer).await?);
        for table in migration.tables() {
            let found = side.described(&table).await?;
            let without = plan::without_scope(&found);
            if !without.is_empty() {
                reasons.push(format!(
                    "REPLICATION_SCOPE of {} of {table} at the {} is not 1 any more: {}",
                    without.join(", "),
                    side.name,
                    alter_scopes(&table, &without)
                ));
            }
        }
    }
    if !reasons.is_empty() {
        migration.state.lock().walk = None;
        migration.save()?;
    }
    for table in migration.tables() {
        let source = migration.source.described(&table).await?;
        match plan::target_descriptor(&source, Drops { coprocessors: true, mob: true }) {
            Err(more) => reasons.extend(more),
            Ok(wanted) => reasons.extend(plan::mismatch(&wanted, &migration.target.described(&table).await?)),
        }
    }
    reasons.extend(other_peers(migration).await?);
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(format!("no cut over, and nothing was changed:\n  {}", reasons.join("\n  "))),
    }
}

fn alter_scopes(table: &TableName, families: &[String]) -> String {
    let family = |name: &String| format!("{{NAME => '{name}', REPLICATION_SCOPE => 1}}");
    format!("alter '{table}', {}", families.iter().map(family).collect::<Vec<_>>().join(", "))
}

/// What is wrong with a peer of the migration. The one of the way back is made at the first cut over.
async fn own_peer(migration: &Migration, side: &Side, id: &str) -> Result<Option<String>, String> {
    let replicated = migration.replicated();
    Ok(match side.peer(id).await? {
        Some(peer) => {
            let lacks = replicated.iter().find(|table| !gets_all(&peer, table));
            lacks.map(|table| {
                format!(
                    "the peer {id} of the {} does not get all of {table} any more: append_peer_tableCFs '{id}', {{\"{table}\" => []}}",
                    side.name
                )
            })
        }
        None if id == PEER => {
            Some(format!("the {} has no peer {id} any more: --abort, and begin again", side.name))
        }
        None if matches!(migration.phase(), Phase::CutOver | Phase::GoingBack | Phase::Back) => {
            let key = migration.state.lock().from_cluster_key.clone();
            let tables: Vec<String> = replicated.iter().map(|table| format!("\"{table}\" => []")).collect();
            Some(format!(
                "the {} has no peer {id} any more, so what was written there since then is not at the {}. To have the rest \
                 sent, and all rows compared by the next run: add_peer '{id}', CLUSTER_KEY => \"{key}\", TABLE_CFS => {{{}}}",
                side.name,
                migration.source.name,
                tables.join(", ")
            ))
        }
        None => None,
    })
}

/// Whether a peer gets all families of a table.
fn gets_all(peer: &Peer, table: &TableName) -> bool {
    let is_part = |listed: &[(TableName, Vec<_>)]| {
        listed.iter().any(|(name, families): &(TableName, Vec<_>)| name == table && !families.is_empty())
    };
    let is_whole_by_name = !is_part(peer.tables.as_deref().unwrap_or_default());
    let is_whole_by_namespace = peer.namespaces.iter().any(|name| name == table.namespace());
    peer.gets(table) && !is_part(&peer.excluded_tables) && (is_whole_by_name || is_whole_by_namespace)
}

/// Why other peers of both sides are disturbed by tables as they are now. Peers may have been added since the plan.
pub(crate) async fn other_peers(migration: &Migration) -> Result<Vec<String>, String> {
    let mut reasons = Vec::new();
    for side in [&migration.source, &migration.target] {
        let mut replicated = vec![Replicated::of(&marks::descriptor(), false)];
        for table in migration.tables() {
            if let Some(found) = side.descriptor(&table).await? {
                replicated.push(Replicated::of(&found, false));
            }
        }
        reasons.extend(receivers::reasons(side, &replicated, true).await?);
    }
    Ok(reasons)
}

/// Of each table at both sides: its regions, and when it was enabled last. A table that was truncated or restored has other
/// regions, or was disabled meanwhile.
pub(crate) async fn layouts(migration: &Migration) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for side in [&migration.source, &migration.target] {
        for table in migration.tables() {
            let failed = |error| side.failed(&format!("regions of {table}"), error);
            let regions = side.admin.regions(&table).await.map_err(failed)?;
            let meta = side.cluster.table(TableName::META, 0);
            let state =
                meta.get(Get::new(table.full_name()).column("table", "state")).await.map_err(failed)?;
            let enabled_ms = state.cell("table", "state").map_or(0, |cell| cell.timestamp());
            let mut sum = Xxh3::new();
            for found in &regions {
                sum.update(found.region.encoded_name().as_bytes());
            }
            all.push(format!("{table} of the {}: {:016x}, {enabled_ms}", side.name, sum.digest()));
        }
    }
    Ok(all)
}

/// The region servers of both sides.
pub(crate) async fn servers(migration: &Migration) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for side in [&migration.source, &migration.target] {
        let servers = side.admin.region_servers().await.map_err(|error| side.failed("servers", error))?;
        all.extend(servers.iter().map(|server| format!("{} {server}", side.name)));
    }
    Ok(all)
}

/// Why all rows are to be compared once more before a cut over; empty: they need not be.
pub(crate) async fn reasons_to_walk(migration: &Migration, way: Way) -> Result<Vec<String>, String> {
    let (layouts, servers) = (layouts(migration).await?, servers(migration).await?);
    let walk = migration.state.lock().walk.clone();
    let now_ms = migration.env.clock.now_ms();
    let within = Duration::from_secs(migration.args.verified_within);
    let mut all = reasons(walk.as_ref(), now_ms, within, migration.pair(way).0.name, &layouts, &servers);
    // The comparison looks for them first, see `after.rs`.
    if migration.state.lock().unsearched(way.opposite()).is_some() {
        all.push("rows that changed last before the last cut over were not all compared".to_string());
    }
    Ok(all)
}

fn reasons(
    walk: Option<&Walk>,
    now_ms: i64,
    within: Duration,
    from: &str,
    layouts: &[String],
    servers: &[String],
) -> Vec<String> {
    let Some(walk) = walk else { return vec!["no comparison of all rows counts any more".to_string()] };
    let mut reasons = Vec::new();
    let age = u64::try_from(now_ms.saturating_sub(walk.ended_ms)).map(Duration::from_millis);
    match age {
        Ok(age) if age <= within => {}
        Ok(age) => reasons.push(format!("the last comparison ended {} ago", duration(age))),
        Err(_) => {
            reasons.push("the last comparison ended in the future, by the clock of this machine".to_string())
        }
    }
    for known in walk.layouts.iter().filter(|known| !layouts.contains(known)) {
        let table = known.rsplit_once(": ").map_or(known.as_str(), |(table, _)| table);
        reasons.push(format!(
            "{table} has other regions since, or was disabled (a split, a truncate, a restore)"
        ));
    }
    let is_gone = |known: &&String| known.starts_with(&format!("{from} ")) && !servers.contains(known);
    for known in walk.servers.iter().filter(is_gone) {
        reasons.push(format!("the {known} is gone since, and edits of it may be on their way"));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_again_when_something_may_have_bypassed_the_wal() {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let layouts = texts(&["t of the source: 01, 5", "t of the target: 02, 6"]);
        let servers = texts(&["source a,1,1", "target b,1,1"]);
        let walk = Walk { ended_ms: 1_000_000, layouts: layouts.clone(), servers: servers.clone() };
        let hour = Duration::from_secs(3600);
        let told = |now_ms: i64, layouts: &[String], servers: &[String]| {
            reasons(Some(&walk), now_ms, hour, "source", layouts, servers).join("; ")
        };
        assert_eq!(told(4_600_000, &layouts, &servers), "");
        assert!(told(4_600_001, &layouts, &servers).contains("ended 1h00m ago"));
        assert!(told(0, &layouts, &servers).contains("in the future"));
        let truncated = texts(&["t of the source: 01, 9", "t of the target: 02, 6"]);
        let text = told(1_000_000, &truncated, &servers);
        assert!(text.starts_with("t of the source has other regions"), "{text}");
        assert!(told(1_000_000, &layouts, &servers[1..]).contains("source a,1,1 is gone"));
        assert_eq!(told(1_000_000, &layouts, &servers[..1]), "", "the other side sends nothing");
        assert!(reasons(None, 0, hour, "source", &layouts, &servers)[0].contains("no comparison"));
    }

    #[test]
    fn a_peer_of_a_part_is_no_peer_of_all() {
        let name = TableName::parse(b"n:t").unwrap();
        let peer = Peer::of_tables("p", "h:1:/b", [name.clone()]);
        assert!(gets_all(&peer, &name));
        let family = vec![(name.clone(), vec!["f".into()])];
        let part = Peer { tables: Some(family.clone()), ..peer.clone() };
        assert!(!gets_all(&part, &name));
        assert!(gets_all(&Peer { namespaces: vec!["n".to_string()], ..part }, &name));
        assert!(!gets_all(&Peer { excluded_tables: family, ..Peer::new("p", "h:1:/b") }, &name));
        assert!(!gets_all(&Peer { tables: Some(Vec::new()), ..peer }, &name));
    }
}
