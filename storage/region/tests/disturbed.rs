//! The NameNode refuses, answers too late, or answers an error to what it has done, again and again; and the server dies
//! and opens its region again. What was acknowledged is shown, and nothing else.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use halcyon_cell::CellType;
use halcyon_env::sim::{CrashMode, Dice, SimFileSystem};
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;
use halcyon_testkit::{for_each_seed, is_part};

const SEEDS: Range<u64> = 0..60;
const STEPS: usize = 60;
const ATTEMPTS_MAX: usize = 400;
/// One call in so many is disturbed.
const ONE_IN: usize = 12;
/// An opening has many calls, and all must succeed.
const ONE_IN_OPENING: usize = 40;

struct Run {
    bench: Bench,
    dice: Dice,
    /// Values that each row may show: the last acknowledged one, and those written since without an answer.
    rows: BTreeMap<u8, Vec<Option<String>>>,
    failures: usize,
}

impl Run {
    fn new(seed: u64) -> Run {
        let family = FamilyDescriptor::new("f").unwrap().with("BLOCKSIZE", "64");
        let bench = Bench::on(Arc::new(SimFileSystem::hdfs(seed)), &[family]);
        bench.fs.disturb(ONE_IN);
        Run { bench, dice: Dice::new(seed), rows: BTreeMap::new(), failures: 0 }
    }

    fn write(&mut self, step: usize) {
        let row = self.dice.below(6) as u8;
        let value = (!self.dice.one_in(4)).then(|| format!("v{step}"));
        let kind = if value.is_some() { MutationKind::Put } else { MutationKind::Delete };
        let cell =
            |value: &String| parse_cell(&format!("r{row}"), &format!("f:q={value}"), CellType::Put, false);
        let cells = value.iter().map(cell).collect();
        self.bench.clock.advance(Duration::from_millis(1));
        let done = self.bench.mutate(mutation(kind, format!("r{row}").as_bytes(), cells));
        let allowed = self.rows.entry(row).or_insert_with(|| vec![None]);
        if done.is_ok() {
            allowed.clear();
        }
        allowed.push(value);
    }

    /// Until it succeeds; the disturbances go on.
    fn recover(&mut self, mode: CrashMode) {
        let seed = self.dice.next_u64();
        let left = Arc::new(self.bench.fs.crash(mode, seed));
        let mut last = None;
        for _ in 0..ATTEMPTS_MAX {
            left.disturb(ONE_IN_OPENING);
            match self.bench.recover_on(left.clone()) {
                Ok(()) => return self.bench.fs.disturb(ONE_IN),
                Err(error) => last = Some(error),
            }
            self.failures += 1;
        }
        panic!("the region does not open in {ATTEMPTS_MAX} attempts: {last:?}");
    }

    fn step(&mut self, step: usize) {
        let failed = match self.dice.below(10) {
            0..5 => {
                self.write(step);
                false
            }
            5 | 6 => self.bench.region.flush(None).is_err(),
            7 => self.bench.compact(false).is_err(),
            8 => self.bench.compact(true).is_err(),
            _ if self.dice.one_in(2) => self.bench.wal.roll().is_err(),
            _ => {
                let mode = self.dice.pick(&CrashMode::ALL);
                self.recover(mode);
                false
            }
        };
        self.failures += usize::from(failed);
    }

    fn check(&mut self, what: &str) {
        for attempt in 0.. {
            match self.bench.scan(Scan { max_versions: 1, ..Scan::default() }) {
                Ok(rows) => return self.compare(&rows, what),
                Err(error) => assert!(attempt < ATTEMPTS_MAX, "{what}: {error}"),
            }
        }
    }

    fn compare(&self, rows: &[Vec<halcyon_cell::Cell>], what: &str) {
        let mut shown = BTreeMap::new();
        for cells in rows {
            let row = cells[0].row()[1] - b'0';
            shown.insert(row, String::from_utf8_lossy(cells[0].value()).into_owned());
        }
        for (row, allowed) in &self.rows {
            let value = shown.get(row).cloned();
            assert!(allowed.contains(&value), "{what}: row {row} shows {value:?}, allowed are {allowed:?}");
        }
        assert!(shown.keys().all(|row| self.rows.contains_key(row)), "{what}: {shown:?}");
    }
}

#[test]
fn what_is_acknowledged_stays() {
    let test = "-p halcyon-region --test all disturbed::what_is_acknowledged_stays";
    let mut failures = 0;
    for_each_seed(test, SEEDS, |seed| {
        let mut run = Run::new(seed);
        for step in 0..STEPS {
            run.step(step);
            run.check(&format!("seed {seed}, step {step}"));
        }
        run.bench.fs.deliver_late();
        run.recover(CrashMode::Drop);
        run.check(&format!("seed {seed}, at the end"));
        failures += run.failures;
    });
    assert!(is_part(SEEDS) || failures > 120, "{failures} failures: the disturbances are felt");
    println!("{failures} calls failed");
}
