//! When a JVM stood still, by its collector's log, on the wall clock.

use std::path::Path;

use halcyon_env::Env;

use crate::gclog::{Log, Reader};
use crate::outcome::PauseKind;

/// A pause by the wall clock.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub start_ms: f64,
    pub length_ms: f64,
    pub kind: PauseKind,
    pub cause: String,
}

/// All of a log that may still be written to.
pub(super) fn of_log(env: &Env, path: &Path) -> Result<Vec<Found>, String> {
    let bytes = env.fs.read(path).map_err(|error| format!("the collector's log: {error}"))?;
    let mut reader = Reader::new();
    reader.feed(&bytes);
    Ok(found(&reader.finish()))
}

/// Without wall times nothing can be placed; the lab's own flags write them.
fn found(log: &Log) -> Vec<Found> {
    let mut found = Vec::new();
    for pause in &log.pauses {
        let Some(start_ms) = pause.start_wall_ms else { continue };
        let (kind, cause) = (log.names.text(pause.kind), log.names.text(pause.cause));
        let kind_of_pause = if pause.collection { PauseKind::Collection } else { PauseKind::Safepoint };
        let cause = match (pause.collection, cause) {
            (true, "") => kind.to_string(),
            (true, cause) => format!("{kind}, {cause}"),
            (false, cause) => cause.to_string(),
        };
        found.push(Found { start_ms, length_ms: pause.length_ms, kind: kind_of_pause, cause });
    }
    for stall in &log.stalls {
        let Some(start_ms) = stall.start_wall_ms else { continue };
        let cause = log.names.text(stall.kind).to_string();
        found.push(Found { start_ms, length_ms: stall.length_ms, kind: PauseKind::AllocationStall, cause });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
[2026-11-20T10:00:00.500+0000][0.500s][info][gc] Using G1
[2026-11-20T10:00:01.500+0000][1.500s][info][gc     ] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 6M->1M(96M) 20.000ms
[2026-11-20T10:00:01.501+0000][1.501s][info][safepoint] Safepoint \"G1CollectForAllocation\", Time since last: 1 ns, Reaching safepoint: 1000 ns, At safepoint: 20000000 ns, Total: 20001000 ns
[2026-11-20T10:00:02.000+0000][2.000s][info][safepoint] Safepoint \"ThreadDump\", Time since last: 1 ns, Reaching safepoint: 1000000 ns, At safepoint: 2000000 ns, Total: 3000000 ns
[2026-11-20T10:00:03.000+0000][3.000s][info][gc     ] Allocation Stall (main) 12.500ms
";

    #[test]
    fn pauses_lie_on_the_wall_clock() {
        let env = halcyon_env::sim::SimFileSystem::new().env();
        env.fs.put_new("/gc.log".as_ref(), LOG.as_bytes()).unwrap();
        let found = of_log(&env, "/gc.log".as_ref()).unwrap();
        let second_ms = 1_795_168_801_000.0; // 10:00:01
        assert_eq!(found[0].start_ms, second_ms + 480.0);
        assert_eq!(
            (found[0].kind, found[0].cause.as_str()),
            (PauseKind::Collection, "Young (Normal), G1 Evacuation Pause")
        );
        assert_eq!((found[1].kind, found[1].cause.as_str()), (PauseKind::Safepoint, "ThreadDump"));
        assert_eq!((found[1].start_ms, found[1].length_ms), (second_ms + 997.0, 3.0));
        assert_eq!((found[2].kind, found[2].start_ms), (PauseKind::AllocationStall, second_ms + 1987.5));
        assert_eq!(found.len(), 3);
        assert!(of_log(&env, "/none".as_ref()).unwrap_err().contains("the collector's log"));
    }
}
