//! A recorded session of `halcyon shell` in a terminal: prompt, completion, Ctrl-C, history, width.
#![allow(clippy::disallowed_methods)] // clocks, files and processes from outside

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crate::common::{Server, fresh_dir};
use halcyon_client::{Action, Cluster, ClusterAddress, ClusterOptions, Put, TableName};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

/// Rows of the screen.
const ROWS: u16 = 30;
const PROMPT: &str = "halcyon>";
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Rows of the long scan: far more than a terminal's buffers hold.
const ROWS_COUNT: usize = 50_000;

/// A program in a terminal, and what is on the screen.
struct Terminal {
    master: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
    keyboard: Box<dyn Write + Send>,
    /// Output that nobody has looked at. It holds one piece, so that a program that prints much has to wait.
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
}

fn size(columns: u16) -> PtySize {
    PtySize { rows: ROWS, cols: columns, pixel_width: 0, pixel_height: 0 }
}

fn screen(columns: u16) -> vt100::Parser {
    let not_zero = |count| NonZeroU16::new(count).expect("a screen has rows and columns");
    vt100::Parser::new(not_zero(ROWS), not_zero(columns), 0)
}

impl Terminal {
    fn start(home: &Path, columns: u16, arguments: &[&str]) -> Terminal {
        let pair = native_pty_system().openpty(size(columns)).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_halcyon"));
        command.arg("shell");
        command.args(arguments);
        command.env("HOME", home);
        command.env("TERM", "xterm");
        let child = pair.slave.spawn_command(command).unwrap();
        let mut reader = pair.master.try_clone_reader().unwrap();
        let (sender, output) = sync_channel(1);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut piece) {
                if sender.send(piece[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let keyboard = pair.master.take_writer().unwrap();
        Terminal { master: pair.master, child, keyboard, output, screen: screen(columns) }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    fn text(&self) -> String {
        self.screen.screen().contents()
    }

    /// Looks at the next piece of output; false if none came in that time.
    fn look(&mut self, wait: Duration) -> bool {
        match self.output.recv_timeout(wait) {
            Ok(piece) => {
                self.screen.process(&piece);
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => {
                panic!("the program ended; on the screen:\n{}", self.text())
            }
        }
    }

    /// Waits until the screen satisfies a condition.
    fn wait_until(&mut self, what: &str, is_there: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_there(&self.text()) {
            assert!(Instant::now() < deadline, "no {what} on the screen:\n{}", self.text());
            self.look(Duration::from_millis(50));
        }
    }

    fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |screen| screen.contains(text));
    }

    /// Waits for an empty prompt on the last line.
    fn wait_for_prompt(&mut self) {
        self.wait_until("prompt", |screen| screen.trim_end().ends_with(PROMPT));
    }

    /// Types a command on a screen of its own, and returns what it printed.
    fn run(&mut self, command: &str) -> String {
        self.press("\x0c"); // Ctrl-L
        self.wait_until("empty screen", |screen| screen.trim() == PROMPT);
        self.press(command);
        self.press("\r");
        self.wait_until("end of the command", |screen| {
            screen.trim_end().ends_with(PROMPT) && screen.trim() != PROMPT
        });
        self.text()
    }

    /// Types the beginning of a line on a screen of its own and presses Tab until the line is complete. Names of tables are
    /// looked up in the background, so the first Tab may come too early.
    fn complete(&mut self, typed: &str, expected: &str) {
        self.press("\x0c");
        self.wait_until("empty screen", |screen| screen.trim() == PROMPT);
        self.press(typed);
        let deadline = Instant::now() + PATIENCE;
        while !self.text().contains(expected) {
            assert!(Instant::now() < deadline, "{typed} did not become {expected}:\n{}", self.text());
            self.press("\t");
            while self.look(Duration::from_millis(100)) {}
        }
    }

    /// Waits for the end of the program, and returns its exit code.
    fn end(mut self) -> u32 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            while self.output.recv_timeout(Duration::from_millis(10)).is_ok() {}
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.exit_code();
            }
            assert!(Instant::now() < deadline, "the program does not end:\n{}", self.text());
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

async fn put_rows(zookeeper: &str) {
    let address =
        ClusterAddress::ZooKeeper { quorum: vec![zookeeper.to_string()], base: "/hbase".to_string() };
    let cluster = Cluster::connect(address, ClusterOptions::default()).await.unwrap();
    let table = cluster.table(TableName::parse(b"session").unwrap(), 0);
    let put =
        |row: usize| Action::from(Put::new(format!("row{row:06}")).column("profile", "name", "somebody"));
    for batch in (0..ROWS_COUNT).collect::<Vec<_>>().chunks(5_000) {
        let puts: Vec<Action> = batch.iter().map(|row| put(*row)).collect();
        table.batch_all(&puts).await.unwrap();
    }
}

#[test]
fn a_session_in_a_terminal() {
    let data = fresh_dir("terminal");
    let server = Server::start(&data, &[]);
    let zookeeper = server.address("zookeeper").to_string();
    let home = data.with_extension("home");
    std::fs::create_dir_all(&home).unwrap();
    let options = ["--zookeeper", zookeeper.as_str()];

    let start = Instant::now();
    let mut terminal = Terminal::start(&home, 80, &options);
    terminal.wait_for_prompt();
    let took = start.elapsed();
    println!("from the start of the process to the prompt: {:.1} ms", took.as_secs_f64() * 1e3);
    assert!(took < Duration::from_secs(1), "{took:?}");

    // a command, a table and a family by Tab
    terminal.complete("whoa", "halcyon> whoami");
    terminal.press("\r");
    terminal.wait_for("Took");
    let created = terminal.run("create 'session', 'profile', 'data'");
    assert!(created.contains("Created table session"), "{created}");
    terminal.complete("scan 'ses", "scan 'session'");
    terminal.press("\r");
    terminal.wait_for("0 row(s)");
    terminal.complete("get 'session', 'r', 'pro", "'profile:");
    terminal.press("name'\r");
    terminal.wait_for("0 row(s)");
    // two candidates: Tab lists both
    terminal.complete("describe", "describe_namespace");
    terminal.press("\x03");
    terminal.wait_for_prompt();

    // Ctrl-C ends a scan and not the shell. The scan cannot be over: nobody reads what it prints.
    tokio::runtime::Runtime::new().unwrap().block_on(put_rows(&zookeeper));
    terminal.press("scan 'session'\r");
    terminal.wait_for("column=profile:name");
    terminal.press("\x03");
    terminal.wait_for("ERROR: interrupted");
    terminal.wait_for_prompt();
    assert!(!terminal.text().contains("row(s)"), "{}", terminal.text());
    let counted = terminal.run("count 'session', INTERVAL => 20000");
    assert!(counted.contains(&format!("{ROWS_COUNT} row(s)")), "{counted}");

    // an error, and a line that is continued
    let refused = terminal.run("get 'session'");
    assert!(refused.contains("ERROR: get: the row is missing"), "{refused}");
    terminal.press("\x0cget 'session',\r");
    terminal.press("'row000007'\r");
    terminal.wait_for("1 row(s)");
    terminal.wait_for_prompt();

    // narrow and wide: values are wrapped in their column, or on one line
    let long: String = (0..8).map(|digit| digit.to_string().repeat(10)).collect();
    terminal.run(&format!("put 'session', 'long', 'data:text', '{long}', 5"));
    for columns in [50, 200] {
        terminal.master.resize(size(columns)).unwrap();
        terminal.screen = screen(columns);
        let printed = terminal.run("get 'session', 'long', 'data'");
        let value: Vec<&str> = printed.lines().skip_while(|line| !line.contains("data:text")).collect();
        let value: Vec<&str> = value.into_iter().take_while(|line| !line.contains("row(s)")).collect();
        let begins_at = value[0].find("timestamp").unwrap();
        let joined: String = value.iter().map(|line| line.get(begins_at..).unwrap_or_default()).collect();
        assert_eq!(joined, format!("timestamp=1970-01-01T00:00:00.005, value={long}"), "{printed}");
        assert_eq!(value.len() > 1, columns == 50, "{printed}");
        assert!(value.iter().skip(1).all(|line| line[..begins_at].trim().is_empty()), "{printed}");
    }
    terminal.press("\x04"); // Ctrl-D
    assert_eq!(terminal.end(), 0);

    // the next session knows the last one's lines
    let mut terminal = Terminal::start(&home, 80, &options);
    terminal.wait_for_prompt();
    terminal.press("\x1b[A");
    terminal.wait_for("get 'session', 'long', 'data'");
    terminal.press("\r");
    terminal.wait_for("1 row(s)");
    terminal.press("exit\r");
    assert_eq!(terminal.end(), 0);

    // Ctrl-C in a script ends the script
    let script = ["--zookeeper", zookeeper.as_str(), "-e", "scan 'session'; create 'after', 'f'"];
    let mut terminal = Terminal::start(&home, 80, &script);
    terminal.wait_for("column=profile:name");
    terminal.press("\x03");
    assert_eq!(terminal.end(), 130);
    server.stop();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::remove_dir_all(&home).unwrap();
}
