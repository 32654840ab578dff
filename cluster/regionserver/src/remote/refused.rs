//! Tables that stay on HBase's servers.

use halcyon_cell::{Error, Result};
use halcyon_schema::{COPROCESSOR_HOST, TableDescriptor};

/// `Invalid` if regions of the table need something that only HBase's servers have. The sentence names it.
///
/// Coprocessors that are not built in need the JVM (`has_jvm`).
///
/// With a master of Halcyon (`is_own_master`) tables with `IS_MOB` and `REPLICATION_SCOPE` are as in a standalone server. Mob files
/// beside servers of HBase were never tried.
pub(super) fn check(table: &TableDescriptor, is_own_master: bool, has_jvm: bool) -> Result<()> {
    let refuse = |what: String| {
        Err(Error::invalid(format!(
            "table {} has {what}; its regions have to stay on servers of HBase",
            table.name()
        )))
    };
    if let Some(class) = table.hosted_coprocessor().filter(|_| !has_jvm) {
        return refuse(format!(
            "coprocessor {class}, which needs a JVM beside this server ({COPROCESSOR_HOST})"
        ));
    }
    if is_own_master {
        return Ok(());
    }
    if let Some(family) = table.families().iter().find(|family| family.is_mob()) {
        return refuse(format!(
            "family {} with IS_MOB, which is served with a master of Halcyon only",
            family.name_str()
        ));
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
    use halcyon_schema::{Endpoint, FamilyDescriptor, TableName};

    use super::*;

    fn table() -> TableDescriptor {
        TableDescriptor::new(TableName::parse(b"t").unwrap()).with_family(FamilyDescriptor::new("f").unwrap())
    }

    #[test]
    fn what_only_hbase_has_is_named() {
        check(&table(), false, false).unwrap();
        check(&table().with("REGION_REPLICATION", "3"), false, false).unwrap();
        for endpoint in Endpoint::ALL {
            check(&table().with("coprocessor$1", format!("|{}|1|", endpoint.class())), false, false).unwrap();
        }
        let local = FamilyDescriptor::new("l").unwrap().with("REPLICATION_SCOPE", "0");
        check(&table().with_family(local), false, false).unwrap();
        let mob = FamilyDescriptor::new("m").unwrap().with("IS_MOB", "true");
        let shipped = FamilyDescriptor::new("r").unwrap().with("REPLICATION_SCOPE", "1");
        for (table, what) in [
            (table().with("COPROCESSOR$2", "hdfs:///x.jar|org.x.Index|1001|k=v"), "coprocessor org.x.Index"),
            (table().with_family(mob), "family m with IS_MOB"),
            (table().with_family(shipped), "family r with REPLICATION_SCOPE 1"),
        ] {
            let error = check(&table, false, false).unwrap_err();
            assert!(error.message().contains(what), "{error}");
            assert_eq!(check(&table, true, false).is_err(), what.starts_with("coprocessor"), "{what}");
            assert_eq!(check(&table, false, true).is_ok(), what.starts_with("coprocessor"), "{what}");
        }
    }
}
