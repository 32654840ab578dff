//! Entries of simulated WALs and region files.
//!
//! ```text
//! int32 length of what follows | int64 id | int64 sequence number | int8 length, encoded region name | payload
//! ```

/// One write to one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// No other write has it.
    pub(crate) id: u64,
    pub(crate) seq: u64,
    pub(crate) region: String,
    pub(crate) payload: Vec<u8>,
}

impl Entry {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(&self.id.to_be_bytes());
        body.extend_from_slice(&self.seq.to_be_bytes());
        body.push(self.region.len() as u8);
        body.extend_from_slice(self.region.as_bytes());
        body.extend_from_slice(&self.payload);
        [&(body.len() as u32).to_be_bytes()[..], &body].concat()
    }
}

/// The whole entries at the beginning of a file, whose end may be torn.
pub(crate) fn decode(mut bytes: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    while let Some((len, rest)) = bytes.split_at_checked(4) {
        let len = u32::from_be_bytes(len.try_into().expect("four bytes")) as usize;
        let Some((body, rest)) = rest.split_at_checked(len) else { break };
        let number = |at: usize| u64::from_be_bytes(body[at..at + 8].try_into().expect("eight bytes"));
        let name_end = 17 + usize::from(body[16]);
        entries.push(Entry {
            id: number(0),
            seq: number(8),
            region: String::from_utf8_lossy(&body[17..name_end]).into_owned(),
            payload: body[name_end..].to_vec(),
        });
        bytes = rest;
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_end_is_left_out() {
        let entry = |id| Entry { id, seq: id + 1, region: "abc".into(), payload: vec![7; id as usize] };
        let bytes = [entry(1).encode(), entry(2).encode()].concat();
        assert_eq!(decode(&bytes), [entry(1), entry(2)]);
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]).len(), usize::from(len >= entry(1).encode().len()), "{len}");
        }
    }
}
