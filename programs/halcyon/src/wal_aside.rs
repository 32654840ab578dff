//! `halcyon set-wal-aside`: gives up one WAL of a dead server that nobody can read, so that its regions open again.
//!
//! Without `--yes` it only says what would be lost. It takes a WAL that a recovery waits for: one below `WALs/<server>-splitting`,
//! whose server can write no more; or, with `--server-is-gone`, one below `WALs/<server>` of a server that does not run. The file
//! is moved to `corrupt` and not deleted. The recovery, or the next start, goes on without it.

use std::io::Write;
use std::path::{Path, PathBuf};

use halcyon_cell::ErrorKind;
use halcyon_env::Env;
use halcyon_schema::layout;
use halcyon_wal::{examine_log, set_aside};

use crate::crypto_settings;
use crate::settings::local_path;

/// After the name of a server in the directory of its WALs, once it is fenced (HBase: `AbstractFSWALProvider.SPLITTING_EXT`).
const SPLITTING: &str = "-splitting";

/// Give up one WAL of a dead server that cannot be read, so that its regions open again.
///
/// Says what of the WAL can be read and what is lost. With --yes the file is moved to the directory `corrupt`, and all edits in it
/// that are in no other file are lost, also those that can be read. To keep these, set hbase.hlog.split.skip.errors instead.
#[derive(Clone, Debug, clap::Args)]
pub struct SetWalAsideArgs {
    /// Path or address of the WAL, such as hdfs://namenode:8020/hbase/WALs/server-splitting/wal.
    #[arg(value_name = "WAL")]
    pub wal: String,
    /// Directory of the site files, for HDFS and for keys of encrypted WALs.
    #[arg(long, value_name = "DIR")]
    pub config: Option<PathBuf>,
    /// The server whose WAL it is does not run. Needed if its directory does not end with `-splitting`.
    #[arg(long)]
    pub server_is_gone: bool,
    /// Move the file. Without this nothing is changed.
    #[arg(long)]
    pub yes: bool,
}

pub fn run(args: &SetWalAsideArgs) -> Result<(), String> {
    let env = crypto_settings::with_keys_of(Env::real(), args.config.as_deref())?;
    let (env, wal) = open(env, args)?;
    give_up(&env, &wal, args, &mut std::io::stdout())
}

/// The files that the WAL is among, and its path there.
fn open(env: Env, args: &SetWalAsideArgs) -> Result<(Env, PathBuf), String> {
    if args.wal.starts_with("hdfs:") {
        let (fs, wal) = crate::import_files::open(&args.wal, args.config.as_deref())?;
        return Ok((Env { fs, ..env }, wal));
    }
    let wal = local_path(&args.wal).map_err(|why| format!("{} {why}", args.wal))?;
    Ok((env, wal))
}

fn give_up(env: &Env, wal: &Path, args: &SetWalAsideArgs, out: &mut dyn Write) -> Result<(), String> {
    let root = root_of(wal, args.server_is_gone)?;
    let said = match examine_log(env, wal) {
        Ok(damage) if damage.is_damaged() => damage.to_string(),
        Ok(whole) => return Err(format!("{whole}: it is not damaged, and stays where it is")),
        Err(error) if error.kind() == ErrorKind::Io && env.fs.exists(wal).is_ok_and(|is_there| is_there) => {
            format!("{}: nothing can be read now ({error})", wal.display())
        }
        Err(error) => return Err(error.to_string()),
    };
    let mut print =
        |line: String| writeln!(out, "{line}").map_err(|error| format!("standard output: {error}"));
    print(said)?;
    if !args.yes {
        return print("Nothing was changed. With --yes the file is moved to corrupt, and all edits that only it has are lost.".into());
    }
    let to = set_aside(env, wal, &layout::corrupt_dir(&root)).map_err(|error| error.to_string())?;
    print(format!("The WAL was moved to {}. The recovery goes on without it.", to.display()))
}

/// The root directory of the WALs.
fn root_of(wal: &Path, server_is_gone: bool) -> Result<PathBuf, String> {
    let server = wal.parent();
    let root = server.and_then(Path::parent).and_then(Path::parent);
    let (Some(server), Some(root)) = (server, root) else {
        return Err(format!("{} is no WAL of a server", wal.display()));
    };
    if server.parent() != Some(&layout::wals_dir(root)) {
        return Err(format!("{} is not below WALs/<server>", wal.display()));
    }
    let is_fenced = server.to_string_lossy().ends_with(SPLITTING);
    if !is_fenced && !server_is_gone {
        return Err(format!(
            "{} is not of a server that a master recovers: its directory does not end with {SPLITTING}. \
             If the server does not run, say --server-is-gone",
            wal.display()
        ));
    }
    Ok(root.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;
    use halcyon_env::sim::SimFileSystem;

    fn args(yes: bool) -> SetWalAsideArgs {
        SetWalAsideArgs { wal: String::new(), config: None, server_is_gone: false, yes }
    }

    fn text(env: &Env, wal: &Path, args: &SetWalAsideArgs) -> Result<String, String> {
        let mut out = Vec::new();
        give_up(env, wal, args, &mut out).map(|()| String::from_utf8(out).expect("the program prints UTF-8"))
    }

    #[test]
    fn a_damaged_wal_is_moved_only_when_that_is_said() {
        let env = SimFileSystem::new().env();
        let dir = Path::new("/hbase/WALs/h,1,2-splitting");
        env.fs.create_dir_all(dir).expect("the directory is new");
        let wal = dir.join("h%2C1%2C2.3");
        env.fs.replace(&wal, b"no WAL at all").expect("the file is new");

        let said = text(&env, &wal, &args(false)).expect("it can be looked at");
        assert!(
            said.contains("13 of 13 bytes cannot be read") && said.contains("Nothing was changed"),
            "{said}"
        );
        assert!(env.fs.exists(&wal).expect("the disk answers"));

        let said = text(&env, &wal, &args(true)).expect("it can be moved");
        assert!(said.contains("/hbase/corrupt/h%2C1%2C2.3"), "{said}");
        assert!(!env.fs.exists(&wal).expect("the disk answers"));
        assert!(env.fs.exists(Path::new("/hbase/corrupt/h%2C1%2C2.3")).expect("the disk answers"));
        assert!(text(&env, &wal, &args(true)).is_err(), "it is gone");
    }

    #[test]
    fn a_wal_of_a_live_server_and_other_files_are_refused() {
        let live = Path::new("/hbase/WALs/h,1,2/h%2C1%2C2.3");
        assert!(root_of(live, false).is_err_and(|why| why.contains("--server-is-gone")));
        assert_eq!(root_of(live, true), Ok("/hbase".into()));
        assert!(root_of(Path::new("/hbase/data/default/t"), true).is_err());
        assert!(root_of(Path::new("/x"), true).is_err());
    }
}
