//! Settings that only the processes of a cluster obey.

use halcyon_settings::{Effect::Restart, Flag, Millis, Section, settings};

use crate::settings::StandaloneSettings;

pub const CLUSTER: Section<StandaloneSettings> = Section {
    title: "Cluster",
    settings: settings!(StandaloneSettings:
        Restart, "hbase.master.maxclockskew", "ms", Millis, clock_skew_max,
            "A region server whose clock differs more from the master's does not start. Behind a clock that is ahead, newer values \
             may be hidden by older ones for that long.";
        Restart, "hbase.master.warningclockskew", "ms", Millis, clock_skew_warned,
            "A region server whose clock differs more from the master's is named in the log output. HBase: 10000.";
        Restart, "halcyon.wal.dir.local", "true, false", Flag, wal_root_is_shared,
            "Whether `hbase.wal.dir` of a cluster may be on a local disk: only if all its processes are on one machine, as in tests.";
    ),
};
