//! The end of a migration: nothing of it stays but the tables.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::sleep;

use crate::side::{MARKS, PEER, PEER_BACK, Side};
use crate::state::{Phase, Scope};
use crate::{Migration, Way, cut_over, marks, plan, receivers};

/// In this time another server has claimed the queue of one that died, and tells of it.
const CLAIM_TIME: Duration = Duration::from_secs(30);
/// Between two looks at recoveries, and when it is told what is waited for.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
const LOOKS_TOLD: u32 = 30;

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
        all_edits(migration, left, used).await?;
    }
    Ok(())
}

/// Waits until the other side has all edits of a side, also those of servers that died since all rows were compared.
pub(crate) async fn all_edits(migration: &Migration, from: &Side, to: &Side) -> Result<(), String> {
    let of_side = format!("{} ", from.name);
    let known = migration.state.lock().walk.clone().map_or_else(Vec::new, |walk| walk.servers);
    let known = known.iter().filter_map(|server| server.strip_prefix(&of_side)).map(str::to_string);
    let servers = async || servers(from).await;
    let drain = async || marks::drain(from, to).await.map(|_| ());
    let of_dead_servers = async || marks::of_dead_servers(from).await;
    last_edits(known.collect(), servers, of_dead_servers, drain, async |time| sleep(time).await).await
}

/// The region servers of a side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Servers {
    live: BTreeSet<String>,
    /// Those that died, also long ago. Masters forget them.
    dead: BTreeSet<String>,
    /// Recoveries of servers that have not ended. The WALs of a server belong to nobody before.
    recoveries: usize,
}

async fn servers(side: &Side) -> Result<Servers, String> {
    let metrics = side.admin.cluster_metrics().await.map_err(|error| side.failed("metrics", error))?;
    let procedures = side.admin.procedures().await.map_err(|error| side.failed("procedures", error))?;
    Ok(Servers {
        live: metrics.servers.iter().map(|server| server.name.to_string()).collect(),
        dead: metrics.dead_servers.iter().map(ToString::to_string).collect(),
        recoveries: procedures.iter().filter(|one| is_recovery(&one.class, &one.state)).count(),
    })
}

fn is_recovery(class: &str, state: &str) -> bool {
    class.ends_with(".ServerCrashProcedure") && !matches!(state, "SUCCESS" | "FAILED" | "ROLLEDBACK")
}

/// Waits until all edits of a side have left it, also those of servers that died. A mark says nothing of these, so their queues are
/// waited for before it and behind it. A death is known before the queue is, which others send only when the server is recovered: so the
/// end of its recovery is waited for, and then there is a pause. `known`: servers that were there.
async fn last_edits(
    mut known: BTreeSet<String>,
    servers: impl AsyncFn() -> Result<Servers, String>,
    of_dead_servers: impl AsyncFn() -> Result<(), String>,
    drain: impl AsyncFn() -> Result<(), String>,
    pause: impl AsyncFn(Duration),
) -> Result<(), String> {
    let (mut waited_for, mut was_recovering) = (BTreeSet::new(), false);
    loop {
        let (now, has_waited) = recovered(&servers, &pause).await?;
        known.extend(now.dead);
        let gone: Vec<String> =
            known.difference(&now.live).filter(|server| !waited_for.contains(*server)).cloned().collect();
        if has_waited || was_recovering || !gone.is_empty() {
            let names = if gone.is_empty() { "a server".to_string() } else { gone.join(", ") };
            println!("{names}: gone, and edits of it may be on their way");
            pause(CLAIM_TIME).await;
        }
        waited_for.extend(gone);
        known.extend(now.live);
        of_dead_servers().await?;
        drain().await?;
        of_dead_servers().await?;
        let after = servers().await?;
        was_recovering = after.recoveries > 0;
        known.extend(after.dead);
        if !was_recovering && known.difference(&after.live).all(|server| waited_for.contains(server)) {
            return Ok(());
        }
    }
}

/// Waits until no server is being recovered. Returns the servers, and whether there was one.
async fn recovered(
    servers: &impl AsyncFn() -> Result<Servers, String>,
    pause: &impl AsyncFn(Duration),
) -> Result<(Servers, bool), String> {
    let mut looks = 0;
    loop {
        let now = servers().await?;
        if now.recoveries == 0 {
            return Ok((now, looks > 0));
        }
        if looks % LOOKS_TOLD == 0 {
            println!("{} servers that died are being recovered, and may have edits to send", now.recoveries);
        }
        looks += 1;
        pause(LOOK_PERIOD).await;
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
    use std::cell::{Cell, RefCell};

    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn of(live: &[&str], dead: &[&str], recoveries: usize) -> Servers {
        Servers { live: set(live), dead: set(dead), recoveries }
    }

    /// What is done until all edits have left, with the servers that each look at them shows, the last one again and again.
    async fn done_with(known: &[&str], looks: &[Servers]) -> Vec<&'static str> {
        let (done, looked) = (RefCell::new(Vec::new()), Cell::new(0));
        let servers = async || {
            looked.set(looked.get() + 1);
            Ok(looks[(looked.get() - 1).min(looks.len() - 1)].clone())
        };
        let note = |what: &'static str| {
            done.borrow_mut().push(what);
            Ok(())
        };
        let (of_dead, drain) = (async || note("queues"), async || note("mark"));
        let pause = async |time| {
            if time == CLAIM_TIME {
                done.borrow_mut().push("pause");
            }
        };
        last_edits(set(known), servers, of_dead, drain, pause).await.unwrap();
        assert!(looked.get() >= looks.len(), "it ends before all is seen");
        done.into_inner()
    }

    /// The peer was removed while the queue of a server that had died waited. Writes of clients that were forgotten were lost.
    #[tokio::test]
    async fn the_end_waits_for_what_dead_servers_have_left() {
        let round = &["queues", "mark", "queues"][..];
        let paused = &["pause", "queues", "mark", "queues"][..];
        let (alive, one_died) = (of(&["a", "b"], &[], 0), of(&["a"], &["b"], 0));
        let unknown = of(&["a"], &["c"], 0);
        let recovering = |count| of(&["a"], &[], count);
        for (what, known, looks, done) in [
            ("none died", &["a", "b"][..], vec![alive.clone()], vec![round]),
            ("one died long ago", &["a", "b", "long dead"][..], vec![alive.clone()], vec![paused]),
            ("one dies meanwhile", &["a", "b"][..], vec![alive.clone(), one_died], vec![round, paused]),
            ("one had died that nobody knew", &["a"][..], vec![unknown.clone()], vec![paused]),
            ("nothing is known", &[][..], vec![unknown], vec![paused]),
            ("one is recovered first", &["a", "b"][..], vec![of(&["a"], &["b"], 1); 40], vec![paused]),
            (
                "one is recovered meanwhile",
                &["a"][..],
                vec![recovering(0), recovering(1)],
                vec![round, paused],
            ),
        ] {
            let last = Servers { recoveries: 0, ..looks[looks.len() - 1].clone() };
            let looks = [looks, vec![last]].concat();
            assert_eq!(done_with(known, &looks).await, done.concat(), "{what}");
        }
    }

    #[test]
    fn a_recovery_is_one_until_it_ends() {
        let class = "org.apache.hadoop.hbase.master.procedure.ServerCrashProcedure";
        assert!(is_recovery(class, "RUNNABLE") && is_recovery(class, "WAITING"));
        assert!(!is_recovery(class, "SUCCESS") && !is_recovery(class, "FAILED"));
        assert!(!is_recovery("org.apache.hadoop.hbase.master.procedure.DisableTableProcedure", "RUNNABLE"));
    }

    #[tokio::test]
    async fn the_end_fails_with_a_queue_that_cannot_be_seen() {
        let pause = async |_| {};
        let stuck = async || Err("a queue waits".to_string());
        let drain = async || unreachable!("no mark is set");
        let ended = last_edits(set(&[]), async || Ok(of(&["a"], &[], 0)), stuck, drain, pause).await;
        assert_eq!(ended.unwrap_err(), "a queue waits");
    }
}
