//! Makes a plan's runs, one visit after the other, and goes on where an earlier call stopped.
//!
//! Whatever goes wrong is said and noted, and the rest goes on: a side that cannot take part or does not start is left out, a
//! load that fails costs its case, a server that ends costs the rest of its visit. Only the user's interruption ends it all.

use std::collections::{HashMap, HashSet};

use super::plan::{CasePlan, Load, Plan, Rate, SidePlan, Visit};
use super::results::Results;
use super::search::Search;
use super::stage::{Order, Stage};
use super::warm::Wanted;
use crate::outcome::Run;

/// How it went.
#[derive(Debug, Default, PartialEq)]
pub struct Progress {
    pub is_interrupted: bool,
    /// Why it is not whole, a sentence each.
    pub notes: Vec<String>,
    /// Sides that could not take part, and why.
    pub missing: HashMap<String, String>,
    /// Ladders of which no side serves.
    pub unserved: usize,
}

/// What the user sees meanwhile.
pub trait Observer {
    /// A run begins: its number, of how many, and about how many seconds are left for all.
    fn begins(&mut self, number: usize, of: usize, title: &str, left_s: f64);

    /// Something that the user should know.
    fn says(&mut self, sentence: &str);

    /// A visit is over: what is there may be shown.
    fn visited(&mut self, results: &Results, progress: &Progress);
}

struct Runner<'a> {
    plan: &'a Plan,
    results: &'a mut Results,
    stage: &'a mut dyn Stage,
    observer: &'a mut dyn Observer,
    progress: Progress,
    /// Sides whose server has run here.
    proven: HashSet<String>,
}

/// A preparation is not measured.
const NONE: Wanted = Wanted { least_s: 0, max_s: None };

/// Why a visit ends before its last case.
enum Ended {
    Interrupted,
    /// The server is gone, or its data could not be prepared.
    Useless(String),
    /// Results cannot be written.
    Failed(String),
}

/// Measures what is not there yet. The error is a sentence: results could not be written.
pub fn run(
    plan: &Plan,
    results: &mut Results,
    stage: &mut dyn Stage,
    observer: &mut dyn Observer,
) -> Result<Progress, String> {
    let (progress, proven) = (Progress::default(), HashSet::new());
    let mut runner = Runner { plan, results, stage, observer, progress, proven };
    runner.find_missing();
    if plan.ladders.is_empty() {
        runner.visit_all()?;
    } else {
        runner.search_all()?;
    }
    if runner.progress.is_interrupted {
        runner.progress.notes.push("it was interrupted".to_string());
    }
    Ok(runner.progress)
}

impl Runner<'_> {
    fn visit_all(&mut self) -> Result<(), String> {
        let plan = self.plan;
        for visit in plan.visits() {
            self.visit_once(visit)?;
            if self.progress.is_interrupted {
                break;
            }
        }
        Ok(())
    }

    /// The smallest side of each ladder, in each repetition anew.
    fn search_all(&mut self) -> Result<(), String> {
        let plan = self.plan;
        for repetition in 1..=plan.repetitions {
            for ladder in &plan.ladders {
                let mut search = Search::new(plan, repetition, ladder);
                while let Some(visit) = search.next() {
                    self.visit_once(visit)?;
                    if self.progress.is_interrupted {
                        return Ok(());
                    }
                    search.learn(self.results);
                }
                if search.found().is_none() {
                    let sides = format!("{} to {}", ladder[0], ladder[ladder.len() - 1]);
                    self.note(format!("repetition {repetition}: of {sides} none serves"));
                    self.progress.unserved += 1;
                }
            }
        }
        Ok(())
    }

    /// Measures what is not there yet, and ends the server. The error is a sentence: results could not be written.
    fn visit_once(&mut self, visit: Visit<'_>) -> Result<(), String> {
        if self.cases_left(visit).is_empty() || self.progress.missing.contains_key(&visit.side.id) {
            return Ok(());
        }
        if self.stage.is_interrupted() {
            self.progress.is_interrupted = true;
            return Ok(());
        }
        let ended = self.visit(visit);
        self.stage.stop();
        match ended {
            Ok(()) => {}
            Err(Ended::Interrupted) => {
                self.progress.is_interrupted = true;
                return Ok(());
            }
            Err(Ended::Useless(sentence)) => self.note(sentence),
            Err(Ended::Failed(sentence)) => return Err(sentence),
        }
        self.observer.visited(self.results, &self.progress);
        Ok(())
    }

    fn note(&mut self, sentence: String) {
        self.observer.says(&sentence);
        self.progress.notes.push(sentence);
    }

    fn find_missing(&mut self) {
        for side in &self.plan.sides {
            if let Err(sentence) = self.stage.available(side) {
                self.note(format!("{} is left out: {sentence}", side.label));
                self.progress.missing.insert(side.id.clone(), sentence);
            }
        }
    }

    fn cases_left(&self, visit: Visit<'_>) -> Vec<&CasePlan> {
        let is_left = |case: &&CasePlan| !self.results.is_done(visit.repetition, &visit.side.id, &case.id);
        self.plan.cases.iter().filter(is_left).collect()
    }

    fn visit(&mut self, visit: Visit<'_>) -> Result<(), Ended> {
        let side = visit.side;
        let first = self.cases_left(visit)[0].label.clone();
        self.begins(visit, &format!("{}: starts, for {first}", side.label));
        let started = match self.stage.start(side) {
            Ok(started) => started,
            Err(_) if self.stage.is_interrupted() => return Err(Ended::Interrupted),
            Err(sentence) => {
                // one that never ran will not do so later
                if !self.proven.contains(&side.id) {
                    self.progress.missing.insert(side.id.clone(), sentence.clone());
                }
                let visit = format!("repetition {}", visit.repetition);
                return Err(Ended::Useless(format!("{} did not start, {visit}: {sentence}", side.label)));
            }
        };
        if self.stage.is_interrupted() {
            return Err(Ended::Interrupted);
        }
        self.proven.insert(side.id.clone());
        self.results.keep_started(&side.id, &started).map_err(Ended::Failed)?;
        let cases: Vec<CasePlan> = self.cases_left(visit).into_iter().cloned().collect();
        let mut prepared: Vec<Load> = Vec::new();
        for case in &cases {
            self.prepare(visit, case, &mut prepared)?;
            self.case(visit, case)?;
        }
        Ok(())
    }

    fn prepare(&mut self, visit: Visit<'_>, case: &CasePlan, prepared: &mut Vec<Load>) -> Result<(), Ended> {
        for load in &case.prepare {
            if prepared.contains(load) {
                continue;
            }
            let title = format!("{}: prepares {}", visit.side.label, case.label);
            self.begins(visit, &title);
            let order = Order { load, rate: None, warmup: NONE };
            let failed = match self.stage.load(&order) {
                Ok(run) => run.partial,
                Err(sentence) => Some(sentence),
            };
            if self.stage.is_interrupted() {
                return Err(Ended::Interrupted);
            }
            if let Some(sentence) = failed {
                return Err(Ended::Useless(format!(
                    "{}, repetition {}: {} could not be prepared: {sentence}",
                    visit.side.label, visit.repetition, case.label
                )));
            }
            prepared.push(load.clone());
        }
        Ok(())
    }

    fn case(&mut self, visit: Visit<'_>, case: &CasePlan) -> Result<(), Ended> {
        let place = format!("{}, {}, repetition {}", visit.side.label, case.label, visit.repetition);
        let rate = match self.rate(visit, case) {
            Ok(rate) => rate,
            Err(sentence) => {
                self.note(format!("{place}: {sentence}"));
                return Ok(());
            }
        };
        self.begins(visit, &place);
        let warmup = case.warmup.wanted(visit.side);
        let order = Order { load: &case.load, rate, warmup };
        let loaded = self.stage.load(&order);
        let (is_interrupted, is_running) = (self.stage.is_interrupted(), self.stage.is_running());
        let failed = match loaded {
            Ok(mut run) => {
                if !is_running && !is_interrupted {
                    run.partial.get_or_insert("the server ended".to_string());
                }
                if is_interrupted {
                    run.partial.get_or_insert("interrupted".to_string());
                }
                if run.partial.is_none() {
                    run.partial = warmup.refuses(&run);
                }
                let failed = run.partial.clone();
                self.keep(visit, case, run)?;
                self.compare(visit)?;
                failed
            }
            Err(sentence) => Some(sentence),
        };
        match failed {
            _ if is_interrupted => Err(Ended::Interrupted),
            Some(sentence) if is_running => {
                self.note(format!("{place}: {sentence}"));
                Ok(())
            }
            failed if !is_running => {
                let sentence = failed.unwrap_or_default();
                Err(Ended::Useless(format!(
                    "{place}: the server is gone, and with it this visit: {sentence}"
                )))
            }
            _ => Ok(()),
        }
    }

    fn keep(&mut self, visit: Visit<'_>, case: &CasePlan, mut run: Run) -> Result<(), Ended> {
        run.side = visit.side.id.clone();
        run.case = case.id.clone();
        run.repetition = visit.repetition;
        self.results.keep(run).map_err(Ended::Failed)
    }

    /// Refuses both of two runs of this visit where the one that does more is faster: the other was not warm.
    fn compare(&mut self, visit: Visit<'_>) -> Result<(), Ended> {
        for (more, less) in &self.plan.not_faster {
            let rate = |case: &str| {
                let run = self.results.run(visit.repetition, &visit.side.id, case)?;
                run.partial.is_none().then_some(run.operations_per_s)
            };
            let (Some(more_per_s), Some(less_per_s)) = (rate(more), rate(less)) else { continue };
            if more_per_s <= less_per_s {
                continue;
            }
            let why = format!(
                "{more} does all that {less} does and more, and is faster: {more_per_s:.0}/s, {less_per_s:.0}/s"
            );
            for case in [more, less] {
                let refused = self.results.refuse(visit.repetition, &visit.side.id, case, &why);
                refused.map_err(Ended::Failed)?;
            }
            self.note(format!("{}, repetition {}: {why}", visit.side.label, visit.repetition));
        }
        Ok(())
    }

    fn rate(&self, visit: Visit<'_>, case: &CasePlan) -> Result<Option<f64>, String> {
        let (of, share) = match &case.rate {
            Rate::Free => return Ok(None),
            Rate::Fixed { per_s } => return Ok(Some(*per_s)),
            Rate::Share { of, share } => (of, share),
        };
        let peak = self.results.run(visit.repetition, &visit.side.id, of);
        match peak.map(|run| run.operations_per_s).filter(|peak| *peak > 0.0) {
            Some(peak) => Ok(Some((peak * share).max(1.0))),
            None => Err(format!("its rate is a share of the case {of}, which has no result")),
        }
    }

    /// Tells which run it is, and how long all that is left will take.
    fn begins(&mut self, visit: Visit<'_>, title: &str) {
        let mut left_s = 0.0;
        let mut left = 0;
        for other in self.plan.visits() {
            if self.progress.missing.contains_key(&other.side.id) {
                continue;
            }
            let cases = self.cases_left(other);
            let is_over = other.repetition < visit.repetition
                || other.repetition == visit.repetition && is_before(self.plan, other.side, visit.side);
            if cases.is_empty() || is_over {
                continue;
            }
            left += cases.len();
            left_s += self.plan.visit_s(other.side, cases.into_iter());
        }
        let all = self.plan.sides.len() * self.plan.cases.len() * self.plan.repetitions as usize;
        self.observer.begins(all - left + 1, all, title, left_s);
    }
}

fn is_before(plan: &Plan, one: &SidePlan, other: &SidePlan) -> bool {
    let place = |side: &SidePlan| plan.sides.iter().position(|known| known.id == side.id);
    place(one) < place(other)
}
