//! A store that is linearizable by construction, and clients of it: each operation has its effect at one moment between its
//! call and its answer. Answers may be lost; then the effect comes, comes late, or never comes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use halcyon_histories::{Action, Found, History, Kind, Operation, Outcome};
use halcyon_testkit::Random;

pub struct Plan {
    pub kind: Kind,
    pub seed: u64,
    pub processes: usize,
    pub rows: usize,
    pub operations: usize,
    /// Of a hundred answers so many are lost.
    pub lost_percent: usize,
    /// Registers: only increments and gets.
    pub is_counter: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Call(usize),
    Effect(usize),
    Answer(usize),
}

/// What happens to the answer of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    Lost,
}

struct Simulation {
    plan: Plan,
    dice: Random,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    history: History,
    fates: Vec<Fate>,
    /// Each row's value.
    lists: BTreeMap<String, Vec<i64>>,
    numbers: BTreeMap<String, Option<i64>>,
    versions: BTreeMap<String, BTreeSet<i64>>,
    /// Versions that a process saw of a row and has not deleted.
    seen_versions: BTreeMap<(usize, String), Vec<i64>>,
    /// What each process saw last of each row.
    last_seen: BTreeMap<(usize, String), Option<i64>>,
    next_number: i64,
}

/// A history of the plan's operations. At the end, after the last answer, each row is read once by each process.
pub fn simulate(plan: Plan) -> History {
    let mut simulation = Simulation {
        dice: Random::new(plan.seed),
        history: History { clients: vec!["simulated".to_string()], ..History::new(plan.kind) },
        plan,
        events: BinaryHeap::new(),
        fates: vec![],
        lists: BTreeMap::new(),
        numbers: BTreeMap::new(),
        versions: BTreeMap::new(),
        seen_versions: BTreeMap::new(),
        last_seen: BTreeMap::new(),
        next_number: 0,
    };
    (0..simulation.plan.processes)
        .for_each(|process| simulation.events.push(Reverse((process as u64, Event::Call(process)))));
    simulation.run();
    let history = simulation.history;
    history.validate().expect("a simulated history is valid");
    history
}

impl Simulation {
    fn run(&mut self) {
        let mut now = 0;
        while let Some(Reverse((at, event))) = self.events.pop() {
            now = at;
            match event {
                Event::Call(process) if self.history.operations.len() < self.plan.operations => {
                    self.call(process, now);
                }
                Event::Call(_) => {}
                Event::Effect(operation) => self.effect(operation),
                Event::Answer(operation) => self.answer(operation, now),
            }
        }
        for process in 0..self.plan.processes {
            for row in 0..self.plan.rows {
                now += 10;
                let row = format!("r{row}");
                let action = match self.plan.kind {
                    Kind::Versions => Action::Range { from: 0, to: i64::MAX, is_scan: false },
                    _ => Action::Get,
                };
                let found = Outcome::Done(Some(self.seen(&row, action)));
                self.history.operations.push(Operation {
                    process: format!("p{process}").into(),
                    row: row.into(),
                    action,
                    called_ns: now,
                    answered_ns: now + 1,
                    outcome: found,
                    line: 0,
                    source: 0,
                });
            }
        }
    }

    fn call(&mut self, process: usize, now: u64) {
        let row = format!("r{}", self.dice.below(self.plan.rows));
        let action = self.action(process, &row);
        let operation = self.history.operations.len();
        let is_lost = self.dice.below(100) < self.plan.lost_percent;
        let effect = now + self.dice.between(1, 30) as u64;
        let mut answer = effect + self.dice.between(0, 30) as u64;
        let mut outcome = Outcome::Done(None);
        if is_lost {
            outcome = Outcome::Unknown;
            answer = now + self.dice.between(1, 60) as u64;
            // in time, late, or never
            match self.dice.below(3) {
                0 => self.events.push(Reverse((effect, Event::Effect(operation)))),
                1 => {
                    let late = effect + self.dice.between(50, 2_000) as u64;
                    self.events.push(Reverse((late, Event::Effect(operation))));
                }
                _ => {}
            }
        } else {
            self.events.push(Reverse((effect, Event::Effect(operation))));
        }
        self.events.push(Reverse((answer, Event::Answer(operation))));
        self.fates.push(if is_lost { Fate::Lost } else { Fate::Answered });
        self.history.operations.push(Operation {
            process: format!("p{process}").into(),
            row: row.into(),
            action,
            called_ns: now,
            answered_ns: answer,
            outcome,
            line: 0,
            source: 0,
        });
    }

    fn number(&mut self) -> i64 {
        self.next_number += 1;
        match self.plan.kind {
            Kind::Registers => self.next_number << 20,
            _ => self.next_number,
        }
    }

    fn action(&mut self, process: usize, row: &str) -> Action {
        let die = self.dice.below(100);
        match self.plan.kind {
            Kind::Lists if die < 50 => Action::Append(self.number()),
            Kind::Rows if die < 5 => Action::Delete,
            Kind::Rows if die < 40 => Action::Put(self.number()),
            Kind::Rows if die < 60 => Action::Scan,
            Kind::Lists | Kind::Rows => Action::Get,
            Kind::Versions => match die {
                0..40 => Action::Put(self.number()),
                40..50 => match self.seen_versions.get_mut(&(process, row.to_string())) {
                    Some(seen) if !seen.is_empty() => {
                        Action::DeleteVersion(seen.swap_remove(self.dice.below(seen.len())))
                    }
                    _ => self.range(false),
                },
                _ => self.range(die < 65),
            },
            Kind::Registers if self.plan.is_counter => match die {
                0..50 => Action::Increment(1),
                _ => Action::Get,
            },
            Kind::Registers => match die {
                0..20 => Action::Put(self.number()),
                20..30 => Action::Delete,
                30..45 => Action::Increment(1),
                45..65 => {
                    let expected = self.last_seen.get(&(process, row.to_string())).copied().flatten();
                    let new = if self.dice.one_in(5) { None } else { Some(self.number()) };
                    Action::CheckAndMutate { expected, new }
                }
                _ => Action::Get,
            },
        }
    }

    fn range(&mut self, is_scan: bool) -> Action {
        if self.dice.one_in(4) {
            return Action::Range { from: 0, to: i64::MAX, is_scan };
        }
        let from = (self.next_number - self.dice.below(20) as i64).max(0);
        Action::Range { from, to: from + self.dice.between(1, 20) as i64, is_scan }
    }

    /// What a read finds now.
    fn seen(&self, row: &str, action: Action) -> Found {
        let Action::Range { from, to, .. } = action else { return self.value(row) };
        let all = self.versions.get(row).into_iter().flat_map(|versions| versions.range(from..to).rev());
        let found: Vec<i64> = all.copied().collect();
        if found.is_empty() { Found::Absent } else { Found::List(found) }
    }

    fn value(&self, row: &str) -> Found {
        match self.plan.kind {
            Kind::Lists => match self.lists.get(row) {
                Some(list) => Found::List(list.clone()),
                None => Found::Absent,
            },
            Kind::Registers => self.numbers.get(row).copied().flatten().map_or(Found::Absent, Found::Number),
            Kind::Versions => unreachable!("a read has a range"),
            Kind::Rows => {
                let number = self.numbers.get(row).copied().flatten();
                number.map_or(Found::Absent, |number| Found::Columns(vec![(number, self.history.columns)]))
            }
        }
    }

    fn effect(&mut self, operation: usize) {
        let Operation { row, action, .. } = self.history.operations[operation].clone();
        let row = row.to_string();
        let now = self.numbers.get(&row).copied().flatten();
        let found = match action {
            Action::Get | Action::Scan | Action::Range { .. } => Some(self.seen(&row, action)),
            Action::DeleteVersion(number) => {
                self.versions.entry(row).or_default().remove(&number);
                None
            }
            Action::Put(number) if self.plan.kind == Kind::Versions => {
                self.versions.entry(row).or_default().insert(number);
                None
            }
            Action::Append(id) => {
                self.lists.entry(row.clone()).or_default().push(id);
                // some answers do not tell the new value
                (!self.dice.one_in(4)).then(|| self.value(&row))
            }
            Action::Put(number) => {
                self.numbers.insert(row, Some(number));
                None
            }
            Action::Delete => {
                self.numbers.insert(row, None);
                None
            }
            Action::Increment(amount) => {
                let sum = now.unwrap_or(0) + amount;
                self.numbers.insert(row, Some(sum));
                (!self.dice.one_in(8)).then_some(Found::Number(sum))
            }
            Action::CheckAndMutate { expected, new } => {
                if now == expected {
                    self.numbers.insert(row, new);
                }
                Some(Found::Held(now == expected))
            }
        };
        if self.fates[operation] == Fate::Answered {
            self.history.operations[operation].outcome = Outcome::Done(found);
        }
    }

    fn answer(&mut self, operation: usize, now: u64) {
        let one = &self.history.operations[operation];
        let process: usize = one.process[1..].parse().expect("p and a number");
        if let (Action::Range { .. }, Outcome::Done(Some(found))) = (one.action, &one.outcome) {
            let versions = if let Found::List(versions) = found { versions.clone() } else { vec![] };
            self.seen_versions.insert((process, one.row.to_string()), versions);
        }
        if let Outcome::Done(Some(found)) = &one.outcome {
            let seen = match found {
                Found::Number(number) => Some(Some(*number)),
                Found::Absent => Some(None),
                _ => None,
            };
            if let Some(seen) = seen {
                self.last_seen.insert((process, one.row.to_string()), seen);
            }
        }
        let pause = self.dice.between(0, 20) as u64;
        self.events.push(Reverse((now + pause, Event::Call(process))));
    }
}
