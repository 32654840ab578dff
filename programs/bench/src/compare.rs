//! Engines in turns, each in a process of its own, and the medians of what they printed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::plan::Plan;
use crate::{Failure, machine};

/// A program that knows the command `run` with the options of a [`Plan`].
pub struct Contender {
    pub name: &'static str,
    pub program: PathBuf,
}

/// Values of each repetition by load and metric, in the order in which they were first printed.
#[derive(Default)]
struct Figures {
    order: Vec<(String, String)>,
    values: BTreeMap<(String, String), Vec<f64>>,
}

impl Figures {
    /// Reads lines of `load metric=value metric=value`.
    fn read(&mut self, output: &str) -> Result<(), Failure> {
        for line in output.lines() {
            let mut words = line.split_whitespace();
            let Some(load) = words.next() else { continue };
            for word in words {
                let (metric, value) = word.split_once('=').ok_or_else(|| format!("not a figure: {word}"))?;
                let name = (load.to_string(), metric.to_string());
                if !self.values.contains_key(&name) {
                    self.order.push(name.clone());
                }
                self.values.entry(name).or_default().push(value.parse()?);
            }
        }
        Ok(())
    }

    fn median(&self, name: &(String, String)) -> Option<f64> {
        let mut values = self.values.get(name)?.clone();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let is_odd = values.len() % 2 == 1;
        Some(if is_odd { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 })
    }

    /// Half of the distance between the smallest and the largest value, as a part of the median.
    fn spread(&self, name: &(String, String)) -> Option<f64> {
        let values = self.values.get(name)?;
        let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
        let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        self.median(name).filter(|median| *median > 0.0).map(|median| (largest - smallest) / 2.0 / median)
    }
}

/// Runs the plan `repetitions` times with each contender in turn, and prints the medians beside each other.
pub fn compare(plan: &Plan, contenders: &[Contender], repetitions: usize) -> Result<(), Failure> {
    print!("{}", machine::describe());
    println!(
        "data:    {} rows of 16 + {} bytes, {} MiB; {} threads, batches of {}; median of {repetitions}\n",
        plan.rows(),
        plan.value_len,
        plan.user_bytes() >> 20,
        plan.threads,
        plan.batch
    );
    let mut figures: Vec<Figures> = contenders.iter().map(|_| Figures::default()).collect();
    for repetition in 0..repetitions {
        for (contender, figures) in contenders.iter().zip(&mut figures) {
            eprintln!("{} of {repetitions}: {}", repetition + 1, contender.name);
            let output = Command::new(&contender.program)
                .arg("run")
                .args(plan.arguments())
                .stderr(Stdio::inherit())
                .output()
                .map_err(|error| format!("{}: {error}", contender.program.display()))?;
            if !output.status.success() {
                return Err(format!("{} ended with {}", contender.name, output.status).into());
            }
            figures.read(&String::from_utf8_lossy(&output.stdout))?;
        }
    }
    print!("{}", table(contenders, &figures));
    Ok(())
}

fn table(contenders: &[Contender], figures: &[Figures]) -> String {
    let mut text = format!("{:<13} {:<24}", "load", "metric");
    for contender in contenders {
        write!(text, " {:>14} {:>5}", contender.name, "+-").expect("a string takes everything");
    }
    text.push_str(if figures.len() == 2 { "   first/second\n" } else { "\n" });
    for name in &figures[0].order {
        write!(text, "{:<13} {:<24}", name.0, name.1).expect("a string takes everything");
        for figures in figures {
            let (median, spread) = (figures.median(name), figures.spread(name).unwrap_or(0.0));
            let median = median.map_or("-".to_string(), of_three_digits);
            write!(text, " {median:>14} {:>4.0}%", spread * 100.0).expect("a string takes everything");
        }
        if let [first, second] = figures
            && let (Some(first), Some(second)) = (first.median(name), second.median(name))
            && second > 0.0
        {
            write!(text, "   {:.2}", first / second).expect("a string takes everything");
        }
        text.push('\n');
    }
    text
}

/// A number with about as many digits as it is worth.
fn of_three_digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_what_was_printed() {
        let mut figures = Figures::default();
        for value in [3.0, 1.0, 2.0] {
            figures.read(&format!("scan rows_per_s={value} peak_mib=7\n\n")).unwrap();
        }
        let name = ("scan".to_string(), "rows_per_s".to_string());
        assert_eq!((figures.median(&name), figures.spread(&name)), (Some(2.0), Some(0.5)));
        assert!(figures.read("scan rows").is_err());
        let contenders = [
            Contender { name: "one", program: PathBuf::new() },
            Contender { name: "two", program: PathBuf::new() },
        ];
        let mut other = Figures::default();
        other.read("scan rows_per_s=4").unwrap();
        let table = table(&contenders, &[figures, other]);
        assert!(table.lines().nth(1).unwrap().ends_with("0.50"), "{table}");
    }
}
