//! Late syncs of files on other machines.
//!
//! A DataNode that hangs delays a sync for as long as the file system waits for its answer. So the thread that drives waits
//! for a limited time only ([`WritableFile::write_within`]). If the answer is late, a thread of the caller's
//! ([`SyncThreads`]) goes on waiting, and the same entries go to the spare file as well, on another thread. A file that
//! cannot stop waiting is written on such a thread from the beginning. The first file that answers well is the log's
//! current file from then on. The other one is dropped when it answers, which abandons it. If it was the current file it
//! stays with the closed files until the regions have flushed what it may hold. A spare file that has lost holds nothing
//! that is not elsewhere, and is removed soon. Until then it is one of [`Wal::useless_files`]; if the process dies before, who
//! reads it finds that it repeats the file before it (`repeats.rs`).
//!
//! If only some machines of the file are late and the spare file has them too, a race would be of no use. Then the current
//! file gets a little more time, and after that it is given up (`replace.rs`): the next one does without those machines.
//! It may have fewer copies, so a short pause of a machine is not reason enough.
//!
//! Entries then stand in two files, as after an error (`replace.rs`), and their checks are made anew for the second.
//!
//! An answer is late after four times the 99.9th percentile of the last minute, within the bounds of [`LateSyncs`]. The
//! spare file is used once a second at most. After two spare files in a row that were not faster it is once a minute:
//! then all DataNodes are slow, and more bytes for them do not help.
//!
//! Only rounds are raced, not what a roll or the end of the log writes.

use std::fmt;
use std::io;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{Error, Result};
use halcyon_env::sync::{Condvar, Mutex};
use halcyon_env::{Attempt, WritableFile};

use crate::appends::Batch;
use crate::check::{Mark, Salt};
use crate::format::reset_checks;
use crate::full::{Put, is_too_large};
use crate::log::{Wal, Writer};
use crate::new_file::NewFile;
use crate::roll::{ClosedFile, End};

/// Larger rounds are not raced: the file that loses holds them in memory until it answers.
const HEDGED_MAX_BYTES: usize = 4 << 20;
/// The shortest time between two uses of a spare file.
const HEDGE_PERIOD: Duration = Duration::from_secs(1);
/// The same while spare files are not faster.
const HEDGE_PERIOD_SLOW: Duration = Duration::from_secs(60);
/// So many spare files in a row that were not faster.
const LOST_MAX: u32 = 2;
/// A late sync takes so many times the 99.9th percentile.
const LATE_FACTOR: u64 = 4;
/// Half of the time that sync times are remembered.
const WINDOW: Duration = Duration::from_secs(30);
/// Quarters of powers of two, of microseconds.
const BUCKETS: usize = 128;

/// What a thread is given to do.
pub type SyncJob = Box<dyn FnOnce() + Send>;

/// Threads that wait for files on other machines.
pub trait SyncThreads: Send + Sync {
    /// Runs the job on an idle thread. Gives it back if there is none.
    fn run(&self, job: SyncJob) -> std::result::Result<(), SyncJob>;
}

/// When a sync is late, and which threads wait for it.
#[derive(Clone)]
pub struct LateSyncs {
    pub threads: Arc<dyn SyncThreads>,
    /// No sync is late before.
    pub late_min: Duration,
    /// Every sync is late after this.
    pub late_max: Duration,
    /// A file is not given up before, if the spare file has its late machines too.
    pub give_up_min: Duration,
}

impl fmt::Debug for LateSyncs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "late after {:?} to {:?}", self.late_min, self.late_max)
    }
}

/// A file of a race.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Current,
    Spare,
}

/// A file that was written and synced, or has failed.
struct Answer {
    which: Which,
    file: Box<dyn WritableFile>,
    result: io::Result<()>,
}

impl Answer {
    /// Without bytes it only waits for those that were written before.
    fn of(which: Which, mut file: Box<dyn WritableFile>, bytes: &[u8], to_disk: bool) -> Answer {
        let written = if bytes.is_empty() { Ok(()) } else { file.write_all(bytes) };
        let result = written.and_then(|()| if to_disk { file.sync() } else { file.flush() });
        Answer { which, file, result }
    }
}

/// One round on its way to one file or two.
struct Race {
    /// To the disks, or to the memory of the machines.
    to_disk: bool,
    state: Mutex<RaceState>,
    answered: Condvar,
}

#[derive(Default)]
struct RaceState {
    answers: Vec<Answer>,
    /// Whose answer comes now is too late.
    is_over: bool,
}

impl Race {
    fn new(to_disk: bool) -> Arc<Race> {
        Arc::new(Race { to_disk, state: Mutex::default(), answered: Condvar::default() })
    }

    /// Gives the file back if no thread is idle.
    fn start(
        self: &Arc<Race>,
        threads: &dyn SyncThreads,
        which: Which,
        file: Box<dyn WritableFile>,
        bytes: Arc<Vec<u8>>,
    ) -> Option<Box<dyn WritableFile>> {
        let slot = Arc::new(Mutex::new(Some(file)));
        let (race, taken) = (self.clone(), slot.clone());
        let job = move || {
            let file = taken.lock().take().expect("a job runs once, or its file is taken back");
            let answer = Answer::of(which, file, &bytes, race.to_disk);
            drop(bytes); // so that the buffer is free when the answer is there
            race.answer(answer);
        };
        let refused = threads.run(Box::new(job)).is_err();
        if refused { slot.lock().take() } else { None }
    }

    fn answer(&self, answer: Answer) {
        let mut state = self.state.lock();
        if state.is_over {
            drop(state);
            drop(answer); // abandons the file
            return;
        }
        state.answers.push(answer);
        self.answered.notify_one();
    }

    /// The next answer; with a limit, `None` if it is late.
    fn next(&self, limit: Option<Duration>) -> Option<Answer> {
        let mut state = self.state.lock();
        match limit {
            Some(limit) if state.answers.is_empty() && !limit.is_zero() => {
                self.answered.wait_for(&mut state, limit);
            }
            Some(_) => {}
            None => {
                while state.answers.is_empty() {
                    self.answered.wait(&mut state);
                }
            }
        }
        state.answers.pop()
    }

    fn end(&self) {
        let left = {
            let mut state = self.state.lock();
            state.is_over = true;
            mem::take(&mut state.answers)
        };
        drop(left);
    }
}

/// What stays of a spare file while a thread writes it.
struct Spare {
    path: PathBuf,
    salt: Salt,
    begin: u64,
}

/// What is known of earlier syncs and of earlier spare files.
#[derive(Default)]
pub(crate) struct Lateness {
    times: SyncTimes,
    hedged_ns: Option<u64>,
    lost_in_a_row: u32,
}

impl Lateness {
    fn limit(&self, late: &LateSyncs) -> Duration {
        let usual = Duration::from_nanos(LATE_FACTOR * self.times.p999_ns());
        usual.max(late.late_min).min(late.late_max)
    }

    fn may_hedge(&self, now_ns: u64) -> bool {
        let period = if self.lost_in_a_row < LOST_MAX { HEDGE_PERIOD } else { HEDGE_PERIOD_SLOW };
        self.hedged_ns.is_none_or(|before| now_ns.saturating_sub(before) >= period.as_nanos() as u64)
    }
}

/// Times of the last half minute and of the one before.
struct SyncTimes {
    windows: [[u32; BUCKETS]; 2],
    since_ns: u64,
}

impl Default for SyncTimes {
    fn default() -> SyncTimes {
        SyncTimes { windows: [[0; BUCKETS]; 2], since_ns: 0 }
    }
}

impl SyncTimes {
    fn note(&mut self, ns: u64, now_ns: u64) {
        let window_ns = WINDOW.as_nanos() as u64;
        let passed_ns = now_ns.saturating_sub(self.since_ns);
        if passed_ns >= window_ns {
            let before = if passed_ns < 2 * window_ns { self.windows[0] } else { [0; BUCKETS] };
            (self.windows, self.since_ns) = ([[0; BUCKETS], before], now_ns);
        }
        self.windows[0][bucket(ns)] += 1;
    }

    /// At least as long as all but a thousandth of the times took; 0 if there are none.
    fn p999_ns(&self) -> u64 {
        let count = |at: usize| u64::from(self.windows[0][at]) + u64::from(self.windows[1][at]);
        let total: u64 = (0..BUCKETS).map(count).sum();
        let mut left = total - total / 1000;
        let found = (0..BUCKETS).find(|at| {
            left = left.saturating_sub(count(*at));
            left == 0
        });
        if total == 0 { 0 } else { found.map_or(0, bucket_end_ns) }
    }
}

fn bucket(ns: u64) -> usize {
    let micros = (ns / 1000).max(1);
    let power = micros.ilog2();
    let quarter = ((micros << 2) >> power) & 3;
    (power as usize * 4 + quarter as usize).min(BUCKETS - 1)
}

fn bucket_end_ns(at: usize) -> u64 {
    let (power, quarter) = (at / 4, at as u64 % 4);
    ((5 + quarter) << power).div_ceil(4) * 1000
}

impl Wal {
    /// Writes and syncs a round, in the spare file too if the current one is late. The bytes are given back after an error,
    /// and otherwise if nobody needs them any more.
    pub(crate) fn put_racing(&self, late: &LateSyncs, writer: &mut Writer, batch: &mut Batch) -> Result<Put> {
        let begin_ns = self.env.clock.monotonic_ns();
        let to_disk = self.syncs_to_disk(batch.disk_wanted);
        let limit = writer.lateness.limit(late);
        match writer.file().write_within(&batch.buffer, to_disk, limit) {
            Attempt::Done(result) => self.put_alone(writer, begin_ns, result),
            Attempt::Late if self.is_race_useless(writer) => {
                match writer.file().wait_within(late.give_up_min.saturating_sub(limit)) {
                    Attempt::Done(result) => self.put_alone(writer, begin_ns, result),
                    Attempt::Late | Attempt::NotMade => {
                        Err(self.give_up(writer, limit.max(late.give_up_min)))
                    }
                }
            }
            Attempt::Late => {
                if writer.lateness.may_hedge(self.env.clock.monotonic_ns()) {
                    writer.file().avoid_late();
                }
                self.race(late, writer, batch, begin_ns, to_disk, None)
            }
            Attempt::NotMade => self.race(late, writer, batch, begin_ns, to_disk, Some(limit)),
        }
    }

    /// The current file has answered, and no other took part.
    fn put_alone(&self, writer: &mut Writer, begin_ns: u64, result: io::Result<()>) -> Result<Put> {
        if let Err(error) = result {
            return failed(writer, error);
        }
        let now_ns = self.env.clock.monotonic_ns();
        writer.lateness.times.note(now_ns.saturating_sub(begin_ns), now_ns);
        self.note_put(begin_ns, now_ns);
        Ok(Put::Written)
    }

    /// Whether the current file waits for machines that the spare file has as well, while others have answered.
    fn is_race_useless(&self, writer: &mut Writer) -> bool {
        if !writer.lateness.may_hedge(self.env.clock.monotonic_ns()) {
            return false;
        }
        let late = writer.file().late_machines();
        !late.is_empty() && self.spare_file.lock().as_ref().is_none_or(|spare| spare.file.is_on(&late))
    }

    fn give_up(&self, writer: &mut Writer, limit: Duration) -> Error {
        writer.file().avoid_late();
        writer.lateness.hedged_ns = Some(self.env.clock.monotonic_ns());
        let text =
            format!("{} is given up: a part of its machines is late by {limit:?}", writer.path.display());
        io::Error::new(io::ErrorKind::TimedOut, text).into()
    }

    fn note_put(&self, begin_ns: u64, now_ns: u64) {
        self.counters.wrote();
        self.counters.synced(now_ns.saturating_sub(begin_ns));
        self.errors.end();
    }

    /// With `begin_within` the current file is written now, and is late after that time; without, it is late already.
    fn race(
        &self,
        late: &LateSyncs,
        writer: &mut Writer,
        batch: &mut Batch,
        begin_ns: u64,
        to_disk: bool,
        begin_within: Option<Duration>,
    ) -> Result<Put> {
        let buffer = &mut batch.buffer;
        let bytes = Arc::new(mem::take(buffer));
        let race = Race::new(to_disk);
        let file = writer.file.take().expect("a closed WAL takes no entries, so nobody asks for its file");
        let unwritten = if begin_within.is_some() { bytes.clone() } else { Arc::default() };
        if let Some(file) = race.start(&*late.threads, Which::Current, file, unwritten.clone()) {
            race.answer(Answer::of(Which::Current, file, &unwritten, race.to_disk)); // no thread is idle
        }
        drop(unwritten);
        let first = race.next(Some(begin_within.unwrap_or_default()));
        let spare = if first.is_none() { self.start_spare(late, writer, &race, &bytes) } else { None };
        let raced = finish(&race, first, spare.is_some());
        let now_ns = self.env.clock.monotonic_ns();
        let (answer, spare_result) = match raced {
            Ok(winner) => (winner, Ok(())),
            Err((failed, error)) => (failed, Err(error)),
        };
        let won = answer.which == Which::Spare;
        let round_len = bytes.len() as u64;
        writer.file = Some(answer.file);
        match spare {
            Some(spare) if won => self.switch_to_spare(writer, spare, round_len),
            Some(Spare { path, .. }) => {
                writer.lateness.lost_in_a_row += 1;
                // Its entries are in the current file, or go to the next one. In this one they would stand behind those that
                // follow them: its name is newer.
                self.note_useless(path);
            }
            None => writer.lateness.times.note(now_ns.saturating_sub(begin_ns), now_ns),
        }
        if let Err(error) = spare_result {
            *buffer = Arc::try_unwrap(bytes).unwrap_or_else(|shared| shared.to_vec());
            return failed(writer, error);
        }
        *buffer = Arc::into_inner(bytes).unwrap_or_default();
        self.note_put(begin_ns, now_ns);
        Ok(Put::Written)
    }

    /// What is left of the spare file, if there is one and it takes part.
    fn start_spare(
        &self,
        late: &LateSyncs,
        writer: &mut Writer,
        race: &Arc<Race>,
        bytes: &Arc<Vec<u8>>,
    ) -> Option<Spare> {
        let now_ns = self.env.clock.monotonic_ns();
        if bytes.len() > HEDGED_MAX_BYTES || !writer.lateness.may_hedge(now_ns) {
            return None;
        }
        // Held until it is certain, because a roll that finds none makes a file that is to come after it.
        let mut slot = self.spare_file.lock();
        let NewFile { file, path, salt, begin } = slot.take()?;
        let mut copy = bytes.to_vec();
        reset_checks(&mut copy, self.cipher.is_some(), Mark::of_new(salt))
            .expect("a round is whole entries: appends put them there");
        if let Some(file) = race.start(&*late.threads, Which::Spare, file, Arc::new(copy)) {
            *slot = Some(NewFile { file, path, salt, begin });
            return None;
        }
        drop(slot);
        writer.lateness.hedged_ns = Some(now_ns);
        self.counters.hedged();
        Some(Spare { path, salt, begin })
    }

    /// The spare file has the round; it is the current file from now on.
    fn switch_to_spare(&self, writer: &mut Writer, Spare { path, salt, begin }: Spare, round_len: u64) {
        writer.lateness.lost_in_a_row = 0;
        (writer.salt, writer.begin) = (salt, begin);
        let old = mem::replace(&mut writer.path, path);
        tracing::warn!(old = %old.display(), new = %writer.path.display(), "a sync of the write-ahead log was late");
        let synced_bytes = writer.file().len();
        {
            // What was appended meanwhile says how much of the other file was on disk.
            let mut appends = self.appends.unwatched().lock();
            reset_checks(&mut appends.buffer, self.cipher.is_some(), Mark::of_new(salt))
                .expect("the buffer holds whole entries: appends put them there");
            appends.set_mark(Mark { salt, synced_bytes });
        }
        self.add_raced_file(old, self.counters.file_bytes() + round_len);
        self.counters.replaced();
    }

    /// A file that was the current one, and may hold a round of the one that is it now.
    fn add_raced_file(&self, path: PathBuf, bytes: u64) {
        let appends = self.appends.unwatched().lock(); // a flush is told to both
        let unflushed = appends.unflushed.clone();
        self.files.lock().push(ClosedFile { path, bytes, unflushed, end: End::Missing });
    }
}

/// What became of a round that the current file did not take.
fn failed(writer: &mut Writer, error: io::Error) -> Result<Put> {
    if is_too_large(writer.file(), &error) { Ok(Put::TooLarge(error.into())) } else { Err(error.into()) }
}

/// The first file that answers well; or the current file, with its error, if none does.
fn finish(
    race: &Race,
    first: Option<Answer>,
    has_spare: bool,
) -> std::result::Result<Answer, (Answer, io::Error)> {
    let mut next = first;
    let mut current = None;
    for _ in 0..1 + usize::from(has_spare) {
        let mut answer = next.take().or_else(|| race.next(None)).expect("without a limit it waits");
        let result = mem::replace(&mut answer.result, Ok(()));
        match (result, answer.which) {
            (Ok(()), _) => {
                race.end();
                return Ok(answer);
            }
            (Err(error), Which::Current) => current = Some((answer, error)),
            (Err(error), Which::Spare) => tracing::warn!(%error, "the spare log failed too"),
        }
    }
    race.end();
    Err(current.expect("the current file takes part in every race"))
}

#[cfg(all(test, not(halcyon_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_they_say() {
        let mut last = 0;
        for micros in (1..200).chain([1_000, 4_095, 4_096, 123_456, 60_000_000]) {
            let at = bucket(micros * 1000 + 999);
            assert!(at >= last && micros * 1000 < bucket_end_ns(at), "{micros} in {at}");
            assert!(bucket_end_ns(at) <= micros * 1250 + 1000, "{micros} in {at}");
            last = at;
        }
    }

    #[test]
    fn the_percentile_is_of_the_last_minute() {
        let mut times = SyncTimes::default();
        assert_eq!(times.p999_ns(), 0);
        let second = 1_000_000_000;
        times.note(50_000_000, second);
        assert_eq!(times.p999_ns(), bucket_end_ns(bucket(50_000_000)), "of few times it is the longest");
        (0..2000).for_each(|_| times.note(1_000_000, 2 * second));
        assert_eq!(times.p999_ns(), bucket_end_ns(bucket(1_000_000)), "one of two thousand is left out");
        (0..4).for_each(|_| times.note(70_000_000, 31 * second));
        assert_eq!(times.p999_ns(), bucket_end_ns(bucket(70_000_000)));
        times.note(1_000_000, 62 * second);
        assert_eq!(times.p999_ns(), bucket_end_ns(bucket(70_000_000)), "they are in the window before");
        times.note(1_000_000, 93 * second);
        times.note(1_000_000, 200 * second);
        assert_eq!(times.p999_ns(), bucket_end_ns(bucket(1_000_000)));
    }

    /// A storm of bytes for DataNodes that are all slow would make them slower.
    #[test]
    fn spare_files_that_do_not_help_are_used_seldom() {
        let second = 1_000_000_000;
        let mut lateness = Lateness::default();
        assert!(lateness.may_hedge(0));
        lateness.hedged_ns = Some(0);
        assert!(!lateness.may_hedge(second - 1) && lateness.may_hedge(second));
        lateness.lost_in_a_row = LOST_MAX;
        assert!(!lateness.may_hedge(59 * second) && lateness.may_hedge(60 * second));
    }
}
