use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::run::driver::Second;

/// How a run goes on: a bar on a terminal, elsewhere a line each period.
pub(super) struct Progress {
    name: String,
    operations: Option<u64>,
    is_warming: bool,
    /// Of the warm-up.
    before_operations: u64,
    bar: Option<ProgressBar>,
    period_s: f64,
    said_s: f64,
    /// Operations at the last line, and since when there were none.
    said_operations: u64,
    idle_s: f64,
}

impl Progress {
    pub fn new(name: &str, operations: Option<u64>, period: Duration) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = match operations {
                Some(operations) => ProgressBar::new(operations),
                None => ProgressBar::new_spinner(),
            };
            let template = match operations {
                Some(_) => "{elapsed_precise} {wide_bar} {percent}% {msg}",
                None => "{elapsed_precise} {human_pos} {msg}",
            };
            bar.set_style(ProgressStyle::with_template(template).expect("a template that is known to parse"));
            bar
        });
        Progress {
            name: name.to_string(),
            operations,
            is_warming: true,
            before_operations: 0,
            bar,
            period_s: period.as_secs_f64(),
            said_s: 0.0,
            said_operations: 0,
            idle_s: 0.0,
        }
    }

    /// The warm-up is over, after so many operations.
    pub fn begin(&mut self, operations: u64) {
        self.is_warming = false;
        self.before_operations = operations;
        (self.said_s, self.said_operations) = (0.0, operations);
    }

    pub fn update(&mut self, operations: u64, second: &Second, period_s: f64) {
        self.idle_s = if second.operations == 0 { self.idle_s + period_s } else { 0.0 };
        let operations = self.before_operations + operations;
        let latencies = match self.is_warming {
            true => "is warm-up".to_string(),
            false => format!("p50 {} p99 {} max {} us", second.p50_us, second.p99_us, second.max_us),
        };
        let idle =
            if self.idle_s >= 2.0 { format!("; no answer for {:.0} s", self.idle_s) } else { String::new() };
        if let Some(bar) = &self.bar {
            let rate = second.operations as f64 / period_s.max(1e-3);
            bar.set_position(operations);
            bar.set_message(format!("{rate:.0}/s {latencies}{idle}"));
            return;
        }
        let since_s = second.elapsed_s - self.said_s;
        if since_s + 0.1 < self.period_s {
            return;
        }
        let rate = (operations - self.said_operations) as f64 / since_s;
        let of = self.operations.map_or(String::new(), |all| format!(" of {all}"));
        eprintln!(
            "{}: {:.0} s, {operations}{of}, {rate:.0}/s; last second {latencies}{idle}",
            self.name, second.elapsed_s
        );
        (self.said_s, self.said_operations) = (second.elapsed_s, operations);
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
