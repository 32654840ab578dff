//! Which master was active before this one.

use halcyon_coord::Followed;
use halcyon_schema::ServerName;
use halcyon_schema::znode::ActiveMaster;

/// Remembers the last other master that was active, as a standby sees it.
pub struct Predecessor {
    masters: Followed<ActiveMaster>,
    seen: Vec<ServerName>,
}

impl Predecessor {
    pub fn new(masters: Followed<ActiveMaster>) -> Predecessor {
        Predecessor { masters, seen: Vec::new() }
    }

    /// Follows who is active; never ends. Cancel safe.
    pub async fn follow(&mut self) {
        loop {
            self.look();
            if self.masters.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The last that was seen besides `own`; `None` if none was.
    pub fn last(mut self, own: &ServerName) -> Option<ServerName> {
        self.look();
        self.seen.pop().filter(|last| last != own).or_else(|| self.seen.pop())
    }

    fn look(&mut self) {
        if let Some(ActiveMaster { server, .. }) = self.masters.seen_now().present()
            && self.seen.last() != Some(server)
        {
            self.seen.push(server.clone());
            let surplus = self.seen.len().saturating_sub(2);
            self.seen.drain(..surplus);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use halcyon_coord::{ClusterPublisher, Seen};

    use super::*;

    #[tokio::test]
    async fn the_last_other_master_counts() {
        let (publisher, view) = ClusterPublisher::new();
        let server = |port| ServerName::new("m", port, 1);
        let own = server(9);
        assert_eq!(Predecessor::new(view.master.clone()).last(&own), None, "nothing was read yet");
        let mut masters = Predecessor::new(view.master.clone());
        for port in [1, 2, 9] {
            publisher.master.publish(Seen::Present(ActiveMaster { server: server(port), info_port: 0 }));
            let _ = tokio::time::timeout(Duration::from_millis(20), masters.follow()).await;
        }
        publisher.master.publish(Seen::Absent);
        assert_eq!(masters.last(&own), Some(server(2)));
    }
}
