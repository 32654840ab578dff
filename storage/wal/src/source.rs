//! The bytes of one log, read forward through a buffer.

use std::sync::Arc;

use halcyon_env::ReadableFile;

/// Bytes asked from the file at once.
pub(crate) const READ_LEN: usize = 256 << 10;

pub(crate) type Decode<T> = Result<T, Stop>;

/// Why an entry could not be decoded.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The file ends inside it.
    End,
    /// Its bytes cannot be.
    Bad(String),
    /// It is whole, and has more bytes of cells than a reader keeps in memory.
    TooLong(usize),
    Io(std::io::Error),
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Stop {
        Stop::Io(error)
    }
}

pub(crate) fn bad<T>(what: impl Into<String>) -> Decode<T> {
    Err(Stop::Bad(what.into()))
}

/// Reads `[at, end)` of a file. No length that the file claims is believed before it is compared with `end`,
/// so nothing is allocated that the file cannot fill.
pub(crate) struct Source {
    file: Arc<dyn ReadableFile>,
    end: u64,
    /// Offset of `buffer[0]`.
    base: u64,
    buffer: Vec<u8>,
    /// Next byte in `buffer`.
    next: usize,
    /// A CRC-32C that goes on over what is taken.
    crc: Option<u32>,
}

impl Source {
    pub(crate) fn new(file: Arc<dyn ReadableFile>, end: u64) -> Source {
        Source { file, end, base: 0, buffer: Vec::new(), next: 0, crc: None }
    }

    /// Goes on at the same place of another handle of the file.
    pub(crate) fn go_on(&mut self, file: Arc<dyn ReadableFile>, end: u64) {
        let at = self.offset();
        *self = Source { base: at, ..Source::new(file, end) };
    }

    /// Offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.next as u64
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn set_end(&mut self, end: u64) {
        self.end = end;
        self.seek(self.offset());
    }

    pub(crate) fn remaining(&self) -> u64 {
        self.end.saturating_sub(self.offset())
    }

    pub(crate) fn seek(&mut self, offset: u64) {
        let inside = offset.checked_sub(self.base).filter(|at| *at <= self.buffer.len() as u64);
        match inside {
            Some(at) if offset <= self.end => self.next = at as usize,
            _ => {
                self.buffer.clear();
                self.base = offset;
                self.next = 0;
            }
        }
        let in_file = self.end.saturating_sub(self.base);
        self.buffer.truncate(usize::try_from(in_file).unwrap_or(usize::MAX));
        assert!(
            self.base + self.buffer.len() as u64 <= self.end.max(self.base),
            "the buffer ends where the entries end: a trailer would be read as one"
        );
    }

    /// The next `len` bytes, and goes behind them.
    pub(crate) fn take(&mut self, len: usize) -> Decode<&[u8]> {
        if len as u64 > self.remaining() {
            return Err(Stop::End);
        }
        if self.buffer.len() - self.next < len {
            self.fill(len)?;
        }
        let bytes = &self.buffer[self.next..self.next + len];
        self.next += len;
        if let Some(crc) = &mut self.crc {
            *crc = crc32c::crc32c_append(*crc, bytes);
        }
        Ok(bytes)
    }

    /// Bytes from anywhere, of those that the file has. The next byte stays the next one.
    pub(crate) fn copy(&self, at: u64, len: usize) -> Decode<Vec<u8>> {
        if at + len as u64 > self.end {
            return Err(Stop::End);
        }
        let inside = at.checked_sub(self.base).map(|at| usize::try_from(at).unwrap_or(usize::MAX));
        if let Some(bytes) = inside.and_then(|at| self.buffer.get(at..at.checked_add(len)?)) {
            return Ok(bytes.to_vec());
        }
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    /// `crc` goes on over what `take` takes, and is returned.
    pub(crate) fn with_crc(&mut self, crc: u32, take: impl FnOnce(&mut Source) -> Decode<()>) -> Decode<u32> {
        self.crc = Some(crc);
        let taken = take(self);
        let crc = self.crc.take().expect("it was set");
        taken.map(|()| crc)
    }

    pub(crate) fn byte(&mut self) -> Decode<u8> {
        Ok(self.take(1)?[0])
    }

    /// A protobuf varint of at most 32 bits.
    pub(crate) fn varint32(&mut self) -> Decode<u32> {
        let mut number = 0u64;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(number)
                    .or_else(|_| bad(format!("varint: expected 32 bits, found {number}")));
            }
        }
        bad("varint: expected at most five bytes, found more")
    }

    fn fill(&mut self, len: usize) -> Decode<()> {
        let want = (len.max(READ_LEN) as u64).min(self.remaining()) as usize;
        self.buffer.drain(..self.next);
        self.base += self.next as u64;
        self.next = 0;
        let have = self.buffer.len();
        self.buffer.resize(want, 0);
        let read = self.file.read_exact_at(&mut self.buffer[have..], self.base + have as u64);
        if read.is_err() {
            self.buffer.truncate(have);
        }
        read?;
        assert!(self.buffer.len() >= len, "{len} bytes are to be taken, and {} are here", self.buffer.len());
        Ok(())
    }
}
