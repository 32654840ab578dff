//! The end of a migration: nothing of it stays but the tables.

use crate::side::{PEER, PEER_BACK, Side};
use crate::state::{Phase, Scope};
use crate::{Migration, Way, cut_over, marks, plan};

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
    let phase = migration.state.lock().phase;
    if phase == Phase::CutOver || (matches!(phase, Phase::Ready | Phase::Back) && !is_abort) {
        // Nothing that was acknowledged stays on one side only.
        marks::drain(&migration.source, &migration.target).await?;
        if migration.target.peer(PEER_BACK).await?.is_some() {
            marks::drain(&migration.target, &migration.source).await?;
        }
    }
    migration.enter(Phase::Ending)?;
    let (source, target) = (&migration.source, &migration.target);
    source.remove_peer(PEER).await?;
    target.remove_peer(PEER_BACK).await?;
    for (table, scopes) in migration.scopes() {
        put_back(source, &table, &scopes).await?;
        put_back(target, &table, &scopes).await?;
    }
    marks::drop_table(source).await?;
    marks::drop_table(target).await?;
    migration.enter(Phase::Ended)?;
    println!("the migration has ended; {} may be deleted", migration.file.path().display());
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
