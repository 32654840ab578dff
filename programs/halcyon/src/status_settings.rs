//! Settings of what `halcyon master` tells clients of dead servers.

use std::net::IpAddr;
use std::time::Duration;

use halcyon_servers::MULTICAST_PUBLISHER;
use halcyon_settings::{Codec, Effect::Restart, Flag, Number, Positive, Section, Setting, Text, settings};

use crate::settings::StandaloneSettings;

const TITLE: &str = "Dead servers, for clients";

pub const STATUS: Section<StandaloneSettings> = Section {
    title: TITLE,
    settings: settings!(StandaloneSettings:
        Restart, "hbase.status.published", "true, false", Flag, parts.status.published,
            "Whether `halcyon master` tells clients of dead servers by multicast ([Cluster](CLUSTER.md#dead-servers-for-clients)). Clients \
             listen if they have the property, too. `halcyon standalone` has one server and tells nothing.";
        Restart, "hbase.status.multicast.address.ip", "IP address", Group, parts.status.group,
            "The multicast group. HBase takes the name of a host, too.";
        Restart, "hbase.status.multicast.address.port", "port", Positive, parts.status.port,
            "The port that clients listen at.";
        Restart, "hbase.status.multicast.publisher.bind.address.ip", "IP address", Number, parts.status.bind,
            "Address that the messages come from.";
        Restart, "hbase.status.multicast.ni.name", "name", Text, parts.status.interface,
            "Network interface that the messages leave by, such as `eth0`. Empty: as the system's routes say. In HBase it is the interface \
             whose group the master joins.";
        Restart, "hbase.status.publish.period", "ms", PositiveMillis, parts.status.period,
            "Between two messages without news. A server that has died is in the next five messages.";
    ),
};

pub const STATUS_PUBLISHER: Section<StandaloneSettings> = Section { title: TITLE, settings: &[PUBLISHER] };

const PUBLISHER: Setting<StandaloneSettings> = Setting {
    name: "hbase.status.publisher.class",
    unit: "class",
    effect: Restart,
    text: "HBase's `ClusterStatusPublisher.MulticastPublisher` is the only one.",
    set: |_, text| match text.trim().replace('$', ".") == MULTICAST_PUBLISHER.replace('$', ".") {
        true => Ok(()),
        false => Err(format!("is not loaded: {MULTICAST_PUBLISHER} is the only publisher")),
    },
    get: |_| Some(MULTICAST_PUBLISHER.to_string()),
};

/// An address of multicast.
struct Group;

impl Codec<IpAddr> for Group {
    fn parse(text: &str) -> Option<IpAddr> {
        text.parse().ok().filter(IpAddr::is_multicast)
    }

    fn print(address: &IpAddr) -> Option<String> {
        Some(address.to_string())
    }

    fn refused(_: &IpAddr) -> &'static str {
        "is no multicast address such as 226.1.1.3"
    }
}

struct PositiveMillis;

impl Codec<Duration> for PositiveMillis {
    fn parse(text: &str) -> Option<Duration> {
        text.parse().ok().filter(|ms| *ms > 0).map(Duration::from_millis)
    }

    fn print(time: &Duration) -> Option<String> {
        Some(time.as_millis().to_string())
    }

    fn refused(_: &Duration) -> &'static str {
        "is not a time above 0 in milliseconds"
    }
}

#[cfg(test)]
mod tests {
    use halcyon_servers::StatusSettings;

    use super::*;

    fn with(name: &str, value: &str) -> Result<StatusSettings, String> {
        let mut settings = StandaloneSettings::default();
        assert!(settings.set(name, value)?, "{name} is known");
        Ok(settings.parts.status)
    }

    #[test]
    fn nothing_is_published_by_default() {
        let default = StandaloneSettings::default().parts.status;
        assert!(!default.published);
        assert_eq!((default.group.to_string().as_str(), default.port), ("226.1.1.3", 16100));
        assert_eq!(default.period, Duration::from_secs(10));
    }

    #[test]
    fn values_are_checked() {
        assert!(with("hbase.status.published", "true").unwrap().published);
        assert_eq!(
            with("hbase.status.multicast.address.ip", "ff02::7").unwrap().group.to_string(),
            "ff02::7"
        );
        assert_eq!(with("hbase.status.multicast.ni.name", "eth0").unwrap().interface, "eth0");
        for class in [MULTICAST_PUBLISHER, &MULTICAST_PUBLISHER.replace('$', ".")] {
            with("hbase.status.publisher.class", class).unwrap();
        }
        for (name, bad, why) in [
            ("hbase.status.multicast.address.ip", "10.0.0.1", "is no multicast address such as 226.1.1.3"),
            ("hbase.status.multicast.address.ip", "group", "is no multicast address such as 226.1.1.3"),
            ("hbase.status.multicast.address.port", "0", "is not a number above 0"),
            ("hbase.status.multicast.address.port", "65536", "is not a number above 0"),
            ("hbase.status.publish.period", "0", "is not a time above 0 in milliseconds"),
            ("hbase.status.publisher.class", "org.x.Publisher", "is not loaded: "),
        ] {
            let error = with(name, bad).unwrap_err();
            assert!(error.starts_with(&format!("{name}: {bad:?} {why}")), "{error}");
        }
    }
}
