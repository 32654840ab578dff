//! What `halcyon master` and `halcyon regionserver` look at before they do anything: whether the site file and the root directory ask
//! for what is lacking here, and whether all processes of the cluster find each other's WALs.

use std::collections::HashMap;
use std::path::Path;

use halcyon_env::Env;

use crate::Failure;
use crate::regionserver::MASTER_OF_HALCYON;
use crate::root::Root;
use crate::safe_start::{self, Protection, is_same_directory};
use crate::settings::{StandaloneSettings, local_path};
use crate::site::Property;
use crate::standalone;
use crate::without_effect;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Master,
    RegionServer,
}

/// Names the properties without effect, and fails if the site file asks for what is lacking here and is not accepted. `unused` is what
/// [`StandaloneSettings::new`] has said. Coprocessors of masters are the master's business.
pub fn check_properties(
    role: Role,
    properties: &[Property],
    settings: &StandaloneSettings,
    unused: Vec<String>,
    accepted: &[Protection],
) -> Result<(), Failure> {
    for sentence in without_effect::in_cluster(unused) {
        eprintln!("halcyon: hbase-site.xml: {sentence}");
    }
    check_wal_root(settings)?;
    let mut findings = match role {
        Role::Master => safe_start::of_properties(properties),
        Role::RegionServer => safe_start::of_member_properties(properties),
    };
    if settings.regionserver.coprocessors.has_host() {
        safe_start::retain_unhosted(&mut findings);
    }
    standalone::judge(findings, accepted)
}

/// Fails if the root directory needs something that is lacking here and is not accepted. Nothing is changed. *Blocking*.
pub fn check_directory(
    root: &Root,
    settings: &StandaloneSettings,
    accepted: &[Protection],
) -> Result<(), Failure> {
    let served = halcyon_master::has_served(&root.env, &root.path);
    let is_new_here = !served.map_err(|error| format!("cannot look at the root directory: {error}"))?;
    let mut findings = safe_start::of_directory(&root.env, &root.path, is_new_here)?;
    findings.retain(|finding| {
        !(settings.regionserver.quotas.enabled && finding.protection == Protection::Quotas)
    });
    if settings.regionserver.coprocessors.has_host() {
        safe_start::retain_unhosted(&mut findings);
    }
    let wal_root = settings.wal_root_address()?;
    findings.extend(safe_start::of_wals(&root.env, &root.path, wal_root.as_deref())?);
    standalone::judge(findings, accepted)
}

/// Refuses WALs on a disk that other machines do not see: the master would find none when a server dies, and take that for "nothing is
/// left to recover". A root directory on a local disk is not refused here: a server finds the id of the cluster there, or does not start.
fn check_wal_root(settings: &StandaloneSettings) -> Result<(), String> {
    match settings.wal_root_address()? {
        Some(address) if local_path(&address).is_ok() && !settings.wal_root_is_shared => Err(format!(
            "hbase.wal.dir: {address} is on a local disk; the WALs of a cluster must be where every server and master finds them. If \
             all of them are on this machine, as in a test, set halcyon.wal.dir.local to true"
        )),
        _ => Ok(()),
    }
}

/// Fails unless the master, which has told these settings, looks for WALs where this server writes them. HBase's masters do not tell;
/// they give no regions to a server of which they cannot see the WALs' directory either, if they are Halcyon's.
pub fn check_wals_of_master(
    told: &HashMap<String, String>,
    settings: &StandaloneSettings,
) -> Result<(), String> {
    if !told.contains_key(MASTER_OF_HALCYON) {
        return Ok(());
    }
    let root = settings.root_address();
    let own = settings.wal_root_address()?.unwrap_or_else(|| root.clone());
    let of_master = told.get("hbase.wal.dir").unwrap_or(&root);
    if is_same_directory(&own, of_master) {
        return Ok(());
    }
    Err(format!(
        "the master looks for WALs in {of_master}, and this server would write them to {own}: what it acknowledges would be lost when \
         it dies. Set hbase.wal.dir to the same value everywhere"
    ))
}

/// The id of the cluster in the root directory; `None`: there is none yet. Nothing is changed. *Blocking*.
pub fn cluster_id(env: &Env, root: &Path) -> Result<Option<String>, String> {
    let id = halcyon_master::cluster_id(env, root);
    id.map(|id| id.map(|id| id.to_string())).map_err(|error| format!("cannot read the cluster's id: {error}"))
}

#[cfg(test)]
mod tests {
    use halcyon_env::sim::SimFileSystem;

    use super::*;
    use crate::args::StandaloneArgs;

    fn settings(properties: &[(&str, &str)]) -> StandaloneSettings {
        let property =
            |(name, value): &(&str, &str)| Property { name: name.to_string(), value: value.to_string() };
        let properties: Vec<_> = properties.iter().map(property).collect();
        StandaloneSettings::new(&properties, &StandaloneArgs::default()).unwrap().0
    }

    /// With `file:///nvme/wals` in every site file each server wrote its WALs to a disk of its own. The master found none when one died,
    /// and opened its regions without what was in them.
    #[test]
    fn wals_of_a_cluster_are_not_on_a_local_disk() {
        let root = ("hbase.rootdir", "hdfs://n/hbase");
        let refused = check_wal_root(&settings(&[root, ("hbase.wal.dir", "file:///nvme/wals")])).unwrap_err();
        assert!(refused.contains("file:///nvme/wals is on a local disk"), "{refused}");
        let test = ("halcyon.wal.dir.local", "true");
        check_wal_root(&settings(&[root, ("hbase.wal.dir", "file:///nvme/wals"), test])).unwrap();
        check_wal_root(&settings(&[root, ("hbase.wal.dir", "hdfs://n/wals")])).unwrap();
        check_wal_root(&settings(&[root])).unwrap();
        check_wal_root(&settings(&[("hbase.rootdir", "/tmp/hbase")])).unwrap();
    }

    /// What a master told of its WALs was not looked at.
    #[test]
    fn a_server_with_other_wals_than_the_master_does_not_start() {
        let root = ("hbase.rootdir", "hdfs://n/hbase");
        let (none, wals) = (settings(&[root]), settings(&[root, ("hbase.wal.dir", "hdfs://n/wals")]));
        let told = |wal_dir: Option<&str>, is_ours: bool| {
            let wal_dir = wal_dir.map(|dir| ("hbase.wal.dir".to_string(), dir.to_string()));
            let ours = is_ours.then(|| (MASTER_OF_HALCYON.to_string(), "true".to_string()));
            wal_dir.into_iter().chain(ours).collect::<HashMap<_, _>>()
        };
        for (told, settings, is_same) in [
            (told(None, true), &none, true),
            (told(None, true), &wals, false),
            (told(Some("hdfs://n/wals/"), true), &wals, true),
            (told(Some("hdfs://n/wals"), true), &none, false),
            (told(Some("hdfs://n/other"), true), &wals, false),
            (told(None, false), &wals, true), // of a master of HBase
        ] {
            assert_eq!(check_wals_of_master(&told, settings).is_ok(), is_same, "{told:?}");
        }
    }

    fn refused_as(role: Role, name: &str, value: &str) -> bool {
        let property = Property { name: name.to_string(), value: value.to_string() };
        check_properties(role, &[property], &settings(&[]), Vec::new(), &[]).is_err()
    }

    /// A master used the check of region servers, which leaves out what is the master's.
    #[test]
    fn a_master_refuses_coprocessors_of_masters() {
        let (name, value) = ("hbase.coprocessor.master.classes", "org.example.AuditMasterObserver");
        assert!(refused_as(Role::Master, name, value));
        assert!(!refused_as(Role::RegionServer, name, value));
        for role in [Role::Master, Role::RegionServer] {
            assert!(refused_as(role, "hbase.security.authentication", "kerberos"), "{role:?}");
        }
    }

    /// A master that took the place of HBase's looked at nothing in the directory.
    #[test]
    fn a_master_looks_through_the_root_directory() {
        let env = SimFileSystem::new().env();
        let root = Root::at(env.clone(), "/hbase".into());
        check_directory(&root, &settings(&[]), &[]).map_err(|failure| failure.sentence).unwrap();
        env.fs.create_dir_all(&root.path.join("data/hbase/acl")).unwrap();
        let refused = check_directory(&root, &settings(&[]), &[]).map_err(|failure| failure.sentence);
        assert!(refused.unwrap_err().contains("--accept-without acls"));
        assert!(check_directory(&root, &settings(&[]), &[Protection::Acls]).is_ok());
        assert_eq!(cluster_id(&env, &root.path), Ok(None), "and nothing was made");
    }
}
