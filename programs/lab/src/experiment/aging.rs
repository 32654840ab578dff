//! The state that production is in: `--aged` measures each YCSB case a second time, after the table has been in use.
//!
//! A table that was just filled lies in memstores, or in one file for each region. Before the second measurement, workload A
//! updates it, and it is flushed every few seconds on all sides alike. The load generator looks at the files afterwards: where
//! compactions did not take away at least half of what the flushes made, the table is not aged, and the visit ends.
//!
//! Fresh and aged results stand next to each other: an aged case has the id `aged-` and that of the fresh one.

use super::plan::{CasePlan, Load, Plan, Rate};

const PREFIX: &str = "aged-";
/// From one flush to the next.
const FLUSH_PERIOD_S: u64 = 10;
/// Flushes, so that files are compacted at least twice: that takes three of them.
const FLUSHES: u64 = 7;

/// Adds an aged case for each fresh one. The error names an experiment without a table that could age.
pub fn add(plan: &mut Plan) -> Result<(), String> {
    let aged: Vec<CasePlan> = plan.cases.iter().filter_map(aged).collect();
    if aged.is_empty() {
        return Err(format!("the experiment {} does not use --aged: it has no YCSB table", plan.name));
    }
    let has_aged = |id: &str| aged.iter().any(|case| case.id == aged_id(id));
    let pairs = plan.not_faster.iter().filter(|(more, less)| has_aged(more) && has_aged(less));
    let pairs: Vec<(String, String)> = pairs.map(|(more, less)| (aged_id(more), aged_id(less))).collect();
    plan.not_faster.extend(pairs);
    // all fresh ones come before the first aged one: what is aged once stays so
    plan.cases.extend(aged);
    Ok(())
}

fn aged_id(id: &str) -> String {
    format!("{PREFIX}{id}")
}

fn aged(fresh: &CasePlan) -> Option<CasePlan> {
    let fill = fresh
        .prepare
        .iter()
        .find(|load| load.words.starts_with(&["ycsb".to_string(), "load".to_string()]))?;
    let mut prepare = fresh.prepare.clone();
    prepare.push(age(fill));
    let rate = match &fresh.rate {
        Rate::Share { of, share } => Rate::Share { of: aged_id(of), share: *share },
        other => other.clone(),
    };
    let (id, label) = (aged_id(&fresh.id), format!("{}, aged", fresh.label));
    Some(CasePlan { id, label, prepare, rate, ..fresh.clone() })
}

/// Updates of the table that a load has filled.
fn age(fill: &Load) -> Load {
    let seconds = FLUSH_PERIOD_S * FLUSHES + FLUSH_PERIOD_S / 2;
    let mut words: Vec<String> = fill.words.iter().filter(|word| !is_of_filling(word)).cloned().collect();
    words.retain(|word| word != "-p");
    let mut all = Load::new(seconds as f64, &format!("ycsb run --flush-every {FLUSH_PERIOD_S}"));
    for word in words.into_iter().skip(2) {
        if word.contains('=') {
            all.words.push("-p".to_string());
        }
        all.words.push(word);
    }
    let ends = format!("-p operationcount={} -p maxexecutiontime={seconds}", u64::from(u32::MAX));
    all.words.extend(ends.split(' ').map(str::to_string));
    all
}

/// Whether a property says how to make the table.
fn is_of_filling(word: &str) -> bool {
    word.starts_with("hbase.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::parts::ycsb_load;

    #[test]
    fn the_table_that_was_filled_is_aged() {
        let words = age(&ycsb_load(500, 4)).words.join(" ");
        let expected = "ycsb run --flush-every 10 --workload a -p recordcount=500 --threads 4 -p operationcount=4294967295 \
                        -p maxexecutiontime=75";
        assert_eq!(words, expected);
    }
}
