//! Looks at the cluster from time to time.

use std::collections::BTreeMap;
use std::time::Duration;

use halcyon_client::{Cluster, ClusterMetrics};
use halcyon_env::Clock;

use crate::args::TuneArgs;
use crate::numbers::{Looks, Numbers, ServerNumbers, regions};
use crate::readings::{Reading, Readings, handlers_of_conf, of_jmx, of_open_metrics};

/// Levels are looked at this often, over any time.
const LOOKS: u32 = 20;
const LOOK_PERIOD_MIN: Duration = Duration::from_secs(1);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// HBase's `/jmx` of a server with thousands of regions has some ten megabytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// What the info port of a server told at each look, or why it did not.
#[derive(Default)]
struct Told {
    looks: Vec<Readings>,
    error: Option<String>,
}

pub async fn look(cluster: &Cluster, args: &TuneArgs, clock: &dyn Clock) -> Result<Numbers, String> {
    let time = Duration::from_secs(args.seconds);
    let period = (time / LOOKS).max(LOOK_PERIOD_MIN);
    let started_ns = clock.monotonic_ns();
    let elapsed = || Duration::from_nanos(clock.monotonic_ns().saturating_sub(started_ns));
    let first = status(cluster).await?;
    let mut told: BTreeMap<String, Told> = BTreeMap::new();
    ask_all(&first, &mut told).await?;
    while elapsed() < time {
        tokio::time::sleep(period.min(time.saturating_sub(elapsed()))).await;
        ask_all(&first, &mut told).await?;
    }
    let last = status(cluster).await?;
    Ok(numbers(&first, &last, told, elapsed()))
}

async fn status(cluster: &Cluster) -> Result<ClusterMetrics, String> {
    let failed = |error| format!("the master does not answer: {error}");
    cluster.admin().await.map_err(failed)?.cluster_metrics().await.map_err(failed)
}

/// One server after the other: they are asked for little.
async fn ask_all(metrics: &ClusterMetrics, told: &mut BTreeMap<String, Told>) -> Result<(), String> {
    for server in &metrics.servers {
        let told = told.entry(server.name.to_string()).or_default();
        let Some(port) = server.info_port.filter(|port| *port > 0) else {
            told.error = Some("it has no info port".to_string());
            continue;
        };
        let base = format!("http://{}:{port}", server.name.host);
        let asked = tokio::task::spawn_blocking(move || readings(&base));
        match asked.await.map_err(|error| error.to_string())? {
            Ok(readings) => told.looks.push(readings),
            Err(error) => told.error = Some(error),
        }
    }
    Ok(())
}

/// Halcyon answers `/metrics`. HBase has that page too, with other names, so what is known decides. *Blocking*.
fn readings(base: &str) -> Result<Readings, String> {
    let metrics = get(&format!("{base}/metrics"));
    if let Ok(text) = &metrics {
        let readings = of_open_metrics(text);
        if !readings.is_empty() {
            return Ok(readings);
        }
    }
    let url = format!("{base}/jmx?qry=Hadoop:service=HBase,name=RegionServer,sub=*");
    let mut readings = of_jmx(&get(&url)?).ok_or_else(|| format!("{base}/jmx has no beans"))?;
    if let Some(handlers) =
        get(&format!("{base}/conf?format=json")).ok().and_then(|text| handlers_of_conf(&text))
    {
        readings.insert(Reading::HandlersMax, handlers);
    }
    Ok(readings)
}

fn get(url: &str) -> Result<String, String> {
    let failed = |error: ureq::Error| format!("{url}: {error}");
    let config = ureq::Agent::config_builder().timeout_global(Some(ANSWER_TIME_MAX)).build();
    let mut answer = ureq::Agent::new_with_config(config).get(url).call().map_err(failed)?;
    answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string().map_err(failed)
}

fn numbers(
    first: &ClusterMetrics,
    last: &ClusterMetrics,
    told: BTreeMap<String, Told>,
    time: Duration,
) -> Numbers {
    let mut numbers =
        Numbers { version: last.hbase_version.clone().unwrap_or_default(), time, ..Numbers::default() };
    for (server, told) in told {
        let name = server.replacen(',', ":", 1).split(',').next().unwrap_or_default().to_string();
        if let Some(error) = told.error {
            numbers.silent.push((name.clone(), error));
        }
        let regions = regions(first, last, &server);
        numbers.servers.push(ServerNumbers { name, looks: Looks(told.looks), regions });
    }
    numbers
}
