//! The loads. Each prints one line: its name, then `metric=value` pairs.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::engine::Scanned;
use crate::keys::{Dice, Values, key, shuffled};
use crate::measure::{Latencies, Usage, Used, disk_bytes, forget_peak, peak_bytes};
use crate::plan::{Load, Plan};
use crate::{Engine, Failure, Opening, Row};

/// Carries out a plan on an engine, whose opener makes or opens the store of the opening.
pub fn run(plan: &Plan, open: fn(&Opening) -> Result<Box<dyn Engine>, Failure>) -> Result<(), Failure> {
    plan.check()?;
    let values = Values::new(plan.value_len);
    let run = Run { plan, values, open };
    run.empty()?;
    let done = run.all();
    run.empty()?;
    done
}

struct Run<'a> {
    plan: &'a Plan,
    values: Values,
    open: fn(&Opening) -> Result<Box<dyn Engine>, Failure>,
}

/// What the threads of a load saw.
#[derive(Default)]
struct Seen {
    writes: Latencies,
    reads: Latencies,
}

impl Run<'_> {
    fn empty(&self) -> Result<(), Failure> {
        match fs::remove_dir_all(&self.plan.dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn all(&self) -> Result<(), Failure> {
        let plan = self.plan;
        if plan.wants(Load::FillSeq) {
            self.fill(Load::FillSeq)?;
            self.empty()?;
        }
        let on_random =
            [Load::FillRandom, Load::Scan, Load::ReadCached, Load::ReadTenth, Load::ScanTenth, Load::Mixed];
        if on_random.iter().any(|load| plan.wants(*load)) {
            self.fill(Load::FillRandom)?;
            self.on_tenth()?; // first, while the process has not held more memory than this needs
            self.on_cached()?;
            self.empty()?;
        }
        if plan.wants(Load::FillSync) && plan.synced_writes > 0 {
            self.fill_synced()?;
        }
        Ok(())
    }

    fn fill(&self, load: Load) -> Result<(), Failure> {
        let plan = self.plan;
        let order = if load == Load::FillRandom { shuffled(plan.rows()) } else { Vec::new() };
        let number = |at: u64| order.get(at as usize).map_or(at, |number| u64::from(*number));
        self.with(&plan.opening("store", plan.cache_for_all(), false), |engine| {
            let before = Usage::now()?;
            let seen = self.write_rows(engine, plan.rows(), plan.batch, &number)?;
            let used = Usage::now()?.since(&before);
            engine.settle()?;
            let settled = Usage::now()?.since(&before);
            let rows = plan.rows() as f64;
            let of_user_bytes = |bytes: u64| bytes as f64 / plan.user_bytes() as f64;
            let mut line = Line::new(load.name());
            line.rate(plan.rows(), &used).latencies("write", &seen.writes);
            line.put("settled_rows_per_s", rows / settled.time.as_secs_f64());
            line.put("settled_cpu_us_per_row", settled.cpu.as_secs_f64() * 1e6 / rows);
            line.put("write_amplification", of_user_bytes(settled.written_bytes));
            line.put("space_amplification", of_user_bytes(disk_bytes(&plan.dir)?));
            line.print()
        })
    }

    /// Rows in batches; the threads take batches in turn.
    fn write_rows(
        &self,
        engine: &dyn Engine,
        rows: u64,
        batch: usize,
        number: &(dyn Fn(u64) -> u64 + Sync),
    ) -> Result<Seen, Failure> {
        let next = AtomicU64::new(0);
        let batch = batch as u64;
        self.on_threads(|_| {
            let mut seen = Seen::default();
            let mut taken = Vec::with_capacity(batch as usize);
            loop {
                let start = next.fetch_add(batch, Ordering::Relaxed);
                if start >= rows {
                    return Ok(seen);
                }
                taken.clear();
                for at in start..(start + batch).min(rows) {
                    let number = number(at);
                    taken.push(Row { key: key(number), value: self.values.get(number) });
                }
                let begin = Instant::now();
                engine.write(&taken)?;
                seen.writes.record(begin.elapsed());
            }
        })
    }

    /// What is asked of a settled store that is in the cache as a whole.
    fn on_cached(&self) -> Result<(), Failure> {
        let plan = self.plan;
        if ![Load::Scan, Load::ReadCached, Load::Mixed].iter().any(|load| plan.wants(*load)) {
            return Ok(());
        }
        self.with(&plan.opening("store", plan.cache_for_all(), false), |engine| {
            engine.scan()?;
            if plan.wants(Load::Scan) {
                self.scan(engine, Load::Scan)?;
            }
            if plan.wants(Load::ReadCached) {
                self.read_rows(engine, plan.reads / 10)?;
                self.read(engine, Load::ReadCached)?;
            }
            if plan.wants(Load::Mixed) {
                self.mixed(engine)?;
            }
            Ok(())
        })
    }

    fn on_tenth(&self) -> Result<(), Failure> {
        let plan = self.plan;
        if ![Load::ReadTenth, Load::ScanTenth].iter().any(|load| plan.wants(*load)) {
            return Ok(());
        }
        self.with(&plan.opening("store", plan.user_bytes() as usize / 10, false), |engine| {
            if plan.wants(Load::ScanTenth) {
                self.scan(engine, Load::ScanTenth)?;
            }
            if plan.wants(Load::ReadTenth) {
                self.read_rows(engine, plan.reads / 10)?;
                self.read(engine, Load::ReadTenth)?;
            }
            Ok(())
        })
    }

    /// Opens an engine for some work, and ends it in any case.
    fn with(
        &self,
        opening: &Opening,
        work: impl FnOnce(&dyn Engine) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        forget_peak()?;
        let engine = (self.open)(opening)?;
        let done = work(&*engine);
        let closed = engine.close();
        done.and(closed)
    }

    fn scan(&self, engine: &dyn Engine, load: Load) -> Result<(), Failure> {
        let before = Usage::now()?;
        let scanned = self.on_threads_with(|_| engine.scan())?;
        let used = Usage::now()?.since(&before);
        let wanted = Scanned { rows: self.plan.rows(), bytes: self.plan.user_bytes() };
        for scanned in &scanned {
            if (scanned.rows, scanned.bytes) != (wanted.rows, wanted.bytes) {
                return Err(format!("a scan saw {scanned:?} and not {wanted:?}").into());
            }
        }
        Line::new(load.name()).rate(scanned.iter().map(|scanned| scanned.rows).sum(), &used).print()
    }

    fn read(&self, engine: &dyn Engine, load: Load) -> Result<(), Failure> {
        let before = Usage::now()?;
        let seen = self.read_rows(engine, self.plan.reads)?;
        let used = Usage::now()?.since(&before);
        Line::new(load.name()).rate(seen.reads.count(), &used).latencies("read", &seen.reads).print()
    }

    fn read_rows(&self, engine: &dyn Engine, reads: u64) -> Result<Seen, Failure> {
        self.on_threads(|thread| {
            let (mut seen, mut dice) = (Seen::default(), Dice::new(thread + 17));
            for _ in 0..reads / self.plan.threads as u64 {
                self.read_one(engine, &mut dice, &mut seen)?;
            }
            Ok(seen)
        })
    }

    fn read_one(&self, engine: &dyn Engine, dice: &mut Dice, seen: &mut Seen) -> Result<(), Failure> {
        let key = key(dice.below(self.plan.rows()));
        let begin = Instant::now();
        let found = engine.read(&key)?;
        seen.reads.record(begin.elapsed());
        if found != Some(self.plan.value_len) {
            return Err(format!("the row {} has a value of length {found:?}", key.escape_ascii()).into());
        }
        Ok(())
    }

    fn mixed(&self, engine: &dyn Engine) -> Result<(), Failure> {
        let before = Usage::now()?;
        let end = Instant::now() + Duration::from_secs(self.plan.mixed_seconds);
        let seen = self.on_threads(|thread| {
            let (mut seen, mut dice) = (Seen::default(), Dice::new(thread + 99));
            while Instant::now() < end {
                self.read_one(engine, &mut dice, &mut seen)?;
                let number = dice.below(self.plan.rows());
                let row = Row { key: key(number), value: self.values.get(number ^ dice.roll()) };
                let begin = Instant::now();
                engine.write(std::slice::from_ref(&row))?;
                seen.writes.record(begin.elapsed());
            }
            Ok(seen)
        })?;
        let used = Usage::now()?.since(&before);
        let mut line = Line::new(Load::Mixed.name());
        line.rate(seen.reads.count() + seen.writes.count(), &used);
        line.latencies("read", &seen.reads).latencies("write", &seen.writes);
        // Above 2, compactions have written what flushes wrote before.
        let user_bytes = seen.writes.count() * self.plan.row_bytes();
        line.put("write_amplification", used.written_bytes as f64 / user_bytes as f64);
        line.print()
    }

    /// A store of its own: with a word of the disk for every write this is a load of the disk.
    fn fill_synced(&self) -> Result<(), Failure> {
        let plan = self.plan;
        let rows = plan.synced_writes;
        self.with(&plan.opening("synced", plan.cache_for_all(), true), |engine| {
            let before = Usage::now()?;
            let seen = self.write_rows(engine, rows, 1, &|at| at * 7919 % rows)?;
            let used = Usage::now()?.since(&before);
            Line::new(Load::FillSync.name()).rate(rows, &used).latencies("write", &seen.writes).print()
        })
    }

    fn on_threads(&self, work: impl Fn(u64) -> Result<Seen, Failure> + Sync) -> Result<Seen, Failure> {
        let mut sum = Seen::default();
        for seen in self.on_threads_with(work)? {
            sum.reads.merge(&seen.reads);
            sum.writes.merge(&seen.writes);
        }
        Ok(sum)
    }

    fn on_threads_with<T: Send>(
        &self,
        work: impl Fn(u64) -> Result<T, Failure> + Sync,
    ) -> Result<Vec<T>, Failure> {
        std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                (0..self.plan.threads as u64).map(|thread| scope.spawn(move || work(thread))).collect();
            threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread died")?).collect()
        })
    }
}

/// One line of figures.
struct Line(String);

impl Line {
    fn new(name: &str) -> Line {
        Line(name.to_string())
    }

    fn put(&mut self, metric: &str, value: f64) -> &mut Line {
        self.0.push_str(&format!(" {metric}={value:.3}"));
        self
    }

    fn rate(&mut self, rows: u64, used: &Used) -> &mut Line {
        self.put("rows_per_s", rows as f64 / used.time.as_secs_f64());
        self.put("cpu_us_per_row", used.cpu.as_secs_f64() * 1e6 / rows.max(1) as f64)
    }

    fn latencies(&mut self, of: &str, latencies: &Latencies) -> &mut Line {
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            self.put(&format!("{of}_{name}_us"), latencies.at(quantile));
        }
        self.put(&format!("{of}_max_us"), latencies.max())
    }

    fn print(&mut self) -> Result<(), Failure> {
        self.put("peak_mib", peak_bytes()? as f64 / f64::from(1 << 20));
        println!("{}", self.0);
        Ok(())
    }
}
