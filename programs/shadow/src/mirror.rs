//! `halcyon shadow mirror`: each read of the sample goes to a second cluster as soon as the first one has answered.
//!
//! The client has its answer by then. Copies wait in a queue with a limit; a second cluster that is slow or gone loses copies,
//! which are counted, and delays nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use halcyon_env::Env;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::args::MirrorArgs;
use crate::ask::{Asked, System};
use crate::judge::Judge;
use crate::observer::{Observed, Sink};
use crate::proxy::{Proxy, take_room};
use crate::read::{Part, kept_bytes};
use crate::report::{self, Facts};
use crate::{proxy, run_proxy};

/// What an item of the queue costs beside its read and its cells.
const ITEM_BYTES: usize = 2048;

pub(crate) async fn mirror(args: MirrorArgs, env: Env) -> Result<(), String> {
    let limits = args.compare.limits();
    let began = tokio::time::Instant::now();
    let a = System::connect("--cluster", args.proxy.cluster.clone(), limits).await?;
    let b = System::connect("--to", args.to.clone(), limits).await?;
    let (name_a, name_b) = (a.address.to_string(), b.address.to_string());
    let listening = proxy::listen(&args.proxy).await?;
    let proxy = Arc::clone(&listening.proxy);
    let judge = Judge::new(Some(a), b, args.compare.patience(), false);
    let (sink, copies) = Copies::new(Arc::clone(&proxy), args.proxy.queue_bytes());
    let queued = Arc::clone(&sink.queued);
    let sending = tokio::spawn(send(copies, Arc::clone(&judge), args.compare.threads as usize));
    let shown = Arc::clone(&judge);
    let progress = move |proxy: &Proxy| {
        let tally = shown.tally.lock();
        format!("{}; {}", proxy.counts, report::progress(&tally))
    };
    let sink = run_proxy(&args.proxy, &env, listening, sink, limits.kept_bytes_max, progress).await?;
    drop(sink); // ends the queue
    let ended = tokio::time::timeout(args.compare.patience().whole() + limits.timeout, sending).await;
    let tally = judge.tally.lock().clone();
    let left_out = queued.load(Ordering::Relaxed).saturating_sub(tally.all().count);
    if ended.is_err() {
        println!(
            "{left_out} copies had no answer in time, or differed and were not read again; they are left out"
        );
    }
    let facts = Facts {
        title: "Mirrored reads".to_string(),
        a: name_a,
        b: name_b,
        note: "Latencies of a are those between the proxy and its servers; those of b have the client library in them.".to_string(),
        seconds: began.elapsed().as_secs_f64(),
        sample: args.proxy.sample,
        proxy: Some(proxy.counts.json()),
        dropped: proxy.counts.dropped.get(),
        left_out,
        damage: None,
    };
    report::conclude(&env, &args.compare, &facts, &tally)
}

/// The queue of copies.
struct Copies {
    proxy: Arc<Proxy>,
    room: Arc<Semaphore>,
    sender: UnboundedSender<(Observed, OwnedSemaphorePermit)>,
    /// Copies that were taken into the queue.
    queued: Arc<AtomicU64>,
}

type CopyReceiver = UnboundedReceiver<(Observed, OwnedSemaphorePermit)>;

impl Copies {
    fn new(proxy: Arc<Proxy>, bytes_max: usize) -> (Copies, CopyReceiver) {
        let (sender, receiver) = mpsc::unbounded_channel(); // its items hold the permits of a semaphore with a limit
        let room = Arc::new(Semaphore::new(bytes_max));
        (Copies { proxy, room, sender, queued: Arc::default() }, receiver)
    }
}

impl Sink for Copies {
    fn take(&mut self, observed: Observed) {
        match take_room(&self.room, ITEM_BYTES + bytes_of(&observed)) {
            Some(room) => {
                self.queued.fetch_add(1, Ordering::Relaxed);
                drop(self.sender.send((observed, room)));
            }
            None => self.proxy.counts.dropped.add(),
        }
    }
}

/// About what a read has in memory: what was asked for may be far more than the cells that were found.
fn bytes_of(observed: &Observed) -> usize {
    let kept = |part: &Part| match part {
        Part::Cells(cells) => cells.kept.iter().map(kept_bytes).sum(),
        _ => 0usize,
    };
    let answer: usize = observed.answer.parts.iter().map(|part| size_of::<Part>() + kept(part)).sum();
    let regions: usize = observed.regions.iter().map(|name| size_of::<Bytes>() + name.len()).sum();
    let calls = size_of_val(&observed.calls[..]);
    observed.request_bytes + observed.read.parts_bytes() + answer + regions + calls
}

/// Sends copies, some at a time, until the queue has ended.
async fn send(mut copies: CopyReceiver, judge: Arc<Judge>, at_a_time: usize) {
    let places = Arc::new(Semaphore::new(at_a_time));
    let mut tasks = JoinSet::new();
    let mut slot = 0;
    while let Some((observed, room)) = copies.recv().await {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        while tasks.try_join_next().is_some() {}
        let judge = Arc::clone(&judge);
        slot += 1;
        tasks.spawn(async move {
            let _held = room;
            let a = Asked { answer: Ok(observed.answer), took: observed.took };
            let b = judge.ask_b(&observed.read, slot).await;
            drop(place); // a difference may be followed for long, and keeps only memory
            judge.judge(&observed.read, a, b, slot).await;
        });
    }
    while tasks.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use halcyon_proto::pb;
    use halcyon_schema::TableName;
    use tokio::time::Instant;

    use super::*;
    use crate::read::{Answer, Read};

    /// Copies had the weight of the cells that were found. Gets of long rows that do not exist had none.
    #[test]
    fn a_copy_weighs_what_was_asked_for() {
        let (proxy, _seen) = Proxy::with_queue(1 << 20);
        let (mut copies, mut queue) = Copies::new(Arc::clone(&proxy), 100_000);
        let table = TableName::parse(b"t").unwrap();
        let get = |row: usize| pb::Get { row: vec![b'r'; row].into(), ..Default::default() };
        let of = |read: Read, request_bytes| Observed {
            read,
            request_bytes,
            regions: vec![Bytes::from_static(b"t,,1")],
            server: "rs:1".into(),
            began: Instant::now(),
            took: Duration::ZERO,
            calls: Vec::new(),
            answer: Answer { parts: vec![Part::Exists(false)] },
        };
        let large = || of(Read::Get(table.clone(), get(30_000)), 30_100);
        copies.take(large());
        copies.take(large());
        assert_eq!((copies.queued.load(Ordering::Relaxed), proxy.counts.dropped.get()), (1, 1));
        drop(queue.try_recv().unwrap());
        // A short get takes more than its bytes in the message.
        let many = Read::Multi(vec![(table.clone(), get(1)); 1_000]);
        copies.take(of(many, 10_000));
        assert_eq!((copies.queued.load(Ordering::Relaxed), proxy.counts.dropped.get()), (1, 2));
        copies.take(large());
        assert!(queue.try_recv().is_ok());
        assert_eq!(copies.room.available_permits(), 100_000, "all is given back");
    }
}
