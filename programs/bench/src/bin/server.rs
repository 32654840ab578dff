//! `halcyon-server-bench`: a mixed load on a standalone server while it flushes and compacts.
//!
//! The server is started for it, a table filled, and the peak found: as many calls as it answers when every answer
//! asks the next question. Then comes a share of that as an open load, whose calls have times at which they are meant
//! to start whether or not earlier ones were answered; latencies count from there, so a stall shows in every call that
//! it held up. How late calls were begun is told apart, and so is what calls took inside the server. At the end the
//! server's own monitor says what it waited for.

#![allow(clippy::disallowed_methods)] // a tool for people: real files, real time, real threads

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use clap::Parser;
use halcyon_bench::keys::{Dice, Values, key};
use halcyon_bench::measure::Latencies;
use halcyon_bench::server::{Server, ServerOptions, Table};
use halcyon_bench::{Failure, machine};
use parking_lot::Mutex;

/// Calls under way at most; beyond that the open load waits, and says so.
const UNDER_WAY_MAX: u64 = 20_000;
/// How often the open load looks which calls are due.
const LOOK_PERIOD: Duration = Duration::from_micros(100);
/// Turns of tasks after which a thread of the load generator takes up calls that are due, and looks at its sockets. With
/// the runtime's own numbers a call in a thousand was begun ten milliseconds late.
const DUE_INTERVAL: u32 = 3;
const SOCKETS_INTERVAL: u32 = 11;
/// Answers that are told one by one.
const SLOWEST_COUNT: usize = 12;
/// Rows of one request of the fill.
const FILL_BATCH: u64 = 100;

#[derive(Parser)]
#[command(about = "A mixed load on a standalone server, with flushes and compactions running")]
struct Arguments {
    #[command(flatten)]
    server: ServerOptions,
    /// Seconds of the open load
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Seconds of the search for the peak
    #[arg(long, default_value_t = 20)]
    peak_seconds: u64,
    /// Of the peak, what the open load asks for
    #[arg(long, default_value_t = 0.7)]
    share: f64,
    /// Calls a second of the open load, instead of a share of the peak, which is then not looked for
    #[arg(long)]
    rate: Option<f64>,
    #[arg(long, default_value_t = 400_000)]
    rows: u64,
    #[arg(long, default_value_t = 200)]
    value_len: usize,
    /// Of the calls, this share reads a row; the others put one
    #[arg(long, default_value_t = 0.5)]
    reads: f64,
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// Calls under way on each connection while the peak is looked for. With many, one system call carries many of
    /// them, and the peak is one that calls which come one by one cannot reach
    #[arg(long, default_value_t = 4)]
    depth: usize,
    /// Threads of the load generator. More than it needs take cores from the server, and wake each other
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

/// One slow answer.
#[derive(Clone, Copy, Debug)]
struct Slow {
    kind: Kind,
    latency: Duration,
    /// When it came, milliseconds since 1970.
    at_ms: i64,
}

#[derive(Default)]
struct Seen {
    reads: Latencies,
    writes: Latencies,
    /// How late calls were begun: the load generator's own part of their latency.
    begun: Latencies,
    slowest: Vec<Slow>,
    refused: u64,
    first_refusal: Option<String>,
}

impl Seen {
    fn record(&mut self, kind: Kind, latency: Duration) {
        match kind {
            Kind::Read => self.reads.record(latency),
            Kind::Write => self.writes.record(latency),
        }
        let is_slow =
            self.slowest.len() < SLOWEST_COUNT || self.slowest.last().is_some_and(|s| s.latency < latency);
        if is_slow {
            let place = self.slowest.partition_point(|slow| slow.latency >= latency);
            self.slowest.insert(place, Slow { kind, latency, at_ms: now_ms() });
            self.slowest.truncate(SLOWEST_COUNT);
        }
    }

    fn refuse(&mut self, error: Failure) {
        self.refused += 1;
        self.first_refusal.get_or_insert_with(|| error.to_string());
    }
}

fn now_ms() -> i64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since_1970.as_millis() as i64
}

/// What calls are made of, shared by all tasks.
struct Load {
    tables: Vec<Table>,
    values: Values,
    rows: u64,
    read_share: f64,
    seen: Mutex<Seen>,
    under_way: AtomicU64,
}

impl Load {
    async fn call(&self, connection: usize, dice: &mut Dice) -> (Kind, Result<(), Failure>) {
        let table = &self.tables[connection % self.tables.len()];
        let row = dice.below(self.rows);
        if dice.below(1 << 20) as f64 <= self.read_share * f64::from(1 << 20) {
            (Kind::Read, table.get(&key(row)).await)
        } else {
            (Kind::Write, table.put(&key(row), self.values.get(row ^ dice.roll())).await)
        }
    }

    /// A call that was meant to start at `intended`.
    async fn timed(&self, connection: usize, dice: &mut Dice, intended: Instant) {
        let late = intended.elapsed();
        let (kind, done) = self.call(connection, dice).await;
        let latency = intended.elapsed();
        let mut seen = self.seen.lock();
        seen.begun.record(late);
        match done {
            Ok(()) => seen.record(kind, latency),
            Err(error) => seen.refuse(error),
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut builder = match arguments.threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder
        .worker_threads(arguments.threads.max(1))
        .enable_all()
        .global_queue_interval(DUE_INTERVAL)
        .event_interval(SOCKETS_INTERVAL)
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(run(&arguments)),
        Err(error) => Err(error.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("halcyon-server-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<(), Failure> {
    print!("{}", machine::describe());
    let server = Server::start(&arguments.server)?;
    let done = measure(arguments, &server).await;
    let stopped = server.stop();
    done.and(stopped)
}

async fn measure(arguments: &Arguments, server: &Server) -> Result<(), Failure> {
    let load = Arc::new(Load {
        tables: Table::make(server, arguments.rows, arguments.connections.max(1)).await?,
        values: Values::new(arguments.value_len),
        rows: arguments.rows,
        read_share: arguments.reads,
        seen: Mutex::default(),
        under_way: AtomicU64::new(0),
    });
    println!(
        "data:    {} rows of 16 + {} bytes, {} MiB; {:.0} % reads; {}\n",
        arguments.rows,
        arguments.value_len,
        (arguments.rows * (16 + arguments.value_len as u64)) >> 20,
        arguments.reads * 100.0,
        arguments.server,
    );
    fill(&load).await?;
    let rate = match arguments.rate {
        Some(rate) => rate,
        None => {
            let peak = peak(arguments, &load).await?;
            println!("peak: {peak:.0} calls/s over {} s", arguments.peak_seconds);
            peak * arguments.share
        }
    };
    tokio::time::sleep(Duration::from_secs(2)).await;
    *load.seen.lock() = Seen::default();
    let (before, threads_before, begin_ms) = (server.counters()?, server.threads()?, now_ms());
    let times_before = server.call_times()?;
    let late = open_load(&load, rate, Duration::from_secs(arguments.seconds)).await?;
    let (after, times) = (server.counters()?, server.call_times()?);
    let seen = std::mem::take(&mut *load.seen.lock());
    let calls = (seen.reads.count() + seen.writes.count()) as f64 / arguments.seconds as f64;
    println!("open load: {rate:.0} calls/s wanted, {calls:.0} answered, for {} s", arguments.seconds);
    println!("calls held back by {UNDER_WAY_MAX} under way: {late}; refused: {}", seen.refused);
    if let Some(refusal) = &seen.first_refusal {
        println!("first refusal: {refusal}");
    }
    for (name, before) in &before {
        let during = after.get(name).copied().unwrap_or(0.0) - before;
        println!("{name} meanwhile: {during:.0}");
    }
    println!("\n{:<8} {:>9} {:>9} {:>9} {:>9} {:>9}", "ms", "p50", "p99", "p99.9", "p99.99", "max");
    for (name, latencies) in [("reads", &seen.reads), ("writes", &seen.writes), ("begun", &seen.begun)] {
        let at = |quantile| latencies.at(quantile) / 1e3;
        println!(
            "{name:<8} {:>9.3} {:>9.3} {:>9.3} {:>9.3} {:>9.3}",
            at(0.5),
            at(0.99),
            at(0.999),
            at(0.9999),
            latencies.max() / 1e3
        );
    }
    println!(
        "\"begun\": how late calls were begun. Inside the server, from reading a call to giving its answer away:"
    );
    for (class, times) in times {
        let times = times_before.get(&class).map_or(times.clone(), |before| times.since(before));
        if times.count() > 0 {
            let [p50, p99, p999, p9999, max] = [0.5, 0.99, 0.999, 0.9999, 1.0].map(|share| times.at(share));
            println!("{class:<8} {p50:>9.3} {p99:>9.3} {p999:>9.3} {p9999:>9.3} {max:>9.3}  or less");
        }
    }
    println!(
        "\n{:<18} {:>9} {:>9}   of the server's threads, in per cent of the time",
        "thread", "ran", "waited"
    );
    for (name, (ran, waited)) in server.threads()? {
        let (ran_before, waited_before) = threads_before.get(&name).copied().unwrap_or_default();
        let share = |ms: f64| ms / arguments.seconds as f64 / 10.0;
        let (ran, waited) = (share(ran - ran_before), share(waited - waited_before));
        if ran >= 0.1 {
            println!("{name:<18} {ran:>9.1} {waited:>9.1}");
        }
    }
    tell_stalls(server, &seen, begin_ms)
}

/// What the server's monitor saw since `begin_ms`, and next to each slow answer what was waited for at that time.
fn tell_stalls(server: &Server, seen: &Seen, begin_ms: i64) -> Result<(), Failure> {
    let stalls = server.stalls()?;
    let mut since: Vec<_> = stalls.iter().filter(|stall| stall.at_ms >= begin_ms).collect();
    since.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    println!("\nstalls that the monitor saw: {}", since.len());
    let mut causes = BTreeMap::<&str, (usize, f64)>::new();
    for stall in &since {
        let (count, longest) = causes.entry(&stall.cause).or_default();
        (*count, *longest) = (*count + 1, longest.max(stall.ms));
    }
    for (cause, (count, longest)) in causes {
        println!("  {cause}: {count}, the longest {longest:.1} ms");
    }
    for stall in since.iter().take(SLOWEST_COUNT) {
        println!("  {:>8.1} ms  {}  {}", stall.ms, stall.cause, stall.detail);
    }
    println!("\nslowest answers");
    for slow in &seen.slowest {
        let ms = slow.latency.as_secs_f64() * 1e3;
        let begin = slow.at_ms - ms as i64;
        let overlaps = |stall: &&&halcyon_bench::server::Stall| {
            stall.at_ms >= begin && stall.at_ms - stall.ms as i64 <= slow.at_ms
        };
        let cause = since.iter().find(overlaps).map_or("no stall at that time".to_string(), |stall| {
            format!("{:.1} ms of {} {}", stall.ms, stall.cause, stall.detail)
        });
        println!("  {ms:>8.1} ms  {:?}  {cause}", slow.kind);
    }
    Ok(())
}

/// All rows once, in order.
async fn fill(load: &Arc<Load>) -> Result<(), Failure> {
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for connection in 0..load.tables.len() {
        let (load, next) = (load.clone(), next.clone());
        tasks.push(tokio::spawn(async move {
            loop {
                let first = next.fetch_add(FILL_BATCH, Ordering::Relaxed);
                if first >= load.rows {
                    return Ok(());
                }
                let rows = first..(first + FILL_BATCH).min(load.rows);
                let rows: Vec<_> = rows.map(|row| (key(row), load.values.get(row))).collect();
                load.tables[connection].put_all(&rows).await?;
            }
        }));
    }
    for task in tasks {
        task.await?.map_err(|error: Failure| format!("filling: {error}"))?;
    }
    Ok(())
}

/// Calls a second when every answer asks the next question.
async fn peak(arguments: &Arguments, load: &Arc<Load>) -> Result<f64, Failure> {
    let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for at in 0..load.tables.len() * arguments.depth {
        let (load, stop, calls) = (load.clone(), stop.clone(), calls.clone());
        tasks.push(tokio::spawn(async move {
            let mut dice = Dice::new(at as u64 + 1000);
            while !stop.load(Ordering::Relaxed) {
                load.timed(at, &mut dice, Instant::now()).await;
                calls.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    // The first moments are not counted: caches and connections warm up.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (before, begin) = (calls.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(Duration::from_secs(arguments.peak_seconds)).await;
    let rate = (calls.load(Ordering::Relaxed) - before) as f64 / begin.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await?;
    }
    Ok(rate)
}

/// Starts calls when they are due. Returns how many had to be held back, which still count from when they were due.
async fn open_load(load: &Arc<Load>, rate: f64, time: Duration) -> Result<u64, Failure> {
    let (load, runtime) = (load.clone(), tokio::runtime::Handle::current());
    let dispatch = move || {
        let (begin, mut started, mut late) = (Instant::now(), 0u64, 0);
        let due_at = |call: u64| begin + Duration::from_secs_f64(call as f64 / rate);
        let mut dice = Dice::new(5);
        while begin.elapsed() < time {
            while due_at(started) <= Instant::now() {
                if load.under_way.load(Ordering::Relaxed) >= UNDER_WAY_MAX {
                    late += 1;
                    break;
                }
                let (load, mut dice, intended) = (load.clone(), Dice::new(dice.roll()), due_at(started));
                load.under_way.fetch_add(1, Ordering::Relaxed);
                let connection = started as usize;
                runtime.spawn(async move {
                    load.timed(connection, &mut dice, intended).await;
                    load.under_way.fetch_sub(1, Ordering::Relaxed);
                });
                started += 1;
            }
            std::thread::sleep(LOOK_PERIOD);
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while load.under_way.load(Ordering::Relaxed) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        late
    };
    Ok(tokio::task::spawn_blocking(dispatch).await?)
}
