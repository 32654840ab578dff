use halcyon_master::{BalancerRun, Noticed};

use super::*;
use crate::cluster::tests::{NOW_MS, picture as sample, server, transition};

fn recovery(kind: RecoveryKind, name: &str) -> Recovery {
    let noticed = if kind == RecoveryKind::Takeover { Noticed::Elected } else { Noticed::ProcessEnded };
    Recovery {
        kind: kind as i32,
        server: name.to_string(),
        master: "m1,16000,1".to_string(),
        epoch: 3,
        noticed: noticed as i32,
        noticed_ms: NOW_MS - 5000,
        ..Recovery::default()
    }
}

fn json<T: Serialize>(answer: Result<T, Refused>) -> serde_json::Value {
    serde_json::to_value(answer.unwrap()).unwrap()
}

fn parameters<P: for<'d> Deserialize<'d>>(query: &str) -> P {
    let uri: axum::http::Uri = format!("/?{query}").parse().unwrap();
    axum::extract::Query::<P>::try_from_uri(&uri).unwrap().0
}

fn refusal<P: for<'d> Deserialize<'d>>(query: &str) -> bool {
    let uri: axum::http::Uri = format!("/?{query}").parse().unwrap();
    axum::extract::Query::<P>::try_from_uri(&uri).is_err()
}

#[test]
fn a_huge_cluster_has_short_answers() {
    let mut picture = sample(1000, 100);
    picture.transitions = Arc::new((0..100_000).map(|at| transition(at, at as i64)).collect());
    let servers = json(servers::answer(&picture, &parameters("")));
    assert_eq!((&servers["count"], servers["servers"].as_array().unwrap().len()), (&1000.into(), 100));
    let last = json(servers::answer(&picture, &parameters("order=name&limit=1000&offset=999")));
    assert_eq!(last["servers"][0]["name"], "h0999,16020,1");
    let beyond = json(servers::answer(&picture, &parameters("offset=18446744073709551615")));
    assert_eq!(beyond["servers"].as_array().unwrap().len(), 0);
    let moving = json(transitions::answer(&picture, &parameters("limit=2")));
    assert_eq!((&moving["count"], &moving["transitions"][0]["age_ms"]), (&100_000.into(), &99_999.into()));
    assert_eq!(
        moving["transitions"][0]["start"], "<99999>",
        "keys are text; the page does not take them for markup"
    );
    let balance = json(balance::answer(&picture, parameters("")));
    let bars = balance["bars"].as_array().unwrap();
    assert_eq!(
        (bars.len(), &bars[0]["servers_count"], &bars[0]["regions_count"]),
        (500, &2.into(), &101.into())
    );
    let all = serde_json::to_string(&answer(&picture)).unwrap();
    assert!(all.len() < 2000, "the head of the cluster does not grow with it: {} bytes", all.len());
}

#[test]
fn garbage_is_refused_with_its_name() {
    let picture = sample(2, 1);
    for (limit, is_good) in [("0", false), ("1", true), ("1000", true), ("1001", false)] {
        let query = format!("limit={limit}");
        assert_eq!(servers::answer(&picture, &parameters(&query)).is_ok(), is_good, "{query}");
        assert_eq!(transitions::answer(&picture, &parameters(&query)).is_ok(), is_good, "{query}");
        assert_eq!(balance::answer(&picture, parameters(&query)).is_ok(), is_good, "{query}");
    }
    assert!(recoveries::answer(&picture, &parameters("limit=200")).is_ok());
    assert!(recoveries::answer(&picture, &parameters("limit=201")).is_err());
    assert!(balance::answer(&picture, parameters("table=nosuch")).is_err());
    assert!(refusal::<servers::Parameters>("state=asleep"));
    assert!(refusal::<servers::Parameters>("limit=-1"));
    assert!(refusal::<servers::Parameters>("order=%00"));
    assert!(refusal::<balance::Parameters>("tabel=t"));
    assert!(refusal::<recoveries::Parameters>("kind=server,takeover"));
    assert!(refusal::<transitions::Parameters>("offset=1e3"));
}

#[test]
fn servers_are_found_and_ordered() {
    let mut picture = sample(3, 5);
    picture.servers[2].state = ServerState::Recovering;
    let names = |query: &str| {
        let found = json(servers::answer(&picture, &parameters(query)));
        let list = found["servers"].as_array().unwrap().clone();
        list.iter().map(|it| it["host"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(""), ["h0002", "h0000", "h0001"]);
    assert_eq!(names("order=requests"), ["h0002", "h0001", "h0000"]);
    assert_eq!(names("order=regions"), ["h0000", "h0001", "h0002"]);
    assert_eq!(names("state=recovering"), ["h0002"]);
    assert_eq!(names("name=h0001,160"), ["h0001"]);
    let first = json(servers::answer(&picture, &parameters("order=name")))["servers"][0].clone();
    assert_eq!((&first["link"], &first["version"]), (&"http://h0000:16030/".into(), &"2.6".into()));
    assert_eq!((&first["report_age_ms"], &first["has_meta"]), (&500.into(), &true.into()));
}

#[test]
fn the_balance_of_a_table_counts_servers_without_it() {
    let picture = sample(3, 5);
    let meta = json(balance::answer(&picture, parameters("table=hbase:meta")));
    let bars: Vec<_> = meta["bars"].as_array().unwrap().iter().map(|bar| &bar["regions_count"]).collect();
    assert_eq!(bars, [1, 0, 0]);
    let of_meta = &meta["tables"][0];
    assert_eq!([&of_meta["min"], &of_meta["max"], &of_meta["servers_count"]], [0, 1, 1]);
    let orders = json(balance::answer(&picture, parameters("name=ord")));
    assert_eq!((&orders["count"], &orders["tables"][0]["mean"]), (&1.into(), &5.0.into()));
    assert_eq!(json(balance::answer(&sample(0, 0), parameters("")))["mean"], 0.0);
}

#[test]
fn a_timeline_is_made_of_parts_that_follow_each_other() {
    let mut picture = sample(1, 1);
    let mut dead = recovery(RecoveryKind::Server, "h0009,16020,1");
    dead.heard_ms = Some(dead.noticed_ms - 900);
    let at = |ms: i64| Some(NOW_MS - 5000 + ms);
    let mut shown = |it: &Recovery| {
        picture.recoveries = vec![it.clone()];
        json(recoveries::answer(&picture, &parameters("")))["recoveries"][0].clone()
    };
    let parts = |it: &serde_json::Value| -> Vec<(String, i64, Option<i64>)> {
        let since = |ms: &serde_json::Value| ms.as_i64().map(|ms| ms - NOW_MS + 5000);
        let part = |it: &serde_json::Value| {
            (it["phase"].as_str().unwrap().to_string(), since(&it["begin_ms"]).unwrap(), since(&it["end_ms"]))
        };
        it["phases"].as_array().unwrap().iter().map(part).collect()
    };
    let part = |name: &str, begin, end| (name.to_string(), begin, end);
    let detect = part("detect", -900, Some(0));
    assert_eq!(parts(&shown(&dead)), [detect.clone(), part("fence", 0, None)]);
    dead.fenced_ms = at(20);
    assert_eq!(parts(&shown(&dead)), [detect.clone(), part("fence", 0, Some(20)), part("split", 20, None)]);
    (dead.split_ms, dead.wals_count, dead.wal_bytes) = (at(30), 1, 10); // of hbase:meta
    assert_eq!(parts(&shown(&dead)).last(), Some(&part("split", 20, None)));
    (dead.meta_opened_ms, dead.split_ms, dead.regions_count) = (at(50), at(400), 7);
    let begun = [
        detect.clone(),
        part("fence", 0, Some(20)),
        part("meta", 20, Some(50)),
        part("split", 50, Some(400)),
        part("open", 400, None),
    ];
    assert_eq!(parts(&shown(&dead)), begun);
    assert_eq!(shown(&dead)["took_ms"], 5000, "it is under way");
    dead.ended_ms = at(900);
    let ended = shown(&dead);
    assert_eq!((&ended["took_ms"], parts(&ended)[4].2), (&900.into(), Some(900)));
    // a server that had neither WALs nor regions
    let mut idle = recovery(RecoveryKind::Server, "h0008,16020,1");
    idle.ended_ms = at(5);
    assert_eq!(parts(&shown(&idle)), []);
    let mut takeover = recovery(RecoveryKind::Takeover, "m0,16000,1");
    (takeover.fenced_ms, takeover.split_ms, takeover.meta_opened_ms) = (at(10), at(40), at(60));
    assert_eq!(parts(&shown(&takeover)).last(), Some(&part("open", 60, None)));
    assert_eq!(
        parts(&shown(&takeover))[0],
        part("fence", 0, Some(10)),
        "of a master that kept no time of joining"
    );
    takeover.ended_ms = at(80);
    assert_eq!(parts(&shown(&takeover)).last(), Some(&part("open", 60, Some(80))));
}

#[test]
fn the_head_says_who_fences_whom() {
    let mut picture = sample(2, 1);
    let mut former = recovery(RecoveryKind::FormerMaster, "m0,16000,1");
    former.fenced_ms = Some(NOW_MS - 4000);
    let takeover = recovery(RecoveryKind::Takeover, "m0,16000,1");
    picture.recoveries = vec![recovery(RecoveryKind::Server, "h9,1,1"), former, takeover];
    let run = BalancerRun {
        at_ms: NOW_MS,
        runs_count: 2,
        moves_count: 0,
        moves: Vec::new(),
        reason: "even".to_string(),
    };
    picture.balancer_runs = vec![run];
    let head = serde_json::to_value(answer(&picture)).unwrap();
    let fences = head["fences"].as_array().unwrap();
    assert_eq!(fences.len(), 1, "what is not fenced yet is not listed");
    assert_eq!((&fences[0]["server"], &fences[0]["kind"]), (&"m0,16000,1".into(), &"former master".into()));
    assert_eq!(head["takeovers"][0]["before"], "m0,16000,1");
    assert_eq!((&head["meta"], &head["online_count"]), (&server(0).to_string().into(), &2.into()));
    assert_eq!((&head["balancer"][0]["reason"], &head["writes_per_s"]), (&"even".into(), &2.0.into()));
}
