//! One simulation: a cluster, what is done to it, and what must hold at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use halcyon_contract::{Assignments, Unasked};
use halcyon_env::sim::{Dice, SimThreads};
use halcyon_proto::pb;
use halcyon_rpc::{Call, Connection, Outcome, Reply, RpcError, Service};
use halcyon_schema::{FamilyDescriptor, RegionInfo, ServerName, TableDescriptor, TableName, layout};
use prost::Message;

use crate::calls::Caller;
use crate::clients::specifier;
use crate::master::{MasterProcess, Serving};
use crate::rates::Kind;
use crate::server::{Life, ModelServer};
use crate::told;
use crate::world::{Event, Flaw, State, World};

/// A session with the coordination service.
pub(crate) const SESSION: Duration = Duration::from_secs(6);
/// How long the faults last.
const FAULTS_TIME: Duration = Duration::from_secs(30);
/// All is open again within this time after the faults.
const SETTLE_TIME: Duration = Duration::from_secs(120);
/// Operations of a client, one after the other.
pub(crate) const OPERATIONS_MAX: usize = 20;
/// Clients end within this time after all is open.
const CLIENTS_TIME: Duration = Duration::from_secs(60);
const SERVERS_MAX: usize = 6;
const TABLES: [&str; 2] = ["t", "u"];

/// What a simulation is told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    pub flaw: Option<Flaw>,
    /// Prints what is done.
    pub is_told: bool,
    /// The region servers are real ones, and not models.
    pub is_real: bool,
}

/// How a simulation went. Two of one seed are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Depends on everything that happened.
    pub trace: u64,
    pub simulated: Duration,
    /// From the end of the faults until all was open.
    pub settled: Duration,
    pub turns: u64,
    pub steps: u64,
    pub counts: BTreeMap<&'static str, u64>,
}

/// Runs a cluster from a seed. Panics if an invariant does not hold.
pub fn simulate(seed: u64, options: Options) -> Report {
    SimThreads::run(seed, |threads| {
        let world = World::new(threads, seed, options);
        let doubts = Dice::new(seed ^ 0xd0b7);
        let mut cluster = Cluster { world, master: None, left: Vec::new(), next_server: 0, doubts };
        let report = cluster.run();
        for master in cluster.master.take().into_iter().chain(cluster.left.drain(..)) {
            master.kill();
        }
        let servers: Vec<ServerName> = cluster.world.lock().real.keys().cloned().collect();
        servers.iter().for_each(|server| cluster.world.kill_real(server));
        report
    })
}

pub(crate) struct Cluster {
    pub(crate) world: Arc<World>,
    /// The newest master, if its process is there.
    pub(crate) master: Option<MasterProcess>,
    /// Those before it that are there: deposed, and frozen or not.
    left: Vec<MasterProcess>,
    next_server: u16,
    /// Chooses which servers are declared dead although they live.
    pub(crate) doubts: Dice,
}

impl Cluster {
    fn run(&mut self) -> Report {
        let (servers, regions) = {
            let mut state = self.world.lock();
            (state.dice.between(2, 4), state.dice.between(1, 5))
        };
        (0..servers).for_each(|_| self.start_server());
        self.master = Some(MasterProcess::start(&self.world));
        self.create_tables(regions);
        let ends_ns = self.world.now_ns() + FAULTS_TIME.as_nanos() as u64;
        self.world.lock().faults = true;
        while self.world.now_ns() < ends_ns {
            self.pass(self.world.rates.pause);
            self.act();
            self.misjudge();
        }
        self.end_faults();
        let begun_ns = self.world.now_ns();
        let mut why = self.what_is_missing();
        while let Some(missing) = why {
            let waited = Duration::from_nanos(self.world.now_ns() - begun_ns);
            assert!(waited < SETTLE_TIME, "{waited:?} after the faults: {missing}");
            self.pass(Duration::from_millis(200));
            self.have_a_server();
            why = self.what_is_missing();
        }
        let settled = Duration::from_nanos(self.world.now_ns() - begun_ns);
        self.wait_for_clients();
        self.check_end();
        let (turns, steps) = self.world.threads.turns_and_steps();
        Report {
            trace: self.world.threads.trace(),
            simulated: self.world.threads.now(),
            settled,
            turns,
            steps,
            counts: self.world.lock().counts.clone(),
        }
    }

    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        self.world.tell(what);
    }

    /// Lets time pass, and does what is due.
    fn pass(&mut self, max: Duration) {
        let until_ns = self.world.now_ns() + {
            let mut state = self.world.lock();
            state.dice.below(max.as_nanos() as usize) as u64 + 1
        };
        loop {
            self.world.make_late_changes();
            let due = self.world.lock().events.first_key_value().map(|((at_ns, _), _)| *at_ns);
            let next_ns = due.map_or(until_ns, |due| due.min(until_ns));
            let now_ns = self.world.now_ns();
            if next_ns > now_ns {
                self.world.clock.sleep(Duration::from_nanos(next_ns - now_ns));
            }
            self.world.threads.check();
            if due.is_none_or(|due| due > until_ns) {
                return;
            }
            let event = self.world.lock().events.pop_first().map(|(_, event)| event);
            self.happen(event.expect("only this thread takes events"));
        }
    }

    fn happen(&mut self, event: Event) {
        self.tell(|| format!("{event:?}"));
        let world = self.world.clone();
        match event {
            Event::Thaw(server) => self.thaw(&server),
            Event::Expire(server) => self.expire(&server),
            Event::SeesDeath(epoch, server) => {
                if let Some(master) = self.master_of(epoch) {
                    master.tell(move |view| view.expire(&server));
                }
            }
            Event::SeesJoin(epoch, server) => {
                if let Some(master) = self.master_of(epoch) {
                    master.tell(move |view| view.add_online(&server));
                }
            }
            Event::Abort(server) => world.abort(&server),
            Event::Exit(server) => world.kill_real(&server),
            Event::DataNodeBack(number) => {
                world.lock().data_node_down = false;
                world.fs.set_data_node(number, true);
            }
            Event::CutEnds(server) => self.end_cut(&server),
            Event::KillMaster => self.kill_master(Duration::from_millis(500)),
            Event::DataNodeThaws => {
                let mut state = world.lock();
                (state.data_node_frozen, state.data_node_avoided) = (None, None);
            }
            Event::OpenLate { server, request, order } => {
                if let Ok(seq) = world.open(&server, &request, order) {
                    let event = Event::Report { server, region: request.region, seq };
                    world.within(&mut world.lock(), Duration::from_secs(1), event);
                }
            }
            Event::Report { server, region, seq } => self.report(server, region, seq),
            Event::Unanswered { server, region, seq } => {
                if world.waits_for_answer(&server, &region, seq) {
                    self.report(server, region, seq);
                }
            }
            Event::ThawMaster(epoch) => {
                if let Some(master) = self.all_masters().find(|it| it.epoch == epoch) {
                    master.is_frozen = false;
                    let process = master.process;
                    world.threads.thaw(process);
                }
            }
            Event::ExpireMaster(epoch) => self.elect(epoch),
            Event::ExitMaster(epoch) => {
                if let Some(at) = self.left.iter().position(|master| master.epoch == epoch) {
                    self.left.remove(at).kill();
                }
            }
        }
    }

    fn all_masters(&mut self) -> impl Iterator<Item = &mut MasterProcess> {
        self.master.iter_mut().chain(self.left.iter_mut())
    }

    fn master_of(&mut self, epoch: u64) -> Option<&mut MasterProcess> {
        self.all_masters().find(|master| master.epoch == epoch)
    }

    /// The newest master, if it serves.
    fn serving(&self) -> Option<Serving> {
        self.master.as_ref().filter(|master| !master.is_frozen).and_then(MasterProcess::serving)
    }

    fn start_server(&mut self) {
        let start_code = i64::from(self.next_server) + 1;
        let port = {
            let mut state = self.world.lock();
            16020 + state.dice.below(SERVERS_MAX) as u16
        };
        self.next_server += 1;
        let name = ServerName::new("h", port, start_code);
        self.tell(|| format!("{name} starts"));
        // A server that has the port has to be gone.
        let before: Vec<ServerName> = {
            let state = self.world.lock();
            state.servers.keys().filter(|other| other.port == port).cloned().collect()
        };
        for other in before {
            self.kill_server(&other);
            self.expire(&other);
        }
        self.world.join(&name);
        if let Some(epoch) = self.master.as_ref().map(|master| master.epoch) {
            let event = Event::SeesJoin(epoch, name);
            self.world.within(&mut self.world.lock(), Duration::from_millis(500), event);
        }
    }

    /// A server reports an opening to the active master, again and again until that has an answer.
    fn report(&self, server: ServerName, region: RegionInfo, seq: u64) {
        let life = self.world.lock().servers.get(&server).map_or(Life::Dead, |it| it.life);
        match life {
            Life::Up => {}
            Life::Dead => return,
            // A frozen server sends nothing, and takes no answer.
            _ => {
                let event = Event::Report { server, region, seq };
                return self.world.at(&mut self.world.lock(), Duration::from_secs(1), event);
            }
        }
        let answer = match (&self.master, self.serving()) {
            (Some(master), _) if master.view.is_dead(&server) => return self.world.abort(&server),
            (_, Some(serving)) => serving.master.opened_unasked(&server, &region, seq),
            _ => Unasked::Later,
        };
        self.tell(|| format!("the report that {region} is open at {server} with {seq}: {answer:?}"));
        match answer {
            Unasked::Accepted => self.world.grant(&server, &region, seq),
            Unasked::Refused => self.world.refuse(&server, &region, seq),
            Unasked::Later => {
                let event = Event::Report { server, region, seq };
                self.world.at(&mut self.world.lock(), Duration::from_secs(1), event);
            }
        }
    }

    /// The session of a master has expired: the next one becomes active.
    fn elect(&mut self, epoch: u64) {
        if self.master.as_ref().is_some_and(|master| master.epoch != epoch) {
            return;
        }
        if let Some(old) = self.master.take() {
            self.left.push(old);
        }
        self.master = Some(MasterProcess::start(&self.world));
        let znodes: Vec<_> = self.world.lock().znodes.iter().cloned().collect();
        let master = self.master.as_ref().expect("it was just started");
        master.tell(move |view| znodes.iter().for_each(|server| view.add_online(server)));
    }

    /// Does one thing that the seed chooses.
    fn act(&mut self) {
        let (choice, up) = {
            let mut state = self.world.lock();
            let choice = state.dice.below(100);
            let up = state.servers.iter().filter(|(_, server)| server.life == Life::Up);
            let up: Vec<ServerName> = up.map(|(name, _)| name.clone()).collect();
            (choice, up)
        };
        let victim = match up.len() {
            0 => None,
            count => Some(up[self.world.lock().dice.below(count)].clone()),
        };
        let rates = self.world.rates;
        let is_calm = self.world.options.is_real && self.world.lock().dice.one_in(2);
        match (choice, victim) {
            (0..14, Some(server)) if is_calm => self.write_at(&server),
            (38..40, _) if self.world.options.is_real => self.disturb_hdfs(),
            (40..45, _) if self.world.options.is_real && rates.has(Kind::Splits) => self.split_region(),
            (45..50, _) if self.world.options.is_real && rates.has(Kind::Merges) => self.merge_regions(),
            (0..5, Some(server)) if up.len() > 1 && rates.has(Kind::Kills) => {
                self.tell(|| format!("{server} is killed"));
                self.kill_server(&server);
            }
            (5..9, Some(server)) if up.len() > 1 && rates.has(Kind::Freezes) => {
                self.tell(|| format!("{server} is frozen"));
                self.freeze_server(&server);
            }
            (50..53, Some(server)) if self.world.options.is_real && rates.has(Kind::Cuts) => {
                self.cut_server(&server);
            }
            (53..54, _) if self.world.options.is_real && rates.has(Kind::Alters) => self.alter_table(),
            (9..14, _) if up.len() < SERVERS_MAX => self.start_server(),
            (14..16, _) if rates.has(Kind::MasterKills) => {
                self.tell(|| "the master is killed".to_string());
                self.kill_master(SESSION);
            }
            (16..18, _) if rates.has(Kind::MasterFreezes) => {
                self.tell(|| "the master is frozen".to_string());
                self.freeze_master();
            }
            (18..21, Some(server)) if rates.has(Kind::Refusals) => {
                let mut state = self.world.lock();
                let known = state.servers.get_mut(&server).expect("it lives");
                known.refuses = !known.refuses;
            }
            (21..35, Some(server)) if rates.has(Kind::Moves) => self.move_region(&server),
            (35..38, _) if rates.has(Kind::Balances) => {
                if let Some(serving) = self.serving() {
                    serving.master.balance(false);
                }
            }
            (_, Some(server)) => self.write_at(&server),
            _ => {}
        }
    }

    /// A client writes to a region of a server.
    pub(crate) fn write_at(&self, server: &ServerName) {
        let region = {
            let mut state = self.world.lock();
            let Some(known) = state.servers.get(server) else { return };
            let open =
                known.regions.values().filter(|open| open.is_granted && !open.info.table().is_system());
            let open: Vec<RegionInfo> = open.map(|open| open.info.clone()).collect();
            if open.is_empty() {
                return;
            }
            open[state.dice.below(open.len())].clone()
        };
        if self.world.options.is_real {
            return self.use_real(server, &region);
        }
        let _ = self.world.write(server, region.encoded_name(), b"value".to_vec()); // refused: not acknowledged
    }

    /// What clients and administrators do to a region of a real server.
    fn use_real(&self, server: &ServerName, region: &RegionInfo) {
        let (choice, upkeep, count) = {
            let mut state = self.world.lock();
            let upkeep = state.dice.pick(&[Kind::Flushes, Kind::Compactions, Kind::Rolls]);
            (state.dice.below(10), upkeep, state.dice.between(1, OPERATIONS_MAX))
        };
        match choice {
            0..8 => self.world.begin_client(region.table(), count),
            _ if self.world.rates.has(upkeep) => self.world.begin_upkeep(server, region, upkeep),
            _ => {}
        }
    }

    fn move_region(&self, to: &ServerName) {
        let (Some(serving), regions) = (self.serving(), self.regions()) else { return };
        if regions.is_empty() {
            return;
        }
        let (region, is_named) = {
            let mut state = self.world.lock();
            (regions[state.dice.below(regions.len())].clone(), state.dice.one_in(2))
        };
        self.tell(|| format!("{region} is to move to {to} ({is_named})"));
        let request = pb::MoveRegionRequest {
            region: pb::RegionSpecifier { r#type: 1, value: region.region_name().clone() },
            dest_server_name: is_named.then(|| to.to_pb()),
        };
        drop(serving.service.call(a_call("MoveRegion", &request))); // nobody waits for the answer
    }

    /// A row that begins the second daughter is chosen by the seed.
    fn split_region(&self) {
        let (Some(serving), regions) = (self.serving(), self.regions()) else { return };
        let row = format!("{:02}", self.world.lock().dice.below(100)).into_bytes();
        let mut regions: Vec<_> = regions.iter().filter(|it| it.contains_row(&row)).collect();
        regions.retain(|region| region.start_key() != &row && !region.table().is_system());
        if regions.is_empty() || regions.len() > TABLES.len() {
            return; // meta is read while it changes
        }
        let region = regions[self.world.lock().dice.below(regions.len())];
        self.tell(|| format!("{region} is to be split at {}", row.escape_ascii()));
        let request = pb::SplitTableRegionRequest {
            region_info: region.to_pb(),
            split_row: Some(row.into()),
            ..Default::default()
        };
        drop(serving.service.call(a_call("SplitRegion", &request)));
    }

    /// Two neighbours, or three, are merged.
    fn merge_regions(&self) {
        let (Some(serving), mut regions) = (self.serving(), self.regions()) else { return };
        regions.retain(|region| !region.table().is_system());
        regions.sort();
        let (at, count) = {
            let mut state = self.world.lock();
            (state.dice.below(regions.len().max(1)), state.dice.between(2, 3))
        };
        let chosen = regions.iter().skip(at).take_while(|it| it.table() == regions[at].table());
        let chosen: Vec<_> = chosen.take(count).collect();
        if chosen.len() < 2 {
            return;
        }
        self.tell(|| format!("{chosen:?} are to be merged"));
        let specifier = |region: &&RegionInfo| specifier(region);
        let request = pb::MergeTableRegionsRequest {
            region: chosen.iter().map(specifier).collect(),
            ..Default::default()
        };
        drop(serving.service.call(a_call("MergeTableRegions", &request)));
    }

    /// Regions of the tables, as `hbase:meta` has them.
    fn regions(&self) -> Vec<RegionInfo> {
        self.meta().into_iter().map(|(region, ..)| region).collect()
    }

    /// Regions of the tables with their servers and states. Not those that were split: only their files are needed, perhaps.
    fn meta(&self) -> Vec<(RegionInfo, String, String)> {
        let text = |row: &[halcyon_cell::Cell], name: &[u8]| {
            let cell = row.iter().find(|cell| cell.family() == b"info" && cell.qualifier() == name);
            cell.map(|cell| String::from_utf8_lossy(cell.value()).into_owned()).unwrap_or_default()
        };
        let rows = self.world.meta_rows();
        rows.iter()
            .filter_map(|row| {
                let info = row.iter().find(|cell| cell.qualifier() == b"regioninfo")?;
                let region = RegionInfo::decode_value(info.value()).expect("the master's own");
                if region.is_split() {
                    return None;
                }
                Some((region, text(row, b"sn"), text(row, b"state")))
            })
            .collect()
    }

    fn descriptor(&self, table: &str) -> TableDescriptor {
        let name = TableName::parse(table.as_bytes()).expect("a name");
        let family = |name: &[u8]| FamilyDescriptor::new(name).expect("a name");
        let descriptor = TableDescriptor::new(name).with_family(family(told::FAMILY));
        if !self.world.options.is_real {
            return descriptor;
        }
        let many = family(told::MANY).with("VERSIONS", "1000");
        descriptor.with_family(family(told::SINGLE)).with_family(many)
    }

    /// A family without rows comes or goes. All regions of the table are opened anew for that.
    fn alter_table(&self) {
        let Some(serving) = self.serving() else { return };
        let (table, has_spare) = {
            let mut state = self.world.lock();
            (state.dice.pick(&TABLES), state.dice.one_in(2))
        };
        let mut descriptor = self.descriptor(table);
        if has_spare {
            descriptor = descriptor.with_family(FamilyDescriptor::new("x").expect("a name"));
        }
        self.tell(|| format!("{table} is altered ({has_spare})"));
        let request = pb::ModifyTableRequest {
            table_name: descriptor.name().to_pb(),
            table_schema: descriptor.to_pb(),
            ..Default::default()
        };
        drop(serving.service.call(a_call("ModifyTable", &request)));
        self.world.lock().count("changes of tables");
    }

    fn create_tables(&mut self, regions: usize) {
        while self.serving().is_none() {
            self.pass(Duration::from_millis(100));
        }
        for table in TABLES {
            let descriptor = self.descriptor(table);
            let key = |at: usize| Bytes::from(format!("{:02}", at * 100 / regions));
            let request = pb::CreateTableRequest {
                table_schema: descriptor.to_pb(),
                split_keys: (1..regions).map(key).collect(),
                ..Default::default()
            };
            let serving = self.serving().expect("there are no faults yet");
            self.answer(&serving, "CreateTable", &request).expect("there are no faults yet");
        }
        while let Some(_missing) = self.what_is_missing() {
            self.pass(Duration::from_millis(100));
        }
    }

    fn answer(&mut self, serving: &Serving, method: &str, request: &impl Message) -> Result<Reply, RpcError> {
        match serving.service.call(a_call(method, request)) {
            Outcome::Ready(reply) => reply,
            Outcome::Later(future) => {
                let (mut future, mut context) = (pin!(future), Context::from_waker(Waker::noop()));
                loop {
                    if let Poll::Ready(reply) = future.as_mut().poll(&mut context) {
                        return reply;
                    }
                    self.pass(Duration::from_millis(10));
                }
            }
        }
    }

    fn end_faults(&mut self) {
        self.tell(|| "the faults end".to_string());
        let frozen: Vec<ServerName> = {
            let mut state = self.world.lock();
            (state.faults, state.away_until_ns) = (false, 0);
            state.servers.values_mut().for_each(|server| server.refuses = false);
            state
                .servers
                .iter()
                .filter(|(_, it)| it.life == Life::Frozen)
                .map(|(name, _)| name.clone())
                .collect()
        };
        frozen.iter().for_each(|server| self.thaw(server));
        let cut = self.world.lock().cut.clone();
        cut.iter().for_each(|server| self.end_cut(server));
        self.have_a_server();
    }

    /// Those that are there may end themselves when the faults are over, because they were declared dead before.
    fn have_a_server(&mut self) {
        let is_well = |it: &ModelServer| it.life == Life::Up && !it.is_expired;
        if !self.world.lock().servers.values().any(is_well) {
            self.start_server();
        }
    }

    /// What is not as it is to be when there are no faults; `None` if all is.
    fn what_is_missing(&self) -> Option<String> {
        let Some(serving) = self.serving() else { return Some("no master serves".to_string()) };
        let procedures = serving.master.procedures();
        if !procedures.is_empty() {
            return Some(format!("procedures {procedures:?}"));
        }
        let meta = self.meta();
        for table in TABLES {
            let regions = meta.iter().map(|(region, ..)| region).filter(|it| it.table().to_string() == table);
            let mut regions: Vec<_> = regions.collect();
            regions.sort_by_key(|region| region.start_key().clone());
            let ends = regions.iter().map(|region| region.end_key().clone());
            let starts =
                regions.iter().skip(1).map(|region| region.start_key().clone()).chain([Bytes::new()]);
            let begins = regions.first().is_some_and(|first| first.start_key().is_empty());
            let is_whole = begins && ends.eq(starts);
            if !is_whole {
                return Some(format!("{table} has holes, or regions over each other: {regions:?}"));
            }
        }
        let state = self.world.lock();
        for (region, server, region_state) in &meta {
            let name = ServerName::parse(server).ok();
            let at = name.and_then(|name| state.servers.get(&name)).filter(|it| it.life == Life::Up);
            let at = at.filter(|it| !it.is_expired); // else it ends itself soon
            let open = at.and_then(|at| at.regions.get(region.encoded_name()));
            if region_state != "OPEN" || !open.is_some_and(|open| open.is_granted) {
                let there = open.map(|open| (open.seq, open.is_granted));
                return Some(format!("{region} is {region_state} at {server}, where it is {there:?}"));
            }
        }
        None
    }

    fn check_end(&mut self) {
        let state = self.world.lock();
        let mut places: BTreeMap<&str, u32> = BTreeMap::new();
        for server in state.servers.values().filter(|server| server.life != Life::Dead) {
            server.regions.keys().for_each(|region| *places.entry(region.as_str()).or_default() += 1);
        }
        assert!(places.values().all(|count| *count == 1), "regions are open twice: {places:?}");
        if self.world.options.is_real {
            drop(state);
            self.check_rows();
        } else {
            self.check_entries(&state);
            drop(state);
        }
        let left: Vec<_> = self.world.fs.dump().into_iter().map(|(path, _)| path).collect();
        let procedures = layout::master_dir(&self.world.root).join("procedures");
        // Time has passed since no procedure was left: a new one, of the janitor say, has a record while it runs.
        let running = self.serving().map(|serving| serving.master.procedures()).unwrap_or_default();
        let is_left = |path: &&std::path::PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let number = name.parse::<u64>().ok().filter(|_| path.starts_with(&procedures));
            number.is_some_and(|number| running.iter().all(|procedure| procedure.id != number))
        };
        let left: Vec<_> = left.iter().filter(is_left).collect();
        assert!(left.is_empty(), "records of procedures are left: {left:?}");
    }

    /// Models have all that was acknowledged.
    fn check_entries(&self, state: &State) {
        for (region, acknowledged) in &state.history.acknowledged {
            let open =
                state.servers.values().filter(|it| it.life == Life::Up).find_map(|it| it.regions.get(region));
            let open = open.unwrap_or_else(|| panic!("{region} is not open"));
            let lost: BTreeSet<_> = acknowledged.iter().filter(|id| !open.entries.contains_key(id)).collect();
            assert!(lost.is_empty(), "{region} has lost {lost:?}");
        }
    }

    /// Clients of real servers find all that was acknowledged, each Increment and Append once.
    fn check_rows(&mut self) {
        let number = self.world.lock().next_id();
        let caller = Caller::client(number, Duration::from_secs(5), 1);
        for (region, server, _) in self.meta() {
            let mut name = ServerName::parse(&server).expect("it is open");
            let begun_ns = self.world.now_ns();
            // A server may serve a region a moment after the master knows that it is open, or lose its session only now.
            let scanned = loop {
                match self.world.scan_at(&caller, &name, &region) {
                    Ok(scanned) => break scanned,
                    Err(failure) => {
                        let waited = Duration::from_nanos(self.world.now_ns() - begun_ns);
                        assert!(waited < CLIENTS_TIME, "{region} cannot be read at {name}: {failure:?}");
                        self.pass(Duration::from_millis(100));
                        let now_at =
                            self.meta().into_iter().find(|(it, ..)| *it == region).map(|(_, at, _)| at);
                        name = now_at.and_then(|at| ServerName::parse(&at).ok()).unwrap_or(name);
                    }
                }
            };
            if region.table().is_system() {
                continue; // it can be read
            }
            let told = self.world.lock().told.of_region(&region);
            told::check(&scanned.found, &told, &told, scanned.window)
                .unwrap_or_else(|wrong| panic!("{region} at {name}: {wrong}"));
        }
    }

    /// Operations that were begun end, and regions are where they were.
    fn wait_for_clients(&mut self) {
        let begun_ns = self.world.now_ns();
        loop {
            let clients = self.world.lock().told.clients;
            let missing = self.what_is_missing();
            if clients == 0 && missing.is_none() {
                return;
            }
            let waited = Duration::from_nanos(self.world.now_ns() - begun_ns);
            assert!(waited < CLIENTS_TIME, "{waited:?} after all was open: {clients} clients, {missing:?}");
            self.pass(Duration::from_millis(200));
            self.have_a_server(); // the last one may lose its session only now
        }
    }
}

fn a_call(method: &str, request: &impl Message) -> Call {
    let connection = Arc::new(Connection {
        user: Some("sim".into()),
        client_version: Some((2, 6)),
        ..Connection::new(1, "127.0.0.1:1")
    });
    Call {
        id: 1,
        method: method.into(),
        param: request.encode_to_vec().into(),
        cells: Vec::new(),
        priority: 0,
        class: halcyon_rpc::CallClass::Meta,
        timeout: None,
        is_traced: false,
        received_ns: 0,
        attributes: Vec::new(),
        connection,
    }
}
