//! The prompt: editing, history, completion of commands, tables, families and constants.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Helper};
use tokio::runtime::Runtime;

use crate::commands::Connector;
use crate::error::ShellError;
use crate::parse::{ParseError, parse};
use crate::session::command_names;

const PROMPT: &str = "halcyon> ";
/// Lines that are remembered from session to session.
const HISTORY_LINES_MAX: usize = 10_000;
const HISTORY_FILE: &str = ".halcyon_shell_history";

/// Constants that stand before `=>`.
const CONSTANTS: &[&str] = &[
    "BATCH",
    "BLOCKCACHE",
    "BLOCKSIZE",
    "BLOOMFILTER",
    "CACHE",
    "CACHE_BLOCKS",
    "CLUSTER_KEY",
    "COLUMN",
    "COLUMNS",
    "COMPRESSION",
    "CONFIG",
    "CONFIGURATION",
    "DATA",
    "DATA_BLOCK_ENCODING",
    "DURABILITY",
    "ENDPOINT_CLASSNAME",
    "FILTER",
    "FILTER_BY_OP",
    "GLOBAL_BYPASS",
    "INTERVAL",
    "IN_MEMORY",
    "KEEP_DELETED_CELLS",
    "LIMIT",
    "MAXLENGTH",
    "MAX_FILESIZE",
    "METADATA",
    "METHOD",
    "MIN_VERSIONS",
    "NAME",
    "NAMESPACE",
    "NAMESPACES",
    "NUMREGIONS",
    "POLICY",
    "RAW",
    "READONLY",
    "READ_TYPE",
    "REGIONSERVER",
    "REPLICATION_SCOPE",
    "REVERSED",
    "ROWPREFIXFILTER",
    "SCOPE",
    "SERIAL",
    "SKIP_FLUSH",
    "SPLITALGO",
    "SPLITS",
    "SPLITS_FILE",
    "SPLIT_POLICY",
    "STARTROW",
    "STATE",
    "STOPROW",
    "TABLE",
    "TABLE_CFS",
    "THROTTLE_TYPE",
    "TIMERANGE",
    "TIMESTAMP",
    "TTL",
    "TYPE",
    "USER",
    "VERSIONS",
];

/// What was typed.
pub(crate) enum Line {
    Text(String),
    /// Ctrl-C: the line is dropped.
    Interrupted,
    /// Ctrl-D.
    End,
}

/// Names of the cluster that can be completed: tables, and families by table.
#[derive(Default)]
struct Names {
    tables: Vec<String>,
    families: Vec<(String, String)>,
}

pub(crate) struct Editor {
    editor: rustyline::Editor<Help, FileHistory>,
    history: Option<PathBuf>,
    names: Arc<Mutex<Names>>,
    runtime: Arc<Runtime>,
    connector: Connector,
}

impl Editor {
    pub(crate) fn new(runtime: Arc<Runtime>, connector: Connector) -> Result<Editor, ShellError> {
        let config = Config::builder()
            .max_history_size(HISTORY_LINES_MAX)
            .map_err(failed)?
            .completion_type(CompletionType::List)
            .auto_add_history(true)
            .build();
        let names = Arc::new(Mutex::new(Names::default()));
        let mut editor = rustyline::Editor::with_config(config).map_err(failed)?;
        editor.set_helper(Some(Help { names: Arc::clone(&names) }));
        let history = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(HISTORY_FILE));
        if let Some(file) = &history {
            // the first session has no file
            let _ = editor.load_history(file);
        }
        Ok(Editor { editor, history, names, runtime, connector })
    }

    /// The next line, or lines that are one command.
    pub(crate) fn read(&mut self) -> Result<Line, ShellError> {
        match self.editor.readline(PROMPT) {
            Ok(text) => {
                if let Some(file) = &self.history {
                    // a history that cannot be written is no reason to end
                    let _ = self.editor.append_history(file);
                }
                Ok(Line::Text(text))
            }
            Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(error) => Err(failed(error)),
        }
    }

    /// Looks up names for completion in the background. Without a cluster there are none.
    pub(crate) fn refresh_names(&self) {
        let (names, connector) = (Arc::clone(&self.names), self.connector.clone());
        self.runtime.spawn(async move {
            let Ok(admin) = connector.admin().await else { return };
            let Ok(descriptors) = admin.descriptors(None, false).await else { return };
            let mut found = Names::default();
            for descriptor in &descriptors {
                found.tables.push(descriptor.name().to_string());
                for family in descriptor.families() {
                    found.families.push((descriptor.name().to_string(), family.name_str().into_owned()));
                }
            }
            *names.lock().unwrap_or_else(PoisonError::into_inner) = found;
        });
    }
}

fn failed(error: ReadlineError) -> ShellError {
    ShellError::Io(std::io::Error::other(error.to_string()))
}

struct Help {
    names: Arc<Mutex<Names>>,
}

impl Helper for Help {}
impl Highlighter for Help {}
impl Hinter for Help {
    type Hint = String;
}

impl Validator for Help {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match parse(context.input()) {
            Err(ParseError::Incomplete) => ValidationResult::Incomplete,
            _ => ValidationResult::Valid(None),
        })
    }
}

impl Completer for Help {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, found) = candidates(&line[..position], &names);
        let pair = |text: String| Pair { display: text.clone(), replacement: text };
        Ok((start, found.into_iter().map(pair).collect()))
    }
}

/// Where the word under the cursor begins, and what it may become.
fn candidates(line: &str, names: &Names) -> (usize, Vec<String>) {
    let start = line.rfind(|c: char| " ,({[;\n".contains(c)).map_or(0, |at| at + 1);
    let (before, word) = line.split_at(start);
    let command = before.rsplit([';', '\n']).next().unwrap_or_default().trim_start();
    let quote = word.chars().next().filter(|c| *c == '\'' || *c == '"');
    let typed = word.trim_start_matches(['\'', '"']);
    let mut found: Vec<String> = match (command.is_empty(), quote) {
        (true, _) => command_names().map(str::to_string).collect(),
        (false, None) if typed.starts_with(|c: char| c.is_ascii_uppercase()) => {
            CONSTANTS.iter().map(|constant| format!("{constant} => ")).collect()
        }
        (false, quote) => {
            let quote = quote.unwrap_or('\'');
            let is_first = !command.contains(',');
            let quoted = |name: &str| format!("{quote}{name}{quote}");
            match is_first {
                true if command.starts_with("help") => command_names().map(quoted).collect(),
                true => names.tables.iter().map(|name| quoted(name)).collect(),
                false => {
                    let of_table = |(table, _): &&(String, String)| command.contains(table.as_str());
                    let families = names.families.iter().filter(of_table);
                    families.map(|(_, family)| format!("{quote}{family}:")).collect()
                }
            }
        }
    };
    let is_match = |candidate: &String| candidate.trim_start_matches(['\'', '"']).starts_with(typed);
    found.retain(is_match);
    found.sort();
    found.dedup();
    (start, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_completed_by_their_place() {
        let names = Names {
            tables: vec!["users".into(), "usage".into(), "other".into()],
            families: vec![("users".into(), "profile".into()), ("other".into(), "private".into())],
        };
        let found = |line: &str| candidates(line, &names).1;
        assert_eq!(found("trunc"), ["truncate", "truncate_preserve", "truncate_region"]);
        assert_eq!(found("list; desc"), ["describe", "describe_namespace"]);
        assert_eq!(found("scan 'us"), ["'usage'", "'users'"]);
        assert_eq!(found("scan \"use"), ["\"users\""]);
        assert_eq!(found("get 'users', 'r', 'pr"), ["'profile:"]);
        assert_eq!(found("scan 'users', {LIM"), ["LIMIT => "]);
        assert_eq!(found("help 'maj"), ["'major_compact'"]);
        assert_eq!(candidates("scan 'us", &names).0, 5);
    }
}
