//! Figures of runs, and how they become entries of tables.

use crate::outcome::{Entry, Experiment, Latency, PauseKind, Run, Table};

/// The value in microseconds below which the share of all latencies lies; 0 of none.
pub fn quantile_us<'a>(latencies: impl Iterator<Item = &'a Latency>, share: f64) -> u64 {
    let mut buckets: Vec<(u64, u64)> =
        latencies.flat_map(|latency| latency.histogram.iter().copied()).collect();
    buckets.sort_unstable();
    let all: u64 = buckets.iter().map(|(_, count)| count).sum();
    let wanted = (all as f64 * share).ceil().max(1.0) as u64;
    let mut below = 0;
    for (value, count) in &buckets {
        below += count;
        if below >= wanted {
            return *value;
        }
    }
    0
}

/// Of calls to the server: rows that only go into a client's buffer are left out where there are others.
fn calls(run: &Run) -> impl Iterator<Item = &Latency> {
    let has_flushes = run.latencies.iter().any(|latency| latency.kind == "flush");
    run.latencies.iter().filter(move |latency| !has_flushes || latency.kind != "row")
}

pub fn throughput(run: &Run) -> Option<f64> {
    Some(run.operations_per_s)
}

/// A percentile of the calls in milliseconds.
pub fn latency_ms(share: f64) -> impl Fn(&Run) -> Option<f64> {
    move |run| (!run.latencies.is_empty()).then(|| quantile_us(calls(run), share) as f64 / 1e3)
}

pub fn latency_max_ms(run: &Run) -> Option<f64> {
    let values = calls(run).filter_map(|latency| latency.histogram.last());
    values.map(|(value, _)| *value as f64 / 1e3).reduce(f64::max)
}

/// The longest time the server, or a thread of it, stood still without waiting for a disk, and not because of the host; 0
/// where it never did for as long as is recorded.
pub fn longest_pause_ms(run: &Run) -> Option<f64> {
    Some(run.own_pauses().map(|pause| pause.length_ms).fold(0.0, f64::max))
}

/// The longest time a thread of the server waited for a disk; `None` where nothing is known of such waits.
pub fn longest_disk_wait_ms(run: &Run) -> Option<f64> {
    longest_of(run, PauseKind::Disk)
}

/// The longest time that the server, or a thread of it, stood still because of the virtual machine's host; `None` where
/// nothing is known of such times.
pub fn longest_host_wait_ms(run: &Run) -> Option<f64> {
    longest_of(run, PauseKind::Host)
}

fn longest_of(run: &Run, kind: PauseKind) -> Option<f64> {
    let of_kind = run.pauses.iter().filter(|pause| pause.kind == kind);
    of_kind.map(|pause| pause.length_ms).reduce(f64::max)
}

/// Of the application as a whole: waits of single threads are left out.
pub fn stopped(run: &Run) -> impl Iterator<Item = f64> {
    run.pauses.iter().filter(|pause| pause.kind.stops_all()).map(|pause| pause.length_ms)
}

/// How much of the time the application stood still, in percent.
pub fn stopped_percent(run: &Run) -> Option<f64> {
    (run.elapsed_s > 0.0).then(|| stopped(run).sum::<f64>() / run.elapsed_s / 10.0)
}

/// Collections of the young generation, and what else G1 stops for: seconds in sum.
pub fn collection_s(run: &Run) -> Option<f64> {
    let collections = run.pauses.iter().filter(|pause| pause.kind == PauseKind::Collection);
    Some(collections.map(|pause| pause.length_ms).sum::<f64>() / 1e3)
}

pub fn collections(run: &Run) -> Option<f64> {
    Some(run.pauses.iter().filter(|pause| pause.kind == PauseKind::Collection).count() as f64)
}

pub fn server_us(run: &Run) -> Option<f64> {
    (run.operations > 0).then(|| run.resources.server_cpu_s * 1e6 / run.operations as f64)
}

/// Operations for each second of the server's processor time.
pub fn per_cpu_second(run: &Run) -> Option<f64> {
    (run.resources.server_cpu_s > 0.0).then(|| run.operations as f64 / run.resources.server_cpu_s)
}

pub fn resident_mb(run: &Run) -> Option<f64> {
    (run.resources.resident_peak_bytes > 0).then(|| run.resources.resident_peak_bytes as f64 / 1e6)
}

/// Runs of a side and a case that may be compared: whole ones.
pub fn runs<'a>(experiment: &'a Experiment, side: &str, case: &str) -> Vec<&'a Run> {
    let is_meant = |run: &&Run| run.side == side && run.case == case && run.partial.is_none();
    experiment.runs.iter().filter(is_meant).collect()
}

/// The median of a figure over the repetitions; `None` where there is no whole run.
pub fn median(
    experiment: &Experiment,
    side: &str,
    case: &str,
    of: impl Fn(&Run) -> Option<f64>,
) -> Option<f64> {
    let figures: Vec<f64> = runs(experiment, side, case).into_iter().filter_map(of).collect();
    (!figures.is_empty()).then(|| middle(figures).1)
}

/// Least, median, most.
fn middle(mut figures: Vec<f64>) -> (f64, f64, f64) {
    figures.sort_by(f64::total_cmp);
    let (below, above) = (figures[(figures.len() - 1) / 2], figures[figures.len() / 2]);
    (figures[0], (below + above) / 2.0, figures[figures.len() - 1])
}

/// A figure of a side and a case as an entry.
pub fn measured(
    experiment: &Experiment,
    side: &str,
    case: &str,
    unit: &str,
    of: impl Fn(&Run) -> Option<f64>,
) -> Entry {
    let figures: Vec<f64> = runs(experiment, side, case).into_iter().filter_map(of).collect();
    if !figures.is_empty() {
        let (min, median, max) = middle(figures);
        return Entry::Measured { median, min, max, unit: unit.to_string() };
    }
    Entry::Absent(why_absent(experiment, side, case))
}

fn why_absent(experiment: &Experiment, side: &str, case: &str) -> String {
    let missing =
        experiment.sides.iter().find(|known| known.id == side).and_then(|side| side.missing.clone());
    let partial = experiment.runs.iter().find(|run| run.side == side && run.case == case);
    missing
        .or_else(|| partial.and_then(|run| run.partial.clone()))
        .unwrap_or_else(|| "not measured".to_string())
}

pub fn text(text: impl Into<String>) -> Entry {
    Entry::Text(text.into())
}

pub fn published(value: f64, unit: &str) -> Entry {
    Entry::Published { value, unit: unit.to_string() }
}

pub fn absent(why: &str) -> Entry {
    Entry::Absent(why.to_string())
}

pub fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// A column of a table: name, unit, and what of a run stands in it.
pub type Figure<'a> = (&'a str, &'a str, &'a dyn Fn(&Run) -> Option<f64>);

/// Figures of a side and a case, a row's part.
pub fn entries<'a>(
    experiment: &'a Experiment,
    side: &'a str,
    case: &'a str,
    figures: &'a [Figure<'a>],
) -> impl Iterator<Item = Entry> + 'a {
    figures.iter().map(move |(_, unit, of)| measured(experiment, side, case, unit, of))
}

/// What is told of every run, whatever the experiment.
pub fn all_runs(experiment: &Experiment) -> Table {
    let client_us =
        |run: &Run| (run.operations > 0).then(|| run.resources.client_cpu_s * 1e6 / run.operations as f64);
    let others = |run: &Run| (run.elapsed_s > 0.0).then(|| run.resources.others_cpu_s / run.elapsed_s);
    let warmup_s = |run: &Run| Some(run.warmup_s);
    let figures: [Figure<'_>; 15] = [
        ("warmed", "s", &warmup_s),
        ("operations", "/s", &throughput),
        ("p50", "ms", &latency_ms(0.5)),
        ("p99", "ms", &latency_ms(0.99)),
        ("p99.9", "ms", &latency_ms(0.999)),
        ("longest", "ms", &latency_max_ms),
        ("longest stall", "ms", &longest_pause_ms),
        ("longest wait for a disk", "ms", &longest_disk_wait_ms),
        ("longest because of the host", "ms", &longest_host_wait_ms),
        ("server CPU each", "us", &server_us),
        ("for a server CPU second", "", &per_cpu_second),
        ("client CPU each", "us", &client_us),
        ("others", "cores", &others),
        ("resident", "MB", &resident_mb),
        ("collections", "", &collections),
    ];
    let mut rows = Vec::new();
    for case in &experiment.cases {
        for side in &experiment.sides {
            let mut row = vec![text(&case.label), text(&side.label)];
            row.extend(entries(experiment, &side.id, &case.id, &figures));
            row.push(bound_by(experiment, &side.id, &case.id));
            rows.push(row);
        }
    }
    let names = figures.iter().map(|(name, ..)| *name);
    let names: Vec<&str> = ["load", "side"].into_iter().chain(names).chain(["bound by"]).collect();
    Table {
        title: "All loads".to_string(),
        columns: columns(&names),
        rows,
        remark: "Medians, with the least and the most of the repetitions. Where a rate was asked for, latency counts from the moment \
                 at which an operation should have begun. A longest stall is a JVM's longest pause, or the longest wait that \
                 Halcyon's stall monitor recorded: 10 ms and more, so 0 is anything below. What waited for a disk, and that of which the host \
                 of a virtual machine took half or more, is told apart: no JVM's log knows of it. Others: everybody else on the machine."
            .to_string(),
    }
}

/// Who was the limit, over the repetitions.
pub fn bound_by(experiment: &Experiment, side: &str, case: &str) -> Entry {
    let mut limits: Vec<&str> = Vec::new();
    for run in runs(experiment, side, case) {
        if !limits.contains(&run.resources.bound_by.as_str()) {
            limits.push(&run.resources.bound_by);
        }
    }
    match limits.is_empty() {
        true => Entry::Absent(why_absent(experiment, side, case)),
        false => Entry::Text(limits.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_several_kinds() {
        let latency = |histogram: &[(u64, u64)]| Latency {
            kind: "k".to_string(),
            mean_us: 0.0,
            histogram: histogram.to_vec(),
        };
        let both = [latency(&[(10, 90), (500, 1)]), latency(&[(20, 9)])];
        let at = |share| quantile_us(both.iter(), share);
        assert_eq!((at(0.5), at(0.9), at(0.91), at(0.99), at(0.999)), (10, 10, 20, 20, 500));
        assert_eq!(quantile_us([].iter(), 0.5), 0);
    }

    #[test]
    fn medians() {
        assert_eq!(middle(vec![3.0, 1.0, 2.0]), (1.0, 2.0, 3.0));
        assert_eq!(middle(vec![3.0, 1.0]), (1.0, 2.0, 3.0));
    }
}
