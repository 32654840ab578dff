//! The runner with a stage that only pretends: order, restarts at every step, what goes wrong; and the plans.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::rc::Rc;

use clap::Parser;
use halcyon_env::Env;
use halcyon_env::sim::SimFileSystem;

use super::options::{Machine, Name, RunArgs};
use super::plan::{CasePlan, Durability, Load, Plan, Rate, Server, SidePlan};
use super::results::{Beginning, Results};
use super::runner::{self, Observer, Progress};
use super::stage::{Order, Stage, Started};
use super::warm::Warmup;
use super::{definition, report};
use crate::outcome::{Entry, Environment, Resources, Run};

mod searching;
mod warming;

/// What has happened, a word or two each.
type Diary = Rc<RefCell<Vec<String>>>;

/// What a step does instead of succeeding.
#[derive(Clone, Copy, PartialEq)]
enum Mishap {
    /// The process is killed.
    Killed,
    /// The user presses Ctrl-C meanwhile.
    Interrupted,
    /// The step fails with a sentence.
    Fails,
    /// A load ends early, with a result.
    Partial,
    /// The server is gone after it.
    ServerEnds,
}

#[derive(Default)]
struct Fake {
    diary: Diary,
    running: Option<String>,
    is_interrupted: bool,
    missing: HashMap<String, String>,
    /// Number of the step, from 0.
    mishap: Option<(usize, Mishap)>,
    steps: usize,
}

impl Fake {
    fn step(&mut self, what: String) -> Option<Mishap> {
        assert!(!self.is_interrupted, "nothing begins after an interruption: {what}");
        self.diary.borrow_mut().push(what);
        let mishap = self.mishap.filter(|(at, _)| *at == self.steps).map(|(_, mishap)| mishap);
        self.steps += 1;
        match mishap {
            Some(Mishap::Killed) => panic!("killed"),
            Some(Mishap::Interrupted) => self.is_interrupted = true,
            Some(Mishap::ServerEnds) => self.running = None,
            _ => {}
        }
        mishap
    }
}

impl Stage for Fake {
    fn available(&mut self, side: &SidePlan) -> Result<(), String> {
        self.missing.get(&side.id).map_or(Ok(()), |why| Err(why.clone()))
    }

    fn start(&mut self, side: &SidePlan) -> Result<Started, String> {
        assert!(self.running.is_none(), "one server at a time");
        self.running = Some(side.id.clone());
        match self.step(format!("start {}", side.id)) {
            Some(Mishap::Fails) => {
                self.running = None;
                Err("it did not come up".to_string())
            }
            _ => Ok(Started { command_line: vec![side.id.clone()], settings: Vec::new() }),
        }
    }

    fn load(&mut self, order: &Order<'_>) -> Result<Run, String> {
        let side = self.running.clone().expect("a load comes after a start");
        let words = order.load.words.join(" ");
        let rate = order.rate.map_or(String::new(), |rate| format!(" at {rate}"));
        let partial = match self.step(format!("{side} {words}{rate}")) {
            Some(Mishap::Fails) => return Err("no answer".to_string()),
            Some(Mishap::Interrupted) => Some("interrupted".to_string()),
            Some(Mishap::Partial) => Some("timed out".to_string()),
            _ => None,
        };
        Ok(result(&words, order.rate, partial))
    }

    fn is_running(&mut self) -> bool {
        self.running.is_some()
    }

    fn stop(&mut self) {
        self.running = None;
    }

    fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }
}

fn result(words: &str, rate: Option<f64>, partial: Option<String>) -> Run {
    Run {
        side: String::new(),
        case: String::new(),
        repetition: 0,
        command_line: vec![words.to_string()],
        started_ms: 1,
        elapsed_s: 10.0,
        partial,
        warmup_s: 0.0,
        warmup_rates_per_s: Vec::new(),
        operations: 100,
        operations_per_s: 10.0,
        rate_wanted_per_s: rate,
        latencies: Vec::new(),
        series: Vec::new(),
        slow: Vec::new(),
        slow_left_out: 0,
        pauses: Vec::new(),
        resources: Resources {
            server_cpu_s: 1.0,
            client_cpu_s: 1.0,
            others_cpu_s: 0.0,
            resident_bytes: 1,
            resident_peak_bytes: 1,
            disk_read_bytes: 0,
            disk_written_bytes: 0,
            io_wait_s: 0.0,
            stolen_s: 0.0,
            bound_by: "server CPU".to_string(),
        },
        errors: Vec::new(),
        disk_bytes: None,
    }
}

/// Writes every notification into the diary.
#[derive(Default)]
struct Listener {
    numbers: Vec<(usize, usize)>,
    left_s: Vec<f64>,
    said: Vec<String>,
    visits: usize,
}

impl Observer for Listener {
    fn begins(&mut self, number: usize, of: usize, _: &str, left_s: f64) {
        self.numbers.push((number, of));
        self.left_s.push(left_s);
    }

    fn says(&mut self, sentence: &str) {
        self.said.push(sentence.to_string());
    }

    fn visited(&mut self, _: &Results, _: &Progress) {
        self.visits += 1;
    }
}

/// Two sides, a peak and its half, and a case with another preparation; twice.
fn plan() -> Plan {
    let side = |id: &str| SidePlan {
        id: id.to_string(),
        label: id.to_uppercase(),
        server: Server::Halcyon { memory_bytes: 1 << 30 },
    };
    let case = |id: &str, prepare: &[&str], rate: Rate| CasePlan {
        id: id.to_string(),
        label: id.to_string(),
        prepare: prepare.iter().map(|words| Load::new(1.0, words)).collect(),
        load: Load::new(10.0, id),
        rate,
        warmup: Warmup::Unjudged { seconds: 0 },
    };
    let half = Rate::Share { of: "peak".to_string(), share: 0.5 };
    Plan {
        name: "test".to_string(),
        quick: true,
        repetitions: 2,
        durability: Durability::Written,
        sides: vec![side("a"), side("b")],
        cases: vec![
            case("peak", &["fill"], Rate::Free),
            case("half", &["fill"], half),
            case("other", &["fill", "more"], Rate::Fixed { per_s: 3.0 }),
        ],
        not_faster: Vec::new(),
        ladders: Vec::new(),
        scaled: Vec::new(),
    }
}

const OUT: &str = "/out";

fn open(env: &Env, plan: &Plan, fresh: bool) -> Result<Results, String> {
    let beginning = Beginning { plan: plan.clone(), machine: "here".to_string(), started_ms: 7 };
    Results::open(env, Path::new(OUT), beginning, fresh)
}

/// One call of the command.
fn call(env: &Env, plan: &Plan, fake: &mut Fake) -> (Progress, Listener) {
    let mut results = open(env, plan, false).unwrap();
    let mut listener = Listener::default();
    let progress = runner::run(plan, &mut results, fake, &mut listener).unwrap();
    (progress, listener)
}

fn expected() -> Vec<String> {
    let visit = |side: &str| {
        ["fill", "peak", "half at 5", "more", "other at 3"].map(|words| format!("{side} {words}")).to_vec()
    };
    let mut all = Vec::new();
    for side in ["a", "b", "a", "b"] {
        all.push(format!("start {side}"));
        all.extend(visit(side));
    }
    all
}

#[test]
fn repetitions_are_interleaved_and_a_rate_comes_from_the_own_peak() {
    let (env, mut fake) = (SimFileSystem::new().env(), Fake::default());
    let (progress, listener) = call(&env, &plan(), &mut fake);
    assert_eq!(*fake.diary.borrow(), expected());
    assert_eq!(progress, Progress::default());
    assert_eq!((listener.numbers[0], *listener.numbers.last().unwrap()), ((1, 12), (12, 12)));
    assert!(listener.left_s.is_sorted_by(|a, b| a >= b), "{:?}", listener.left_s);
    assert_eq!((listener.visits, listener.said.len()), (4, 0));
    let results = open(&env, &plan(), false).unwrap();
    assert_eq!(results.run(2, "b", "half").unwrap().rate_wanted_per_s, Some(5.0));
    assert_eq!(results.started("b").unwrap().command_line, ["b"]);
    drop(results);

    // all is there: nothing is done again
    let mut again = Fake::default();
    call(&env, &plan(), &mut again);
    assert!(again.diary.borrow().is_empty());
}

#[test]
fn it_goes_on_after_a_kill_at_any_step() {
    for mishap in [Mishap::Killed, Mishap::Interrupted] {
        for at in 0..expected().len() {
            let env = SimFileSystem::new().env();
            let mut first = Fake { mishap: Some((at, mishap)), ..Fake::default() };
            match mishap {
                Mishap::Killed => {
                    assert!(catch_unwind(AssertUnwindSafe(|| call(&env, &plan(), &mut first))).is_err());
                }
                _ => {
                    let (progress, _) = call(&env, &plan(), &mut first);
                    assert!(progress.is_interrupted && !progress.notes.is_empty());
                }
            }
            let done: Vec<(u32, String, String)> = whole(&env);
            let mut second = Fake::default();
            let (progress, _) = call(&env, &plan(), &mut second);
            assert_eq!(progress, Progress::default());
            assert_eq!(whole(&env).len(), 12, "step {at}");
            // nothing that was whole is measured again
            let measured = |case: &str, fake: &Fake| {
                let is_case =
                    |line: &&String| line.split(' ').nth(1) == Some(case) && !line.starts_with("start");
                fake.diary.borrow().iter().filter(is_case).count()
            };
            for case in ["peak", "half", "other"] {
                let before = done.iter().filter(|(.., done)| done == case).count();
                assert_eq!(measured(case, &second) + before, 4, "step {at}, {case}");
            }
            // what was prepared is prepared again, for the data are new
            let diary = second.diary.borrow();
            let starts = diary.iter().filter(|line| line.starts_with("start")).count();
            assert_eq!(measured("fill", &second), starts, "step {at}: {diary:?}");
        }
    }
}

fn whole(env: &Env) -> Vec<(u32, String, String)> {
    let results = open(env, &plan(), false).unwrap();
    let whole = results.runs().iter().filter(|run| run.partial.is_none());
    whole.map(|run| (run.repetition, run.side.clone(), run.case.clone())).collect()
}

#[test]
fn what_goes_wrong_costs_as_little_as_can_be() {
    // the step, what happens in it, whole runs after it
    for (at, mishap, whole_after) in [
        (0, Mishap::Fails, 6),  // a does not start: it is left out
        (12, Mishap::Fails, 9), // it does not start a second time
        (1, Mishap::Fails, 9),  // it cannot be filled
        (2, Mishap::Fails, 10), // no peak, so no half of it
        (3, Mishap::Fails, 11),
        (3, Mishap::Partial, 11),
        (2, Mishap::ServerEnds, 9),
        (3, Mishap::ServerEnds, 10), // the peak before it stays
    ] {
        let env = SimFileSystem::new().env();
        let mut fake = Fake { mishap: Some((at, mishap)), ..Fake::default() };
        let (progress, listener) = call(&env, &plan(), &mut fake);
        assert_eq!(whole(&env).len(), whole_after, "step {at}");
        assert!(!progress.is_interrupted && !progress.notes.is_empty());
        assert_eq!(listener.said, progress.notes);
        assert_eq!(progress.missing.contains_key("a"), at == 0);
        // the next call measures what is missing, and only that
        let (progress, _) = call(&env, &plan(), &mut Fake::default());
        assert_eq!((whole(&env).len(), progress), (12, Progress::default()));
    }
}

#[test]
fn a_partial_run_is_kept_and_marked() {
    let env = SimFileSystem::new().env();
    let mut fake = Fake { mishap: Some((3, Mishap::Partial)), ..Fake::default() };
    let (progress, _) = call(&env, &plan(), &mut fake);
    let results = open(&env, &plan(), false).unwrap();
    assert_eq!(results.run(1, "a", "half").unwrap().partial.as_deref(), Some("timed out"));
    let experiment = whole_of(&plan(), &results, &progress);
    let partial = experiment.partial.unwrap();
    assert!(partial.starts_with("11 of 12 runs are whole: ") && partial.contains("timed out"), "{partial}");
    assert_eq!(experiment.runs.len(), 12);
}

fn plan_for(args: &RunArgs, machine: &Machine) -> Result<Plan, String> {
    definition(args.name).plan(args, machine)
}

fn whole_of(plan: &Plan, results: &Results, progress: &Progress) -> crate::outcome::Experiment {
    let environment = Environment {
        cpu: String::new(),
        cores: 2,
        memory_bytes: 0,
        system: String::new(),
        sync_ms: None,
        halcyon: String::new(),
        jdks: Vec::new(),
    };
    let name = Name::ReadPauses;
    let definition = definition(name);
    report::assemble(
        &definition.about(),
        |e| definition.tables(e),
        plan,
        results,
        progress,
        &environment,
        Some(9),
    )
}

#[test]
fn a_missing_side_is_left_out_and_said() {
    let env = SimFileSystem::new().env();
    let missing = HashMap::from([("a".to_string(), "no JDK 11 was found".to_string())]);
    let mut fake = Fake { missing, ..Fake::default() };
    let (progress, listener) = call(&env, &plan(), &mut fake);
    assert!(!fake.diary.borrow().iter().any(|line| line.contains("start a")));
    assert_eq!(listener.said, ["A is left out: no JDK 11 was found"]);
    let results = open(&env, &plan(), false).unwrap();
    let experiment = whole_of(&plan(), &results, &progress);
    assert_eq!(experiment.sides[0].missing.as_deref(), Some("no JDK 11 was found"));
    let row = experiment.tables[0].rows.iter().find(|row| row[0] == Entry::Text("A".to_string())).unwrap();
    assert_eq!(row[2], Entry::Absent("no JDK 11 was found".to_string()));
}

#[test]
fn results_of_another_plan_are_not_touched() {
    let env = SimFileSystem::new().env();
    call(&env, &plan(), &mut Fake::default());
    let mut other = plan();
    other.cases[0].load = Load::new(10.0, "peak --rows=5");
    let told = open(&env, &other, false).err().unwrap();
    assert_eq!(
        told,
        "/out holds results of other cases or sizes; --fresh throws them away, --out takes another directory"
    );
    other = plan();
    other.repetitions = 3;
    assert!(open(&env, &other, false).err().unwrap().contains("2 repetitions"));
    assert_eq!(whole(&env).len(), 12);
    env.fs.put_new(&Path::new(OUT).join("note.txt"), b"mine").unwrap();
    assert!(open(&env, &other, true).unwrap().runs().is_empty());
    assert!(env.fs.exists(&Path::new(OUT).join("note.txt")).unwrap(), "only its own files go");

    let held = open(&env, &other, false).unwrap();
    assert!(open(&env, &other, false).err().unwrap().contains("another experiment is writing there"));
    drop(held);
}

#[test]
fn a_damaged_run_is_measured_anew() {
    let env = SimFileSystem::new().env();
    call(&env, &plan(), &mut Fake::default());
    env.fs.replace(&Path::new(OUT).join("runs/1-b-peak.json"), b"{\"side\":").unwrap();
    let mut fake = Fake::default();
    call(&env, &plan(), &mut fake);
    assert_eq!(*fake.diary.borrow(), ["start b", "b fill", "b peak"]);
    assert_eq!(whole(&env).len(), 12);
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: RunArgs,
}

fn args(line: &str) -> RunArgs {
    Line::try_parse_from(["run"].into_iter().chain(line.split_whitespace())).unwrap().args
}

fn machine() -> Machine {
    Machine { cores: 2, memory_bytes: 24 << 30, jdks: vec![17, 25] }
}

const ALL: [&str; 7] = ["read-pauses", "plab", "offheap", "zgc", "native-map", "shapes", "memory"];

#[test]
fn quick_forms_take_minutes_and_little_memory() {
    for name in ALL {
        let plan = plan_for(&args(&format!("{name} --quick")), &machine()).unwrap();
        let visits = plan.expected_visits();
        let all_s: f64 = visits.iter().map(|visit| plan.visit_s(visit.side, plan.cases.iter())).sum();
        let warm_s: f64 = visits
            .iter()
            .flat_map(|visit| plan.cases.iter().map(move |case| (visit.side, case)))
            .map(|(side, case)| case.warmup.expected_s(side))
            .sum();
        // shapes has twelve loads, and fills a table of five times the memory
        let most_s = if name == "shapes" { 900.0 } else { 360.0 };
        assert!((100.0..most_s).contains(&(all_s - warm_s)), "{name}: {all_s} s, warm-up {warm_s} s");
        assert!(all_s < 1_800.0, "{name}: {all_s} s");
        for side in &plan.sides {
            let memory = match side.server {
                Server::Halcyon { memory_bytes } => memory_bytes,
                Server::Hbase { heap_bytes, .. } => heap_bytes,
                Server::Accumulo { heap_bytes, maps_bytes, .. } => heap_bytes + maps_bytes,
            };
            assert!(memory <= 4 << 30, "{name} {}: {memory}", side.id);
        }
        assert!(!plan.scaled.is_empty(), "{name} says what is smaller than published");
    }
}

#[test]
fn plans_are_sound() {
    for name in ALL {
        for form in ["", "--quick"] {
            let plan = plan_for(&args(&format!("{name} {form}")), &machine()).unwrap();
            assert_eq!(plan, plan_for(&args(&format!("{name} {form}")), &machine()).unwrap());
            let unique = |ids: Vec<&str>| {
                let mut seen: Vec<&str> = ids.clone();
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), ids.len(), "{name}: {ids:?}");
            };
            unique(plan.sides.iter().map(|side| side.id.as_str()).collect());
            unique(plan.cases.iter().map(|case| case.id.as_str()).collect());
            assert!(plan.sides.iter().any(|side| matches!(side.server, Server::Halcyon { .. })));
            for (at, case) in plan.cases.iter().enumerate() {
                if let Rate::Share { of, .. } = &case.rate {
                    assert!(plan.cases[..at].iter().any(|other| other.id == *of), "{name}: {of} comes later");
                }
            }
            assert!(form.is_empty() || plan.repetitions <= 3);
        }
    }
}

#[test]
fn sides_and_cases_are_chosen() {
    let mut plan = plan_for(&args("zgc --quick"), &machine()).unwrap();
    let all = plan.sides.len();
    plan.choose(&["halcyon-2g".to_string()], &["ycsb-a-half".to_string()]).unwrap();
    let cases: Vec<&str> = plan.cases.iter().map(|case| case.id.as_str()).collect();
    assert_eq!((all, plan.sides.len()), (3, 1));
    assert_eq!(cases, ["ycsb-a", "ycsb-a-half"], "a half needs its peak");
    let told = plan.choose(&["hbase".to_string()], &[]).unwrap_err();
    assert_eq!(told, "there is no side 'hbase' here, only halcyon-2g");
}

#[test]
fn options_that_mean_nothing_are_refused() {
    let told = |line: &str| plan_for(&args(line), &machine()).unwrap_err();
    assert_eq!(told("plab --rate 5"), "the experiment plab does not use --rate");
    assert_eq!(told("read-pauses --heap 1g,2g"), "--heap takes one value in this experiment");
    let plan = plan_for(&args("zgc --heap 1g,2g --jdk 21"), &machine()).unwrap();
    let ids: Vec<&str> = plan.sides.iter().map(|side| side.id.as_str()).collect();
    assert_eq!(ids[..3], ["hbase-21-g1-1g", "hbase-21-zgc-1g", "halcyon-1g"]);
    assert_eq!(plan.sides.len(), 6);
}

#[test]
fn tables_stand_without_results() {
    let env = SimFileSystem::new().env();
    for (at, name) in ALL.into_iter().enumerate() {
        let args = args(&format!("{name} --quick"));
        let plan = plan_for(&args, &machine()).unwrap();
        let beginning = Beginning { plan: plan.clone(), machine: String::new(), started_ms: 1 };
        let results = Results::open(&env, &Path::new("/").join(at.to_string()), beginning, false).unwrap();
        let environment = whole_of(&plan, &results, &Progress::default()).environment;
        let tables = |e: &crate::outcome::Experiment| definition(args.name).tables(e);
        let about = definition(args.name).about();
        let progress = Progress::default();
        let experiment = report::assemble(&about, tables, &plan, &results, &progress, &environment, None);
        for table in &experiment.tables {
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{name}: {}", table.title);
            assert!(!report::text(table).is_empty());
        }
        assert!(experiment.sources.iter().all(|source| source.address.starts_with("https://")));
    }
}

#[test]
fn aged_cases_come_after_all_fresh_ones_and_have_their_own_peaks() {
    let mut plan = plan_for(&args("zgc --quick"), &machine()).unwrap();
    let fresh = plan.cases.clone();
    super::aging::add(&mut plan).unwrap();
    assert_eq!(plan.cases.len(), 2 * fresh.len());
    assert_eq!(plan.cases[..fresh.len()], fresh);
    for (aged, fresh) in plan.cases[fresh.len()..].iter().zip(&fresh) {
        assert_eq!((aged.id.clone(), &aged.load), (format!("aged-{}", fresh.id), &fresh.load));
        assert_eq!(aged.prepare[..fresh.prepare.len()], fresh.prepare);
        let age = aged.prepare.last().unwrap().words.join(" ");
        assert!(age.starts_with("ycsb run --flush-every ") && age.contains("--workload a "), "{age}");
        if let Rate::Share { of, .. } = &aged.rate {
            assert_eq!(of, "aged-ycsb-a");
        }
    }
    assert_eq!(plan.not_faster[1], ("aged-ycsb-f".to_string(), "aged-ycsb-a".to_string()));
    plan.choose(&[], &["aged-ycsb-a-half".to_string()]).unwrap();
    let ids: Vec<&str> = plan.cases.iter().map(|case| case.id.as_str()).collect();
    assert_eq!(ids, ["aged-ycsb-a", "aged-ycsb-a-half"]);

    let mut plab = plan_for(&args("plab --quick"), &machine()).unwrap();
    let told = super::aging::add(&mut plab).unwrap_err();
    assert_eq!(told, "the experiment plab does not use --aged: it has no YCSB table");
}
