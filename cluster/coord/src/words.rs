//! Four letter words: what operators' scripts send instead of a session.

use std::fmt::Write;

use crate::ZnodeTree;
use crate::server::Counters;

const VERSION: &str = "3.8.4-halcyon, read-only";

/// The text for a word; `None` if these four bytes are no word.
pub(crate) fn answer(word: [u8; 4], tree: &ZnodeTree, counters: &Counters) -> Option<String> {
    match &word {
        b"ruok" => Some("imok".to_string()),
        b"isro" => Some("rw".to_string()),
        b"srvr" => Some(srvr(tree, counters)),
        b"stat" => Some(stat(tree, counters)),
        b"mntr" => Some(mntr(tree, counters)),
        _ if word.iter().all(u8::is_ascii_lowercase) => {
            let word = String::from_utf8_lossy(&word);
            Some(format!("{word} is not executed because it is not in the whitelist.\n"))
        }
        _ => None,
    }
}

fn srvr(tree: &ZnodeTree, counters: &Counters) -> String {
    let mut out = format!("Zookeeper version: {VERSION}\n");
    put_numbers(&mut out, tree, counters);
    out
}

fn stat(tree: &ZnodeTree, counters: &Counters) -> String {
    let mut out = format!("Zookeeper version: {VERSION}\nClients:\n\n");
    put_numbers(&mut out, tree, counters);
    out
}

fn put_numbers(out: &mut String, tree: &ZnodeTree, counters: &Counters) {
    let seen = counters.seen();
    let _ = write!(
        out,
        "Latency min/avg/max: 0/0.0/0\nReceived: {}\nSent: {}\nConnections: {}\nOutstanding: 0\n\
         Zxid: {:#x}\nMode: standalone\nNode count: {}\n",
        seen.received,
        seen.sent,
        seen.connections,
        tree.zxid(),
        tree.znodes_count()
    );
}

fn mntr(tree: &ZnodeTree, counters: &Counters) -> String {
    let seen = counters.seen();
    format!(
        "zk_version\t{VERSION}\nzk_server_state\tstandalone\nzk_packets_received\t{}\nzk_packets_sent\t{}\n\
         zk_num_alive_connections\t{}\nzk_outstanding_requests\t0\nzk_znode_count\t{}\nzk_watch_count\t0\n",
        seen.received,
        seen.sent,
        seen.connections,
        tree.znodes_count()
    )
}
