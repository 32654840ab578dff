//! The filter of the server's log output, which may change while it runs.

use std::sync::OnceLock;

use parking_lot::Mutex;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

/// Replaces the filter of the subscriber.
type Replace = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

struct Filter {
    replace: Replace,
    /// Directives as text: `info,halcyon_wal=debug`.
    in_force: Mutex<String>,
}

static FILTER: OnceLock<Filter> = OnceLock::new();

/// Writes the log to the standard error from now on, filtered by `HALCYON_LOG`.
pub fn start(has_colours: bool) {
    let filter = EnvFilter::try_from_env("HALCYON_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let in_force = Mutex::new(filter.to_string());
    let (filter, handle) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(has_colours);
    tracing_subscriber::registry().with(filter).with(lines).init();
    let replace = move |filter| handle.reload(filter).map_err(|error| error.to_string());
    let _ = FILTER.set(Filter { replace: Box::new(replace), in_force });
}

/// The directives in force.
pub fn in_force() -> Result<String, String> {
    FILTER.get().map(|filter| filter.in_force.lock().clone()).ok_or_else(not_started)
}

/// Sets the level of a part of the program, or of all if no part is named. The error is a sentence.
pub fn set(part: &str, level: &str) -> Result<(), String> {
    let filter = FILTER.get().ok_or_else(not_started)?;
    let mut in_force = filter.in_force.lock();
    let directives = with_level(&in_force, part, level)?;
    let parsed = EnvFilter::try_new(&directives);
    let parsed = parsed.map_err(|error| format!("'{directives}' is no filter of the log: {error}"))?;
    (filter.replace)(parsed)?;
    tracing::warn!(filter = directives, "the level of the log was changed by /logLevel");
    *in_force = directives;
    Ok(())
}

fn not_started() -> String {
    "The log output of this process cannot be changed: it was not started by the server.".to_string()
}

/// The directives with one more, in place of an older one of the same part.
fn with_level(directives: &str, part: &str, level: &str) -> Result<String, String> {
    let level: LevelFilter = match level.to_ascii_lowercase().as_str() {
        "fatal" => LevelFilter::ERROR, // of log4j
        "all" => LevelFilter::TRACE,
        name => {
            name.parse().map_err(|_| "Levels are error, warn, info, debug, trace and off.".to_string())?
        }
    };
    let part_of =
        |directive: &str| directive.split_once('=').map_or(String::new(), |(part, _)| part.to_string());
    let mut kept: Vec<String> = directives
        .split(',')
        .filter(|directive| !directive.is_empty() && part_of(directive) != part)
        .map(str::to_string)
        .collect();
    let level = level.to_string();
    kept.push(if part.is_empty() { level } else { format!("{part}={level}") });
    Ok(kept.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_replaces_the_one_of_the_same_part() {
        let set = |directives: &str, part: &str, level: &str| with_level(directives, part, level);
        assert_eq!(set("info", "halcyon_wal", "DEBUG").unwrap(), "info,halcyon_wal=debug");
        assert_eq!(set("info,halcyon_wal=debug", "halcyon_wal", "off").unwrap(), "info,halcyon_wal=off");
        assert_eq!(set("info,halcyon_wal=debug", "", "warn").unwrap(), "halcyon_wal=debug,warn");
        assert!(set("info", "", "loud").is_err());
        EnvFilter::try_new("halcyon_wal=debug,warn").unwrap();
    }
}
