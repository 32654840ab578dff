//! Writes and reads a row of each region of a table in short intervals, and tells how long the longest call took: what
//! `testing/compat` has as `Recovery` for HBase's clients, for `testing/cluster/status-test.sh`.
//!
//! ```text
//! recovery HOST:PORT,... TABLE REGIONS [NAME=VALUE]...     creates the table, prints "working", and obeys the lines of the input
//! begin NAME                                               forgets what was before
//! end NAME                                                 waits for an answer to a call of each kind that begins after this line, and prints
//! round  NAME  longest time without a write to some region  the same of reads  longest call  0  errors
//! ```
//!
//! Times are in milliseconds. Properties are those of HBase: `hbase.rpc.timeout`, and `hbase.status.published` with its like.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use halcyon_client::{
    ClientError, Cluster, ClusterAddress, ClusterOptions, FamilyDescriptor, Get, Put, StatusOptions, Table,
    TableDescriptor, TableName,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

const PAUSE: Duration = Duration::from_millis(20);
const END_MAX: Duration = Duration::from_secs(300);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// One kind of call, made again and again.
struct Caller {
    times: Mutex<Times>,
}

#[derive(Clone, Copy)]
struct Times {
    /// Of the last call that succeeded.
    begun: Option<Instant>,
    ended: Instant,
    longest_gap: Duration,
    longest_call: Duration,
}

impl Times {
    fn new() -> Times {
        Times {
            begun: None,
            ended: Instant::now(),
            longest_gap: Duration::ZERO,
            longest_call: Duration::ZERO,
        }
    }
}

/// A row, and which values it may have.
struct Row {
    table: Table,
    key: String,
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

impl Row {
    async fn write(&self) -> Result<(), Failure> {
        let value = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let put = Put::new(self.key.clone()).column("f", "q", value.to_be_bytes());
        self.table.put(put).await?;
        self.acknowledged.store(value, Ordering::SeqCst);
        Ok(())
    }

    async fn read(&self) -> Result<(), Failure> {
        let least = self.acknowledged.load(Ordering::SeqCst);
        let row = self.table.get(Get::new(self.key.clone())).await?;
        let found = row.value("f", "q").map_or(Ok(0), |value| value.try_into().map(u64::from_be_bytes))?;
        if found < least || found > self.begun.load(Ordering::SeqCst) {
            return Err(format!("{} has {found}, not {least} or more", self.key).into());
        }
        Ok(())
    }
}

struct Shared {
    writers: Vec<Caller>,
    readers: Vec<Caller>,
    errors: AtomicU64,
    works: AtomicBool,
}

impl Shared {
    fn callers(&self) -> impl Iterator<Item = &Caller> {
        self.writers.iter().chain(&self.readers)
    }

    /// Writes, or reads, the row of a region again and again.
    async fn repeat(self: Arc<Self>, row: Arc<Row>, region: usize, writes: bool) {
        let caller = if writes { &self.writers[region] } else { &self.readers[region] };
        while self.works.load(Ordering::Relaxed) {
            let begun = Instant::now();
            match if writes { row.write().await } else { row.read().await } {
                Ok(()) => {
                    let mut times = caller.times.lock().expect("nobody panics");
                    times.longest_gap = times.longest_gap.max(times.ended.elapsed());
                    times.longest_call = times.longest_call.max(begun.elapsed());
                    (times.begun, times.ended) = (Some(begun), Instant::now());
                }
                Err(error) => {
                    self.errors.fetch_add(1, Ordering::SeqCst);
                    eprintln!("{error}");
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn forget(&self) {
        self.errors.store(0, Ordering::SeqCst);
        for caller in self.callers() {
            let mut times = caller.times.lock().expect("nobody panics");
            *times = Times { begun: times.begun, ..Times::new() };
        }
    }

    /// Waits until each caller has had an answer to a call that began after this.
    async fn wait(&self) -> Result<(), Failure> {
        let now = Instant::now();
        for caller in self.callers() {
            while caller.times.lock().expect("nobody panics").begun.is_none_or(|begun| begun < now) {
                if now.elapsed() > END_MAX {
                    return Err(format!("some calls had no answer within {END_MAX:?}").into());
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        Ok(())
    }

    fn round(&self, name: &str) -> String {
        let longest = |callers: &[Caller], of: fn(&Times) -> Duration| {
            let times = callers.iter().map(|caller| of(&caller.times.lock().expect("nobody panics")));
            times.max().unwrap_or_default().as_millis()
        };
        let call = longest(&self.writers, |times| times.longest_call)
            .max(longest(&self.readers, |times| times.longest_call));
        let (writes, reads) = (
            longest(&self.writers, |times| times.longest_gap),
            longest(&self.readers, |times| times.longest_gap),
        );
        format!("round\t{name}\t{writes}\t{reads}\t{call}\t0\t{}", self.errors.load(Ordering::SeqCst))
    }
}

fn options(properties: &[(String, String)]) -> Result<ClusterOptions, Failure> {
    let find =
        |name: &str| properties.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let call_timeout = find("hbase.rpc.timeout").map_or(Ok(10_000), |text| text.parse())?;
    Ok(ClusterOptions {
        call_timeout: Duration::from_millis(call_timeout),
        operation_timeout: END_MAX,
        status: StatusOptions::from_properties(find)?,
        ..ClusterOptions::default()
    })
}

async fn create(cluster: &Cluster, name: &TableName, regions: usize) -> Result<(), ClientError> {
    let splits = (1..regions).map(|region| format!("{region:04}").into()).collect();
    let descriptor = TableDescriptor::new(name.clone()).with_family(FamilyDescriptor::new("f")?);
    cluster.admin().await?.create_table(&descriptor, splits).await
}

fn print(line: &str) {
    println!("{line}");
    let _ = std::io::stdout().flush();
}

async fn run(arguments: &[String]) -> Result<(), Failure> {
    let [quorum, table, regions, properties @ ..] = arguments else {
        return Err("HOST:PORT,... TABLE REGIONS [NAME=VALUE]...".into());
    };
    let property = |text: &String| text.split_once('=').map(|(name, value)| (name.into(), value.into()));
    let properties: Vec<(String, String)> = properties.iter().filter_map(property).collect();
    let (name, regions) = (TableName::parse(table.as_bytes())?, regions.parse()?);
    let address = ClusterAddress::zookeeper(quorum.split(','));
    let cluster = Cluster::connect(address, options(&properties)?).await?;
    create(&cluster, &name, regions).await?;
    let callers = || (0..regions).map(|_| Caller { times: Mutex::new(Times::new()) }).collect();
    let (errors, works) = (AtomicU64::new(0), AtomicBool::new(true));
    let shared = Arc::new(Shared { writers: callers(), readers: callers(), errors, works });
    let mut tasks = Vec::new();
    for region in 0..regions {
        let (table, key) = (cluster.table(name.clone(), 0), format!("{region:04}-row"));
        let (begun, acknowledged) = (AtomicU64::new(0), AtomicU64::new(0));
        let row = Arc::new(Row { table, key, begun, acknowledged });
        for writes in [true, false] {
            tasks.push(tokio::spawn(shared.clone().repeat(row.clone(), region, writes)));
        }
    }
    shared.wait().await?;
    print("working");
    let (told, mut lines) = mpsc::channel(16);
    tokio::task::spawn_blocking(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| told.blocking_send(line))
    });
    let mut all_errors = 0;
    while let Some(line) = lines.recv().await {
        if let Some(name) = line.strip_prefix("begin ") {
            shared.forget();
            print(&format!("begun\t{name}"));
        } else if let Some(name) = line.strip_prefix("end ") {
            shared.wait().await?;
            all_errors += shared.errors.load(Ordering::SeqCst);
            print(&shared.round(name));
        }
    }
    shared.works.store(false, Ordering::Relaxed);
    for task in tasks {
        task.await?;
    }
    match all_errors {
        0 => Ok(()),
        errors => Err(format!("{errors} calls failed").into()),
    }
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments).await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}
