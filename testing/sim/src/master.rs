//! The process of a master: what `halcyon master` does around [`Master`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use halcyon_contract::RegionServers;
use halcyon_env::sim::Process;
use halcyon_env::spawn_thread;
use halcyon_master::{Master, MasterService, MasterSettings};
use halcyon_schema::{ServerName, layout};
use parking_lot::Mutex;

use crate::remote::Reached;
use crate::view::View;
use crate::world::World;

/// Between two attempts to take the cluster over.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const CHORE_PERIOD: Duration = Duration::from_secs(1);
/// Between two looks for what splits and merges have left.
const CLEANER_PERIOD: Duration = Duration::from_secs(7);
/// How far the clocks of masters are apart.
const CLOCKS_APART_MS: usize = 40;

/// A master and its process.
pub(crate) struct MasterProcess {
    pub(crate) epoch: u64,
    pub(crate) process: Process,
    pub(crate) view: Arc<View>,
    pub(crate) is_frozen: bool,
    serving: Arc<Mutex<Option<Serving>>>,
}

#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) master: Arc<Master>,
    pub(crate) service: Arc<MasterService>,
}

impl MasterProcess {
    /// Starts the process of a master that has just become active.
    pub(crate) fn start(world: &Arc<World>) -> MasterProcess {
        let (epoch, ahead_ms) = {
            let mut state = world.lock();
            state.epoch += 1;
            (state.epoch, state.dice.below(CLOCKS_APART_MS) as i64)
        };
        let clock = world.threads.clock(ahead_ms);
        let view = View::new(world, epoch, clock);
        let serving = Arc::new(Mutex::new(None));
        let name = ServerName::new("m", 16000, epoch as i64);
        let body = {
            let (view, serving) = (view.clone(), serving.clone());
            move || run(&view, name, &serving)
        };
        let process =
            world.threads.start_process(&format!("master-{epoch}"), body).expect("there are threads");
        world.lock().master =
            Some(Reached { process, view: Arc::downgrade(&view), serving: Arc::clone(&serving) });
        MasterProcess { epoch, process, view, is_frozen: false, serving }
    }

    /// News of servers. A master of real servers learns them in its own process.
    pub(crate) fn tell(&self, news: impl FnOnce(&View) + Send + 'static) {
        if self.view.servers().is_none() {
            return news(&self.view);
        }
        let view = self.view.clone();
        let told = self.view.world.threads.spawn_in(self.process, "news", move || news(&view));
        drop(told); // or it was killed
    }

    /// The master, if it has started.
    pub(crate) fn serving(&self) -> Option<Serving> {
        self.serving.lock().clone()
    }

    /// Ends the process where it is.
    pub(crate) fn kill(self) {
        self.view.world.threads.kill(self.process);
        let serving = self.serving.lock().take();
        drop(serving); // its threads have ended
    }
}

fn run(view: &Arc<View>, name: ServerName, serving: &Mutex<Option<Serving>>) {
    let world = &view.world;
    let clock = view.env.clock.clone();
    view.look_for_servers();
    if view.servers().is_some() {
        let view = view.clone();
        let watch = move || {
            let mut without = BTreeMap::new();
            loop {
                view.expire_without_znode(&mut without);
                view.env.clock.sleep(CHORE_PERIOD);
            }
        };
        spawn_thread("watch", watch).expect("there are threads");
    }
    let mut settings = MasterSettings::new(name.clone());
    (settings.procedure_threads, settings.region_threads, settings.split_threads) = (4, 4, 2);
    settings.epoch = view.epoch;
    settings.retry_pause_max = Duration::from_secs(2);
    settings.cleaner_period = CLEANER_PERIOD;
    let own = world.wal_dir(&name);
    while let Err(error) = view.env.fs.create_dir_all(&own) {
        assert!(error.kind() == std::io::ErrorKind::TimedOut, "{error}");
        clock.sleep(RETRY_PAUSE);
    }
    // Once, as the real one: one whose WALs were taken has a znode until a start takes that from it, and is the only one perhaps.
    while view.online().is_empty() {
        clock.sleep(RETRY_PAUSE);
    }
    let master = loop {
        if add_recovering(view, &name).is_ok() {
            match Master::start(view.env.clone(), &world.root, settings.clone(), view.services()) {
                Ok(master) => break master,
                Err(error) => {
                    assert!(!error.kind().is_permanent(), "master {} cannot start: {error}", view.epoch);
                }
            }
        }
        clock.sleep(RETRY_PAUSE);
    };
    let service = Arc::new(MasterService::new(master.clone()).expect("there are threads"));
    *serving.lock() = Some(Serving { master: master.clone(), service });
    {
        let mut state = world.lock();
        state.epoch_loaded = state.epoch_loaded.max(view.epoch);
    }
    loop {
        master.recover_dead_servers();
        let _ = master.note_servers(); // repeated
        world.delay(CHORE_PERIOD);
    }
}

/// The WALs that are there are of servers that are online, of dead ones, and of masters before.
fn add_recovering(view: &View, own: &ServerName) -> std::io::Result<()> {
    // What is being removed has a name with a dot before it.
    let entries = view.env.fs.list(&layout::wals_dir(&view.world.root))?;
    for entry in entries.into_iter().filter(|entry| !entry.name.starts_with('.')) {
        let taken = entry.name.strip_suffix("-splitting");
        let server = ServerName::parse(taken.unwrap_or(&entry.name));
        let server = server.expect("only directories of servers are among the WALs");
        // A server has its znode before it has WALs, and the news of that may come late. One whose WALs were taken is dead for ever.
        let has_znode = view.world.lock().znodes.contains(&server);
        let may_live = taken.is_none() && (has_znode || view.is_online(&server));
        if server != *own && !may_live {
            view.add_recovering(&server);
        }
    }
    Ok(())
}
