//! Coprocessors of HBase whose work a server does by itself.
//!
//! A table, or a property of the server, may name the classes below; calls for their services are then answered. Every other
//! class needs a JVM beside the region server (`halcyon.coprocessor.host.classpath`). Without one it is refused where it is
//! named.

use crate::TableDescriptor;

/// A coprocessor that is built in.
///
/// Checked against `hbase-server`, `hbase-endpoint` and `hbase-examples` of 2.6. *Thread safety*: plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Mutations of several rows of one region, all or nothing. Every region has it.
    MultiRowMutation,
    /// Maximum, sum and the like of one region.
    Aggregate,
    /// Deletes what a scan finds.
    BulkDelete,
}

impl Endpoint {
    pub const ALL: [Endpoint; 3] = [Endpoint::MultiRowMutation, Endpoint::Aggregate, Endpoint::BulkDelete];

    /// The Java class that tables and properties name.
    pub fn class(self) -> &'static str {
        match self {
            Endpoint::MultiRowMutation => "org.apache.hadoop.hbase.coprocessor.MultiRowMutationEndpoint",
            Endpoint::Aggregate => "org.apache.hadoop.hbase.coprocessor.AggregateImplementation",
            Endpoint::BulkDelete => "org.apache.hadoop.hbase.coprocessor.example.BulkDeleteEndpoint",
        }
    }

    /// The service that clients call, without its package `hbase.pb`.
    pub fn service(self) -> &'static str {
        match self {
            Endpoint::MultiRowMutation => "MultiRowMutationService",
            Endpoint::Aggregate => "AggregateService",
            Endpoint::BulkDelete => "BulkDeleteService",
        }
    }

    /// `None`: the class is not built in.
    pub fn of_class(class: &str) -> Option<Endpoint> {
        Endpoint::ALL.into_iter().find(|endpoint| endpoint.class() == class)
    }

    /// `name` may have the package in front. `None`: no such service.
    pub fn of_service(name: &str) -> Option<Endpoint> {
        let name = name.strip_prefix("hbase.pb.").unwrap_or(name);
        Endpoint::ALL.into_iter().find(|endpoint| endpoint.service() == name)
    }
}

/// The property that gives region servers a JVM for coprocessors.
pub const COPROCESSOR_HOST: &str = "halcyon.coprocessor.host.classpath";

impl TableDescriptor {
    /// The first class among the table's coprocessors that is not built in.
    pub fn hosted_coprocessor(&self) -> Option<String> {
        self.coprocessor_classes().find(|class| Endpoint::of_class(class).is_none())
    }

    /// Classes of the table's coprocessors: attributes `coprocessor$1` and so on, whose values are
    /// `path | class | priority | arguments` (`CoprocessorDescriptor`).
    pub fn coprocessor_classes(&self) -> impl Iterator<Item = String> {
        let attributes = self.attributes();
        let coprocessors =
            attributes.filter(|(key, _)| key.to_ascii_lowercase().starts_with(b"coprocessor$"));
        coprocessors.map(|(_, value)| {
            let class = value.split(|&byte| byte == b'|').nth(1).unwrap_or_default();
            String::from_utf8_lossy(class).trim().to_string()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TableName;

    #[test]
    fn classes_and_services_lead_to_their_endpoint() {
        for endpoint in Endpoint::ALL {
            assert_eq!(Endpoint::of_class(endpoint.class()), Some(endpoint));
            assert_eq!(Endpoint::of_service(endpoint.service()), Some(endpoint));
            assert_eq!(Endpoint::of_service(&format!("hbase.pb.{}", endpoint.service())), Some(endpoint));
        }
        assert_eq!(Endpoint::of_class("org.x.Other"), None);
        assert_eq!(Endpoint::of_service("hbase.pb.ExportService"), None);
    }

    #[test]
    fn the_class_is_the_second_part() {
        let table = TableDescriptor::new(TableName::parse(b"t").unwrap())
            .with("coprocessor$1", "hdfs:///x.jar| org.x.Index |1001|k=v")
            .with("COPROCESSOR$2", format!("|{}|", Endpoint::Aggregate.class()))
            .with("coprocessor$3", "nothing")
            .with("other", "|org.x.Other|1|");
        let mut classes: Vec<String> = table.coprocessor_classes().collect();
        classes.sort();
        assert_eq!(classes, ["", Endpoint::Aggregate.class(), "org.x.Index"]);
    }
}
