//! `halcyon lab page RESULTS.json`.

use std::path::{Path, PathBuf};

use halcyon_env::Env;

use super::html_beside;
use crate::outcome::{Experiment, FORMAT};

/// Larger files are refused.
const RESULTS_BYTES_MAX: u64 = 1 << 30;

/// Render the page of an experiment from its results: one HTML file that needs no network.
#[derive(Debug, clap::Args)]
pub struct PageArgs {
    /// The results.json that `halcyon lab run` wrote.
    #[arg(value_name = "RESULTS.json")]
    pub results: PathBuf,
    /// Output file; - is standard output [default: the path of the results with the extension html].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Returns the path of the page. The error is a sentence.
pub fn run(env: &Env, args: &PageArgs) -> Result<String, String> {
    let experiment = read(env, &args.results)?;
    let name = args.results.file_name().map_or("results.json".into(), |name| name.to_string_lossy());
    if args.output.as_deref() == Some(Path::new("-")) {
        return Ok(html_beside(&experiment, &name));
    }
    let output = args.output.clone().unwrap_or_else(|| args.results.with_extension("html"));
    if output == args.results {
        return Err(format!(
            "{}: the page would replace its own results; name another file with -o",
            output.display()
        ));
    }
    let page = html_beside(&experiment, &name);
    env.fs.replace(&output, page.as_bytes()).map_err(|error| format!("{}: {error}", output.display()))?;
    Ok(format!("{} ({} KiB)\n", output.display(), page.len().div_ceil(1024)))
}

/// The results in a file.
pub fn read(env: &Env, path: &Path) -> Result<Experiment, String> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("{}: no such file", path.display()),
        _ => format!("{}: {error}", path.display()),
    };
    let len = env.fs.open(path).and_then(|file| file.len()).map_err(failed)?;
    if len > RESULTS_BYTES_MAX {
        return Err(format!(
            "{}: {len} bytes is too large for results (at most {RESULTS_BYTES_MAX})",
            path.display()
        ));
    }
    let bytes = env.fs.read(path).map_err(failed)?;
    let experiment: Experiment = serde_json::from_slice(&bytes)
        .map_err(|error| format!("{}: not the results of an experiment: {error}", path.display()))?;
    if experiment.format > FORMAT {
        return Err(format!(
            "{}: format {} is from a newer version; this version reads up to {FORMAT}",
            path.display(),
            experiment.format
        ));
    }
    Ok(experiment)
}
