//! The smallest side that serves is found by halving.

use super::*;
use crate::experiment::search::{Search, is_held};

/// Why a side that is too small does not serve.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    DoesNotStart,
    CannotBeFilled,
    EndsMeanwhile,
    IsTooSlow,
    AnswersWrong,
}

/// Sides of 1 to 11 MiB, of which those from `least` on serve.
struct Small {
    least: u64,
    fault: Fault,
    size: u64,
    is_running: bool,
    started: Vec<u64>,
}

impl Small {
    fn new(least: u64, fault: Fault) -> Small {
        Small { least, fault, size: 0, is_running: false, started: Vec::new() }
    }

    fn fails_with(&self, fault: Fault) -> bool {
        self.size < self.least && self.fault == fault
    }
}

impl Stage for Small {
    fn available(&mut self, _: &SidePlan) -> Result<(), String> {
        Ok(())
    }

    fn start(&mut self, side: &SidePlan) -> Result<Started, String> {
        let Server::Halcyon { memory_bytes } = side.server else { panic!("a ladder of one product") };
        self.size = memory_bytes >> 20;
        self.started.push(self.size);
        if self.fails_with(Fault::DoesNotStart) {
            return Err("no memory".to_string());
        }
        self.is_running = true;
        Ok(Started::default())
    }

    fn load(&mut self, order: &Order<'_>) -> Result<Run, String> {
        let words = order.load.words.join(" ");
        if words == "fill" {
            let partial = self.fails_with(Fault::CannotBeFilled).then(|| "timed out".to_string());
            return Ok(result(&words, None, partial));
        }
        let mut run = result(&words, order.rate, None);
        (run.operations, run.operations_per_s) = (1_000, 100.0);
        if self.fails_with(Fault::IsTooSlow) {
            run.operations_per_s = 97.0;
        }
        if self.fails_with(Fault::AnswersWrong) {
            run.errors = vec![("NotFound".to_string(), 1)];
        }
        if self.fails_with(Fault::EndsMeanwhile) {
            self.is_running = false;
        }
        Ok(run)
    }

    fn is_running(&mut self) -> bool {
        self.is_running
    }

    fn stop(&mut self) {
        self.is_running = false;
    }

    fn is_interrupted(&self) -> bool {
        false
    }
}

fn ladder_plan() -> Plan {
    let side = |size: u64| SidePlan {
        id: format!("{size}m"),
        label: format!("{size} MiB"),
        server: Server::Halcyon { memory_bytes: size << 20 },
    };
    let mut plan = plan();
    plan.repetitions = 1;
    plan.sides = (1..=11).map(side).collect();
    plan.ladders = vec![plan.sides.iter().map(|side| side.id.clone()).collect()];
    plan.cases.truncate(1);
    plan.cases[0].rate = Rate::Fixed { per_s: 100.0 };
    plan
}

/// The smallest side that serves, by what is written of it.
fn found(env: &Env, plan: &Plan) -> Option<String> {
    let results = open(env, plan, false).unwrap();
    let mut search = Search::new(plan, 1, &plan.ladders[0]);
    while search.next().is_some() {
        search.learn(&results);
    }
    search.found().map(|side| side.id.clone())
}

#[test]
fn the_smallest_side_that_serves_is_found() {
    let plan = ladder_plan();
    for fault in [
        Fault::DoesNotStart,
        Fault::CannotBeFilled,
        Fault::EndsMeanwhile,
        Fault::IsTooSlow,
        Fault::AnswersWrong,
    ] {
        for least in 1..=11 {
            let (env, mut machine) = (SimFileSystem::new().env(), Small::new(least, fault));
            let mut results = open(&env, &plan, false).unwrap();
            let progress = runner::run(&plan, &mut results, &mut machine, &mut Listener::default()).unwrap();
            assert!(machine.started.len() <= 4, "{fault:?}, {least}: {:?}", machine.started);
            assert_eq!(progress.unserved, 0);
            assert_eq!(whole_of(&plan, &results, &progress).partial, None, "what does not serve is a result");
            drop(results);
            assert_eq!(found(&env, &plan), Some(format!("{least}m")), "{fault:?}");
        }
    }
}

#[test]
fn that_none_serves_is_said_and_a_search_goes_on() {
    let plan = ladder_plan();
    let (env, mut machine) = (SimFileSystem::new().env(), Small::new(12, Fault::IsTooSlow));
    let mut results = open(&env, &plan, false).unwrap();
    let progress = runner::run(&plan, &mut results, &mut machine, &mut Listener::default()).unwrap();
    assert_eq!(progress.unserved, 1);
    let partial = whole_of(&plan, &results, &progress).partial.unwrap();
    assert!(partial.contains("of 1m to 11m none serves"), "{partial}");
    drop(results);
    assert_eq!(found(&env, &plan), None);
    // whole runs below the rate are not measured again
    let mut again = Small::new(1, Fault::IsTooSlow);
    let mut results = open(&env, &plan, false).unwrap();
    runner::run(&plan, &mut results, &mut again, &mut Listener::default()).unwrap();
    assert_eq!(again.started, [0; 0]);
}

#[test]
fn what_holds_a_rate() {
    let run = |rate, partial| Run { operations_per_s: rate, ..result("x", Some(100.0), partial) };
    assert!(is_held(&run(98.0, None)));
    assert!(!is_held(&run(97.9, None)));
    assert!(!is_held(&run(100.0, Some("interrupted".to_string()))));
}

#[test]
fn ladders_rise_and_fit_the_machine() {
    let mut plan = plan_for(&args("memory --quick"), &machine()).unwrap();
    assert_eq!(plan.ladders.len(), 2);
    for ladder in &plan.ladders {
        let size = |id: &String| {
            let side = plan.sides.iter().find(|side| side.id == *id).unwrap();
            match side.server {
                Server::Halcyon { memory_bytes } => memory_bytes,
                Server::Hbase { heap_bytes, .. } => heap_bytes,
                Server::Accumulo { .. } => panic!("not compared here"),
            }
        };
        assert!(ladder.iter().map(size).is_sorted_by(|one, other| one < other));
    }
    plan.choose(&["halcyon-64m".to_string()], &[]).unwrap();
    assert_eq!(plan.ladders, [["halcyon-64m".to_string()]]);
}
