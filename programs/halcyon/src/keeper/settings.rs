//! Settings of the keeper.

use halcyon_settings::Effect::Restart;
use halcyon_settings::{Flag, Section, settings};

use crate::settings::StandaloneSettings;

/// See [`crate::keeper`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeeperSettings {
    /// Whether there is one (`halcyon.keeper`).
    pub enabled: bool,
    /// Whether it starts a server again that has failed (`halcyon.keeper.restart`). Not by default: systemd, Kubernetes and HBase's scripts
    /// do that, and know when not to.
    pub restart: bool,
}

impl Default for KeeperSettings {
    fn default() -> KeeperSettings {
        KeeperSettings { enabled: true, restart: false }
    }
}

pub const SECTION: Section<StandaloneSettings> = Section {
    title: "Cluster",
    settings: settings!(StandaloneSettings:
        Restart, "halcyon.keeper", "true, false", Flag, keeper.enabled,
            "Whether `halcyon regionserver` and `halcyon master` have a keeper ([Cluster](CLUSTER.md#keeper)).";
        Restart, "halcyon.keeper.restart", "true, false", Flag, keeper.restart,
            "Whether the keeper starts the server again after it has failed.";
    ),
};
