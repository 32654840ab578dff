//! `halcyon-cell-bench`: what one cell costs on its way through the engine, in time, allocations and instructions.
//!
//! One thread does everything, so that nothing else is counted. Each repetition begins with an empty store; the
//! medians are printed. Instructions are counted by callgrind, which runs the program once for each step and looks at
//! [`measured`] alone; they hardly differ from run to run, so a small change shows.

#![allow(clippy::disallowed_methods)] // a tool for people: real files, real time

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use bytes::Bytes;
use clap::{Parser, ValueEnum};
use halcyon_allocator::CountingAllocator;
use halcyon_bench::engine::Compression;
use halcyon_bench::halcyon::{ANSWER_CELLS, Opened, open_region, put};
use halcyon_bench::keys::{Dice, Key, Values, key, shuffled};
use halcyon_bench::{Failure, Opening, machine};
use halcyon_cell::SharedCells;
use halcyon_region::{CompactionRequest, NextState, Nonce, ReadMode, Scan, ScanLimits};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[derive(Parser)]
#[command(about = "Measures what a cell costs on its way through the engine")]
struct Arguments {
    /// Where the store is made; emptied before and after
    #[arg(long, default_value = "/tmp/halcyon-cell-bench")]
    dir: PathBuf,
    /// Cells of each step; flushes and compactions see two and four times as many
    #[arg(long, default_value_t = 200_000)]
    cells: u64,
    #[arg(long, default_value_t = 100)]
    value_len: usize,
    #[arg(long, default_value_t = 64)]
    block_kib: usize,
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// Count instructions too, with valgrind, on this many cells; 0: no
    #[arg(long, default_value_t = 20_000)]
    instructions_of: u64,
    /// Only this step is measured, and nothing is printed: what valgrind runs
    #[arg(long, hide = true)]
    only: Option<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    /// A put of one row, log included
    Put1,
    /// Puts of 100 rows together, log included
    Put100,
    GetMemory,
    ScanMemory,
    /// From memory to a file
    Flush,
    GetFile,
    /// A row that no file has
    GetNone,
    ScanFile,
    /// Two files, and one that is nearly empty, to one
    Compact,
}

const STEPS: [Step; 9] = [
    Step::Put1,
    Step::Put100,
    Step::GetMemory,
    Step::ScanMemory,
    Step::Flush,
    Step::GetFile,
    Step::GetNone,
    Step::ScanFile,
    Step::Compact,
];

/// Of one step.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    cells: u64,
    nanos: f64,
    allocations: f64,
    allocated_bytes: f64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.only {
        Some(_) => Way::go(&arguments, arguments.cells).map(|_| ()),
        None => tell(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("halcyon-cell-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tell(arguments: &Arguments) -> Result<(), Failure> {
    print!("{}", machine::describe());
    println!("per cell, values of {} bytes; median of {}\n", arguments.value_len, arguments.repetitions);
    let mut runs = Vec::new();
    for _ in 0..arguments.repetitions.max(1) {
        runs.push(Way::go(arguments, arguments.cells)?);
    }
    println!(
        "{:<12} {:>9} {:>12} {:>15} {:>13}",
        "step", "ns", "allocations", "allocated bytes", "instructions"
    );
    for step in STEPS {
        let costs: Vec<Cost> = runs.iter().map(|run| run[step as usize]).collect();
        let median = |of: fn(&Cost) -> f64| {
            let mut values: Vec<f64> = costs.iter().map(|cost| of(cost) / cost.cells as f64).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        println!(
            "{:<12} {:>9.0} {:>12.2} {:>15.0} {:>13}",
            name(step),
            median(|cost| cost.nanos),
            median(|cost| cost.allocations),
            median(|cost| cost.allocated_bytes),
            instructions(arguments, step, costs[0].cells / arguments.cells)?,
        );
    }
    Ok(())
}

fn name(step: Step) -> String {
    step.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string())
}

/// Instructions per cell of one step, as text; it sees `times` as many cells as the others.
fn instructions(arguments: &Arguments, step: Step, times: u64) -> Result<String, Failure> {
    let cells = arguments.instructions_of;
    if cells == 0 {
        return Ok("-".to_string());
    }
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*measured*"])
        .arg(std::env::current_exe()?)
        .args(["--only", &name(step), "--cells", &cells.to_string()])
        .args(["--value-len", &arguments.value_len.to_string()])
        .args(["--block-kib", &arguments.block_kib.to_string()])
        .arg("--dir")
        .arg(&arguments.dir)
        .output();
    let Ok(output) = output else { return Ok("no valgrind".to_string()) };
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let collected = told.lines().find_map(|line| line.split_once("Collected : "));
    let Some(counted) = collected.and_then(|(_, number)| number.trim().parse::<u64>().ok()) else {
        return Err(format!("valgrind counted nothing:\n{told}").into());
    };
    Ok((counted / (cells * times)).to_string())
}

/// What is counted, and nothing else: valgrind knows it by its name.
#[inline(never)]
fn measured(work: &mut dyn FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
    work()
}

/// One walk of all cells through all steps.
struct Way<'a> {
    arguments: &'a Arguments,
    cells: u64,
    opened: Opened,
    values: Values,
    costs: Vec<Cost>,
}

impl Way<'_> {
    fn go(arguments: &Arguments, cells: u64) -> Result<Vec<Cost>, Failure> {
        let empty = || match std::fs::remove_dir_all(&arguments.dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        empty()?;
        let opening = Opening {
            dir: arguments.dir.clone(),
            memstore_bytes: 8 << 30,
            memstores_max: 1,
            cache_bytes: 8 << 30,
            block_bytes: Some(arguments.block_kib << 10),
            compression: Compression::None,
            fsync: false,
        };
        let opened = open_region(&opening)?;
        let values = Values::new(arguments.value_len);
        let costs = vec![Cost::default(); STEPS.len()];
        let mut way = Way { arguments, cells, opened, values, costs };
        way.all()?;
        way.opened.region.close(false)?;
        way.opened.wal.close()?;
        empty()?;
        Ok(way.costs)
    }

    /// Even numbers are put one by one, odd ones by the hundred; numbers from twice `cells` on are in no file.
    fn all(&mut self) -> Result<(), Failure> {
        // Where rows begin alike a store learns from its first flush; what comes later is what is usual.
        self.put(&[0, 2 * self.cells - 1])?;
        self.flush(None)?;
        let order: Vec<u64> = shuffled(self.cells).into_iter().map(u64::from).collect();
        self.step(Step::Put1, self.cells, |way| order.iter().try_for_each(|at| way.put(&[2 * at])))?;
        let odd: Vec<u64> = order.iter().map(|at| 2 * at + 1).collect();
        self.step(Step::Put100, self.cells, |way| odd.chunks(100).try_for_each(|rows| way.put(rows)))?;
        self.get_all(Step::GetMemory, 0)?;
        self.scan_all(Step::ScanMemory)?;
        self.flush(Some(Step::Flush))?;
        self.scan()?; // what is asked for next is in the cache
        self.get_all(Step::GetFile, 0)?;
        self.get_all(Step::GetNone, 2 * self.cells)?;
        self.scan_all(Step::ScanFile)?;
        odd.chunks(100).try_for_each(|rows| self.put(rows))?;
        let even: Vec<u64> = order.iter().map(|at| 2 * at).collect();
        even.chunks(100).try_for_each(|rows| self.put(rows))?;
        self.flush(None)?;
        self.step(Step::Compact, 4 * self.cells, |way| {
            let request = CompactionRequest { major: true, user: true };
            let never = AtomicBool::new(false);
            let outcome = way.opened.region.compact(None, request, &mut &never)?;
            if outcome.compacted_files == 3 { Ok(()) } else { Err(format!("{outcome:?}").into()) }
        })
    }

    fn step(
        &mut self,
        step: Step,
        cells: u64,
        work: impl Fn(&Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.arguments.only.is_some_and(|only| only != step) {
            return work(self);
        }
        let before = CountingAllocator::counts();
        let begin = Instant::now();
        measured(&mut || work(self))?;
        let nanos = begin.elapsed().as_nanos() as f64;
        let after = CountingAllocator::counts();
        self.costs[step as usize] = Cost {
            cells,
            nanos,
            allocations: (after.count - before.count) as f64,
            allocated_bytes: (after.bytes - before.bytes) as f64,
        };
        Ok(())
    }

    fn put(&self, numbers: &[u64]) -> Result<(), Failure> {
        let batch = numbers.iter().map(|&number| put(&key(number), self.values.get(number))).collect();
        let outcome = self.opened.region.mutate(batch, false, Nonce::default(), ReadMode::AnyDisk)?;
        self.opened.wal.drive();
        Ok(outcome.ticket.wait()?)
    }

    /// As many random rows as there are cells, from `first` on.
    fn get_all(&mut self, step: Step, first: u64) -> Result<(), Failure> {
        let mut dice = Dice::new(7);
        let keys: Vec<Key> = (0..self.cells).map(|_| key(first + dice.below(2 * self.cells))).collect();
        self.step(step, self.cells, |way| {
            keys.iter().try_for_each(|key| {
                let scan = Scan::of_row(Bytes::copy_from_slice(key));
                let found = way.opened.region.get(scan, ReadMode::AnyDisk)?;
                let wanted = usize::from(first == 0);
                if found.len() == wanted { Ok(()) } else { Err(format!("{} cells", found.len()).into()) }
            })
        })
    }

    fn scan_all(&mut self, step: Step) -> Result<(), Failure> {
        self.step(step, 2 * self.cells, Way::scan)
    }

    fn scan(&self) -> Result<(), Failure> {
        let mut scanner = self.opened.region.scanner(Scan::default(), ReadMode::AnyDisk)?;
        let (mut count, mut cells, mut limits) = (0, SharedCells::new(), ScanLimits::NONE);
        while scanner.next_shared(&mut limits, &mut cells)? != NextState::Exhausted {
            if cells.len() >= ANSWER_CELLS {
                count += cells.len();
                cells.truncate(0);
            }
        }
        count += cells.len();
        if count as u64 == 2 * self.cells { Ok(()) } else { Err(format!("{count} cells").into()) }
    }

    fn flush(&mut self, step: Option<Step>) -> Result<(), Failure> {
        let work = |way: &Self| Ok(way.opened.region.flush(None).map(|_| ())?);
        match step {
            Some(step) => self.step(step, 2 * self.cells, work),
            None => work(self),
        }
    }
}
