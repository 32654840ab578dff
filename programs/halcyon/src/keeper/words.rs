//! What a server tells its keeper: one line for each word.
//!
//! ```text
//! alive                    now and then
//! session KEY              its session with ZooKeeper
//! znode PATH               the ephemeral znode by which the cluster knows it
//! notify READY=1           for systemd: READY=1, STOPPING=1, WATCHDOG=1
//! ```

use halcyon_zookeeper::SessionKey;

/// Names of servers in paths have a few hundred bytes at most.
pub const LINE_BYTES_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    Alive,
    Session(SessionKey),
    Znode(String),
    Notify(Notice),
}

/// What systemd is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    Ready,
    Stopping,
    Watchdog,
}

impl Notice {
    const ALL: [Notice; 3] = [Notice::Ready, Notice::Stopping, Notice::Watchdog];

    pub fn as_text(self) -> &'static str {
        match self {
            Notice::Ready => "READY=1",
            Notice::Stopping => "STOPPING=1",
            Notice::Watchdog => "WATCHDOG=1",
        }
    }
}

impl Word {
    /// With the end of the line.
    pub fn encode(&self) -> String {
        match self {
            Word::Alive => "alive\n".to_string(),
            Word::Session(key) => format!("session {key}\n"),
            Word::Znode(path) => format!("znode {path}\n"),
            Word::Notify(notice) => format!("notify {}\n", notice.as_text()),
        }
    }

    /// `None`: it is no word.
    pub fn decode(line: &[u8]) -> Option<Word> {
        let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        match name {
            "alive" if rest.is_empty() => Some(Word::Alive),
            "session" => rest.parse().ok().map(Word::Session),
            "znode" if rest.starts_with('/') => Some(Word::Znode(rest.to_string())),
            "notify" => Notice::ALL.into_iter().find(|it| it.as_text() == rest).map(Word::Notify),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back() {
        let key = "1f:00ff".parse().unwrap();
        let words = [Word::Alive, Word::Session(key), Word::Znode("/hbase/rs/h,1,2".to_string())];
        for word in words.into_iter().chain(Notice::ALL.map(Word::Notify)) {
            assert_eq!(Word::decode(word.encode().as_bytes()), Some(word));
        }
    }

    #[test]
    fn what_is_no_word_is_refused() {
        let odd = ["", "\n", "alive", "alive 1\n", "session\n", "session x\n", "znode hbase\n", "notify\n"];
        let odd = odd.into_iter().chain(["notify MAINPID=1\n", "quit\n", "alive\nalive\n"]);
        for line in odd {
            assert_eq!(Word::decode(line.as_bytes()), None, "{line:?}");
        }
        assert_eq!(Word::decode(b"znode /\xff\n"), None);
    }
}
