//! A profile of CPU time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use halcyon_env::{Clock, spawn_thread};

use crate::Profile;
use crate::sampler::Sampler;
use crate::stacks::{Stack, Stacks};
use crate::symbols::Symbols;
use crate::unwind::Unwinder;

/// How often samples are taken out of the ring.
const READ_PERIOD: Duration = Duration::from_millis(5);

/// Samples the process from [`CpuProfile::start`] to [`CpuProfile::finish`]; dropped earlier, it just ends.
///
/// *Thread safety*: a process has one at a time.
pub struct CpuProfile {
    ends: Arc<AtomicBool>,
    reader: Option<JoinHandle<Stacks>>,
}

impl CpuProfile {
    /// A sample for each `1 / samples_per_second` of CPU time that the process takes. The kernel looks at its timers 100
    /// to 1,000 times in a second, and no faster. `AlreadyExists` while another profile runs.
    pub fn start(clock: Arc<dyn Clock>, samples_per_second: u32) -> io::Result<CpuProfile> {
        let unwinder = Unwinder::of_this_process()?;
        let sampler = Sampler::start(samples_per_second)?;
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let reader = spawn_thread("profiler", move || read(sampler, unwinder, &*clock, &told))?;
        Ok(CpuProfile { ends, reader: Some(reader) })
    }

    /// *Blocking*: reads debug information for names.
    pub fn finish(mut self) -> io::Result<Profile> {
        let stacks = self.end().ok_or_else(|| io::Error::other("the profiler's thread failed"))?;
        let folded = stacks.fold(&mut Symbols::of_this_process(), |_| false);
        Ok(Profile { folded, samples_count: stacks.samples_count, lost_count: stacks.lost_count })
    }

    fn end(&mut self) -> Option<Stacks> {
        self.ends.store(true, Ordering::Relaxed);
        self.reader.take()?.join().ok()
    }
}

impl Drop for CpuProfile {
    fn drop(&mut self) {
        self.end();
    }
}

fn read(mut sampler: Sampler, mut unwinder: Unwinder, clock: &dyn Clock, ends: &AtomicBool) -> Stacks {
    let mut stacks = Stacks::default();
    loop {
        let is_last = ends.load(Ordering::Relaxed);
        if is_last {
            let _ = sampler.stop_timer(); // dropping the sampler ends it anyway
        }
        sampler.take(|sample| {
            let addresses = unwinder.addresses(sample.registers, sample.stack());
            stacks.add(Stack { thread: sample.thread(), addresses }, 1);
        });
        if is_last {
            stacks.lost_count += sampler.lost_count();
            return stacks;
        }
        clock.sleep(READ_PERIOD);
    }
}
