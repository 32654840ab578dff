//! Regions with coprocessors while there is no JVM for them: nothing is carried out without its hooks, and what has no coprocessors works.
//! With a JVM: `testing/compat/coprocessors.sh`.

#![allow(clippy::disallowed_methods)] // threads and clocks of the test itself

use crate::common;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{Lab, get, settings, table};
use halcyon_cell::Cell;
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::coprocessor::{Frame, Method, Mutation as Part, frame, mutation};
use halcyon_proto::pb;
use halcyon_regionserver::{JvmSurroundings, RegionServerSettings};
use halcyon_rpc::{RpcError, Service};
use halcyon_schema::{RegionInfo, TableName};
use prost::Message;

fn lab(java: &str) -> Lab {
    let mut settings: RegionServerSettings = settings();
    settings.coprocessors.region_classes = "org.x.Observer".to_string();
    settings.coprocessors.host_classpath = "/nowhere.jar".to_string();
    settings.coprocessors.host_java = java.to_string();
    Lab::with(SimFileSystem::new(), settings)
}

/// Plays the JVM of a server: its class has the hooks of `hooks` (`coprocessors/hooks.rs`). Scanners have no end and no cells, and before a Get
/// the class writes row `w` through its region.
#[derive(Default)]
struct FakeJvm {
    hooks: u64,
    open: Mutex<HashSet<u64>>,
    last_id: AtomicU64,
    /// What it is told of writes: behind those of clients, and of its own.
    told: Mutex<Vec<Frame>>,
}

impl FakeJvm {
    fn new(hooks: u64) -> Arc<FakeJvm> {
        Arc::new(FakeJvm { hooks, ..FakeJvm::default() })
    }

    /// What a server needs to start it.
    fn surroundings(self: &Arc<Self>, dir: &Path) -> JvmSurroundings {
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

    fn run(self: Arc<Self>, named: &Path) {
        while !named.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let sockets = PathBuf::from(std::fs::read_to_string(named).unwrap().trim());
        let calls = UnixListener::bind(sockets.join("jvm")).unwrap();
        let first = UnixStream::connect(sockets.join("server")).unwrap();
        let jvm = self.clone();
        std::thread::spawn(move || jvm.answer(first));
        for stream in calls.incoming() {
            let jvm = self.clone();
            std::thread::spawn(move || jvm.answer(stream.unwrap()));
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
            Method::ScannerOpen => {
                let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
                self.open.lock().unwrap().insert(id);
                answer.scanner = Some(id);
            }
            Method::ScannerNext => answer.more = Some(true),
            Method::ScannerClose => _ = self.open.lock().unwrap().remove(&call.scanner()),
            Method::PreMutate => answer.mutation = vec![Part::default(); call.mutation.len()],
            Method::PostMutate => {
                answer.mutation.clone_from(&call.mutation);
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
        Frame {
            kind: frame::Kind::Call as i32,
            method: Some(Method::Mutate as i32),
            region: Some(region),
            mutation: vec![part],
            ..Frame::default()
        }
    }

    fn open_count(&self) -> usize {
        self.open.lock().unwrap().len()
    }
}

/// A server whose class has these hooks, and a directory of the test's own.
fn hosted(jvm: &Arc<FakeJvm>, name: &str) -> (Lab, PathBuf) {
    let dir = std::env::temp_dir().join(format!("halcyon-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let lab = lab("java");
    lab.server.host_coprocessors(jvm.surroundings(&dir)).unwrap();
    (lab, dir)
}

/// The only cell that a write told of, as it was written.
fn told(jvm: &FakeJvm) -> Cell {
    let frame = jvm.told.lock().unwrap().pop().expect("a write was told of");
    let [part] = &*frame.mutation else { panic!("{frame:?}") };
    assert_eq!((part.status(), part.cell.len()), (mutation::Status::Done, 1), "{frame:?}");
    Cell::parse(part.cell[0].clone(), 0).unwrap()
}

/// HBase puts the server's time into the mutations that hooks and coprocessors hold. Here these were copies, and kept the latest time for ever:
/// Phoenix took each table that it had dropped for one that is newer than any other.
#[test]
fn the_jvm_is_told_the_times_of_writes() {
    let (pre_get, post_mutate) = (1, 1 << 7);
    let jvm = FakeJvm::new(pre_get | post_mutate);
    let (lab, dir) = hosted(&jvm, "times");
    lab.put("r", "q", "v");
    let cells = lab.get(get("r")).unwrap().1;
    assert_eq!(told(&jvm).timestamp(), lab.get(get("w")).unwrap().1[0].timestamp(), "its own write");
    jvm.told.lock().unwrap().truncate(1);
    assert_eq!(told(&jvm).timestamp(), cells[0].timestamp(), "a client's");
    // What has its time already is not sent again.
    lab.mutate(common::put(1), vec![Cell::put(b"r", b"f", b"q", 5, b"v")]).unwrap();
    let frame = jvm.told.lock().unwrap().pop().unwrap();
    assert!(frame.mutation[0].cell.is_empty(), "{frame:?}");
    let _ = std::fs::remove_dir_all(&dir);
}

/// One connection opened all scanners that the JVM may have, and every other scan of tables with hooks was refused. One too many
/// was opened in the JVM nevertheless, and stayed there.
#[test]
fn a_connection_leaves_scanners_of_the_jvm_to_others() {
    const SCANS_MAX: usize = 10_000;
    let jvm = FakeJvm::new(1 << 12);
    let (lab, dir) = hosted(&jvm, "scanners");
    let open = || lab.scan(&lab.open(1, pb::Scan::default()));
    // Half of what its peer may have, which is half of all.
    let of_connection = SCANS_MAX / 4;
    let opened: Vec<u64> =
        (0..of_connection).map(|_| open().unwrap().0.scanner_id.expect("it goes on")).collect();
    assert_eq!(jvm.open_count(), of_connection);
    let refused = open().map(drop).unwrap_err();
    assert!(refused.class.ends_with(".RegionTooBusyException"), "{refused:?}");
    assert_eq!(jvm.open_count(), of_connection, "nothing is opened for one that is refused");
    let close = pb::ScanRequest {
        scanner_id: Some(opened[0]),
        number_of_rows: Some(0),
        close_scanner: Some(true),
        ..Default::default()
    };
    lab.scan(&close).unwrap();
    assert!(open().is_ok(), "what is closed is another's");
    assert!(open().is_err());
    let _ = std::fs::remove_dir_all(&dir);
}

/// Each kind of call, as it ends.
fn calls(lab: &Lab) -> Vec<RpcError> {
    let cell = || Cell::put(b"r", b"f", b"q", i64::MAX, b"v");
    let scan = lab.open(1, pb::Scan::default());
    let call = pb::CoprocessorServiceCall {
        service_name: "OtherService".to_string(),
        method_name: "other".to_string(),
        ..Default::default()
    };
    let exec = pb::CoprocessorServiceRequest { region: lab.specifier(), call };
    vec![
        lab.get(get("r")).map(drop).unwrap_err(),
        lab.mutate(common::put(1), vec![cell()]).map(drop).unwrap_err(),
        lab.scan(&scan).map(drop).unwrap_err(),
        lab.call::<pb::CoprocessorServiceResponse>("ExecService", &exec, Vec::new()).map(drop).unwrap_err(),
    ]
}

#[test]
fn without_its_jvm_nothing_is_read_or_written() {
    let lab = lab("/nowhere/java");
    lab.server.host_coprocessors(JvmSurroundings::default()).unwrap();
    let begun = Instant::now();
    for error in calls(&lab) {
        assert!(error.class.ends_with("java.io.IOException") && !error.do_not_retry, "{error:?}");
        assert!(error.message.contains("the JVM of coprocessors is not running"), "{error:?}");
        assert!(error.message.contains("/nowhere/java"), "what to look at is named: {error:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "no call waits for what does not come");
}

/// Edits of another cluster were written past the observers of the table (`TestMasterReplication` of HBase).
#[test]
fn replicated_edits_are_not_written_past_coprocessors() {
    let lab = lab("/nowhere/java");
    lab.server.host_coprocessors(JvmSurroundings::default()).unwrap();
    let writes = || lab.server.server_load().write_requests_count.unwrap_or(0);
    let before = writes();
    let key = pb::WalKey {
        encoded_region_name: "there".into(),
        table_name: lab.info.table().to_string().into(),
        write_time: 1_699_999_999_000,
        ..Default::default()
    };
    let entry = pb::WalEntry { key, associated_cell_count: Some(1), ..Default::default() };
    let request = pb::ReplicateWalEntryRequest { entry: vec![entry], ..Default::default() };
    let cell = Cell::put(b"r", b"f", b"q", 1, b"v");
    let call = lab.raw_call("ReplicateWALEntry", request.encode_to_vec().into(), vec![cell]);
    let error = lab.finish(&lab.admin, lab.admin.call(call)).map(drop).unwrap_err();
    // The client, which would ask the JVM, has no threads in this test.
    assert!(error.message.contains("the server does not serve yet"), "{error:?}");
    assert_eq!(writes(), before);
}

/// A program that ends at once is not a JVM, either.
#[test]
fn a_jvm_that_ends_at_its_start_is_told_of() {
    let lab = lab("/bin/false");
    lab.server.host_coprocessors(JvmSurroundings::default()).unwrap();
    for error in calls(&lab) {
        assert!(error.message.contains("it ended at its start"), "{error:?}");
    }
}

/// A table without coprocessors needs the JVM only for filters of classes that are there.
#[test]
fn a_filter_of_another_class_is_for_the_jvm() {
    let mut settings: RegionServerSettings = settings();
    settings.coprocessors.host_classpath = "/nowhere.jar".to_string();
    settings.coprocessors.host_java = "/nowhere/java".to_string();
    let lab = Lab::with(SimFileSystem::new(), settings);
    lab.server.host_coprocessors(JvmSurroundings::default()).unwrap();
    lab.put("r", "q", "v");
    assert_eq!(lab.row("r"), ["v"]);
    let other = pb::Filter { name: "org.x.Filter".to_string(), serialized_filter: None };
    let own = pb::Filter {
        name: "org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter".to_string(),
        serialized_filter: None,
    };
    let with = |filter: &pb::Filter| pb::Get { filter: Some(filter.clone()), ..get("r") };
    lab.get(with(&own)).unwrap();
    let scan = lab.open(1, pb::Scan { filter: Some(other.clone()), ..Default::default() });
    let errors = [lab.get(with(&other)).map(drop), lab.scan(&scan).map(drop)];
    for error in errors.map(Result::unwrap_err) {
        assert!(error.message.contains("the JVM of coprocessors is not running"), "{error:?}");
    }
}

#[test]
fn without_the_setting_a_region_does_not_open() {
    let lab = Lab::with(SimFileSystem::new(), settings());
    let name = TableName::parse(b"observed").unwrap();
    let info = RegionInfo::new(name.clone(), "".into(), "".into(), 1);
    let observed = table().with("coprocessor$1", "|org.x.Observer|1|");
    let error = lab.server.open_region(&info, &Arc::new(observed)).unwrap_err();
    for word in ["org.x.Observer", "halcyon.coprocessor.host.classpath"] {
        assert!(error.message().contains(word), "{error}");
    }
    lab.put("r", "q", "v"); // the other one works
}

/// Whoever may create a table could have any jar loaded; and a descriptor that came from elsewhere was never looked at.
#[test]
fn a_region_with_a_jar_of_no_allowed_path_does_not_open() {
    let mut settings: RegionServerSettings = settings();
    settings.coprocessors.host_classpath = "/nowhere.jar".to_string();
    settings.coprocessors.jar_paths = "file:///opt/coprocessors/*".to_string();
    let lab = Lab::with(SimFileSystem::new(), settings);
    let open = |name: &str, jar: &str| {
        let table_name = TableName::parse(name.as_bytes()).unwrap();
        let info = RegionInfo::new(table_name, "".into(), "".into(), 1);
        let observed = table().with("coprocessor$1", format!("{jar}|org.x.Observer|1|"));
        lab.server.region_files().create_region_files(&info, &observed).unwrap();
        (
            lab.server.open_region(&info, &Arc::new(observed.clone())),
            lab.server.check_coprocessor_jars(&observed),
        )
    };
    let (opened, checked) = open("outside", "file:///opt/coprocessors/../evil.jar");
    for error in [opened.map(drop).unwrap_err(), checked.unwrap_err()] {
        for word in ["org.x.Observer", "hbase.coprocessor.region.whitelist.paths", "evil.jar"] {
            assert!(error.message().contains(word), "{error}");
        }
    }
    let (opened, checked) = open("inside", "file:///opt/coprocessors/index.jar");
    checked.unwrap();
    opened.unwrap();
}
