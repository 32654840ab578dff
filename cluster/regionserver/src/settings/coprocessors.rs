//! Coprocessors that a property gives to every region.

use std::fmt;
use std::time::Duration;

use halcyon_cell::Result;
use halcyon_schema::{Endpoint, TableDescriptor};
use halcyon_settings::Effect::Restart;
use halcyon_settings::{Description, Flag, Millis, Number, Positive, Section, Text, settings};

use crate::coprocessors::jar_paths;

/// What HBase's regions load for its backup tool; here `hbase.backup.enable` is enough.
pub const BACKUP_OBSERVER: &str = "org.apache.hadoop.hbase.backup.BackupObserver";

/// What HBase's masters load so that tables name jars of listed paths only; here the list is enough.
pub const WHITELIST_OBSERVER: &str =
    "org.apache.hadoop.hbase.security.access.CoprocessorWhitelistMasterObserver";

/// Which regions have which coprocessors, besides the attributes of their tables (`RegionCoprocessorHost` of 2.6.4).
///
/// The classes of [`Endpoint`] are built in. Others run in a JVM beside the server if there is one (`coprocessors/`); the program
/// refuses to start with others if there is none. *Thread safety*: plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoprocessorSettings {
    /// Classes of all regions, with commas between them (`hbase.coprocessor.region.classes`).
    pub region_classes: String,
    /// Classes of regions of all tables but system tables (`hbase.coprocessor.user.region.classes`).
    pub user_region_classes: String,
    /// Whether there are any (`hbase.coprocessor.enabled`).
    pub enabled: bool,
    /// Whether tables other than system tables have any (`hbase.coprocessor.user.enabled`).
    pub user_enabled: bool,
    /// Whether a class that fails ends the JVM, and a class that cannot be loaded keeps its region closed
    /// (`hbase.coprocessor.abortonerror`). Otherwise such a class is left out. In HBase the server aborts.
    pub abort_on_error: bool,
    /// Where the jars may be that tables name, with commas between them (`hbase.coprocessor.region.whitelist.paths`).
    pub jar_paths: String,
    /// Whether an empty list allows none, as with HBase's `CoprocessorWhitelistMasterObserver` ([`WHITELIST_OBSERVER`]). Without it, any.
    pub only_listed_jars: bool,
    /// Class path of the JVM (`halcyon.coprocessor.host.classpath`); empty: there is none.
    pub host_classpath: String,
    /// The `java` that runs it (`halcyon.coprocessor.host.java`).
    pub host_java: String,
    /// More options of the JVM, with spaces between them (`halcyon.coprocessor.host.options`).
    pub host_options: String,
    /// The JVM's heap in bytes (`halcyon.coprocessor.host.heap`).
    pub host_heap_bytes: u64,
    /// How long a call of the JVM may take, with all that it asks meanwhile (`halcyon.coprocessor.call.timeout`).
    pub call_timeout: Duration,
    /// Calls of the JVM at the same time (`halcyon.coprocessor.calls.max`).
    pub calls_max: usize,
    /// Bytes of a message to or from the JVM (`halcyon.coprocessor.frame.max`).
    pub frame_bytes_max: usize,
    /// A JVM that has not answered for so long is killed (`halcyon.coprocessor.hang.timeout`).
    pub hang_timeout: Duration,
}

impl Default for CoprocessorSettings {
    fn default() -> CoprocessorSettings {
        CoprocessorSettings {
            region_classes: String::new(),
            user_region_classes: String::new(),
            enabled: true,
            user_enabled: true,
            abort_on_error: true,
            jar_paths: String::new(),
            only_listed_jars: false,
            host_classpath: String::new(),
            host_java: "java".to_string(),
            host_options: String::new(),
            host_heap_bytes: 512 << 20,
            call_timeout: Duration::from_secs(60),
            calls_max: 64,
            frame_bytes_max: 64 << 20,
            hang_timeout: Duration::from_secs(10),
        }
    }
}

impl CoprocessorSettings {
    /// Whether the regions of a table have an endpoint.
    pub(crate) fn has(&self, table: &TableDescriptor, endpoint: Endpoint) -> bool {
        // System tables cannot be changed several rows at a time without it, and clients of others have it always.
        if endpoint == Endpoint::MultiRowMutation {
            return true;
        }
        let is_user = !table.name().is_system();
        if !self.enabled {
            return false;
        }
        names(&self.region_classes, endpoint)
            || (self.user_enabled && is_user && names(&self.user_region_classes, endpoint))
            || ((self.user_enabled || !is_user)
                && table.coprocessor_classes().any(|class| class == endpoint.class()))
    }

    /// Whether there is a JVM for classes that are not built in.
    pub fn has_host(&self) -> bool {
        !self.host_classpath.trim().is_empty()
    }

    /// A class that the regions of a table have and that is not built in, if there is one. The MultiRowMutationEndpoint and
    /// its like stay with this server.
    pub(crate) fn hosted(&self, table: &TableDescriptor) -> Option<String> {
        if !self.enabled {
            return None;
        }
        let is_user = !table.name().is_system();
        let of_user = (self.user_enabled && is_user).then_some(self.user_region_classes.as_str());
        let listed = [Some(self.region_classes.as_str()), of_user];
        let listed = listed.into_iter().flatten().flat_map(|classes| classes.split(','));
        let listed = listed.map(|item| item.split('|').next().unwrap_or_default().trim().to_string());
        let mut listed = listed.filter(|class| !class.is_empty() && !is_here(class));
        let of_table = || (self.user_enabled || !is_user).then(|| table.hosted_coprocessor()).flatten();
        listed.next().or_else(of_table)
    }

    /// `Invalid` if the table names a jar that may not be loaded.
    pub(crate) fn check_jars(&self, table: &TableDescriptor) -> Result<()> {
        match self.limits_jars() {
            true => jar_paths::check(table, &self.jar_paths),
            false => Ok(()),
        }
    }

    /// Whether tables may name jars of some paths only.
    pub fn limits_jars(&self) -> bool {
        self.only_listed_jars || !self.jar_paths.trim().is_empty()
    }

    /// The class lists and switches as the JVM has to know them. What is built in is left out.
    pub(crate) fn properties(&self) -> Vec<(&'static str, String)> {
        let others = |classes: &str| {
            let is_hosted = |item: &&str| {
                let class = item.split('|').next().unwrap_or_default().trim();
                !class.is_empty() && !is_here(class)
            };
            classes.split(',').filter(is_hosted).collect::<Vec<_>>().join(",")
        };
        vec![
            ("hbase.coprocessor.region.classes", others(&self.region_classes)),
            ("hbase.coprocessor.user.region.classes", others(&self.user_region_classes)),
            ("hbase.coprocessor.enabled", self.enabled.to_string()),
            ("hbase.coprocessor.user.enabled", self.user_enabled.to_string()),
            ("hbase.coprocessor.abortonerror", self.abort_on_error.to_string()),
        ]
    }

    /// Sets one by its property name; `Ok(false)` if no setting has that name.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        halcyon_settings::set(SETTINGS, self, name, value)
    }

    pub(crate) fn describe() -> Vec<Description> {
        halcyon_settings::describe(SETTINGS, &CoprocessorSettings::default())
    }
}

/// Whether the server itself does what the class does.
fn is_here(class: &str) -> bool {
    Endpoint::of_class(class).is_some() || class == BACKUP_OBSERVER
}

/// Whether a list of `class|priority` names the class of an endpoint.
fn names(classes: &str, endpoint: Endpoint) -> bool {
    classes
        .split(',')
        .any(|item| item.split('|').next().is_some_and(|class| class.trim() == endpoint.class()))
}

impl fmt::Display for CoprocessorSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        halcyon_settings::print(SETTINGS, self, f)
    }
}

const SETTINGS: &[Section<CoprocessorSettings>] = &[Section {
    title: "Coprocessors",
    settings: settings!(CoprocessorSettings:
        Restart, "hbase.coprocessor.region.classes", "classes", Text, region_classes,
            "Coprocessors of all regions, with commas between them: built-in ones \
             ([Endpoints](ENDPOINTS.md)), and with a JVM any ([Coprocessors](COPROCESSORS.md)).";
        Restart, "hbase.coprocessor.user.region.classes", "classes", Text, user_region_classes,
            "The same for regions of all tables but system tables.";
        Restart, "hbase.coprocessor.enabled", "true, false", Flag, enabled,
            "Whether regions have the coprocessors that properties and tables name.";
        Restart, "hbase.coprocessor.user.enabled", "true, false", Flag, user_enabled,
            "The same for tables other than system tables.";
        Restart, "hbase.coprocessor.abortonerror", "true, false", Flag, abort_on_error,
            "Whether a coprocessor that fails ends the JVM of coprocessors, and one that cannot be loaded keeps its regions \
             closed. In HBase the server aborts.";
        Restart, "hbase.coprocessor.region.whitelist.paths", "paths", Text, jar_paths,
            "Where the jars of coprocessors may be that tables name, with commas between the paths and `*` for any letters. \
             Empty: anywhere, unless `hbase.coprocessor.master.classes` names HBase's `CoprocessorWhitelistMasterObserver`.";
        Restart, "halcyon.coprocessor.host.classpath", "paths", Text, host_classpath,
            "Class path of the JVM for coprocessors that are not built in: the jar of the host, the jars of HBase, and those \
             of coprocessors ([Coprocessors](COPROCESSORS.md)). Empty: no JVM.";
        Restart, "halcyon.coprocessor.host.java", "program", Text, host_java,
            "The `java` of that JVM, version 17 or later.";
        Restart, "halcyon.coprocessor.host.options", "options", Text, host_options,
            "More options of that JVM, with spaces between them.";
        Restart, "halcyon.coprocessor.host.heap", "bytes", Number, host_heap_bytes, "Heap of that JVM.";
        Restart, "halcyon.coprocessor.call.timeout", "ms", Millis, call_timeout,
            "How long a call of that JVM may take, with all that it asks meanwhile.";
        Restart, "halcyon.coprocessor.calls.max", "calls", Positive, calls_max,
            "Calls of that JVM at the same time. More are refused with RegionTooBusyException.";
        Restart, "halcyon.coprocessor.frame.max", "bytes", Number, frame_bytes_max,
            "Largest message to or from that JVM.";
        Restart, "halcyon.coprocessor.hang.timeout", "ms", Millis, hang_timeout,
            "A JVM that does not answer for so long is killed and started again.";
    ),
}];

#[cfg(test)]
mod tests {
    use halcyon_schema::TableName;

    use super::*;

    fn table(name: &[u8]) -> TableDescriptor {
        TableDescriptor::new(TableName::parse(name).unwrap())
    }

    #[test]
    fn a_table_or_a_property_gives_an_endpoint() {
        let (user, system) = (table(b"t"), table(b"hbase:meta"));
        let mut settings = CoprocessorSettings::default();
        assert!(settings.has(&user, Endpoint::MultiRowMutation));
        assert!(!settings.has(&user, Endpoint::Aggregate));
        let of_table = table(b"t").with("coprocessor$1", format!("|{}|1|", Endpoint::Aggregate.class()));
        assert!(settings.has(&of_table, Endpoint::Aggregate));
        assert!(!settings.has(&of_table, Endpoint::BulkDelete));
        let listed = format!(" org.x.Y , {}|5", Endpoint::BulkDelete.class());
        assert!(settings.set("hbase.coprocessor.user.region.classes", &listed).unwrap());
        assert!(settings.has(&user, Endpoint::BulkDelete) && !settings.has(&system, Endpoint::BulkDelete));
        assert!(settings.set("hbase.coprocessor.region.classes", &listed).unwrap());
        assert!(settings.has(&system, Endpoint::BulkDelete));
        settings.user_enabled = false;
        assert!(!settings.has(&of_table, Endpoint::Aggregate));
        assert!(settings.has(&user, Endpoint::BulkDelete), "those of all regions stay");
        settings.enabled = false;
        assert!(!settings.has(&user, Endpoint::BulkDelete));
    }

    #[test]
    fn classes_that_are_not_built_in_are_for_the_jvm() {
        let (user, system) = (table(b"t"), table(b"hbase:meta"));
        let mut settings = CoprocessorSettings::default();
        assert_eq!(settings.hosted(&user), None);
        let of_table = table(b"t").with("coprocessor$1", "file:///x.jar|org.x.Index|7|");
        assert_eq!(settings.hosted(&of_table).as_deref(), Some("org.x.Index"));
        let built_in = Endpoint::Aggregate.class();
        let listed = format!("{built_in}, {BACKUP_OBSERVER}, org.x.Y|5 ,");
        assert!(settings.set("hbase.coprocessor.user.region.classes", &listed).unwrap());
        assert_eq!(settings.hosted(&user).as_deref(), Some("org.x.Y"));
        assert_eq!(settings.hosted(&system), None);
        let sent = settings.properties();
        assert!(
            sent.contains(&("hbase.coprocessor.user.region.classes", " org.x.Y|5 ".to_string())),
            "{sent:?}"
        );
        settings.user_enabled = false;
        assert_eq!(settings.hosted(&of_table), None);
        settings.user_enabled = true;
        settings.enabled = false;
        assert_eq!(settings.hosted(&of_table), None);
        assert!(!settings.has_host());
    }
}
