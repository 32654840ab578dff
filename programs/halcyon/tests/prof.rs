//! `/prof` of a running server: what `docs/PROFILING.md` promises.

#![allow(clippy::disallowed_methods)] // the time is the real one

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::{Client, Server, family, fresh_dir, put};
use halcyon_cell::Cell;
use halcyon_schema::RegionInfo;

/// Status, head and body.
type Answer = (u16, String, String);

fn ask(address: SocketAddr, path: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), body.to_string())
}

fn ask_aside(address: SocketAddr, path: &'static str) -> JoinHandle<Answer> {
    std::thread::spawn(move || ask(address, path))
}

/// Stacks of a collapsed profile with their numbers.
fn stacks(text: &str) -> Vec<(Vec<&str>, u64)> {
    let mut stacks = Vec::new();
    for line in text.lines() {
        let (stack, number) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no number: {line}"));
        stacks.push((stack.split(';').collect(), number.parse().expect("a number")));
    }
    stacks
}

/// Puts and gets until told to end.
async fn work(client: &Client, region: &RegionInfo, ends: &AtomicBool) {
    for row in 0u64.. {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        let key = format!("{:04}", row % 1000);
        let cell = Cell::put(key.as_bytes(), b"f", b"q", i64::MAX, &[7; 2000]);
        client.mutate(region, put(1), &[cell]).await.unwrap();
        for _ in 0..5 {
            assert!(client.value(region, &key).await.unwrap().is_some());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_of_a_server_under_load() {
    let dir = fresh_dir("prof");
    let server = Server::start(&dir, &["--memory", "256m"]);
    let (master, info) = (server.address("master-info"), server.address("regionserver-info"));
    let client = Client::connect(&server).await;
    let regions = client.create_table("t", vec![family("f")], &[]).await;
    let ends = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ends);
    let checks = std::thread::spawn(move || {
        let load_ends = ends_when_dropped(told);
        cpu_profile(info);
        alloc_profile(info);
        wait_profile(info);
        one_at_a_time(master, info);
        who_leaves_ends_the_profile(info);
        bad_queries(master);
        drop(load_ends);
    });
    work(&client, &regions[0], &ends).await;
    checks.join().unwrap();
    // nothing of it is left behind
    let (status, _, body) = ask(master, "/stalls");
    assert_eq!(status, 200, "{body}");
    server.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

/// Says that the checks have ended, also by a failure.
fn ends_when_dropped(ends: Arc<AtomicBool>) -> impl Drop {
    struct Ends(Arc<AtomicBool>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    Ends(ends)
}

fn cpu_profile(info: SocketAddr) {
    let (status, head, text) = ask(info, "/prof?seconds=3&hz=500&output=collapsed");
    assert_eq!(status, 200, "{text}");
    assert!(head.contains("content-type: text/plain"), "{head}");
    let stacks = stacks(&text);
    let all: u64 = stacks.iter().map(|(_, count)| count).sum();
    let with = |part: &str| {
        let has = |stack: &[&str]| stack.iter().any(|name| name.contains(part));
        stacks.iter().filter(|(stack, _)| has(stack)).map(|(_, count)| count).sum::<u64>()
    };
    assert!(all > 50, "{all}: {text}");
    assert!(stacks.iter().any(|(stack, _)| stack[0].starts_with("network-")), "{text}");
    assert!(with("halcyon_") * 2 > all, "functions have their paths: {text}");
    assert!(with("[unknown]") * 5 < all, "{text}");
    let (status, head, svg) = ask(info, "/prof?seconds=1");
    assert_eq!(status, 200, "{svg}");
    assert!(head.contains("content-type: image/svg+xml") && head.contains("default-src 'none'"), "{head}");
    let picture = roxmltree::Document::parse(&svg).unwrap();
    let titles = picture.descendants().filter(|node| node.has_tag_name("title"));
    assert!(titles.filter_map(|title| title.text()).any(|text| text.starts_with("halcyon_")), "{svg}");
}

fn alloc_profile(info: SocketAddr) {
    let (status, _, text) = ask(info, "/prof?event=alloc&seconds=2&interval_bytes=65536&output=collapsed");
    assert_eq!(status, 200, "{text}");
    let stacks = stacks(&text);
    assert!(stacks.iter().any(|(stack, _)| stack.iter().any(|name| name.contains("halcyon_"))), "{text}");
    assert!(stacks.iter().all(|(_, bytes)| bytes % 65536 == 0), "{text}");
}

/// Each put waits for its sync, and syncs take longer than 10 us on any disk.
fn wait_profile(info: SocketAddr) {
    let (status, _, text) = ask(info, "/prof?event=wait&seconds=2&min_us=10&output=collapsed");
    assert_eq!(status, 200, "{text}");
    let is_sync = |stack: &[&str]| stack.get(1) == Some(&"sync") && stack[2].contains("WALs");
    let synced_us: u64 = stacks(&text).iter().filter(|(stack, _)| is_sync(stack)).map(|(_, us)| us).sum();
    assert!(synced_us > 100, "{text}");
}

fn one_at_a_time(master: SocketAddr, info: SocketAddr) {
    let first = ask_aside(info, "/prof?seconds=2&event=wait&output=collapsed");
    std::thread::sleep(Duration::from_millis(500));
    for path in ["/prof", "/prof?event=alloc", "/prof?event=wait"] {
        let (status, _, sentence) = ask(master, path);
        assert_eq!(status, 409, "{sentence}");
        assert!(sentence.starts_with("A profile of wait is being taken, for "), "{sentence}");
    }
    assert_eq!(first.join().unwrap().0, 200);
    assert_eq!(ask(master, "/prof?seconds=1&output=collapsed").0, 200, "both ports have it");
}

fn who_leaves_ends_the_profile(info: SocketAddr) {
    for event in ["cpu", "alloc", "wait"] {
        let mut stream = TcpStream::connect(info).unwrap();
        let request = format!("GET /prof?seconds=45&event={event} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(ask(info, "/prof").0, 409);
        drop(stream);
        let mut looks = 0;
        while ask(info, "/prof?event=wait&seconds=1").0 == 409 {
            looks += 1;
            assert!(looks < 100, "the profile of {event} goes on without its client");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn bad_queries(master: SocketAddr) {
    for (query, named) in [
        ("seconds=0", "seconds"),
        ("seconds=3600", "from 1 to 45"),
        ("hz=100000", "hz"),
        ("event=everything", "event"),
        ("output=exe", "output"),
        ("nonsense=%ff%00", "nonsense"),
        ("event=alloc&interval_bytes=1", "interval_bytes"),
    ] {
        let (status, _, sentence) = ask(master, &format!("/prof?{query}"));
        assert_eq!(status, 400, "{query}: {sentence}");
        assert!(sentence.contains(named), "{query}: {sentence}");
    }
}
