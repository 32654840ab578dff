//! From nothing to a disabled peer: what is checked before anything is changed, and the changes, each of which may be made
//! again.

use halcyon_client::TableState as Enabled;
use halcyon_client::{NamespaceDescriptor, Peer, Scan, TableDescriptor};
use halcyon_schema::TableName;

use crate::marks;
use crate::plan::{self, Drops};
use crate::side::{PEER, Side};
use crate::state::{FORMAT, Phase, State, TableOfState};
use crate::{MigrateArgs, Migration};

/// Checks both sides and returns the state of a new migration. Changes nothing. Every reason against it is told at once.
pub(crate) async fn plan(args: &MigrateArgs, source: &Side, target: &Side) -> Result<State, String> {
    let names = plan::table_names(&args.tables)?;
    let key = |given: &Option<String>, side: &Side, option: &str| {
        given.clone().or_else(|| side.address.cluster_key()).ok_or_else(|| {
            format!(
                "{} is an RPC registry, and peers are found through ZooKeeper: add {option}",
                side.address
            )
        })
    };
    let from_cluster_key = key(&args.from_cluster_key, source, "--from-cluster-key")?;
    let to_cluster_key = key(&args.to_cluster_key, target, "--to-cluster-key")?;
    if source.uuid == target.uuid {
        return Err(format!("{} and {} are one cluster", source.address, target.address));
    }
    for (side, id) in [(source, PEER), (target, crate::side::PEER_BACK)] {
        if side.peer(id).await?.is_some() {
            return Err(format!(
                "the {} has a peer {id} of another migration: resume that one with its --state, or remove_peer '{id}'",
                side.name
            ));
        }
    }
    let peers = source.admin.peers().await.map_err(|error| source.failed("list of peers", error))?;
    let mut reasons = Vec::new();
    let mut tables = Vec::new();
    for name in &names {
        let Some(descriptor) = source.descriptor(name).await? else {
            reasons.push(format!("the source has no table {name}"));
            continue;
        };
        let state = source.admin.table_state(name).await.map_err(|error| source.failed("state", error))?;
        if state != Enabled::Enabled {
            reasons.push(format!("{name} is not enabled at the source: enable it first"));
            continue;
        }
        match plan::target_descriptor(&descriptor, drops(args)) {
            Err(more) => reasons.extend(more),
            Ok(wanted) => reasons.extend(check_target(args, target, &wanted).await?),
        }
        if !args.accept_other_peers {
            reasons.extend(plan::new_receivers(&peers, &descriptor).iter().map(|peer| {
                format!(
                    "the peer {} of the source would begin to get {name}, because REPLICATION_SCOPE becomes 1 \
                     (--accept-other-peers; or exclude the table there)",
                    peer.id
                )
            }));
        }
        tables.push(TableOfState {
            name: name.to_string(),
            scopes: plan::scopes(&descriptor),
            ranges: Vec::new(),
        });
    }
    if !reasons.is_empty() {
        return Err(format!("nothing was changed:\n  {}", reasons.join("\n  ")));
    }
    Ok(State {
        format: FORMAT,
        from: source.address.to_string(),
        to: target.address.to_string(),
        from_cluster_key,
        to_cluster_key,
        phase: Phase::Preparing,
        tables,
        copied_cells: 0,
        copied_bytes: 0,
        compared_ms: 0,
        unsettled: Vec::new(),
    })
}

fn drops(args: &MigrateArgs) -> Drops {
    Drops { coprocessors: args.drop_coprocessors, mob: args.drop_mob }
}

async fn check_target(
    args: &MigrateArgs,
    target: &Side,
    wanted: &TableDescriptor,
) -> Result<Option<String>, String> {
    let name = wanted.name();
    let Some(found) = target.descriptor(name).await? else { return Ok(None) };
    if let Some(reason) = plan::mismatch(wanted, &found) {
        return Ok(Some(reason));
    }
    if args.into_filled {
        return Ok(None);
    }
    let mut scan = target.cluster.table(name.clone(), 0).scan(Scan::new().limit(1));
    let row = scan.next().await.map_err(|error| target.failed(&format!("scan of {name}"), error))?;
    Ok(row.map(|_| format!("{name} has rows at the target (--into-filled copies into it)")))
}

/// Makes tables, scopes and the peer.
pub(crate) async fn prepare(migration: &Migration) -> Result<(), String> {
    let (source, target) = (&migration.source, &migration.target);
    for name in migration.tables() {
        let descriptor = source.described(&name).await?;
        let wanted = plan::target_descriptor(&descriptor, drops(&migration.args));
        let wanted = wanted.map_err(|reasons| reasons.join("\n"))?;
        make_table(source, target, &wanted).await?;
    }
    marks::create(source).await?;
    marks::create(target).await?;
    for name in migration.tables() {
        let found = source.described(&name).await?;
        if plan::with_all_scopes(found.clone()) != found {
            // The regions are reopened, and close fast with an empty memstore.
            source
                .admin
                .flush(&name)
                .await
                .map_err(|error| source.failed(&format!("flush of {name}"), error))?;
        }
        if source.alter(&name, plan::with_all_scopes).await? {
            println!("source: REPLICATION_SCOPE of {name} is 1 now; --finish puts it back");
        }
    }
    add_peer(migration).await?;
    let mut ranges = Vec::new();
    for name in migration.tables() {
        let regions = source.admin.regions(&name).await;
        let regions = regions.map_err(|error| source.failed(&format!("regions of {name}"), error))?;
        let starts: Vec<_> = regions.iter().map(|found| found.region.start_key().clone()).collect();
        ranges.push(plan::ranges(&starts));
    }
    {
        let mut state = migration.state.lock();
        for (table, ranges) in state.tables.iter_mut().zip(ranges) {
            table.ranges = ranges;
        }
    }
    migration.enter(Phase::Copying)
}

async fn make_table(source: &Side, target: &Side, wanted: &TableDescriptor) -> Result<(), String> {
    let name = wanted.name();
    let failed = |error| target.failed(&format!("creation of {name}"), error);
    if target.descriptor(name).await?.is_some() {
        target.alter(name, plan::with_all_scopes).await?;
        return Ok(());
    }
    make_namespace(source, target, name).await?;
    let splits = source.admin.splits(name).await;
    let splits = splits.map_err(|error| source.failed(&format!("regions of {name}"), error))?;
    let count = splits.len() + 1;
    target.admin.create_table(wanted, splits).await.map_err(failed)?;
    println!("target: {name} is created with {count} regions");
    Ok(())
}

async fn make_namespace(source: &Side, target: &Side, table: &TableName) -> Result<(), String> {
    let name = table.namespace();
    let there = target.admin.namespaces().await.map_err(|error| target.failed("namespaces", error))?;
    if there.iter().any(|one| one == name) {
        return Ok(());
    }
    let namespace: NamespaceDescriptor = source
        .admin
        .describe_namespace(name)
        .await
        .map_err(|error| source.failed(&format!("namespace {name}"), error))?;
    let created = target.admin.create_namespace(&namespace).await;
    created.map_err(|error| target.failed(&format!("creation of the namespace {name}"), error))?;
    println!("target: the namespace {name} is created");
    Ok(())
}

/// The peer at the source, disabled: edits wait from now on.
async fn add_peer(migration: &Migration) -> Result<(), String> {
    let (source, key) = (&migration.source, migration.state.lock().to_cluster_key.clone());
    if source.peer(PEER).await?.is_some() {
        return Ok(());
    }
    let peer = Peer { is_enabled: false, ..Peer::of_tables(PEER, &key, migration.replicated()) };
    source
        .admin
        .add_peer(&peer)
        .await
        .map_err(|error| source.failed(&format!("the peer {PEER} ({key})"), error))?;
    println!("source: the peer {PEER} is added; edits wait for it until all rows are copied");
    Ok(())
}
