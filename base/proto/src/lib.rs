//! The protobuf messages of HBase's wire and files, as Rust types.
//!
//! `proto/*.proto` has the names, numbers and types of HBase 2.6.4, and fields that later versions added. Where 2.6 and
//! 3.0 disagree about a number, the 2.6 meaning applies or the field is left out. `services/*.proto` lists the RPC
//! methods; no code is generated from it. `bytes` fields are [`bytes::Bytes`], so decoding a frame copies no values.
//!
//! When you add a method, also touch `services/services.proto` and `docs/compatibility/rpc.tsv`.

#![allow(clippy::all, rust_2018_idioms)] // generated code

/// Messages of package `hbase.pb`.
pub mod pb {
    include!(concat!(env!("OUT_DIR"), "/hbase.pb.rs"));
}

/// Messages between a region server and the JVM of its coprocessors.
pub mod coprocessor {
    include!(concat!(env!("OUT_DIR"), "/halcyon.coprocessor.rs"));
}

/// Parameters of the remote procedures that only masters of Halcyon order.
pub mod orders {
    include!(concat!(env!("OUT_DIR"), "/halcyon.orders.rs"));
}

impl pb::Action {
    /// A Get among the actions of a Multi.
    pub fn of_get(index: u32, get: pb::Get) -> pb::Action {
        pb::Action { index: Some(index), get: Some(Box::new(get)), ..Default::default() }
    }

    /// A Put, Delete, Increment or Append among the actions of a Multi.
    pub fn of_mutation(index: u32, mutation: pb::MutationProto) -> pb::Action {
        pb::Action { index: Some(index), mutation: Some(Box::new(mutation)), ..Default::default() }
    }
}

/// The types of all messages: an encoded `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Bytes that start every protobuf in a file or znode of HBase (`ProtobufMagic`).
pub const PB_MAGIC: &[u8; 4] = b"PBUF";
