//! From a table's creation to its rows read back: `cargo run --example quickstart -- 127.0.0.1:2181`.

use halcyon_client::{
    ClientError, Cluster, ClusterAddress, ClusterOptions, FamilyDescriptor, Filter, Get, Increment, Put,
    Scan, TableDescriptor, TableName,
};

#[tokio::main]
#[allow(dead_code)] // the integration test calls `run`
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:2181".to_string());
    for line in run(ClusterAddress::zookeeper([address])).await? {
        println!("{line}");
    }
    Ok(())
}

/// Creates a table, writes to it, reads it, drops it, and returns what was read.
pub async fn run(address: ClusterAddress) -> Result<Vec<String>, ClientError> {
    let cluster = Cluster::connect(address, ClusterOptions::default()).await?;
    let admin = cluster.admin().await?;
    let name = TableName::parse(b"visits")?;
    let family = FamilyDescriptor::new("f")?.with("VERSIONS", "3");
    admin.create_table(&TableDescriptor::new(name.clone()).with_family(family), Vec::new()).await?;

    let table = cluster.table(name.clone(), 0);
    table.put(Put::new("page-1").column("f", "title", "Home")).await?;
    table.put(Put::new("page-2").column("f", "title", "News")).await?;
    for _ in 0..3 {
        table.increment(Increment::new("page-1").column("f", "visits", 1)).await?;
    }

    let mut lines = Vec::new();
    let home = table.get(Get::new("page-1").column("f", "visits")).await?;
    lines.push(format!("page-1 was visited {} times", home.counter("f", "visits").unwrap_or(0)));
    let filter = Filter::parse("SingleColumnValueFilter('f', 'title', =, 'substring:new')")?;
    let mut rows = table.scan(Scan::prefix("page-").filter(filter)).into_stream();
    while let Some(row) = rows.next().await {
        lines.push(format!("news: {}", row?.key().escape_ascii()));
    }
    admin.drop_table(&name).await?;
    Ok(lines)
}
