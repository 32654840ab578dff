//! What goes wrong in a cluster: servers and masters that die, stand still, or are cut off, wrong verdicts, and HDFS.

use std::time::Duration;

use halcyon_schema::{RegionInfo, ServerName};

use crate::cluster::{Cluster, OPERATIONS_MAX, SESSION};
use crate::rates::Kind;
use crate::server::{Life, ModelServer};
use crate::world::{Event, Flaw};

/// How long a client reads at a server that was declared dead: longer than a lease.
const INSISTS_FOR: Duration = Duration::from_secs(8);
/// Of so many things that are done to the cluster one is followed by a wrong verdict about a server.
const MISJUDGED_ONE_IN: usize = 60;
/// Of so many deaths of servers one is followed by two of masters, while its regions are being recovered.
const TWICE_ONE_IN: usize = 8;
/// A deposed master lives for so long: half a second mostly.
const DEPOSED_LIFE: Duration = Duration::from_millis(500);
const DEPOSED_LIFE_MAX: Duration = Duration::from_secs(60);
const DATA_NODES: usize = 4;

impl Cluster {
    pub(crate) fn kill_server(&self, server: &ServerName) {
        self.world.kill_real(server);
        self.world.die(server);
        // Its process is missed soon, or its session expires.
        let mut state = self.world.lock();
        let time = state.dice.pick(&[Duration::from_millis(200), SESSION]);
        self.world.within(&mut state, time, Event::Expire(server.clone()));
        state.count("servers killed");
        let is_real = self.world.options.is_real;
        if is_real && self.world.rates.has(Kind::TakeOvers) && state.fault(TWICE_ONE_IN) {
            for at_ms in [1_500, 5_000] {
                let after = Duration::from_millis(at_ms + state.dice.below(1_500) as u64);
                self.world.at(&mut state, after, Event::KillMaster);
            }
        }
    }

    /// A server runs, and does not reach the coordination service.
    pub(crate) fn cut_server(&self, server: &ServerName) {
        let mut state = self.world.lock();
        let known = state.servers.get(server).filter(|it| it.life == Life::Up && !it.is_expired);
        let Some(known) = known else { return };
        let open = known.regions.values().filter(|open| open.is_granted && !open.info.table().is_system());
        let read = open.map(|open| open.info.clone()).next();
        if !state.cut.insert(server.clone()) {
            return;
        }
        let time = Duration::from_millis(state.dice.between(500, 15_000) as u64);
        self.world.at(&mut state, time, Event::CutEnds(server.clone()));
        if time > SESSION {
            self.world.at(&mut state, SESSION, Event::Expire(server.clone()));
        }
        state.count("servers cut from ZooKeeper");
        drop(state);
        self.tell(|| format!("{server} is cut from ZooKeeper for {time:?}"));
        if let Some(region) = read {
            self.world.begin_client(region.table(), OPERATIONS_MAX);
            self.world.begin_reader(server, &region, time);
        }
    }

    /// It reaches the coordination service again, and learns whether its session is over.
    pub(crate) fn end_cut(&self, server: &ServerName) {
        let mut state = self.world.lock();
        state.cut.remove(server);
        match state.servers.get(server).map(|known| (known.life, known.is_expired)) {
            Some((Life::Up, true)) => {
                self.world.within(&mut state, Duration::from_millis(300), Event::Abort(server.clone()));
            }
            Some((Life::Up, false)) => {
                state.events.retain(|_, event| !matches!(event, Event::Expire(of) if of == server));
            }
            _ => {}
        }
    }

    pub(crate) fn freeze_server(&self, server: &ServerName) {
        let mut state = self.world.lock();
        let time = Duration::from_millis(state.dice.between(100, 15_000) as u64);
        let known = state.servers.get_mut(server).expect("it lives");
        known.life = Life::Frozen;
        let open = known.regions.values().filter(|open| open.is_granted && !open.info.table().is_system());
        let read = open.map(|open| open.info.clone()).next();
        if let Some(real) = state.real.get(server) {
            self.world.threads.freeze(real.process);
        }
        self.world.at(&mut state, time, Event::Thaw(server.clone()));
        if time > SESSION {
            self.world.at(&mut state, SESSION, Event::Expire(server.clone()));
        }
        state.count("servers frozen");
        drop(state);
        // What comes while it is frozen is waiting when it thaws.
        if let Some(region) = read.filter(|_| self.world.options.is_real) {
            self.world.begin_reader(server, &region, time + SESSION);
        }
    }

    pub(crate) fn thaw(&self, server: &ServerName) {
        let zombie = {
            let mut state = self.world.lock();
            let Some(known) = state.servers.get_mut(server).filter(|it| it.life == Life::Frozen) else {
                return;
            };
            known.life = Life::Up;
            let zombie = known.is_expired;
            if !zombie && !state.cut.contains(server) {
                // It thaws before its session is over, and is heard of again.
                state.events.retain(|_, event| !matches!(event, Event::Expire(of) if of == server));
            }
            if let Some(real) = state.real.get(server) {
                self.world.threads.thaw(real.process);
            }
            if zombie {
                self.world.within(&mut state, Duration::from_millis(300), Event::Abort(server.clone()));
            }
            zombie
        };
        if zombie {
            // Writes that had begun go on.
            self.write_at(server);
        }
    }

    /// The znode of a server is gone.
    pub(crate) fn expire(&self, server: &ServerName) {
        let mut state = self.world.lock();
        if !state.znodes.remove(server) {
            return;
        }
        if let Some(known) = state.servers.get_mut(server) {
            known.is_expired = true;
        }
        if let Some(epoch) = self.master.as_ref().map(|master| master.epoch) {
            let event = Event::SeesDeath(epoch, server.clone());
            self.world.within(&mut state, Duration::from_millis(500), event);
            if self.world.has(Flaw::DeadServersReturn) {
                let event = Event::SeesJoin(epoch, server.clone());
                self.world.at(&mut state, Duration::from_millis(700), event);
            }
        }
    }

    pub(crate) fn freeze_master(&mut self) {
        let Some(master) = self.master.as_mut().filter(|master| !master.is_frozen) else { return };
        master.is_frozen = true;
        self.world.threads.freeze(master.process);
        let mut state = self.world.lock();
        let time = Duration::from_millis(state.dice.between(100, 15_000) as u64);
        self.world.at(&mut state, time, Event::ThawMaster(master.epoch));
        if time > SESSION {
            self.world.at(&mut state, SESSION, Event::ExpireMaster(master.epoch));
            let lives_long = self.world.options.is_real && self.world.rates.has(Kind::OldMasters);
            let life = if lives_long && state.dice.one_in(3) { DEPOSED_LIFE_MAX } else { DEPOSED_LIFE };
            let end = time + Duration::from_millis(state.dice.below(life.as_millis() as usize) as u64);
            self.world.at(&mut state, end, Event::ExitMaster(master.epoch));
        }
        state.count("masters frozen");
    }

    /// Another one becomes active within this time.
    pub(crate) fn kill_master(&mut self, within: Duration) {
        let Some(master) = self.master.take_if(|master| !master.is_frozen) else { return };
        let mut state = self.world.lock();
        self.world.within(&mut state, within, Event::ExpireMaster(master.epoch));
        state.count("masters killed");
        drop(state);
        master.kill();
    }

    /// The master declares a server dead that lives and has its session: a packet filter, say, has refused its connections. Clients that
    /// know the server go on reading there.
    pub(crate) fn misjudge(&mut self) {
        if !self.doubts.one_in(MISJUDGED_ONE_IN) || !self.world.rates.has(Kind::WrongVerdicts) {
            return;
        }
        let Some(epoch) = self.master.as_ref().map(|master| master.epoch) else { return };
        let is_well = |it: &ModelServer| it.life == Life::Up && !it.is_expired;
        let well: Vec<ServerName> = {
            let state = self.world.lock();
            state.servers.iter().filter(|(_, it)| is_well(it)).map(|(name, _)| name.clone()).collect()
        };
        if well.len() < 2 {
            return;
        }
        let server = well[self.doubts.below(well.len())].clone();
        self.tell(|| format!("{server} is declared dead, and lives"));
        let regions: Vec<RegionInfo> = {
            let mut state = self.world.lock();
            state.count("wrong verdicts");
            self.world.at(&mut state, Duration::ZERO, Event::SeesDeath(epoch, server.clone()));
            let open = state.servers[&server].regions.values().filter(|open| open.is_granted);
            open.map(|open| open.info.clone()).filter(|region| !region.table().is_system()).collect()
        };
        if self.world.options.is_real {
            for region in regions {
                self.world.begin_client(region.table(), OPERATIONS_MAX);
                self.world.begin_reader(&server, &region, INSISTS_FOR);
            }
        }
    }

    /// The NameNode is away, or a DataNode dies.
    pub(crate) fn disturb_hdfs(&self) {
        let mut state = self.world.lock();
        let time = Duration::from_millis(state.dice.between(100, 8_000) as u64);
        let rates = self.world.rates;
        if state.dice.one_in(3) {
            if rates.has(Kind::NameNode) {
                state.away_until_ns = self.world.now_ns() + time.as_nanos() as u64;
                state.count("NameNode away");
            }
            return;
        }
        if state.events.values().any(|event| matches!(event, Event::DataNodeBack(_) | Event::DataNodeThaws)) {
            return; // one at a time: a file lies on three of four
        }
        let number = state.dice.below(DATA_NODES);
        if state.dice.one_in(2) && rates.has(Kind::SlowDataNodes) {
            let time = Duration::from_millis(state.dice.between(20, 5_000) as u64);
            state.data_node_frozen = Some(number);
            self.world.at(&mut state, time, Event::DataNodeThaws);
            return state.count("DataNodes frozen");
        }
        if !rates.has(Kind::DataNodes) {
            return;
        }
        state.data_node_down = true;
        self.world.fs.set_data_node(number, false);
        self.world.at(&mut state, time, Event::DataNodeBack(number));
        state.count("DataNodes dead");
    }
}
