//! `halcyon set-wal-aside`: gives up one WAL of a dead server that nobody can read, so that its regions open again.
//!
//! Without `--yes` it only says what would be lost. It takes a WAL that a recovery waits for: one below `WALs/<server>-splitting`,
//! whose server can write no more; or, with `--server-is-gone`, one below `WALs/<server>` of a server that does not run. The file
//! is moved to `corrupt` and not deleted. The recovery, or the next start, goes on without it. A WAL of which not all can be read at the
//! moment stays, unless `--although-unread` says that nothing more will come.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

use halcyon_cell::ErrorKind;
use halcyon_env::Env;
use halcyon_schema::layout;
use halcyon_wal::{LogDamage, examine_log, set_aside};

use crate::crypto_settings;
use crate::settings::local_path;

/// After the name of a server in the directory of its WALs, once it is fenced (HBase: `AbstractFSWALProvider.SPLITTING_EXT`).
const SPLITTING: &str = "-splitting";

/// Give up one WAL of a dead server that cannot be read, so that its regions open again.
///
/// Says what of the WAL can be read and what is lost. With --yes the file is moved to the directory `corrupt`, and all edits in it
/// that are in no other file are lost, also those that can be read. To keep these, set hbase.hlog.split.skip.errors instead.
///
/// The file is taken from its writer first, which may take two minutes in HDFS: until then nobody knows where it ends. A WAL of a
/// server whose directory does not end with `-splitting` is only taken with --yes.
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
    /// With --yes: move the file although not all of it can be read at the moment. The DataNodes that have it may come back.
    #[arg(long)]
    pub although_unread: bool,
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
    let (root, is_fenced) = root_of(wal, args.server_is_gone)?;
    let look = look(env, wal, is_fenced || args.yes)?;
    if let Look::Whole(whole) = &look
        && (is_fenced || args.yes)
    {
        return Err(format!("{whole}: it is not damaged, and stays where it is"));
    }
    let mut print =
        |line: String| writeln!(out, "{line}").map_err(|error| format!("standard output: {error}"));
    print(look.to_string())?;
    if !args.yes {
        return print("Nothing was changed. With --yes the file is moved to corrupt, and all edits that only it has are lost.".into());
    }
    if matches!(look, Look::Unread(_)) && !args.although_unread {
        return Err(
            "The DataNodes that have it may come back, so it stays where it is. Try again later. If they do \
             not come back, add --although-unread"
                .into(),
        );
    }
    let to = set_aside(env, wal, &layout::corrupt_dir(&root)).map_err(|error| error.to_string())?;
    print(format!("The WAL was moved to {}. The recovery goes on without it.", to.display()))
}

/// What a look at a WAL has shown.
enum Look {
    Damaged(LogDamage),
    /// As far as it goes: it may have an open end if it was not sealed.
    Whole(LogDamage),
    /// Not all of it can be read at the moment.
    Unread(String),
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Look::Damaged(damage) => damage.fmt(f),
            Look::Whole(damage) => {
                write!(f, "{damage} now. With --yes it is looked at again when nobody can write it any more")
            }
            Look::Unread(what) => f.write_str(what),
        }
    }
}

/// Reads the WAL, as a recovery does: first it is taken from its writer. Without that its last block shows no bytes in HDFS, so that it
/// would seem to end before it.
fn look(env: &Env, wal: &Path, may_seal: bool) -> Result<Look, String> {
    let sealed = if may_seal { env.fs.seal(wal) } else { Ok(()) };
    let is_there = || env.fs.exists(wal).is_ok_and(|is_there| is_there);
    match (examine_log(env, wal), sealed) {
        (Ok(damage), Err(error)) if is_there() => {
            let count = damage.entries_count;
            Ok(Look::Unread(format!(
                "{}: {count} entries can be read now, and not its end ({error})",
                wal.display()
            )))
        }
        (_, Err(error)) if !is_there() => Err(error.to_string()),
        (Ok(damage), _) if damage.is_damaged() => Ok(Look::Damaged(damage)),
        (Ok(damage), _) => Ok(Look::Whole(damage)),
        (Err(error), _) if error.kind() == ErrorKind::Io && is_there() => {
            Ok(Look::Unread(format!("{}: nothing can be read now ({error})", wal.display())))
        }
        (Err(error), _) => Err(error.to_string()),
    }
}

/// The root directory of the WALs, and whether the WAL's server can write no more.
fn root_of(wal: &Path, server_is_gone: bool) -> Result<(PathBuf, bool), String> {
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
    Ok((root.to_path_buf(), is_fenced))
}

#[cfg(test)]
mod tests {
    use super::*;
    use halcyon_env::FileSystem;
    use halcyon_env::sim::{Fault, Operation, SimFileSystem};

    fn args(yes: bool) -> SetWalAsideArgs {
        SetWalAsideArgs {
            wal: String::new(),
            config: None,
            server_is_gone: false,
            yes,
            although_unread: false,
        }
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

    fn fenced_wal(fs: &SimFileSystem, bytes: &[u8]) -> PathBuf {
        let dir = Path::new("/hbase/WALs/h,1,2-splitting");
        fs.create_dir_all(dir).expect("the directory is new");
        let wal = dir.join("h%2C1%2C2.3");
        fs.replace(&wal, bytes).expect("the file is new");
        wal
    }

    /// The DataNodes with its open block are gone: HDFS shows an empty file, of which "all 0 entries can be read". So the command refused
    /// what it is for.
    #[test]
    fn a_wal_that_cannot_be_sealed_is_not_taken_for_a_whole_one() {
        let fs = SimFileSystem::new();
        let (env, wal) = (fs.env(), fenced_wal(&fs, b""));
        fs.inject(Fault::new(Operation::Seal, "h%2C1%2C2.3").forever());
        let said = text(&env, &wal, &args(false)).expect("it can be looked at");
        assert!(said.contains("0 entries can be read now, and not its end"), "{said}");
        let why = text(&env, &wal, &args(true)).expect_err("DataNodes may come back");
        assert!(why.contains("--although-unread"), "{why}");
        assert!(env.fs.exists(&wal).expect("the disk answers"));
        let said = text(&env, &wal, &SetWalAsideArgs { although_unread: true, ..args(true) });
        assert!(said.is_ok_and(|said| said.contains("/hbase/corrupt/")));
        assert!(fs.faults_hit() >= 3);
    }

    /// A moment without DataNodes was enough to give up a whole WAL.
    #[test]
    fn a_wal_that_cannot_be_read_at_the_moment_stays() {
        let fs = SimFileSystem::new();
        let (env, wal) = (fs.env(), fenced_wal(&fs, b"no WAL at all"));
        fs.inject(Fault::new(Operation::Open, "h%2C1%2C2.3"));
        let why = text(&env, &wal, &args(true)).expect_err("it may be readable soon");
        assert!(why.contains("--although-unread"), "{why}");
        assert_eq!(fs.faults_hit(), 1);
        let said = text(&env, &wal, &args(true)).expect("it is damaged");
        assert!(said.contains("13 of 13 bytes") && said.contains("/hbase/corrupt/"), "{said}");
    }

    #[test]
    fn a_wal_of_a_server_that_may_run_is_taken_from_it_only_when_that_is_said() {
        let fs = SimFileSystem::new();
        let (env, fenced) = (fs.env(), fenced_wal(&fs, b""));
        let wal = Path::new("/hbase/WALs/h,1,2/h%2C1%2C2.3");
        fs.create_dir_all(wal.parent().expect("it has one")).expect("the directory is new");
        fs.rename(&fenced, wal).expect("the name is free");
        fs.inject(Fault::new(Operation::Seal, "h%2C1%2C2.3"));
        let gone = |yes| SetWalAsideArgs { server_is_gone: true, ..args(yes) };
        let said = text(&env, wal, &gone(false)).expect("it can be looked at");
        assert!(
            said.contains("all 0 entries can be read now") && said.contains("Nothing was changed"),
            "{said}"
        );
        assert_eq!(fs.faults_hit(), 0);
        assert!(text(&env, wal, &gone(true)).is_err_and(|why| why.contains("--although-unread")));
        assert_eq!(fs.faults_hit(), 1);
        assert!(text(&env, wal, &gone(true)).is_err_and(|why| why.contains("it is not damaged")));
    }

    #[test]
    fn a_wal_of_a_live_server_and_other_files_are_refused() {
        let live = Path::new("/hbase/WALs/h,1,2/h%2C1%2C2.3");
        assert!(root_of(live, false).is_err_and(|why| why.contains("--server-is-gone")));
        assert_eq!(root_of(live, true), Ok(("/hbase".into(), false)));
        assert!(root_of(Path::new("/hbase/data/default/t"), true).is_err());
        assert!(root_of(Path::new("/x"), true).is_err());
    }
}
