//! The log under construction: lines come in, facts come out.
//!
//! [`Reader`] cuts bytes into lines and gives each to the form it has (`unified.rs`, `jdk8.rs`); those report facts to the
//! methods here, which keep one JVM's state: its clock, the heap's last size, the collection that runs. Memory does not
//! grow with the log but for the list of pauses and, up to [`STALLS_MAX`], of stalls.
//!
//! Nothing that a log contains is an error: a line that means nothing is counted and left out.

use std::collections::BTreeMap;

use super::events::{HeapChange, Lengths, Memory, Name, Names, Pause, Safepoints, Stall};
use super::line::Line;

/// Longest line looked at, in bytes; what is behind is left out.
const LINE_LEN_MAX: usize = 64 << 10;
/// Most stalls kept one by one; the sums have them all.
const STALLS_MAX: usize = 100_000;
/// Most collections that run at a time; a log that ends in the middle leaves some open.
const CYCLES_MAX: usize = 64;
/// Most starts of a JVM told apart; a damaged clock must not fill memory.
const JVMS_MAX: usize = 10_000;
/// Sizes are written in whole megabytes: what was allocated between two of them may seem less than nothing by this much.
const ROUNDING_BYTES: i64 = 2 << 20;
/// A clock that goes back further than this is the clock of another JVM.
const CLOCK_BACK_S: f64 = 0.5;
pub(super) const SAFEPOINT: &str = "Safepoint";

/// One run of a JVM within a log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Jvm {
    /// `G1`, `Z`, `Shenandoah`, `Parallel`, ...; `None` if the log begins later.
    pub collector: Option<String>,
    /// `17.0.15+6`; `None` if the log begins later.
    pub version: Option<String>,
    /// Seconds between the first and the last line.
    pub wall_s: f64,
}

/// All that was found.
#[derive(Debug, Default)]
pub struct Log {
    pub names: Names,
    pub jvms: Vec<Jvm>,
    /// In the log's order: every collection's pause, and safepoints that are no collection.
    pub pauses: Vec<Pause>,
    /// The first 100,000 of them; `stall_lengths` has all.
    pub stalls: Vec<Stall>,
    pub stall_lengths: BTreeMap<Name, Lengths>,
    /// Work beside the application, by name.
    pub phases: BTreeMap<Name, Lengths>,
    /// Collections of ZGC and Shenandoah by (kind, cause).
    pub cycles: BTreeMap<(Name, Name), u64>,
    pub safepoints: BTreeMap<Name, Safepoints>,
    /// Milliseconds that all threads together were held back by Shenandoah's pacing.
    pub pacing_ms: f64,
    pub memory: Memory,
    pub lines: u64,
    /// Lines that are not of a collector's log at all.
    pub lines_unknown: u64,
    /// Lines that told something.
    pub lines_used: u64,
    /// The first line that was not understood, shortened.
    pub first_unknown: Option<String>,
}

/// What is known of the JVM whose lines are being read.
#[derive(Debug, Default)]
pub(super) struct State {
    pub now_s: f64,
    first_s: Option<f64>,
    first_wall_ms: Option<f64>,
    pub wall_ms: Option<f64>,
    /// The end of the last pause of a log whose lines have the time of its beginning.
    pub end_s: f64,
    has_clock: bool,
    any_event: bool,
    last_used: Option<u64>,
    /// Bytes in a region of G1.
    pub region_bytes: Option<u64>,
    /// Bytes that the old generation grew by in the pause that is being told.
    pub old_growth: Option<i64>,
    pub to_space_exhausted: bool,
    pub cycles: Vec<Cycle>,
    /// Why Shenandoah begins its next collection.
    pub trigger: Option<String>,
    pub pause_start: Option<(Option<u64>, f64)>,
    /// The operation that JDK 9 to 12 named when the safepoint began.
    pub entering: Option<Name>,
    pub paused_since_safepoint: bool,
    /// A pause of JDK 8 that is told over several lines.
    pub open: Option<super::jdk8::Open>,
    pub jdk8: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Cycle {
    pub number: u64,
    pub cause: Name,
}

/// Reads a log bit by bit. For one thread; never fails and never panics.
#[derive(Debug, Default)]
pub struct Reader {
    pub(super) log: Log,
    pub(super) state: State,
    line: Vec<u8>,
}

impl Reader {
    pub fn new() -> Reader {
        Reader::default()
    }

    /// Takes the next bytes; lines may be cut anywhere.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut parts = bytes.split(|byte| *byte == b'\n');
        let last = parts.next_back().unwrap_or_default();
        for part in parts {
            self.keep(part);
            self.end_line();
        }
        self.keep(last);
    }

    /// The end of a file: a line that was cut off is read as it is. The next file may go on in the middle of a pause.
    pub fn end_file(&mut self) {
        if !self.line.is_empty() {
            self.end_line();
        }
    }

    pub fn finish(mut self) -> Log {
        self.end_file();
        self.end_jvm();
        self.log
    }

    fn keep(&mut self, part: &[u8]) {
        let room = LINE_LEN_MAX.saturating_sub(self.line.len());
        self.line.extend_from_slice(&part[..part.len().min(room)]);
    }

    fn end_line(&mut self) {
        let mut line = std::mem::take(&mut self.line);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        self.line(&String::from_utf8_lossy(&line));
        line.clear();
        self.line = line;
    }

    fn line(&mut self, text: &str) {
        self.log.lines += 1;
        if text.trim().is_empty() {
            return;
        }
        let line = Line::cut(text);
        self.tick(&line);
        if self.unified(&line) || self.jdk8(&line) {
            self.log.lines_used += 1;
            self.state.any_event = true;
        } else if !self.belongs(&line) {
            self.log.lines_unknown += 1;
            if self.log.first_unknown.is_none() {
                self.log.first_unknown = Some(text.chars().take(100).collect());
            }
        }
    }

    /// Whether a line that tells nothing is at least one that a JVM wrote.
    fn belongs(&self, line: &Line<'_>) -> bool {
        line.decorated && (line.tags.is_some() || line.uptime_s.is_some() || line.wall_ms.is_some())
            || line.message.starts_with("GC(")
            || self.state.any_event && (self.state.jdk8 || !line.decorated && !self.state.has_clock)
    }

    /// Moves the clock on; a clock that goes back begins another JVM.
    fn tick(&mut self, line: &Line<'_>) {
        let relative = |first: Option<f64>| line.wall_ms.map(|ms| (ms - first.unwrap_or(ms)) / 1e3);
        let Some(mut now) = line.uptime_s.or(relative(self.state.first_wall_ms)) else { return };
        if line.uptime_s.is_some() && self.state.has_clock && now < self.state.now_s - CLOCK_BACK_S {
            self.next_jvm();
        }
        if line.uptime_s.is_none() && self.state.first_wall_ms.is_none() {
            now = 0.0;
        }
        let state = &mut self.state;
        state.has_clock = true;
        state.now_s = if state.first_s.is_some() { now.max(state.now_s) } else { now };
        state.first_s.get_or_insert(now);
        if line.wall_ms.is_some() {
            state.wall_ms = line.wall_ms;
            state.first_wall_ms = state.first_wall_ms.or(line.wall_ms);
        }
    }

    /// For logs without times: safepoints tell how long it was since the last one.
    pub(super) fn advance(&mut self, ms: f64) {
        if !self.state.has_clock {
            self.state.first_s.get_or_insert(0.0);
            self.state.now_s += ms / 1e3;
        }
    }

    pub(super) fn next_jvm(&mut self) {
        if self.state.any_event && self.log.jvms.len() < JVMS_MAX {
            self.end_jvm();
            self.log.jvms.push(Jvm::default());
        }
        let has_clock = self.state.has_clock;
        self.state = State { has_clock, ..State::default() };
    }

    fn end_jvm(&mut self) {
        let last_s = self.state.now_s.max(self.state.end_s);
        let wall_s = last_s - self.state.first_s.unwrap_or(last_s);
        if self.state.any_event || self.state.first_s.is_some() {
            self.jvm().wall_s = wall_s;
        }
    }

    pub(super) fn jvm(&mut self) -> &mut Jvm {
        if self.log.jvms.is_empty() {
            self.log.jvms.push(Jvm::default());
        }
        self.log.jvms.last_mut().expect("one was just made")
    }

    /// A JVM says which collector it has: if there was something before, this is another JVM.
    pub(super) fn collector(&mut self, name: &str) {
        if self.jvm().collector.is_some() {
            self.next_jvm();
        }
        self.jvm().collector = Some(name.to_string());
    }

    /// A collection stopped the application. `ended_s` is the line's time where that is the end.
    pub(super) fn pause(&mut self, kind: &str, cause: Name, fact: PauseFact) {
        self.jvm();
        let kind = self.log.names.number(kind);
        let end_wall = self.state.wall_ms;
        let (start_s, start_wall_ms) = match fact.start_s {
            Some(start) => (start, end_wall.map(|ms| ms - (self.state.now_s - start) * 1e3)),
            None => {
                let start = self.state.now_s - fact.length_ms / 1e3;
                (start, end_wall.map(|ms| ms - fact.length_ms))
            }
        };
        let jvm = self.log.jvms.len() as u32 - 1;
        self.log.pauses.push(Pause {
            start_s: start_s.max(0.0),
            start_wall_ms,
            length_ms: fact.length_ms,
            kind,
            cause,
            collection: fact.collection,
            cycle: fact.cycle,
            heap: fact.heap,
            jvm,
        });
        if fact.collection {
            self.state.paused_since_safepoint = true;
        }
        if let Some(heap) = fact.heap {
            self.heap(heap);
        }
    }

    /// The heap's use changed; what was used more than after the last change was allocated.
    pub(super) fn heap(&mut self, change: HeapChange) {
        let memory = &mut self.log.memory;
        if let Some(last) = self.state.last_used {
            let more = change.before as i64 - last as i64;
            if more > -ROUNDING_BYTES {
                memory.allocated = memory.allocated.saturating_add_signed(more);
            }
        }
        self.state.last_used = Some(change.after);
        memory.used_max = memory.used_max.max(change.before).max(change.after);
        memory.capacity_max = memory.capacity_max.max(change.capacity.unwrap_or(0));
    }

    pub(super) fn allocated(&mut self, bytes: u64) {
        self.log.memory.allocated = self.log.memory.allocated.saturating_add(bytes);
    }

    pub(super) fn promoted(&mut self, bytes: u64) {
        let promoted = self.log.memory.promoted.get_or_insert(0);
        *promoted = promoted.saturating_add(bytes);
    }

    pub(super) fn phase(&mut self, name: &str, ms: f64) {
        self.jvm();
        let name = self.log.names.number(name);
        self.log.phases.entry(name).or_default().add(ms);
    }

    pub(super) fn stall(&mut self, kind: &str, ms: f64) {
        let jvm = self.log.jvms.len().max(1) as u32 - 1;
        self.jvm();
        let kind = self.log.names.number(kind);
        self.log.stall_lengths.entry(kind).or_default().add(ms);
        if self.log.stalls.len() < STALLS_MAX {
            let start_s = (self.state.now_s - ms / 1e3).max(0.0);
            let start_wall_ms = self.state.wall_ms.map(|wall_ms| wall_ms - ms);
            self.log.stalls.push(Stall { start_s, start_wall_ms, length_ms: ms, kind, jvm });
        }
    }

    /// All threads had stopped and went on.
    pub(super) fn safepoint(&mut self, operation: Name, reaching_ms: f64, total_ms: f64) {
        self.jvm();
        let collection = std::mem::take(&mut self.state.paused_since_safepoint)
            || is_collection(self.log.names.text(operation));
        let safepoints = self.log.safepoints.entry(operation).or_default();
        safepoints.collection = collection;
        safepoints.reaching.add(reaching_ms);
        safepoints.total.add(total_ms);
        if !collection {
            let fact = PauseFact { length_ms: total_ms, collection: false, ..PauseFact::default() };
            self.pause(SAFEPOINT, operation, fact);
        }
    }

    pub(super) fn cycle_begins(&mut self, number: u64, cause: Name) {
        let cycles = &mut self.state.cycles;
        cycles.retain(|cycle| cycle.number != number);
        if cycles.len() >= CYCLES_MAX {
            cycles.remove(0);
        }
        cycles.push(Cycle { number, cause });
    }

    /// Why a collection was begun, if that was said; else the empty name.
    pub(super) fn cause_of(&mut self, number: Option<u64>) -> Name {
        let found = self.state.cycles.iter().rev().find(|cycle| Some(cycle.number) == number);
        found.map(|cycle| cycle.cause).unwrap_or_else(|| self.log.names.number(""))
    }
}

#[derive(Debug)]
pub(super) struct PauseFact {
    pub length_ms: f64,
    /// Where the log gives it; else the line was written at the end.
    pub start_s: Option<f64>,
    pub collection: bool,
    pub cycle: Option<u64>,
    pub heap: Option<HeapChange>,
}

impl Default for PauseFact {
    fn default() -> PauseFact {
        PauseFact { length_ms: 0.0, start_s: None, collection: true, cycle: None, heap: None }
    }
}

/// Operations of the virtual machine that are collections, in HotSpot's words from JDK 9 to 25.
fn is_collection(operation: &str) -> bool {
    const STARTS: &[&str] =
        &["G1", "CGC_", "GenCollect", "Parallel", "Serial", "CMS_", "Shenandoah", "XMark", "XRelocate"];
    // ZVerify and the like stop the world as well, on behalf of the collector
    let z =
        operation.strip_prefix('Z').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
    z || STARTS.iter().any(|start| operation.starts_with(start))
        || operation == "CollectForMetadataAllocation"
        || operation == "CollectForCodeCacheAllocation"
}
