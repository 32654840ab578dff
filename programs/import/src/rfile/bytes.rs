//! Numbers and strings as Hadoop writes them. Nothing is allocated by a length before it was checked against what is left.

use super::error::{Result, damaged};

/// Walks over bytes that may be damaged.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    pub(crate) fn at(bytes: &'a [u8], at: usize) -> Reader<'a> {
        Reader { bytes, at: at.min(bytes.len()) }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        if len > self.left() {
            return damaged(format!("{len} bytes expected at {}, {} are left", self.at, self.left()));
        }
        let taken = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("as many bytes were taken"))
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Java's `readBoolean`: all but 0 is true; here all but 0 and 1 is damage.
    pub(crate) fn boolean(&mut self) -> Result<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => damaged(format!("a boolean of {other} at {}", self.at - 1)),
        }
    }

    pub(crate) fn int16(&mut self) -> Result<i16> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub(crate) fn int32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(crate) fn int64(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// A number that is a count or a length.
    pub(crate) fn count(&mut self) -> Result<usize> {
        not_negative(i64::from(self.int32()?), self.at)
    }

    /// `int32 length | bytes`, as `Value` is written.
    pub(crate) fn counted(&mut self) -> Result<&'a [u8]> {
        let len = self.count()?;
        self.take(len)
    }

    /// A number of Hadoop's `WritableUtils`: one byte from -112 to 127; otherwise the first byte says the sign and how many follow.
    pub(crate) fn vlong(&mut self) -> Result<i64> {
        let first = self.byte()? as i8;
        if first >= -112 {
            return Ok(i64::from(first));
        }
        let is_negative = first < -120;
        let len = if is_negative { -120 - i32::from(first) } else { -112 - i32::from(first) };
        let bytes = self.take(len as usize)?;
        let number = bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte)) as i64;
        Ok(if is_negative { !number } else { number })
    }

    /// [`Reader::vlong`] of a length, with its bytes.
    pub(crate) fn vbytes(&mut self) -> Result<&'a [u8]> {
        let len = self.vcount()?;
        self.take(len)
    }

    /// [`Reader::vlong`] of a length.
    pub(crate) fn vcount(&mut self) -> Result<usize> {
        let number = self.vlong()?;
        not_negative(number, self.at)
    }

    /// A number of Hadoop's `TFile` (`Utils.readVLong`), which the container uses. It is another form than [`Reader::vlong`].
    pub(crate) fn tfile_vlong(&mut self) -> Result<i64> {
        let first = i64::from(self.byte()? as i8);
        let mut rest = |len: usize| -> Result<i64> {
            Ok(self.take(len)?.iter().fold(0, |number, byte| number << 8 | i64::from(*byte)))
        };
        Ok(match first {
            -32.. => first,
            -72.. => (first + 52) << 8 | rest(1)?,
            -104.. => (first + 88) << 16 | rest(2)?,
            -120.. => (first + 112) << 24 | rest(3)?,
            -125.. => {
                let len = (first + 129) as usize;
                let number = rest(len)?;
                let unused = 64 - 8 * len as u32;
                number << unused >> unused // the first of these bytes has the sign
            }
            _ => return damaged(format!("a number begins with {first} at {}", self.at - 1)),
        })
    }

    pub(crate) fn tfile_count(&mut self) -> Result<usize> {
        let number = self.tfile_vlong()?;
        not_negative(number, self.at)
    }

    /// A string of `TFile`: its length in bytes and UTF-8.
    pub(crate) fn tfile_string(&mut self) -> Result<&'a str> {
        let len = self.tfile_count()?;
        utf8(self.take(len)?)
    }

    /// `DataOutput.writeUTF`. What the characters are does not matter here, so Java's own UTF-8 is read with losses.
    pub(crate) fn java_utf(&mut self) -> Result<String> {
        let len = usize::from(self.int16()? as u16);
        Ok(String::from_utf8_lossy(self.take(len)?).into_owned())
    }
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).or_else(|_| damaged(format!("'{}' is no text", bytes.escape_ascii())))
}

fn not_negative(number: i64, at: usize) -> Result<usize> {
    usize::try_from(number).or_else(|_| damaged(format!("a length of {number} before {at}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that the two classes of Hadoop write for these numbers.
    #[test]
    fn numbers_are_those_of_hadoop() {
        let writable: [(&[u8], i64); 9] = [
            (&[0], 0),
            (&[127], 127),
            (&[0x90], -112),
            (&[0x8f, 0x80], 128),
            (&[0x87, 0x70], -113),
            (&[0x8e, 1, 0], 256),
            (&[0x86, 1, 0], -257),
            (&[0x88, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], i64::MAX),
            (&[0x80, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], i64::MIN),
        ];
        for (bytes, number) in writable {
            assert_eq!(Reader::new(bytes).vlong().unwrap(), number, "{bytes:?}");
        }
        let tfile: [(&[u8], i64); 9] = [
            (&[0], 0),
            (&[0xe0], -32),
            (&[0xcc, 0x80], 128),
            (&[0xcb, 0xdf], -33),
            (&[0xa8, 0x14, 0], 20 * 256),
            (&[0x90, 0x10, 0, 0], 16 * 65536),
            (&[0x83, 0x08, 0, 0, 0], 8 << 24),
            (&[0x83, 0xf7, 0xff, 0xff, 0xff], -(8 << 24) - 1),
            (&[0x87, 0x80, 0, 0, 0, 0, 0, 0, 0], i64::MIN),
        ];
        for (bytes, number) in tfile {
            assert_eq!(Reader::new(bytes).tfile_vlong().unwrap(), number, "{bytes:?}");
        }
    }

    #[test]
    fn a_length_that_lies_is_an_error() {
        assert!(Reader::new(&[0x7f, 0xff, 0xff, 0xff]).counted().is_err());
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff]).counted().is_err());
        assert!(Reader::new(&[100]).vbytes().is_err());
        assert!(Reader::new(&[0xff]).vcount().is_err());
        assert!(Reader::new(&[0x80]).tfile_vlong().is_err());
        assert!(Reader::new(&[2]).boolean().is_err());
    }
}
