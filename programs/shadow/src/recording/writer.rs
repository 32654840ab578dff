//! Writes a recording: a thread behind a queue with a limit, files of a limited size, and a limit for all of them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use halcyon_env::{Env, WritableFile};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::observer::{Observed, Sink};
use crate::proxy::Proxy;
use crate::recording::format::{Header, MAGIC, Record, RecordedCall, RecordedPart, encode};

/// Records in the queue of the thread.
const QUEUE_RECORDS_MAX: usize = 4096;
/// Bytes that are gathered before they are written.
const WRITE_BYTES: usize = 256 << 10;

/// Where a recording goes, and how much it may have.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Files are `PATH.000001`, `PATH.000002`, ...
    pub(crate) path: PathBuf,
    pub(crate) file_bytes_max: u64,
    /// Of all files together. When it is reached, the oldest files go, or the recording ends.
    pub(crate) total_bytes_max: u64,
    pub(crate) stops_when_full: bool,
}

/// The way of reads into files.
///
/// # Thread safety
/// Owned by the observer. The thread that writes shares the counters.
pub(crate) struct Recorder {
    proxy: Arc<Proxy>,
    header: Header,
    began: Instant,
    sender: Option<Sender<Queued>>,
    /// Bytes of the queue.
    room: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
    state: Arc<Written>,
}

/// A record on its way to the thread, and its share of the queue.
type Queued = (Bytes, OwnedSemaphorePermit);

/// What the thread has done.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) records: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) files: AtomicU64,
    /// Nothing is written any more: the limit is reached, or a file failed.
    pub(crate) is_over: AtomicBool,
}

impl Recorder {
    /// Begins the first file, so that an error shows at once. Records of up to `queue_bytes_max` wait for the disk.
    pub(crate) fn start(
        env: &Env,
        proxy: Arc<Proxy>,
        place: Place,
        header: Header,
        queue_bytes_max: usize,
    ) -> Result<Recorder, String> {
        let failed = |error: io::Error| format!("{}: {error}", place.path.display());
        let mut files = Files::new(env.clone(), place.clone(), header.clone()).map_err(failed)?;
        let state = Arc::new(Written::default());
        files.begin(&state).map_err(failed)?;
        let (sender, receiver) = mpsc::channel(QUEUE_RECORDS_MAX);
        let shared = Arc::clone(&state);
        let thread = halcyon_env::spawn_thread("shadow-writer", move || files.run(receiver, &shared));
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        let (sender, thread) = (Some(sender), Some(thread));
        let room = Arc::new(Semaphore::new(queue_bytes_max));
        Ok(Recorder { proxy, header, began: Instant::now(), sender, room, thread, state })
    }

    pub(crate) fn written(&self) -> Arc<Written> {
        Arc::clone(&self.state)
    }

    /// Ends the recording: what is in the queue is written, and the file is synced.
    pub(crate) fn finish(mut self) {
        drop(self.sender.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// Whether there was room.
    fn offer(&self, observed: Observed) -> bool {
        let (Some(bytes), Some(sender)) = (encode(&self.record(observed)), &self.sender) else {
            return false;
        };
        let Ok(weight) = u32::try_from(bytes.len()) else { return false };
        match Arc::clone(&self.room).try_acquire_many_owned(weight) {
            Ok(room) => sender.try_send((bytes, room)).is_ok(),
            Err(_) => false,
        }
    }

    fn record(&self, observed: Observed) -> Record {
        let Observed { read, request_bytes: _, regions, server, began, took, calls, answer } = observed;
        let answer = if self.header.has_hashed_values { answer.with_hashed_values() } else { answer };
        let (gets, is_batch, mut scan) = Record::gets_of(&read);
        if let Some(scan) = &mut scan {
            scan.calls = calls
                .iter()
                .map(|call| RecordedCall {
                    after_us: call.after.as_micros() as u64,
                    took_us: call.took.as_micros() as u64,
                    rows: call.rows,
                })
                .collect();
        }
        Record {
            at_us: began.saturating_duration_since(self.began).as_micros() as u64,
            took_us: took.as_micros() as u64,
            server: server.to_string(),
            regions,
            gets,
            is_batch,
            scan,
            answer: answer.parts.iter().map(|part| RecordedPart::of(part, self.header.has_answers)).collect(),
        }
    }
}

impl Sink for Recorder {
    fn take(&mut self, observed: Observed) {
        if !self.offer(observed) {
            self.proxy.counts.dropped.add();
        }
    }
}

/// The files of a recording.
struct Files {
    env: Env,
    place: Place,
    header: Header,
    current: Option<Box<dyn WritableFile>>,
    current_bytes: u64,
    /// Files that are there, the oldest first, with their lengths.
    all: Vec<(PathBuf, u64)>,
    buffer: Vec<u8>,
}

impl Files {
    fn new(env: Env, place: Place, header: Header) -> io::Result<Files> {
        if let Some(parent) = place.path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            env.local.create_dir_all(parent)?;
        }
        Ok(Files { env, place, header, current: None, current_bytes: 0, all: Vec::new(), buffer: Vec::new() })
    }

    /// Begins the next file.
    fn begin(&mut self, state: &Written) -> io::Result<()> {
        self.end()?;
        self.header.file += 1;
        let path = numbered(&self.place.path, self.header.file);
        let file = self.env.local.create(&path)?;
        self.all.push((path, 0));
        self.current = Some(file);
        self.buffer.extend_from_slice(MAGIC);
        self.buffer.extend_from_slice(&encode(&self.header).expect("a header is short"));
        self.current_bytes = self.buffer.len() as u64;
        state.files.fetch_add(1, Ordering::Relaxed);
        self.write()
    }

    fn write(&mut self) -> io::Result<()> {
        if let Some(file) = self.current.as_mut().filter(|_| !self.buffer.is_empty()) {
            file.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        self.write()?;
        if let Some(mut file) = self.current.take() {
            file.sync()?;
            file.close()?;
            if let Some((_, bytes)) = self.all.last_mut() {
                *bytes = self.current_bytes;
            }
        }
        Ok(())
    }

    /// Until the queue is closed, or nothing can be written any more.
    fn run(mut self, mut receiver: Receiver<Queued>, state: &Written) {
        let ended = self.write_all(&mut receiver, state).and_then(|()| self.end());
        if let Err(error) = ended {
            eprintln!("shadow: the recording ends: {}: {error}", self.place.path.display());
            state.is_over.store(true, Ordering::Relaxed);
        }
    }

    fn write_all(&mut self, receiver: &mut Receiver<Queued>, state: &Written) -> io::Result<()> {
        loop {
            let (record, _room) = match receiver.try_recv() {
                Ok(record) => record,
                Err(mpsc::error::TryRecvError::Disconnected) => return Ok(()),
                Err(mpsc::error::TryRecvError::Empty) => {
                    self.write()?;
                    match receiver.blocking_recv() {
                        Some(record) => record,
                        None => return Ok(()),
                    }
                }
            };
            if self.current_bytes + record.len() as u64 > self.place.file_bytes_max && self.has_records() {
                self.begin(state)?;
            }
            if !self.make_room(record.len() as u64)? {
                println!("shadow: the recording has {} bytes and ends", self.place.total_bytes_max);
                state.is_over.store(true, Ordering::Relaxed);
                return Ok(());
            }
            self.buffer.extend_from_slice(&record);
            self.current_bytes += record.len() as u64;
            state.records.fetch_add(1, Ordering::Relaxed);
            state.bytes.fetch_add(record.len() as u64, Ordering::Relaxed);
            if self.buffer.len() >= WRITE_BYTES {
                self.write()?;
            }
        }
    }

    /// Whether the current file has more than its head.
    fn has_records(&self) -> bool {
        self.current_bytes > (MAGIC.len() + encode(&self.header).map_or(0, |bytes| bytes.len())) as u64
    }

    /// Removes the oldest files until there is room. `false`: there is none, and nothing may go.
    fn make_room(&mut self, bytes: u64) -> io::Result<bool> {
        loop {
            let total: u64 = self.all.iter().map(|(_, bytes)| bytes).sum::<u64>() + self.current_bytes;
            if total + bytes <= self.place.total_bytes_max {
                return Ok(true);
            }
            if self.place.stops_when_full || self.all.len() < 2 {
                return Ok(false);
            }
            let (oldest, _) = self.all.remove(0);
            self.env.local.remove_file(&oldest)?;
        }
    }
}

/// `PATH.000001`
pub(crate) fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(format!(".{number:06}"));
    PathBuf::from(name)
}
