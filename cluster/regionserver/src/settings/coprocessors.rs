//! Coprocessors that a property gives to every region.

use std::fmt;

use halcyon_cell::Result;
use halcyon_schema::{Endpoint, TableDescriptor};
use halcyon_settings::Effect::Restart;
use halcyon_settings::{Description, Flag, Section, Text, settings};

/// Which regions have which coprocessors, besides the attributes of their tables (`RegionCoprocessorHost` of 2.6.4).
///
/// Only the classes of [`Endpoint`] do anything. The program refuses to start with others. *Thread safety*: plain data.
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
}

impl Default for CoprocessorSettings {
    fn default() -> CoprocessorSettings {
        CoprocessorSettings {
            region_classes: String::new(),
            user_region_classes: String::new(),
            enabled: true,
            user_enabled: true,
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

    /// Sets one by its property name; `Ok(false)` if no setting has that name.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        halcyon_settings::set(SETTINGS, self, name, value)
    }

    pub(crate) fn describe() -> Vec<Description> {
        halcyon_settings::describe(SETTINGS, &CoprocessorSettings::default())
    }
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
            "Built-in coprocessors of all regions, with commas between them ([Endpoints](ENDPOINTS.md)).";
        Restart, "hbase.coprocessor.user.region.classes", "classes", Text, user_region_classes,
            "The same for regions of all tables but system tables.";
        Restart, "hbase.coprocessor.enabled", "true, false", Flag, enabled,
            "Whether regions have the coprocessors that properties and tables name.";
        Restart, "hbase.coprocessor.user.enabled", "true, false", Flag, user_enabled,
            "The same for tables other than system tables.";
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
}
