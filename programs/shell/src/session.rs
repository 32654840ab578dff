//! A session: commands one after the other, from wherever they come.

use std::io::{IsTerminal, Read};
use std::sync::Arc;
use std::time::Duration;

use halcyon_client::{ClusterAddress, ClusterOptions};
use halcyon_env::{Clock, Env, SystemClock};
use tokio::runtime::Runtime;

use crate::commands::{Context, execute};
use crate::editor::{Editor, Line};
use crate::error::ShellError;
use crate::parse::{Command, ParseError, parse};
use crate::print::Printer;
use crate::{ShellArgs, help};

/// What executes commands.
pub(crate) struct Session {
    runtime: Arc<Runtime>,
    context: Context,
    clock: SystemClock,
    is_json: bool,
}

/// Whether the next command is to be executed.
enum Next {
    GoOn,
    Exit,
}

/// Runs a session of these options, and returns the exit code.
pub(crate) fn run(args: &ShellArgs) -> u8 {
    let scripts = match scripts(args) {
        Ok(scripts) => scripts,
        Err(error) => {
            eprintln!("ERROR: {error}");
            return 1;
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => Arc::new(runtime),
        Err(error) => {
            eprintln!("ERROR: {error}");
            return 1;
        }
    };
    let mut session = Session {
        runtime,
        context: Context::new(address(args), options(args), Printer::stdout(args.json)),
        clock: SystemClock::new(),
        is_json: args.json,
    };
    match scripts {
        Some(scripts) => session.run_scripts(&scripts, args.keep_going),
        None => session.run_prompt(),
    }
}

fn address(args: &ShellArgs) -> ClusterAddress {
    match args.registry.is_empty() {
        false => ClusterAddress::registry(args.registry.iter().cloned()),
        true => ClusterAddress::ZooKeeper {
            quorum: args.zookeeper.clone(),
            base: args.znode_parent.trim_end_matches('/').to_string(),
        },
    }
}

fn options(args: &ShellArgs) -> ClusterOptions {
    let operation_timeout = Duration::from_secs(args.operation_timeout);
    let mut options = ClusterOptions { operation_timeout, ..ClusterOptions::default() };
    // A server that gives no answer leaves time to ask the one that has its regions next.
    options.call_timeout = options.call_timeout.max(operation_timeout / 6).min(operation_timeout);
    if let Ok(user) = std::env::var("USER") {
        options.connect.user = user;
    }
    options
}

/// The texts to execute; `None` if somebody types.
fn scripts(args: &ShellArgs) -> Result<Option<Vec<String>>, ShellError> {
    let mut scripts = args.execute.clone();
    for file in &args.files {
        scripts.push(match file.as_os_str() == "-" {
            true => read_stdin()?,
            false => {
                let named = |error: &dyn std::fmt::Display| {
                    std::io::Error::other(format!("{}: {error}", file.display()))
                };
                let bytes = Env::real().fs.read(file).map_err(|error| named(&error))?;
                String::from_utf8(bytes).map_err(|error| named(&error))?
            }
        });
    }
    if scripts.is_empty() {
        match std::io::stdin().is_terminal() {
            true => return Ok(None),
            false => scripts.push(read_stdin()?),
        }
    }
    Ok(Some(scripts))
}

fn read_stdin() -> Result<String, ShellError> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

impl Session {
    /// Executes texts until one fails, or all. The exit code is that of the first error.
    fn run_scripts(&mut self, scripts: &[String], keep_going: bool) -> u8 {
        let mut exit_code = 0;
        for script in scripts {
            let commands = match parse(script) {
                Ok(commands) => commands,
                Err(error) => {
                    self.print_error(&ShellError::usage(format!("{}: {error}", place(script, &error))));
                    return 2;
                }
            };
            for command in commands {
                match self.execute(command) {
                    Ok(Next::GoOn) => {}
                    Ok(Next::Exit) => return exit_code,
                    Err(error) => {
                        self.print_error(&error);
                        if exit_code == 0 {
                            exit_code = error.exit_code();
                        }
                        if !keep_going || matches!(error, ShellError::Interrupted) {
                            return exit_code;
                        }
                    }
                }
            }
        }
        exit_code
    }

    fn run_prompt(&mut self) -> u8 {
        let mut editor = match Editor::new(Arc::clone(&self.runtime), self.context.connector()) {
            Ok(editor) => editor,
            Err(error) => {
                self.print_error(&error);
                return 1;
            }
        };
        editor.refresh_names();
        println!("Halcyon shell. help lists the commands, exit ends.");
        loop {
            let text = match editor.read() {
                Ok(Line::Text(text)) => text,
                Ok(Line::Interrupted) => continue,
                Ok(Line::End) => return 0,
                Err(error) => {
                    self.print_error(&error);
                    return 1;
                }
            };
            let commands = match parse(&text) {
                Ok(commands) => commands,
                Err(error) => {
                    self.print_error(&ShellError::usage(error.to_string()));
                    continue;
                }
            };
            for command in commands {
                let start_ns = self.clock.monotonic_ns();
                match self.execute(command) {
                    Ok(Next::GoOn) => {
                        let took_s = (self.clock.monotonic_ns() - start_ns) as f64 / 1e9;
                        println!("Took {took_s:.4} seconds");
                    }
                    Ok(Next::Exit) => return 0,
                    Err(error) => {
                        self.print_error(&error);
                        break;
                    }
                }
            }
            editor.refresh_names();
        }
    }

    /// Executes a command. Ctrl-C ends it: what the servers were asked to do goes on, and scanners are closed.
    fn execute(&mut self, command: Command) -> Result<Next, ShellError> {
        if matches!(command.name.as_str(), "exit" | "quit") {
            return Ok(Next::Exit);
        }
        let context = &mut self.context;
        context.printer.begin_command();
        let done = self.runtime.block_on(async {
            tokio::select! {
                done = execute(context, command) => done,
                _ = tokio::signal::ctrl_c() => Err(ShellError::Interrupted),
            }
        });
        let flushed = self.context.printer.flush();
        done?;
        flushed?;
        Ok(Next::GoOn)
    }

    fn print_error(&mut self, error: &ShellError) {
        let _ = self.context.printer.flush();
        if error.is_broken_pipe() {
            // whoever reads the output has seen enough (`| head`)
            return;
        }
        match self.is_json {
            true => {
                let object = serde_json::json!({ "error": error.class(), "message": error.to_string() });
                eprintln!("{object}");
            }
            false => eprintln!("ERROR: {error}"),
        }
    }
}

/// The line of a script in which an error is.
fn place(script: &str, error: &ParseError) -> String {
    let at = match error {
        ParseError::Incomplete => script.len(),
        ParseError::Wrong { at, .. } => *at,
    };
    let line = 1 + script.as_bytes()[..at.min(script.len())].iter().filter(|byte| **byte == b'\n').count();
    format!("line {line}")
}

/// Names of commands, for completion.
pub(crate) fn command_names() -> impl Iterator<Item = &'static str> {
    help::names()
}
