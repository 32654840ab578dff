//! The directory of an experiment: what was measured is there as soon as it is known, so that an interrupted experiment goes on.
//!
//! ```text
//! plan.json                       what is measured, and on which machine; what is there is only continued under the same
//! sides/SIDE.json                 how a side's server was started
//! runs/REPETITION-SIDE-CASE.json  one run
//! results.json  index.html        the whole, written after each visit
//! lock                            held while an experiment writes here
//! ```
//!
//! Each file takes the place of its predecessor as a whole. A run that ended early is kept and shown, and measured anew when
//! the experiment goes on.

use std::path::{Path, PathBuf};

use halcyon_env::{Env, FileLock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::plan::Plan;
use super::stage::Started;
use crate::outcome::{Experiment, Run};

/// What must be equal for an experiment to go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Beginning {
    pub plan: Plan,
    /// Processor, cores, memory and version.
    pub machine: String,
    /// Wall clock of the first start.
    pub started_ms: u64,
}

/// The directory, and what is in it.
pub struct Results {
    env: Env,
    directory: PathBuf,
    _lock: Box<dyn FileLock>,
    pub started_ms: u64,
    runs: Vec<Run>,
}

impl Results {
    /// Opens or makes the directory. With `fresh`, what an earlier experiment left goes away; without it, one of another
    /// plan or another machine is an error, a sentence.
    pub fn open(env: &Env, directory: &Path, begin: Beginning, fresh: bool) -> Result<Results, String> {
        env.fs.create_dir_all(directory).map_err(|error| error.to_string())?;
        let lock = env.fs.lock(&directory.join("lock")).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => {
                format!("{}: another experiment is writing there", directory.display())
            }
            _ => error.to_string(),
        })?;
        let results = Results {
            env: env.clone(),
            directory: directory.to_path_buf(),
            _lock: lock,
            started_ms: begin.started_ms,
            runs: Vec::new(),
        };
        results.begin(begin, fresh)
    }

    fn begin(mut self, begin: Beginning, fresh: bool) -> Result<Results, String> {
        let path = self.directory.join("plan.json");
        if fresh {
            self.clear()?;
        }
        if self.env.fs.exists(&path).map_err(|error| error.to_string())? {
            let found: Beginning = self.read(&path)?;
            if let Some(difference) = difference(&found, &begin) {
                return Err(format!(
                    "{} holds results of {difference}; --fresh throws them away, --out takes another directory",
                    self.directory.display()
                ));
            }
            self.started_ms = found.started_ms;
            self.runs = self.read_runs()?;
        } else {
            self.write(&path, &begin)?;
        }
        for directory in ["runs", "sides"] {
            self.env.fs.create_dir_all(&self.directory.join(directory)).map_err(|error| error.to_string())?;
        }
        Ok(self)
    }

    /// Removes what an experiment writes, and nothing else.
    fn clear(&self) -> Result<(), String> {
        for directory in ["runs", "sides"].map(|name| self.directory.join(name)) {
            if self.env.fs.exists(&directory).map_err(|error| error.to_string())? {
                self.env.fs.remove_dir_all(&directory).map_err(|error| error.to_string())?;
            }
        }
        for file in ["results.json", "index.html", "plan.json"].map(|name| self.directory.join(name)) {
            if self.env.fs.exists(&file).map_err(|error| error.to_string())? {
                self.env.fs.remove_file(&file).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// The runs that are there, in the order of their names; one that cannot be read is said and measured anew.
    fn read_runs(&self) -> Result<Vec<Run>, String> {
        let directory = self.directory.join("runs");
        let names = match self.env.fs.list(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.to_string()),
        };
        let files =
            names.iter().filter(|entry| entry.name.ends_with(".json") && !entry.name.starts_with('.'));
        let mut runs = Vec::new();
        for file in files {
            match self.read(&directory.join(&file.name)) {
                Ok(run) => runs.push(run),
                Err(sentence) => eprintln!("{sentence}: it is measured anew"),
            }
        }
        Ok(runs)
    }

    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    pub fn run(&self, repetition: u32, side: &str, case: &str) -> Option<&Run> {
        self.runs.iter().find(|run| run.repetition == repetition && run.side == side && run.case == case)
    }

    /// Whether a run is there, and whole.
    pub fn is_done(&self, repetition: u32, side: &str, case: &str) -> bool {
        self.run(repetition, side, case).is_some_and(|run| run.partial.is_none())
    }

    /// Keeps a run, in the place of one that was there; a partial one never takes the place of a whole one.
    pub fn keep(&mut self, run: Run) -> Result<(), String> {
        assert!(!self.is_done(run.repetition, &run.side, &run.case), "a whole run is not measured again");
        let name = format!("{}-{}-{}.json", run.repetition, run.side, run.case);
        self.write(&self.directory.join("runs").join(name), &run)?;
        let is_same = |other: &Run| {
            other.repetition == run.repetition && other.side == run.side && other.case == run.case
        };
        self.runs.retain(|other| !is_same(other));
        self.runs.push(run);
        Ok(())
    }

    /// Marks a whole run as partial after the fact: another one shows that it does not hold.
    pub fn refuse(&mut self, repetition: u32, side: &str, case: &str, why: &str) -> Result<(), String> {
        let is_meant = |run: &Run| run.repetition == repetition && run.side == side && run.case == case;
        let at = self.runs.iter().position(is_meant).expect("only a run that is there is refused");
        let run = Run { partial: Some(why.to_string()), ..self.runs.remove(at) };
        self.keep(run)
    }

    pub fn keep_started(&self, side: &str, started: &Started) -> Result<(), String> {
        self.write(&self.directory.join("sides").join(format!("{side}.json")), started)
    }

    /// How a side's server was started, here or in an earlier part.
    pub fn started(&self, side: &str) -> Option<Started> {
        let path = self.directory.join("sides").join(format!("{side}.json"));
        self.env.fs.exists(&path).ok()?.then(|| self.read(&path).ok()).flatten()
    }

    /// Writes the whole and its page.
    pub fn publish(&self, experiment: &Experiment, page: &str) -> Result<(), String> {
        self.write(&self.directory.join("results.json"), experiment)?;
        let path = self.directory.join("index.html");
        self.env.fs.replace(&path, page.as_bytes()).map_err(|error| error.to_string())
    }

    fn read<T: DeserializeOwned>(&self, path: &Path) -> Result<T, String> {
        let bytes = self.env.fs.read(path).map_err(|error| error.to_string())?;
        serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn write<T: Serialize>(&self, path: &Path, value: &T) -> Result<(), String> {
        let mut bytes = serde_json::to_vec(value).map_err(|error| error.to_string())?;
        bytes.push(b'\n');
        self.env.fs.replace(path, &bytes).map_err(|error| error.to_string())
    }
}

/// In which way what is there is of another experiment.
fn difference(found: &Beginning, wanted: &Beginning) -> Option<String> {
    let (was, is) = (&found.plan, &wanted.plan);
    let what = if was.name != is.name {
        format!("the experiment {}", was.name)
    } else if was.quick != is.quick {
        format!("the {} form", if was.quick { "quick" } else { "full" })
    } else if found.machine != wanted.machine {
        format!("another machine or version ({})", found.machine)
    } else if was.sides != is.sides {
        "other sides".to_string()
    } else if was.cases != is.cases {
        "other cases or sizes".to_string()
    } else if was.repetitions != is.repetitions {
        format!("{} repetitions", was.repetitions)
    } else if was.durability != is.durability {
        "another durability".to_string()
    } else {
        return None;
    };
    Some(what)
}
