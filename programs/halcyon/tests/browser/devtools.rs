//! A headless Chromium, driven over the DevTools protocol through a pipe: JSON messages that end with a zero byte.
//!
//! Chromium reads commands from file descriptor 3 and writes answers to 4. The shell connects both to the pipes that
//! the standard library makes. No WebSocket is needed, and no library.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The longest time for an answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
/// A name that the browser resolves to this machine, as DNS rebinding makes it.
pub const REBOUND_NAME: &str = "rebound.example";
const CONNECT_PIPES: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;

pub struct Browser {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<Value>,
    last_id: u64,
    session: Option<String>,
    /// What has happened since [`Browser::forget_events`].
    pub events: Vec<Value>,
}

impl Browser {
    /// Starts `program` with an empty profile in `profile`, and opens one page.
    #[allow(clippy::zombie_processes)] // killed and waited for when it is dropped
    pub fn start(program: &str, profile: &Path) -> Browser {
        let mut command = Command::new("sh");
        command.arg("-c").arg(CONNECT_PIPES).arg(program);
        // A container's root has no sandbox of its own; only our own server is visited.
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]);
        command.args(["--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"]);
        command.arg(format!("--host-resolver-rules=MAP {REBOUND_NAME} 127.0.0.1"));
        command.arg(format!("--user-data-dir={}", profile.display())).arg("about:blank");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (commands, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("Chromium writes JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser { child, commands, answers, last_id: 0, session: None, events: Vec::new() };
        let page = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_string());
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Sends a command and waits for its answer. Events that come meanwhile are kept.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.commands.write_all(format!("{message}\0").as_bytes()).unwrap();
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = self.answers.recv_timeout(left).unwrap_or_else(|error| panic!("{method}: {error}"));
            if answer["id"] == self.last_id {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
            if answer.get("method").is_some() {
                self.events.push(answer);
            }
        }
    }

    /// The value of an expression in the page; promises are waited for.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let wanted = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", wanted);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer:#}");
        answer["result"]["value"].clone()
    }

    /// Evaluates until the value is `true`.
    pub fn wait_until(&mut self, what: &str, expression: &str) {
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        while self.evaluate(expression) != true {
            assert!(Instant::now() < deadline, "the page never had {what}: {:#?}", self.errors());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn resize(&mut self, width: u32, height: u32) {
        let is_phone = width < 500;
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    pub fn prefer(&mut self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    pub fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let codes =
                json!({ "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40 });
            let code = codes[key].clone();
            let event = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    pub fn move_pointer(&mut self, x: f64, y: f64) {
        self.call("Input.dispatchMouseEvent", json!({ "type": "mouseMoved", "x": x, "y": y }));
    }

    /// The whole page as PNG.
    pub fn screenshot(&mut self) -> Vec<u8> {
        let answer = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        decode_base64(answer["data"].as_str().unwrap())
    }

    pub fn forget_events(&mut self) {
        self.events.clear();
    }

    /// Exceptions, errors and warnings of the console, and requests to other addresses.
    pub fn errors(&self) -> Vec<String> {
        let is_error = |event: &&Value| match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => true,
            "Log.entryAdded" => event["params"]["entry"]["level"] != "info",
            "Runtime.consoleAPICalled" => event["params"]["type"] != "log",
            "Network.requestWillBeSent" => {
                let url = event["params"]["request"]["url"].as_str().unwrap_or_default();
                !["http://127.0.0.1:", "data:", "about:"].iter().any(|start| url.starts_with(start))
            }
            _ => false,
        };
        self.events.iter().filter(is_error).map(|event| event["params"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn decode_base64(text: &str) -> Vec<u8> {
    let value = |symbol: u8| match symbol {
        b'A'..=b'Z' => Some(symbol - b'A'),
        b'a'..=b'z' => Some(symbol - b'a' + 26),
        b'0'..=b'9' => Some(symbol - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0u32, 0);
    for symbol in text.bytes().filter_map(value) {
        bits = (bits << 6) | u32::from(symbol);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    bytes
}
