use halcyon_testkit::Random;

use super::*;

fn server() -> ServerName {
    ServerName::new("node-1.example", 16000, 1_700_000_000_000)
}

fn paths() -> ZnodePaths {
    ZnodePaths::new("/hbase").unwrap()
}

#[test]
fn names_are_those_of_hbase() {
    let paths = paths();
    assert_eq!((paths.master(), paths.running()), ("/hbase/master".into(), "/hbase/running".into()));
    assert_eq!((paths.cluster_id(), paths.draining()), ("/hbase/hbaseid".into(), "/hbase/draining".into()));
    assert_eq!(paths.meta(0), "/hbase/meta-region-server");
    assert_eq!(paths.meta(2), "/hbase/meta-region-server-2");
    assert_eq!(paths.region_server(&server()), "/hbase/rs/node-1.example,16000,1700000000000");
    assert_eq!(ZnodePaths::new("/a/b/").unwrap().below("c"), "/a/b/c");
    for bad in ["", "/", "hbase", "//", "/a//b", "/a/../b", "/./a"] {
        assert!(ZnodePaths::new(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn names_of_a_master_are_those_of_hbase() {
    let (paths, server) = (paths(), server());
    assert_eq!(paths.backup_master(&server), format!("{}/{server}", paths.backup_masters()));
    assert_eq!(paths.backup_masters(), "/hbase/backup-masters");
    assert_eq!(paths.draining_server(&server), format!("/hbase/draining/{server}"));
    assert_eq!((paths.tables(), paths.table("n:t")), ("/hbase/table".into(), "/hbase/table/n:t".into()));
    assert_eq!(paths.master_epoch(), "/hbase/halcyon/master-epoch");
}

#[test]
fn a_start_date_is_that_of_java() {
    // Each is `TZ=UTC LC_ALL=C date --date=@SECONDS '+%a %b %d %H:%M:%S %Z %Y'`.
    for (seconds, text) in [
        (0, "Thu Jan 01 00:00:00 UTC 1970"),
        (68_255_999, "Tue Feb 29 23:59:59 UTC 1972"),
        (68_256_000, "Wed Mar 01 00:00:00 UTC 1972"),
        (94_694_399, "Sun Dec 31 23:59:59 UTC 1972"),
        (94_694_400, "Mon Jan 01 00:00:00 UTC 1973"),
        (951_782_400, "Tue Feb 29 00:00:00 UTC 2000"),
        (978_307_199, "Sun Dec 31 23:59:59 UTC 2000"),
        (1_700_000_000, "Tue Nov 14 22:13:20 UTC 2023"),
        (1_798_761_599, "Thu Dec 31 23:59:59 UTC 2026"),
        (4_107_542_400, "Mon Mar 01 00:00:00 UTC 2100"),
    ] {
        assert_eq!(start_date(seconds * 1000 + 999), text);
    }
}

#[test]
fn a_namespace_has_an_id_and_no_magic() {
    let data = encode_namespace("master:17402", [7; 8], &crate::NamespaceDescriptor::new("default").to_pb());
    assert_eq!(data, b"\xff\0\0\0\x14master:17402\x07\x07\x07\x07\x07\x07\x07\x07\n\x07default");
}

#[test]
fn an_epoch_is_a_decimal_number() {
    for epoch in [0, 1, 42, u64::MAX] {
        assert_eq!(decode_epoch("/e", &encode_epoch(epoch)).unwrap(), epoch);
    }
    for bad in ["", "x", "-1", "+1", " 1", "1\n", "18446744073709551616", "000000000000000000001"] {
        let error = decode_epoch("/hbase/halcyon/master-epoch", bad.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("/hbase/halcyon/master-epoch: \""), "{error}");
        assert!(error.contains("is not a decimal number"), "{error}");
    }
    assert!(decode_epoch("/e", b"\xff\xff").unwrap_err().to_string().contains(r"\xff\xff"));
    assert!(decode_epoch("/e", &[0; 100_000]).unwrap_err().to_string().len() < 200);
}

#[test]
fn procedures_are_where_hbase_has_them() {
    let paths = paths().procedures("online-snapshot");
    assert_eq!(paths.instances(), "/hbase/online-snapshot/acquired");
    assert_eq!(paths.acquired("s"), "/hbase/online-snapshot/acquired/s");
    assert_eq!(paths.reached("s"), "/hbase/online-snapshot/reached/s");
    assert_eq!(paths.abort("s"), "/hbase/online-snapshot/abort/s");
}

#[test]
fn aborts_are_read_back_and_garbage_is_named() {
    let message = foreign_exception(&server(), "java.io.IOException", "no disk");
    let bytes = encode("w", [7; 8], &message);
    assert_eq!(decode_abort("/a", &bytes).unwrap(), format!("{}: no disk", server()));
    assert_eq!(payload("/a", &encode_payload("w", [7; 8], b"x")).unwrap(), b"x");
    for garbage in [&b""[..], b"garbage", b"PBUF\xff\xff", b"\xff\xff\xff\xff\xff"] {
        assert!(decode_abort("/a/abort", garbage).unwrap_err().message().contains("/a/abort"));
    }
}

#[test]
fn replicas_of_meta_are_told_from_other_znodes() {
    let replicas = ["meta-region-server", "meta-region-server-1", "meta-region-server-12"];
    assert_eq!(replicas.map(ZnodePaths::meta_replica), [Some(0), Some(1), Some(12)]);
    for other in [
        "master",
        "meta-region-server-",
        "meta-region-server-0",
        "meta-region-server-x",
        "meta-region-servers",
    ] {
        assert_eq!(ZnodePaths::meta_replica(other), None, "{other}");
    }
}

#[test]
fn what_is_written_is_read() {
    let master = ActiveMaster { server: server(), info_port: 16010 };
    let data = encode("master:16000", [7; 8], &master.to_pb());
    assert_eq!(data[..9], *b"\xff\0\0\0\x14mast");
    assert_eq!(ActiveMaster::decode("/hbase/master", &data).unwrap(), master);

    // HBase's master without pages writes -1.
    let master = ActiveMaster { server: server(), info_port: 0 };
    assert_eq!(master.to_pb().info_port, Some(u32::MAX));
    assert_eq!(ActiveMaster::decode("m", &encode("w", [0; 8], &master.to_pb())).unwrap(), master);

    for is_open in [false, true] {
        let meta = MetaLocation { replica: 1, server: server(), is_open };
        let data = encode("master:16000", [0xff; 8], &meta.to_pb());
        assert_eq!(MetaLocation::decode("m", 1, &data).unwrap(), meta);
    }
    let data = encode("master:16000", [0; 8], &pb::ClusterId { cluster_id: "id".to_string() });
    assert_eq!(decode_cluster_id("/hbase/hbaseid", &data).unwrap().0, "id");
    let data = encode("master:16000", [0; 8], &pb::ClusterUp { start_date: "today".to_string() });
    assert_eq!(decode_running("/hbase/running", &data).unwrap(), "today");
}

#[test]
fn the_id_of_the_writer_may_be_missing() {
    let message = pb::Master { master: server().to_pb(), rpc_version: None, info_port: None };
    let data = [PB_MAGIC.as_slice(), &message.encode_to_vec()].concat();
    assert_eq!(ActiveMaster::decode("m", &data).unwrap(), ActiveMaster { server: server(), info_port: 0 });
}

#[test]
fn the_id_is_skipped_blindly() {
    let id = |data: &[u8]| message::<pb::ClusterId>("i", data).map(|id| id.cluster_id);
    assert_eq!(id(b"PBUF\x0a\x01m").unwrap(), "m");
    assert_eq!(id(b"\xff\0\0\0\x02idPBUF\x0a\x01m").unwrap(), "m");
    assert!(id(b"\xff\0\0\0\x0cidPBUF\x0a\x01m").is_err());
    assert!(id(b"\xff\xff\xff\xff\xff").is_err());
    assert!(id(b"m").is_err());
}

#[test]
fn a_location_without_a_state_is_open() {
    let meta = pb::MetaRegionServer { server: server().to_pb(), rpc_version: None, state: None };
    assert!(MetaLocation::decode("m", 0, &encode("w", [0; 8], &meta)).unwrap().is_open);
}

#[test]
fn a_region_server_says_a_version_of_hbase() {
    let info = region_server_info(16030, "2.6.4");
    let version = info.version_info.unwrap();
    assert_eq!((info.info_port, version.version.as_str()), (Some(16030), "2.6.4"));
    assert_eq!((version.version_major, version.version_minor), (Some(2), Some(6)));
    assert_eq!(region_server_info(0, "2.6.4").info_port, Some(-1));
    let version = version_info("3.0.0-beta-1");
    assert_eq!((version.version_major, version.version_minor), (Some(3), Some(0)));
    assert_eq!(version_info("unknown").version_major, None);
}

#[test]
fn garbage_is_an_error_that_names_the_znode() {
    let error = |data: &[u8]| ActiveMaster::decode("/hbase/master", data).unwrap_err().to_string();
    assert!(error(b"").contains("/hbase/master: starts with \"\", not \"PBUF\""), "{}", error(b""));
    assert!(error(b"\xff\0\0").contains("/hbase/master: the id of the writer is cut off after 3 bytes"));
    assert!(error(b"\xff\xff\xff\xff\xffPBUF").contains("is cut off after 9 bytes"));
    assert!(error(b"\xff\0\0\0\x01xPBUG").contains("starts with \"PBUG\""));
    assert!(error(b"PBUF\x0a\xff").contains("/hbase/master: "));
    let nobody = pb::Master { master: ServerName::new("", 1, 1).to_pb(), rpc_version: None, info_port: None };
    assert!(error(&encode("w", [0; 8], &nobody)).contains("has no host or no port"));
    let far = pb::Master { master: server().to_pb(), rpc_version: None, info_port: Some(70_000) };
    assert!(error(&encode("w", [0; 8], &far)).contains("70000 is no port of a page"));
    let state = pb::MetaRegionServer { server: server().to_pb(), rpc_version: None, state: Some(99) };
    let error = MetaLocation::decode("/m", 0, &encode("w", [0; 8], &state)).unwrap_err();
    assert!(error.to_string().contains("/m: 99 is no state of a region"), "{error}");
    let empty = encode("w", [0; 8], &pb::ClusterId::default());
    assert!(decode_cluster_id("i", &empty).is_err());
}

#[test]
fn names_of_children_are_checked() {
    assert_eq!(decode_server("/hbase/rs", "node-1.example,16000,1700000000000").unwrap(), server());
    for bad in ["", "h", "h:1", "h,1", "h,1,-1", "h,01,1", "h,1,1,1", ",1,1", "h,70000,1"] {
        let error = decode_server("/hbase/rs", bad).unwrap_err().to_string();
        assert!(error.contains(&format!("/hbase/rs/{bad}: not a server name")), "{error}");
    }
}

/// Also run by `cargo xtask fuzz znode`.
#[test]
fn damaged_znodes_never_panic() {
    let seed = std::env::var("HALCYON_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut random = Random::new(seed);
    let whole = [
        encode("master:16000", [7; 8], &ActiveMaster { server: server(), info_port: 16010 }.to_pb()),
        encode("master:16000", [7; 8], &MetaLocation { replica: 0, server: server(), is_open: true }.to_pb()),
        encode("regionserver:16020", [7; 8], &region_server_info(16030, "2.6.4")),
        encode("master:16000", [7; 8], &pb::ClusterId { cluster_id: "x".repeat(36) }),
    ];
    let mut refused = 0;
    for _ in 0..20_000 {
        let mut data = whole[random.below(whole.len())].clone();
        for _ in 0..=random.below(4) {
            let at = random.below(data.len());
            match random.below(4) {
                0 => data.truncate(at.max(1)),
                1 => data.insert(at, random.below(256) as u8),
                2 => data[at] ^= 1 << random.below(8),
                _ => data[at] = random.below(256) as u8,
            }
        }
        let path = "/hbase/damaged";
        let answers = [
            ActiveMaster::decode(path, &data).map(drop),
            MetaLocation::decode(path, 0, &data).map(drop),
            decode_cluster_id(path, &data).map(drop),
            decode_running(path, &data).map(drop),
            decode_epoch(path, &data).map(drop),
            message::<pb::RegionServerInfo>(path, &data).map(drop),
        ];
        for error in answers.into_iter().filter_map(Result::err) {
            assert!(error.to_string().contains(path), "seed {seed}: {error}");
            refused += 1;
        }
    }
    assert!(refused > 20_000, "seed {seed}: the damage was noticed {refused} times only");
}
