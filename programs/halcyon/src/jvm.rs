//! What the JVM of coprocessors needs of the program: how it is started, and how it finds the cluster.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use halcyon_regionserver::JvmSurroundings;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::site::Property;

/// The kernel kills what this process becomes when `parent` ends, however that ends. Returns only after an error.
pub fn end_with(parent: u32, words: &[OsString]) -> String {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return format!("this process would outlive the process {parent}: {error}");
    }
    if getppid().map(|pid| pid.as_raw_pid()) != i32::try_from(parent).ok() {
        return format!("the process {parent} has ended, or is not the parent of this one");
    }
    let [program, arguments @ ..] = words else { return "there is no program to become".to_string() };
    let error = Command::new(program).args(arguments).exec();
    format!("{}: {error}", program.display())
}

/// The properties of the site file, and after them those of `cluster`, by which clients find it.
pub fn surroundings(properties: &[Property], cluster: &[(&str, String)]) -> JvmSurroundings {
    let program = std::env::current_exe().map(|path| path.display().to_string());
    let of_program =
        |program| vec![program, "end-with".to_string(), std::process::id().to_string(), "--".to_string()];
    let of_site = properties.iter().map(|property| (property.name.clone(), property.value.clone()));
    let of_cluster = cluster.iter().map(|(name, value)| (name.to_string(), value.clone()));
    JvmSurroundings {
        launcher: program.map(of_program).unwrap_or_default(),
        properties: of_site.chain(of_cluster).collect(),
    }
}
