//! Completion scripts and manual pages, from the declarations of the command line.

use std::io::Write;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use halcyon_env::{FileSystem, RealFileSystem};

use crate::args::Args;

/// Prints the completion script of `shell`.
pub fn completions(shell: Shell) -> Result<(), String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "halcyon", &mut script);
    std::io::stdout().write_all(&script).map_err(|error| format!("standard output: {error}"))
}

/// Writes `halcyon.1` and a page for each command (`halcyon-standalone.1`) to `dir`.
pub fn man_pages(dir: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    RealFileSystem.create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(Args::command(), dir).map_err(failed)
}
