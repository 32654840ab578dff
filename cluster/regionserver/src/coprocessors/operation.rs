//! One operation in the JVM: a connection, and the calls on it in both directions.
//!
//! A call blocks its thread until the JVM has answered. Meanwhile the JVM may call, and the same thread serves that
//! (`asked.rs`), which may run hooks again. So both sides have one stack, and a coprocessor sees its thread as in HBase.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use halcyon_proto::coprocessor::{Attribute, Caller, Frame, Method, frame};
use halcyon_proto::pb;
use halcyon_rpc::{RpcError, Terms};
use prost::Message;

use super::frames::{self, Broken, WriteError};
use super::hooks::Hooks;
use super::jvm::{Child, Jvm};
use super::{RegionCoprocessors, asked};
use crate::RegionServer;
use crate::regions::region_table::OnlineRegion;

/// How long a row is waited for (HBase: `hbase.rowlock.wait.duration`).
const ROW_LOCK_TIME_MAX: Duration = Duration::from_secs(30);

/// Answers a call for cells of the flush or compaction that the JVM looks at.
pub(super) type Feed<'a> = dyn FnMut(&Frame) -> Result<Frame, RpcError> + 'a;

/// See the head of the file. *Thread safety*: of one thread. Dropped, it gives back its row locks and its connection.
pub(crate) struct Operation {
    pub(super) server: Arc<RegionServer>,
    pub(super) child: Arc<Child>,
    pub(super) jvm: Arc<Jvm>,
    /// `None` when it is of no use any more.
    stream: Option<UnixStream>,
    /// Of row locks.
    owner: u64,
    /// `monotonic_ns`; `None`: a thread of a coprocessor may take its time.
    deadline_ns: Option<u64>,
    /// Regions of which it has locked rows.
    locked: Vec<Arc<RegionCoprocessors>>,
    /// For the first call, which ends what the connection has said of the operation before.
    caller: Option<Caller>,
}

impl Operation {
    /// For calls to the coprocessors of a region, which are loaded if the JVM does not have them. *Blocking*. `terms`: of the client's
    /// call, if it is part of one.
    pub(crate) fn begin(
        server: &Arc<RegionServer>,
        online: &Arc<OnlineRegion>,
        terms: Option<&Terms>,
    ) -> Result<Operation, RpcError> {
        let mut operation = Operation::connect(server)?;
        operation.load(online)?;
        operation.caller = Some(terms.map_or_else(Caller::default, |terms| caller(server, terms)));
        Ok(operation)
    }

    /// *Blocking*.
    pub(super) fn connect(server: &Arc<RegionServer>) -> Result<Operation, RpcError> {
        let jvm = server.coprocessors.jvm().clone();
        let child = jvm.child()?;
        let stream = child.connect().map_err(|error| {
            let broken = Broken::Gone(error);
            jvm.suspect(&child, &broken);
            RpcError::io(format!("the JVM of coprocessors is not running: {broken}"))
        })?;
        let time = jvm.settings.call_timeout;
        let limited = stream.set_read_timeout(Some(time)).and_then(|()| stream.set_write_timeout(Some(time)));
        limited.map_err(|error| RpcError::io(error.to_string()))?;
        let (owner, deadline_ns) = (jvm.next_owner(), Some(jvm.now_ns() + time.as_nanos() as u64));
        let (server, stream, caller) = (server.clone(), Some(stream), Some(Caller::default()));
        Ok(Operation { server, child, jvm, stream, owner, deadline_ns, locked: Vec::new(), caller })
    }

    /// Whether the coprocessors of the region are in this JVM. An error if they are in a later one: that of the operation has ended.
    fn has(&self, coprocessors: &RegionCoprocessors) -> Result<bool, RpcError> {
        let of_region = coprocessors.generation.load(Ordering::Acquire);
        if of_region > self.child.generation { Err(gone()) } else { Ok(of_region == self.child.generation) }
    }

    /// The hooks of the region. While its coprocessors are being loaded there are none, so that what they ask then runs no hooks.
    /// An error if the JVM of the operation has ended and a later one has the region: nothing is done without its hooks.
    pub(super) fn hooks(&self, coprocessors: &RegionCoprocessors) -> Result<Hooks, RpcError> {
        let is_loaded = self.has(coprocessors)?;
        Ok(if is_loaded { Hooks(coprocessors.hooks.load(Ordering::Acquire)) } else { Hooks::default() })
    }

    fn load(&mut self, online: &Arc<OnlineRegion>) -> Result<(), RpcError> {
        let Some(coprocessors) = online.coprocessors.clone() else { return Ok(()) };
        if self.has(&coprocessors)? {
            return Ok(());
        }
        let _loading = coprocessors.loading.lock();
        if self.has(&coprocessors)? {
            return Ok(());
        }
        self.server.coprocessors.note(online);
        let region = &online.region;
        let frame = Frame {
            value: Some(Bytes::from(region.info().to_pb().encode_to_vec())),
            schema: Some(super::schema(region.table())),
            ..frames::call(Method::Load, coprocessors.number)
        };
        let answer = self.call(frame)?;
        coprocessors.hooks.store(answer.hooks(), Ordering::Release);
        coprocessors.generation.store(self.child.generation, Ordering::Release);
        tracing::info!(region = region.info().encoded_name(), classes = answer.text(), "coprocessors loaded");
        if let Some(uncalled) = &answer.service {
            let table = region.table().name().to_string();
            if self.server.coprocessors.warned.lock().insert(table.clone()) {
                tracing::warn!(
                    table,
                    classes = answer.text(),
                    uncalled,
                    "coprocessors override hooks that are not called here"
                );
            }
        }
        Ok(())
    }

    /// Calls the JVM and serves what it asks meanwhile. *Blocking*.
    pub(super) fn call(&mut self, frame: Frame) -> Result<Frame, RpcError> {
        self.call_feeding(frame, None)
    }

    /// As `call`; `feed` gives the cells that the JVM asks for.
    pub(super) fn call_feeding(
        &mut self,
        mut frame: Frame,
        mut feed: Option<&mut Feed<'_>>,
    ) -> Result<Frame, RpcError> {
        frame.caller = self.caller.take();
        self.write(&frame)?;
        loop {
            let frame = self.read()?;
            match frame::Kind::try_from(frame.kind) {
                Ok(frame::Kind::Answer) => return Ok(frame),
                Ok(frame::Kind::Call) => self.serve(frame, feed.as_deref_mut())?,
                _ => {
                    let failure = frame.failure.expect("looked at by frames::decode");
                    let error = frames::to_rpc(&failure);
                    if failure.abort() {
                        let why = error.message.lines().next().unwrap_or_default();
                        self.jvm.end(
                            &self.child,
                            &format!("a coprocessor asks for the end of its server: {why}"),
                        );
                    }
                    return Err(error);
                }
            }
        }
    }

    /// The time for calls begins anew: what it belongs to may take longer than one call.
    pub(super) fn begin_call(&mut self) {
        let time_ns = self.jvm.settings.call_timeout.as_nanos() as u64;
        self.deadline_ns = Some(self.jvm.now_ns() + time_ns);
    }

    fn serve(&mut self, frame: Frame, feed: Option<&mut Feed<'_>>) -> Result<(), RpcError> {
        let answer = match feed {
            Some(feed) if frame.method == Some(Method::NextCells as i32) => feed(&frame),
            _ => asked::serve(self, frame),
        };
        let answer = answer.unwrap_or_else(|error| frames::failure(&error));
        match self.write(&answer) {
            Err(error) if self.stream.is_some() => self.write(&frames::failure(&error)),
            written => written,
        }
    }

    fn write(&mut self, frame: &Frame) -> Result<(), RpcError> {
        let stream = self.stream.as_mut().ok_or_else(gone)?;
        match frames::write(stream, frame, self.jvm.settings.frame_bytes_max) {
            Ok(()) => Ok(()),
            Err(WriteError::TooLarge(error)) => Err(error),
            Err(WriteError::Broken(broken)) => Err(self.break_off(&broken)),
        }
    }

    fn read(&mut self) -> Result<Frame, RpcError> {
        if self.deadline_ns.is_some_and(|deadline_ns| self.jvm.now_ns() >= deadline_ns) {
            return Err(self.break_off(&Broken::Gone(std::io::ErrorKind::TimedOut.into())));
        }
        let stream = self.stream.as_mut().ok_or_else(gone)?;
        let read = frames::read(stream, self.jvm.settings.frame_bytes_max);
        read.map_err(|broken| self.break_off(&broken))
    }

    /// The connection is of no use any more. The exception is one that clients retry.
    fn break_off(&mut self, broken: &Broken) -> RpcError {
        self.stream = None;
        self.jvm.suspect(&self.child, broken);
        if broken.is_late() {
            let time_ms = self.jvm.settings.call_timeout.as_millis();
            return RpcError::timeout_io(format!(
                "a coprocessor has not answered within {time_ms} ms (halcyon.coprocessor.call.timeout)"
            ));
        }
        match broken {
            Broken::Garbage(what) => {
                RpcError::io(format!("the JVM of coprocessors has sent garbage: {what}"))
            }
            Broken::Gone(_) => gone(),
        }
    }

    /// Something that came is wrong though it was a frame.
    pub(super) fn checked<T>(&mut self, parsed: Result<T, Broken>) -> Result<T, RpcError> {
        parsed.map_err(|broken| self.break_off(&broken))
    }

    pub(super) fn lock_row(
        &mut self,
        coprocessors: &Arc<RegionCoprocessors>,
        row: &Bytes,
        shared: bool,
    ) -> Result<(), RpcError> {
        let clock = &*self.server.env.clock;
        coprocessors.rows.lock(self.owner, row, shared, ROW_LOCK_TIME_MAX, clock)?;
        if !self.locked.iter().any(|known| Arc::ptr_eq(known, coprocessors)) {
            self.locked.push(coprocessors.clone());
        }
        Ok(())
    }

    /// Locks rows until the operation ends.
    pub(crate) fn lock_rows(&mut self, online: &OnlineRegion, mut rows: Vec<Bytes>) -> Result<(), RpcError> {
        let coprocessors = online.coprocessors.clone().expect("a region with coprocessors");
        rows.sort();
        rows.dedup();
        rows.iter().try_for_each(|row| self.lock_row(&coprocessors, row, false))
    }

    pub(super) fn unlock_row(&self, coprocessors: &RegionCoprocessors, row: &Bytes, shared: bool) {
        coprocessors.rows.unlock(self.owner, row, shared);
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.locked.iter().for_each(|coprocessors| coprocessors.rows.forget(self.owner));
        if let Some(stream) = self.stream.take()
            && self.deadline_ns.is_some()
        {
            self.child.rest(stream);
        }
    }
}

/// What a coprocessor may know of the call that it is part of (`RpcCall`).
fn caller(server: &RegionServer, terms: &Terms) -> Caller {
    let connection = &terms.connection;
    let attributes = |pairs: &[pb::NameBytesPair]| {
        let attribute =
            |pair: &pb::NameBytesPair| Attribute { name: pair.name.clone(), value: pair.value.clone() };
        pairs.iter().map(attribute).collect()
    };
    let left_ns = terms.deadline_ns.saturating_sub(server.env.clock.monotonic_ns());
    Caller {
        user: connection.user.clone(),
        address: Some(connection.peer.clone()),
        connection_attribute: attributes(&connection.attributes),
        request_attribute: attributes(&terms.attributes),
        call_id: Some(u64::from(terms.call_id)),
        version_major: connection.client_version.map(|(major, _)| u64::from(major)),
        version_minor: connection.client_version.map(|(_, minor)| u64::from(minor)),
        takes_cell_blocks: connection.codec.map(|_| 1),
        time_ms: (terms.deadline_ns != u64::MAX).then_some(left_ns / 1_000_000),
    }
}

fn gone() -> RpcError {
    RpcError::io("the JVM of coprocessors has ended during the call")
}

/// Serves a thread that a coprocessor has started, until it ends.
pub(super) fn serve_side(jvm: &Arc<Jvm>, child: &Arc<Child>, stream: UnixStream) {
    let Some(server) = jvm.server() else { return };
    let mut operation = Operation {
        server,
        child: child.clone(),
        jvm: jvm.clone(),
        stream: Some(stream),
        owner: jvm.next_owner(),
        deadline_ns: None,
        locked: Vec::new(),
        caller: None,
    };
    loop {
        let Some(stream) = operation.stream.as_mut() else { return };
        let Ok(frame) = frames::read(stream, jvm.settings.frame_bytes_max) else { return };
        if frame.kind != frame::Kind::Call as i32 || operation.serve(frame, None).is_err() {
            return;
        }
    }
}
