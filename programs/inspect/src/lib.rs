//! `halcyon inspect`: looks at the files of a root directory without a server.
//!
//! - [`hfile`] reads store files: what HBase's `hbase hfile` prints, by the same options
//! - [`wal`] reads WALs and recovered edits: as `hbase wal`
//! - [`region`] lists what a region's directory holds
//! - [`meta`] reads the rows of `hbase:meta` from store files and WALs
//! - [`snapshot`] reads snapshots: as HBase's SnapshotInfo
//!
//! What must always hold:
//! - Nothing is written: all files come through [`halcyon_env::ReadOnlyFileSystem`], which also leaves access times alone.
//! - Damage is reported with file and place, and the rest of the file is read where that is possible.
//! - Values of cells are printed only where an option asks for them.
//!
//! When you change what an option prints, also touch `docs/INSPECT.md` and `testing/compat/inspect.sh`, which compares the
//! output with that of HBase's own tools.

pub mod hfile;
pub mod listed;
pub mod meta;
mod output;
pub mod place;
pub mod region;
pub mod snapshot;
pub mod text;
pub mod wal;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use halcyon_env::Env;

pub use output::{Done, Output, Stop};

/// Damage was found.
const EXIT_DAMAGE: u8 = 1;
/// Something could not be looked at: a wrong argument, or a file that is not there.
const EXIT_FAILED: u8 = 2;

/// `halcyon inspect ...`.
#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    /// Directory of hbase-site.xml, which names the keys of encrypted files.
    #[arg(long, value_name = "DIR", global = true)]
    pub config: Option<PathBuf>,
    #[command(subcommand)]
    command: InspectCommand,
}

#[derive(Debug, clap::Subcommand)]
enum InspectCommand {
    /// Print the metadata, blocks and cells of store files, and check them.
    Hfile(hfile::HfileArgs),
    /// Print the entries of WALs and recovered edits.
    Wal(wal::WalArgs),
    /// List the files of a region with sizes and sequence ids.
    Region(region::RegionArgs),
    /// Print the rows of hbase:meta.
    Meta(meta::MetaArgs),
    /// Print snapshots, their files, and who shares them.
    Snapshot(snapshot::SnapshotArgs),
}

impl InspectCommand {
    fn json(&self) -> bool {
        match self {
            InspectCommand::Hfile(args) => args.json,
            InspectCommand::Wal(args) => args.json,
            InspectCommand::Region(args) => args.json,
            InspectCommand::Meta(args) => args.json,
            InspectCommand::Snapshot(args) => args.json,
        }
    }
}

/// Reads through `env`; prints to standard output. Exit codes: 0 all was read, 1 damage was found, 2 something could not be looked at.
pub fn run(env: &Env, args: &InspectArgs) -> ExitCode {
    let mut stdout = std::io::BufWriter::new(std::io::stdout().lock());
    match inspect(env, args, &mut stdout) {
        Ok(code) => ExitCode::from(code),
        Err(sentence) => {
            eprintln!("halcyon: {sentence}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// Writes to `out`; returns the exit code. The error is a sentence. A closed pipe (`| head`) is no error.
pub fn inspect(env: &Env, args: &InspectArgs, out: &mut dyn Write) -> Result<u8, String> {
    let mut output = Output::new(out, args.command.json());
    let done = match &args.command {
        InspectCommand::Hfile(args) => hfile::run(env, args, &mut output),
        InspectCommand::Wal(args) => wal::run(env, args, &mut output),
        InspectCommand::Region(args) => region::run(env, args, &mut output),
        InspectCommand::Meta(args) => meta::run(env, args, &mut output),
        InspectCommand::Snapshot(args) => snapshot::run(env, args, &mut output),
    };
    match done.and_then(|()| output.finish()) {
        Ok(()) if output.damage_count() > 0 => Ok(EXIT_DAMAGE),
        Ok(()) if output.failed_count() > 0 => Ok(EXIT_FAILED),
        Ok(()) => Ok(0),
        Err(Stop::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(0),
        Err(Stop::Output(error)) => Err(format!("standard output: {error}")),
        Err(Stop::Failed(sentence)) => Err(sentence),
    }
}
