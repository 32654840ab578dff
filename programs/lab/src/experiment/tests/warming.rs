//! Sides that are cold at first: refused where they were not warmed, and taken where they were.

use super::*;
use crate::experiment::warm::{Wanted, Warmup, is_steady};
use crate::outcome::Second;

/// Seconds after its start in which a JVM of this machine is three times slower.
const COLD_S: u64 = 20;
const MEASURED_S: u64 = 40;
const RATE: u64 = 300;

/// A machine whose servers are cold, by a clock of its own; it obeys the warm-up as the load generator does.
#[derive(Default)]
struct ColdMachine {
    /// Of the side that runs: seconds since it started.
    age_s: u64,
    /// Rates of loads by their words, where they are not [`RATE`].
    rates: HashMap<String, u64>,
    /// Seconds whose rate differs from the one before by a tenth.
    uneven: bool,
    errors: Vec<(String, u64)>,
}

impl ColdMachine {
    fn second(&mut self, rate: u64) -> u64 {
        self.age_s += 1;
        let warm = if self.uneven { rate + rate / 10 * (self.age_s % 2) } else { rate };
        if self.age_s <= COLD_S { warm / 3 } else { warm }
    }

    fn warm(&mut self, wanted: Wanted, rate: u64) -> Vec<f64> {
        let mut rates = Vec::new();
        loop {
            let seconds = rates.len() as u64;
            let is_over = match wanted.max_s {
                None => seconds >= wanted.least_s,
                Some(max_s) => seconds >= max_s || seconds >= wanted.least_s && is_steady(&rates),
            };
            if is_over {
                return rates;
            }
            rates.push(self.second(rate) as f64);
        }
    }
}

impl Stage for ColdMachine {
    fn available(&mut self, _: &SidePlan) -> Result<(), String> {
        Ok(())
    }

    fn start(&mut self, _: &SidePlan) -> Result<Started, String> {
        self.age_s = 0;
        Ok(Started::default())
    }

    fn load(&mut self, order: &Order<'_>) -> Result<Run, String> {
        let words = order.load.words.join(" ");
        let rate = self.rates.get(&words).copied().unwrap_or(RATE);
        let warmup_rates_per_s = self.warm(order.warmup, rate);
        let second = |at: u64, operations: u64| Second {
            at_s: at as f64,
            operations,
            p50_us: 1,
            p99_us: 1,
            max_us: 1,
            resident_bytes: None,
        };
        let series: Vec<Second> = (1..=MEASURED_S).map(|at| second(at, self.second(rate))).collect();
        let operations: u64 = series.iter().map(|second| second.operations).sum();
        Ok(Run {
            warmup_s: warmup_rates_per_s.len() as f64,
            warmup_rates_per_s,
            operations,
            operations_per_s: operations as f64 / MEASURED_S as f64,
            series,
            errors: self.errors.clone(),
            ..result(&words, order.rate, None)
        })
    }

    fn is_running(&mut self) -> bool {
        true
    }

    fn stop(&mut self) {}

    fn is_interrupted(&self) -> bool {
        false
    }
}

/// One JVM, and loads without a preparation.
fn jvm_plan(warmup: Warmup, cases: &[&str]) -> Plan {
    let mut plan = plan();
    let jvm = crate::experiment::parts::hbase("jvm", crate::experiment::plan::Collector::G1, 17, 1 << 30);
    (plan.repetitions, plan.sides) = (1, vec![jvm]);
    let case = |id: &&str| CasePlan { prepare: Vec::new(), rate: Rate::Free, warmup, ..named(&plan, id) };
    plan.cases = cases.iter().map(case).collect();
    plan
}

fn named(plan: &Plan, id: &str) -> CasePlan {
    CasePlan { id: id.to_string(), load: Load::new(10.0, id), ..plan.cases[0].clone() }
}

/// Why the runs of a plan do not count, by case.
fn refused(plan: &Plan, machine: &mut ColdMachine) -> Vec<Option<String>> {
    let env = SimFileSystem::new().env();
    let mut results = open(&env, plan, false).unwrap();
    let mut listener = Listener::default();
    let progress = runner::run(plan, &mut results, machine, &mut listener).unwrap();
    let run = |case: &CasePlan| results.run(1, "jvm", &case.id).unwrap().partial.clone();
    let refused: Vec<Option<String>> = plan.cases.iter().map(run).collect();
    assert_eq!(progress.notes.is_empty(), refused.iter().all(Option::is_none), "{:?}", progress.notes);
    refused
}

/// A JVM without its minute: three seconds are steady, because an interpreter is.
const NO_MINUTE: Warmup = Warmup::Steady { jvm_s: 0, native_s: 0, max_s: 240 };

#[test]
fn a_cold_side_is_refused_and_a_warmed_one_is_taken() {
    let why = refused(&jvm_plan(NO_MINUTE, &["load"]), &mut ColdMachine::default());
    let why = why[0].as_deref().expect("a cold run is refused");
    assert_eq!(why, "not steady: its last quarter was 200 % faster than its first (300/s, 100/s)");
    let warmed = refused(&jvm_plan(Warmup::new(None, false), &["load"]), &mut ColdMachine::default());
    assert_eq!(warmed, [None]);
}

#[test]
fn a_generator_that_does_not_warm_is_noticed() {
    /// Says less than it was asked for.
    struct Hasty(ColdMachine);
    impl Stage for Hasty {
        fn available(&mut self, side: &SidePlan) -> Result<(), String> {
            self.0.available(side)
        }
        fn start(&mut self, side: &SidePlan) -> Result<Started, String> {
            self.0.start(side)
        }
        fn load(&mut self, order: &Order<'_>) -> Result<Run, String> {
            let none = Wanted { least_s: 3, max_s: None };
            self.0.load(&Order { warmup: none, ..order.clone() })
        }
        fn is_running(&mut self) -> bool {
            true
        }
        fn stop(&mut self) {}
        fn is_interrupted(&self) -> bool {
            false
        }
    }
    let (env, plan) = (SimFileSystem::new().env(), jvm_plan(Warmup::new(None, false), &["load"]));
    let mut results = open(&env, &plan, false).unwrap();
    let mut hasty = Hasty(ColdMachine::default());
    runner::run(&plan, &mut results, &mut hasty, &mut Listener::default()).unwrap();
    let why = results.run(1, "jvm", "load").unwrap().partial.as_deref();
    assert_eq!(why, Some("not steady: warmed for 3 s, not for 60"));
}

#[test]
fn a_side_that_never_becomes_steady_is_partial() {
    let mut machine = ColdMachine { uneven: true, ..ColdMachine::default() };
    let why = refused(&jvm_plan(Warmup::new(None, false), &["load"]), &mut machine);
    assert_eq!(why[0].as_deref(), Some("not steady after a warm-up of 240 s"));
}

#[test]
fn wrong_answers_are_partial_even_where_steadiness_is_not_wanted() {
    let errors = vec![("NotFound".to_string(), 2), ("WrongValue".to_string(), 1)];
    for warmup in [Warmup::new(None, false), Warmup::Unjudged { seconds: 30 }] {
        let mut machine = ColdMachine { errors: errors.clone(), ..ColdMachine::default() };
        let why = refused(&jvm_plan(warmup, &["load"]), &mut machine);
        assert_eq!(why[0].as_deref(), Some("wrong answers or errors: NotFound 2, WrongValue 1"));
    }
}

#[test]
fn a_load_that_does_more_is_not_faster() {
    let mut plan = jvm_plan(Warmup::new(None, false), &["ycsb-a", "other", "ycsb-f"]);
    plan.not_faster = vec![("ycsb-f".to_string(), "ycsb-a".to_string())];
    let rates = HashMap::from([("ycsb-a".to_string(), 200)]);
    let why = refused(&plan, &mut ColdMachine { rates: rates.clone(), ..ColdMachine::default() });
    let told = "ycsb-f does all that ycsb-a does and more, and is faster: 300/s, 200/s";
    assert_eq!(why, [Some(told.to_string()), None, Some(told.to_string())]);
    // the other order is what is expected
    plan.not_faster = vec![("ycsb-a".to_string(), "ycsb-f".to_string())];
    let why = refused(&plan, &mut ColdMachine { rates, ..ColdMachine::default() });
    assert_eq!(why, [None, None, None]);
    let zgc = plan_for(&args("zgc --quick"), &machine()).unwrap();
    assert_eq!(zgc.not_faster, [("ycsb-f".to_string(), "ycsb-a".to_string())]);
}

#[test]
fn quick_does_not_shorten_the_warm_up_of_a_jvm() {
    for name in ALL {
        for form in ["", "--quick", "--quick --warmup 1"] {
            let plan = plan_for(&args(&format!("{name} {form}")), &machine()).unwrap();
            for (side, case) in
                plan.sides.iter().flat_map(|side| plan.cases.iter().map(move |case| (side, case)))
            {
                let wanted = case.warmup.wanted(side);
                let is_jvm = !matches!(side.server, Server::Halcyon { .. });
                assert!(wanted.least_s >= if is_jvm { 60 } else { 1 }, "{name} {form}: {}", side.id);
                assert!(wanted.max_s.is_some_and(|max_s| max_s >= 2 * wanted.least_s), "{name} {form}");
                assert!(case.load.expected_s >= 11.0, "{name} {form}: a quarter has two seconds and more");
            }
        }
    }
}
