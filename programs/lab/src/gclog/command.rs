//! `halcyon lab gclog FILE...`.

use std::io::Read;
use std::path::{Path, PathBuf};

use halcyon_env::{Env, ReadableFile};

use super::line::Line;
use super::print;
use super::reader::{Log, Reader};

/// Read at a time, in bytes.
const STEP: usize = 256 << 10;
/// Looked at to find the first time of a file.
const FRONT: usize = 64 << 10;

/// Summarise GC logs: pauses by cause, safepoints, allocation.
#[derive(Debug, clap::Args)]
pub struct GclogArgs {
    /// GC logs of one or several JVMs, rotated files in any order; - reads standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print JSON; with --pauses it includes every pause and stall.
    #[arg(long)]
    pub json: bool,
    /// List every pause with start and length, one on each line, separated by tabs.
    #[arg(long)]
    pub pauses: bool,
}

/// Returns the text to print. The error is a sentence.
pub fn run(env: &Env, args: &GclogArgs) -> Result<String, String> {
    let log = read_all(env, &args.files)?;
    Ok(match (args.json, args.pauses) {
        (true, with_pauses) => format!("{:#}\n", print::json(&log, with_pauses)),
        (false, true) => print::pauses(&log),
        (false, false) => print::text(&log),
    })
}

fn read_all(env: &Env, files: &[PathBuf]) -> Result<Log, String> {
    let mut opened = Vec::new();
    for path in files {
        opened.push(Opened::open(env, path)?);
    }
    in_order(&mut opened);
    let mut reader = Reader::new();
    for file in &mut opened {
        let before = reader.log.lines_used;
        file.read_into(&mut reader)?;
        reader.end_file();
        if reader.log.lines_used == before {
            return Err(not_a_log(&file.path, &reader.log, file.len));
        }
    }
    Ok(reader.finish())
}

/// What was expected and what was found.
fn not_a_log(path: &Path, log: &Log, len: u64) -> String {
    let found = match (&log.first_unknown, len) {
        (_, 0) => "it is empty".to_string(),
        (Some(line), _) => format!("it has lines such as {line:?}"),
        (None, _) => "no line is about a collection, a safepoint or a collector".to_string(),
    };
    format!(
        "{}: not a GC log: {found}; expected lines such as \
         \"[0.046s][info][gc] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 6M->1M(96M) 1.375ms\" (JDK 9 and later, \
         -Xlog:gc*,safepoint) or \"0.522: [GC pause (G1 Evacuation Pause) (young), 0.02 secs]\" (JDK 8, -XX:+PrintGCDetails)",
        path.display()
    )
}

struct Opened {
    path: PathBuf,
    /// `None` is standard input.
    file: Option<std::sync::Arc<dyn ReadableFile>>,
    len: u64,
    uptime_s: Option<f64>,
    wall_ms: Option<f64>,
}

impl Opened {
    fn open(env: &Env, path: &Path) -> Result<Opened, String> {
        if path == Path::new("-") {
            return Ok(Opened { path: path.into(), file: None, len: 1, uptime_s: None, wall_ms: None });
        }
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => format!("{}: no such file", path.display()),
            _ => format!("{}: {error}", path.display()),
        };
        let file = env.fs.open(path).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        let mut front = vec![0; FRONT.min(usize::try_from(len).unwrap_or(FRONT))];
        file.read_exact_at(&mut front, 0).map_err(failed)?;
        let front = String::from_utf8_lossy(&front);
        let timed =
            front.lines().map(Line::cut).find(|line| line.uptime_s.is_some() || line.wall_ms.is_some());
        let (uptime_s, wall_ms) = timed.map_or((None, None), |line| (line.uptime_s, line.wall_ms));
        Ok(Opened { path: path.into(), file: Some(file), len, uptime_s, wall_ms })
    }

    fn read_into(&mut self, reader: &mut Reader) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.path.display());
        let mut buffer = vec![0; STEP];
        let Some(file) = &self.file else {
            let mut input = std::io::stdin().lock();
            self.len = 0;
            loop {
                match input.read(&mut buffer).map_err(failed)? {
                    0 => return Ok(()),
                    got => {
                        self.len += got as u64;
                        reader.feed(&buffer[..got]);
                    }
                }
            }
        };
        let mut offset = 0;
        // a JVM may still be writing: what comes later than the opening is left out
        while offset < self.len {
            let step = STEP.min(usize::try_from(self.len - offset).unwrap_or(STEP));
            file.read_exact_at(&mut buffer[..step], offset).map_err(failed)?;
            reader.feed(&buffer[..step]);
            offset += step as u64;
        }
        Ok(())
    }
}

/// Rotated files come in any order (`gc.log.0`, `gc.log.1`, `gc.log`): by their first times, if these can be compared. Ages
/// of the process can be compared only within one JVM, whose files share a name.
fn in_order(files: &mut [Opened]) {
    if files.iter().all(|file| file.wall_ms.is_some()) {
        files.sort_by(|a, b| a.wall_ms.unwrap_or(0.0).total_cmp(&b.wall_ms.unwrap_or(0.0)));
        return;
    }
    let stem = |file: &Opened| {
        let name = file.path.to_string_lossy().into_owned();
        name.trim_end_matches(".current")
            .trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
            .to_string()
    };
    let one_jvm = files.windows(2).all(|pair| stem(&pair[0]) == stem(&pair[1]));
    if one_jvm && files.iter().all(|file| file.uptime_s.is_some()) {
        files.sort_by(|a, b| a.uptime_s.unwrap_or(0.0).total_cmp(&b.uptime_s.unwrap_or(0.0)));
    }
}
