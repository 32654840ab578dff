//! Files of one block whose caller sends the bytes to each DataNode itself.
//!
//! A pipeline sends each packet from one DataNode to the next, and the acknowledgements back. For
//! small packets, such as those of a log, it is quicker to send them to all DataNodes at once, and
//! then the caller also knows which DataNode is late. Here the file and its block are created, and
//! each DataNode is connected to as a pipeline of its own. The caller writes the packets to the
//! connections, reads the acknowledgements, and closes the file with the length of the block.

use std::net::TcpStream;
use std::sync::Arc;

use futures::future::join_all;
use log::warn;
use prost::Message;
use prost::encoding::decode_varint;

use crate::file::FileWriter;
use crate::hdfs::block_writer::{check_setup, requested_checksum};
use crate::hdfs::connection::{DatanodeConnection, Op};
use crate::proto::hdfs::{self, op_write_block_proto::BlockConstructionStage as Stage};
use crate::{HdfsError, Result};

/// An acknowledgement is not longer than this.
const ACK_MAX_LEN: u64 = 64 * 1024;

/// A DataNode of a block.
#[derive(Clone, Debug)]
pub struct Datanode(Arc<hdfs::DatanodeInfoProto>);

impl Datanode {
    /// A DataNode that the NameNode knows by this id.
    pub fn new(ip: &str, port: u16, uuid: &str) -> Self {
        let id = hdfs::DatanodeIdProto {
            ip_addr: ip.to_string(),
            xfer_port: u32::from(port),
            datanode_uuid: uuid.to_string(),
            ..Default::default()
        };
        Self(Arc::new(hdfs::DatanodeInfoProto {
            id,
            ..Default::default()
        }))
    }

    /// Its address, `ip:port`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.0.id.ip_addr, self.0.id.xfer_port)
    }
}

impl PartialEq for Datanode {
    fn eq(&self, other: &Self) -> bool {
        self.0.id.datanode_uuid == other.0.id.datanode_uuid
    }
}

/// A wish for the DataNodes of a block.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// These are left out.
    pub without: Vec<Datanode>,
    /// With fewer DataNodes the next wish is tried.
    pub at_least: usize,
}

/// A connection to a DataNode that waits for the first packet.
pub struct FanOutConnection {
    pub datanode: Datanode,
    /// It does not block.
    pub stream: TcpStream,
}

/// The file whose block is written through connections.
pub struct FanOutFile {
    writer: FileWriter,
    block: hdfs::LocatedBlockProto,
    bytes_per_checksum: usize,
}

/// What a new file became.
pub enum FanOut {
    /// The DataNodes of the last list could not be connected to.
    Direct(FanOutFile, Vec<FanOutConnection>, Vec<Datanode>),
    /// The data is encrypted or erasure coded, so it needs the usual writer.
    Pipelined(FileWriter),
}

/// The answer to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    pub seqno: i64,
    pub is_success: bool,
    /// The bytes that it took.
    pub len: usize,
}

/// Reads the acknowledgement that `bytes` begin with; `None` if it is not complete.
pub fn decode_ack(bytes: &[u8]) -> Result<Option<Ack>> {
    let mut rest = bytes;
    let ack_len = match decode_varint(&mut rest) {
        Ok(ack_len) if ack_len <= ACK_MAX_LEN => ack_len as usize,
        Err(_) if bytes.len() < 10 && bytes.iter().all(|byte| byte & 0x80 != 0) => return Ok(None),
        _ => {
            return Err(HdfsError::DataTransferError(
                "not the length of an acknowledgement".to_string(),
            ));
        }
    };
    if rest.len() < ack_len {
        return Ok(None);
    }
    let ack = hdfs::PipelineAckProto::decode(&rest[..ack_len])?;
    Ok(Some(Ack {
        seqno: ack.seqno,
        is_success: ack.reply().all(|reply| reply == hdfs::Status::Success),
        len: bytes.len() - rest.len() + ack_len,
    }))
}

impl FanOutFile {
    /// Each so many bytes of a packet have a CRC-32C.
    pub fn bytes_per_checksum(&self) -> usize {
        self.bytes_per_checksum
    }

    /// The size that the block is meant to have at most.
    pub fn block_size(&self) -> u64 {
        self.writer.status.blocksize()
    }

    /// Ends the file, of which the DataNodes have acknowledged the last packet.
    pub async fn close(mut self, block_len: u64) -> Result<()> {
        self.block.b.num_bytes = Some(block_len);
        self.writer.last_block = Some(self.block.clone());
        self.writer.close().await
    }

    /// As [`FanOutFile::close`], of a block that not all of its DataNodes have acknowledged. Those
    /// that have give it a new generation stamp. By that the NameNode tells the copies of the
    /// others, which may be too short, and lets them be dropped. With the same stamp a DataNode
    /// would keep its unfinished copy, and would take no other one of this block until it restarts.
    pub async fn close_without_others(
        mut self,
        block_len: u64,
        acknowledged: &[Datanode],
    ) -> Result<()> {
        self.block.b.num_bytes = Some(block_len);
        let has_block = |node: &hdfs::DatanodeInfoProto| {
            let uuid = &node.id.datanode_uuid;
            acknowledged.iter().any(|one| one.0.id.datanode_uuid == *uuid)
        };
        let nodes: Vec<usize> = (0..self.block.locs.len())
            .filter(|node| has_block(&self.block.locs[*node]))
            .collect();
        if nodes.is_empty() {
            return Err(HdfsError::DataTransferError(
                "No DataNode of the block has acknowledged it".to_string(),
            ));
        }
        let old = self.block.b.clone();
        let updated = self
            .writer
            .protocol
            .update_block_for_pipeline(old.clone())
            .await?
            .block;
        self.block.block_token = updated.block_token;
        let generation_stamp = updated.b.generation_stamp;
        let finishing = nodes
            .iter()
            .map(|node| self.finish_anew(*node, generation_stamp, block_len));
        for finished in join_all(finishing).await {
            finished?;
        }
        self.block.b.generation_stamp = generation_stamp;
        let ids = nodes.iter().map(|node| self.block.locs[*node].id.clone());
        let storages = nodes
            .iter()
            .filter_map(|node| self.block.storage_i_ds.get(*node).cloned());
        self.writer
            .protocol
            .update_pipeline(
                old,
                self.block.b.clone(),
                ids.collect(),
                storages.collect(),
            )
            .await?;
        self.close(block_len).await
    }

    /// The DataNode, which has finished the block or has all of it, gives it this stamp.
    async fn finish_anew(&self, node: usize, generation_stamp: u64, len: u64) -> Result<()> {
        let setup = SetupOfOne {
            stage: Stage::PipelineCloseRecovery,
            generation_stamp,
            len,
        };
        self.writer
            .set_up_one(&self.block, node, setup)
            .await
            .map(|_| ())
    }
}

/// What a pipeline of one DataNode is set up for.
struct SetupOfOne {
    stage: Stage,
    generation_stamp: u64,
    /// The bytes that the DataNode has.
    len: u64,
}

enum Setup {
    Connected(Vec<FanOutConnection>),
    Encrypted,
    /// The indexes of the DataNodes that could not be connected to, and the last error.
    Failed(Vec<usize>, HdfsError),
}

impl FileWriter {
    /// How many DataNodes the file should have.
    pub fn replication(&self) -> usize {
        self.status.block_replication() as usize
    }

    /// Makes a file of one block of this one, to which nothing was written yet. The wishes for its
    /// DataNodes are tried in their order, and in the end any DataNodes are taken.
    pub async fn fan_out(self, placements: &[Placement]) -> Result<FanOut> {
        let is_new = self.block_writer.is_none() && self.last_block.is_none();
        if !is_new || self.crypto.is_some() || self.status.ec_policy.is_some() {
            return Ok(FanOut::Pipelined(self));
        }
        let any = Placement::default();
        let mut wishes = placements.iter();
        let mut wish = wishes.next().unwrap_or(&any);
        let mut failed: Vec<hdfs::DatanodeInfoProto> = Vec::new();
        let mut retries = self.config.block_write_retries();
        loop {
            let is_last = std::ptr::eq(wish, &any);
            let without: Vec<_> = (failed.iter().cloned())
                .chain(wish.without.iter().map(|node| (*node.0).clone()))
                .collect();
            let added = (self.protocol)
                .add_block(&self.src, None, self.status.file_id, &without)
                .await;
            let block = match added {
                Ok(added) if is_last || added.block.locs.len() >= wish.at_least => added.block,
                Ok(added) => {
                    self.abandon(added.block.b).await?;
                    wish = wishes.next().unwrap_or(&any);
                    continue;
                }
                // There are no other DataNodes
                Err(HdfsError::RPCError(..)) if !is_last => {
                    wish = wishes.next().unwrap_or(&any);
                    continue;
                }
                Err(error) => return Err(error),
            };
            match self.connect_all(&block).await? {
                Setup::Connected(connections) => {
                    let checksum = self.protocol.get_cached_server_defaults().await?;
                    let file = FanOutFile {
                        writer: self,
                        block,
                        bytes_per_checksum: checksum.bytes_per_checksum as usize,
                    };
                    let failed = failed.into_iter().map(|node| Datanode(Arc::new(node)));
                    return Ok(FanOut::Direct(file, connections, failed.collect()));
                }
                Setup::Encrypted => {
                    self.abandon(block.b).await?;
                    return Ok(FanOut::Pipelined(self));
                }
                Setup::Failed(_, error) if retries == 0 => return Err(error),
                Setup::Failed(nodes, error) => {
                    retries -= 1;
                    warn!("Abandoning block {}: {}", block.b.block_id, error);
                    failed.extend(nodes.into_iter().map(|node| block.locs[node].clone()));
                    self.abandon(block.b).await?;
                }
            }
        }
    }

    async fn abandon(&self, block: hdfs::ExtendedBlockProto) -> Result<()> {
        (self.protocol)
            .abandon_block(&self.src, block, self.status.file_id)
            .await
            .map(|_| ())
    }

    async fn connect_all(&self, block: &hdfs::LocatedBlockProto) -> Result<Setup> {
        let connecting = (0..block.locs.len()).map(|node| self.connect_to(block, node));
        let mut connections = Vec::new();
        let (mut failed, mut last_error) = (Vec::new(), None);
        let mut is_encrypted = false;
        for (node, connected) in join_all(connecting).await.into_iter().enumerate() {
            match connected {
                Ok(Some(stream)) => connections.push(FanOutConnection {
                    datanode: Datanode(Arc::new(block.locs[node].clone())),
                    stream,
                }),
                Ok(None) => is_encrypted = true,
                Err(error) => {
                    failed.push(node);
                    last_error = Some(error);
                }
            }
        }
        Ok(match last_error {
            _ if is_encrypted => Setup::Encrypted,
            Some(error) => Setup::Failed(failed, error),
            None => Setup::Connected(connections),
        })
    }

    /// `None` if the connection is encrypted.
    async fn connect_to(
        &self,
        block: &hdfs::LocatedBlockProto,
        node: usize,
    ) -> Result<Option<TcpStream>> {
        let setup = SetupOfOne {
            stage: Stage::PipelineSetupCreate,
            generation_stamp: block.b.generation_stamp,
            len: 0,
        };
        self.set_up_one(block, node, setup).await?.into_plain()
    }

    async fn set_up_one(
        &self,
        block: &hdfs::LocatedBlockProto,
        node: usize,
        setup: SetupOfOne,
    ) -> Result<DatanodeConnection> {
        let mut connection = DatanodeConnection::connect(
            &block.locs[node].id,
            &block.block_token,
            self.protocol.get_cached_data_encryption_key().await?,
            &self.config,
            &self.handle,
        )
        .await?;
        if setup.stage == Stage::PipelineCloseRecovery {
            // It may have to wait for a disk
            connection.set_answer_timeout(self.config.write_ack_timeout(), &self.handle);
        }
        let defaults = self.protocol.get_cached_server_defaults().await?;
        let message = hdfs::OpWriteBlockProto {
            header: connection.build_header(&block.b, Some(block.block_token.clone())),
            stage: setup.stage as i32,
            pipeline_size: 1,
            latest_generation_stamp: setup.generation_stamp,
            min_bytes_rcvd: setup.len,
            max_bytes_rcvd: setup.len,
            requested_checksum: requested_checksum(&defaults),
            storage_type: block.storage_types.get(node).copied(),
            storage_id: block.storage_i_ds.get(node).cloned(),
            ..Default::default()
        };
        let response = connection.send(Op::WriteBlock, &message).await?;
        check_setup(&response, &block.locs[node..=node])?;
        Ok(connection)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn encoded(seqno: i64, reply: &[hdfs::Status]) -> Vec<u8> {
        hdfs::PipelineAckProto {
            seqno,
            reply: reply.iter().map(|status| *status as i32).collect(),
            ..Default::default()
        }
        .encode_length_delimited_to_vec()
    }

    #[test]
    fn test_acks_in_parts() {
        let mut bytes = encoded(7, &[hdfs::Status::Success]);
        let len = bytes.len();
        bytes.extend(encoded(8, &[hdfs::Status::Error]));
        for end in 0..len {
            assert_eq!(decode_ack(&bytes[..end]).unwrap(), None);
        }
        let ack = |seqno, is_success, len| {
            Some(Ack {
                seqno,
                is_success,
                len,
            })
        };
        assert_eq!(decode_ack(&bytes).unwrap(), ack(7, true, len));
        let rest = &bytes[len..];
        assert_eq!(decode_ack(rest).unwrap(), ack(8, false, rest.len()));
    }

    #[test]
    fn test_what_is_no_ack() {
        assert!(decode_ack(&[0xff; 10]).is_err());
        assert!(decode_ack(&[0xff, 0xff, 0xff, 0x7f]).is_err());
        assert!(decode_ack(&[2, 0xff, 0xff]).is_err());
    }
}
