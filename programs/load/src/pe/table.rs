//! The table of a run: there, made, or made anew.

use halcyon_client::{ClientError, Cluster};
use halcyon_schema::{FamilyDescriptor, TableDescriptor, TableName};

use crate::pe::options::Options;
use crate::pe::rows::{family, format_row};

/// Makes sure that the table is there and as the options want it (`PerformanceEvaluation.checkTable`).
pub(super) async fn prepare(cluster: &Cluster, name: &TableName, options: &Options) -> Result<(), String> {
    let failed = |error: ClientError| format!("table {name}: {error}");
    let admin = cluster.admin().await.map_err(failed)?;
    let found = admin.descriptor(name).await.map_err(failed)?;
    if found.is_none() && options.needs_table() {
        return Err(format!(
            "there is no table {name} to {}; a write command makes it",
            options.command_name()
        ));
    }
    if let Some(found) = &found {
        let Some(why) = unlike(cluster, found, options).await.map_err(failed)? else { return Ok(()) };
        if options.needs_table() {
            return Err(format!(
                "table {name} {why}: it would have to be made anew, and then there is nothing to read"
            ));
        }
        eprintln!("table {name} {why}: it is deleted and made anew");
        admin.drop_table(name).await.map_err(failed)?;
    }
    let descriptor = descriptor(name, options).map_err(|error| error.to_string())?;
    admin.create_table(&descriptor, splits(options)).await.map_err(failed)
}

/// Why a table cannot be taken as it is.
async fn unlike(
    cluster: &Cluster,
    found: &TableDescriptor,
    options: &Options,
) -> Result<Option<String>, ClientError> {
    let args = &options.args;
    if found.families().len() != args.families as usize {
        return Ok(Some(format!("has {} families, not {}", found.families().len(), args.families)));
    }
    let policy = found.attribute(b"SPLIT_POLICY").map(|value| String::from_utf8_lossy(value).into_owned());
    if !options.needs_table() && policy != args.split_policy {
        return Ok(Some("has another split policy".to_string()));
    }
    if args.presplit > 0 {
        let regions = cluster.admin().await?.regions_count(found.name()).await?;
        if regions != args.presplit as usize {
            return Ok(Some(format!("has {regions} regions, not {}", args.presplit)));
        }
    }
    Ok(None)
}

fn descriptor(name: &TableName, options: &Options) -> halcyon_cell::Result<TableDescriptor> {
    let args = &options.args;
    let mut table = TableDescriptor::new(name.clone());
    for number in 0..args.families {
        let mut descriptor = FamilyDescriptor::new(family(number))?
            .with("DATA_BLOCK_ENCODING", args.block_encoding.to_ascii_uppercase())
            .with("COMPRESSION", args.compress.to_ascii_uppercase())
            .with("BLOOMFILTER", args.bloom_filter.to_ascii_uppercase())
            .with("BLOCKSIZE", args.block_size.to_string())
            .with("IN_MEMORY_COMPACTION", args.in_memory_compaction.to_ascii_uppercase());
        if !args.encryption.eq_ignore_ascii_case("NONE") {
            descriptor = descriptor.with("ENCRYPTION", args.encryption.clone());
        }
        if args.in_memory {
            descriptor = descriptor.with("IN_MEMORY", "true");
        }
        table = table.with_family(descriptor);
    }
    if let Some(policy) = &args.split_policy {
        table = table.with("SPLIT_POLICY", policy);
    }
    Ok(table)
}

/// Rows that divide the table evenly.
fn splits(options: &Options) -> Vec<bytes::Bytes> {
    let regions = u64::from(options.args.presplit);
    let jump = options.total_rows.checked_div(regions).unwrap_or(0);
    (1..regions).map(|number| format_row(jump * number)).collect()
}
