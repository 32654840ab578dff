//! What the user sees while an experiment runs: a bar on a terminal, elsewhere a line for each run and now and then one more.

use std::io::IsTerminal;
use std::sync::Mutex;

use halcyon_env::Env;
use indicatif::{ProgressBar, ProgressStyle};

/// From one line to the next where there is no terminal.
const LINE_PERIOD_NS: u64 = 15_000_000_000;

/// Shared by the runner, which says what begins, and by the stage, which knows how fast it goes.
pub struct Display {
    env: Env,
    state: Mutex<State>,
}

struct State {
    bar: Option<ProgressBar>,
    title: String,
    left_s: f64,
    begun_ns: u64,
    said_ns: u64,
}

impl Display {
    pub fn new(env: &Env) -> Display {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1);
            let template = "{elapsed_precise} {bar:20} run {pos} of {len} {wide_msg}";
            bar.set_style(ProgressStyle::with_template(template).expect("a template that is known to parse"));
            bar
        });
        let state = State { bar, title: String::new(), left_s: 0.0, begun_ns: 0, said_ns: 0 };
        Display { env: env.clone(), state: Mutex::new(state) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while drawing")
    }

    pub fn begins(&self, number: usize, of: usize, title: &str, left_s: f64) {
        let mut state = self.state();
        let now_ns = self.env.clock.monotonic_ns();
        (state.title, state.left_s) = (title.to_string(), left_s);
        (state.begun_ns, state.said_ns) = (now_ns, now_ns);
        match &state.bar {
            Some(bar) => {
                bar.set_length(of as u64);
                bar.set_position(number as u64);
                bar.set_message(format!("{title}; about {} left", duration_text(left_s)));
            }
            None => eprintln!("run {number} of {of}, about {} left: {title}", duration_text(left_s)),
        }
    }

    /// The load goes on; what it last said of itself.
    pub fn goes(&self, rate: &str) {
        let mut state = self.state();
        let now_ns = self.env.clock.monotonic_ns();
        let left_s = state.left_s - (now_ns - state.begun_ns) as f64 / 1e9;
        let text = format!("{}: {rate}; about {} left", state.title, duration_text(left_s));
        match &state.bar {
            Some(bar) => bar.set_message(text),
            None if now_ns - state.said_ns >= LINE_PERIOD_NS => {
                state.said_ns = now_ns;
                eprintln!("  {text}");
            }
            None => {}
        }
    }

    pub fn says(&self, sentence: &str) {
        match &self.state().bar {
            Some(bar) => bar.println(sentence),
            None => eprintln!("{sentence}"),
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.state().bar {
            bar.finish_and_clear();
        }
    }
}

/// `45 s`, `12 min`, `3.5 h`.
pub fn duration_text(seconds: f64) -> String {
    match seconds.max(0.0) {
        seconds if seconds < 100.0 => format!("{seconds:.0} s"),
        seconds if seconds < 6_000.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3_600.0),
    }
}

/// The rate in a line of progress of the load generator: `name: 3 s, 300 of 900, 100/s; last second ...`.
pub fn rate_of(line: &str) -> Option<&str> {
    let (before, _) = line.split_once("/s; ")?;
    let at = before.rfind(' ')?;
    let rate = &before[at + 1..];
    rate.parse::<f64>().is_ok().then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_found() {
        assert_eq!(
            rate_of("ycsb run: 3 s, 300 of 900, 100/s; last second p50 7 p99 9 max 9 us"),
            Some("100")
        );
        assert_eq!(rate_of("ycsb run: 3 s, 300, 100/s; last second is warm-up"), Some("100"));
        assert_eq!(rate_of("halcyon: no cluster"), None);
        assert_eq!([-1.0, 45.4, 720.0, 12_600.0].map(duration_text), ["0 s", "45 s", "12 min", "3.5 h"]);
    }
}
