//! A running instance of Accumulo as a source.
//!
//! Accumulo's client is Java over Thrift, with ZooKeeper and the metadata table behind it. So a small Java program
//! (`AccumuloScan.java`) uses the jars of that installation, and this module reads its output. Each scan has a process of its
//! own, which ends when its input is closed, so none outlives this program.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use halcyon_env::{Env, spawn_thread};
use parking_lot::Mutex;

use crate::args::AccumuloArgs;
use crate::export::TableConfig;
use crate::merge::{Entries, ReadError};
use crate::rfile::Key;
use crate::state::{Range, hex};

const PROGRAM: &str = include_str!("AccumuloScan.java");
/// A field of an entry: Java's longest array.
const FIELD_BYTES_MAX: u32 = i32::MAX as u32;
/// What is reserved before it is there.
const RESERVED_BYTES_MAX: usize = 1 << 20;
/// Lines of the program's messages that are kept for an error.
const MESSAGES_MAX: usize = 5;

/// See the head of the file.
pub(crate) struct LiveSource {
    env: Env,
    java: PathBuf,
    classpath: String,
    instance: PathBuf,
    table: String,
    auths: String,
    program: PathBuf,
    /// Of the last time that the table was looked at.
    pub(crate) config: TableConfig,
    pub(crate) tablets: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) authorizations: Vec<String>,
}

impl LiveSource {
    /// Asks the instance for the table. The error is a sentence.
    pub(crate) fn open(env: &Env, args: &AccumuloArgs) -> Result<LiveSource, String> {
        let missing = |option: &str| format!("{option} is needed with --instance");
        let directory = std::env::temp_dir()
            .join(format!("halcyon-import-{}", hex::text(&halcyon_env::random_bytes::<8>())));
        env.local.create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let program = directory.join("AccumuloScan.java");
        let mut source = LiveSource {
            env: env.clone(),
            java: args.java.clone(),
            classpath: args.classpath.clone().ok_or_else(|| missing("--classpath"))?,
            instance: args.instance.clone().expect("the caller has looked"),
            table: args.source_table.clone().ok_or_else(|| missing("--source-table"))?,
            auths: args.auths.as_ref().map_or_else(|| "*".to_string(), |auths| auths.join(",")),
            program,
            config: TableConfig::default(),
            tablets: Vec::new(),
            authorizations: Vec::new(),
        };
        let written = env.local.put_new(&source.program, PROGRAM.as_bytes());
        written.map_err(|error| format!("{}: {error}", source.program.display()))?;
        source.ask_table()?;
        Ok(source)
    }

    fn ask_table(&mut self) -> Result<(), String> {
        let mut scan = Process::start(self, "table")?;
        let mut properties = std::collections::BTreeMap::new();
        let mut ends = Vec::new();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        while let Some(kind) = scan.part()? {
            match kind {
                b'P' => {
                    let (name, value) = (text(scan.field()?), text(scan.field()?));
                    properties.insert(name, value);
                }
                b'S' => ends.push(scan.field()?),
                b'A' => self.authorizations.push(text(scan.field()?)),
                other => return Err(format!("the Java program sent '{}'", other.escape_ascii())),
            }
        }
        self.config = TableConfig::of(&properties)?;
        let starts = std::iter::once(Vec::new()).chain(ends.iter().map(|row| [row, &[0][..]].concat()));
        let starts: Vec<Vec<u8>> = starts.collect();
        let ends = starts[1..].iter().cloned().chain([Vec::new()]);
        self.tablets = starts.iter().cloned().zip(ends).collect();
        Ok(())
    }

    /// The entries of a range that begins and ends at tablets.
    pub(crate) fn entries(&self, range: &Range) -> Result<LiveEntries, ReadError> {
        // Ranges begin with a zero byte behind the last row of the tablet before.
        let bound = |row: &[u8]| match row {
            [] => "-".to_string(),
            [row @ .., 0] => hex::text(row),
            row => unreachable!("{} is the start of no tablet", row.escape_ascii()),
        };
        let command = format!("scan {} {}", bound(&range.start), bound(&range.end));
        let process = Process::start(self, &command).map_err(read_error)?;
        Ok(LiveEntries { process, key: Key::default(), value: Vec::new() })
    }
}

impl Drop for LiveSource {
    fn drop(&mut self) {
        let _ = self.env.local.remove_dir_all(self.program.parent().expect("it is in a directory")); // only a temporary file
    }
}

fn read_error(why: String) -> ReadError {
    ReadError { file: None, why }
}

/// A Java program that answers one command.
struct Process {
    child: Child,
    /// Its end tells the program to end.
    _input: ChildStdin,
    output: BufReader<ChildStdout>,
    messages: Arc<Mutex<Vec<String>>>,
    parts: u64,
}

impl Process {
    fn start(source: &LiveSource, command: &str) -> Result<Process, String> {
        let shown = source.java.display();
        let mut child = Command::new(&source.java)
            .args(["-Xmx512m", "-XX:+UseSerialGC", "-cp", &source.classpath])
            .arg(&source.program)
            .arg(&source.instance)
            .args([&source.table, &source.auths])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{shown}: {error}"))?;
        let mut input = child.stdin.take().expect("it is piped");
        let output = BufReader::with_capacity(1 << 18, child.stdout.take().expect("it is piped"));
        let errors = BufReader::new(child.stderr.take().expect("it is piped"));
        let messages = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&messages);
        let reader = spawn_thread("accumulo-messages", move || {
            for line in errors.lines().map_while(Result::ok) {
                let mut kept = kept.lock();
                if kept.len() == MESSAGES_MAX {
                    kept.remove(0);
                }
                kept.push(line);
            }
        });
        let written = writeln!(input, "{command}").and_then(|()| input.flush());
        let process = Process { child, _input: input, output, messages, parts: 0 };
        reader.and(written).map_err(|error| process.failed(&error))?;
        Ok(process)
    }

    fn failed(&self, error: &std::io::Error) -> String {
        let messages = self.messages.lock().join("; ");
        format!("the Java program that scans Accumulo failed ({error}): {messages}")
    }

    /// The letter of the next part; `None` at the end.
    fn part(&mut self) -> Result<Option<u8>, String> {
        let [kind] = self.array()?;
        match kind {
            b'Z' => match u64::from_be_bytes(self.array()?) {
                parts if parts == self.parts => Ok(None),
                parts => {
                    Err(format!("the Java program says that it sent {parts} parts, {} arrived", self.parts))
                }
            },
            b'X' => Err(format!("Accumulo: {}", String::from_utf8_lossy(&self.field()?))),
            other => {
                self.parts += 1;
                Ok(Some(other))
            }
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.output.read_exact(&mut bytes).map_err(|error| self.failed(&error))?;
        Ok(bytes)
    }

    fn field(&mut self) -> Result<Vec<u8>, String> {
        let mut field = Vec::new();
        self.read_field(&mut field)?;
        Ok(field)
    }

    fn read_field(&mut self, field: &mut Vec<u8>) -> Result<(), String> {
        let len = u32::from_be_bytes(self.array()?);
        if len > FIELD_BYTES_MAX {
            return Err(format!("the Java program sent a field of {len} bytes"));
        }
        field.clear();
        field.reserve((len as usize).min(RESERVED_BYTES_MAX));
        let read = (&mut self.output).take(u64::from(len)).read_to_end(field);
        match read.map_err(|error| self.failed(&error))? {
            read if read == len as usize => Ok(()),
            _ => Err(self.failed(&std::io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended by itself
        let _ = self.child.wait();
    }
}

/// See [`LiveSource::entries`].
pub(crate) struct LiveEntries {
    process: Process,
    key: Key,
    value: Vec<u8>,
}

impl LiveEntries {
    fn read(&mut self) -> Result<bool, String> {
        let LiveEntries { process, key, value } = self;
        match process.part()? {
            None => return Ok(false),
            Some(b'E') => {}
            Some(other) => return Err(format!("the Java program sent '{}'", other.escape_ascii())),
        }
        for field in [&mut key.row, &mut key.family, &mut key.qualifier, &mut key.visibility, value] {
            process.read_field(field)?;
        }
        key.timestamp = i64::from_be_bytes(process.array()?);
        Ok(true)
    }
}

impl Entries for LiveEntries {
    fn next(&mut self) -> Result<bool, ReadError> {
        self.read().map_err(read_error)
    }

    fn key(&self) -> &Key {
        &self.key
    }

    fn value(&self) -> &[u8] {
        &self.value
    }
}
