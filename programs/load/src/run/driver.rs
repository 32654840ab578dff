use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use halcyon_client::ClientError;
use halcyon_env::{Clock, Env};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::args::ReportArgs;
use crate::run::machine::{Machine, cpu_seconds};
use crate::run::pace::{Pace, Pacer};
use crate::run::progress::Progress;
use crate::run::steady::Steady;
use crate::run::{Recorder, Totals};

/// Time that clients have to end their last operation after Ctrl-C.
const LAST_OPERATION_MAX: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_secs(1);

/// One client: a task that does one operation after the other.
pub trait Client: Send + 'static {
    /// The next operation, from making its bytes to having its answer.
    fn step(&mut self) -> impl Future<Output = Result<Step, ClientError>> + Send;

    /// How many operations a step is, for who wants so many a second.
    fn operations_per_step(&self) -> u64 {
        1
    }

    /// What is still buffered, when the steps are at an end or were broken off.
    fn finish(&mut self) -> impl Future<Output = Result<(), ClientError>> + Send {
        async { Ok(()) }
    }
}

/// What a step has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Done(Done),
    /// There was nothing left to do.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// How many operations this was.
    pub operations: u64,
    /// The kind under which its latency counts; `None` if it is not to be measured.
    pub kind: Option<usize>,
}

/// A run to be made.
pub struct Plan<'a> {
    pub env: &'a Env,
    /// `pe randomRead`.
    pub name: String,
    pub report: &'a ReportArgs,
    pub kinds: &'static [&'static str],
    /// How many operations are to be done, if that is known.
    pub operations: Option<u64>,
    /// When to stop at the latest.
    pub time_max: Option<Duration>,
}

impl Plan<'_> {
    /// Where one client's measurements go.
    pub fn recorder(&self) -> Arc<Recorder> {
        Arc::new(Recorder::new(self.kinds, (self.report.slow_ms * 1e3) as u64))
    }
}

/// One second of a run.
#[derive(Clone, Debug)]
pub struct Second {
    pub elapsed_s: f64,
    pub operations: u64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub max_us: u64,
}

/// How a run went, from the end of its warm-up on.
pub struct Outcome {
    pub totals: Totals,
    /// When the measuring began, by the wall clock.
    pub started_ms: i64,
    /// The same moment by the clock of latencies.
    pub start_ns: u64,
    /// Operations of the warm-up.
    pub warmup_operations: u64,
    /// Its length.
    pub warmup_s: f64,
    /// Operations per second of each of its seconds.
    pub warmup_rates_per_s: Vec<f64>,
    pub elapsed_s: f64,
    pub client_cpu_s: f64,
    pub server_cpu_s: Option<f64>,
    pub series: Vec<Second>,
    /// Why it ended before its end.
    pub partial: Option<String>,
}

/// Drives all clients to their end. Whatever happens, what was measured comes back.
pub async fn run<C: Client>(plan: &Plan<'_>, clients: Vec<(C, Arc<Recorder>)>) -> Outcome {
    let clock = Arc::clone(&plan.env.clock);
    let start_ns = clock.monotonic_ns();
    let stop = Arc::new(AtomicBool::new(false));
    let recorders: Vec<Arc<Recorder>> = clients.iter().map(|(_, recorder)| Arc::clone(recorder)).collect();
    let mut gathering = Gathering::new(plan, recorders, start_ns);
    let warmup = Duration::from_secs(plan.report.warmup);
    let warmup_max = plan.report.warmup_max.map(|max| Duration::from_secs(max.max(plan.report.warmup)));
    if warmup.is_zero() && warmup_max.is_none() {
        gathering.begin(start_ns);
    }

    let mut tasks = JoinSet::new();
    let pacer = match plan.report.rate {
        Some(_) => Pacer::start(clients.len(), Arc::clone(&clock)).map(Some).map_err(ClientError::from),
        None => Ok(None),
    };
    for (number, (client, recorder)) in clients.into_iter().enumerate() {
        let pace = pacer.as_ref().map_err(Clone::clone).map(|pacer| {
            let rate = plan.report.rate? / client.operations_per_step() as f64;
            Some(Pace::new(pacer.as_ref()?, rate, number, start_ns))
        });
        let (clock, stop) = (Arc::clone(&clock), Arc::clone(&stop));
        tasks.spawn(async move { drive(client, pace?, &recorder, &*clock, &stop).await });
    }

    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.tick().await; // the first one comes at once
    let mut partial = None;
    let interrupted = tokio::signal::ctrl_c();
    let mut interrupted = std::pin::pin!(interrupted);
    let mut warm = std::pin::pin!(tokio::time::sleep(warmup));
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                None => break,
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => {
                    gathering.totals.errors.entry(error.class().to_string()).and_modify(|n| *n += 1).or_insert(1);
                    partial.get_or_insert(why(&error));
                    break;
                }
                Some(Err(error)) => {
                    partial.get_or_insert(format!("a client ended: {error}"));
                    break;
                }
            },
            _ = tick.tick() => {
                gathering.tick(clock.monotonic_ns());
                let elapsed_s = gathering.elapsed(clock.monotonic_ns());
                let is_over = plan.time_max.is_some_and(|max| elapsed_s >= max.as_secs_f64());
                if gathering.is_measuring() && is_over {
                    stop.store(true, Ordering::Relaxed);
                }
                if let Some(max) = warmup_max.filter(|_| !gathering.is_measuring())
                    && elapsed_s >= warmup.as_secs_f64()
                {
                    let is_late = elapsed_s >= max.as_secs_f64();
                    if is_late && !gathering.warming.is_reached() {
                        partial = Some(format!("not steady after a warm-up of {elapsed_s:.0} s"));
                    }
                    if is_late || gathering.warming.is_reached() {
                        gathering.begin(clock.monotonic_ns());
                    }
                }
            }
            _ = &mut warm, if warmup_max.is_none() && !gathering.is_measuring() => {
                gathering.begin(clock.monotonic_ns());
            }
            _ = &mut interrupted => {
                partial = Some("interrupted".to_string());
                break;
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    let rest = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_OPERATION_MAX, rest).await.is_err() {
        tasks.shutdown().await;
    }
    let end_ns = clock.monotonic_ns();
    if !gathering.is_measuring() {
        gathering.begin(end_ns);
        partial.get_or_insert("all was done before the warm-up was over".to_string());
    }
    gathering.tick(end_ns);
    gathering.progress.finish();
    gathering.conclude(end_ns, partial)
}

/// Why a run ended, in a line.
fn why(error: &ClientError) -> String {
    let text = error.to_string();
    let what = match error.class() {
        "Timeout" => "the cluster does not answer any more",
        _ => "an operation failed",
    };
    format!("{what}: {}", text.lines().next().unwrap_or_default())
}

/// One client's life.
async fn drive<C: Client>(
    mut client: C,
    mut pace: Option<Pace>,
    recorder: &Recorder,
    clock: &dyn Clock,
    stop: &AtomicBool,
) -> Result<(), ClientError> {
    while !stop.load(Ordering::Relaxed) {
        let mut begin_ns = clock.monotonic_ns();
        if let Some(pace) = &mut pace {
            begin_ns = pace.turn().await?;
        }
        match client.step().await? {
            Step::End => break,
            Step::Done(done) => {
                recorder.done(done.operations, done.kind, begin_ns, clock.monotonic_ns());
            }
        }
    }
    client.finish().await
}

/// How things stood when the measuring began.
struct Before {
    started_ms: i64,
    warmup_operations: u64,
    warmup_s: f64,
    client_cpu_s: f64,
    server_cpu_s: Option<f64>,
}

/// What is known so far.
struct Gathering<'a> {
    env: &'a Env,
    server_pid: Option<u32>,
    recorders: Vec<Arc<Recorder>>,
    /// Of the warm-up, then of the measuring.
    start_ns: u64,
    last_ns: u64,
    warming: Steady,
    before: Option<Before>,
    totals: Totals,
    series: Vec<Second>,
    kinds: &'static [&'static str],
    progress: Progress,
}

impl<'a> Gathering<'a> {
    fn new(plan: &Plan<'a>, recorders: Vec<Arc<Recorder>>, start_ns: u64) -> Gathering<'a> {
        Gathering {
            env: plan.env,
            server_pid: plan.report.server_pid,
            recorders,
            start_ns,
            last_ns: start_ns,
            warming: Steady::default(),
            before: None,
            totals: Totals::new(plan.kinds),
            series: Vec::new(),
            kinds: plan.kinds,
            progress: Progress::new(&plan.name, plan.operations, Duration::from_secs(plan.report.period)),
        }
    }

    fn server_cpu_seconds(&self) -> Option<f64> {
        self.server_pid.and_then(|process| Machine::new(self.env).process_cpu_seconds(process))
    }

    fn is_measuring(&self) -> bool {
        self.before.is_some()
    }

    /// Forgets what was so far, except wrong answers: the measuring begins.
    fn begin(&mut self, now_ns: u64) {
        self.recorders.iter().for_each(|recorder| recorder.measure_from(now_ns));
        if now_ns > self.start_ns {
            self.tick(now_ns);
        }
        let warmup_operations = self.totals.operations;
        let warmup_s = self.elapsed(now_ns);
        self.progress.begin(warmup_operations);
        let errors = std::mem::take(&mut self.totals.errors);
        self.totals = Totals { errors, ..Totals::new(self.kinds) };
        self.series.clear();
        self.start_ns = now_ns;
        self.before = Some(Before {
            started_ms: self.env.clock.now_ms(),
            warmup_operations,
            warmup_s,
            client_cpu_s: cpu_seconds(),
            server_cpu_s: self.server_cpu_seconds(),
        });
    }

    fn conclude(self, end_ns: u64, partial: Option<String>) -> Outcome {
        let before = self.before.as_ref().expect("the measuring has begun");
        let server_cpu = self.server_cpu_seconds().zip(before.server_cpu_s);
        Outcome {
            started_ms: before.started_ms,
            start_ns: self.start_ns,
            warmup_operations: before.warmup_operations,
            warmup_s: before.warmup_s,
            warmup_rates_per_s: self.warming.rates_per_s().to_vec(),
            elapsed_s: self.elapsed(end_ns),
            client_cpu_s: cpu_seconds() - before.client_cpu_s,
            server_cpu_s: server_cpu.map(|(after, before)| after - before),
            totals: self.totals,
            series: self.series,
            partial,
        }
    }

    fn elapsed(&self, now_ns: u64) -> f64 {
        (now_ns - self.start_ns) as f64 / 1e9
    }

    fn tick(&mut self, now_ns: u64) {
        let mut since = Totals::new(self.kinds);
        self.recorders.iter().for_each(|recorder| recorder.drain(&mut since));
        let all = since.all();
        let second = Second {
            elapsed_s: self.elapsed(now_ns),
            operations: since.operations,
            p50_us: all.value_at_quantile(0.5),
            p99_us: all.value_at_quantile(0.99),
            p999_us: all.value_at_quantile(0.999),
            max_us: all.max(),
        };
        self.totals.add(&since);
        let period_s = (now_ns - self.last_ns) as f64 / 1e9;
        self.last_ns = now_ns;
        // the rest of a second, at the end of the warm-up, says little
        if !self.is_measuring() && period_s > TICK.as_secs_f64() / 2.0 {
            self.warming.push(second.operations, period_s);
        }
        self.progress.update(self.totals.operations, &second, period_s);
        self.series.push(second);
    }
}
