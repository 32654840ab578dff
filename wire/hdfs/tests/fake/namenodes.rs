//! NameNodes that are silent, and what becomes of calls that were given up.

use std::io::ErrorKind;

use halcyon_env::{FileSystem, is_in_doubt};
use tokio::time::Instant;

use crate::namenode::{Answer, NameNode, wait_until};
use crate::*;

fn silent() -> NameNode {
    let namenode = NameNode::start(&[]);
    namenode.always(Answer::Silence);
    namenode
}

/// The first NameNode hangs, or its host is gone and packets are dropped. Each call began at it again, with a new client, and
/// the one that had become active was never asked: all servers were down beside a healthy HDFS.
#[test]
fn the_next_namenode_is_asked_when_one_is_silent() {
    let (first, second) = (silent(), silent());
    let fs = connect(
        &[&first.address, &second.address],
        Deadlines { namenode_total: DEADLINE * 4, ..deadlines() },
    );
    assert_eq!(fs.exists(path("/a")).unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(first.connections() >= 1 && second.connections() >= 1);

    let active = NameNode::start(&[]);
    let fs = connect(
        &[&first.address, &active.address],
        Deadlines { namenode_total: DEADLINE * 6, ..deadlines() },
    );
    let began = Instant::now();
    assert!(fs.exists(path("/a")).unwrap());
    assert!(began.elapsed() >= DEADLINE && began.elapsed() < SLACK);
    // From now on it is the first to be asked, also for changes.
    let before = first.connections();
    fs.rename(path("/a"), path("/b")).unwrap();
    fs.create_dir_all(path("/c")).unwrap();
    assert_eq!(first.connections(), before);
    // When it is silent in turn, the other one is asked again.
    active.always(Answer::Silence);
    assert_eq!(fs.exists(path("/a")).unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(first.connections() > before);
}

/// A host that drops packets: its connections are never made. Nothing was sent there, so a change need not wait for the deadline.
#[test]
fn a_namenode_that_cannot_be_connected_to_costs_less_than_a_deadline() {
    let full =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&full, &std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let address: std::net::SocketAddr = rustix::net::getsockname(&full).unwrap().try_into().unwrap();
    // Behind these it takes no more connections, and says nothing.
    let _taken: Vec<_> = (0..4).map(|_| std::net::TcpStream::connect_timeout(&address, DEADLINE)).collect();
    let active = NameNode::start(&[]);
    let own = Deadlines { namenode: SLACK, ..deadlines() };
    let fs = connect(&[&address.to_string(), &active.address], own);
    let began = Instant::now();
    fs.rename(path("/a"), path("/b")).unwrap();
    assert!(began.elapsed() >= DEADLINE && began.elapsed() < SLACK);
}

/// What a deadline gave up stayed in the socket: the kernel sends it again for a quarter of an hour, and the change was made then.
#[test]
fn a_request_that_is_given_up_is_taken_back() {
    let namenode = silent();
    let fs = connect_to(&namenode);
    let error = fs.create(path("/a")).err().unwrap();
    assert!(is_in_doubt(&error), "{error}");
    wait_until("the connection is reset", || {
        let is_reset = |kind: &ErrorKind| matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
        namenode.ended().first().is_some_and(|ended| ended.as_ref().is_err_and(is_reset))
    });
}

/// The second attempt of a removal or a rename may come before the first one. By its number the NameNode knows that it is one
/// call, and does it once (`dfs.namenode.enable.retrycache`).
#[test]
fn attempts_of_a_change_are_one_call() {
    for (method, change) in [
        ("delete", (|fs| fs.remove_file(path("/a"))) as fn(&HdfsFileSystem) -> std::io::Result<()>),
        ("rename2", |fs| fs.rename_over(path("/a"), path("/b"))),
    ] {
        let namenode = NameNode::start(&[]);
        namenode.script(method, &[Answer::Silence, Answer::Close]);
        let fs = connect_to(&namenode);
        change(&fs).unwrap();
        let calls = namenode.calls(method);
        assert_eq!(calls.len(), 3, "{method}");
        assert!(calls.iter().all(|call| call.id == calls[0].id), "{method}");
        change(&fs).unwrap();
        assert_ne!(namenode.calls(method)[3].id, calls[0].id, "another change is another call");
    }
}

/// A directory of a server's own that is made late comes back after the next owner took it away, and the server could make its
/// files there again. The NameNode does not remember such calls.
#[test]
fn a_directory_is_not_made_again_after_a_silence() {
    let namenode = NameNode::start(&[]);
    let fs = connect_to(&namenode);
    namenode.script("mkdirs", &[Answer::Silence]);
    let error = fs.create_own_dir(path("/r/.tmp/own")).unwrap_err();
    assert!(is_in_doubt(&error) && namenode.calls("mkdirs").len() == 1, "{error}");
    let standby = Answer::Exception("org.apache.hadoop.ipc.StandbyException");
    let starting = Answer::Exception("org.apache.hadoop.ipc.RetriableException");
    namenode.script("mkdirs", &[standby, starting]);
    fs.create_own_dir(path("/r/.tmp/own")).unwrap();
    assert_eq!(namenode.calls("mkdirs").len(), 4, "what was refused for now is asked for again");
}

/// The creation of the temporary file replaced what was there, and was made again: a late one replaced the bytes by nothing, and
/// the empty file got the final name.
#[test]
fn a_file_that_is_written_whole_has_another_name_with_each_creation() {
    let namenode = NameNode::start(&[]);
    let fs = connect_to(&namenode);
    namenode.script("create", &[Answer::Silence, Answer::Close]);
    fs.replace(path("/p/record"), b"").unwrap();
    let creations = namenode.calls("create");
    let mut names: Vec<String> = creations.iter().map(|call| call.body.text(1)).collect();
    let written = names.last().unwrap().clone();
    // CREATE alone, without OVERWRITE
    assert!(creations.iter().all(|call| call.body.number(4) & 2 == 0));
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!(namenode.calls("rename2")[0].body.text(1), written);
    wait_until("what may have been made is removed", || namenode.calls("delete").len() == 2);
    assert!(namenode.calls("delete").iter().all(|call| call.body.text(1) != written));
}

/// A removal that was carried out late removed the next directory of its name: a table that was dropped and created again.
#[test]
fn a_directory_is_moved_away_before_it_is_removed() {
    let namenode = NameNode::start(&[]);
    let fs = connect_to(&namenode);
    namenode.script("rename2", &[Answer::Close]);
    namenode.script("delete", &[Answer::Silence]);
    fs.remove_dir_all(path("/data/t-dir")).unwrap();
    let own = namenode.calls("mkdirs")[0].body.text(1);
    assert!(own.starts_with("/data/.") && own.ends_with(".removed"), "{own}");
    for call in namenode.calls("rename2") {
        // A late one finds no directory to move into.
        assert_eq!(
            (call.body.text(1), call.body.text(2)),
            ("/data/t-dir".to_string(), format!("{own}/t-dir"))
        );
    }
    assert!(namenode.calls("delete").iter().all(|call| call.body.text(1) == own));
    assert_eq!(namenode.changes(), ["mkdirs", "rename2", "rename2", "delete", "delete"]);
}

/// The directory of its own had a longer name than the one it was for, so a table with a long name could not be dropped, and its
/// drop was tried again for ever.
#[test]
fn a_directory_with_the_longest_name_is_moved_below_a_short_one() {
    let namenode = NameNode::start(&[]);
    let fs = connect_to(&namenode);
    let name = format!("{}-dir", "t".repeat(251));
    fs.remove_dir_all(path(&format!("/data/{name}"))).unwrap();
    let own = namenode.calls("mkdirs")[0].body.text(1);
    let last = own.strip_prefix("/data/").unwrap();
    assert!(last.len() < 100, "{last}");
    assert_eq!(namenode.calls("rename2")[0].body.text(2), format!("{own}/{name}"));
}

/// Where no more names may be made, things can still be removed.
#[test]
fn a_directory_is_removed_where_no_directory_can_be_made() {
    for refusal in [
        "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException",
        "org.apache.hadoop.hdfs.protocol.FSLimitException$MaxDirectoryItemsExceededException",
        "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException",
    ] {
        let namenode = NameNode::start(&[]);
        let fs = connect_to(&namenode);
        namenode.script("mkdirs", &[Answer::Exception(refusal)]);
        fs.remove_dir_all(path("/data/t-dir")).unwrap();
        assert_eq!(namenode.calls("delete")[0].body.text(1), "/data/t-dir");
    }
}

/// A removal of millions of files takes a NameNode long. Each attempt at it ended the connection that all calls of the process share,
/// and the changes of others were in doubt; the next calls went to the NameNode that is not active.
#[test]
fn a_slow_call_disturbs_no_other() {
    let (active, standby) = (NameNode::start(&[]), silent());
    let own = Deadlines { namenode_total: DEADLINE * 8, ..deadlines() };
    let fs = std::sync::Arc::new(connect(&[&active.address, &standby.address], own));
    assert!(fs.exists(path("/a")).unwrap());
    active.script("delete", &[Answer::None, Answer::None]);
    let removing = fs.clone();
    let removal = halcyon_env::spawn_thread("removal", move || removing.remove_file(path("/a"))).unwrap();
    let mut changes_count = 0;
    while !removal.is_finished() {
        fs.create_dir_all(path("/c")).unwrap();
        changes_count += 1;
        halcyon_env::Clock::sleep(&halcyon_env::SystemClock::new(), DEADLINE / 30);
    }
    removal.join().unwrap().unwrap();
    assert!(changes_count > 5, "{changes_count}");
    let calls = active.calls("delete");
    assert!(calls.len() == 3 && calls.iter().all(|call| call.id == calls[0].id), "one call, made again");
    assert_eq!((active.connections(), standby.connections()), (1, 0));
}

/// A host that drops packets: each call that waited tried to connect after those before it had, so the third was late.
#[test]
fn calls_that_wait_for_a_connection_share_its_failure() {
    let full =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&full, &std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let address: std::net::SocketAddr = rustix::net::getsockname(&full).unwrap().try_into().unwrap();
    let _taken: Vec<_> = (0..4).map(|_| std::net::TcpStream::connect_timeout(&address, DEADLINE)).collect();
    let active = NameNode::start(&[]);
    let connect_time = DEADLINE * 4;
    let own = Deadlines { connect: connect_time, namenode: SLACK * 2, ..deadlines() };
    let fs = std::sync::Arc::new(connect(&[&address.to_string(), &active.address], own));
    let began = Instant::now();
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let fs = fs.clone();
            halcyon_env::spawn_thread("caller", move || fs.create_dir_all(path(&format!("/{number}"))))
                .unwrap()
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    assert!(began.elapsed() >= connect_time && began.elapsed() < connect_time * 4, "{:?}", began.elapsed());
}
