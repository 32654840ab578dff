//! What the client does about errors, by a server that follows a script.

mod fake;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fake::{Say, cell, fail, options, region, say, start};
use halcyon_client::{
    Action, Append, ClientError, Cluster, ClusterAddress, Get, Increment, Put, RetryPolicy, RowMutations,
};
use halcyon_proto::pb;
use halcyon_rpc::{ExceptionClass, exceptions};
use prost::Message;
use tokio::time::Instant;

fn whole_table() -> Vec<halcyon_schema::RegionInfo> {
    vec![region("", "", 1)]
}

fn row_of(value: &str) -> Say {
    let result = pb::Result { associated_cell_count: Some(1), ..Default::default() };
    say(pb::GetResponse { result: Some(result) }, vec![cell("r", value)])
}

static ODD: ExceptionClass =
    ExceptionClass { name: "com.example.OddException", do_not_retry: false, server_overloaded: false };
static ODD_FATAL: ExceptionClass =
    ExceptionClass { name: "com.example.OddException", do_not_retry: true, server_overloaded: false };

#[tokio::test]
async fn retriable_exceptions_are_retried_and_others_are_not() {
    let classes: [(&'static ExceptionClass, bool, usize); 12] = [
        // class, retried, readings of meta that it costs
        (&exceptions::NOT_SERVING_REGION, true, 1),
        (&exceptions::REGION_MOVED, true, 1),
        (&exceptions::REGION_SERVER_STOPPED, true, 1),
        (&exceptions::SERVER_NOT_RUNNING_YET, true, 1),
        (&exceptions::REGION_OPENING, true, 0),
        (&exceptions::REGION_TOO_BUSY, true, 0),
        (&exceptions::CALL_QUEUE_TOO_BIG, true, 0),
        (&ODD, true, 1),
        (&ODD_FATAL, false, 0),
        (&exceptions::DO_NOT_RETRY_IO, false, 0),
        (&exceptions::NO_SUCH_COLUMN_FAMILY, false, 0),
        (&exceptions::ACCESS_DENIED, false, 0),
    ];
    for (class, is_retried, readings) in classes {
        let fake = start(whole_table(), options(), move |asked| match asked.number {
            0 => row_of("first"),
            1 => fail(class),
            _ => row_of("again"),
        });
        let fake = fake.await;
        fake.table.get(Get::new("r")).await.unwrap();
        let before = fake.state.lock().unwrap().meta_reads;
        let again = fake.table.get(Get::new("r")).await;
        let name = class.name.rsplit('.').next().unwrap();
        match is_retried {
            true => assert_eq!(again.unwrap().value("f", "q"), Some(&b"again"[..]), "{name}"),
            false => assert!(again.unwrap_err().is_exception(name), "{name}"),
        }
        assert_eq!(fake.state.lock().unwrap().meta_reads - before, readings, "{name}");
        assert_eq!(fake.cluster.retries().get(name).copied().unwrap_or(0), u64::from(is_retried), "{name}");
    }
}

#[tokio::test]
async fn an_overloaded_server_gets_the_longer_pause() {
    let fake = start(whole_table(), options(), |asked| match asked.number {
        0 | 1 => fail(&exceptions::CALL_QUEUE_TOO_BIG),
        _ => row_of("v"),
    });
    let fake = fake.await;
    let start = Instant::now();
    fake.table.get(Get::new("r")).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(20 + 40), "{:?}", start.elapsed());
}

#[tokio::test]
async fn every_operation_has_a_deadline() {
    // Calls that are never answered, and errors without end.
    let never = start(whole_table(), options(), |_| Say::Never).await;
    let begun = Instant::now();
    let error = never.table.get(Get::new("r")).await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(390) && took < Duration::from_secs(5), "{took:?}");
    assert!(never.table.put(Put::new("r").column("f", "q", "v")).await.unwrap_err().is_timeout());
    assert!(never.table.scan(halcyon_client::Scan::new()).next().await.unwrap_err().is_timeout());
    let error = never.table.batch(&[Get::new("r").into()]).await.remove(0).unwrap_err();
    assert!(error.is_timeout(), "{error}");

    let mut few = options();
    few.retry = RetryPolicy { retries_max: 3, ..few.retry };
    let count = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&count);
    let busy = start(whole_table(), few, move |_| {
        *counted.lock().unwrap() += 1;
        fail(&exceptions::REGION_TOO_BUSY)
    });
    let busy = busy.await;
    let error = busy.table.get(Get::new("r")).await.unwrap_err();
    assert!(error.is_exception("RegionTooBusyException"), "{error}");
    assert_eq!(*count.lock().unwrap(), 4, "once, and three retries");
}

#[tokio::test]
async fn a_connect_has_a_deadline() {
    // A server that accepts and says nothing: the registry's call waits.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let mut options = options();
    options.connect_timeout = Duration::from_millis(200);
    for address in [ClusterAddress::registry([address.clone()]), ClusterAddress::zookeeper([address])] {
        let start = Instant::now();
        let Err(error) = Cluster::connect(address, options.clone()).await else { panic!("connected") };
        assert!(error.to_string().contains("no response within 200ms"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    }
}

/// Every look-up of `hbase:meta` waited for the whole timeout of connections while the first server of the quorum was frozen.
#[tokio::test]
async fn a_silent_server_of_the_address_costs_little() {
    let fake = start(whole_table(), options(), |_| row_of("v")).await;
    let ClusterAddress::Registry { servers } = fake.cluster.address().clone() else { panic!("a registry") };
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_address = silent.local_addr().unwrap().to_string();
    let mut options = options();
    options.connect_timeout = Duration::from_secs(20);
    let accepted = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&accepted);
    tokio::spawn(async move {
        while let Ok((stream, _)) = silent.accept().await {
            kept.lock().unwrap().push(stream);
        }
    });
    let quorum = [silent_address.clone(), silent_address, servers[0].clone()];
    let begun = Instant::now();
    let cluster = Cluster::connect(ClusterAddress::registry(quorum), options).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(accepted.lock().unwrap().len(), 2, "both silent servers were asked");
    // The first reading of meta looks it up again.
    let begun = Instant::now();
    cluster.table(fake::table_name(), 0).get(Get::new("r")).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(accepted.lock().unwrap().len(), 2, "the server that has answered is asked first");
}

#[tokio::test]
async fn garbage_ends_the_connection_and_not_the_client() {
    // A response that is no message of its method.
    let fake = start(whole_table(), options(), |asked| match asked.number {
        0 => Say::Message(b"\xff\xff\xff".to_vec(), Vec::new()),
        _ => row_of("v"),
    });
    let fake = fake.await;
    let error = fake.table.get(Get::new("r")).await.unwrap_err();
    assert!(matches!(error, ClientError::Malformed(_)), "{error}");
    assert!(fake.table.get(Get::new("r")).await.is_ok());

    // A peer that sends no frames at all, or frames that lie about their length.
    for garbage in
        [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"\xff\xff\xff\xff", b"\0\0\0\x02\x05\x01", b"\0\0\0\0"]
    {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serve = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, garbage).await;
                // closed: a client that waits for more notices
            }
        });
        let mut options = options();
        options.connect_timeout = Duration::from_millis(500);
        for address in [ClusterAddress::registry([address.clone()]), ClusterAddress::zookeeper([address])] {
            assert!(Cluster::connect(address, options.clone()).await.is_err());
        }
        serve.abort();
    }
}

#[tokio::test]
async fn a_disabled_table_is_no_wait_for_the_deadline() {
    let fake = start(whole_table(), options(), |_| fail(&exceptions::NOT_SERVING_REGION)).await;
    fake.state.lock().unwrap().table_state = Some(pb::table_state::State::Disabled);
    let error = fake.table.get(Get::new("r")).await.unwrap_err();
    assert!(error.is_exception("TableNotEnabledException"), "{error}");
    let error = fake.table.batch(&[Get::new("r").into()]).await.remove(0).unwrap_err();
    assert!(error.is_exception("TableNotEnabledException"), "{error}");
    {
        let mut state = fake.state.lock().unwrap();
        (state.table_state, state.regions) = (None, Vec::new());
    }
    let error = fake.table.get(Get::new("r")).await.unwrap_err();
    assert!(error.is_exception("TableNotFoundException"), "{error}");
}

#[tokio::test]
async fn locations_are_read_once_and_again_when_they_were_wrong() {
    let regions = vec![region("", "m", 1), region("m", "", 1)];
    let parent = regions[1].region_name().clone();
    let split = Arc::new(Mutex::new(false));
    let is_split = Arc::clone(&split);
    let fake = start(regions, options(), move |asked| {
        let request = pb::GetRequest::decode(asked.param.clone()).unwrap();
        match *is_split.lock().unwrap() && request.region.value == parent {
            true => fail(&exceptions::NOT_SERVING_REGION),
            false => row_of("v"),
        }
    });
    let fake = fake.await;
    for row in ["a", "z", "m", "b"] {
        fake.table.get(Get::new(row)).await.unwrap();
    }
    let before = fake.state.lock().unwrap().meta_reads;
    assert!(before <= 2, "one look-up and what stands behind it: {before}");
    fake.state.lock().unwrap().regions = vec![
        region("", "m", 1),
        region("m", "t", 2),
        region("t", "", 2),
        region("m", "", 1).with_flags(true, true),
    ];
    *split.lock().unwrap() = true;
    for row in ["a", "n", "z", "n", "z"] {
        fake.table.get(Get::new(row)).await.unwrap();
    }
    let readings = fake.state.lock().unwrap().meta_reads - before;
    assert!((1..=2).contains(&readings), "{readings}");
}

/// A client without retries asked the server that had lost the region again and again.
#[tokio::test]
async fn a_location_that_was_wrong_is_not_used_again_without_retries() {
    let mut options = options();
    options.retry.retries_max = 0;
    let fake = start(whole_table(), options, |asked| match asked.number {
        1 => fail(&exceptions::NOT_SERVING_REGION),
        2 => fail(&exceptions::REGION_TOO_BUSY),
        _ => row_of("v"),
    });
    let fake = fake.await;
    let mut readings = Vec::new();
    for expected in [None, Some("NotServingRegionException"), Some("RegionTooBusyException"), None] {
        let error = fake.table.get(Get::new("r")).await.err();
        assert_eq!(error.as_ref().map(ClientError::class), expected);
        readings.push(fake.state.lock().unwrap().meta_reads);
    }
    // the busy region is where it was
    assert_eq!(readings, [1, 1, 2, 2]);
}

/// A client that had found `hbase:meta` once asked that server for ever, also after meta had moved.
#[tokio::test]
async fn meta_is_looked_up_again_when_it_was_not_there() {
    let fake = start(whole_table(), options(), |asked| match asked.number {
        1 => fail(&exceptions::NOT_SERVING_REGION),
        _ => row_of("v"),
    });
    let fake = fake.await;
    fake.table.get(Get::new("r")).await.unwrap();
    let before = fake.state.lock().unwrap().meta_lookups;
    fake.state.lock().unwrap().meta_says = Some(fail(&exceptions::NOT_SERVING_REGION));
    fake.table.get(Get::new("r")).await.unwrap();
    assert_eq!(fake.state.lock().unwrap().meta_lookups, before + 1);
}

#[tokio::test]
async fn a_retry_carries_the_nonce_of_the_first_attempt() {
    let nonces = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&nonces);
    let fake = start(whole_table(), options(), move |asked| {
        let (mut found, mut actions) = (Vec::new(), 0);
        match asked.method {
            "Mutate" => {
                let request = pb::MutateRequest::decode(asked.param.clone()).unwrap();
                found.push((request.nonce_group, request.mutation.nonce));
            }
            _ => {
                let request = pb::MultiRequest::decode(asked.param.clone()).unwrap();
                for action in &request.region_action {
                    actions += 1;
                    for action in &action.action {
                        let mutation = action.mutation.as_ref().unwrap();
                        found.push((request.nonce_group, mutation.nonce));
                    }
                }
            }
        }
        seen.lock().unwrap().push(found);
        if asked.number % 2 == 0 {
            return fail(&exceptions::REGION_TOO_BUSY);
        }
        match asked.method {
            "Mutate" => say(pb::MutateResponse { processed: Some(true), ..Default::default() }, Vec::new()),
            _ => {
                let result = |index| pb::ResultOrException {
                    index: Some(index),
                    result: Some(pb::Result::default()),
                    ..Default::default()
                };
                let one = pb::RegionActionResult {
                    result_or_exception: vec![result(0), result(1)],
                    processed: Some(true),
                    ..Default::default()
                };
                say(
                    pb::MultiResponse { region_action_result: vec![one; actions], ..Default::default() },
                    Vec::new(),
                )
            }
        }
    });
    let fake = fake.await;
    let increment = || Increment::new("r").column("f", "q", 1);
    fake.table.increment(increment()).await.unwrap();
    let batch: [Action; 2] = [increment().into(), Append::new("s").column("f", "q", "v").into()];
    assert!(fake.table.batch(&batch).await.iter().all(Result::is_ok));
    let row = RowMutations::new("r").with(increment()).with(increment());
    fake.table.mutate_row(&row).await.unwrap();
    let nonces = nonces.lock().unwrap();
    assert_eq!(nonces.len(), 6);
    for attempts in nonces.chunks(2) {
        assert_eq!(attempts[0], attempts[1], "the same nonces again");
        assert!(attempts[0].iter().all(|(group, nonce)| group.unwrap() != 0 && nonce.unwrap() != 0));
    }
    assert_ne!(nonces[2][0], nonces[2][1], "each action of a batch has its own");
    assert_ne!(nonces[0], nonces[2]);
}

#[tokio::test]
async fn only_failed_actions_of_a_batch_are_sent_again() {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sent);
    let fake = start(vec![region("", "m", 1), region("m", "", 1)], options(), move |asked| {
        let request = pb::MultiRequest::decode(asked.param.clone()).unwrap();
        let mut results = Vec::new();
        for action in &request.region_action {
            let mut result = pb::RegionActionResult::default();
            for one in &action.action {
                let row = one.get.as_ref().unwrap().row.clone();
                seen.lock().unwrap().push(String::from_utf8(row.to_vec()).unwrap());
                let mut answer = pb::ResultOrException { index: one.index, ..Default::default() };
                let exception =
                    |class: &ExceptionClass| pb::NameBytesPair { name: class.name.into(), value: None };
                match (&row[..], asked.number) {
                    (b"busy", 0) => answer.exception = Some(exception(&exceptions::REGION_TOO_BUSY)),
                    (b"wrong", _) => answer.exception = Some(exception(&exceptions::NO_SUCH_COLUMN_FAMILY)),
                    _ => answer.result = Some(pb::Result::default()),
                }
                result.result_or_exception.push(answer);
            }
            results.push(result);
        }
        say(pb::MultiResponse { region_action_result: results, ..Default::default() }, Vec::new())
    });
    let fake = fake.await;
    let actions: Vec<Action> = ["a", "busy", "wrong", "z"].map(|row| Get::new(row).into()).to_vec();
    let results = fake.table.batch(&actions).await;
    let ok: Vec<_> = results.iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, true, false, true]);
    assert!(results[2].as_ref().unwrap_err().is_exception("NoSuchColumnFamilyException"));
    let mut sent = sent.lock().unwrap().clone();
    assert_eq!(sent.pop().as_deref(), Some("busy"));
    sent.sort();
    assert_eq!(sent, ["a", "busy", "wrong", "z"]);
}
