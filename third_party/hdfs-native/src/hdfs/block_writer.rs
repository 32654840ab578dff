use std::{sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use futures::future::join_all;
use log::{debug, warn};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};

use crate::{
    HdfsError, Result,
    common::config::Configuration,
    ec::{EcSchema, gf256::Coder},
    hdfs::{
        connection::{DatanodeConnection, DatanodeReader, DatanodeWriter, Op, WritePacket},
        crypto::{FileCipher, FileCryptoCodec},
        protocol::NamenodeProtocol,
        replace_datanode::ReplaceDatanodeOnFailure,
    },
    proto::{
        common,
        hdfs::{self, op_write_block_proto::BlockConstructionStage as Stage},
    },
};

const HEART_BEAT_SEQNO: i64 = -1;
const UNKNOWN_SEQNO: i64 = -2;

// A pipeline without packets in flight only acknowledges heartbeats.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

// The number of packets and acks to queue up on writes
const WRITE_PACKET_BUFFER_LEN: usize = 100;

/// Wrapper around both types of block writers. This was simpler than trying to
/// do dynamic dispatch with a BlockWriter trait.
pub(crate) enum BlockWriter {
    Replicated(ReplicatedBlockWriter),
    Striped(StripedBlockWriter),
}

impl BlockWriter {
    #[allow(clippy::too_many_arguments)]
    pub(crate) async fn new(
        protocol: Arc<NamenodeProtocol>,
        block: hdfs::LocatedBlockProto,
        server_defaults: hdfs::FsServerDefaultsProto,
        config: Arc<Configuration>,
        handle: Handle,
        ec_schema: Option<&EcSchema>,
        src: &str,
        status: &hdfs::HdfsFileStatusProto,
        crypto: Option<Arc<FileCryptoCodec>>,
        timeout: Duration,
    ) -> std::result::Result<Self, SetupError> {
        let block_writer = if let Some(ec_schema) = ec_schema {
            Self::Striped(StripedBlockWriter::new(
                protocol,
                block,
                ec_schema,
                server_defaults,
                config,
                handle,
                status,
                crypto,
                timeout,
            ))
        } else {
            Self::Replicated(
                ReplicatedBlockWriter::new(
                    src,
                    protocol,
                    block,
                    server_defaults,
                    config,
                    handle,
                    status,
                    crypto,
                    timeout,
                )
                .await?,
            )
        };
        Ok(block_writer)
    }

    pub(crate) async fn write(&mut self, buf: &mut Bytes) -> Result<()> {
        match self {
            Self::Replicated(writer) => writer.write(buf).await,
            Self::Striped(writer) => writer.write(buf).await,
        }
    }

    /// Waits until all DataNodes have what was written so far: on their disks with `sync`, else
    /// in memory.
    pub(crate) async fn flush(&mut self, sync: bool) -> Result<hdfs::ExtendedBlockProto> {
        match self {
            Self::Replicated(writer) => writer.flush(sync).await,
            Self::Striped(_) => Err(HdfsError::OperationFailed(
                "flush is not supported for erasure-coded files".to_string(),
            )),
        }
    }

    pub(crate) fn set_pipeline_recovery(&mut self, pipeline_recovery: bool) {
        if let Self::Replicated(writer) = self {
            writer.pipeline_recovery = pipeline_recovery;
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Replicated(writer) => writer.is_full(),
            Self::Striped(writer) => writer.is_full(),
        }
    }

    pub(crate) async fn close(self) -> Result<hdfs::ExtendedBlockProto> {
        match self {
            Self::Replicated(writer) => writer.close().await,
            Self::Striped(writer) => writer.close().await,
        }
    }
}

/// A spawned task that is aborted when this is dropped.
struct Task<T>(JoinHandle<T>);

impl<T> Task<T> {
    async fn join(mut self) -> T {
        (&mut self.0).await.unwrap()
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

enum WriteStatus {
    Success,
    Recover(Vec<usize>, Vec<WritePacket>),
}

/// Why a pipeline could not be set up.
pub(crate) struct SetupError {
    error: HdfsError,
    /// The index of the DataNode to avoid, if it is one's fault.
    pub(crate) bad_node: Option<usize>,
}

impl SetupError {
    /// As Hadoop's client: the first node is to blame unless the answer names another.
    fn of_first(error: HdfsError) -> Self {
        Self {
            error,
            bad_node: Some(0),
        }
    }
}

impl From<HdfsError> for SetupError {
    fn from(error: HdfsError) -> Self {
        Self {
            error,
            bad_node: None,
        }
    }
}

impl From<SetupError> for HdfsError {
    fn from(error: SetupError) -> Self {
        error.error
    }
}

/// Removes the nodes with these indexes from a block.
fn remove_nodes(block: &mut hdfs::LocatedBlockProto, failed_nodes: &[usize]) {
    fn without<T>(list: &mut Vec<T>, failed_nodes: &[usize]) {
        let mut indexes = 0..;
        list.retain(|_| {
            indexes
                .next()
                .is_none_or(|index| !failed_nodes.contains(&index))
        });
    }
    without(&mut block.locs, failed_nodes);
    without(&mut block.storage_i_ds, failed_nodes);
    without(&mut block.storage_types, failed_nodes);
}

/// What a pipeline is set up for.
struct Setup {
    stage: Stage,
    generation_stamp: u64,
    /// A DataNode with fewer bytes of the block is of no use.
    min_bytes: u64,
}

impl Setup {
    /// To begin the block, or to go on behind its bytes.
    fn of_block(block: &hdfs::LocatedBlockProto) -> Self {
        let min_bytes = block.b.num_bytes();
        Self {
            stage: if min_bytes > 0 {
                Stage::PipelineSetupAppend
            } else {
                Stage::PipelineSetupCreate
            },
            generation_stamp: block.b.generation_stamp,
            min_bytes,
        }
    }
}

/// Looks at what the DataNodes say about a new pipeline.
pub(crate) fn check_setup(
    response: &hdfs::BlockOpResponseProto,
    nodes: &[hdfs::DatanodeInfoProto],
) -> std::result::Result<(), SetupError> {
    let bad_link = response.first_bad_link();
    if response.status() == hdfs::Status::Success && bad_link.is_empty() {
        return Ok(());
    }
    let bad_node = nodes
        .iter()
        .position(|node| format!("{}:{}", node.id.ip_addr, node.id.xfer_port) == bad_link);
    Err(SetupError {
        error: HdfsError::DataTransferError(format!(
            "Pipeline not set up: {:?}, bad link {:?}, {}",
            response.status(),
            bad_link,
            response.message()
        )),
        bad_node: bad_node.or(Some(0)),
    })
}

/// The checksums that a DataNode keeps with a new block.
pub(crate) fn requested_checksum(
    server_defaults: &hdfs::FsServerDefaultsProto,
) -> hdfs::ChecksumProto {
    hdfs::ChecksumProto {
        r#type: hdfs::ChecksumTypeProto::ChecksumCrc32c as i32,
        bytes_per_checksum: server_defaults.bytes_per_checksum,
    }
}

// The tasks end with the pipeline. A writer that is dropped leaves no connection
// behind, and its DataNodes get no heartbeats any more.
struct Pipeline {
    packet_sender: mpsc::Sender<WritePacket>,
    // Tracks the state of acknowledgements. Set to an Err if any error occurs doing receiving
    // acknowledgements. Set to Ok(WriteStatus::Success) when the last acknowledgement is received.
    ack_listener_handle: Task<Result<WriteStatus>>,
    // Tracks the state of packet sender. Set to Err if any error occurs during writing packets,
    packet_sender_handle: Task<Vec<WritePacket>>,
    // Tracks the heartbeat task so it is aborted when we close
    heartbeat_handle: Task<()>,
    failed: watch::Receiver<bool>,
}

impl Pipeline {
    fn new(
        connection: DatanodeConnection,
        config: &Configuration,
        ack_timeout: Duration,
        handle: &Handle,
    ) -> Self {
        let (reader, writer) = connection.split();

        // Channel for tracking packets that need to be acked
        let (ack_queue_sender, ack_queue_receiever) =
            mpsc::channel::<WritePacket>(WRITE_PACKET_BUFFER_LEN);
        let (packet_sender, packet_receiver) =
            mpsc::channel::<WritePacket>(WRITE_PACKET_BUFFER_LEN);

        let (failed_sender, failed) = watch::channel(false);
        let ack_listener_handle = Self::listen_for_acks(
            reader,
            ack_queue_receiever,
            failed_sender.clone(),
            ack_timeout,
            handle,
        );
        let packet_sender_handle = Self::start_packet_sender(
            writer,
            packet_receiver,
            ack_queue_sender,
            failed_sender,
            ack_timeout,
            handle,
        );
        let heartbeat_handle = Self::start_heartbeat_sender(
            packet_sender.clone(),
            config.write_heartbeat_interval(),
            handle,
        );

        Self {
            packet_sender,
            ack_listener_handle: Task(ack_listener_handle),
            packet_sender_handle: Task(packet_sender_handle),
            heartbeat_handle: Task(heartbeat_handle),
            failed,
        }
    }

    async fn wait_for_ack(&mut self, receiver: &mut oneshot::Receiver<()>) -> bool {
        loop {
            if *self.failed.borrow() {
                return false;
            }
            tokio::select! {
                result = &mut *receiver => return result.is_ok(),
                changed = self.failed.changed() => {
                    if changed.is_err() || *self.failed.borrow() {
                        return false;
                    }
                }
            }
        }
    }

    async fn send_packet(&self, packet: WritePacket) -> std::result::Result<(), WritePacket> {
        self.packet_sender.send(packet).await.map_err(|e| e.0)
    }

    async fn shutdown(self) -> Result<WriteStatus> {
        drop(self.heartbeat_handle);
        // The packet sender ends when nobody can send it a packet any more.
        drop(self.packet_sender);

        let (failed_nodes, unacked_packets) = match self.ack_listener_handle.join().await? {
            WriteStatus::Success => {
                if !self.packet_sender_handle.join().await.is_empty() {
                    return Err(HdfsError::DataTransferError(
                        "Failed to send all packets to DataNode".to_string(),
                    ));
                }
                return Ok(WriteStatus::Success);
            }
            WriteStatus::Recover(failed_nodes, unacked_packets) => (failed_nodes, unacked_packets),
        };

        let packets_to_send = self.packet_sender_handle.join().await;

        let packets_to_replay = unacked_packets.into_iter().chain(packets_to_send).collect();

        Ok(WriteStatus::Recover(failed_nodes, packets_to_replay))
    }

    async fn drain_queue(mut queue: mpsc::Receiver<WritePacket>) -> Vec<WritePacket> {
        queue.close();

        let mut packets = Vec::with_capacity(queue.len());
        while let Some(packet) = queue.recv().await {
            packets.push(packet);
        }
        packets
    }

    fn timed_out(ack_timeout: Duration) -> HdfsError {
        HdfsError::IOError(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            format!("no answer within {}ms", ack_timeout.as_millis()),
        ))
    }

    /// The packets to send again when acknowledgements have failed, oldest first.
    async fn recover_with(
        failed_nodes: Vec<usize>,
        oldest: Option<WritePacket>,
        ack_queue: mpsc::Receiver<WritePacket>,
    ) -> WriteStatus {
        let packets = Self::drain_queue(ack_queue).await;
        WriteStatus::Recover(failed_nodes, oldest.into_iter().chain(packets).collect())
    }

    /// Reads the next acknowledgement. It is due when a packet has waited for it for so long.
    /// While no packet waits, only the heartbeats are acknowledged.
    async fn next_ack(
        reader: &mut DatanodeReader,
        ack_queue: &mut mpsc::Receiver<WritePacket>,
        oldest: &mut Option<WritePacket>,
        ack_timeout: Duration,
    ) -> Result<hdfs::PipelineAckProto> {
        let ack = reader.read_ack();
        tokio::pin!(ack);
        loop {
            let timeout = if oldest.is_some() {
                ack_timeout
            } else {
                IDLE_TIMEOUT
            };
            tokio::select! {
                biased;
                ack = &mut ack => return ack,
                packet = ack_queue.recv(), if oldest.is_none() => match packet {
                    None => {
                        return Err(HdfsError::DataTransferError(
                            "packets can not be sent any more".to_string(),
                        ));
                    }
                    packet => *oldest = packet,
                },
                _ = tokio::time::sleep(timeout) => return Err(Self::timed_out(timeout)),
            }
        }
    }

    fn start_packet_sender(
        mut writer: DatanodeWriter,
        mut packet_receiver: mpsc::Receiver<WritePacket>,
        ack_queue: mpsc::Sender<WritePacket>,
        failed: watch::Sender<bool>,
        ack_timeout: Duration,
        handle: &Handle,
    ) -> JoinHandle<Vec<WritePacket>> {
        let mut failing = failed.subscribe();
        handle.spawn(async move {
            while let Some(mut packet) = packet_receiver.recv().await {
                // Simulate node we are writing to failing
                #[cfg(feature = "integration-test")]
                if crate::test::WRITE_CONNECTION_FAULT_INJECTOR
                    .swap(false, std::sync::atomic::Ordering::SeqCst)
                {
                    let _ = failed.send(true);
                    debug!("Failing write to active node");
                    return [packet]
                        .into_iter()
                        .chain(Self::drain_queue(packet_receiver).await)
                        .collect();
                }

                // A DataNode that stands still takes no more bytes once the socket's buffers are
                // full
                let writing = writer.write_packet(&mut packet);
                let written = tokio::select! {
                    written = tokio::time::timeout(ack_timeout, writing) => {
                        written.unwrap_or_else(|_| Err(Self::timed_out(ack_timeout)))
                    }
                    _ = failing.wait_for(|failed| *failed) => Err(HdfsError::DataTransferError(
                        "No more acknowledgements from DataNode".to_string(),
                    )),
                };
                if let Err(e) = written {
                    let _ = failed.send(true);
                    warn!("Failed to send packet to DataNode: {:?}", e);
                    return [packet]
                        .into_iter()
                        .chain(Self::drain_queue(packet_receiver).await)
                        .collect();
                }

                if packet.header.seqno == HEART_BEAT_SEQNO {
                    continue;
                }

                let last_packet = packet.header.last_packet_in_block;

                if let Err(err) = ack_queue.send(packet).await {
                    // Ack listener failed, so it will have a failed node
                    return [err.0]
                        .into_iter()
                        .chain(Self::drain_queue(packet_receiver).await)
                        .collect();
                };

                if last_packet {
                    break;
                }
            }
            vec![]
        })
    }

    fn start_heartbeat_sender(
        packet_sender: mpsc::Sender<WritePacket>,
        interval: Duration,
        handle: &Handle,
    ) -> JoinHandle<()> {
        handle.spawn(async move {
            loop {
                tokio::time::sleep(interval).await;
                let heartbeat_packet = WritePacket::empty(0, HEART_BEAT_SEQNO, 0, 0);
                // If this fails, sending anymore data packets will generate an error as well
                if packet_sender.send(heartbeat_packet).await.is_err() {
                    break;
                }
            }
        })
    }

    fn listen_for_acks(
        mut reader: DatanodeReader,
        mut ack_queue: mpsc::Receiver<WritePacket>,
        failed: watch::Sender<bool>,
        ack_timeout: Duration,
        handle: &Handle,
    ) -> JoinHandle<Result<WriteStatus>> {
        handle.spawn(async move {
            // The oldest packet that is not acknowledged
            let mut oldest = None;
            loop {
                let next_ack =
                    Self::next_ack(&mut reader, &mut ack_queue, &mut oldest, ack_timeout).await;
                let next_ack = match next_ack {
                    Ok(next_ack) => next_ack,
                    Err(e) => {
                        let _ = failed.send(true);
                        warn!("Failed to read ack from DataNode: {}", e);
                        return Ok(Self::recover_with(vec![0], oldest, ack_queue).await);
                    }
                };

                let mut failed_nodes: Vec<usize> = vec![];

                for (i, reply) in next_ack.reply().enumerate() {
                    // Simulate node we are replicating to failing
                    #[cfg(feature = "integration-test")]
                    if crate::test::WRITE_REPLY_FAULT_INJECTOR
                        .lock()
                        .unwrap()
                        .take()
                        .is_some_and(|j| i == j)
                    {
                        debug!("Failing write to replica node");
                        failed_nodes.push(i);
                    }

                    if reply != hdfs::Status::Success {
                        failed_nodes.push(i);
                    }
                }

                if !failed_nodes.is_empty() {
                    let _ = failed.send(true);
                    return Ok(Self::recover_with(failed_nodes, oldest, ack_queue).await);
                }

                if next_ack.seqno == HEART_BEAT_SEQNO {
                    continue;
                }
                if next_ack.seqno == UNKNOWN_SEQNO {
                    let _ = failed.send(true);
                    return Err(HdfsError::DataTransferError(
                        "Received unknown seqno for successful ack".to_string(),
                    ));
                }

                let packet = match oldest.take() {
                    None => ack_queue.recv().await,
                    packet => packet,
                };
                if let Some(mut packet) = packet {
                    debug!("Next: {}, packet: {}", next_ack.seqno, packet.header.seqno);
                    if next_ack.seqno != packet.header.seqno {
                        let _ = failed.send(true);
                        return Err(HdfsError::DataTransferError(
                            "Received acknowledgement does not match expected sequence number"
                                .to_string(),
                        ));
                    }

                    packet.acknowledge();

                    if packet.header.last_packet_in_block {
                        return Ok(WriteStatus::Success);
                    }
                } else {
                    let _ = failed.send(true);
                    // Error occurred in the packet sender, which would only happen on errors
                    // communicating with the DataNode
                    return Ok(WriteStatus::Recover(
                        vec![0],
                        Self::drain_queue(ack_queue).await,
                    ));
                }
            }
        })
    }
}

pub(crate) struct ReplicatedBlockWriter {
    src: String,
    protocol: Arc<NamenodeProtocol>,
    block: hdfs::LocatedBlockProto,
    block_size: usize,
    server_defaults: hdfs::FsServerDefaultsProto,
    // Built once per block from the shared codec so the AES key schedule is
    // computed a single time rather than per write.
    cipher: Option<FileCipher>,

    current_packet: WritePacket,
    pipeline: Option<Pipeline>,
    status: hdfs::HdfsFileStatusProto,
    config: Arc<Configuration>,
    replace_datanode: ReplaceDatanodeOnFailure,
    pipeline_recovery: bool,
    // How long the DataNodes may take to answer
    timeout: Duration,
    // All packets that were sent are acknowledged
    is_acknowledged: bool,
    handle: Handle,
}

impl ReplicatedBlockWriter {
    #[allow(clippy::too_many_arguments)]
    async fn new(
        src: &str,
        protocol: Arc<NamenodeProtocol>,
        block: hdfs::LocatedBlockProto,
        server_defaults: hdfs::FsServerDefaultsProto,
        config: Arc<Configuration>,
        handle: Handle,
        status: &hdfs::HdfsFileStatusProto,
        crypto: Option<Arc<FileCryptoCodec>>,
        timeout: Duration,
    ) -> std::result::Result<Self, SetupError> {
        let connection = Self::set_up(
            &protocol,
            &block,
            &server_defaults,
            Setup::of_block(&block),
            &config,
            timeout,
            &handle,
        )
        .await?;
        let pipeline = Pipeline::new(connection, &config, timeout, &handle);

        let bytes_in_last_chunk = block.b.num_bytes() % server_defaults.bytes_per_checksum as u64;
        let current_packet = if bytes_in_last_chunk > 0 {
            // When appending, we want to first send a packet with a single chunk of the data required
            // to get the block to a multiple of bytes_per_checksum. After that, things work the same
            // as create.
            WritePacket::empty(
                block.b.num_bytes() as i64,
                0,
                server_defaults.bytes_per_checksum - bytes_in_last_chunk as u32,
                0,
            )
        } else {
            WritePacket::empty(
                block.b.num_bytes() as i64,
                0,
                server_defaults.bytes_per_checksum,
                server_defaults.write_packet_size,
            )
        };

        let this = Self {
            src: src.to_string(),
            protocol,
            block,
            block_size: status.blocksize() as usize,
            server_defaults,
            cipher: crypto.as_ref().map(|c| c.make_cipher()),
            current_packet,
            pipeline: Some(pipeline),
            status: status.clone(),
            replace_datanode: config.get_replace_datanode_on_failure_policy(),
            pipeline_recovery: true,
            timeout,
            is_acknowledged: true,
            config,
            handle,
        };

        Ok(this)
    }

    async fn recover(
        &mut self,
        failed_nodes: Vec<usize>,
        packets_to_replay: Vec<WritePacket>,
        next_packet: Option<&WritePacket>,
    ) -> Result<()> {
        debug!(
            "Failed nodes: {:?}, block locs: {:?}",
            failed_nodes, self.block.locs
        );
        if !self.pipeline_recovery {
            let names: Vec<_> = failed_nodes
                .iter()
                .filter_map(|node| self.block.locs.get(*node))
                .map(|node| format!("{}:{}", node.id.ip_addr, node.id.xfer_port))
                .collect();
            return Err(HdfsError::DataTransferError(format!(
                "DataNode {} failed",
                names.join(", ")
            )));
        }
        if failed_nodes.len() >= self.block.locs.len() {
            return Err(HdfsError::DataTransferError(
                "All nodes failed for write".to_string(),
            ));
        }

        // Only when all data is acknowledged is the last packet sent. Then some of the DataNodes
        // may have finished the block, and those only take a new generation stamp for it.
        let is_closing = next_packet.is_none()
            && matches!(&packets_to_replay[..], [last] if last.header.last_packet_in_block);
        debug!("Recovering block writer");

        let mut existing_block = self.block.clone();
        let mut exclude_nodes = vec![];
        for failed_node in &failed_nodes {
            exclude_nodes.push(existing_block.locs[*failed_node].clone());
        }
        remove_nodes(&mut existing_block, &failed_nodes);
        let should_replace = !is_closing && self.replace_datanode.should_replace(
            self.status.block_replication.unwrap(),
            &existing_block.locs,
            self.block.b.num_bytes() > 0,
            false,
        );

        let mut new_block = self.block.clone();

        if should_replace {
            match self
                .add_datanode_to_pipeline(existing_block, &exclude_nodes)
                .await
            {
                Ok(located_block) => {
                    new_block.locs = located_block.locs;
                    new_block.storage_i_ds = located_block.storage_i_ds;
                    new_block.storage_types = located_block.storage_types;
                }
                Err(e) => {
                    if !self.replace_datanode.is_best_effort() {
                        return Err(e);
                    }
                    warn!("Failed to add replacement datanode: {}", e);
                    remove_nodes(&mut new_block, &failed_nodes);
                }
            }
        } else {
            remove_nodes(&mut new_block, &failed_nodes);
        }

        let mut bytes_acked = new_block.b.num_bytes();
        for packet in packets_to_replay.iter() {
            bytes_acked -= packet.data.len() as u64;
        }

        if let Some(next_packet) = next_packet {
            bytes_acked -= next_packet.data.len() as u64;
        }

        let old_block = std::mem::replace(&mut self.block, new_block);

        let connection = loop {
            let updated_block = self
                .protocol
                .update_block_for_pipeline(self.block.b.clone())
                .await?;
            let generation_stamp = updated_block.block.b.generation_stamp;
            self.block.block_token = updated_block.block.block_token;

            let setup = Setup {
                stage: if is_closing {
                    Stage::PipelineCloseRecovery
                } else {
                    Stage::PipelineSetupStreamingRecovery
                },
                generation_stamp,
                min_bytes: bytes_acked,
            };
            let set_up = Self::set_up(
                &self.protocol,
                &self.block,
                &self.server_defaults,
                setup,
                &self.config,
                self.timeout,
                &self.handle,
            );
            match set_up.await {
                Ok(connection) => {
                    self.block.b.generation_stamp = generation_stamp;
                    break connection;
                }
                // Another node has failed meanwhile
                Err(error) => {
                    let Some(bad_node) = error.bad_node.filter(|_| self.block.locs.len() > 1)
                    else {
                        return Err(error.into());
                    };
                    warn!("Failed to set up pipeline: {}", HdfsError::from(error));
                    remove_nodes(&mut self.block, &[bad_node]);
                }
            }
        };

        if !is_closing {
            let pipeline = Pipeline::new(connection, &self.config, self.timeout, &self.handle);
            for packet in packets_to_replay {
                pipeline.send_packet(packet).await.map_err(|_| {
                    HdfsError::DataTransferError(
                        "Failed to replay packets during recovery".to_string(),
                    )
                })?;
            }
            self.pipeline = Some(pipeline);
        }

        self.protocol
            .update_pipeline(
                old_block.b,
                self.block.b.clone(),
                self.block.locs.iter().map(|l| l.id.clone()).collect(),
                self.block.storage_i_ds.clone(),
            )
            .await?;

        Ok(())
    }

    async fn set_up(
        protocol: &Arc<NamenodeProtocol>,
        block: &hdfs::LocatedBlockProto,
        server_defaults: &hdfs::FsServerDefaultsProto,
        setup: Setup,
        config: &Configuration,
        timeout: Duration,
        handle: &Handle,
    ) -> std::result::Result<DatanodeConnection, SetupError> {
        let datanode = &block.locs[0].id;
        let mut connection = DatanodeConnection::connect(
            datanode,
            &block.block_token,
            protocol.get_cached_data_encryption_key().await?,
            config,
            handle,
        )
        .await
        .map_err(SetupError::of_first)?;

        let checksum = requested_checksum(server_defaults);

        let message = hdfs::OpWriteBlockProto {
            header: connection.build_header(&block.b, Some(block.block_token.clone())),
            stage: setup.stage as i32,
            targets: block.locs[1..].to_vec(),
            pipeline_size: block.locs.len() as u32,
            latest_generation_stamp: setup.generation_stamp,
            min_bytes_rcvd: setup.min_bytes,
            max_bytes_rcvd: block.b.num_bytes(),
            requested_checksum: checksum,
            storage_type: Some(block.storage_types[0]),
            target_storage_types: block.storage_types[1..].to_vec(),
            storage_id: Some(block.storage_i_ds[0].clone()),
            target_storage_ids: block.storage_i_ds[1..].to_vec(),
            ..Default::default()
        };

        debug!("Block write request: {:?}", message);
        // A DataNode may have to wait for a disk, and for the writer of before to leave it
        connection.set_answer_timeout(timeout, handle);
        let response = connection
            .send(Op::WriteBlock, &message)
            .await
            .map_err(SetupError::of_first)?;
        debug!("Block write response: {:?}", response);
        check_setup(&response, &block.locs)?;

        Ok(connection)
    }

    // Create the next packet and return the current packet
    fn create_next_packet(&mut self) -> WritePacket {
        let bytes_per_checksum = self.server_defaults.bytes_per_checksum;
        let bytes_in_last_chunk = self.block.b.num_bytes() % u64::from(bytes_per_checksum);
        let (checksum_bytes, packet_size) = if bytes_in_last_chunk == 0 {
            (bytes_per_checksum, self.server_defaults.write_packet_size)
        } else {
            (bytes_per_checksum - bytes_in_last_chunk as u32, 0)
        };
        let next_packet = WritePacket::empty(
            self.block.b.num_bytes() as i64,
            self.current_packet.header.seqno + 1,
            checksum_bytes,
            packet_size,
        );
        std::mem::replace(&mut self.current_packet, next_packet)
    }

    async fn send_current_packet(&mut self) -> Result<()> {
        // Create a fresh packet
        let mut current_packet = self.create_next_packet();
        self.is_acknowledged = false;

        loop {
            let pipeline = self.pipeline.take().ok_or(HdfsError::DataTransferError(
                "Block writer is closed".to_string(),
            ))?;

            if let Err(packet) = pipeline.send_packet(current_packet).await {
                // Shutdown the pipeline and try to recover
                current_packet = packet;
                match pipeline.shutdown().await? {
                    WriteStatus::Success => {
                        return Err(HdfsError::DataTransferError(
                            "Pipeline succeeded but failure was expected".to_string(),
                        ));
                    }
                    WriteStatus::Recover(failed_nodes, packets_to_replay) => {
                        self.recover(failed_nodes, packets_to_replay, Some(&current_packet))
                            .await?;
                    }
                }
            } else {
                self.pipeline = Some(pipeline);
                return Ok(());
            }
            // Send the packet
        }
    }

    async fn flush(&mut self, sync: bool) -> Result<hdfs::ExtendedBlockProto> {
        if sync {
            self.current_packet.set_sync_block();
        }
        let mut acknowledgement = self.current_packet.request_acknowledgement();
        self.send_current_packet().await?;

        loop {
            let mut pipeline = self.pipeline.take().ok_or_else(|| {
                HdfsError::DataTransferError("Block writer is closed".to_string())
            })?;
            if pipeline.wait_for_ack(&mut acknowledgement).await {
                self.pipeline = Some(pipeline);
                self.is_acknowledged = true;
                return Ok(self.block.b.clone());
            }
            match pipeline.shutdown().await? {
                WriteStatus::Success => {
                    return Err(HdfsError::DataTransferError(
                        "Pipeline stopped before the sync packet was acknowledged".to_string(),
                    ));
                }
                WriteStatus::Recover(failed_nodes, packets_to_replay) => {
                    self.recover(failed_nodes, packets_to_replay, None).await?;
                }
            }
        }
    }

    fn is_full(&self) -> bool {
        self.block.b.num_bytes() == self.block_size as u64
    }

    async fn write(&mut self, buf: &mut Bytes) -> Result<()> {
        // Only write up to what's left in this block
        let bytes_to_write = usize::min(
            buf.len(),
            self.block_size - self.block.b.num_bytes() as usize,
        );
        let mut buf_to_write = buf.split_to(bytes_to_write);

        // For encryption zones, encrypt the user's plaintext at its absolute
        // file offset before any chunking. CTR-mode keystream is independent
        // of the slicing, so this is correct as long as we feed every byte
        // exactly once at the right offset.
        if let Some(cipher) = self.cipher.as_mut() {
            let file_offset = self.block.offset + self.block.b.num_bytes();
            let mut encrypted = buf_to_write.to_vec();
            cipher.apply(file_offset, &mut encrypted);
            buf_to_write = Bytes::from(encrypted);
        }

        while !buf_to_write.is_empty() {
            let initial_buf_len = buf_to_write.len();
            self.current_packet.write(&mut buf_to_write);

            // Track how many bytes are written to this block
            *self.block.b.num_bytes.as_mut().unwrap() +=
                (initial_buf_len - buf_to_write.len()) as u64;

            if self.current_packet.is_full() {
                self.send_current_packet().await?;
            }
        }
        Ok(())
    }

    /// Send a packet with any remaining data and then send a last packet
    async fn close(mut self) -> Result<hdfs::ExtendedBlockProto> {
        // Send a packet with any remaining data. A DataNode that has the last packet can not go on
        // with the block, so as in Hadoop's client all data is acknowledged before that is sent.
        if !self.current_packet.is_empty() || !self.is_acknowledged {
            self.flush(false).await?;
        }

        // Send an empty last packet
        self.current_packet.set_last_packet();
        self.send_current_packet().await?;

        loop {
            match self
                .pipeline
                .take()
                .ok_or(HdfsError::DataTransferError(
                    "Block writer closed prematurely".to_string(),
                ))?
                .shutdown()
                .await?
            {
                WriteStatus::Success => return Ok(self.block.b),
                WriteStatus::Recover(failed_nodes, packets_to_replay) => {
                    self.recover(failed_nodes, packets_to_replay, None).await?
                }
            }
            // The DataNodes that are left have finished the block
            if self.pipeline.is_none() {
                return Ok(self.block.b);
            }
        }
    }

    async fn transfer_block(
        &self,
        src_node: &hdfs::DatanodeInfoProto,
        target_nodes: &[hdfs::DatanodeInfoProto],
        target_storage_types: &[i32],
        block_token: &common::TokenProto,
    ) -> Result<()> {
        let mut connection = DatanodeConnection::connect(
            &src_node.id,
            block_token,
            self.protocol.get_cached_data_encryption_key().await?,
            &self.config,
            &self.handle,
        )
        .await?;

        let message = hdfs::OpTransferBlockProto {
            header: connection.build_header(&self.block.b, Some(block_token.clone())),
            targets: target_nodes.to_vec(),
            target_storage_types: target_storage_types.to_vec(),
            target_storage_ids: vec![],
        };

        debug!("Transfer block request: {:?}", message);
        // It answers when the other one has the block
        connection.set_answer_timeout(self.timeout, &self.handle);

        let response = connection.send(Op::TransferBlock, &message).await?;

        debug!("Transfer block response: {:?}", response);

        if response.status != hdfs::Status::Success as i32 {
            return Err(HdfsError::DataTransferError(
                "Failed to add a datanode".to_string(),
            ));
        }

        Ok(())
    }

    async fn add_datanode_to_pipeline(
        &mut self,
        block: hdfs::LocatedBlockProto,
        exclude_nodes: &[hdfs::DatanodeInfoProto],
    ) -> Result<hdfs::LocatedBlockProto> {
        let original_nodes = self.block.locs.clone();
        let located_block = self
            .protocol
            .get_additional_datanode(
                &self.src,
                &block.b,
                &block.locs,
                exclude_nodes,
                &block.storage_i_ds,
                1,
            )
            .await?;

        let new_nodes = &located_block.locs;
        let new_node_idx = new_nodes
            .iter()
            .position(|node| {
                !original_nodes.iter().any(|orig| {
                    orig.id.ip_addr == node.id.ip_addr && orig.id.xfer_port == node.id.xfer_port
                })
            })
            .ok_or_else(|| {
                HdfsError::DataTransferError(
                    "No new datanode found in updated block locations".to_string(),
                )
            })?;

        let src_node = if new_node_idx == 0 {
            new_nodes[1].clone()
        } else {
            new_nodes[new_node_idx - 1].clone()
        };

        debug!(
            "Start to transfer block. src_node: {:?} target_node: {:?}",
            src_node, new_nodes[new_node_idx]
        );
        self.transfer_block(
            &src_node,
            &[new_nodes[new_node_idx].clone()],
            &[self.block.storage_types[0]],
            &located_block.block_token,
        )
        .await?;
        debug!(
            "Finished to transfer block. src_node: {:?} target_node: {:?}",
            src_node, new_nodes[new_node_idx]
        );

        Ok(located_block)
    }
}

// Holds data for the current slice being written.
struct CellBuffer {
    buffers: Vec<BytesMut>,
    cell_size: usize,
    current_index: usize,
    coder: Coder,
}

impl CellBuffer {
    fn new(ec_schema: &EcSchema) -> Self {
        let buffers = (0..ec_schema.data_units)
            .map(|_| BytesMut::with_capacity(ec_schema.cell_size))
            .collect();
        Self {
            buffers,
            cell_size: ec_schema.cell_size,
            current_index: 0,
            coder: Coder::new(ec_schema.data_units, ec_schema.parity_units),
        }
    }

    fn write(&mut self, buf: &mut Bytes) {
        while !buf.is_empty() && self.current_index < self.buffers.len() {
            let current_buffer = &mut self.buffers[self.current_index];
            let remaining = self.cell_size - current_buffer.len();

            let split_at = usize::min(remaining, buf.len());

            let bytes_to_write = buf.split_to(split_at);
            current_buffer.put(bytes_to_write);

            if current_buffer.len() == self.cell_size {
                self.current_index += 1;
            }
        }
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.current_index == self.buffers.len()
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.buffers[0].is_empty()
    }

    fn encode(&mut self) -> Vec<Bytes> {
        // This is kinda dumb how many copies are being made. Figure out how to do this without
        // cloning the buffers at all.

        // Pad any buffers with 0 so they are all the same length. The first buffer will always be
        // the largest since we write data there first.
        let slice_size = self.buffers[0].len();

        // Remember the original sizes so we can resize after encoding
        let original_sizes: Vec<_> = self.buffers.iter().map(|buf| buf.len()).collect();

        let mut data_slices: Vec<_> = self
            .buffers
            .iter()
            .cloned()
            .map(|mut buf| {
                buf.resize(slice_size, 0);
                buf.freeze()
            })
            .collect();

        let parity_slices = self.coder.encode(&data_slices[..]);

        for (slice, size) in data_slices.iter_mut().zip(original_sizes) {
            let _ = slice.split_off(size);
        }

        for buf in self.buffers.iter_mut() {
            buf.clear();
        }
        self.current_index = 0;

        data_slices.extend(parity_slices);
        data_slices
    }
}

// Writer for erasure coded blocks.
pub(crate) struct StripedBlockWriter {
    protocol: Arc<NamenodeProtocol>,
    block: hdfs::LocatedBlockProto,
    server_defaults: hdfs::FsServerDefaultsProto,
    config: Arc<Configuration>,
    handle: Handle,
    block_writers: Vec<Option<Result<ReplicatedBlockWriter>>>,
    cell_buffer: CellBuffer,
    bytes_written: usize,
    capacity: usize,
    status: hdfs::HdfsFileStatusProto,
    data_units: usize,
    // Built once per block from the shared codec so the AES key schedule is
    // computed a single time rather than per write.
    cipher: Option<FileCipher>,
    timeout: Duration,
}

impl StripedBlockWriter {
    #[allow(clippy::too_many_arguments)]
    fn new(
        protocol: Arc<NamenodeProtocol>,
        block: hdfs::LocatedBlockProto,
        ec_schema: &EcSchema,
        server_defaults: hdfs::FsServerDefaultsProto,
        config: Arc<Configuration>,
        handle: Handle,
        status: &hdfs::HdfsFileStatusProto,
        crypto: Option<Arc<FileCryptoCodec>>,
        timeout: Duration,
    ) -> Self {
        let block_writers = (0..block.block_indices().len()).map(|_| None).collect();

        Self {
            protocol,
            block,
            server_defaults,
            config,
            handle,
            block_writers,
            cell_buffer: CellBuffer::new(ec_schema),
            bytes_written: 0,
            capacity: ec_schema.data_units * status.blocksize() as usize,
            status: status.clone(),
            data_units: ec_schema.data_units,
            cipher: crypto.as_ref().map(|c| c.make_cipher()),
            timeout,
        }
    }

    fn bytes_remaining(&self) -> usize {
        self.capacity - self.bytes_written
    }

    fn is_full(&self) -> bool {
        self.bytes_remaining() == 0
    }

    async fn write_cells(&mut self) -> Result<()> {
        let mut write_futures = vec![];
        let mut writer_indices = vec![];

        for (index, (data, writer)) in self
            .cell_buffer
            .encode()
            .into_iter()
            .zip(self.block_writers.iter_mut())
            .enumerate()
        {
            // Don't create the blocks on the data nodes until there's actually data for it
            if data.is_empty() {
                continue;
            }

            if writer.is_none() {
                let mut cloned = self.block.clone();
                cloned.b.block_id += index as u64;
                cloned.locs = vec![cloned.locs[index].clone()];
                cloned.block_token = cloned.block_tokens[index].clone();
                cloned.storage_i_ds = vec![cloned.storage_i_ds[index].clone()];
                cloned.storage_types = vec![cloned.storage_types[index]];

                *writer = Some(
                    ReplicatedBlockWriter::new(
                        "",
                        Arc::clone(&self.protocol),
                        cloned,
                        self.server_defaults.clone(),
                        Arc::clone(&self.config),
                        self.handle.clone(),
                        &self.status,
                        // Encryption is applied once at the EC layer above
                        // before encoding; the per-shard writers must not
                        // re-encrypt the ciphertext.
                        None,
                        self.timeout,
                    )
                    .await
                    .map_err(HdfsError::from),
                )
            }

            if writer.as_ref().unwrap().is_err() {
                continue;
            }

            let mut data = data.clone();
            writer_indices.push(index);

            // We know at this point writer is Some(Ok(_))
            let block_writer = writer.as_mut().unwrap().as_mut().unwrap();
            write_futures.push(async move { block_writer.write(&mut data).await })
        }

        for (write_idx, write) in join_all(write_futures).await.into_iter().enumerate() {
            if let Err(e) = write {
                let index = writer_indices[write_idx];
                warn!("Write failed for block index {}: {:?}", index, e);
                self.block_writers[index] = Some(Err(e));
            }
        }

        let failed_writers = self
            .block_writers
            .iter()
            .filter(|writer| writer.as_ref().is_some_and(|w| w.is_err()))
            .count();
        if failed_writers > (self.block_writers.len() - self.data_units) {
            return Err(HdfsError::DataTransferError(
                "Insufficient blocks succeeded during write".to_string(),
            ));
        }

        Ok(())
    }

    async fn write(&mut self, buf: &mut Bytes) -> Result<()> {
        let bytes_to_write = usize::min(buf.len(), self.bytes_remaining());

        let mut buf_to_write = buf.split_to(bytes_to_write);

        // Encryption (if any) is applied here, before EC encoding — the data
        // shards stored on disk must be ciphertext, parity is computed over
        // ciphertext, and decryption on read happens after EC decode.
        if let Some(cipher) = self.cipher.as_mut() {
            let file_offset = self.block.offset + self.bytes_written as u64;
            let mut encrypted = buf_to_write.to_vec();
            cipher.apply(file_offset, &mut encrypted);
            buf_to_write = Bytes::from(encrypted);
        }

        while !buf_to_write.is_empty() {
            self.cell_buffer.write(&mut buf_to_write);
            if self.cell_buffer.is_full() {
                self.write_cells().await?;
            }
        }

        self.bytes_written += bytes_to_write;

        Ok(())
    }

    async fn close(mut self) -> Result<hdfs::ExtendedBlockProto> {
        if !self.cell_buffer.is_empty() {
            self.write_cells().await?;
        }

        let mut close_futures = vec![];
        let mut writer_indices = vec![];
        let mut succeeded_blocks = 0usize;

        for (index, writer) in self.block_writers.into_iter().enumerate() {
            match writer {
                Some(Ok(writer)) => {
                    writer_indices.push(index);
                    close_futures.push(async move { writer.close().await });
                }
                Some(Err(_)) => {}
                None => {
                    // If no data was written to a block, treat it as successful
                    succeeded_blocks += 1;
                }
            }
        }

        for (close_idx, close_result) in join_all(close_futures).await.into_iter().enumerate() {
            if let Err(e) = close_result {
                let index = writer_indices[close_idx];
                warn!("Write failed for block index {}: {:?}", index, e);
            } else {
                succeeded_blocks += 1;
            }
        }

        if succeeded_blocks < self.data_units {
            return Err(HdfsError::DataTransferError(
                "Insufficient blocks succeeded during write".to_string(),
            ));
        }
        let mut extended_block = self.block.b;

        extended_block.num_bytes = Some(self.bytes_written as u64);

        Ok(extended_block)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn nodes(ports: &[u32]) -> Vec<hdfs::DatanodeInfoProto> {
        let node = |port: &u32| hdfs::DatanodeInfoProto {
            id: hdfs::DatanodeIdProto {
                ip_addr: "127.0.0.1".to_string(),
                xfer_port: *port,
                ..Default::default()
            },
            ..Default::default()
        };
        ports.iter().map(node).collect()
    }

    #[test]
    fn test_setup_response_names_the_bad_node() {
        let respond = |status: hdfs::Status, bad_link: &str| {
            let response = hdfs::BlockOpResponseProto {
                status: status as i32,
                first_bad_link: Some(bad_link.to_string()),
                ..Default::default()
            };
            check_setup(&response, &nodes(&[1, 2, 3])).map_err(|error| error.bad_node)
        };
        assert_eq!(respond(hdfs::Status::Success, ""), Ok(()));
        assert_eq!(respond(hdfs::Status::Error, ""), Err(Some(0)));
        assert_eq!(respond(hdfs::Status::Error, "127.0.0.1:3"), Err(Some(2)));
        assert_eq!(respond(hdfs::Status::Success, "127.0.0.1:2"), Err(Some(1)));
        assert_eq!(respond(hdfs::Status::Error, "127.0.0.1:9"), Err(Some(0)));
    }

    #[test]
    fn test_two_failed_nodes_are_removed() {
        let mut block = hdfs::LocatedBlockProto {
            locs: nodes(&[1, 2, 3]),
            storage_i_ds: ["a", "b", "c"].map(str::to_string).to_vec(),
            storage_types: vec![0, 1, 2],
            ..Default::default()
        };
        remove_nodes(&mut block, &[0, 1]);
        assert_eq!(block.locs, nodes(&[3]));
        assert_eq!(block.storage_i_ds, ["c"]);
        assert_eq!(block.storage_types, [2]);
    }
}
