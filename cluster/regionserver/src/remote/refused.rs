//! Tables that stay on HBase's servers.

use halcyon_cell::{Error, Result};
use halcyon_schema::TableDescriptor;

/// Coprocessors whose work the server does by itself.
const BUILT_IN: [&str; 1] = ["org.apache.hadoop.hbase.coprocessor.MultiRowMutationEndpoint"];

/// `Invalid` if regions of the table need something that only HBase's servers have. The sentence names it.
pub(super) fn check(table: &TableDescriptor) -> Result<()> {
    let refuse = |what: String| {
        Err(Error::invalid(format!(
            "table {} has {what}; its regions have to stay on servers of HBase",
            table.name()
        )))
    };
    let coprocessor =
        table.attributes().filter(|(key, _)| key.to_ascii_lowercase().starts_with(b"coprocessor$"));
    let class = |value: &[u8]| {
        // path | class | priority | arguments
        let class = value.split(|&byte| byte == b'|').nth(1).unwrap_or_default();
        String::from_utf8_lossy(class).trim().to_string()
    };
    let foreign =
        coprocessor.map(|(_, value)| class(value)).find(|class| !BUILT_IN.contains(&class.as_str()));
    if let Some(class) = foreign {
        return refuse(format!("coprocessor {class}, which runs in a JVM only"));
    }
    if let Some(family) = table.families().iter().find(|family| family.is_mob()) {
        return refuse(format!("family {} with IS_MOB, whose values are not read here", family.name_str()));
    }
    if let Some(family) = table.families().iter().find(|family| family.scope() != 0) {
        return refuse(format!(
            "family {} with REPLICATION_SCOPE {}, and nothing is sent to replication peers from here",
            family.name_str(),
            family.scope()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use halcyon_schema::{FamilyDescriptor, TableName};

    use super::*;

    fn table() -> TableDescriptor {
        TableDescriptor::new(TableName::parse(b"t").unwrap()).with_family(FamilyDescriptor::new("f").unwrap())
    }

    #[test]
    fn what_only_hbase_has_is_named() {
        check(&table()).unwrap();
        check(&table().with("REGION_REPLICATION", "3")).unwrap();
        check(&table().with("coprocessor$1", format!("|{}|1|", BUILT_IN[0]))).unwrap();
        check(&table().with_family(FamilyDescriptor::new("l").unwrap().with("REPLICATION_SCOPE", "0")))
            .unwrap();
        let mob = FamilyDescriptor::new("m").unwrap().with("IS_MOB", "true");
        let shipped = FamilyDescriptor::new("r").unwrap().with("REPLICATION_SCOPE", "1");
        for (table, what) in [
            (table().with("COPROCESSOR$2", "hdfs:///x.jar|org.x.Index|1001|k=v"), "coprocessor org.x.Index"),
            (table().with_family(mob), "family m with IS_MOB"),
            (table().with_family(shipped), "family r with REPLICATION_SCOPE 1"),
        ] {
            let error = check(&table).unwrap_err();
            assert!(error.message().contains(what), "{error}");
        }
    }
}
