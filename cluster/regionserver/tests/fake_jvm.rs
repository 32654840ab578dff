//! A double of the JVM of coprocessors, behind a program that only tells where its sockets are to be.
#![allow(clippy::disallowed_methods)] // threads of the double

use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use halcyon_cell::Cell;
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::coprocessor::{Cells, Frame, Method, Mutation as Part, frame, mutation};
use halcyon_proto::pb;
use halcyon_regionserver::{JvmSurroundings, RegionServerSettings};
use prost::Message;

use crate::common::{self, Lab, settings};

pub fn lab(java: &str) -> Lab {
    lab_with(java, |_| {})
}

fn lab_with(java: &str, change: impl FnOnce(&mut RegionServerSettings)) -> Lab {
    let mut settings: RegionServerSettings = settings();
    change(&mut settings);
    settings.coprocessors.region_classes = "org.x.Observer".to_string();
    settings.coprocessors.host_classpath = "/nowhere.jar".to_string();
    settings.coprocessors.host_java = java.to_string();
    Lab::with(SimFileSystem::new(), settings)
}

/// Plays the JVM of a server: its class has the hooks of `hooks` (`coprocessors/hooks.rs`). Before a Get the class writes row `w` through its
/// region. Scanners have no end and no cells, unless it `scans`: then each stands on a scanner of the region, as in the true one.
#[derive(Default)]
pub struct FakeJvm {
    pub hooks: u64,
    pub open: Mutex<HashSet<u64>>,
    pub last_id: AtomicU64,
    pub scans: bool,
    /// What the class answers for the next mutation instead of having it done.
    pub does: Mutex<Option<Cell>>,
    /// What the class makes of the answer behind the next write.
    pub changes: Mutex<Option<Cell>>,
    /// What it is told of writes: behind those of clients, and of its own.
    pub told: Mutex<Vec<Frame>>,
    /// What happens behind the next write. The connection of that operation ends then, as if the JVM had ended.
    pub at_post: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl FakeJvm {
    pub fn new(hooks: u64) -> Arc<FakeJvm> {
        Arc::new(FakeJvm { hooks, ..FakeJvm::default() })
    }

    /// What a server needs to start it.
    pub fn surroundings(self: &Arc<Self>, dir: &Path) -> JvmSurroundings {
        let named = dir.join("sockets");
        // The program only tells where the sockets are to be, and ends with the server.
        let script = format!(
            "for word; do case $word in */halcyon-jvm-*) echo $word > {0}.new && mv {0}.new {0};; esac; done; cat",
            named.display()
        );
        let launcher = ["/bin/sh", "-c", &script, "sh"].map(str::to_string).to_vec();
        let jvm = self.clone();
        std::thread::spawn(move || jvm.run(&named));
        JvmSurroundings { launcher, ..JvmSurroundings::default() }
    }

    /// Each start has sockets of its own.
    fn run(self: Arc<Self>, named: &Path) {
        loop {
            while !named.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            let sockets = PathBuf::from(std::fs::read_to_string(named).unwrap().trim());
            std::fs::remove_file(named).unwrap();
            // On a busy machine the server may have given up meanwhile: its clock is the test's.
            let Ok(calls) = UnixListener::bind(sockets.join("jvm")) else { continue };
            let Ok(first) = UnixStream::connect(sockets.join("server")) else { continue };
            let jvm = self.clone();
            std::thread::spawn(move || jvm.answer(first));
            let jvm = self.clone();
            std::thread::spawn(move || {
                for stream in calls.incoming() {
                    let jvm = jvm.clone();
                    std::thread::spawn(move || jvm.answer(stream.unwrap()));
                }
            });
        }
    }

    fn read(stream: &mut UnixStream) -> Option<Frame> {
        let mut length = [0; 4];
        stream.read_exact(&mut length).ok()?;
        let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut bytes).ok()?;
        Some(Frame::decode(&*bytes).unwrap())
    }

    fn write(stream: &mut UnixStream, frame: &Frame) -> bool {
        let mut bytes = (frame.encoded_len() as u32).to_be_bytes().to_vec();
        frame.encode(&mut bytes).unwrap();
        stream.write_all(&bytes).is_ok()
    }

    fn answer(&self, mut stream: UnixStream) {
        while let Some(call) = Self::read(&mut stream) {
            let is_post = call.method == Some(Method::PostMutate as i32);
            let at_post = if is_post { self.at_post.lock().unwrap().take() } else { None };
            if let Some(at_post) = at_post {
                return at_post();
            }
            let answer = self.serve(&mut stream, call);
            if !Self::write(&mut stream, &answer) {
                return;
            }
        }
    }

    fn serve(&self, stream: &mut UnixStream, call: Frame) -> Frame {
        let mut answer = Frame { kind: frame::Kind::Answer as i32, ..Frame::default() };
        match call.method() {
            Method::Load => answer.hooks = Some(self.hooks),
            Method::ScannerOpen if self.scans => {
                let open =
                    Frame { scan: call.scan.clone(), ..Self::own_call(Method::OpenScan, call.region()) };
                let opened = self.ask(stream, &open);
                (answer.scanner, answer.read_point) = (opened.scanner, opened.read_point);
            }
            Method::ScannerNext if self.scans => {
                let next = Frame {
                    scanner: call.scanner,
                    count: call.count,
                    bytes_max: call.bytes_max,
                    ..Self::own_call(Method::NextRows, call.region())
                };
                let found = self.ask(stream, &next);
                assert!(found.failure.is_none(), "{found:?}");
                (answer.cells, answer.more) = (found.cells, found.more);
            }
            Method::ScannerClose if self.scans => {
                let own = Self::own_call(Method::CloseScan, call.region());
                self.ask(stream, &Frame { scanner: call.scanner, ..own });
            }
            Method::ScannerOpen => {
                let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
                self.open.lock().unwrap().insert(id);
                answer.scanner = Some(id);
            }
            Method::ScannerNext => answer.more = Some(true),
            Method::ScannerClose => _ = self.open.lock().unwrap().remove(&call.scanner()),
            Method::PreMutate => {
                answer.mutation = vec![Part::default(); call.mutation.len()];
                if let Some(cell) = self.does.lock().unwrap().take() {
                    answer.mutation[0].status = Some(mutation::Status::Done as i32);
                    answer.mutation[0].result = Some(cells_of(&cell));
                }
            }
            Method::PostMutate => {
                answer.mutation.clone_from(&call.mutation);
                if let Some(cell) = self.changes.lock().unwrap().take() {
                    answer.mutation[0].result = Some(cells_of(&cell));
                }
                self.told.lock().unwrap().push(call);
            }
            Method::PreGet => {
                let written = self.ask(stream, &Self::own_write(call.region()));
                self.told.lock().unwrap().push(written);
                answer.more = Some(true);
            }
            _ => {}
        }
        answer
    }

    /// Calls the server, and serves what it calls meanwhile.
    fn ask(&self, stream: &mut UnixStream, call: &Frame) -> Frame {
        assert!(Self::write(stream, call));
        loop {
            let frame = Self::read(stream).unwrap();
            if frame.kind != frame::Kind::Call as i32 {
                return frame;
            }
            let answer = self.serve(stream, frame);
            assert!(Self::write(stream, &answer));
        }
    }

    fn own_write(region: u64) -> Frame {
        let proto = pb::MutationProto { row: Some("w".into()), ..common::put(1) };
        let cell = Cell::put(b"w", b"f", b"q", i64::MAX, b"v").bytes().clone();
        let part = Part { message: Some(proto.encode_to_vec().into()), cell: vec![cell], ..Part::default() };
        Frame { mutation: vec![part], ..Self::own_call(Method::Mutate, region) }
    }

    fn own_call(method: Method, region: u64) -> Frame {
        Frame {
            kind: frame::Kind::Call as i32,
            method: Some(method as i32),
            region: Some(region),
            ..Frame::default()
        }
    }

    pub fn open_count(&self) -> usize {
        self.open.lock().unwrap().len()
    }
}

fn cells_of(cell: &Cell) -> Cells {
    Cells { cell: vec![cell.bytes().clone()], ..Cells::default() }
}

/// A server whose class has these hooks, and a directory of the test's own.
pub fn hosted(jvm: &Arc<FakeJvm>, name: &str) -> (Lab, PathBuf) {
    hosted_with(jvm, name, |_| {})
}

pub fn hosted_with(
    jvm: &Arc<FakeJvm>,
    name: &str,
    change: impl FnOnce(&mut RegionServerSettings),
) -> (Lab, PathBuf) {
    let dir = std::env::temp_dir().join(format!("halcyon-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let lab = lab_with("java", change);
    lab.server.host_coprocessors(jvm.surroundings(&dir)).unwrap();
    // The server's clock is the test's: on a busy machine the first starts may come too late for it.
    for look in 0.. {
        if lab.server.coprocessor_jvm().0.is_some() {
            break;
        }
        assert!(look < 12_000, "the JVM does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    (lab, dir)
}
