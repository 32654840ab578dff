//! Erasure coding policies of tables, in a simulated HDFS.

use std::path::Path;
use std::time::Duration;

use crate::common::*;
use halcyon_env::sim::{CrashMode, Fault, Operation, SimFileSystem};
use halcyon_schema::TableDescriptor;

const RS: &str = "RS-3-2-1024k";

fn hdfs() -> (SimFileSystem, Cluster) {
    let sim = SimFileSystem::hdfs(1);
    let cluster = start(&sim, 1);
    (sim, cluster)
}

fn start(sim: &SimFileSystem, start_code: i64) -> Cluster {
    Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), start_code).unwrap()
}

fn coded(policy: Option<&str>) -> TableDescriptor {
    let plain = table("t", &["f"]);
    policy.map_or(plain.clone(), |policy| plain.with("ERASURE_CODING_POLICY", policy))
}

fn policy_of(sim: &SimFileSystem, table: &str) -> Option<String> {
    sim.erasure_coding(&name(table).dir(Path::new(ROOT)))
}

#[test]
fn the_directory_of_a_table_has_its_policy() {
    let (sim, c) = hdfs();
    c.run("CreateTable", &create(&coded(Some(RS)), &["m"])).unwrap();
    assert_eq!(policy_of(&sim, "t").as_deref(), Some(RS));
    for region in c.regions("t") {
        assert_eq!(sim.erasure_coding(&region.dir(&c.root)).as_deref(), Some(RS));
    }
    c.run("CreateTable", &create(&table("plain", &["f"]), &[])).unwrap();
    assert_eq!(policy_of(&sim, "plain"), None);
    c.run("Snapshot", &snapshot("coded", "t")).unwrap();
    c.run("RestoreSnapshot", &restore("coded", "clone")).unwrap();
    assert_eq!(policy_of(&sim, "clone").as_deref(), Some(RS));

    c.run("ModifyTable", &modify(&coded(None))).unwrap();
    assert_eq!(policy_of(&sim, "t"), None);
    c.run("DisableTable", &disable("t")).unwrap();
    c.run("RestoreSnapshot", &restore("coded", "t")).unwrap();
    assert_eq!(policy_of(&sim, "t").as_deref(), Some(RS), "the policy of the snapshot");
    for preserve_splits in [true, false] {
        c.run("truncateTable", &truncate("t", preserve_splits)).unwrap();
        assert_eq!(policy_of(&sim, "t").as_deref(), Some(RS));
        c.run("DisableTable", &disable("t")).unwrap();
    }
    c.run("DeleteTable", &delete("t")).unwrap();
    c.run("CreateTable", &create(&coded(None), &[])).unwrap();
    assert_eq!(policy_of(&sim, "t"), None);
    c.check();
}

#[test]
fn a_policy_by_which_nothing_can_be_written_is_refused() {
    let (sim, c) = hdfs();
    c.run("CreateTable", &create(&coded(None), &[])).unwrap();
    let refused = |policy: &str| {
        let asked = c.run("ModifyTable", &modify(&coded(Some(policy))));
        let error = asked.unwrap_err();
        assert!(error.class.ends_with(".DoNotRetryIOException"), "{error:?}");
        assert_eq!(c.descriptor("t").unwrap().erasure_coding(), None);
        error.message.to_string()
    };
    for (policy, why) in [
        ("NONE", "Policy not found. Available policies are: RS-3-2-1024k, RS-6-3-1024k, XOR-2-1-1024k"),
        ("RS-6-3-1024k", "The policy must be enabled, but has state DISABLED"),
        ("XOR-2-1-1024k", "Halcyon writes files with policies of Reed-Solomon (RS) only"),
    ] {
        let text = refused(policy);
        let expected = format!("Cannot set Erasure Coding policy: {policy}. {why}");
        assert!(text.contains(&expected) && text.contains("hbase.table.sanity.checks"), "{text}");
    }
    sim.inject(Fault::new(Operation::Create, "test.out"));
    let text = refused(RS);
    assert!(text.contains("Failed write test for EC policy RS-3-2-1024k"), "{text}");
    assert_eq!(sim.faults_hit(), 1);
    assert_eq!(policy_of(&sim, "t"), None);
    assert!(c.env.fs.list(&c.root.join(".tmp")).unwrap().is_empty(), "the test leaves nothing");

    let (_sim, local) = Cluster::simulated();
    let text = local.run("CreateTable", &create(&coded(Some(RS)), &[])).unwrap_err().message.to_string();
    assert!(text.contains("Erasure Coding is only available on HDFS, but fs is LocalFileSystem"), "{text}");
    assert_eq!(local.state("t"), None);
}

#[test]
fn a_change_is_made_again_after_an_error() {
    let (sim, c) = hdfs();
    c.run("CreateTable", &create(&coded(None), &[])).unwrap();
    sim.inject(Fault::new(Operation::SetErasureCoding, "/t"));
    c.run("ModifyTable", &modify(&coded(Some(RS)))).unwrap();
    assert_eq!((sim.faults_hit(), policy_of(&sim, "t").as_deref()), (1, Some(RS)));
}

/// Whatever a crash leaves, the next master brings the directory and the descriptor together.
#[test]
fn directory_and_descriptor_agree_after_a_crash() {
    let changes = [(None, Some(RS)), (Some(RS), None)];
    let act = |c: &Cluster, to| c.submit("ModifyTable", &modify(&coded(to)));
    for (from, to) in changes {
        let (sim, c) = hdfs();
        c.run("CreateTable", &create(&coded(from), &[])).unwrap();
        let before = sim.sync_points();
        c.wait(act(&c, to).unwrap()).unwrap();
        let points = sim.sync_points() - before;
        assert!(points >= 3, "{points}");
        let mut changed = 0;
        for n in 1..=points {
            let (sim, c) = hdfs();
            c.run("CreateTable", &create(&coded(from), &[])).unwrap();
            sim.fail_at(sim.sync_points() + n);
            let acknowledged = act(&c, to).is_ok();
            (0..10_000).find(|_| {
                c.env.clock.sleep(Duration::from_millis(1));
                sim.is_dead() || !c.is_busy()
            });
            drop(c);
            for mode in CrashMode::ALL {
                let disk = sim.crash(mode, n);
                let c = start(&disk, 2);
                c.quiet();
                let descriptor = c.descriptor("t").unwrap();
                let (has, asked) = (policy_of(&disk, "t"), descriptor.erasure_coding());
                assert_eq!(has.as_deref(), asked, "sync point {n}, {mode:?}");
                assert!(
                    asked == to || !acknowledged,
                    "sync point {n}, {mode:?}: an acknowledged change is lost"
                );
                changed += usize::from(asked == to);
            }
        }
        assert!(changed > 0, "no crash was late enough");
    }
}
