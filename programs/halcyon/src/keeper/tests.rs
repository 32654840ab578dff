use std::os::unix::process::ExitStatusExt;

use tokio::io::AsyncWriteExt;

use super::*;

#[test]
fn the_exit_status_is_that_of_the_server() {
    for (raw, code) in [(0, 0), (1 << 8, 1), (78 << 8, 78), (9, 137), (15, 143), (6 | 0x80, 134)] {
        assert_eq!(exit_code(ExitStatus::from_raw(raw)), code, "{raw:#x}");
    }
}

#[test]
fn a_keeper_is_wanted_once() {
    let args = |keeper, kept_by| KeeperArgs { keeper, kept_by };
    let (on, off) = (KeeperSettings::default(), KeeperSettings { enabled: false, restart: false });
    assert!(is_wanted(&args(None, None), on) && is_wanted(&args(Some(true), None), off));
    assert!(!is_wanted(&args(None, None), off) && !is_wanted(&args(Some(false), None), on));
    assert!(!is_wanted(&args(Some(true), Some(1)), on), "it has one");
}

/// A server that does nothing, and the other end of its line.
fn server() -> (Server, UnixStream) {
    let (line, of_server) = UnixStream::pair().unwrap();
    let child = Command::new("sleep").arg("100").spawn().unwrap();
    (Server::new(child, line), of_server)
}

/// Hears all that was told.
async fn hear(server: &mut Server) {
    while timeout(Duration::from_millis(50), server.hear()).await.is_ok() {}
}

#[tokio::test]
async fn words_come_in_pieces() {
    let (mut server, mut of_server) = server();
    of_server.write_all(b"alive\nsession 1f:").await.unwrap();
    hear(&mut server).await;
    assert!(server.session.is_none());
    of_server.write_all(b"00ff\nznode /hbase/rs/h,1,2\n").await.unwrap();
    hear(&mut server).await;
    assert_eq!(server.whereabouts(), Some(("1f:00ff".parse().unwrap(), "/hbase/rs/h,1,2".to_string())));
}

#[tokio::test]
async fn what_is_no_word_does_no_harm() {
    let (mut server, mut of_server) = server();
    of_server.write_all(b"what\n\xff\xff\nsession x\nsession 1:00\n").await.unwrap();
    hear(&mut server).await;
    assert_eq!(server.session, Some("1:00".parse().unwrap()));
    // No line has an end: nothing more is read, and nothing more is held.
    of_server.write_all(&[b'x'; 3 * LINE_BYTES_MAX]).await.unwrap();
    hear(&mut server).await;
    assert!(server.line.is_none() && server.part.len() <= LINE_BYTES_MAX);
    assert_eq!(server.session, Some("1:00".parse().unwrap()));
}

#[tokio::test]
async fn a_server_that_says_nothing_is_silent() {
    let (mut server, mut of_server) = server();
    assert!(!server.is_silent());
    server.heard -= SILENCE;
    assert!(server.is_silent());
    of_server.write_all(b"alive\n").await.unwrap();
    server.hear().await;
    assert!(!server.is_silent());
    assert_eq!(server.next_check(), server.heard + SILENCE, "the moment when it would be silent");
}

#[test]
fn a_server_does_not_outlive_an_error_of_its_keeper() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let pid = runtime.block_on(async { Pid::from_child(&server().0.child) });
    // Not waited for, so the kernel knows it still.
    let status = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
    assert_eq!(status.unwrap().1.terminating_signal(), Some(9));
}
