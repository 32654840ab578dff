//! The end of a migration: nothing of it stays but the tables.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::side::{MARKS, PEER, PEER_BACK, Side};
use crate::state::{Phase, Scope};
use crate::{Migration, Way, cut_over, marks, plan, receivers};

/// In this time another server has claimed the queue of one that died, and tells of it.
const CLAIM_TIME: Duration = Duration::from_secs(30);

/// Removes peers and marks, and puts scopes back. May be called again after an error.
pub(crate) async fn end(migration: &Migration, is_abort: bool) -> Result<(), String> {
    let phase = migration.state.lock().phase;
    match (phase, is_abort) {
        (Phase::CuttingOver, true) => cut_over::undo(migration, Way::Forth).await?,
        (Phase::GoingBack, true) => cut_over::undo(migration, Way::Back).await?,
        (Phase::CuttingOver | Phase::GoingBack, false) => {
            return Err("a cut over has begun and not ended: run it again, or --abort".to_string());
        }
        (Phase::CutOver, true) => {
            migration.state.lock().check_complete()?;
            return Err("the target takes the writes since the cut over: --finish to stay there, or --back"
                .to_string());
        }
        (Phase::Preparing | Phase::Copying | Phase::Following, false) => {
            return Err(
                "not all rows are compared yet: run without a step, or --abort to give up".to_string()
            );
        }
        _ => {}
    }
    // Also for one that gives up: after a cut over back clients may still write to the target, and rows be there alone.
    let complete = migration.state.lock().check_complete();
    complete.map_err(|why| match phase {
        Phase::CuttingOver | Phase::GoingBack => format!("the cut over that had begun is undone, and {why}"),
        _ => why,
    })?;
    let phase = migration.state.lock().phase;
    if phase == Phase::CutOver || (matches!(phase, Phase::Ready | Phase::Back) && !is_abort) {
        drain(migration, if phase == Phase::CutOver { Way::Forth } else { Way::Back }).await?;
    }
    migration.enter(Phase::Ending)?;
    let (source, target) = (&migration.source, &migration.target);
    source.remove_peer(PEER).await?;
    target.remove_peer(PEER_BACK).await?;
    put_scopes_back(migration).await?;
    for side in [source, target] {
        let others = receivers::others(side).await?;
        for peer in others.iter().filter(|peer| peer.gets(&marks::table())) {
            println!(
                "{}: the peer {} may still have to send rows of {MARKS}: keep that table there until \
                 `status 'replication'` shows that it has sent all",
                side.name, peer.id
            );
        }
        marks::drop_table(side).await?;
    }
    migration.enter(Phase::Ended)?;
    println!("the migration has ended; {} may be deleted", migration.file.path().display());
    Ok(())
}

/// Nothing that was acknowledged stays on one side only. `way` says where clients are now. The side that they have left is closed
/// if the user wants that, and what forgotten clients have written there goes to the other side first.
async fn drain(migration: &Migration, way: Way) -> Result<(), String> {
    let (left, used) = migration.pair(way);
    let is_two_way = migration.target.peer(PEER_BACK).await?.is_some();
    let is_source = |side: &Side| side.name == migration.source.name;
    if is_two_way || is_source(used) {
        marks::drain(used, left).await?;
    }
    if migration.args.close_source && !is_two_way {
        return Err(
            "--close-source closes the side that clients have left, and there was no cut over".to_string()
        );
    }
    if migration.args.close_source {
        left.set_read_only(&migration.tables(), true, false).await?;
        println!("{}: the tables are READONLY", left.name);
    } else if is_two_way {
        println!(
            "{}: takes writes of clients that were forgotten, and from now on they reach nobody else; --finish --close-source \
             leaves the tables READONLY",
            left.name
        );
    }
    if is_two_way || is_source(left) {
        let of_side = format!("{} ", left.name);
        let known = migration.state.lock().walk.clone().map_or_else(Vec::new, |walk| walk.servers);
        let known = known.iter().filter_map(|server| server.strip_prefix(&of_side)).map(str::to_string);
        let servers = async || {
            let waiting = marks::waiting(left).await?;
            Ok(waiting.servers.iter().map(ToString::to_string).collect())
        };
        let drain = async || marks::drain(left, used).await.map(|_| ());
        let of_dead_servers = async || marks::of_dead_servers(left).await;
        last_edits(known.collect(), servers, of_dead_servers, drain, CLAIM_TIME).await?;
    }
    Ok(())
}

/// Waits until all edits of a side have left it, also those of servers that died. A mark says nothing of these, so their queues are
/// waited for before it and behind it. A death is known before the queue is: then there is a pause first. `known`: servers that were there.
async fn last_edits(
    mut known: BTreeSet<String>,
    servers: impl AsyncFn() -> Result<BTreeSet<String>, String>,
    of_dead_servers: impl AsyncFn() -> Result<(), String>,
    drain: impl AsyncFn() -> Result<(), String>,
    pause: Duration,
) -> Result<(), String> {
    loop {
        let now = servers().await?;
        let gone: Vec<&str> = known.difference(&now).map(String::as_str).collect();
        if !gone.is_empty() {
            println!("{}: gone, and edits of it may be on their way", gone.join(", "));
            tokio::time::sleep(pause).await;
        }
        known = now;
        of_dead_servers().await?;
        drain().await?;
        of_dead_servers().await?;
        if known.is_subset(&servers().await?) {
            return Ok(());
        }
    }
}

/// Each side gets its own scopes back, unless another peer relies on those that it has.
async fn put_scopes_back(migration: &Migration) -> Result<(), String> {
    let state = migration.state.lock().clone();
    for side in [&migration.source, &migration.target] {
        let is_source = side.name == migration.source.name;
        let others = receivers::others(side).await?;
        let known = if is_source { &state.source_peers } else { &state.target_peers };
        for table in &state.tables {
            let name = table.table();
            let peers: Vec<String> =
                others.iter().filter(|peer| peer.gets(&name)).map(|peer| peer.id.clone()).collect();
            let before =
                if is_source { Some(&table.source_scopes[..]) } else { table.target_scopes.as_deref() };
            match plan::final_scopes(before, &table.source_scopes, &peers, known) {
                Some(scopes) => put_back(side, &name, scopes).await?,
                None => println!(
                    "{}: REPLICATION_SCOPE of {name} stays as it is, because of the peers {}",
                    side.name,
                    peers.join(", ")
                ),
            }
        }
    }
    Ok(())
}

async fn put_back(side: &Side, table: &halcyon_schema::TableName, scopes: &[Scope]) -> Result<(), String> {
    if side.descriptor(table).await?.is_none() {
        return Ok(());
    }
    if side.alter(table, |found| plan::with_scopes(found, scopes)).await? {
        println!("{}: REPLICATION_SCOPE of {table} is as before", side.name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// The peer was removed while the queue of a server that had died waited. Writes of clients that were forgotten were lost.
    #[tokio::test]
    async fn the_end_waits_for_what_dead_servers_have_left() {
        let set = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        let pause = Duration::from_millis(1);
        for (dies, rounds) in [(false, 1), (true, 2)] {
            let done = RefCell::new(Vec::new());
            let servers = async || {
                let is_dead = dies && !done.borrow().is_empty();
                Ok(set(if is_dead { &["a"] } else { &["a", "b"] }))
            };
            let note = |what: &'static str| {
                done.borrow_mut().push(what);
                Ok(())
            };
            let (of_dead, drain) = (async || note("queues"), async || note("mark"));
            last_edits(set(&["a", "b", "long dead"]), servers, of_dead, drain, pause).await.unwrap();
            assert_eq!(*done.borrow(), ["queues", "mark", "queues"].repeat(rounds), "{dies}");
        }
        let stuck = async || Err("a queue waits".to_string());
        let drain = async || unreachable!("no mark is set");
        let ended = last_edits(set(&[]), async || Ok(set(&["a"])), stuck, drain, pause).await;
        assert_eq!(ended.unwrap_err(), "a queue waits");
    }
}
