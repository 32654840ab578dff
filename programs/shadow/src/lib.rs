//! `halcyon shadow`: compares two clusters by the reads of real clients.
//!
//! ```text
//! clients ── proxy/ ── cluster a          record: observer.rs makes whole reads of what passes, recording/ writes them
//!              │                          mirror: mirror.rs sends each of them to cluster b at once
//!           observer.rs ─┬─ recording/    replay: replay.rs reads a recording and sends it to both
//!                        └─ mirror.rs ─┐
//! recording/ ── replay.rs ─────────────┴─ judge.rs ── ask.rs (both clusters), compare.rs ── tally.rs ── report.rs, page.rs
//! ```
//!
//! A client of the proxy is HBase's own and knows nothing of it: the proxy answers where clients look for a cluster, and gives
//! each server a port of its own. Clusters may be HBase or Halcyon on either side.
//!
//! What must hold: the proxy changes nothing in a call or an answer but names of servers. It never waits for the observer, the
//! disk or the second cluster. Each queue and buffer has a limit; what does not fit is dropped and counted. Bytes from a client,
//! a server or a file are checked before they are believed.
//!
//! When you change what is recorded, also touch `FORMAT.md` and the fuzz test in `tests/garbage.rs`. `docs/SHADOW.md` is for users.

mod args;
mod ask;
mod compare;
#[doc(hidden)]
pub mod fuzz;
mod judge;
mod mirror;
mod observer;
mod page;
mod proxy;
mod read;
mod recording;
mod replay;
mod report;
mod tally;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use halcyon_env::Env;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

pub use args::{CompareArgs, MirrorArgs, ProxyArgs, RecordArgs, ReplayArgs, ShadowCommand};

use crate::observer::{Observer, Sink};
use crate::proxy::{Listening, Proxy};
use crate::recording::format::{Header, VERSION};
use crate::recording::writer::{Place, Recorder, Written};

/// A client that is about to end its connections gets so long for what the observer still has.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Runs a command until it is done or stopped by a signal. The error is a sentence for the user; differences that stay are one.
pub fn shadow(command: ShadowCommand) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start threads: {error}"))?;
    let env = Env::real();
    let ended = match command {
        ShadowCommand::Record(args) => runtime.block_on(record(args, env)),
        ShadowCommand::Mirror(args) => runtime.block_on(mirror::mirror(args, env)),
        ShadowCommand::Replay(args) => runtime.block_on(replay::replay(args, env)),
    };
    runtime.shutdown_background();
    ended
}

async fn record(args: RecordArgs, env: Env) -> Result<(), String> {
    let listening = proxy::listen(&args.proxy).await?;
    let header = Header {
        version: VERSION,
        started_ms: env.clock.now_ms(),
        cluster: args.proxy.cluster.to_string(),
        sample: args.proxy.sample,
        has_answers: args.answers,
        has_hashed_values: args.hash_values,
        file: 0,
    };
    let place = Place {
        path: args.output.clone(),
        file_bytes_max: args.file_size << 20,
        total_bytes_max: args.size_max << 20,
        stops_when_full: args.stop_when_full,
    };
    let kept = if args.answers { (args.answer_max as usize) << 10 } else { 0 };
    let queue = args.proxy.queue_bytes();
    let recorder = Recorder::start(&env, Arc::clone(&listening.proxy), place, header, queue)?;
    let written = recorder.written();
    let recorder = run_proxy(&args.proxy, &env, listening, recorder, kept, |proxy| {
        format!("{}; {}", proxy.counts, recorded(&written))
    });
    let recorder = recorder.await?;
    tokio::task::spawn_blocking(|| recorder.finish()).await.map_err(|error| error.to_string())?;
    println!("recorded: {}", recorded(&written));
    Ok(())
}

fn recorded(written: &Written) -> String {
    use std::sync::atomic::Ordering::Relaxed;
    format!(
        "{} reads, {:.1} MB in {} files{}",
        written.records.load(Relaxed),
        written.bytes.load(Relaxed) as f64 / 1e6,
        written.files.load(Relaxed),
        if written.is_over.load(Relaxed) { ", ended" } else { "" }
    )
}

/// Passes calls on until a signal or the end of its time, then lets the observer finish, and returns the sink.
async fn run_proxy<S: Sink + 'static>(
    args: &ProxyArgs,
    env: &Env,
    listening: Listening,
    sink: S,
    kept_bytes_max: usize,
    progress: impl Fn(&Proxy) -> String,
) -> Result<S, String> {
    let Listening { proxy, registry, zookeeper, seen } = listening;
    let host = args.host();
    println!("registry {host}:{}", registry.port());
    if let Some(zookeeper) = zookeeper {
        println!("zookeeper {host}:{}", zookeeper.port());
    }
    for (server, port) in proxy.directory.known() {
        println!("server {server} is {host}:{port}");
    }
    let mut stop = StopSignals::watch()?;
    let (end, ended) = tokio::sync::oneshot::channel();
    let observer = Observer::new(Arc::clone(&proxy), sink, kept_bytes_max, args.queue_bytes());
    let observing: JoinHandle<S> = tokio::spawn(observer.run(seen, ended));
    if let Some(file) = &args.ready_file {
        write(env, file, b"")?;
    }
    println!("ready");
    let mut ticks = Ticks::every(args.progress_period);
    let limit = args.seconds.map(Duration::from_secs);
    let over = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = &mut over => break,
            _ = stop.next() => break,
            () = ticks.next() => println!("{}", progress(&proxy)),
        }
    }
    let _ = end.send(());
    let sink = tokio::time::timeout(END_LIMIT, observing).await;
    let sink = sink.map_err(|_| "the observer did not end in time")?.map_err(|error| error.to_string())?;
    println!("{}", progress(&proxy));
    Ok(sink)
}

/// Writes a file of this machine. The error names it.
fn write(env: &Env, path: &Path, bytes: &[u8]) -> Result<(), String> {
    env.local.replace(path, bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// Lines of progress, or none.
struct Ticks(Option<tokio::time::Interval>);

impl Ticks {
    fn every(seconds: u64) -> Ticks {
        let period = Duration::from_secs(seconds);
        Ticks((seconds > 0).then(|| tokio::time::interval_at(tokio::time::Instant::now() + period, period)))
    }

    async fn next(&mut self) {
        match &mut self.0 {
            Some(interval) => drop(interval.tick().await),
            None => std::future::pending().await,
        }
    }
}

/// SIGTERM and SIGINT.
struct StopSignals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
}

impl StopSignals {
    fn watch() -> Result<StopSignals, String> {
        let watched = |kind| signal(kind).map_err(|error| format!("cannot watch signals: {error}"));
        Ok(StopSignals { term: watched(SignalKind::terminate())?, int: watched(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}
