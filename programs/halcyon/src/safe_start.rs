//! Refuses to start where HBase would protect or complete data in a way that Halcyon does not have.
//!
//! A site file may ask for authentication, and a directory may come from a cluster with ACLs. A server that started all
//! the same would be open to all, or would lose data, without a word. So the start looks at both before it changes
//! anything, names all that it finds in one message, and ends with [`EXIT_CODE`]. `--accept-without NAME` accepts the
//! loss of one kind; one warning at every start then names what was accepted.
//!
//! Replication peers that are kept in ZooKeeper cannot be seen from here. A family with `REPLICATION_SCOPE` 1 in a
//! directory that Halcyon has not served before stands for them.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use clap::ValueEnum;
use halcyon_cell::ErrorKind;
use halcyon_env::Env;
use halcyon_regionserver::{BACKUP_OBSERVER, WHITELIST_OBSERVER};
use halcyon_schema::{Endpoint, TableDescriptor, TableName, layout, peer_files};

use crate::master_settings::GROUP_ENDPOINT;
use crate::root::wals_left;
use crate::site::Property;

/// `EX_CONFIG` of `sysexits.h`: a restart does not help.
pub const EXIT_CODE: u8 = 78;
/// Tables that HBase makes where a protection is in use.
const PROTECTING_TABLES: [(&str, Protection); 4] = [
    ("acl", Protection::Acls),
    ("labels", Protection::Visibility),
    ("quota", Protection::Quotas),
    ("replication", Protection::Replication),
];
/// Replication peers, where they are files (`hbase.replication.peers.directory`).
const PEERS_DIR: &str = "peers";

/// What HBase has and Halcyon does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Protection {
    /// Authentication: clients are who they say they are, unchecked.
    Kerberos,
    /// Permission checks: every client may read, change and delete everything.
    Authorization,
    /// Integrity and privacy of calls (`hbase.rpc.protection`): calls travel in plain text.
    #[value(name = "rpc-protection")]
    RpcQop,
    /// TLS of calls and pages: both travel in plain text.
    Tls,
    /// Coprocessors: their code does not run.
    Coprocessors,
    /// ACLs of tables and cells: they are kept and not enforced.
    Acls,
    /// Visibility labels: cells that have them are shown to every client.
    Visibility,
    /// Quotas that are in the directory while `hbase.quota.enabled` is off: neither requests nor space are limited.
    Quotas,
    /// Replication: what peers of HBase have got is not known, and nothing is sent to them.
    Replication,
    /// Attributes of tables that change where regions split or how files are read: they are not obeyed.
    #[value(name = "table-attributes")]
    TableAttributes,
    /// WALs in a directory that `hbase.wal.dir` named before: those of a killed server are not recovered.
    WalDir,
}

impl Protection {
    /// What is lost without it.
    pub fn loss(self) -> &'static str {
        match self {
            Protection::Kerberos => "clients are not authenticated",
            Protection::Authorization => "every client may do everything",
            Protection::RpcQop | Protection::Tls => "traffic is not encrypted",
            Protection::Coprocessors => "the code does not run",
            Protection::Acls => "permissions of tables and cells are not enforced",
            Protection::Visibility => "cells with labels are shown to every client",
            Protection::Quotas => "nothing is limited, because hbase.quota.enabled is not true",
            Protection::Replication => {
                "peers of another server receive nothing, and logs that they wait for are deleted"
            }
            Protection::TableAttributes => "the attribute is not obeyed",
            Protection::WalDir => "logs there are not recovered",
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no protection is skipped");
        f.write_str(value.get_name())
    }
}

/// One thing that asks for a protection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub protection: Protection,
    /// What was found, and where.
    pub what: String,
}

/// What a site file asks for.
pub fn of_properties(properties: &[Property]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let coprocessors_on = !properties.iter().any(|Property { name, value }| {
        name == "hbase.coprocessor.enabled" && value.trim().eq_ignore_ascii_case("false")
    });
    for Property { name, value } in properties {
        let value = value.trim();
        let Some(protection) = asked_by(name, value) else { continue };
        if protection == Protection::Coprocessors && !coprocessors_on {
            continue;
        }
        findings.push(Finding { protection, what: format!("{name} = {value} in hbase-site.xml") });
    }
    findings
}

/// Leaves out coprocessors of regions: a JVM runs them. It runs none of masters, region servers and WALs.
pub fn retain_unhosted(findings: &mut Vec<Finding>) {
    const OTHERS: [&str; 3] = [
        "hbase.coprocessor.master.classes",
        "hbase.coprocessor.regionserver.classes",
        "hbase.coprocessor.wal.classes",
    ];
    findings.retain(|finding| {
        finding.protection != Protection::Coprocessors
            || OTHERS.iter().any(|name| finding.what.starts_with(name))
    });
}

/// As [`of_properties`], for a server of a cluster whose master is another process. Peers and system tables are the master's;
/// tables with coprocessors or a replication scope are refused one by one.
pub fn of_member_properties(properties: &[Property]) -> Vec<Finding> {
    let of_servers = |property: &&Property| property.name != "hbase.coprocessor.master.classes";
    let properties: Vec<Property> = properties.iter().filter(of_servers).cloned().collect();
    of_properties(&properties)
}

/// What a cluster's root directory holds that its other servers enforce and a member like this does not. Nothing is changed.
pub fn of_member_directory(env: &Env, root: &Path) -> Result<Vec<Finding>, String> {
    let mut findings = protecting_tables(env, root)?;
    findings.retain(|finding| finding.protection != Protection::Replication);
    Ok(findings)
}

fn asked_by(name: &str, value: &str) -> Option<Protection> {
    let is_true = value.eq_ignore_ascii_case("true");
    let items = || value.split(',').map(str::trim).filter(|item| !item.is_empty());
    let (asks, protection) = match name {
        "hbase.security.authentication"
        | "hbase.security.authentication.ui"
        | "hadoop.security.authentication" => {
            (!value.is_empty() && !value.eq_ignore_ascii_case("simple"), Protection::Kerberos)
        }
        "hbase.security.authorization"
        | "hadoop.security.authorization"
        | "hbase.security.exec.permission.checks" => (is_true, Protection::Authorization),
        "hbase.rpc.protection" => {
            (items().any(|item| !item.eq_ignore_ascii_case("authentication")), Protection::RpcQop)
        }
        "hbase.server.netty.tls.enabled" | "hbase.ssl.enabled" => (is_true, Protection::Tls),
        _ if name.starts_with("hbase.coprocessor.") && name.ends_with(".classes") => {
            let class = |item: &str| item.split('|').next().unwrap_or_default().trim().to_string();
            let is_built_in = |class: &str| {
                Endpoint::of_class(class).is_some()
                    || (name == "hbase.coprocessor.master.classes"
                        && [GROUP_ENDPOINT, WHITELIST_OBSERVER].contains(&class))
                    || (name == "hbase.coprocessor.region.classes" && class == BACKUP_OBSERVER)
            };
            (items().any(|item| !is_built_in(&class(item))), Protection::Coprocessors)
        }
        _ => return None,
    };
    asks.then_some(protection)
}

/// The path of a directory on this machine; `None`: it is elsewhere.
fn on_this_machine(text: &str) -> Option<PathBuf> {
    crate::settings::local_path(text).ok().and_then(|path| std::path::absolute(path).ok())
}

/// Whether one path or address is below another one.
pub fn is_below(one: &str, other: &str) -> bool {
    match (on_this_machine(one), on_this_machine(other)) {
        (Some(one), Some(other)) => one.starts_with(other),
        _ => one.starts_with(&format!("{}/", other.trim_end_matches('/'))),
    }
}

/// Whether two paths or addresses name the same directory.
pub fn is_same_directory(one: &str, other: &str) -> bool {
    match (on_this_machine(one), on_this_machine(other)) {
        (None, None) => one.trim_end_matches('/') == other.trim_end_matches('/'),
        (one, other) => one == other,
    }
}

/// Whether a server has left WALs outside the root directory, where the settings do not look for them. `wal_root` is the
/// address of the root directory of WALs in force. Nothing is changed.
pub fn of_wals(env: &Env, root: &Path, wal_root: Option<&str>) -> Result<Vec<Finding>, String> {
    let Some(left) = wals_left(env, root)? else { return Ok(Vec::new()) };
    if wal_root.is_some_and(|wal_root| is_same_directory(wal_root, &left)) {
        return Ok(Vec::new());
    }
    let what = format!("the last server had its WALs in {left}, and was not stopped in order");
    Ok(vec![Finding { protection: Protection::WalDir, what }])
}

/// What a root directory holds that HBase would protect or complete. Nothing is changed.
pub fn of_directory(env: &Env, root: &Path, is_new_here: bool) -> Result<Vec<Finding>, String> {
    let mut findings = protecting_tables(env, root)?;
    let peers = root.join(PEERS_DIR);
    if has_foreign_peers(env, root, &peers)
        .map_err(|error| format!("cannot look at the data directory: {error}"))?
    {
        let what = format!("replication peers in {}", peers.display());
        findings.push(Finding { protection: Protection::Replication, what });
    }
    let tables = halcyon_master::table_descriptors(env, root);
    let tables = tables.map_err(|error| format!("cannot look at the data directory: {error}"))?;
    for (table, _) in tables.values() {
        findings.extend(of_table(table, &layout::table_desc_dir(root, table.name()), is_new_here));
    }
    Ok(findings)
}

/// Whether there are peers that were not made here. HBase keeps what those have got where it cannot be seen.
///
/// What a removal left is no peer: a directory without a configuration, or one that HDFS was still removing, whose name begins with a
/// dot.
fn has_foreign_peers(env: &Env, root: &Path, peers: &Path) -> io::Result<bool> {
    let entries = match env.fs.list(peers) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        listed => listed?,
    };
    for entry in entries.iter().filter(|entry| entry.is_dir && !entry.name.starts_with('.')) {
        let is_own = halcyon_regionserver::has_replication_queue(env, root, &entry.name);
        if is_own.map_err(io::Error::other)? {
            continue;
        }
        match peer_files::load(env, root, &entry.name) {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(true),
            // Somebody has made it, even if it cannot be read.
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(true),
            Err(error) => return Err(io::Error::other(error)),
        }
    }
    Ok(false)
}

fn protecting_tables(env: &Env, root: &Path) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for (qualifier, protection) in PROTECTING_TABLES {
        let table = TableName::new(TableName::SYSTEM_NAMESPACE.as_bytes(), qualifier.as_bytes());
        let dir = layout::table_dir(root, &table.expect("the names above are valid"));
        let found = env.fs.exists(&dir);
        if found.map_err(|error| format!("cannot look at the data directory: {error}"))? {
            let what = format!("table hbase:{qualifier} in {}", dir.display());
            findings.push(Finding { protection, what });
        }
    }
    Ok(findings)
}

fn of_table(table: &TableDescriptor, dir: &Path, is_new_here: bool) -> Vec<Finding> {
    let finding = |protection, what: String| Finding {
        protection,
        what: format!("table {} has {what} in {}", table.name(), dir.display()),
    };
    let classes = table.coprocessor_classes().filter(|class| Endpoint::of_class(class).is_none());
    let mut findings: Vec<_> =
        classes.map(|class| finding(Protection::Coprocessors, format!("coprocessor {class}"))).collect();
    let replicated = table.families().iter().find(|family| is_new_here && family.scope() == 1);
    if let Some(family) = replicated.filter(|_| !table.name().is_system()) {
        let what = format!("REPLICATION_SCOPE 1 for family {}", family.name_str());
        findings.push(finding(Protection::Replication, what));
    }
    let (harmless, serious): (Vec<_>, Vec<_>) =
        table.unsupported().into_iter().partition(|found| found.is_harmless);
    for found in harmless.into_iter().chain(table.unknown_split_policy()) {
        tracing::warn!(table = %table.name(), attribute = %found, effect = found.effect, "an attribute has no effect");
    }
    findings.extend(
        serious
            .iter()
            .map(|found| finding(Protection::TableAttributes, format!("{found} ({})", found.effect))),
    );
    findings
}

/// The message that refuses the start, unless all that was found is accepted. Then the warning to show, if there is any.
pub fn judge(mut findings: Vec<Finding>, accepted: &[Protection]) -> Result<Option<String>, String> {
    findings.sort();
    let (accepted, refused): (Vec<_>, Vec<_>) =
        findings.into_iter().partition(|finding| accepted.contains(&finding.protection));
    if refused.is_empty() {
        let lines: String = accepted.iter().map(line).collect();
        return Ok((!accepted.is_empty()).then(|| format!("accepted losses (--accept-without):{lines}")));
    }
    let lines: String = refused.iter().map(line).collect();
    let mut names: Vec<_> = refused.iter().map(|finding| finding.protection).collect();
    names.dedup();
    let options: String = names.iter().map(|name| format!(" --accept-without {name}")).collect();
    Err(format!(
        "refuses to start, as Halcyon lacks what was found:{lines}\nTo start without it, and accept its loss, add:{options}"
    ))
}

fn line(finding: &Finding) -> String {
    format!("\n  {}: {}: {}", finding.protection, finding.what, finding.protection.loss())
}

#[cfg(test)]
mod tests {
    use halcyon_env::sim::{Fault, Operation, SimFileSystem};
    use halcyon_schema::FamilyDescriptor;

    use super::*;

    fn asked(name: &str, value: &str) -> Option<Protection> {
        let property = Property { name: name.to_string(), value: value.to_string() };
        let findings = of_properties(&[property]);
        findings.first().map(|finding| finding.protection)
    }

    #[test]
    fn properties_that_ask_for_what_is_lacking() {
        use Protection::*;
        for (name, value, expected) in [
            ("hbase.security.authentication", "kerberos", Some(Kerberos)),
            ("hbase.security.authentication", "KERBEROS", Some(Kerberos)),
            ("hbase.security.authentication", "${no.such}", Some(Kerberos)),
            ("hbase.security.authentication", "simple", None),
            ("hbase.security.authorization", "True", Some(Authorization)),
            ("hbase.security.authorization", "false", None),
            ("hbase.rpc.protection", "authentication", None),
            ("hbase.rpc.protection", "authentication, privacy", Some(RpcQop)),
            ("hbase.rpc.protection", "integrity", Some(RpcQop)),
            ("hbase.server.netty.tls.enabled", "true", Some(Tls)),
            ("hbase.client.netty.tls.enabled", "true", None),
            ("hbase.ssl.enabled", "true", Some(Tls)),
            ("hbase.regionserver.wal.encryption", "true", None),
            ("hbase.quota.enabled", "true", None),
            ("hbase.coprocessor.region.classes", "org.x.Observer", Some(Coprocessors)),
            ("hbase.coprocessor.master.classes", "", None),
            ("hbase.coprocessor.master.classes", GROUP_ENDPOINT, None),
            ("hbase.coprocessor.master.classes", WHITELIST_OBSERVER, None),
            ("hbase.coprocessor.master.classes", "org.x.Observer", Some(Coprocessors)),
            ("hbase.coprocessor.region.classes", GROUP_ENDPOINT, Some(Coprocessors)),
            ("hbase.coprocessor.region.classes", BACKUP_OBSERVER, None),
            ("hbase.coprocessor.user.region.classes", Endpoint::Aggregate.class(), None),
            ("hbase.coprocessor.region.classes", Endpoint::BulkDelete.class(), None),
            ("hbase.regionserver.slowlog.systable.enabled", "true", None),
            ("hbase.wal.dir", "hdfs://n/wal", None),
            ("hbase.superuser", "admin", None),
        ] {
            assert_eq!(asked(name, value), expected, "{name} = {value}");
        }
    }

    /// A start without the property, or with another value, would not find what a killed server has acknowledged.
    #[test]
    fn wals_are_looked_for_where_the_last_server_had_them() {
        let env = SimFileSystem::new().env();
        env.fs.create_dir_all(Path::new("/hbase")).unwrap();
        let found = |wal_root| of_wals(&env, Path::new("/hbase"), wal_root).unwrap().len();
        assert_eq!((found(None), found(Some("/wals"))), (0, 0));
        env.fs.put_new(Path::new("/hbase/.halcyon.wals"), b"file:///wals").unwrap();
        assert_eq!((found(None), found(Some("/other")), found(Some("/wals"))), (1, 1, 0));
    }

    #[test]
    fn wals_beside_a_root_directory_in_hdfs() {
        for (one, is_same) in [("hdfs://n/hbase/", true), ("hdfs://n/wal", false), ("/hbase", false)] {
            assert_eq!(is_same_directory(one, "hdfs://n/hbase"), is_same, "{one}");
        }
    }

    #[test]
    fn coprocessors_that_are_turned_off_are_not_missed() {
        let property = |name: &str, value: &str| Property { name: name.into(), value: value.into() };
        let properties = [
            property("hbase.coprocessor.region.classes", "org.x.Observer"),
            property("hbase.coprocessor.enabled", "false"),
        ];
        assert_eq!(of_properties(&properties), []);
    }

    #[test]
    fn a_member_of_a_cluster_leaves_the_masters_business_to_the_master() {
        let property = |name: &str, value: &str| Property { name: name.into(), value: value.into() };
        let properties = [
            property("hbase.wal.dir", "hdfs://n/wals"),
            property("hbase.coprocessor.master.classes", "org.x.MasterObserver"),
            property("hbase.coprocessor.region.classes", "org.x.Observer"),
            property("hbase.security.authentication", "kerberos"),
        ];
        let found: Vec<_> = of_member_properties(&properties).iter().map(|it| it.protection).collect();
        assert_eq!(found, [Protection::Coprocessors, Protection::Kerberos]);
        let env = SimFileSystem::new().env();
        for dir in ["data/hbase/acl", "data/hbase/replication", "peers/p1"] {
            env.fs.create_dir_all(&Path::new("/hbase").join(dir)).unwrap();
        }
        let found = of_member_directory(&env, Path::new("/hbase")).unwrap();
        assert_eq!(found.iter().map(|it| it.protection).collect::<Vec<_>>(), [Protection::Acls]);
    }

    /// Peers and tables were taken for absent when the file system had no answer.
    #[test]
    fn a_directory_that_cannot_be_looked_at_is_not_safe() {
        let fs = SimFileSystem::new();
        for (at, (operation, path)) in
            [(Operation::List, "peers"), (Operation::Exists, "acl")].into_iter().enumerate()
        {
            fs.inject(Fault::new(operation, path));
            of_directory(&fs.env(), Path::new("/data"), false).unwrap_err();
            assert_eq!(fs.faults_hit(), at as u64 + 1);
        }
    }

    fn write_peer(env: &Env, root: &Path) {
        let config = Default::default();
        let peer = peer_files::PeerDescription { id: "p1".to_string(), config, is_enabled: true };
        peer_files::write(env, root, &peer).unwrap();
    }

    /// A master that was killed while it removed a peer left a hidden directory, which was taken for a peer of HBase: no master
    /// started until somebody removed it.
    #[test]
    fn what_the_removal_of_a_peer_left_is_no_peer() {
        let (env, root) = (SimFileSystem::new().env(), Path::new("/data"));
        for left in [".ab-1.removed/p2", "p3"] {
            env.fs.create_dir_all(&root.join("peers").join(left)).unwrap();
        }
        env.fs.replace(&root.join("peers/README"), b"any").unwrap();
        assert_eq!(of_directory(&env, root, true), Ok(Vec::new()));
        env.fs.replace(&root.join("peers/p3/peer_config-0"), &[0; 100]).unwrap();
        let found = of_directory(&env, root, true).unwrap();
        assert_eq!(found.len(), 1, "nobody can say whose peer this is");
        assert_eq!(found[0].protection, Protection::Replication);
    }

    #[test]
    fn peers_that_were_made_here_are_known() {
        let (env, root) = (SimFileSystem::new().env(), Path::new("/data"));
        write_peer(&env, root);
        let queues = layout::replication_queues_dir(root);
        env.fs.create_dir_all(&queues).unwrap();
        let found =
            || of_directory(&env, root, true).unwrap().iter().map(|it| it.protection).collect::<Vec<_>>();
        assert_eq!(found(), [Protection::Replication]);
        for queue in ["p1", "p1-host%2C16020%2C1", "p1--host%2C16000%2C1"] {
            env.fs.replace(&queues.join(queue), b"any").unwrap();
            assert_eq!(found(), [], "{queue}");
            env.fs.remove_file(&queues.join(queue)).unwrap();
        }
        env.fs.replace(&queues.join("p12"), b"any").unwrap();
        assert_eq!(found(), [Protection::Replication]);
    }

    #[test]
    fn a_directory_is_looked_through() {
        let env = SimFileSystem::new().env();
        let root = Path::new("/data");
        let found = |is_new| -> Vec<_> {
            let findings = of_directory(&env, root, is_new).unwrap();
            findings.into_iter().map(|finding| (finding.protection, finding.what)).collect()
        };
        assert_eq!(found(true), []);
        for dir in ["data/hbase/acl", "data/hbase/labels", "data/hbase/quota"] {
            env.fs.create_dir_all(&root.join(dir)).unwrap();
        }
        write_peer(&env, root);
        let family = FamilyDescriptor::new("f").unwrap().with("REPLICATION_SCOPE", "1");
        let table = TableDescriptor::new(TableName::parse(b"ns:t").unwrap())
            .with_family(family)
            .with("coprocessor$1", format!("|{}|1|", Endpoint::Aggregate.class()))
            .with("hbase.regionserver.region.split_restriction.type", "EvenRows")
            .with("FLUSH_POLICY", "org.x.FlushSome")
            .with("COPROCESSOR$2", "hdfs:///x.jar|org.x.Index|1001|k=v");
        let (dir, bytes) = (layout::table_desc_dir(root, table.name()), table.encode_file());
        env.fs.create_dir_all(&dir).unwrap();
        env.fs.put_new(&dir.join(layout::table_info_name(1, bytes.len())), &bytes).unwrap();
        let expected = [
            (Protection::Acls, "table hbase:acl in /data/data/hbase/acl"),
            (Protection::Visibility, "table hbase:labels in /data/data/hbase/labels"),
            (Protection::Quotas, "table hbase:quota in /data/data/hbase/quota"),
            (Protection::Replication, "replication peers in /data/peers"),
            (
                Protection::Coprocessors,
                "table ns:t has coprocessor org.x.Index in /data/data/ns/t/.tabledesc",
            ),
            (
                Protection::Replication,
                "table ns:t has REPLICATION_SCOPE 1 for family f in /data/data/ns/t/.tabledesc",
            ),
            (
                Protection::TableAttributes,
                "table ns:t has hbase.regionserver.region.split_restriction.type 'EvenRows' (a region may be split \
                 at any row; KeyPrefix and DelimitedKeyPrefix are supported) in /data/data/ns/t/.tabledesc",
            ),
        ];
        let expected = expected.map(|(protection, what)| (protection, what.to_string()));
        assert_eq!(found(true), expected);
        let of_scope = |(_, what): &(_, String)| what.contains("REPLICATION_SCOPE");
        let expected: Vec<_> = expected.into_iter().filter(|found| !of_scope(found)).collect();
        assert_eq!(found(false), expected, "tables made here may have a scope: there are no peers here");
    }

    #[test]
    fn the_message_names_all_that_is_not_accepted() {
        let finding = |protection, what: &str| Finding { protection, what: what.to_string() };
        let findings = vec![
            finding(Protection::Tls, "b"),
            finding(Protection::Kerberos, "a"),
            finding(Protection::Tls, "c"),
        ];
        assert_eq!(
            judge(findings.clone(), &[]).unwrap_err(),
            "refuses to start, as Halcyon lacks what was found:\n  kerberos: a: clients are not authenticated\n  \
             tls: b: traffic is not encrypted\n  tls: c: traffic is not encrypted\n\
             To start without it, and accept its loss, add: --accept-without kerberos --accept-without tls"
        );
        let rest = judge(findings.clone(), &[Protection::Kerberos]).unwrap_err();
        assert!(!rest.contains("kerberos") && rest.ends_with("add: --accept-without tls"), "{rest}");
        let warning = judge(findings, &[Protection::Tls, Protection::Kerberos]).unwrap().unwrap();
        assert!(warning.contains("kerberos: a") && warning.contains("tls: c"), "{warning}");
        assert_eq!(judge(Vec::new(), &[Protection::Tls]), Ok(None));
    }
}
