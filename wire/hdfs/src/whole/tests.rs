use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::fan_out::tests::{connect, keeps};
use crate::{HdfsAddress, HdfsOptions, Site};

const BYTES: &[u8] = b"the record of a procedure";
/// For threads of a busy machine.
const SLACK: Duration = Duration::from_secs(5);

type Script = Box<dyn FnOnce(TcpStream) + Send>;
type Told = (Vec<u8>, usize, usize);

fn cluster() -> Arc<Cluster> {
    let address = HdfsAddress::new("hdfs://127.0.0.1:1/", &Site::default()).unwrap();
    Arc::new(Cluster::new(address, HdfsOptions::default()).unwrap())
}

fn told() -> (Sender<Told>, Receiver<Told>) {
    channel()
}

/// Takes bytes and says nothing until `thawed` ends.
fn frozen(thawed: Receiver<()>, then: Script) -> Script {
    Box::new(move |stream| {
        let _ = thawed.recv();
        then(stream);
    })
}

fn dies() -> Script {
    Box::new(|mut stream| {
        let _ = stream.read(&mut [0; 10]);
    })
}

fn refuses() -> Script {
    Box::new(|mut stream| {
        let _ = stream.read(&mut [0; 10]);
        let _ = stream.write_all(&[4, 0x08, 2, 0x10, 1]); // packet 1, an error
        let _ = stream.read_to_end(&mut Vec::new());
    })
}

/// The file as far as the DataNodes: the time, the result and what is avoided then, one entry for each DataNode.
fn end(
    cluster: &Arc<Cluster>,
    scripts: Vec<Script>,
    enough: usize,
) -> (Duration, Result<(), Refusal>, Vec<bool>) {
    let mut fan_out = connect(scripts);
    let datanodes: Vec<_> = fan_out.datanodes().cloned().collect();
    fan_out.put(BYTES, PacketEnd { sync: true, last: true });
    let began = Instant::now();
    let ended = wait(cluster, Path::new("/a"), &mut fan_out, enough);
    let took = began.elapsed();
    (took, ended, datanodes.iter().map(|datanode| cluster.avoided().is_avoided(datanode)).collect())
}

#[test]
fn all_datanodes_have_the_bytes_on_their_disks() {
    let (tell, hears) = told();
    let cluster = cluster();
    let (_, ended, avoided) = end(&cluster, (0..3).map(|_| keeps(tell.clone()) as Script).collect(), 2);
    assert_eq!((ended, avoided), (Ok(()), vec![false; 3]));
    for _ in 0..3 {
        assert_eq!(hears.recv_timeout(SLACK).unwrap(), (BYTES.to_vec(), 1, 0));
    }
}

/// A host that is lost while a file is written: the two others are enough.
#[test]
fn a_frozen_datanode_is_waited_for_once() {
    let ((tell, hears), (tell_late, hears_late)) = (told(), told());
    let (thaw, thawed) = channel();
    let cluster = cluster();
    let scripts =
        vec![keeps(tell.clone()) as Script, frozen(thawed, keeps(tell_late)), keeps(tell) as Script];
    let (took, ended, avoided) = end(&cluster, scripts, 2);
    assert_eq!((ended, avoided), (Ok(()), vec![false, true, false]));
    assert!(took >= LATE_MAX && took < LATE_MAX + SLACK, "{took:?}");
    for _ in 0..2 {
        assert_eq!(hears.recv_timeout(SLACK).unwrap().0, BYTES);
    }
    assert!(hears_late.try_recv().is_err());
    drop(thaw);
}

/// Nobody is to blame while nobody has answered: disks are slow at times.
#[test]
fn with_all_of_them_late_none_is_avoided() {
    let (tell, _hears) = told();
    let cluster = cluster();
    let (thaws, scripts): (Vec<_>, Vec<_>) = (0..3)
        .map(|_| {
            let (thaw, thawed) = channel::<()>();
            (thaw, frozen(thawed, keeps(tell.clone())))
        })
        .unzip();
    halcyon_env::spawn_thread("thaw", move || {
        use halcyon_env::Clock;
        halcyon_env::SystemClock::new().sleep(LATE_MAX * 3);
        drop(thaws);
    })
    .unwrap();
    let (took, ended, avoided) = end(&cluster, scripts, 2);
    assert_eq!((ended, avoided), (Ok(()), vec![false; 3]));
    assert!(took >= LATE_MAX * 3, "{took:?}");
}

#[test]
fn one_that_dies_or_refuses_is_gone_on_without() {
    for bad in [dies, refuses] {
        let (tell, hears) = told();
        let cluster = cluster();
        let scripts = vec![bad(), keeps(tell.clone()) as Script, keeps(tell) as Script];
        let (_, ended, avoided) = end(&cluster, scripts, 2);
        assert_eq!((ended, avoided), (Ok(()), vec![true, false, false]));
        for _ in 0..2 {
            assert_eq!(hears.recv_timeout(SLACK).unwrap().0, BYTES);
        }
    }
}

#[test]
fn with_too_few_left_the_file_fails_and_names_them() {
    let (tell, _hears) = told();
    let cluster = cluster();
    let (_, ended, avoided) = end(&cluster, vec![dies(), keeps(tell.clone()), dies()], 2);
    let (kind, why) = ended.unwrap_err();
    assert_eq!((kind, avoided), (io::ErrorKind::BrokenPipe, vec![true, false, true]));
    assert!(why.contains("DataNode 127.0.0.1:"), "{why}");
    // Its last copy, too.
    assert!(end(&cluster, vec![dies()], 1).1.is_err());
    let cluster = self::cluster();
    let (first, second) = (channel::<()>(), channel::<()>());
    let scripts = vec![
        keeps(tell.clone()) as Script,
        frozen(first.1, keeps(tell.clone())),
        frozen(second.1, keeps(tell)),
    ];
    let (took, ended, avoided) = end(&cluster, scripts, 2);
    drop((first.0, second.0));
    let (kind, why) = ended.unwrap_err();
    assert_eq!((kind, avoided), (io::ErrorKind::TimedOut, vec![false, true, true]));
    let limit = cluster.deadlines().acknowledgement;
    assert!(
        why.matches("127.0.0.1:").count() == 2 && took >= limit && took < limit + SLACK,
        "{why} {took:?}"
    );
}
