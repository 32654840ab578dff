//! Flushes and compactions of a region with coprocessors (`HRegion.internalFlushCache`, `Compactor.compact`).
//!
//! One operation stays with a flush or a compaction of a family from its begin to its end, so that a scanner in the JVM has one thread
//! and one connection. Each call has the time of a call. If the JVM dies in between, the flush or compaction fails and is repeated.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::vitals;
use halcyon_proto::coprocessor::{Frame, Method, Property};
use halcyon_region::{RewriteHooks, RewriteKind, ScanOptions, Sink, Source, StoreHooks};
use halcyon_rpc::RpcError;

use super::frames;
use super::hooks::Hooks;
use super::jvm::Jvm;
use super::operation::Operation;
use crate::errors;
use crate::regions::region_table::OnlineRegion;

/// Bytes of cells in one message, about.
const PACKET_BYTES: u64 = 1 << 20;

/// The coprocessors of one region, for its flushes and compactions. *Thread safety*: from any thread.
pub(super) struct HostedStores {
    jvm: Arc<Jvm>,
    online: Weak<OnlineRegion>,
}

impl HostedStores {
    pub(super) fn new(jvm: &Arc<Jvm>, online: &Arc<OnlineRegion>) -> HostedStores {
        HostedStores { jvm: jvm.clone(), online: Arc::downgrade(online) }
    }

    /// The region, if a class overrides any of the hooks. They are loaded if that was not possible before.
    fn wanted(&self, hooks: Hooks) -> Result<Option<(Operation, u64)>> {
        let gone = || Error::new(ErrorKind::Stopping, "the server of the coprocessors is going down");
        let online = self.online.upgrade().ok_or_else(gone)?;
        let coprocessors = online.coprocessors.as_ref().expect("a region with coprocessors");
        let is_wanted = |known: u64| Hooks(known).any(hooks);
        let is_known = coprocessors.generation.load(Ordering::Acquire) != 0;
        if is_known && !is_wanted(coprocessors.hooks.load(Ordering::Acquire)) {
            return Ok(None);
        }
        let server = self.jvm.server().ok_or_else(gone)?;
        let operation = vitals::outside(|| Operation::begin(&server, &online, None)).map_err(failed)?;
        let is_wanted = is_wanted(coprocessors.hooks.load(Ordering::Acquire));
        Ok(is_wanted.then_some((operation, coprocessors.number)))
    }

    fn note(&self, text: &str) -> Result<()> {
        let Some((mut operation, number)) = self.wanted(Hooks::FLUSH)? else { return Ok(()) };
        let frame = Frame { text: Some(text.into()), ..frames::call(Method::Note, number) };
        vitals::outside(|| operation.call(frame)).map(drop).map_err(failed)
    }
}

impl StoreHooks for HostedStores {
    fn before_flush(&self) -> Result<()> {
        self.note("preFlush")
    }

    fn after_flush(&self) {
        if let Err(error) = self.note("postFlush") {
            tracing::warn!(%error, "postFlush has failed");
        }
    }

    fn may_drop_in_memory(&self) -> bool {
        let Some(online) = self.online.upgrade() else { return false };
        let coprocessors = online.coprocessors.as_ref().expect("a region with coprocessors");
        let known = Hooks(coprocessors.hooks.load(Ordering::Acquire));
        coprocessors.generation.load(Ordering::Acquire) != 0
            && !known.any(Hooks::STORE_FLUSH.or(Hooks::STORE_COMPACT))
    }

    fn begin(&self, family: &Bytes, kind: RewriteKind) -> Result<Option<Box<dyn RewriteHooks>>> {
        let (hooks, text, all, major) = match kind {
            RewriteKind::Flush => (Hooks::STORE_FLUSH, "flush", false, false),
            RewriteKind::Compaction { all, major } => (Hooks::STORE_COMPACT, "compaction", all, major),
        };
        let Some((mut operation, region)) = self.wanted(hooks)? else { return Ok(None) };
        let frame = Frame {
            text: Some(text.into()),
            row: Some(family.clone()),
            flag: Some(all),
            more: Some(major),
            ..frames::call(Method::StoreBegin, region)
        };
        let answer = vitals::outside(|| operation.call(frame)).map_err(failed)?;
        let mut options = operation.checked(frames::options(&answer)).map_err(failed)?;
        let (options, job) = (options.remove(family), answer.scanner());
        let bytes_max = PACKET_BYTES.min(self.jvm.settings.frame_bytes_max as u64 / 4).max(1);
        Ok(Some(Box::new(HostedRewrite { operation, region, job, options, bytes_max, has_ended: false })))
    }
}

/// One flush or compaction of a family.
struct HostedRewrite {
    operation: Operation,
    region: u64,
    /// Its number in the JVM.
    job: u64,
    options: Option<ScanOptions>,
    bytes_max: u64,
    has_ended: bool,
}

impl HostedRewrite {
    fn frame(&self, method: Method) -> Frame {
        Frame { scanner: Some(self.job), ..frames::call(method, self.region) }
    }

    /// One call, during which the JVM may ask for cells. Returns whether it has. An error of the source is that of the source, whatever the
    /// JVM made of it.
    fn call(&mut self, frame: Frame, source: &mut Source<'_>) -> Result<(Frame, bool)> {
        let (mut has_read, mut stopped) = (false, None);
        let most = self.bytes_max;
        let mut feed = |asked: &Frame| {
            has_read = true;
            let bytes_max = asked.bytes_max().clamp(1, most) as usize;
            match source(bytes_max) {
                Ok(cells) => Ok(Frame {
                    more: Some(!cells.is_empty()),
                    cells: vec![frames::cells_with_seqs(&cells)],
                    ..frames::answer()
                }),
                Err(error) => {
                    let told = errors::to_rpc(&error);
                    stopped = Some(error);
                    Err(told)
                }
            }
        };
        self.operation.begin_call();
        let answer = vitals::outside(|| self.operation.call_feeding(frame, Some(&mut feed)));
        match stopped {
            Some(error) => Err(error),
            None => Ok((answer.map_err(failed)?, has_read)),
        }
    }

    fn tell_end(&mut self, frame: Frame) {
        self.has_ended = true;
        self.operation.begin_call();
        if let Err(error) = vitals::outside(|| self.operation.call(frame)) {
            tracing::warn!(%error, "coprocessors were not told of the end of a flush or compaction");
        }
    }
}

impl RewriteHooks for HostedRewrite {
    fn options(&self) -> Option<ScanOptions> {
        self.options
    }

    fn rewrite(&mut self, source: &mut Source<'_>, sink: &mut Sink<'_>) -> Result<bool> {
        let (answer, has_read) = self.call(self.frame(Method::StoreOpen), source)?;
        if answer.flag() && !has_read {
            return Ok(false); // the scanner is the one that was given
        }
        loop {
            let frame = Frame { bytes_max: Some(self.bytes_max), ..self.frame(Method::StoreNext) };
            let (answer, _) = self.call(frame, source)?;
            let cells = self.operation.checked(frames::parse_with_seqs(&answer)).map_err(failed)?;
            cells.iter().try_for_each(&mut *sink)?;
            if !answer.more() {
                return Ok(true);
            }
        }
    }

    fn end(mut self: Box<Self>, files: &[&Path]) {
        let file = |path: &&Path| Property { name: "file".into(), value: path.to_string_lossy().into() };
        let property = files.iter().map(file).collect();
        let frame = Frame { flag: Some(true), property, ..self.frame(Method::StoreEnd) };
        self.tell_end(frame);
    }
}

impl Drop for HostedRewrite {
    fn drop(&mut self) {
        if !self.has_ended {
            self.tell_end(self.frame(Method::StoreEnd));
        }
    }
}

/// The exception of a hook, or that there is no JVM now, without the stack trace.
fn failed(error: RpcError) -> Error {
    let text = error.message.lines().next().unwrap_or_default();
    Error::new(ErrorKind::Io, format!("a coprocessor: {}: {text}", error.class))
}
