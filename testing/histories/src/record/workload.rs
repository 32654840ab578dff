//! What one process does: it chooses an operation, calls the client, and writes down what came of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use halcyon_client::{Append, CheckAndMutate, ClientError, Delete, Get, Increment, Put, Row, Scan};
use halcyon_env::sim::Dice;

use super::names::{EARLIER, EARLIER_WRITES, SLOTS, WHOLE_ROWS, earlier, number, row, written_row};
use super::{Shared, errors};
use crate::history::{Action, Found, Kind, Operation, Outcome};

/// Columns of a whole row, one half in each family.
pub const COLUMNS: u32 = 16;
const FAMILIES: [&str; 2] = ["f", "g"];
/// Slots that a scan walks through: several regions.
const SCANNED: u64 = 3;
/// Rows of one slot that a scan of versions walks through: those of so many periods.
const SCANNED_PERIODS: u64 = 3;
/// How far below the newest numbers a range of versions begins at most, and how many numbers it has at most.
const RANGE_MAX: usize = 20_000;
/// Pause after an operation without an answer, so that an outage does not fill the history with them.
const PAUSE: Duration = Duration::from_millis(300);

pub(super) struct Worker {
    shared: Arc<Shared>,
    number: u64,
    name: Arc<str>,
    dice: Dice,
    /// Numbers that this process has written.
    count: u64,
    /// What it saw last of a row, for checks.
    seen: HashMap<String, Option<i64>>,
    /// Versions that it saw of a row and has not deleted.
    versions: HashMap<String, Vec<i64>>,
}

/// What a process is called in the history.
pub(super) fn name(number: u64) -> Arc<str> {
    format!("rust{number}").into()
}

/// What each process does, as words of the history.
pub(super) fn actions(kind: Kind, no_deletes: bool) -> &'static [&'static str] {
    match (kind, no_deletes) {
        (Kind::Lists, _) => &["append", "get"],
        (Kind::Rows | Kind::Versions, true) => &["put", "scan", "get"],
        (Kind::Rows | Kind::Versions, false) => &["put", "delete", "scan", "get"],
        (Kind::Registers, true) => &["put", "increment", "check", "get"],
        (Kind::Registers, false) => &["put", "delete", "increment", "check", "get"],
    }
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, number: u64, dice: Dice) -> Worker {
        let (seen, versions) = (HashMap::new(), HashMap::new());
        Worker { shared, number, name: name(number), dice, count: 0, seen, versions }
    }

    pub(super) async fn work(mut self) -> Result<(), String> {
        let interval_us = 1_000_000 / u64::from(self.shared.args.rate);
        while !self.shared.stop.load(Ordering::Acquire) {
            let started = tokio::time::Instant::now();
            let is_answered = self.operation().await?;
            if !is_answered {
                tokio::time::sleep(PAUSE).await;
            }
            // the mean is the interval
            let pause_us = self.dice.below(2 * interval_us as usize + 1) as u64;
            tokio::time::sleep_until(started + Duration::from_micros(pause_us)).await;
        }
        Ok(())
    }

    /// Reads each row until there is an answer.
    pub(super) async fn read_all(mut self, rows: Vec<String>, time: Duration) -> Result<(), String> {
        let end = tokio::time::Instant::now() + time;
        for row in rows {
            while !self.get_all(&row).await? {
                if tokio::time::Instant::now() > end {
                    return Err(format!("the row {row} could not be read at the end"));
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    /// The whole value of a row.
    async fn get_all(&mut self, row: &str) -> Result<bool, String> {
        match self.shared.args.kind {
            Kind::Versions => self.get_range(row, 0, i64::MAX).await,
            _ => self.get(row).await,
        }
    }

    fn next_number(&mut self) -> i64 {
        self.count += 1;
        number(self.shared.args.kind, self.number, self.count)
    }

    /// Whether there was an answer.
    async fn operation(&mut self) -> Result<bool, String> {
        let kind = self.shared.args.kind;
        let (slot, choice) = (self.dice.below(SLOTS as usize) as u64, self.dice.next_u64() >> 1);
        let period = Duration::from_secs(self.shared.args.period);
        let (now_ns, begun_ns) = (self.shared.clock.now_ns(), self.shared.begun_ns);
        let is_earlier = kind != Kind::Rows && self.dice.one_in(EARLIER);
        let time_ns = if is_earlier { earlier(now_ns, begun_ns, choice) } else { now_ns };
        let row = row(kind, slot, time_ns, period, choice);
        if is_earlier && !self.dice.one_in(EARLIER_WRITES) {
            return self.get_all(&row).await;
        }
        let die = self.dice.below(100);
        let deletes = !self.shared.args.no_deletes;
        match (kind, die) {
            (Kind::Lists, 0..50) => self.append(&row).await,
            (Kind::Rows, 0..40) => {
                let row = format!("{slot}-{}", written_row(now_ns, begun_ns, period, choice));
                if deletes && die < 5 { self.delete_row(&row).await } else { self.put_columns(&row).await }
            }
            (Kind::Rows, 40..60) => self.scan(slot).await,
            (Kind::Versions, 0..40) => self.put_version(&row).await,
            (Kind::Versions, 40..50) if deletes => self.delete_version(&row).await,
            (Kind::Versions, 50..65) => self.scan_range(slot, time_ns).await,
            (Kind::Versions, _) => {
                let (from, to) = self.range();
                self.get_range(&row, from, to).await
            }
            (Kind::Registers, 0..20) => self.put(&row).await,
            (Kind::Registers, 20..28) if !self.shared.args.no_deletes => self.delete(&row).await,
            (Kind::Registers, 20..43) => self.increment(&row).await,
            (Kind::Registers, 43..65) => self.check(&row).await,
            _ => self.get(&row).await,
        }
    }

    /// Writes down an operation; whether it had an answer.
    fn note(&self, row: &str, action: Action, called_ns: u64, outcome: Outcome) -> Result<bool, String> {
        let answered_ns = self.shared.clock.now_ns();
        let is_answered = outcome != Outcome::Unknown;
        self.shared.output.write(&[self.made(row, action, called_ns, answered_ns, outcome)])?;
        Ok(is_answered)
    }

    fn made(
        &self,
        row: &str,
        action: Action,
        called_ns: u64,
        answered_ns: u64,
        outcome: Outcome,
    ) -> Operation {
        let (process, row) = (Arc::clone(&self.name), row.into());
        Operation { process, row, action, called_ns, answered_ns, outcome, line: 0, source: 0 }
    }

    /// Notes a write. `first_pause`: the client may have retried it after such a pause.
    fn note_write<T>(
        &self,
        row: &str,
        action: Action,
        called_ns: u64,
        result: Result<T, ClientError>,
        first_pause: Option<Duration>,
        found: impl FnOnce(T) -> Result<Option<Found>, String>,
    ) -> Result<bool, String> {
        let took = Duration::from_nanos(self.shared.clock.now_ns() - called_ns);
        let outcome = match result {
            Ok(answer) => Outcome::Done(found(answer)?),
            Err(error) => errors::outcome(&error, took, first_pause),
        };
        self.note(row, action, called_ns, outcome)
    }

    async fn get(&mut self, row: &str) -> Result<bool, String> {
        let called_ns = self.shared.clock.now_ns();
        let outcome = match self.shared.patient.get(Get::new(row)).await {
            Ok(found) => Outcome::Done(Some(self.found(row, &found)?)),
            Err(_) => Outcome::Unknown,
        };
        self.note(row, Action::Get, called_ns, outcome)
    }

    /// What a read found. An answer that no recorder could have written is an error.
    fn found(&mut self, row: &str, found: &Row) -> Result<Found, String> {
        if found.cells().is_empty() {
            self.seen.insert(row.to_string(), None);
            return Ok(Found::Absent);
        }
        match self.shared.args.kind {
            Kind::Lists => list(row, found),
            Kind::Rows => columns(row, found),
            Kind::Versions => self.versions_of(row, found),
            Kind::Registers => {
                let number = counter(row, found)?;
                self.seen.insert(row.to_string(), Some(number));
                Ok(Found::Number(number))
            }
        }
    }

    async fn append(&mut self, row: &str) -> Result<bool, String> {
        let id = self.next_number();
        let append = Append::new(row).column("f", "q", format!("{id},"));
        let called_ns = self.shared.clock.now_ns();
        let result = self.shared.patient.append(append).await;
        self.note_write(row, Action::Append(id), called_ns, result, Some(self.shared.pause), |answer| {
            // without cells: it was repeated, and the server does not know the value any more
            if answer.cells().is_empty() { Ok(None) } else { list(row, &answer).map(Some) }
        })
    }

    async fn increment(&mut self, row: &str) -> Result<bool, String> {
        let increment = Increment::new(row).column("f", "q", 1);
        let called_ns = self.shared.clock.now_ns();
        let result = self.shared.patient.increment(increment).await;
        self.note_write(row, Action::Increment(1), called_ns, result, Some(self.shared.pause), |answer| {
            if answer.cells().is_empty() {
                Ok(None)
            } else {
                counter(row, &answer).map(Found::Number).map(Some)
            }
        })
    }

    async fn put(&mut self, row: &str) -> Result<bool, String> {
        let number = self.next_number();
        let put = Put::new(row).column("f", "q", number.to_be_bytes());
        let called_ns = self.shared.clock.now_ns();
        let result = self.shared.single.put(put).await;
        self.note_write(row, Action::Put(number), called_ns, result, None, |()| Ok(None))
    }

    async fn put_columns(&mut self, row: &str) -> Result<bool, String> {
        let number = self.next_number();
        let mut put = Put::new(row);
        for family in FAMILIES {
            for column in 0..COLUMNS / FAMILIES.len() as u32 {
                put = put.column(family, format!("c{column}"), number.to_be_bytes());
            }
        }
        let called_ns = self.shared.clock.now_ns();
        let result = self.shared.single.put(put).await;
        self.note_write(row, Action::Put(number), called_ns, result, None, |()| Ok(None))
    }

    async fn delete(&mut self, row: &str) -> Result<bool, String> {
        let delete = Delete::new(row).column("f", "q");
        let called_ns = self.shared.clock.now_ns();
        let result = self.shared.single.delete(delete).await;
        self.note_write(row, Action::Delete, called_ns, result, None, |()| Ok(None))
    }

    /// All columns of both families at once.
    async fn delete_row(&mut self, row: &str) -> Result<bool, String> {
        let called_ns = self.shared.clock.now_ns();
        let result = self.shared.single.delete(Delete::new(row)).await;
        self.note_write(row, Action::Delete, called_ns, result, None, |()| Ok(None))
    }

    /// A number whose timestamp is the number.
    async fn put_version(&mut self, row: &str) -> Result<bool, String> {
        let number = self.next_number();
        let put = Put::new(row).column_at("f", "q", number, number.to_be_bytes());
        let called_ns = self.shared.clock.now_ns();
        let result = self.shared.single.put(put).await;
        self.note_write(row, Action::Put(number), called_ns, result, None, |()| Ok(None))
    }

    /// One that this process has seen, so that its put has happened. A delete hides puts of the same time that come later.
    async fn delete_version(&mut self, row: &str) -> Result<bool, String> {
        let Some(seen) = self.versions.get_mut(row).filter(|seen| !seen.is_empty()) else {
            return self.get_range(row, 0, i64::MAX).await;
        };
        let number = seen.swap_remove(self.dice.below(seen.len()));
        let called_ns = self.shared.clock.now_ns();
        let result = self.shared.single.delete(Delete::new(row).version("f", "q", number)).await;
        self.note_write(row, Action::DeleteVersion(number), called_ns, result, None, |()| Ok(None))
    }

    /// Most ranges are short and near the newest numbers, so that a server can leave out files and segments.
    fn range(&mut self) -> (i64, i64) {
        if self.dice.one_in(4) {
            return (0, i64::MAX);
        }
        let newest = number(Kind::Versions, self.number, self.count + 1);
        let from = (newest - self.dice.below(RANGE_MAX) as i64).max(0);
        (from, from + 1 + self.dice.below(RANGE_MAX) as i64)
    }

    async fn get_range(&mut self, row: &str, from: i64, to: i64) -> Result<bool, String> {
        let get = Get::new(row).column("f", "q").time_range(from, to).all_versions();
        let called_ns = self.shared.clock.now_ns();
        let outcome = match self.shared.patient.get(get).await {
            Ok(found) => Outcome::Done(Some(self.found(row, &found)?)),
            Err(_) => Outcome::Unknown,
        };
        self.note(row, Action::Range { from, to, is_scan: false }, called_ns, outcome)
    }

    /// The versions of a range in the rows of some periods of a slot.
    async fn scan_range(&mut self, slot: u64, time_ns: u64) -> Result<bool, String> {
        let period = Duration::from_secs(self.shared.args.period);
        let period_ns = period.as_nanos() as u64;
        let rows: Vec<String> = (0..SCANNED_PERIODS)
            .rev()
            .map(|age| row(Kind::Versions, slot, time_ns.saturating_sub(age * period_ns), period, 0))
            .collect();
        let (from, to) = self.range();
        let scan = Scan::new().start(&rows[0]).stop_inclusive(&rows[rows.len() - 1]).column("f", "q");
        let called_ns = self.shared.clock.now_ns();
        let found = self.all_rows(scan.time_range(from, to).all_versions().caching(2)).await?;
        self.note_scan(rows, Action::Range { from, to, is_scan: true }, called_ns, found)
    }

    fn versions_of(&mut self, row: &str, found: &Row) -> Result<Found, String> {
        let numbers = versions(row, found)?;
        self.versions.insert(row.to_string(), numbers.clone());
        Ok(if numbers.is_empty() { Found::Absent } else { Found::List(numbers) })
    }

    /// If the row is as this process saw it last, it gets a new number, or none.
    async fn check(&mut self, row: &str) -> Result<bool, String> {
        let expected = self.seen.get(row).copied().flatten();
        let is_delete = !self.shared.args.no_deletes && expected.is_some() && self.dice.one_in(5);
        let new = if is_delete { None } else { Some(self.next_number()) };
        let check = CheckAndMutate::row(row);
        let check = match expected {
            Some(expected) => check.if_equals("f", "q", expected.to_be_bytes()),
            None => check.if_not_exists("f", "q"),
        };
        let check = match new {
            Some(new) => check.then(Put::new(row).column("f", "q", new.to_be_bytes())),
            None => check.then(Delete::new(row).column("f", "q")),
        };
        let called_ns = self.shared.clock.now_ns();
        let result = self.shared.single.check_and_mutate(&check).await;
        let action = Action::CheckAndMutate { expected, new };
        if result.as_ref().is_ok_and(|result| result.processed) {
            self.seen.insert(row.to_string(), new);
        }
        self.note_write(row, action, called_ns, result, None, |answer| {
            Ok(Some(Found::Held(answer.processed)))
        })
    }

    /// The whole rows of some slots; one that the scan does not return was absent.
    async fn scan(&mut self, slot: u64) -> Result<bool, String> {
        let slots = slot.min(SLOTS - SCANNED)..slot.min(SLOTS - SCANNED) + SCANNED;
        let scan = Scan::new().start(format!("{}", slots.start)).stop(format!("{}", slots.end)).caching(2);
        let called_ns = self.shared.clock.now_ns();
        let found = self.all_rows(scan).await?;
        let rows = slots.flat_map(|slot| (0..WHOLE_ROWS).map(move |row| format!("{slot}-{row}"))).collect();
        self.note_scan(rows, Action::Scan, called_ns, found)
    }

    /// What a scan found; `None` if it had no whole answer.
    async fn all_rows(&mut self, scan: Scan) -> Result<Option<HashMap<String, Found>>, String> {
        let mut scanner = self.shared.patient.scan(scan);
        let mut all = HashMap::new();
        loop {
            match scanner.next().await {
                Ok(Some(row)) => {
                    let key = String::from_utf8_lossy(row.key()).into_owned();
                    let found = self.found(&key, &row)?;
                    if all.insert(key.clone(), found).is_some() {
                        return Err(format!("a scan returned the row {key} twice"));
                    }
                }
                Ok(None) => return Ok(Some(all)),
                Err(_) => return Ok(None),
            }
        }
    }

    /// Notes each row that a scan has to find; one that it does not return was absent.
    fn note_scan(
        &self,
        rows: Vec<String>,
        action: Action,
        called_ns: u64,
        mut found: Option<HashMap<String, Found>>,
    ) -> Result<bool, String> {
        let answered_ns = self.shared.clock.now_ns();
        let mut lines = Vec::new();
        for row in rows {
            let outcome = match &mut found {
                Some(found) => Outcome::Done(Some(found.remove(&row).unwrap_or(Found::Absent))),
                None => Outcome::Unknown,
            };
            lines.push(self.made(&row, action, called_ns, answered_ns, outcome));
        }
        if let Some(row) = found.as_ref().and_then(|found| found.keys().next()) {
            return Err(format!("a scan returned the row {row}, which no recorder writes"));
        }
        self.shared.output.write(&lines)?;
        Ok(found.is_some())
    }
}

/// The numbers of all versions, as they come. Each has its number as its time.
fn versions(row: &str, found: &Row) -> Result<Vec<i64>, String> {
    let version = |cell: &halcyon_client::Cell| {
        let number = cell.value().try_into().map(i64::from_be_bytes).ok()?;
        (cell.timestamp() == number).then_some(number)
    };
    let wrong = || format!("the row {row} has a version that no recorder writes: {:?}", found.cells());
    found.cells().iter().map(|cell| version(cell).ok_or_else(wrong)).collect()
}

fn list(row: &str, found: &Row) -> Result<Found, String> {
    let wrong = || format!("the row {row} has no list: {:?}", found.cells());
    let value = found.value("f", "q").and_then(|value| std::str::from_utf8(value).ok()).ok_or_else(wrong)?;
    let ids = value.strip_suffix(',').ok_or_else(wrong)?.split(',').map(str::parse);
    Ok(Found::List(ids.collect::<Result<_, _>>().map_err(|_| wrong())?))
}

fn counter(row: &str, found: &Row) -> Result<i64, String> {
    found.counter("f", "q").ok_or_else(|| format!("the row {row} has no number: {:?}", found.cells()))
}

/// The numbers of all columns, in HBase's order.
fn columns(row: &str, found: &Row) -> Result<Found, String> {
    let mut runs: Vec<(i64, u32)> = Vec::new();
    for cell in found.cells() {
        let number = cell.value().try_into().map(i64::from_be_bytes);
        let number = number.map_err(|_| format!("the row {row} has a column without a number: {cell:?}"))?;
        match runs.last_mut() {
            Some((last, count)) if *last == number => *count += 1,
            _ => runs.push((number, 1)),
        }
    }
    Ok(Found::Columns(runs))
}
