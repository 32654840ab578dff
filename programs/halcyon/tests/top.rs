//! `halcyon top` and `halcyon tune` at a running server: what `docs/TOP.md` promises.

#![allow(clippy::disallowed_methods)] // the time is the real one

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Client, Server, family, fresh_dir, put};
use halcyon_cell::Cell;
use serde_json::Value;

fn halcyon(server: &Server, args: &[&str]) -> Output {
    let zookeeper = server.address("zookeeper").to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
    command.arg(args[0]).args(["--zookeeper", &zookeeper]).args(&args[1..]).output().unwrap()
}

fn printed(server: &Server, args: &[&str]) -> String {
    let output = halcyon(server, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Puts and gets single rows of the table's second region, until told to end.
async fn work(client: &Client, region: &halcyon_schema::RegionInfo, ends: &AtomicBool) {
    for row in 0u64.. {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        let key = format!("m{:04}", row % 1000);
        let cell = Cell::put(key.as_bytes(), b"f", b"q", i64::MAX, &[7; 100]);
        client.mutate(region, put(1), &[cell]).await.unwrap();
        assert!(client.value(region, &key).await.unwrap().is_some());
    }
}

/// Ends the load also when a check fails.
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_load_of_a_server_is_seen_from_outside() {
    let dir = fresh_dir("top");
    let server = Server::start(&dir, &["--memory", "256m"]);
    let client = Client::connect(&server).await;
    let regions = client.create_table("orders", vec![family("f")], &[b"d", b"m", b"t"]).await;
    let ends = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ends);
    let checks = std::thread::spawn(move || {
        let _ends = Ends(told);
        top_shows_the_load(&server);
        tune_names_the_hot_region(&server);
        wrong_options_are_refused(&server);
        server
    });
    work(&client, &regions[2], &ends).await;
    let server = checks.join().unwrap();
    let address = server.address("zookeeper").to_string();
    server.stop();
    let mut gone = Command::new(env!("CARGO_BIN_EXE_halcyon"));
    let gone =
        gone.args(["top", "--zookeeper", &address, "-n", "1", "--operation-timeout", "2"]).output().unwrap();
    assert_eq!(gone.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("cannot find the cluster"), "{gone:?}");
    let _ = std::fs::remove_dir_all(&dir);
}

fn top_shows_the_load(server: &Server) {
    let text = printed(server, &["top", "--batch", "--iterations", "2", "--delay", "2"]);
    assert_eq!(text.matches("servers 1 live, 0 dead").count(), 2, "{text}");
    let line = text.lines().find(|line| line.contains("orders")).expect("the table");
    assert!(line.starts_with("default"), "{text}");
    let regions = printed(
        server,
        &[
            "top",
            "--json",
            "-n",
            "1",
            "-d",
            "2",
            "--mode",
            "regions",
            "--filter",
            "TABLE==orders",
            "--limit",
            "2",
        ],
    );
    let parsed: Value = serde_json::from_str(&regions).unwrap();
    assert_eq!(parsed["records"].as_array().unwrap().len(), 2);
    let busiest = &parsed["records"][0];
    assert_eq!((&busiest["table"], &busiest["start_key"]), (&"orders".into(), &"m".into()));
    let rate = |name: &str| busiest[name].as_f64().unwrap();
    assert!(rate("reads_per_second") > 1.0 && rate("writes_per_second") > 1.0, "{regions}");
    let sum = rate("reads_per_second") + rate("writes_per_second");
    assert!((rate("requests_per_second") - sum).abs() < 0.2, "{regions}");
    assert_eq!(parsed["records"][1]["requests_per_second"], 0.0, "{regions}");
    let users = printed(server, &["top", "--json", "-n", "1", "-d", "2", "--mode", "users"]);
    let parsed: Value = serde_json::from_str(&users).unwrap();
    assert!(parsed["records"][0]["requests_per_second"].as_f64().unwrap() > 1.0, "{users}");
}

fn tune_names_the_hot_region(server: &Server) {
    let line = printed(server, &["tune", "--seconds", "6", "--json"]);
    let parsed: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&parsed["servers_count"], &parsed["without_metrics"]), (&1.into(), &Value::Array(vec![])));
    let rules = parsed["rules"].as_array().unwrap();
    let rule = |name: &str| {
        rules.iter().find(|one| one["rule"] == name).unwrap_or_else(|| panic!("no {name}: {line}"))
    };
    let hot = rule("hot-region");
    assert_eq!(hot["verdict"], "change", "{line}");
    let measured = hot["measured"].as_str().unwrap();
    assert!(measured.contains("orders,m,") && measured.contains(" % of "), "{line}");
    for measured in ["calls-refused", "small-calls", "slow-wal-sync", "writes-blocked", "compactions-behind"]
    {
        assert_ne!(rule(measured)["verdict"], "not-measured", "{measured}: {line}");
    }
    let text = printed(server, &["tune", "--seconds", "2"]);
    assert!(
        text.contains("hot-region  cluster\n  measured  ") && text.contains("things to change")
            || text.contains("thing to change"),
        "{text}"
    );
}

fn wrong_options_are_refused(server: &Server) {
    for (args, why) in [
        (vec!["top", "-n", "1", "--sort", "COLOUR"], "there is no field \"COLOUR\" in mode tables"),
        (vec!["top", "-n", "1", "--filter", "TABLE"], "FIELD OP VALUE is wanted"),
        (vec!["top"], "the output is no terminal: use --batch or --json"),
        (vec!["tune", "--seconds", "0"], "0 is not in 2..=3600"),
    ] {
        let output = halcyon(server, &args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{args:?}: {said}");
    }
}
