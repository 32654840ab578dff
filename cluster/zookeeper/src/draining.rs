//! Region servers that get no more regions.
//!
//! ```text
//! draining/<server>   no data: it gets no regions, as HBase's master and `draining_servers.rb` write it
//!                     `offload`: and those it has are to leave it
//! ```
//!
//! HBase's processes and tools look at the names alone (`DrainingServerTracker`). With the word, a master that takes over goes on with
//! moves that have not begun.

use halcyon_cell::Result;
use halcyon_schema::ServerName;
use zookeeper_client as zk;

use crate::leadership::Inner;
use crate::session::Answer;

const OFFLOAD: &[u8] = b"offload";

impl Inner {
    pub(crate) async fn begin_offload(&self, server: &ServerName) -> Result<()> {
        self.put(self.own.session.settings().paths.draining_server(server), OFFLOAD.to_vec()).await
    }

    pub(crate) async fn offloading(&self, servers: Vec<ServerName>) -> Result<Vec<ServerName>> {
        let session = &self.own.session;
        let mut found = Vec::new();
        for server in servers {
            let path = session.settings().paths.draining_server(&server);
            let ask = |client: zk::Client| {
                let path = &path;
                async move { client.get_data(path).await }
            };
            if let Answer::Done((data, _)) = session.call(&format!("read {path}"), ask).await?
                && data == OFFLOAD
            {
                found.push(server);
            }
        }
        Ok(found)
    }
}
