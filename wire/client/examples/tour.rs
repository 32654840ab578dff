//! Conditions, batches, buffers, scans and administration: `cargo run --example tour -- 127.0.0.1:2181`.

use halcyon_client::{
    Action, Append, Bytes, CheckAndMutate, ClientError, Cluster, ClusterAddress, ClusterOptions, Comparator,
    CompareOp, Delete, FamilyDescriptor, Filter, Get, NamespaceDescriptor, Put, RowMutations, Scan,
    SnapshotType, TableDescriptor, TableName,
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

/// Does a bit of everything in a namespace of its own, and returns what it saw.
pub async fn run(address: ClusterAddress) -> Result<Vec<String>, ClientError> {
    let cluster = Cluster::connect(address, ClusterOptions::default()).await?;
    let admin = cluster.admin().await?;
    admin.create_namespace(&NamespaceDescriptor::new("tour")).await?;
    let name = TableName::parse(b"tour:seats")?;
    let descriptor = TableDescriptor::new(name.clone()).with_family(FamilyDescriptor::new("f")?);
    admin.create_table(&descriptor, vec![Bytes::from_static(b"m")]).await?;
    let table = cluster.table(name.clone(), 0);
    let mut lines = Vec::new();

    // A condition: the first passenger has the seat.
    let take = |who: &str| {
        let put = Put::new("12a").column("f", "passenger", who);
        CheckAndMutate::row("12a").if_not_exists("f", "passenger").then(put)
    };
    let ada = table.check_and_mutate(&take("Ada")).await?;
    let bob = table.check_and_mutate(&take("Bob")).await?;
    lines.push(format!("Ada has the seat: {}, Bob has it: {}", ada.processed, bob.processed));

    // Mutations of one row that happen together.
    let swap = RowMutations::new("12a")
        .with(Delete::new("12a").column("f", "passenger"))
        .with(Put::new("12a").column("f", "free", "yes"));
    table.mutate_row(&swap).await?;

    // A batch has a result for each action.
    let actions = [
        Action::from(Put::new("z1").column("f", "class", "first")),
        Action::from(Append::new("12a").column("f", "notes", "window;")),
        Action::from(Get::new("12a").column("f", "free")),
        Action::from(Put::new("z2").column("missing", "q", "v")),
    ];
    for result in table.batch(&actions).await {
        lines.push(match result {
            Ok(result) => format!("done, {} cells", result.row.len()),
            Err(error) => error.class().to_string(),
        });
    }

    // A buffer sends mutations when it is full.
    let mut buffer = table.buffered(64 << 10);
    for number in 0..1_000 {
        let put = Put::new(format!("row-{number:04}")).column("f", "q", format!("value {number}"));
        buffer.mutate(put).await.expect("nothing fails here");
    }
    buffer.close().await.expect("nothing fails here");

    // Scans go over regions, in both directions.
    let filter = Filter::value(CompareOp::Equal, Comparator::substring("value 99"));
    let mut scan = table.scan(Scan::new().filter(filter).caching(10));
    let mut count = 0;
    while scan.next().await?.is_some() {
        count += 1;
    }
    lines.push(format!("{count} rows with value 99"));
    let mut last = table.scan(Scan::new().reversed(true).limit(1));
    lines.push(format!("last row: {}", last.next().await?.unwrap_or_default().key().escape_ascii()));

    // Administration.
    admin.flush(&name).await?;
    admin.snapshot("tour-snapshot", &name, SnapshotType::Flush, None).await?;
    let copy = TableName::parse(b"tour:copy")?;
    admin.clone_snapshot("tour-snapshot", &copy).await?;
    lines.push(format!("regions of the copy: {}", admin.regions(&copy).await?.len()));
    admin.delete_snapshot("tour-snapshot").await?;
    admin.drop_table(&copy).await?;
    admin.drop_table(&name).await?;
    admin.delete_namespace("tour").await?;
    lines.push(format!("namespaces: {}", admin.namespaces().await?.join(", ")));
    Ok(lines)
}
