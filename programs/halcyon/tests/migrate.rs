//! `halcyon migrate` between two running servers: what `docs/MIGRATE.md` promises. `testing/compat/migrate.sh` is the test with
//! a real HBase.

#![allow(clippy::disallowed_methods)] // the time is the real one

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Server, fresh_dir};
use halcyon_client::{
    Admin, Cluster, ClusterAddress, ClusterOptions, Delete, DurabilityLevel, FamilyDescriptor, Get, Peer,
    Put, Scan, Table, TableDescriptor, TableName,
};

const ROWS: usize = 2_000;

async fn connect(server: &Server) -> (Cluster, Admin) {
    let address = ClusterAddress::zookeeper([server.address("zookeeper").to_string()]);
    let cluster = Cluster::connect(address, ClusterOptions::default()).await.unwrap();
    let admin = cluster.admin().await.unwrap();
    (cluster, admin)
}

fn name() -> TableName {
    TableName::parse(b"shop:orders").unwrap()
}

fn url(server: &Server) -> String {
    format!("hbase://{}/hbase", server.address("zookeeper"))
}

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
    command.arg("migrate").arg("--state").arg(dir.join("state.json"));
    if !args.contains(&"--pause-max") {
        command.args(["--pause-max", "60"]);
    }
    command.args(args);
    command
}

fn migrate(dir: &Path, args: &[&str]) -> Output {
    command(dir, args).output().unwrap()
}

/// The output of a run that has to succeed. The runtime goes on meanwhile.
async fn done(dir: &Path, args: &[&str]) -> String {
    let (dir, args) = (dir.to_path_buf(), args.iter().map(ToString::to_string).collect::<Vec<_>>());
    let run = move || migrate(&dir, &args.iter().map(String::as_str).collect::<Vec<_>>());
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    printed
}

fn refused(dir: &Path, args: &[&str]) -> String {
    let output = migrate(dir, args);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

fn table_name(name: &str) -> TableName {
    TableName::parse(name.as_bytes()).unwrap()
}

/// A table with the family `f`, whose edits peers get or not.
async fn create(admin: &Admin, name: &str, scope: i32) {
    let family = FamilyDescriptor::new("f").unwrap().with("REPLICATION_SCOPE", scope.to_string());
    let table = TableDescriptor::new(table_name(name)).with_family(family);
    admin.create_table(&table, Vec::new()).await.unwrap();
}

async fn scope(admin: &Admin, name: &str) -> i32 {
    admin.describe(&table_name(name)).await.unwrap().families()[0].scope()
}

async fn put(table: &Table, rows: &[&str]) {
    for row in rows {
        table.put(Put::new(row).column("f", "q", row)).await.unwrap();
    }
}

/// A row that no peer gets, with a timestamp that is not new: as a bulk load of old events is.
async fn bypass(table: &Table, row: &str) {
    let old = Put::new(row).column_at("f", "q", 1_000_000, "v").durability(DurabilityLevel::SkipWal);
    table.put(old).await.unwrap();
}

async fn rows(table: &Table) -> usize {
    let mut rows = table.scan(Scan::new()).into_stream();
    let mut count = 0;
    while let Some(row) = rows.next().await {
        row.unwrap();
        count += 1;
    }
    count
}

async fn has(table: &Table, row: &str) -> bool {
    table.exists(Get::new(row)).await.unwrap()
}

async fn waits_for(table: &Table, row: &str) {
    for _ in 0..400 {
        if has(table, row).await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    panic!("{row} has not arrived");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_moves_and_comes_back() {
    let dir = fresh_dir("migrate");
    let [source, target] =
        ["source", "target"].map(|name| Server::start(&dir.join(name), &["--memory", "128m"]));
    let ((ours, our_admin), (theirs, their_admin)) = (connect(&source).await, connect(&target).await);
    our_admin.create_namespace(&halcyon_client::NamespaceDescriptor::new("shop")).await.unwrap();
    let families = FamilyDescriptor::new("f").unwrap().with("VERSIONS", "2");
    let descriptor = TableDescriptor::new(name()).with_family(families);
    our_admin.create_table(&descriptor, vec!["row-0500".into(), "row-1500".into()]).await.unwrap();
    let (here, there) = (ours.table(name(), 0), theirs.table(name(), 0));
    for value in ["old", "new"] {
        let puts = (0..ROWS).map(|row| Put::new(format!("row-{row:04}")).column("f", "q", value));
        here.put_all(puts).await.unwrap();
    }
    here.delete(Delete::new("row-0007")).await.unwrap();

    let (from, to) = (url(&source), url(&target));
    let begin = ["--from", &from, "--to", &to, "--tables", "shop:orders"];
    assert!(refused(&dir, &["--from", &from, "--to", &to, "--tables", "x"]).contains("has no table x"));
    assert!(refused(&dir, &["--cut-over"]).contains("there is no migration"));
    assert!(refused(&dir, &["--to", &to]).contains("--from hbase://"));
    let printed = done(&dir, &begin).await;
    assert!(printed.contains("compared: missing 0, surplus 0, changing 0"), "{printed}");
    assert!(printed.contains(&format!("compared: {} rows", ROWS - 1)), "{printed}");
    assert_eq!(their_admin.splits(&name()).await.unwrap().len(), 2);
    here.put(Put::new("live").column("f", "q", "1")).await.unwrap();
    waits_for(&there, "live").await;
    assert!(refused(&dir, &["--back"]).contains("no way back"));

    let printed = done(&dir, &["--cut-over"]).await;
    assert!(printed.contains("cut over: writes were stopped for"), "{printed}");
    there.put(Put::new("after").column("f", "q", "1")).await.unwrap();
    waits_for(&here, "after").await;
    assert!(refused(&dir, &["--abort"]).contains("--finish"));
    let printed = done(&dir, &["--back"]).await;
    assert!(printed.contains("differences 0"), "{printed}");
    here.put(Put::new("home").column("f", "q", "1")).await.unwrap();
    waits_for(&there, "home").await;
    assert_eq!((rows(&here).await, rows(&there).await), (ROWS + 2, ROWS + 2));

    done(&dir, &["--finish"]).await;
    for admin in [&our_admin, &their_admin] {
        assert!(admin.peers().await.unwrap().is_empty());
        assert_eq!(admin.describe(&name()).await.unwrap().families()[0].scope(), 0);
        assert!(!admin.describe(&name()).await.unwrap().read_only());
        assert_eq!(admin.table_names(None, false).await.unwrap(), [name()]);
    }
    assert!(done(&dir, &["--status"]).await.contains("ended"));
    source.stop();
    target.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_migration_leaves_the_source_as_it_was() {
    let dir = fresh_dir("migrate-abort");
    let [source, target] =
        ["source", "target"].map(|name| Server::start(&dir.join(name), &["--memory", "128m"]));
    let ((ours, our_admin), (theirs, _)) = (connect(&source).await, connect(&target).await);
    let family = FamilyDescriptor::new("f").unwrap();
    let table = TableName::parse(b"t").unwrap();
    our_admin
        .create_table(&TableDescriptor::new(table.clone()).with_family(family), Vec::new())
        .await
        .unwrap();
    let before = our_admin.describe(&table).await.unwrap();
    ours.table(table.clone(), 0).put(Put::new("r").column("f", "q", "v")).await.unwrap();
    let (from, to) = (url(&source), url(&target));
    done(&dir, &["--from", &from, "--to", &to, "--tables", "t"]).await;
    done(&dir, &["--abort"]).await;
    assert!(our_admin.peers().await.unwrap().is_empty());
    let after = our_admin.describe(&table).await.unwrap();
    assert_eq!(after.with_family_defaults().families()[0].scope(), before.families()[0].scope());
    assert!(has(&theirs.table(table.clone(), 0), "r").await);
    // What is at the target is not overwritten by a second try that does not say so.
    let again = ["--from", &from, "--to", &to, "--tables", "t"];
    assert!(refused(&dir, &again).contains("--again"));
    done(&dir, &[&again[..], &["--again"]].concat()).await;
    source.stop();
    target.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

/// A peer that gets all tables began to get the table of marks, too. Its cluster refused the edits, and with them all that came
/// later, also when the migration had ended.
#[tokio::test(flavor = "multi_thread")]
async fn other_peers_of_both_sides_get_their_edits() {
    let dir = fresh_dir("migrate-peers");
    let [source, target, site] =
        ["source", "target", "site"].map(|name| Server::start(&dir.join(name), &["--memory", "128m"]));
    let ((ours, our_admin), (theirs, their_admin), (other, other_admin)) =
        (connect(&source).await, connect(&target).await, connect(&site).await);
    let site_key = format!("{}:/hbase", site.address("zookeeper"));
    for admin in [&our_admin, &their_admin] {
        admin.add_peer(&Peer::new("site", &site_key)).await.unwrap();
        create(admin, "bystander", 1).await;
    }
    create(&our_admin, "t", 1).await;
    for name in ["t", "bystander"] {
        create(&other_admin, name, 0).await;
    }
    let (here, there) = (ours.table(table_name("t"), 0), theirs.table(table_name("t"), 0));
    let at_site = other.table(table_name("t"), 0);
    put(&here, &["before"]).await;
    waits_for(&at_site, "before").await;

    let (from, to) = (url(&source), url(&target));
    let begin = ["--from", &from, "--to", &to, "--tables", "t"];
    let error = refused(&dir, &begin);
    for side in ["source", "target"] {
        assert!(error.contains(&format!("the peer site of the {side} gets halcyon_migrate")), "{error}");
    }
    assert!(error.contains("append_peer_exclude_tableCFs 'site', {\"halcyon_migrate\" => []}"), "{error}");
    assert!(error.contains("the peer site of the target would begin to get t"), "{error}");
    let accepting = [&begin[..], &["--accept-other-peers"]].concat();
    assert!(refused(&dir, &accepting).contains("gets halcyon_migrate"));
    assert!(our_admin.descriptor(&table_name("halcyon_migrate")).await.unwrap().is_none());
    // One way out at each side.
    let marks = table_name("halcyon_migrate");
    let without = Peer { excluded_tables: vec![(marks.clone(), Vec::new())], ..Peer::new("site", &site_key) };
    our_admin.update_peer(&without).await.unwrap();
    let family = FamilyDescriptor::new("m").unwrap();
    other_admin.create_table(&TableDescriptor::new(marks).with_family(family), Vec::new()).await.unwrap();
    done(&dir, &accepting).await;

    put(&here, &["during"]).await;
    waits_for(&at_site, "during").await;
    // A peer that comes later is looked at, too.
    let late = Peer::new("late", &format!("{}:/hbase", source.address("zookeeper")));
    their_admin.add_peer(&late).await.unwrap();
    done(&dir, &["--cut-over"]).await; // its cluster has all tables
    their_admin.remove_peer("late").await.unwrap();
    put(&there, &["after"]).await;
    waits_for(&at_site, "after").await;
    let printed = done(&dir, &["--finish", "--close-source"]).await;
    assert!(
        printed.contains("REPLICATION_SCOPE of t stays as it is, because of the peers site"),
        "{printed}"
    );
    assert_eq!((scope(&our_admin, "t").await, scope(&their_admin, "t").await), (1, 1));
    assert!(our_admin.describe(&table_name("t")).await.unwrap().read_only(), "clients have left it");
    put(&there, &["end"]).await;
    waits_for(&at_site, "end").await;
    for cluster in [&ours, &theirs] {
        put(&cluster.table(table_name("bystander"), 0), &["r"]).await;
    }
    waits_for(&other.table(table_name("bystander"), 0), "r").await;
    source.stop();
    target.stop();
    site.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

/// The end of a migration gave the target the scopes of the source, and a second site of the target got nothing any more.
#[tokio::test(flavor = "multi_thread")]
async fn each_side_keeps_its_own_scopes() {
    let dir = fresh_dir("migrate-scopes");
    let [source, target] =
        ["source", "target"].map(|name| Server::start(&dir.join(name), &["--memory", "128m"]));
    let ((ours, our_admin), (_, their_admin)) = (connect(&source).await, connect(&target).await);
    create(&our_admin, "t", 0).await;
    create(&their_admin, "t", 1).await;
    put(&ours.table(table_name("t"), 0), &["r"]).await;
    let (from, to) = (url(&source), url(&target));
    let begin = ["--from", &from, "--to", &to, "--tables", "t"];
    for (steps, more) in [(&["--abort"][..], &[][..]), (&["--cut-over", "--finish"], &["--again"])] {
        done(&dir, &[&begin[..], more].concat()).await;
        assert_eq!(scope(&our_admin, "t").await, 1);
        for step in steps {
            done(&dir, &[step]).await;
        }
        assert_eq!((scope(&our_admin, "t").await, scope(&their_admin, "t").await), (0, 1), "{steps:?}");
    }
    source.stop();
    target.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

/// Rows that only the target had were told as rows that change all the time, and deleted at the cut over.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_deleted_unasked() {
    let dir = fresh_dir("migrate-surplus");
    let [source, target] =
        ["source", "target"].map(|name| Server::start(&dir.join(name), &["--memory", "128m"]));
    let ((ours, our_admin), (theirs, their_admin)) = (connect(&source).await, connect(&target).await);
    let (from, to) = (url(&source), url(&target));
    let own = ["own-1", "own-2", "own-3"];
    for name in ["merged", "again"] {
        create(&our_admin, name, 0).await;
        create(&their_admin, name, 0).await;
        put(&ours.table(table_name(name), 0), &["r"]).await;
        put(&theirs.table(table_name(name), 0), &own).await;
    }

    let there = theirs.table(table_name("merged"), 0);
    let begin = ["--from", &from, "--to", &to, "--tables", "merged"];
    let error = refused(&dir, &begin);
    assert!(error.contains("merged has rows at the target") && error.contains("--merge"), "{error}");
    let printed = done(&dir, &[&begin[..], &["--merge"]].concat()).await;
    assert!(printed.contains("3 rows that only the target has stay there"), "{printed}");
    assert!(refused(&dir, &["--cut-over", "--delete-surplus"]).contains("begun with --merge"));
    done(&dir, &["--cut-over"]).await;
    assert_eq!(rows(&there).await, 4);
    done(&dir, &["--finish"]).await;

    let there = theirs.table(table_name("again"), 0);
    let dir = dir.join("again");
    std::fs::create_dir_all(&dir).unwrap();
    let begin = ["--from", &from, "--to", &to, "--tables", "again"];
    let printed = done(&dir, &[&begin[..], &["--again"]].concat()).await;
    assert!(printed.contains("missing 0, surplus 3, changing 0"), "{printed}");
    let error = refused(&dir, &["--verify"]);
    assert!(error.contains("3 rows have cells that only the target has: again 'own-1'"), "{error}");
    let error = refused(&dir, &["--cut-over"]);
    assert!(error.contains("--delete-surplus") && error.contains("Nothing was changed"), "{error}");
    assert_eq!(rows(&there).await, 4);
    let printed = done(&dir, &["--cut-over", "--delete-surplus"]).await;
    assert!(printed.contains("3 cells of 3 rows are deleted"), "{printed}");
    assert_eq!(rows(&there).await, 1);
    // Now the source is the one that follows.
    bypass(&ours.table(table_name("again"), 0), "forgotten").await;
    assert!(refused(&dir, &["--verify"]).contains("only the source has: again 'forgotten'"));
    source.stop();
    target.stop();
    let _ = std::fs::remove_dir_all(dir.parent().unwrap());
}

/// What went past the WAL after the comparison, with timestamps that were not new, was lost without a word.
#[tokio::test(flavor = "multi_thread")]
async fn what_bypassed_the_wal_is_found_before_a_cut_over() {
    let dir = fresh_dir("migrate-bypass");
    let [source, target] =
        ["source", "target"].map(|name| Server::start(&dir.join(name), &["--memory", "128m"]));
    let ((ours, our_admin), (theirs, their_admin)) = (connect(&source).await, connect(&target).await);
    create(&our_admin, "t", 0).await;
    let (here, there) = (ours.table(table_name("t"), 0), theirs.table(table_name("t"), 0));
    put(&here, &["a", "b"]).await;
    let (from, to) = (url(&source), url(&target));
    done(&dir, &["--from", &from, "--to", &to, "--tables", "t"]).await;

    // Truncated and filled again: what the target has is not what the source has.
    our_admin.disable_table(&table_name("t")).await.unwrap();
    our_admin.truncate_table(&table_name("t"), true).await.unwrap();
    put(&here, &["c"]).await;
    bypass(&here, "d").await;
    let error = refused(&dir, &["--cut-over"]);
    assert!(error.contains("2 rows have cells that only the target has: t 'a', t 'b'"), "{error}");
    assert!(has(&there, "a").await && has(&there, "d").await);

    // A schema tool sets the scope back.
    let mut table = our_admin.describe(&table_name("t")).await.unwrap();
    let family = table.families()[0].clone();
    table = table.with_family(family.clone().with("REPLICATION_SCOPE", "0"));
    our_admin.modify_table(&table).await.unwrap();
    bypass(&here, "e").await;
    let error = refused(&dir, &["--cut-over"]);
    assert!(error.contains("alter 't', {NAME => 'f', REPLICATION_SCOPE => 1}"), "{error}");
    our_admin.modify_table(&table.with_family(family)).await.unwrap();
    let printed = done(&dir, &["--cut-over", "--delete-surplus"]).await;
    assert!(printed.contains("no comparison of all rows counts any more"), "{printed}");
    assert_eq!(rows(&there).await, 3);

    // The way back, without its peer for a time.
    their_admin.remove_peer("halcyon_migrate_back").await.unwrap();
    put(&there, &["unsent"]).await;
    let error = refused(&dir, &["--back"]);
    assert!(error.contains("the target has no peer halcyon_migrate_back any more"), "{error}");
    let key = format!("{}:/hbase", source.address("zookeeper"));
    let tables = ["t", "halcyon_migrate"].map(table_name);
    their_admin.add_peer(&Peer::of_tables("halcyon_migrate_back", &key, tables)).await.unwrap();
    done(&dir, &["--back"]).await;
    assert!(has(&here, "unsent").await);

    // An old comparison, for once trusted.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    bypass(&here, "f").await;
    let printed = done(&dir, &["--cut-over", "--verified-within", "1"]).await;
    assert!(printed.contains("all rows are compared again"), "{printed}");
    assert!(has(&there, "f").await);
    source.stop();
    target.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

/// Rows for which there was no time in the pause were looked for at the new side, where they had not arrived.
#[tokio::test(flavor = "multi_thread")]
async fn rows_without_time_in_the_pause_are_found_after_it() {
    let dir = fresh_dir("migrate-late");
    let [source, target] =
        ["source", "target"].map(|name| Server::start(&dir.join(name), &["--memory", "128m"]));
    let ((ours, our_admin), (theirs, _)) = (connect(&source).await, connect(&target).await);
    create(&our_admin, "t", 0).await;
    let (from, to) = (url(&source), url(&target));
    done(&dir, &["--from", &from, "--to", &to, "--tables", "t"]).await;
    let here = ours.table(table_name("t"), 0);
    // Until the pause begins: the last ones come after the last look at the source.
    let writer = tokio::spawn(async move {
        for number in 0.. {
            let row = format!("r{number:08}");
            let put = Put::new(&row).column("f", "q", "v").durability(DurabilityLevel::SkipWal);
            if here.put(put).await.is_err() {
                return number;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        0
    });
    let printed = done(&dir, &["--cut-over", "--pause-search-max", "0"]).await;
    let written = writer.await.unwrap();
    assert!(printed.contains("cells had not reached the target and were written now"), "{printed}");
    assert_eq!(rows(&theirs.table(table_name("t"), 0)).await, written);
    done(&dir, &["--verify"]).await;
    source.stop();
    target.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

/// Changes the state of a migration as if a run had been killed behind the note of its cut over, whose pause had had no time to search
/// for rows that changed since a time.
fn leave_unsearched(dir: &Path, since_ms: Option<i64>, old_side: &str) {
    let mut text = std::fs::read_to_string(dir.join("state.json")).unwrap();
    let mut set = |key: &str, value: &str| {
        let key = format!("\"{key}\": ");
        let at = text.find(&key).unwrap_or_else(|| panic!("no {key} in {text}")) + key.len();
        let end = at + text[at..].find([',', '\n']).unwrap();
        text.replace_range(at..end, value);
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    set("unsearched_ms", &now.as_millis().to_string());
    if let Some(since_ms) = since_ms {
        set("compared_ms", &since_ms.to_string());
    }
    set("old_side", &format!("\"{old_side}\""));
    std::fs::write(dir.join("state.json"), text).unwrap();
}

/// A cut over was killed behind its note and ended later. A client had deleted a row at the target meanwhile, where a compaction had
/// dropped all traces of it, and the source had not got the delete. The row was written back as one that had never arrived.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_row_stays_deleted_when_a_cut_over_is_ended_late() {
    let dir = fresh_dir("migrate-ended-late");
    let [source, target] =
        ["source", "target"].map(|name| Server::start(&dir.join(name), &["--memory", "128m"]));
    let ((ours, our_admin), (theirs, their_admin)) = (connect(&source).await, connect(&target).await);
    create(&our_admin, "t", 0).await;
    let (here, there) = (ours.table(table_name("t"), 0), theirs.table(table_name("t"), 0));
    put(&here, &["deleted", "kept"]).await;
    let (from, to) = (url(&source), url(&target));
    done(&dir, &["--from", &from, "--to", &to, "--tables", "t"]).await;
    done(&dir, &["--cut-over"]).await;
    bypass(&here, "lost").await;
    let closed = our_admin.describe(&table_name("t")).await.unwrap().with("READONLY", "true");
    our_admin.modify_table(&closed).await.unwrap();
    leave_unsearched(&dir, Some(0), "closed");

    there.delete(Delete::new("deleted")).await.unwrap();
    let traces = async || {
        let raw = Scan::new().start("deleted").stop_inclusive("deleted").raw(true).all_versions();
        let mut rows = there.scan(raw).into_stream();
        rows.next().await.map(Result::unwrap).is_some_and(|row| !row.is_empty())
    };
    let until = Instant::now() + Duration::from_secs(120);
    their_admin.flush(&table_name("t")).await.unwrap();
    while traces().await {
        assert!(Instant::now() < until, "the compaction has not dropped the row");
        their_admin.major_compact(&table_name("t"), None).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(has(&here, "deleted").await, "the source takes no edits");

    let printed = done(&dir, &["--cut-over"]).await;
    let lost = "row t 'lost': 1 cells had not reached the target and were written now";
    assert!(printed.contains(lost) && !printed.contains("'deleted'"), "{printed}");
    for table in [&here, &there] {
        let found = (has(table, "deleted").await, has(table, "kept").await, has(table, "lost").await);
        assert_eq!(found, (false, true, true), "{printed}");
    }
    done(&dir, &["--verify"]).await;
    done(&dir, &["--finish"]).await;
    source.stop();
    target.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

/// `--back` forgot that rows were not searched for at the cut over before it. When the next one followed within the hour, nothing
/// looked for them: clients of the target did not see them.
#[tokio::test(flavor = "multi_thread")]
async fn the_way_back_does_not_forget_rows_that_were_not_searched_for() {
    let dir = fresh_dir("migrate-back-unsearched");
    let [source, target] =
        ["source", "target"].map(|name| Server::start(&dir.join(name), &["--memory", "128m"]));
    let ((ours, our_admin), (theirs, _)) = (connect(&source).await, connect(&target).await);
    create(&our_admin, "t", 0).await;
    let (here, there) = (ours.table(table_name("t"), 0), theirs.table(table_name("t"), 0));
    put(&here, &["r"]).await;
    let (from, to) = (url(&source), url(&target));
    done(&dir, &["--from", &from, "--to", &to, "--tables", "t"]).await;
    done(&dir, &["--cut-over"]).await;
    let reason = "rows that changed last before the last cut over were not all compared";

    leave_unsearched(&dir, Some(0), "opened");
    bypass(&here, "first").await;
    let printed = done(&dir, &["--back", "--skip-verify"]).await;
    assert!(printed.contains(&format!("(--skip-verify), although {reason}")), "{printed}");
    assert!(has(&here, "first").await && !has(&there, "first").await);
    let printed = done(&dir, &["--cut-over"]).await;
    assert!(printed.contains("no comparison of all rows counts any more"), "{printed}");
    assert!(has(&there, "first").await, "{printed}");

    leave_unsearched(&dir, Some(0), "opened");
    bypass(&here, "second").await;
    let printed = done(&dir, &["--back"]).await;
    assert!(printed.contains(reason), "{printed}");
    assert!(printed.contains("row t 'second': 1 cells had not reached the target"), "{printed}");
    assert!(has(&there, "second").await && has(&here, "second").await);
    source.stop();
    target.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

/// `--verify` compared all rows first if too many had changed, or found them by their timestamps only: what the target still had of rows
/// whose delete had not arrived was written back at the source.
#[tokio::test(flavor = "multi_thread")]
async fn a_verification_writes_no_row_back_whose_delete_has_not_arrived() {
    let dir = fresh_dir("migrate-undeleted");
    let [source, target] =
        ["source", "target"].map(|name| Server::start(&dir.join(name), &["--memory", "128m"]));
    let ((ours, our_admin), (theirs, _)) = (connect(&source).await, connect(&target).await);
    create(&our_admin, "t", 0).await;
    let (here, there) = (ours.table(table_name("t"), 0), theirs.table(table_name("t"), 0));
    here.put(Put::new("deleted").column_at("f", "q", 1_000_000, "v")).await.unwrap();
    put(&here, &["kept"]).await;
    let (from, to) = (url(&source), url(&target));
    done(&dir, &["--from", &from, "--to", &to, "--tables", "t"]).await;
    done(&dir, &["--cut-over"]).await;
    leave_unsearched(&dir, None, "opened");
    let delete = Delete::new("deleted").up_to(1_000_001).durability(DurabilityLevel::SkipWal);
    here.delete(delete).await.unwrap();
    bypass(&here, "lost").await;
    for step in ["--verify", "--back"] {
        let error = refused(&dir, &[step]);
        let told = "of the last deletes some did not arrive: 1 rows have cells that only the target has";
        assert!(error.contains(told) && error.contains("t 'deleted'"), "{step}: {error}");
        assert!(!has(&here, "deleted").await && has(&there, "lost").await, "{step}");
    }
    assert!(refused(&dir, &["--finish"]).contains("were not all compared"));
    there.delete(Delete::new("deleted")).await.unwrap();
    done(&dir, &["--verify"]).await;
    done(&dir, &["--finish"]).await;
    assert!(!has(&here, "deleted").await && !has(&there, "deleted").await);
    source.stop();
    target.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

/// With `--merge`, rows that only the target has stay there. Behind a cut over back that was not searched, `--verify` and `--cut-over`
/// counted rows of clients among them, which the source had never got. They took back the note that these are to be searched for.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_clients_at_a_merged_target_are_found_behind_the_way_back() {
    let dir = fresh_dir("migrate-merged-unsearched");
    let [source, target] =
        ["source", "target"].map(|name| Server::start(&dir.join(name), &["--memory", "128m"]));
    let ((ours, our_admin), (theirs, their_admin)) = (connect(&source).await, connect(&target).await);
    create(&our_admin, "t", 0).await;
    create(&their_admin, "t", 0).await;
    let (here, there) = (ours.table(table_name("t"), 0), theirs.table(table_name("t"), 0));
    put(&here, &["r"]).await;
    bypass(&there, "own").await;
    let (from, to) = (url(&source), url(&target));
    done(&dir, &["--from", &from, "--to", &to, "--tables", "t", "--merge"]).await;
    done(&dir, &["--cut-over"]).await;
    done(&dir, &["--back"]).await;
    for (row, step) in [("first", "--verify"), ("second", "--cut-over")] {
        // The time is that of the server: later than the last comparison.
        let late = Put::new(row).column("f", "q", "v").durability(DurabilityLevel::SkipWal);
        there.put(late).await.unwrap();
        leave_unsearched(&dir, None, "opened");
        assert!(refused(&dir, &["--finish"]).contains("were not all compared"));
        let printed = done(&dir, &[step]).await;
        let told = format!("row t '{row}': 1 cells had not reached the source and were written now");
        assert!(printed.contains(&told), "{step}: {printed}");
        assert!(printed.contains("1 rows that only the target has stay there"), "{step}: {printed}");
        assert!(has(&here, row).await && has(&there, row).await, "{step}");
        assert!(!has(&here, "own").await && has(&there, "own").await, "{step}");
    }
    source.stop();
    target.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

/// Ending a cut over once more compared rows that had changed since, and forgot those that `--verify` had told. `--back` did not refuse
/// to show clients a row that only the source had.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_over_that_is_ended_twice_forgets_no_surplus() {
    let dir = fresh_dir("migrate-ended-twice");
    let [source, target] =
        ["source", "target"].map(|name| Server::start(&dir.join(name), &["--memory", "128m"]));
    let ((ours, our_admin), (theirs, _)) = (connect(&source).await, connect(&target).await);
    create(&our_admin, "t", 0).await;
    let (here, there) = (ours.table(table_name("t"), 0), theirs.table(table_name("t"), 0));
    put(&here, &["r"]).await;
    let (from, to) = (url(&source), url(&target));
    done(&dir, &["--from", &from, "--to", &to, "--tables", "t"]).await;
    done(&dir, &["--cut-over"]).await;
    bypass(&here, "forgotten").await;
    for step in ["--verify", "--cut-over", "--back"] {
        let error = refused(&dir, &[step]);
        assert!(error.contains("only the source has: t 'forgotten'"), "{step}: {error}");
        assert!(has(&here, "forgotten").await && !has(&there, "forgotten").await, "{step}");
    }
    done(&dir, &["--back", "--delete-surplus"]).await;
    assert!(!has(&here, "forgotten").await && has(&here, "r").await);
    source.stop();
    target.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

/// The change of one table hung, and all tables refused writes for as long as it did.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_ends_when_its_time_is_over() {
    let dir = fresh_dir("migrate-pause");
    let source = Server::start_on_this_machine(&dir.join("source"), &["--memory", "128m"]);
    let target = Server::start(&dir.join("target"), &["--memory", "128m"]);
    let (ours, our_admin) = connect(&source).await;
    for name in ["good", "bad"] {
        create(&our_admin, name, 1).await;
        put(&ours.table(table_name(name), 0), &["r"]).await;
        our_admin.flush(&table_name(name)).await.unwrap();
    }
    let (from, to) = (url(&source), url(&target));
    done(&dir, &["--from", &from, "--to", &to, "--tables", "good,bad"]).await;
    // A region that cannot be opened again.
    let region = our_admin.regions(&table_name("bad")).await.unwrap().remove(0).region;
    let family = region.dir(&dir.join("source")).join("f");
    std::fs::rename(&family, family.with_extension("away")).unwrap();
    std::fs::write(&family, b"no directory").unwrap();
    let log = std::fs::File::create(dir.join("cut-over.log")).unwrap();
    let mut cut = command(&dir, &["--cut-over", "--pause-max", "3", "--skip-verify"]);
    let mut cut = cut.stdout(Stdio::from(log.try_clone().unwrap())).stderr(Stdio::from(log)).spawn().unwrap();
    let printed = || std::fs::read_to_string(dir.join("cut-over.log")).unwrap();
    let said = async |text: &str| {
        let until = Instant::now() + Duration::from_secs(60);
        while !printed().contains(text) {
            assert!(Instant::now() < until, "no '{text}' in {}", printed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    said("writes stop").await;
    let stopped = Instant::now();
    let good = ours.table(table_name("good"), 0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    while good.put(Put::new("again").column("f", "q", "v")).await.is_err() {
        assert!(stopped.elapsed() < Duration::from_secs(15), "{}", printed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(stopped.elapsed() < Duration::from_secs(10), "after {:?}: {}", stopped.elapsed(), printed());
    said("tables are not opened for writes yet").await;
    assert!(printed().contains("of bad is"), "{}", printed());
    cut.kill().unwrap();
    cut.wait().unwrap();
    source.kill(); // it waits for the region
    target.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

/// Runs were killed behind the note of a cut over, and in a pause. Later ones opened the source and ended the migration although clients
/// did not know of the target, or said that nothing was changed and left the tables closed.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_cut_over_has_left_is_ended_first() {
    let dir = fresh_dir("migrate-killed");
    let [source, target] =
        ["source", "target"].map(|name| Server::start(&dir.join(name), &["--memory", "128m"]));
    let ((ours, our_admin), (_, their_admin)) = (connect(&source).await, connect(&target).await);
    create(&our_admin, "t", 0).await;
    put(&ours.table(table_name("t"), 0), &["r"]).await;
    let (from, to) = (url(&source), url(&target));
    done(&dir, &["--from", &from, "--to", &to, "--tables", "t"]).await;
    done(&dir, &["--cut-over"]).await;

    let is_closed = async |admin: &Admin| admin.describe(&table_name("t")).await.unwrap().read_only();
    let close = async |admin: &Admin| {
        let closed = admin.describe(&table_name("t")).await.unwrap().with("READONLY", "true");
        admin.modify_table(&closed).await.unwrap();
    };
    let change = |before: &str, after: &str| {
        let text = std::fs::read_to_string(dir.join("state.json")).unwrap();
        assert!(text.contains(before), "{text}");
        std::fs::write(dir.join("state.json"), text.replace(before, after)).unwrap();
    };
    change("\"old_side\": \"opened\"", "\"old_side\": \"closed\"");
    close(&our_admin).await;
    for step in [&["--verify"][..], &[], &["--finish"]] {
        assert!(refused(&dir, step).contains("--cut-over was not done to its end"), "{step:?}");
        assert!(is_closed(&our_admin).await, "{step:?}");
    }
    done(&dir, &["--cut-over"]).await;
    assert!(!is_closed(&our_admin).await);
    done(&dir, &["--verify"]).await;

    change("\"phase\": \"cut-over\"", "\"phase\": \"going-back\"");
    close(&their_admin).await;
    their_admin.remove_peer("halcyon_migrate_back").await.unwrap();
    let error = refused(&dir, &["--back"]);
    assert!(error.contains("no peer halcyon_migrate_back any more"), "{error}");
    assert!(error.contains("is undone: the target takes writes again"), "{error}");
    assert!(!is_closed(&their_admin).await);
    source.stop();
    target.stop();
    let _ = std::fs::remove_dir_all(&dir);
}
