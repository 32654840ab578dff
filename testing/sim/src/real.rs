//! Real region servers in the place of the models: each is a process with a [`RegionServer`] and its threads.
//!
//! A call is carried out by a thread of the server's process, and its caller waits for the answer. So a server that is frozen answers
//! when it thaws, and carries out what it was asked before; one that is killed leaves what it has done so far.
//!
//! What this file keeps of a server, as [`ModelServer`](crate::server::ModelServer), is what the invariants need.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{Cell, Error, ErrorKind, Result};
use halcyon_contract::{RegionServerApi, SystemTables};
use halcyon_env::sim::{Process, SimFileSystem, SimThreads};
use halcyon_env::{Env, FileSystem};
use halcyon_region::RegionSettings;
use halcyon_regionserver::{MasterLink, RegionServer, RegionServerSettings, RemoteMaster};
use halcyon_schema::{RegionInfo, ServerName, layout};
use parking_lot::Mutex;

use crate::rates::{Kind, Sizes};
use crate::remote::ToMaster;
use crate::server::Life;
use crate::server_fs::ServerFs;
use crate::told::{FAMILY, MANY, SINGLE};
use crate::world::{Event, Flaw, State, World};

/// How long a caller waits for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Between two looks whether there is one.
const LOOK_PAUSE: Duration = Duration::from_millis(2);
/// A server tells the coordination service so often that it lives.
const PING_PERIOD: Duration = Duration::from_secs(1);
/// A server answers nothing when its last ping is so long ago: two thirds of a session.
pub(crate) const LEASE: Duration = Duration::from_secs(4);
/// Between two reports of a server to the master.
const REPORT_PERIOD: Duration = Duration::from_secs(3);
/// Of HBase, that servers work like.
const VERSION: (u32, u32, u32) = (2, 6, 4);

const CHUNK_BYTES: usize = 64 << 10;
const ALL: [&[u8]; 3] = [FAMILY, SINGLE, MANY];

pub(crate) struct RealServer {
    pub(crate) process: Process,
    running: Arc<Mutex<Option<Running>>>,
    pinged_ns: u64,
}

/// What a process has that has started.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) server: Arc<RegionServer>,
    /// Its side of the messages.
    pub(crate) master: Arc<RemoteMaster>,
}

fn settings(sizes: &Sizes) -> RegionServerSettings {
    RegionServerSettings {
        memory_bytes: sizes.memory_bytes,
        chunk_bytes: CHUNK_BYTES,
        wal_roll_bytes: sizes.roll_bytes,
        wal_roll_period: sizes.roll_period,
        wal_files_count_max: sizes.wals_max,
        region: RegionSettings {
            flush_size_bytes: sizes.flush_bytes,
            replay_flush_bytes: sizes.replay_flush_bytes,
            ..RegionSettings::default()
        },
        flush_threads_count: 1,
        small_compaction_threads: 1,
        large_compaction_threads: 1,
        ..RegionServerSettings::default()
    }
}

impl World {
    /// Starts the process of a server.
    pub(crate) fn join_real(self: &Arc<World>, name: &ServerName) {
        let running = Arc::new(Mutex::new(None));
        let env = Env {
            fs: Arc::new(ServerFs { world: self.clone(), server: name.clone() }),
            local: Arc::new(SimFileSystem::new()),
            clock: self.threads.clock(0),
            stalls: Arc::default(),
            keys: Arc::new(halcyon_env::Keys::none()),
        };
        let body = {
            let (world, name, running) = (self.clone(), name.clone(), running.clone());
            move || world.live(&env, &name, &running)
        };
        let process = self.threads.start_process(&name.to_string(), body).expect("there are threads");
        let real = RealServer { process, running, pinged_ns: self.now_ns() };
        self.lock().real.insert(name.clone(), real);
    }

    /// The first thread of a server's process.
    fn live(self: &Arc<World>, env: &Env, name: &ServerName, slot: &Mutex<Option<Running>>) {
        match RegionServer::start_as(env.clone(), &self.root, None, settings(&self.rates.sizes), name.clone())
        {
            Ok(server) => {
                let (world, of) = (Arc::downgrade(self), name.clone());
                server.answer_while(move || world.upgrade().is_some_and(|world| world.may_answer(&of)));
                let to_master = Box::new(ToMaster::new(self, name));
                let link = Arc::new(MasterLink::simulated(to_master, VERSION));
                let master = RemoteMaster::start(&server, link, REPORT_PERIOD);
                let master = master.expect("there are threads");
                *slot.lock() = Some(Running { server, master });
            }
            Err(error) => {
                self.tell(|| format!("{name} cannot start: {error}"));
                return self.exit(name);
            }
        }
        loop {
            let failure = slot.lock().as_ref().and_then(|running| running.server.failure());
            if let Some(failure) = failure {
                self.tell(|| format!("{name} gives up: {failure}"));
                return self.exit(name);
            }
            {
                let mut state = self.lock();
                let is_expired = state.servers.get(name).is_none_or(|server| server.is_expired);
                let is_heard = !is_expired && !state.cut.contains(name);
                if let Some(real) = state.real.get_mut(name).filter(|_| is_heard) {
                    real.pinged_ns = self.now_ns();
                }
            }
            env.clock.sleep(PING_PERIOD);
        }
    }

    /// The process of a server ends itself: its session ends, and it soon has no thread any more.
    fn exit(&self, name: &ServerName) {
        let mut state = self.lock();
        if let Some(server) = state.servers.get_mut(name) {
            server.life = Life::Dead;
        }
        state.count("servers that gave up");
        self.within(&mut state, Duration::from_millis(300), Event::Expire(name.clone()));
        self.within(&mut state, Duration::from_millis(100), Event::Exit(name.clone()));
    }

    /// Ends the process of a server where it is. To be called by the first thread of the simulation.
    pub(crate) fn kill_real(&self, name: &ServerName) {
        let process = self.lock().real.get(name).map(|real| real.process);
        if let Some(process) = process.filter(|process| !self.threads.is_killed(*process)) {
            self.threads.kill(process);
        }
        let running = self.lock().real.get_mut(name).and_then(|real| real.running.lock().take());
        drop(running); // its threads have ended
    }

    pub(crate) fn give_up_real(self: &Arc<World>, name: &ServerName) {
        let _ = self.begin_call(name, |_, running| {
            running.server.give_up("its session has expired");
            Ok(())
        });
    }

    /// Has a thread of the server carry out a call. The answer comes into what is returned. An error: the server is not there.
    pub(crate) fn begin_call<T: Send + 'static>(
        self: &Arc<World>,
        name: &ServerName,
        call: impl FnOnce(&Arc<World>, &Running) -> Result<T> + Send + 'static,
    ) -> Result<Arc<Mutex<Option<Result<T>>>>> {
        let gone = || Error::new(ErrorKind::Busy, format!("{name} does not answer"));
        let (process, slot) = {
            let state = self.lock();
            let is_there = state.servers.get(name).is_some_and(|server| server.life != Life::Dead);
            let real = state.real.get(name).filter(|_| is_there).ok_or_else(gone)?;
            (real.process, real.running.clone())
        };
        let running = slot.lock().clone().ok_or_else(gone)?; // or it has not started yet
        let (world, answer) = (self.clone(), Arc::new(Mutex::new(None)));
        let body = {
            let answer = answer.clone();
            move || {
                // As calls of clients and masters are refused.
                let result = match running.server.failure() {
                    Some(why) => Err(Error::new(ErrorKind::Busy, why)),
                    None => call(&world, &running),
                };
                *answer.lock() = Some(result);
            }
        };
        self.threads.spawn_in(process, "call", body).map_err(|_| gone())?;
        Ok(answer)
    }

    /// Waits for what `look` finds. `Busy`: the server has died, or the time is over.
    pub(crate) fn wait_for<T>(
        &self,
        name: &ServerName,
        time: Duration,
        look: impl Fn() -> Option<T>,
    ) -> Result<T> {
        let begun_ns = self.now_ns();
        loop {
            SimThreads::step();
            if let Some(found) = look() {
                return Ok(found);
            }
            let is_dead = self.lock().servers.get(name).is_none_or(|server| server.life == Life::Dead);
            if is_dead || self.now_ns() - begun_ns > time.as_nanos() as u64 {
                return Err(Error::new(ErrorKind::Busy, format!("{name} gave no answer in time")));
            }
            self.clock.sleep(LOOK_PAUSE);
        }
    }

    /// A call and its answer.
    fn ask<T: Send + 'static>(
        self: &Arc<World>,
        name: &ServerName,
        time: Duration,
        call: impl FnOnce(&Arc<World>, &Running) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let answer = self.begin_call(name, call)?;
        self.wait_for(name, time, || answer.lock().take())?
    }

    pub(crate) fn forget(&self, name: &ServerName, region: &RegionInfo) {
        if let Some(server) = self.lock().servers.get_mut(name) {
            server.regions.remove(region.encoded_name());
        }
    }

    /// Who had the rows before, in this region or in another one, can write to them no more, and its WALs are split.
    pub(crate) fn check_alone_real(&self, state: &mut State, name: &ServerName, region: &RegionInfo) {
        for (other, server) in &mut state.servers {
            let has_rows = |info: &RegionInfo| match info.encoded_name() == region.encoded_name() {
                true => other != name,
                false => info.table() == region.table() && info.overlaps(region),
            };
            let mut open = server.regions.values().map(|open| &open.info);
            let Some(rival) = open.find(|info| has_rows(info)).cloned() else { continue };
            assert!(
                self.is_fenced(other),
                "{region} is at {name}, and {rival} at {other}, which is {:?} and can write to it",
                server.life
            );
            let splitting = layout::wals_dir(&self.root).join(format!("{other}-splitting"));
            let logs = if self.exists(&splitting) {
                self.fs.list(&splitting).expect("it is there")
            } else {
                Vec::new()
            };
            let left = logs.iter().find(|log| log.name.ends_with(".meta") == region.is_meta());
            assert!(left.is_none(), "{region} is at {name} before {left:?} of {other} is split");
            server.regions.retain(|_, open| !has_rows(&open.info));
        }
    }

    /// Whether the server may answer: it has heard of the coordination service not long ago.
    fn may_answer(&self, name: &ServerName) -> bool {
        if self.has(Flaw::LeaseIgnored) {
            return true;
        }
        let pinged_ns = self.lock().real.get(name).map_or(0, |real| real.pinged_ns);
        self.now_ns() < pinged_ns + LEASE.as_nanos() as u64
    }

    /// Flushes a region, compacts it or rolls the WALs, as chance wills. Nobody waits for it.
    pub(crate) fn begin_upkeep(self: &Arc<World>, name: &ServerName, region: &RegionInfo, choice: Kind) {
        let (of, region) = (name.clone(), region.clone());
        // All families, or one: replays have to tell which has what.
        let family = self.lock().dice.pick(&[None, None, Some(FAMILY), Some(SINGLE), Some(MANY)]);
        let families: Vec<Bytes> = family.into_iter().map(Bytes::from_static).collect();
        let _ = self.begin_call(name, move |world, running| {
            let server = &running.server;
            let what = match choice {
                Kind::Flushes => server.flush_region(region.encoded_name(), &families).map(|_| "flushes")?,
                Kind::Compactions => {
                    let families =
                        if families.is_empty() { ALL.map(Bytes::from_static).to_vec() } else { families };
                    for family in &families {
                        server.compact_region(&region, family, true)?;
                    }
                    "compactions"
                }
                _ => server.roll_wals().map(|_| "rolls of WALs")?,
            };
            world.tell(|| format!("{of} has done its upkeep {choice:?} of {region}"));
            world.lock().count(what);
            Ok(())
        });
    }

    /// The rows of a system table, as the simulation looks at them.
    pub(crate) fn scan_real(
        self: &Arc<World>,
        name: &ServerName,
        region: &RegionInfo,
    ) -> Result<Vec<Vec<Cell>>> {
        let (of, region) = (name.clone(), region.clone());
        self.ask(name, ANSWER_TIME, move |_, running| match region.is_meta() {
            true => running.server.meta_scan(&of, b"", b""),
            false => running.server.scan_rows(&of, &region),
        })
    }
}
