//! The unified log of JDK 9 and later: `GC(7) Pause Young (Normal) (G1 Evacuation Pause) 57M->3M(96M) 3.719ms`.
//!
//! A message is known by its first words, not by its tags: tags may have been left out. The forms stand in the collectors'
//! sources (`gcTraceTime`, `xStat`, `zStat`, `shenandoahUtils`, `safepoint.cpp`); lines of JDK 17 and 25 in `testdata/` are
//! real ones.

use super::events::HeapChange;
use super::line::Line;
use super::numbers::{change, groups, length, millis, size};
use super::reader::{PauseFact, Reader};

/// Words in brackets behind a pause that say what kind it is; all others say why.
const KINDS: &[&str] =
    &["Normal", "Mixed", "Concurrent Start", "Prepare Mixed", "Initial Mark", "Concurrent End"];
/// Words of Shenandoah that say which part of the heap, or what else is done.
const KINDS_LATER: &[&str] = &["Young", "Old", "Global", "Bootstrap Old"];
const ASIDES: &[&str] = &["unload classes", "process weakrefs", "update refs"];

impl Reader {
    /// Whether the line told something in this form.
    pub(super) fn unified(&mut self, line: &Line<'_>) -> bool {
        let (cycle, message) = cycle_number(line.message);
        let (generation, message) = generation(message);
        let message = message.trim_end();
        if let Some(rest) = message.strip_prefix("Pause ") {
            return self.unified_pause(cycle, generation, rest);
        }
        if message.starts_with("Concurrent ") {
            return self.unified_phase(cycle, generation, message);
        }
        if let Some(rest) = message.strip_prefix("Safepoint \"") {
            return self.one_line_safepoint(rest);
        }
        match cycle {
            Some(number) => self.of_cycle(number, generation, message),
            None => self.old_safepoint(message) || self.stall_line(message) || self.about_jvm(message),
        }
    }

    fn unified_pause(&mut self, cycle: Option<u64>, generation: &str, text: &str) -> bool {
        let Some((text, length_ms)) = text.rsplit_once(' ').and_then(|(head, ms)| Some((head, millis(ms)?)))
        else {
            // a table of statistics has pauses, too, in microseconds
            if cycle.is_none() || text.ends_with("us") || text.contains("workers (us)") {
                return false;
            }
            self.shenandoah_begins(cycle);
            self.state.pause_start = Some((cycle, self.state.now_s));
            return true;
        };
        let text = without_times(text);
        let (text, heap) = with_change(text);
        let (base, inside) = groups(text);
        let (mut kind, mut cause) = (base.to_string(), None);
        for group in inside {
            if KINDS.contains(&group) || KINDS_LATER.contains(&group) {
                kind = format!("{kind} ({group})");
            } else if group.starts_with("Evacuation Failure") {
                kind = format!("{kind}, evacuation failed");
            } else if !ASIDES.contains(&group) && generation.is_empty() {
                cause = Some(group);
            }
        }
        if !generation.is_empty() {
            kind = format!("{kind} ({generation})");
        }
        if std::mem::take(&mut self.state.to_space_exhausted) && !kind.ends_with("failed") {
            kind.push_str(", evacuation failed");
        }
        let cause = match cause {
            Some(cause) => self.log.names.number(cause),
            None => self.cause_of(cycle),
        };
        let started =
            self.state.pause_start.take().filter(|(number, _)| *number == cycle).map(|(_, start)| start);
        let slack_s = length_ms / 1e3 + 1.0;
        let start_s = started.filter(|start| self.state.now_s - start <= slack_s + length_ms / 1e3);
        self.pause(&kind, cause, PauseFact { length_ms, start_s, cycle, heap, ..PauseFact::default() });
        let growth = self.state.old_growth.take();
        if let Some(growth) = growth
            && base == "Young"
            && !kind.contains("(Mixed)")
        {
            self.promoted(u64::try_from(growth).unwrap_or(0));
        }
        true
    }

    fn unified_phase(&mut self, cycle: Option<u64>, generation: &str, text: &str) -> bool {
        let Some((text, length_ms)) = text.rsplit_once(' ').and_then(|(head, ms)| Some((head, millis(ms)?)))
        else {
            if cycle.is_some() && text.to_ascii_lowercase().starts_with("concurrent reset") {
                self.shenandoah_begins(cycle);
            }
            return false;
        };
        let (text, heap) = with_change(without_times(text));
        let (base, inside) = groups(text);
        let mut name = base.to_string();
        for group in inside.iter().filter(|group| KINDS_LATER.contains(group)) {
            name = format!("{name} ({group})");
        }
        if !generation.is_empty() {
            name = format!("{name} ({generation})");
        }
        self.phase(&name, length_ms);
        if let Some(heap) = heap {
            self.heap(heap);
        }
        true
    }

    /// JDK 13 and later: one line with everything, in nanoseconds.
    fn one_line_safepoint(&mut self, text: &str) -> bool {
        let Some((name, rest)) = text.split_once('"') else { return false };
        let field = |label: &str| {
            let (_, behind) = rest.split_once(label)?;
            length(behind.trim_start().split_once(" ns")?.0, 1e-6)
        };
        let (Some(reaching), Some(total)) = (field("Reaching safepoint:"), field("Total:")) else {
            return false;
        };
        self.advance(field("Time since last:").unwrap_or(0.0) + total);
        let name = self.log.names.number(name);
        self.safepoint(name, reaching, total);
        true
    }

    /// JDK 8 to 12: sentences in seconds.
    fn old_safepoint(&mut self, text: &str) -> bool {
        let seconds = |behind: &str| length(behind.trim_start().split_once(" seconds")?.0, 1e3);
        if let Some(name) = text.strip_prefix("Entering safepoint region: ") {
            self.state.entering = Some(self.log.names.number(name.trim()));
            return true;
        }
        if let Some(ran) = text.strip_prefix("Application time:").and_then(seconds) {
            self.advance(ran);
            return true;
        }
        let Some(behind) = text.strip_prefix("Total time for which application threads were stopped:") else {
            return text == "Leaving safepoint region";
        };
        let Some(total) = seconds(behind) else { return false };
        let reaching = behind.split_once("took:").and_then(|(_, behind)| seconds(behind)).unwrap_or(0.0);
        self.advance(total);
        let name = self.state.entering.take();
        let unnamed = if self.state.paused_since_safepoint { "collections" } else { "not named" };
        let name = name.unwrap_or_else(|| self.log.names.number(unnamed));
        self.safepoint(name, reaching, total);
        true
    }

    /// `Allocation Stall (Thread-0) 11.956ms`; the thread's name may be anything.
    fn stall_line(&mut self, text: &str) -> bool {
        let Some((kind, rest)) = text.split_once(" Stall (") else { return false };
        let Some(ms) = rest.rsplit_once(") ").and_then(|(_, ms)| millis(ms)) else { return false };
        if !matches!(kind, "Allocation" | "Relocation" | "Page Cache Flush") {
            return false;
        }
        self.stall(&format!("{kind} Stall"), ms);
        true
    }

    /// Lines about the JVM as a whole.
    fn about_jvm(&mut self, text: &str) -> bool {
        const COLLECTORS: &[(&str, &str)] = &[
            ("G1", "G1"),
            ("Parallel", "Parallel"),
            ("Serial", "Serial"),
            ("Concurrent Mark Sweep", "CMS"),
            ("Shenandoah", "Shenandoah"),
            ("The Z Garbage Collector", "ZGC"),
            ("Epsilon", "Epsilon"),
        ];
        if let Some(name) = text.strip_prefix("Using ").or(text.strip_prefix("Initializing ")) {
            let Some((_, name)) = COLLECTORS.iter().find(|(written, _)| *written == name) else {
                return false;
            };
            let again = *name == "ZGC" && text.starts_with("Using");
            if !again || self.jvm().collector.is_none() {
                self.collector(name);
            }
            return true;
        }
        if let Some(version) = text.strip_prefix("Version: ") {
            let version = version.split_whitespace().next().unwrap_or_default().to_string();
            self.jvm().version = Some(version).filter(|version| !version.is_empty() && version.len() < 60);
            return true;
        }
        if let Some(size_text) =
            text.strip_prefix("Heap Region Size: ").or(text.strip_prefix("Heap region size: "))
        {
            self.state.region_bytes = size(size_text).map(|(bytes, _)| bytes);
            return true;
        }
        if let Some(size_text) =
            text.strip_prefix("Heap Max Capacity: ").or(text.strip_prefix("Max Capacity: "))
        {
            if let Some((bytes, _)) = size(size_text) {
                self.log.memory.capacity_max = self.log.memory.capacity_max.max(bytes);
            }
            return true;
        }
        if text == "Mode: Generational" {
            self.jvm().collector = Some("Shenandoah (generational)".to_string());
            return true;
        }
        if let Some(reason) = text.strip_prefix("Trigger") {
            if !reason.contains("already pending") {
                self.state.trigger = Some(trigger(reason).to_string());
            }
            return true;
        }
        if let Some(us) = text.strip_prefix("Pacing  ").and_then(|rest| rest.trim().strip_suffix(" us")) {
            self.log.pacing_ms += length(us, 1e-3).unwrap_or(0.0);
            return true;
        }
        false
    }

    /// Lines of one collection that are neither its pauses nor its concurrent phases.
    fn of_cycle(&mut self, number: u64, generation: &str, text: &str) -> bool {
        for kind in ["Garbage Collection", "Minor Collection", "Major Collection"] {
            if let Some(rest) = text.strip_prefix(kind) {
                return self.z_collection(number, kind, rest.trim());
            }
        }
        if let Some(rest) = text.strip_prefix("Young Generation ") {
            // the heap's use at the beginning and end of a collection of the young generation
            let heap = rest.split_whitespace().next().and_then(change);
            if let Some(heap) = heap {
                self.heap(heap);
            }
            return heap.is_some();
        }
        if text.starts_with("To-space exhausted") {
            self.state.to_space_exhausted = true;
            return true;
        }
        if let Some(rest) = text.strip_prefix("Old regions: ") {
            let numbers = rest.split_once("->").and_then(|(before, after)| {
                let after = after.split('(').next()?;
                Some((before.trim().parse::<u32>().ok()?, after.trim().parse::<u32>().ok()?))
            });
            if let (Some((before, after)), Some(bytes)) = (numbers, self.state.region_bytes) {
                let bytes = i64::try_from(bytes).unwrap_or(0);
                self.state.old_growth = Some((i64::from(after) - i64::from(before)).saturating_mul(bytes));
            }
            return numbers.is_some();
        }
        for old in ["ParOldGen: ", "PSOldGen: ", "Tenured: ", "CMS: "] {
            if let Some(rest) = text.strip_prefix(old) {
                let found = rest.split_whitespace().next().and_then(change);
                self.state.old_growth = found.map(|heap| heap.after as i64 - heap.before as i64);
                return found.is_some();
            }
        }
        self.z_table(generation, text)
    }

    /// The beginning of a collection of ZGC, which gives its cause, or the end, which has the heap.
    fn z_collection(&mut self, number: u64, kind: &str, rest: &str) -> bool {
        let (_, inside) = groups(rest);
        let Some(cause) = inside.first() else { return false };
        let cause = self.log.names.number(cause);
        self.jvm();
        if !rest.contains("->") {
            self.cycle_begins(number, cause);
            return true;
        }
        self.state.cycles.retain(|cycle| cycle.number != number);
        let name = self.log.names.number(kind);
        *self.log.cycles.entry((name, cause)).or_default() += 1;
        if kind == "Garbage Collection"
            && let Some(heap) = rest.rsplit(' ').find_map(change)
        {
            self.heap(heap);
        } else if self.jvm().collector.as_deref() == Some("ZGC") {
            self.jvm().collector = Some("ZGC (generational)".to_string());
        }
        true
    }

    /// `Allocated:  -  54M (42%)  64M (50%)  97M (77%)`: the last column is the sum at the end.
    fn z_table(&mut self, generation: &str, text: &str) -> bool {
        let Some((label, columns)) = text.trim_start().split_once(':') else { return false };
        if !matches!(label, "Allocated" | "Promoted" | "Reclaimed") {
            return false;
        }
        let last =
            columns.split_whitespace().rev().find_map(|word| size(word).filter(|(_, rest)| rest.is_empty()));
        let Some((bytes, _)) = last else { return false };
        match (label, generation) {
            ("Allocated", "" | "young" | "major young") => self.allocated(bytes),
            ("Promoted", "young" | "major young") => self.promoted(bytes),
            // what the old generation gave back is missing from the heap's use without having been unused
            ("Reclaimed", "old") => self.allocated(bytes),
            _ => return false,
        }
        true
    }

    /// Shenandoah names a reason in a line of its own and the number only with the first step.
    fn shenandoah_begins(&mut self, cycle: Option<u64>) {
        if let (Some(number), Some(reason)) = (cycle, self.state.trigger.take()) {
            let cause = self.log.names.number(&reason);
            self.cycle_begins(number, cause);
            let kind = self.log.names.number("Garbage Collection");
            *self.log.cycles.entry((kind, cause)).or_default() += 1;
        }
    }
}

/// Cuts off `GC(7) `.
fn cycle_number(text: &str) -> (Option<u64>, &str) {
    let found = text.strip_prefix("GC(").and_then(|rest| {
        let (number, rest) = rest.split_once(')')?;
        Some((number.parse().ok()?, rest.strip_prefix(' ').unwrap_or(rest)))
    });
    match found {
        Some((number, rest)) => (Some(number), rest),
        None => (None, text),
    }
}

/// Cuts off `y: `, `Y: ` or `O: `, which generational ZGC puts in front.
fn generation(text: &str) -> (&'static str, &str) {
    for (letter, name) in [("y: ", "young"), ("Y: ", "major young"), ("O: ", "old"), ("o: ", "old")] {
        if let Some(rest) = text.strip_prefix(letter) {
            return (name, rest);
        }
    }
    ("", text)
}

/// JDK 9 to 11 write `(66.033s, 66.050s)` in front of some lengths.
fn without_times(text: &str) -> &str {
    let cut = text.strip_suffix("s)").and_then(|head| head.rsplit_once(" ("));
    match cut {
        Some((head, inside)) if inside.contains("s, ") => head,
        _ => text,
    }
}

/// The heap's change, if it is the last word.
fn with_change(text: &str) -> (&str, Option<HeapChange>) {
    match text.rsplit_once(' ') {
        Some((head, last)) => match change(last) {
            Some(heap) => (head, Some(heap)),
            None => (text, None),
        },
        None => (text, None),
    }
}

/// A few words for the sentence in which Shenandoah explains itself with numbers.
fn trigger(reason: &str) -> &'static str {
    const WORDS: &[(&str, &str)] = &[
        ("Learning", "learning"),
        ("initial threshold", "free below threshold"),
        ("minimum threshold", "free below threshold"),
        ("is above the time", "allocation rate"),
        ("would deplete", "allocation rate"),
        ("accelerated consumption", "allocation rate"),
        ("Time since last GC", "time since last"),
        ("Allocation Failure", "allocation failure"),
        ("Metadata", "metadata"),
        ("System.gc", "System.gc()"),
        ("Old has overgrown", "old generation grew"),
        ("Expedite", "mixed evacuation"),
        ("Resume", "old marking"),
    ];
    WORDS.iter().find(|(part, _)| reason.contains(part)).map_or("other trigger", |(_, words)| words)
}
