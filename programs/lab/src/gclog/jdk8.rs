//! The log of JDK 8 (`-XX:+PrintGCDetails`): `[GC pause (G1 Evacuation Pause) (young), 0.0200001 secs]`.
//!
//! A pause is one pair of brackets with others nested inside, perhaps over several lines, as when
//! `PrintAdaptiveSizePolicy` or `PrintTenuringDistribution` writes in between. What counts stands between the outer
//! brackets: kind and cause in front, the heap's change, and last the length. G1 tells the heap in a line behind.
//!
//! ```text
//! [GC (Allocation Failure) 64.322: [ParNew: 613404K->68068K(613440K), 0.10 secs] 10885349K->10880154K(12514816K), 0.10 secs]
//!  kind cause                       young generation, nested                     heap                             length
//! ```

use super::events::HeapChange;
use super::line::Line;
use super::numbers::{change, groups, length, size};
use super::reader::{PauseFact, Reader};

/// Longest text of one pause, in bytes; what does not end by then is damaged.
const PAUSE_LEN_MAX: usize = 64 << 10;

/// A pause whose end has not come.
#[derive(Debug)]
pub(super) struct Open {
    start_s: f64,
    text: String,
}

impl Reader {
    /// Whether the line told something in this form.
    pub(super) fn jdk8(&mut self, line: &Line<'_>) -> bool {
        let text = line.message.trim();
        if let Some(rest) = text.strip_prefix("[GC concurrent-").or(text.strip_prefix("[CMS-concurrent-")) {
            return self.jdk8_phase(rest);
        }
        if ["[GC ", "[Full GC ", "[GC--"].iter().any(|start| text.starts_with(start)) {
            self.jdk8_mark();
            let text = text.to_string();
            return self.jdk8_more(Open { start_s: self.state.now_s, text });
        }
        if let Some(rest) = text.strip_prefix("[Eden: ") {
            return self.jdk8_g1_heap(rest);
        }
        if self.jdk8_head(text) {
            self.state.open = None;
            return true;
        }
        if let Some(mut open) = self.state.open.take() {
            open.text.push(' ');
            open.text.push_str(line.message);
            return self.jdk8_more(open);
        }
        false
    }

    fn jdk8_mark(&mut self) {
        self.jvm();
        self.state.jdk8 = true;
    }

    /// The lines at the beginning.
    fn jdk8_head(&mut self, text: &str) -> bool {
        if text.contains("64-Bit Server VM (") && text.contains("JRE (") {
            if self.jvm().version.is_some() {
                self.next_jvm();
            }
            let version = text.split_once("JRE (").and_then(|(_, rest)| rest.split_once(')'));
            self.jvm().version = version.map(|(version, _)| version.chars().take(60).collect());
            self.jdk8_mark();
            return true;
        }
        let Some(flags) = text.strip_prefix("CommandLine flags: ") else { return false };
        let known = [
            ("+UseG1GC", "G1"),
            ("+UseConcMarkSweepGC", "CMS"),
            ("+UseParallelGC", "Parallel"),
            ("+UseSerialGC", "Serial"),
        ];
        let found = known.iter().find(|(flag, _)| flags.contains(flag));
        self.jvm().collector = found.map(|(_, name)| name.to_string());
        self.jdk8_mark();
        true
    }

    fn jdk8_phase(&mut self, rest: &str) -> bool {
        self.jdk8_mark();
        // G1 ends with `mark-end, 0.0112 secs]`, CMS with `mark: 0.035/0.035 secs]` of which the second is by the clock
        let Some(rest) = rest.split_once(" secs]").map(|(rest, _)| rest) else { return false };
        let found = match rest.split_once("-end, ") {
            Some(found) => Some(found),
            None => rest.split_once(": ").and_then(|(name, times)| Some((name, times.rsplit_once('/')?.1))),
        };
        let Some((name, ms)) = found.and_then(|(name, seconds)| Some((name, length(seconds, 1e3)?))) else {
            return false;
        };
        self.phase(&format!("concurrent-{name}"), ms);
        true
    }

    /// A pause, whole or not.
    fn jdk8_more(&mut self, open: Open) -> bool {
        match outer(&open.text) {
            Some(text) => self.jdk8_pause(&text, &open),
            None if open.text.len() < PAUSE_LEN_MAX => {
                self.state.open = Some(open);
                true
            }
            None => false,
        }
    }

    fn jdk8_pause(&mut self, text: &str, open: &Open) -> bool {
        let Some((head, seconds)) = text.strip_suffix(" secs").and_then(|text| text.rsplit_once(", ")) else {
            return false;
        };
        let Some(length_ms) = length(seconds, 1e3) else { return false };
        let heap = head.split([' ', ',']).filter(|word| word.contains("->")).find_map(change);
        let named = head.split(|c: char| c.is_ascii_digit()).next().unwrap_or(head);
        let named = if head.contains("G1") { head } else { named };
        let (base, inside) = groups(named);
        let base = base.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default().trim();
        let (kind, cause) = jdk8_names(base, &inside, &open.text);
        let cause = self.log.names.number(cause);
        let fact = PauseFact { length_ms, start_s: Some(open.start_s), heap, ..PauseFact::default() };
        if let Some(heap) = heap
            && let Some(young) = young_change(&open.text)
            && kind == "Young"
        {
            let old = |all: u64, young: u64| all.saturating_sub(young);
            self.promoted(old(heap.after, young.after).saturating_sub(old(heap.before, young.before)));
        }
        self.state.end_s = self.state.end_s.max(open.start_s + length_ms / 1e3);
        self.pause(&kind, cause, fact);
        true
    }

    /// `[Eden: 24.0M(24.0M)->0.0B(13.0M) Survivors: 0.0B->3072.0K Heap: 24.0M(256.0M)->21.9M(256.0M)]` behind a pause of G1.
    fn jdk8_g1_heap(&mut self, rest: &str) -> bool {
        let rest = rest.trim_end_matches(']');
        let of = |label: &str| {
            let at = rest.find(label).map_or(0, |at| at + label.len());
            rest[at..].split_whitespace().next().and_then(change)
        };
        let (Some(eden), Some(heap)) = (of(""), of("Heap: ")) else { return false };
        if let Some(survivors) = of("Survivors: ") {
            let old =
                |all: u64, eden: u64, survivors: u64| all.saturating_sub(eden).saturating_sub(survivors);
            let before = old(heap.before, eden.before, survivors.before);
            let grown = old(heap.after, eden.after, survivors.after).saturating_sub(before);
            let young = self.log.pauses.last().is_some_and(|pause| {
                let kind = self.log.names.text(pause.kind);
                kind.starts_with("Young") && !kind.contains("mixed")
            });
            if young {
                self.promoted(grown);
            }
        }
        if let Some(last) = self.log.pauses.last_mut()
            && last.heap.is_none()
        {
            last.heap = Some(heap);
        }
        self.heap(heap);
        true
    }
}

/// Kind and cause from the words in front of a pause.
fn jdk8_names<'a>(base: &str, inside: &[&'a str], whole: &str) -> (String, &'a str) {
    let (mut kind, mut cause) = (String::new(), "");
    let mut extra = String::new();
    for group in inside.iter().filter(|group| !group.is_empty()) {
        match *group {
            "young" => kind = "Young".to_string(),
            "mixed" => kind = "Young (mixed)".to_string(),
            "initial-mark" => extra.push_str(" (initial mark)"),
            "to-space exhausted" | "to-space overflow" => extra.push_str(", evacuation failed"),
            "CMS Initial Mark" | "CMS Final Remark" => kind = group.to_string(),
            other if other.contains("->") || other.ends_with('K') || other.ends_with('M') => {}
            other if cause.is_empty() => cause = other,
            _ => {}
        }
    }
    if kind.is_empty() {
        kind = match base {
            "Full GC" => "Full",
            "GC remark" => "Remark",
            "GC cleanup" => "Cleanup",
            _ => "Young",
        }
        .to_string();
    }
    if whole.contains(")--") && extra.is_empty() {
        extra.push_str(", evacuation failed");
    }
    if whole.contains("promotion failed") || whole.contains("concurrent mode failure") {
        extra.push_str(", promotion failed");
    }
    (kind + &extra, cause)
}

/// What stands in the outermost brackets, without what is nested; `None` while they are open.
fn outer(text: &str) -> Option<String> {
    let (mut depth, mut found) = (0usize, String::new());
    for c in text.chars() {
        match c {
            '[' => depth += 1,
            ']' if depth == 1 => return Some(found.trim().to_string()),
            ']' => depth = depth.saturating_sub(1),
            c if depth == 1 => found.push(c),
            _ => {}
        }
    }
    None
}

/// How the young generation changed, nested as `[ParNew: 613404K->68068K(613440K), ...`.
fn young_change(text: &str) -> Option<HeapChange> {
    let young = ["[ParNew", "[PSYoungGen: ", "[DefNew"].iter().find_map(|label| text.split_once(label))?.1;
    let at = young.find("K->")?;
    let digits = young[..at].bytes().rev().take_while(u8::is_ascii_digit).count();
    let words = young[at - digits..].split([',', ']', ' ']).next()?;
    size(words)?;
    change(words)
}
