//! What is to be started.

use std::fmt;

/// A server to compare, with all that its figures depend on.
#[derive(Debug, Clone, PartialEq)]
pub enum Spec {
    Halcyon(HalcyonSpec),
    Hbase(HbaseSpec),
    Accumulo(AccumuloSpec),
}

/// This program's own `standalone`.
#[derive(Debug, Clone, PartialEq)]
pub struct HalcyonSpec {
    /// For cells and blocks together.
    pub memory_bytes: u64,
    pub durability: Durability,
    /// Of `hbase-site.xml`.
    pub properties: Vec<(String, String)>,
}

/// Standalone HBase 2.6.4: master, region server and ZooKeeper in one JVM.
#[derive(Debug, Clone, PartialEq)]
pub struct HbaseSpec {
    /// Feature release: 17, 25.
    pub jdk: u32,
    /// Least and most of the heap.
    pub heap_bytes: u64,
    pub collector: Collector,
    /// Behind those that the collector needs; where both say something, these win.
    pub jvm_flags: Vec<String>,
    /// Of `hbase-site.xml`.
    pub properties: Vec<(String, String)>,
    pub durability: Durability,
}

/// Accumulo 2.1.4's mini cluster: ZooKeeper, manager, collector of files and one tablet server.
#[derive(Debug, Clone, PartialEq)]
pub struct AccumuloSpec {
    pub jdk: u32,
    /// Of the tablet server.
    pub heap_bytes: u64,
    pub maps: Maps,
    /// `tserver.memory.maps.max`.
    pub maps_max_bytes: u64,
    /// Of every JVM of the cluster.
    pub jvm_flags: Vec<String>,
    /// Of `accumulo.properties`.
    pub properties: Vec<(String, String)>,
    pub durability: Durability,
}

/// What an acknowledged write has survived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Durability {
    /// It is with the operating system: survives the end of the process, not of the machine.
    Written,
    /// It is on the disk.
    Fsync,
}

/// A JVM's collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Collector {
    G1,
    /// With one generation: up to JDK 23.
    Zgc,
    /// With two: from JDK 21 on.
    ZgcGenerational,
    Shenandoah,
    Parallel,
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Collector::G1 => "G1",
            Collector::Zgc => "ZGC",
            Collector::ZgcGenerational => "generational ZGC",
            Collector::Shenandoah => "Shenandoah",
            Collector::Parallel => "Parallel",
        })
    }
}

/// Where Accumulo keeps what was written and not yet flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Maps {
    /// Outside the heap, in C++.
    Native,
    /// In the heap.
    Java,
}

impl Spec {
    /// `Halcyon`, `HBase 2.6.4, G1, JDK 17`.
    pub fn label(&self) -> String {
        match self {
            Spec::Halcyon(_) => "Halcyon".to_string(),
            Spec::Hbase(spec) => format!("HBase 2.6.4, {}, JDK {}", spec.collector, spec.jdk),
            Spec::Accumulo(spec) => {
                let maps = match spec.maps {
                    Maps::Native => "native",
                    Maps::Java => "Java",
                };
                format!("Accumulo 2.1.4, {maps} maps, JDK {}", spec.jdk)
            }
        }
    }
}
