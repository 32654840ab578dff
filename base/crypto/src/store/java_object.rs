//! Java's object serialization, as far as sealed keys need it: objects with fields, strings, enums and arrays of bytes.

use std::sync::Arc;

use super::Load;

/// Depth of objects in objects.
const DEPTH_MAX: usize = 16;
const STREAM_MAGIC: [u8; 4] = [0xac, 0xed, 0x00, 0x05];

const NULL: u8 = 0x70;
const REFERENCE: u8 = 0x71;
const CLASS: u8 = 0x72;
const OBJECT: u8 = 0x73;
const STRING: u8 = 0x74;
const ARRAY: u8 = 0x75;
const BLOCK_DATA: u8 = 0x77;
const END: u8 = 0x78;
const ENUM: u8 = 0x7e;
/// Where numbers of things that were met before begin.
const FIRST_HANDLE: u32 = 0x7e_0000;

const HAS_WRITE_METHOD: u8 = 1;
const IS_SERIALIZABLE: u8 = 2;

/// Bytes read from the front.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn take(&mut self, len: usize) -> Load<&'a [u8]> {
        let taken = self.at.checked_add(len).and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or("java.io.EOFException: the key store ends too soon")?;
        self.at += len;
        Ok(taken)
    }

    pub(super) fn u8(&mut self) -> Load<u8> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Load<u16> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub(super) fn u32(&mut self) -> Load<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Modified UTF-8 with its length; characters outside of the basic plane come out as two replacements.
    pub(super) fn utf(&mut self) -> Load<String> {
        let len = self.u16()?;
        Ok(String::from_utf8_lossy(self.take(usize::from(len))?).into_owned())
    }
}

/// A value in a stream.
#[derive(Clone, Debug)]
pub(super) enum Object {
    Null,
    /// A number of a field, or a part of an object that nobody asks for.
    Other,
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    Instance {
        class: String,
        fields: Vec<(String, Object)>,
    },
}

impl Object {
    pub(super) fn field(&self, name: &str) -> Option<&Object> {
        let Object::Instance { fields, .. } = self else { return None };
        fields.iter().find(|(of, _)| of == name).map(|(_, value)| value)
    }
}

/// What `javax.crypto.SealedObject` holds.
pub(super) struct Sealed {
    pub(super) algorithm: String,
    pub(super) parameters: Vec<u8>,
    pub(super) contents: Vec<u8>,
}

pub(super) fn read_sealed(reader: &mut Reader<'_>) -> Load<Sealed> {
    let object = read(reader)?;
    let bytes = |name: &str| match object.field(name) {
        Some(Object::Bytes(bytes)) => Ok(bytes.to_vec()),
        _ => Err(format!("java.io.IOException: a sealed key without {name}")),
    };
    let Some(Object::Text(algorithm)) = object.field("sealAlg") else {
        return Err("java.io.IOException: a sealed key without sealAlg".into());
    };
    let (parameters, contents) = (bytes("encodedParams")?, bytes("encryptedContent")?);
    Ok(Sealed { algorithm: algorithm.to_string(), parameters, contents })
}

/// Reads a stream of one object.
pub(super) fn read(reader: &mut Reader<'_>) -> Load<Object> {
    if reader.take(4)? != STREAM_MAGIC {
        return Err("java.io.StreamCorruptedException: invalid stream header".into());
    }
    Stream { reader, known: Vec::new() }.object(0)
}

struct Class {
    name: String,
    flags: u8,
    fields: Vec<(u8, String)>,
    parent: Option<Arc<Class>>,
}

/// What a number of the stream stands for.
#[derive(Clone)]
enum Known {
    Class(Arc<Class>),
    Object(Object),
}

struct Stream<'r, 'a> {
    reader: &'r mut Reader<'a>,
    known: Vec<Known>,
}

impl Stream<'_, '_> {
    fn object(&mut self, depth: usize) -> Load<Object> {
        if depth > DEPTH_MAX {
            return Err("java.io.StreamCorruptedException: objects are too deep".into());
        }
        match self.reader.u8()? {
            NULL => Ok(Object::Null),
            REFERENCE => match self.reference()? {
                Known::Object(object) => Ok(object),
                Known::Class(_) => Ok(Object::Other),
            },
            STRING => {
                let text = Object::Text(self.reader.utf()?.into());
                self.known.push(Known::Object(text.clone()));
                Ok(text)
            }
            ENUM => {
                self.class(depth)?;
                self.known.push(Known::Object(Object::Other));
                self.object(depth + 1)
            }
            ARRAY => {
                let class = self.class(depth)?;
                self.known.push(Known::Object(Object::Other));
                let at = self.known.len() - 1;
                let len = self.reader.u32()?;
                if class.is_none_or(|class| class.name != "[B") {
                    return Err("java.io.StreamCorruptedException: an array of other than bytes".into());
                }
                let bytes = Object::Bytes(self.reader.take(len as usize)?.into());
                self.known[at] = Known::Object(bytes.clone());
                Ok(bytes)
            }
            OBJECT => {
                let class = self.class(depth)?.ok_or("java.io.StreamCorruptedException: no class")?;
                self.known.push(Known::Object(Object::Other));
                let name = class.name.clone();
                let mut fields = Vec::new();
                self.fields(&class, &mut fields, depth)?;
                Ok(Object::Instance { class: name, fields })
            }
            other => Err(format!("java.io.StreamCorruptedException: invalid type code: {other:02X}")),
        }
    }

    /// Fields of the topmost class come first.
    fn fields(&mut self, class: &Class, out: &mut Vec<(String, Object)>, depth: usize) -> Load<()> {
        if let Some(parent) = &class.parent {
            self.fields(parent, out, depth)?;
        }
        if class.flags & IS_SERIALIZABLE == 0 {
            return Err("java.io.StreamCorruptedException: a class with a form of its own".into());
        }
        for (kind, name) in &class.fields {
            let value = match kind {
                b'B' | b'Z' => self.reader.take(1).map(|_| Object::Other)?,
                b'C' | b'S' => self.reader.take(2).map(|_| Object::Other)?,
                b'F' | b'I' => self.reader.take(4).map(|_| Object::Other)?,
                b'D' | b'J' => self.reader.take(8).map(|_| Object::Other)?,
                b'L' | b'[' => self.object(depth + 1)?,
                other => return Err(format!("java.io.StreamCorruptedException: field type {other:02X}")),
            };
            out.push((name.clone(), value));
        }
        if class.flags & HAS_WRITE_METHOD != 0 {
            self.pass_annotations(depth)?;
        }
        Ok(())
    }

    fn pass_annotations(&mut self, depth: usize) -> Load<()> {
        loop {
            match self.reader.u8()? {
                END => return Ok(()),
                BLOCK_DATA => {
                    let len = self.reader.u8()?;
                    self.reader.take(usize::from(len))?;
                }
                _ => {
                    self.reader.at -= 1;
                    self.object(depth + 1)?;
                }
            }
        }
    }

    fn class(&mut self, depth: usize) -> Load<Option<Arc<Class>>> {
        if depth > DEPTH_MAX {
            return Err("java.io.StreamCorruptedException: classes are too deep".into());
        }
        match self.reader.u8()? {
            NULL => Ok(None),
            REFERENCE => match self.reference()? {
                Known::Class(class) => Ok(Some(class)),
                Known::Object(_) => Err("java.io.StreamCorruptedException: no class".into()),
            },
            CLASS => {
                let name = self.reader.utf()?;
                self.reader.take(8)?; // serialVersionUID
                let at = self.known.len();
                self.known.push(Known::Object(Object::Other));
                let flags = self.reader.u8()?;
                let mut fields = Vec::new();
                for _ in 0..self.reader.u16()? {
                    let (kind, name) = (self.reader.u8()?, self.reader.utf()?);
                    if kind == b'L' || kind == b'[' {
                        self.object(depth + 1)?; // the type, as text
                    }
                    fields.push((kind, name));
                }
                self.pass_annotations(depth)?;
                let parent = self.class(depth + 1)?;
                let class = Arc::new(Class { name, flags, fields, parent });
                self.known[at] = Known::Class(class.clone());
                Ok(Some(class))
            }
            other => Err(format!("java.io.StreamCorruptedException: invalid type code: {other:02X}")),
        }
    }

    fn reference(&mut self) -> Load<Known> {
        let handle = self.reader.u32()?.checked_sub(FIRST_HANDLE);
        let known = handle.and_then(|at| self.known.get(at as usize));
        known.cloned().ok_or_else(|| "java.io.StreamCorruptedException: invalid handle value".into())
    }
}
