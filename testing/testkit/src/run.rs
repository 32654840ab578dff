//! Runs a script over an engine and the oracle, and says where they part.

use std::fmt;

use halcyon_cell::Cell;

use crate::{FamilyOptions, Oracle, OracleScan, Script, Step, for_each_seed};

/// What is tested: something that stores cells and reads them back by HBase's rules.
///
/// An error is a failure of the script; it is text, so that every floor's error fits.
pub trait Engine {
    /// Wall time is `now_ms` from now on. Called once at the start and at every `advance`.
    fn set_now_ms(&mut self, now_ms: i64);

    /// One mutation of one row. The cells carry timestamps and the sequence id that they should have; an engine
    /// that gives its own must give them in the order of the calls. When it returns, the write is durable.
    fn apply(&mut self, cells: &[Cell]) -> Result<(), String>;

    /// One list per result, as [`Oracle::scan`] returns them.
    fn scan(&mut self, scan: &OracleScan) -> Result<Vec<Vec<Cell>>, String>;

    fn flush(&mut self) -> Result<(), String>;

    /// Minor: whatever the engine selects. Major: all files. The script flushed just before. Returns the rows of
    /// which everything was compacted: a selection that happens to hold all files is a major one, as in HBase.
    fn compact(&mut self, major: bool) -> Result<Vec<MajorRows>, String>;

    /// An orderly close and open.
    fn reopen(&mut self) -> Result<(), String>;

    /// Loses what is not durable, and opens again.
    fn crash(&mut self) -> Result<(), String> {
        self.reopen()
    }
}

/// Rows of which a compaction had everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MajorRows {
    /// `None`: all families.
    pub family: Option<Vec<u8>>,
    pub start: Vec<u8>,
    /// The first row that does not belong to them any more; empty: there is none.
    pub end: Vec<u8>,
}

impl MajorRows {
    pub const ALL: MajorRows = MajorRows { family: None, start: Vec::new(), end: Vec::new() };

    pub(crate) fn includes(&self, row: &[u8]) -> bool {
        row >= &self.start[..] && (self.end.is_empty() || row < &self.end[..])
    }
}

/// The first step at which engine and oracle differ.
#[derive(Clone, Debug)]
pub struct Mismatch {
    pub seed: u64,
    /// Index into the script's steps.
    pub step_number: usize,
    /// The step, as it was run.
    pub step: String,
    pub difference: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, step {}: {}", self.seed, self.step_number, self.step)?;
        write!(f, "{}", self.difference)
    }
}

impl std::error::Error for Mismatch {}

/// Runs every step on both and compares every read. The oracle must be new, with the script's families.
pub fn run_script<E: Engine + ?Sized>(
    engine: &mut E,
    oracle: &mut Oracle,
    script: &Script,
) -> Result<(), Mismatch> {
    let mut now_ms = script.start_ms;
    engine.set_now_ms(now_ms);
    oracle.set_now_ms(now_ms);
    for (step_number, step) in script.steps.iter().enumerate() {
        // An unsure cell moves what an offset passes over; without the offset the answer is clear again.
        let mut step = step.clone();
        if let Step::Read(scan) = &mut step
            && oracle.is_ambiguous(scan)
        {
            scan.store_offset = 0;
            if scan.raw {
                scan.versions_max = usize::MAX;
            }
        }
        run_step(engine, oracle, &step, step_number as u64 + 1, &mut now_ms).map_err(|difference| {
            Mismatch { seed: script.seed, step_number, step: step.to_string(), difference }
        })?;
    }
    Ok(())
}

fn run_step<E: Engine + ?Sized>(
    engine: &mut E,
    oracle: &mut Oracle,
    step: &Step,
    seq: u64,
    now_ms: &mut i64,
) -> Result<(), String> {
    match step {
        Step::Write(cells) => {
            let cells: Vec<Cell> = cells.iter().map(|cell| cell.clone().with_seq(seq)).collect();
            engine.apply(&cells)?;
            oracle.apply(&cells);
        }
        Step::Read(scan) => oracle.check(scan, &engine.scan(scan)?)?,
        Step::Flush => {
            engine.flush()?;
            oracle.flushed();
        }
        Step::Compact { major } => {
            engine.flush()?;
            oracle.flushed();
            for rows in engine.compact(*major)? {
                oracle.major_compact(&rows);
            }
        }
        Step::Reopen => {
            engine.reopen()?;
            oracle.flushed();
        }
        Step::Crash => {
            engine.crash()?;
            oracle.crashed();
        }
        Step::Advance(ms) => {
            *now_ms += ms;
            engine.set_now_ms(*now_ms);
            oracle.set_now_ms(*now_ms);
        }
    }
    Ok(())
}

/// Takes steps and cells out of a failing script as long as it still fails; returns the shortest one found.
pub fn minimize<E: Engine>(
    script: &Script,
    mut make_engine: impl FnMut(&[FamilyOptions]) -> E,
) -> (Script, Option<Mismatch>) {
    let mut fails = |script: &Script| {
        let mut oracle = Oracle::new(script.families.clone());
        run_script(&mut make_engine(&script.families), &mut oracle, script).err()
    };
    let mut best = script.clone();
    let Some(mut mismatch) = fails(&best) else {
        return (best, None);
    };
    best.steps.truncate(mismatch.step_number + 1);
    let mut piece = best.steps.len() / 2;
    while piece > 0 {
        let mut start = 0;
        while start < best.steps.len() {
            let mut shorter = best.clone();
            shorter.steps.drain(start..(start + piece).min(best.steps.len()));
            match fails(&shorter) {
                Some(found) => (best, mismatch) = (shorter, found),
                None => start += piece,
            }
        }
        piece /= 2;
    }
    for at in 0..best.steps.len() {
        let mut part = 0;
        while let Step::Write(cells) = &best.steps[at]
            && cells.len() > 1
            && part < cells.len()
        {
            let mut shorter = best.clone();
            if let Step::Write(cells) = &mut shorter.steps[at] {
                cells.remove(part);
            }
            match fails(&shorter) {
                Some(found) => (best, mismatch) = (shorter, found),
                None => part += 1,
            }
        }
    }
    (best, Some(mismatch))
}

/// Runs a random script of `len` steps for each seed. At the first difference it makes the script short and
/// panics with the difference, the script, and `command` with the seed.
///
/// [`for_each_seed`] chooses the seeds.
pub fn check_seeds<E: Engine>(
    command: &str,
    seeds: std::ops::Range<u64>,
    len: usize,
    mut make_engine: impl FnMut(&[FamilyOptions]) -> E,
) {
    for_each_seed(command, seeds, |seed| {
        let script = Script::random(seed, len);
        let mut oracle = Oracle::new(script.families.clone());
        if run_script(&mut make_engine(&script.families), &mut oracle, &script).is_err() {
            let (short, mismatch) = minimize(&script, &mut make_engine);
            let mismatch = mismatch.map_or("not every time".to_string(), |it| it.to_string());
            panic!("{mismatch}\nthe script, made short:\n{short}");
        }
    });
}
