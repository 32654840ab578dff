//! From nothing to a disabled peer: what is checked before anything is changed, and the changes, each of which may be made
//! again.

use halcyon_client::TableState as Enabled;
use halcyon_client::{NamespaceDescriptor, Peer, Scan, TableDescriptor};
use halcyon_env::Env;
use halcyon_schema::TableName;

use crate::plan::{self, Drops};
use crate::receivers::{self, Replicated};
use crate::side::{PEER, Side};
use crate::state::{FORMAT, OldSide, Phase, State, TableOfState};
use crate::{MigrateArgs, Migration, checks, clocks, marks};

/// Checks both sides and returns the state of a new migration. Changes nothing. Every reason against it is told at once.
pub(crate) async fn plan(
    args: &MigrateArgs,
    env: &Env,
    source: &Side,
    target: &Side,
) -> Result<State, String> {
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
    let drops = Drops { coprocessors: args.drop_coprocessors, mob: args.drop_mob };
    let mut reasons = Vec::new();
    let mut tables = Vec::new();
    // What peers of each side get for as long as the migration lasts.
    let mut ours = vec![Replicated::of(&marks::descriptor(), true)];
    let mut theirs = ours.clone();
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
        if descriptor.read_only() {
            reasons.push(format!("{name} is READONLY: it has no writes to follow; alter it first"));
        }
        let found = target.descriptor(name).await?;
        ours.push(Replicated::of(&descriptor, !plan::without_scope(&descriptor).is_empty()));
        match plan::target_descriptor(&descriptor, drops) {
            Err(more) => reasons.extend(more),
            Ok(wanted) => {
                let begins = found.as_ref().is_none_or(|found| !plan::without_scope(found).is_empty());
                theirs.push(Replicated::of(&wanted, begins));
                if let Some(found) = &found {
                    reasons.extend(check_target(args, target, &wanted, found).await?);
                }
            }
        }
        tables.push(TableOfState {
            name: name.to_string(),
            source_scopes: plan::scopes(&descriptor),
            target_scopes: found.as_ref().map(plan::scopes),
            ranges: Vec::new(),
        });
    }
    for (side, tables) in [(source, &ours), (target, &theirs)] {
        reasons.extend(receivers::reasons(side, tables, args.accept_other_peers).await?);
    }
    reasons.extend(clocks::check_reported(env, source, target).await?);
    let ids = |peers: Vec<Peer>| peers.into_iter().map(|peer| peer.id).collect();
    let (source_peers, target_peers) =
        (ids(receivers::others(source).await?), ids(receivers::others(target).await?));
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
        keeps_surplus: args.merge,
        source_peers,
        target_peers,
        copied_cells: 0,
        copied_bytes: 0,
        compared_ms: 0,
        unsettled: Vec::new(),
        surplus: Vec::new(),
        walk: None,
        unsearched_ms: None,
        unsearched_since_ms: None,
        old_side: OldSide::default(),
    })
}

/// Why a table that the target has already cannot take the rows.
async fn check_target(
    args: &MigrateArgs,
    target: &Side,
    wanted: &TableDescriptor,
    found: &TableDescriptor,
) -> Result<Option<String>, String> {
    let name = wanted.name();
    if let Some(reason) = plan::mismatch(wanted, found) {
        return Ok(Some(reason));
    }
    if args.again || args.merge {
        return Ok(None);
    }
    let mut scan = target.cluster.table(name.clone(), 0).scan(Scan::new().limit(1));
    let row = scan.next().await.map_err(|error| target.failed(&format!("scan of {name}"), error))?;
    Ok(row.map(|_| {
        format!(
            "{name} has rows at the target: --again, if they are of an earlier try and it shall become like the source; \
             --merge, if rows that only the target has shall stay"
        )
    }))
}

/// Makes tables, scopes and the peer.
pub(crate) async fn prepare(migration: &Migration) -> Result<(), String> {
    let (source, target) = (&migration.source, &migration.target);
    let reasons = checks::other_peers(migration).await?;
    if !reasons.is_empty() {
        return Err(reasons.join("\n"));
    }
    for name in migration.tables() {
        let descriptor = source.described(&name).await?;
        let wanted = plan::target_descriptor(&descriptor, migration.drops());
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
