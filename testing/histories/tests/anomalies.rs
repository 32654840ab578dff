//! Correct histories pass, and each kind of anomaly is found: one is put into a correct history where it is certain to
//! contradict other operations.

mod simulated;

use halcyon_histories::check::check;
use halcyon_histories::{Action, Found, History, Kind, Limits, Operation, Outcome, Report, Verdict, text};
use halcyon_testkit::Random;
use halcyon_testkit::for_each_seed;
use simulated::{Plan, simulate};

const SEEDS: std::ops::Range<u64> = 0..300;

fn plan(kind: Kind, seed: u64) -> Plan {
    Plan { kind, seed, processes: 5, rows: 3, operations: 250, lost_percent: 10, is_counter: false }
}

fn test(name: &str) -> String {
    format!("-p halcyon-histories --test anomalies {name}")
}

fn checked(history: &History) -> Report {
    history.validate().expect("the anomaly is in the answers");
    check(history, &Limits::default())
}

/// Looks whether the check finds what `spoil` did. Where it found no place in any history, the test says nothing.
fn finds(name: &str, kind: Kind, spoil: impl Fn(&mut History, &mut Random) -> bool) {
    let mut spoiled = 0;
    for_each_seed(&test(name), SEEDS, |seed| {
        let mut history = simulate(plan(kind, seed));
        if spoil(&mut history, &mut Random::new(seed)) {
            spoiled += 1;
            let report = checked(&history);
            assert_eq!(report.verdict(), Verdict::Violated, "{}", text::write(&history));
            let shown = &report.violations[0].operations;
            assert!(!shown.is_empty() && shown.len() <= 8, "{}", report.text(&history));
        }
    });
    assert!(spoiled >= 1, "no history had a place for it");
    if !halcyon_testkit::is_part(SEEDS) {
        assert!(spoiled > 200, "only {spoiled} histories had a place for it");
    }
}

/// Tries random operations until one fits.
fn pick(history: &History, dice: &mut Random, fits: impl Fn(&Operation) -> bool) -> Option<usize> {
    let all: Vec<usize> = (0..history.operations.len()).filter(|&at| fits(&history.operations[at])).collect();
    (!all.is_empty()).then(|| all[dice.below(all.len())])
}

fn list_of(one: &Operation) -> Option<&Vec<i64>> {
    match &one.outcome {
        Outcome::Done(Some(Found::List(list))) => Some(list),
        _ => None,
    }
}

fn set(one: &mut Operation, found: Found) {
    one.outcome = Outcome::Done(Some(found));
}

/// A row's last list, which the reads at the end have.
fn last_list(history: &History, row: &str) -> Vec<i64> {
    let last = history.operations.iter().rev().find(|one| &*one.row == row);
    last.and_then(list_of).cloned().unwrap_or_default()
}

#[test]
fn correct_histories_pass() {
    for kind in Kind::ALL {
        for_each_seed(&test("correct_histories_pass"), SEEDS, |seed| {
            let history = simulate(plan(kind, seed));
            let report = checked(&history);
            assert_eq!(report.verdict(), Verdict::Linearizable, "{}", report.text(&history));
            // and after they were written to a file and read
            let again = text::read("f", &text::write(&history)).expect("it was written by us");
            assert_eq!(again.operations.len(), history.operations.len());
            assert_eq!(check(&again, &Limits::default()).verdict(), Verdict::Linearizable);
        });
    }
}

#[test]
fn a_lost_append_is_found() {
    finds("a_lost_append_is_found", Kind::Lists, |history, dice| {
        let acknowledged =
            |one: &Operation| matches!(one.action, Action::Append(_)) && one.outcome == Outcome::Done(None);
        let Some(lost) = pick(history, dice, acknowledged) else { return false };
        let Action::Append(id) = history.operations[lost].action else { unreachable!() };
        for one in &mut history.operations {
            if let Outcome::Done(Some(Found::List(list))) = &mut one.outcome {
                list.retain(|other| *other != id);
            }
        }
        // an answer that is empty now
        history.operations.iter_mut().for_each(|one| {
            if list_of(one).is_some_and(Vec::is_empty) {
                one.outcome = Outcome::Done(if one.action.is_read() { Some(Found::Absent) } else { None });
            }
        });
        true
    });
}

#[test]
fn a_doubled_append_is_found() {
    finds("a_doubled_append_is_found", Kind::Lists, |history, dice| {
        let Some(some) = pick(history, dice, |one| list_of(one).is_some()) else { return false };
        let row = history.operations[some].row.clone();
        let list = last_list(history, &row);
        let id = list[dice.below(list.len())];
        for one in &mut history.operations {
            if one.row == row && list_of(one).is_some_and(|seen| *seen == list) && one.action.is_read() {
                set(one, Found::List([&list[..], &[id]].concat()));
            }
        }
        true
    });
}

#[test]
fn a_stale_list_is_found() {
    finds("a_stale_list_is_found", Kind::Lists, |history, dice| {
        let operations = history.operations.clone();
        // how much of the list is older than the read
        let certain = |read: &Operation| {
            let list = list_of(read)?;
            list.iter().rposition(|id| {
                operations.iter().any(|one| {
                    one.row == read.row
                        && one.action == Action::Append(*id)
                        && !one.is_unknown()
                        && one.answered_ns < read.called_ns
                })
            })
        };
        let fits = |one: &Operation| one.action.is_read() && certain(one).is_some();
        let Some(stale) = pick(history, dice, fits) else { return false };
        let keep = certain(&history.operations[stale]).expect("it fits");
        let list = list_of(&history.operations[stale]).expect("it has a list")[..keep].to_vec();
        set(&mut history.operations[stale], if list.is_empty() { Found::Absent } else { Found::List(list) });
        true
    });
}

#[test]
fn reordered_appends_are_found() {
    finds("reordered_appends_are_found", Kind::Lists, |history, dice| {
        let operations = history.operations.clone();
        let append = |row: &str, id: i64| {
            operations.iter().find(|one| &*one.row == row && one.action == Action::Append(id)).expect("known")
        };
        let rows: Vec<_> = history.by_row().into_iter().map(|(row, _)| row).collect();
        let row = rows[dice.below(rows.len())].clone();
        let list = last_list(history, &row);
        let apart = |pair: &[i64]| {
            let (one, other) = (append(&row, pair[0]), append(&row, pair[1]));
            !one.is_unknown() && !other.is_unknown() && one.answered_ns < other.called_ns
        };
        let places: Vec<usize> = (1..list.len()).filter(|&at| apart(&list[at - 1..=at])).collect();
        if places.is_empty() {
            return false;
        }
        let at = places[dice.below(places.len())];
        for one in history.operations.iter_mut().filter(|one| one.row == row) {
            if let Outcome::Done(Some(Found::List(seen))) = &mut one.outcome {
                if seen.len() > at {
                    seen.swap(at - 1, at);
                } else if seen.len() == at {
                    seen[at - 1] = list[at];
                }
                // the answer of an append ends with its id
                let ends = |seen: &[i64], id| seen.last() == Some(&id);
                if let Action::Append(id) = one.action
                    && !ends(seen, id)
                {
                    one.outcome = Outcome::Done(None);
                }
            }
        }
        true
    });
}

#[test]
fn a_phantom_is_found() {
    for kind in Kind::ALL {
        finds("a_phantom_is_found", kind, |history, dice| {
            let columns = history.columns;
            let is_read = |one: &Operation| {
                let is_far = !matches!(one.action, Action::Range { to, .. } if to < i64::MAX);
                one.action.is_read() && !one.is_unknown() && is_far
            };
            let Some(read) = pick(history, dice, is_read) else { return false };
            let one = &mut history.operations[read];
            let mut list = list_of(one).cloned().unwrap_or_default();
            // versions have the newest first
            list.insert(if kind == Kind::Versions { 0 } else { list.len() }, 987_654_321);
            set(
                one,
                match kind {
                    Kind::Lists | Kind::Versions => Found::List(list),
                    Kind::Registers => Found::Number(987_654_321_000_000),
                    Kind::Rows => Found::Columns(vec![(987_654_321, columns)]),
                },
            );
            true
        });
    }
}

/// The number of a write that was acknowledged before the call of another write, which was acknowledged before this read.
fn overwritten(history: &History, read: &Operation, is_delete: bool) -> Option<i64> {
    let done =
        |one: &&Operation| one.row == read.row && !one.is_unknown() && one.answered_ns < read.called_ns;
    let writes: Vec<&Operation> = history.operations.iter().filter(done).collect();
    let is_over = |one: &Operation| match one.action {
        Action::Put(_) => !is_delete,
        Action::Delete => is_delete,
        _ => false,
    };
    let newest = writes.iter().filter(|one| is_over(one)).max_by_key(|one| one.called_ns)?;
    let older = writes.iter().filter(|one| one.answered_ns < newest.called_ns);
    older.rev().find_map(|one| match one.action {
        Action::Put(number) => Some(number),
        _ => None,
    })
}

#[test]
fn a_stale_number_is_found() {
    let (registers, rows) = (Kind::Registers, Kind::Rows);
    for (kind, is_delete) in [(registers, false), (registers, true), (rows, false), (rows, true)] {
        finds("a_stale_number_is_found", kind, |history, dice| {
            let columns = history.columns;
            let operations = history.clone();
            let fits = |one: &Operation| {
                one.action.is_read()
                    && !one.is_unknown()
                    && overwritten(&operations, one, is_delete).is_some()
            };
            let Some(read) = pick(history, dice, fits) else { return false };
            let one = &mut history.operations[read];
            let number = overwritten(&operations, one, is_delete).expect("it fits");
            set(
                one,
                match kind {
                    Kind::Rows => Found::Columns(vec![(number, columns)]),
                    _ => Found::Number(number),
                },
            );
            true
        });
    }
}

#[test]
fn a_doubled_increment_is_found() {
    for_each_seed(&test("a_doubled_increment_is_found"), SEEDS, |seed| {
        let counter = Plan { is_counter: true, lost_percent: 0, rows: 1, ..plan(Kind::Registers, seed) };
        let mut history = simulate(counter);
        assert_eq!(checked(&history).verdict(), Verdict::Linearizable);
        // one of the first half was done twice: all that came later see one more
        let mut dice = Random::new(seed);
        let at = dice.between(1, 50) as i64;
        for one in &mut history.operations {
            if let Outcome::Done(Some(Found::Number(number))) = &mut one.outcome
                && *number > at
            {
                *number += 1;
            }
        }
        let report = checked(&history);
        assert_eq!(report.verdict(), Verdict::Violated, "{}", text::write(&history));
    });
}

#[test]
fn a_check_that_held_twice_is_found() {
    finds("a_check_that_held_twice_is_found", Kind::Registers, |history, dice| {
        // a number is written once, so only one check of it can hold
        let held = Outcome::Done(Some(Found::Held(true)));
        let is_check = |one: &Operation| {
            let Action::CheckAndMutate { expected: Some(expected), .. } = one.action else { return false };
            one.outcome == held && expected & 0xf_ffff == 0
        };
        let Some(first) = pick(history, dice, is_check) else { return false };
        let Operation { row, action, .. } = history.operations[first].clone();
        let Action::CheckAndMutate { expected, .. } = action else { unreachable!() };
        let last = history.operations.last().expect("there are operations").answered_ns;
        let action = Action::CheckAndMutate { expected, new: Some(1 << 50) };
        let (process, outcome) = ("q".into(), held.clone());
        let second =
            Operation { process, row, action, called_ns: 0, answered_ns: last, outcome, line: 0, source: 0 };
        history.operations.push(second);
        true
    });
}

#[test]
fn a_mixed_row_is_found() {
    finds("a_mixed_row_is_found", Kind::Rows, |history, dice| {
        let columns = history.columns;
        let whole = |one: &Operation| matches!(one.outcome, Outcome::Done(Some(Found::Columns(_))));
        let Some(read) = pick(history, dice, whole) else { return false };
        let Outcome::Done(Some(Found::Columns(runs))) = &history.operations[read].outcome else {
            unreachable!()
        };
        let (number, part) = (runs[0].0, dice.between(1, columns as usize - 1) as u32);
        set(
            &mut history.operations[read],
            Found::Columns(vec![(number, part), (number + 1, columns - part)]),
        );
        true
    });
}

/// Puts and deletes of versions that were acknowledged before this read, and are in its range.
fn versions_before(history: &History, read: &Operation) -> (Vec<i64>, Vec<i64>) {
    let Action::Range { from, to, .. } = read.action else { return (vec![], vec![]) };
    let is_before =
        |one: &&Operation| one.row == read.row && !one.is_unknown() && one.answered_ns < read.called_ns;
    let before: Vec<&Operation> = history.operations.iter().filter(is_before).collect();
    let numbers = |of: &dyn Fn(Action) -> Option<i64>| -> Vec<i64> {
        before.iter().filter_map(|one| of(one.action)).filter(|number| (from..to).contains(number)).collect()
    };
    let puts = numbers(&|action| if let Action::Put(number) = action { Some(number) } else { None });
    let deleted =
        numbers(&|action| if let Action::DeleteVersion(number) = action { Some(number) } else { None });
    (puts, deleted)
}

fn set_versions(one: &mut Operation, mut versions: Vec<i64>) {
    versions.sort_unstable_by_key(|version| -version);
    set(one, if versions.is_empty() { Found::Absent } else { Found::List(versions) });
}

/// One read of a version that nothing deletes does not find it, as a read that leaves out a file by its range of times would.
#[test]
fn a_version_that_a_read_misses_is_found() {
    finds("a_version_that_a_read_misses_is_found", Kind::Versions, |history, dice| {
        let original = history.clone();
        let is_deleted = |row: &str, number| {
            original
                .operations
                .iter()
                .any(|one| &*one.row == row && one.action == Action::DeleteVersion(number))
        };
        let certain = |one: &Operation| -> Vec<i64> {
            let puts = versions_before(&original, one).0;
            puts.into_iter().filter(|&number| !is_deleted(&one.row, number)).collect()
        };
        let fits = |one: &Operation| !one.is_unknown() && !certain(one).is_empty();
        let Some(read) = pick(history, dice, fits) else { return false };
        let one = &mut history.operations[read];
        let missed = certain(one)[0];
        let found = list_of(one).cloned().unwrap_or_default();
        set_versions(one, found.into_iter().filter(|number| *number != missed).collect());
        true
    });
}

#[test]
fn a_deleted_version_that_is_back_is_found() {
    finds("a_deleted_version_that_is_back_is_found", Kind::Versions, |history, dice| {
        let original = history.clone();
        let fits = |one: &Operation| !one.is_unknown() && !versions_before(&original, one).1.is_empty();
        let Some(read) = pick(history, dice, fits) else { return false };
        let one = &mut history.operations[read];
        let back = versions_before(&original, one).1[0];
        let found = list_of(one).cloned().unwrap_or_default();
        set_versions(one, [&found[..], &[back]].concat());
        true
    });
}

#[test]
fn a_version_out_of_the_range_is_found() {
    finds("a_version_out_of_the_range_is_found", Kind::Versions, |history, dice| {
        let is_range =
            |one: &Operation| matches!(one.action, Action::Range { from: 1.., .. }) && !one.is_unknown();
        let Some(read) = pick(history, dice, is_range) else { return false };
        let one = &mut history.operations[read];
        let Action::Range { from, .. } = one.action else { unreachable!() };
        let found = list_of(one).cloned().unwrap_or_default();
        set_versions(one, [&found[..], &[from - 1]].concat());
        true
    });
}

/// All columns of a row were deleted, and one read finds a part of them again.
#[test]
fn a_part_of_a_deleted_row_is_found() {
    finds("a_part_of_a_deleted_row_is_found", Kind::Rows, |history, dice| {
        let original = history.clone();
        let fits = |one: &Operation| {
            one.action.is_read() && !one.is_unknown() && overwritten(&original, one, true).is_some()
        };
        let Some(read) = pick(history, dice, fits) else { return false };
        let number = overwritten(&original, &history.operations[read], true).expect("it fits");
        let half = history.columns / 2;
        set(&mut history.operations[read], Found::Columns(vec![(number, half)]));
        true
    });
}
