//! The protobuf messages of HBase's wire and files, as Rust types.
//!
//! `proto/*.proto` holds names, numbers and types as HBase 2.6.4 has them (fields that later versions
//! added are included; where 2.6 and 3.0 disagree about a number the 2.6 meaning stands or the field is
//! left out). `bytes` fields are [`bytes::Bytes`], so decoding a frame copies no values.
//!
//! When you add a field, look at `docs/` for the versions that know it.

#![allow(clippy::all, rust_2018_idioms)] // generated code

/// Messages of package `hbase.pb`.
pub mod pb {
    include!(concat!(env!("OUT_DIR"), "/hbase.pb.rs"));
}

/// Bytes that start every protobuf in a file or znode of HBase (`ProtobufMagic`).
pub const PB_MAGIC: &[u8; 4] = b"PBUF";
