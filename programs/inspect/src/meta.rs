//! `halcyon inspect meta`: the rows of `hbase:meta`, from the store files of its region and from edits that stand only in
//! WALs.

mod rows;

use std::path::{Path, PathBuf};

use halcyon_env::Env;
use halcyon_schema::{RegionInfo, TableName};
use serde_json::{Value, json};

use crate::output::{Done, Output, Stop};
use crate::{place, text};
pub use rows::{MetaRow, Sources, read, read_rows};

/// Print the rows of hbase:meta.
#[derive(Debug, Default, clap::Args)]
pub struct MetaArgs {
    /// Root directory.
    #[arg(long, value_name = "DIR", default_value = place::DEFAULT_ROOT)]
    pub data: PathBuf,
    /// Print only the rows of this table.
    #[arg(short, long, value_name = "TABLE")]
    pub table: Option<String>,
    /// Print every column with its value.
    #[arg(short = 'p', long)]
    pub printvals: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(env: &Env, args: &MetaArgs, out: &mut Output<'_>) -> Done {
    let meta_dir = RegionInfo::meta().dir(&args.data);
    if env.fs.list(&meta_dir).is_err() {
        let dir = meta_dir.display();
        return Err(Stop::Failed(format!(
            "hbase:meta has no directory: {dir} is not there; name the root with --data"
        )));
    }
    say_if_served(&args.data, out)?;
    let (rows, sources) = read(env, &args.data, out)?;
    let mut printed = 0;
    for row in rows.iter().filter(|row| is_wanted(args, row)) {
        printed += 1;
        print_row(row, args.printvals, out)?;
    }
    let Sources { files, wals, wal_cells } = sources;
    let object = || json!({"rows": printed, "storeFiles": files, "wals": wals, "cellsOnlyInWals": wal_cells});
    out.say("summary", object, || {
        format!("{printed} rows, from {files} store files and {wal_cells} cells that are only in WALs ({wals} read)")
    })
}

/// A server may change the files while they are read.
pub(crate) fn say_if_served(root: &Path, out: &mut Output<'_>) -> Done {
    let Some(pid) = halcyon_env::lock_holder(&root.join(place::LOCK_FILE)) else { return Ok(()) };
    out.say(
        "served",
        || json!({"process": pid}),
        || format!("Process {pid} serves this directory: files may change while they are read"),
    )
}

fn is_wanted(args: &MetaArgs, row: &MetaRow) -> bool {
    let Some(table) = &args.table else { return true };
    let of_row = row.region.as_ref().map(|region| region.table().clone());
    let of_row = of_row.or_else(|| halcyon_schema::parse_region_name(&row.row).ok().map(|parts| parts.table));
    let of_row = of_row.or_else(|| TableName::parse(&row.row).ok());
    of_row.is_some_and(|name| name.as_str() == table)
}

fn print_row(row: &MetaRow, printvals: bool, out: &mut Output<'_>) -> Done {
    let name = text::binary(&row.row);
    let object = || {
        let mut fields: serde_json::Map<String, Value> = serde_json::Map::new();
        fields.insert("row".to_string(), name.clone().into());
        fields.extend(row.fields().into_iter().map(|(name, value)| (name, value.into())));
        if printvals {
            let cells = row.cells.iter().map(|cell| text::cell_object(cell.get(), true));
            fields.insert("cells".to_string(), cells.collect::<Vec<Value>>().into());
        }
        Value::Object(fields)
    };
    out.say("row", object, || {
        let mut lines = vec![name.clone()];
        lines.extend(row.fields().into_iter().map(|(name, value)| format!("  {name}: {value}")));
        if printvals {
            lines.extend(row.cells.iter().map(|cell| {
                let key = text::key(cell.get().key());
                format!("  {key} V: {}", text::binary(cell.value()))
            }));
        }
        lines.join("\n")
    })?;
    for what in &row.damage {
        out.damage(Path::new("hbase:meta"), None, &format!("hbase:meta: row {name}: {what}"))?;
    }
    Ok(())
}
