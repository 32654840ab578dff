//! `halcyon shadow replay`: the reads of a recording go to two clusters, at their pace.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use halcyon_env::Env;
use halcyon_schema::TableName;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::args::ReplayArgs;
use crate::ask::{Asked, System};
use crate::judge::Judge;
use crate::recording::format::{Header, Recorded};
use crate::recording::reader::{FileReader, files_of};
use crate::report::{self, Facts};
use crate::{StopSignals, Ticks};

/// Records that were read and wait.
const AHEAD_MAX: usize = 64;
/// A recording has its reads in the order of their ends. Among so many the one that began first goes first.
const REORDERED: usize = 512;
/// The same in bytes of records.
const REORDERED_BYTES_MAX: usize = 64 << 20;

/// What the thread that reads files tells.
enum Piece {
    Read(Box<Recorded>),
    /// The rest of a file cannot be read.
    Damage(String),
}

pub(crate) async fn replay(args: ReplayArgs, env: Env) -> Result<(), String> {
    let (files, headers) = open(&env, &args.files)?;
    let hashed = headers.iter().any(|header| header.has_hashed_values);
    let uses_recorded = args.a.is_none();
    if uses_recorded && !headers.iter().all(|header| header.has_answers) {
        return Err(
            "without --a the recording is side a, and this one has no answers: record with --answers"
                .to_string(),
        );
    }
    if headers.iter().any(|header| header.has_hashed_values != hashed) {
        return Err("some of the recordings have checksums of values, and some have values".to_string());
    }
    let tables = tables(&args.tables)?;
    let limits = args.compare.limits();
    let a = match &args.a {
        Some(address) => Some(System::connect("--a", address.clone(), limits).await?),
        None => None,
    };
    let b = System::connect("--b", args.b.clone(), limits).await?;
    let name_a = args.a.as_ref().map_or("the recording".to_string(), ToString::to_string);
    let name_b = b.address.to_string();
    let judge = Judge::new(a, b, args.compare.patience(), uses_recorded && hashed);

    let (sender, receiver) = mpsc::channel(AHEAD_MAX);
    let reading = halcyon_env::spawn_thread("shadow-reader", move || read(files, &sender));
    reading.map_err(|error| format!("cannot start a thread: {error}"))?;
    let began = Instant::now();
    let mut pace = Pace { speed: args.speed, first: None };
    let mut stop = StopSignals::watch()?;
    let mut ticks = Ticks::every(args.progress_period);
    let going = run(receiver, &judge, &mut pace, args.compare.threads as usize, &tables, uses_recorded);
    tokio::pin!(going);
    let ended = loop {
        tokio::select! {
            damage = &mut going => break damage,
            name = stop.next() => {
                println!("stopped by {name}");
                break None;
            }
            () = ticks.next() => println!("{}", report::progress(&judge.tally.lock())),
        }
    };
    let tally = judge.tally.lock().clone();
    let note = match (uses_recorded, args.speed) {
        (true, _) => "Side a is the recording: answers and latencies as the proxy saw them.".to_string(),
        (false, 0.0) => {
            format!("As fast as {} reads at a time allow, both sides at once.", args.compare.threads)
        }
        (false, speed) => format!("At {speed} times the recorded pace, both sides at once."),
    };
    let sample = headers.first().map_or(1.0, |header| header.sample);
    let facts = Facts {
        title: "Replayed reads".to_string(),
        a: name_a,
        b: name_b,
        note,
        seconds: began.elapsed().as_secs_f64(),
        sample,
        proxy: None,
        dropped: 0,
        left_out: 0,
        damage: ended,
    };
    report::conclude(&env, &args.compare, &facts, &tally)
}

/// Opens all files, so that one that is no recording shows before anything is sent.
fn open(env: &Env, paths: &[PathBuf]) -> Result<(Vec<FileReader>, Vec<Header>), String> {
    let mut files = Vec::new();
    for path in paths {
        for file in files_of(env, path).map_err(|error| error.to_string())? {
            files.push(FileReader::open(env, &file).map_err(|error| error.to_string())?);
        }
    }
    let headers = files.iter().map(|file| file.header().clone()).collect();
    Ok((files, headers))
}

fn tables(names: &[String]) -> Result<Option<BTreeSet<TableName>>, String> {
    if names.is_empty() {
        return Ok(None);
    }
    let parsed = names
        .iter()
        .map(|name| TableName::parse(name.as_bytes()).map_err(|error| format!("--tables {name}: {error}")));
    parsed.collect::<Result<_, _>>().map(Some)
}

/// The body of the thread that reads.
fn read(files: Vec<FileReader>, sender: &Sender<Piece>) {
    for mut file in files {
        loop {
            let piece = match file.next() {
                Ok(Some(recorded)) => Piece::Read(Box::new(recorded)),
                Ok(None) => break,
                Err(error) => Piece::Damage(error.to_string()),
            };
            let is_damage = matches!(piece, Piece::Damage(_));
            if sender.blocking_send(piece).is_err() {
                return; // the replay was stopped
            }
            if is_damage {
                break;
            }
        }
    }
}

/// When each read has its turn.
struct Pace {
    speed: f64,
    /// The first read: when it was recorded, and when it was sent.
    first: Option<(u64, Instant)>,
}

impl Pace {
    fn turn(&mut self, at_us: u64) -> Instant {
        let (first_us, began) = *self.first.get_or_insert_with(|| (at_us, Instant::now()));
        if self.speed == 0.0 {
            return began;
        }
        let after = Duration::from_micros(at_us.saturating_sub(first_us));
        began + after.div_f64(self.speed).min(Duration::from_secs(365 * 24 * 3600))
    }
}

/// Sends all reads; returns what was damaged, if anything was.
async fn run(
    mut receiver: Receiver<Piece>,
    judge: &Arc<Judge>,
    pace: &mut Pace,
    at_a_time: usize,
    tables: &Option<BTreeSet<TableName>>,
    uses_recorded: bool,
) -> Option<String> {
    let places = Arc::new(Semaphore::new(at_a_time));
    let mut tasks = JoinSet::new();
    let mut waiting: BinaryHeap<Reverse<Next>> = BinaryHeap::new();
    let (mut damage, mut number, mut is_end, mut bytes) = (None, 0, false, 0);
    loop {
        while !is_end && waiting.len() < REORDERED && (bytes < REORDERED_BYTES_MAX || waiting.is_empty()) {
            match receiver.recv().await {
                Some(Piece::Read(recorded)) => {
                    let wanted = tables.as_ref().is_none_or(|tables| tables.contains(recorded.read.table()));
                    if wanted {
                        number += 1;
                        bytes += recorded.bytes;
                        waiting.push(Reverse(Next { at_us: recorded.at_us, number, recorded }));
                    }
                }
                Some(Piece::Damage(text)) => damage = damage.or(Some(text)),
                None => is_end = true,
            }
        }
        let Some(Reverse(next)) = waiting.pop() else { break };
        bytes -= next.recorded.bytes;
        let turn = pace.turn(next.at_us);
        sleep_until(turn).await;
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { break };
        while tasks.try_join_next().is_some() {}
        if pace.speed > 0.0 {
            judge.tally.lock().late(turn.elapsed());
        }
        let (judge, slot) = (Arc::clone(judge), next.number as usize);
        tasks.spawn(async move {
            let Recorded { read, answer, took_us, .. } = *next.recorded;
            let asked = Asked { answer: Ok(answer), took: Duration::from_micros(took_us) };
            let recorded = uses_recorded.then_some(asked);
            judge.ask_both(&read, slot, recorded).await;
            drop(place);
        });
    }
    while tasks.join_next().await.is_some() {}
    damage
}

/// A read that waits for its turn; those that began first go first.
struct Next {
    at_us: u64,
    number: u64,
    recorded: Box<Recorded>,
}

impl PartialEq for Next {
    fn eq(&self, other: &Next) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Next {}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Next) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Next {
    fn cmp(&self, other: &Next) -> std::cmp::Ordering {
        (self.at_us, self.number).cmp(&(other.at_us, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_that_of_the_recording_or_faster() {
        let after = |speed, at_us| {
            let mut pace = Pace { speed, first: None };
            let first = pace.turn(5_000_000);
            pace.turn(at_us).duration_since(first)
        };
        assert_eq!(after(1.0, 7_000_000), Duration::from_secs(2));
        assert_eq!(after(4.0, 7_000_000), Duration::from_millis(500));
        assert_eq!(after(0.0, 7_000_000), Duration::ZERO);
        assert_eq!(after(1.0, 4_000_000), Duration::ZERO);
        assert!(after(0.001, u64::MAX) > Duration::from_secs(1));
    }
}
