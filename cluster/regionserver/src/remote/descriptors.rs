//! Descriptors of tables, for orders to open regions.
//!
//! A master writes a changed descriptor before it orders regions to be opened with it. So an order needs one that was read after the
//! order came. Many orders come at once, as after a start of the cluster, and these share one reading.

use std::collections::HashMap;
use std::sync::Arc;

use halcyon_cell::Result;
use halcyon_env::Mutex;
use halcyon_schema::{TableDescriptor, TableName};

/// Tables that are remembered. With more all are forgotten.
const TABLES_MAX: usize = 64;

/// What was read lately. *Thread safety*: the lock is not held while a descriptor is read, so several threads may read one.
#[derive(Default)]
pub(super) struct Descriptors(Mutex<HashMap<TableName, Reading>>);

struct Reading {
    begun_ns: u64,
    descriptor: Arc<TableDescriptor>,
}

impl Descriptors {
    /// The descriptor for an order that came at `came_ns`. It is read if no reading has begun since; `now_ns` is now.
    pub(super) fn since(
        &self,
        table: &TableName,
        came_ns: u64,
        now_ns: u64,
        read: impl FnOnce() -> Result<TableDescriptor>,
    ) -> Result<Arc<TableDescriptor>> {
        if let Some(known) = self.0.lock().get(table).filter(|known| known.begun_ns > came_ns) {
            return Ok(known.descriptor.clone());
        }
        let descriptor = Arc::new(read()?);
        let mut all = self.0.lock();
        if all.len() >= TABLES_MAX && !all.contains_key(table) {
            all.clear();
        }
        if all.get(table).is_none_or(|known| known.begun_ns < now_ns) {
            all.insert(table.clone(), Reading { begun_ns: now_ns, descriptor: descriptor.clone() });
        }
        Ok(descriptor)
    }
}

#[cfg(test)]
mod tests {
    use halcyon_cell::Error;
    use halcyon_schema::FamilyDescriptor;

    use super::*;

    #[test]
    fn an_order_gets_a_descriptor_that_was_read_after_it_came() {
        let (known, table) = (Descriptors::default(), TableName::parse(b"t").unwrap());
        let of = |family: &str| {
            TableDescriptor::new(table.clone()).with_family(FamilyDescriptor::new(family).unwrap())
        };
        let no = || panic!("it was read since");
        let family =
            |found: Result<Arc<TableDescriptor>>| found.unwrap().families()[0].name_str().into_owned();
        assert_eq!(family(known.since(&table, 10, 12, || Ok(of("a")))), "a");
        assert_eq!(family(known.since(&table, 10, 13, no)), "a", "of the same request");
        assert_eq!(
            family(known.since(&table, 12, 13, || Ok(of("b")))),
            "b",
            "it came when the reading had begun"
        );
        assert_eq!(family(known.since(&table, 11, 14, || panic!("it was read since"))), "b");
        let failed = known.since(&table, 20, 21, || Err(Error::invalid("no file")));
        assert!(failed.is_err());
        assert_eq!(family(known.since(&table, 20, 22, || Ok(of("c")))), "c", "a failure is not remembered");
        // One that began earlier and took longer.
        assert_eq!(
            family(known.since(&table, 30, 31, || {
                assert_eq!(family(known.since(&table, 32, 33, || Ok(of("e")))), "e");
                Ok(of("d"))
            })),
            "d"
        );
        assert_eq!(family(known.since(&table, 32, 34, || panic!("it was read since"))), "e");
        for number in 0..TABLES_MAX {
            let other = TableName::parse(format!("o{number}").as_bytes()).unwrap();
            known.since(&other, 40, 41, || Ok(of("a"))).unwrap();
        }
        assert!(known.0.lock().len() <= TABLES_MAX);
    }
}
