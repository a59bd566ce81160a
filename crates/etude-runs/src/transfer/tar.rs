//! The archive of an export: a POSIX tar with a single valid form for each entry, so that every other form is refused.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};

use etude_core::digest::Digest;
use etude_runtime::archive::{BLOCK, MAX_SIZE, header, padding};

/// Maximum length of a name, in bytes.
const MAX_NAME: usize = 100;

/// Name of the last entry.
pub(super) const CHECKSUM: &str = "checksum";

/// Writer of an archive.
pub(super) struct Writer<'f> {
    out: BufWriter<&'f File>,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl<'f> Writer<'f> {
    pub(super) fn new(file: &'f File) -> Self {
        Self { out: BufWriter::with_capacity(256 * 1024, file), hasher: blake3::Hasher::new(), bytes: 0 }
    }

    /// Begins a file of `len` bytes; the caller writes them next.
    pub(super) fn begin(&mut self, name: &str, len: u64) -> io::Result<()> {
        if len > MAX_SIZE || name.len() > MAX_NAME {
            return Err(io::Error::other(format!("`{name}` has {len} bytes; an archive can hold files up to 8 GiB")));
        }
        self.write(&header(name, len, 0))
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Fills the last block of a file of `len` bytes.
    pub(super) fn end(&mut self, len: u64) -> io::Result<()> {
        self.write(&[0; BLOCK][..padding(len)])
    }

    /// Adds a whole file.
    pub(super) fn add(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let len = content.len() as u64;
        self.begin(name, len)?;
        self.write(content)?;
        self.end(len)
    }

    /// Ends the archive with its checksum. Returns its size in bytes.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        let checksum = format!("{}\n", self.hasher.finalize().to_hex());
        self.add(CHECKSUM, checksum.as_bytes())?;
        self.write(&[0; 2 * BLOCK])?;
        self.out.flush()?;
        Ok(self.bytes)
    }
}

/// A file in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    /// Start of the content, as a byte offset into the archive.
    offset: u64,
    pub(super) len: u64,
    /// The hash of the content.
    pub(super) digest: Digest,
}

/// Reason why an archive is refused: the entry and its fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) entry: String,
    pub(super) why: String,
}

impl Fault {
    pub(super) fn new(entry: impl Into<String>, why: impl Into<String>) -> Self {
        Self { entry: entry.into(), why: why.into() }
    }
}

/// Name of the first entry, as every archive begins.
const FIRST: &[u8] = b"manifest.json\0";

/// Reader of an archive whose checksum is correct.
pub(super) struct Reader {
    file: BufReader<File>,
    pub(super) entries: Vec<Entry>,
}

/// The first pass over an archive.
struct Scan {
    file: BufReader<File>,
    /// Size of the file in bytes.
    len: u64,
    at: u64,
    hasher: blake3::Hasher,
}

impl Reader {
    /// Reads the whole archive once and compares it with its checksum. Sizes that entries declare reserve no memory.
    pub(super) fn open(file: File) -> Result<Self, Fault> {
        let failed = |error: io::Error| Fault::new("the archive", format!("cannot be read: {error}"));
        let len = file.metadata().map_err(failed)?.len();
        let mut scan =
            Scan { file: BufReader::with_capacity(256 * 1024, file), len, at: 0, hasher: blake3::Hasher::new() };
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let last = entries.last().map_or("the archive", |entry| entry.name.as_str());
            let block = scan.block().map_err(|why| Fault::new(last, format!("is truncated: {why}")))?;
            let (name, len) = parse(&block).map_err(|why| match entries.is_empty() && !block.starts_with(FIRST) {
                true => Fault::new("the file", "is not an archive of `etude runs export --all`"),
                false => Fault::new(format!("the entry after {last}"), why),
            })?;
            if name == CHECKSUM {
                scan.check(len).map_err(|why| Fault::new(CHECKSUM, why))?;
                return Ok(Self { file: scan.file, entries });
            }
            if entries.last().is_some_and(|before| before.name >= name) {
                return Err(Fault::new(name, "occurs twice, or is not sorted by name"));
            }
            scan.hasher.update(&block);
            let offset = scan.at;
            let digest = scan.content(len).map_err(|why| Fault::new(name.as_str(), why))?;
            entries.push(Entry { name, offset, len, digest });
        }
    }

    /// The content of a file. It fits into memory: the archive file has at least that many bytes.
    pub(super) fn read(&mut self, entry: &Entry) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::new();
        self.copy(entry, |part| {
            bytes.extend_from_slice(part);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Passes the content of a file on, part by part, and checks that it is the same as in the first pass.
    pub(super) fn copy(&mut self, entry: &Entry, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> Result<(), Fault> {
        let fail = |error: io::Error| Fault::new(entry.name.as_str(), format!("cannot be copied: {error}"));
        self.file.seek(SeekFrom::Start(entry.offset)).map_err(fail)?;
        let (mut hasher, mut left, mut part) = (blake3::Hasher::new(), entry.len, vec![0; 64 * 1024]);
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(part.len());
            self.file.read_exact(&mut part[..wanted]).map_err(fail)?;
            hasher.update(&part[..wanted]);
            take(&part[..wanted]).map_err(fail)?;
            left -= wanted as u64;
        }
        match Digest::from_bytes(*hasher.finalize().as_bytes()) == entry.digest {
            true => Ok(()),
            false => Err(Fault::new(entry.name.as_str(), "was changed while it was imported")),
        }
    }
}

impl Scan {
    /// Reads the next block, without adding it to the checksum.
    fn block(&mut self) -> Result<[u8; BLOCK], String> {
        let mut block = [0; BLOCK];
        self.has(BLOCK as u64)?;
        self.file.read_exact(&mut block).map_err(|e| e.to_string())?;
        self.at += BLOCK as u64;
        Ok(block)
    }

    fn has(&self, more: u64) -> Result<(), String> {
        match self.at.checked_add(more).is_some_and(|end| end <= self.len) {
            true => Ok(()),
            false => Err(format!("the archive ends after {} bytes", self.len)),
        }
    }

    /// Reads the content of a file and the padding of its last block. Returns its hash.
    fn content(&mut self, len: u64) -> Result<Digest, String> {
        let fill = padding(len);
        self.has(len)
            .and_then(|()| self.has(len + fill as u64))
            .map_err(|why| format!("has {len} bytes, and {why}"))?;
        let (mut hasher, mut left, mut part) = (blake3::Hasher::new(), len, vec![0; 64 * 1024]);
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(part.len());
            self.file.read_exact(&mut part[..wanted]).map_err(|e| format!("cannot be read: {e}"))?;
            self.hasher.update(&part[..wanted]);
            hasher.update(&part[..wanted]);
            left -= wanted as u64;
        }
        self.file.read_exact(&mut part[..fill]).map_err(|e| format!("cannot be read: {e}"))?;
        self.hasher.update(&part[..fill]);
        if part[..fill].iter().any(|byte| *byte != 0) {
            return Err("is followed by bytes that are not part of it".to_owned());
        }
        self.at += len + fill as u64;
        Ok(Digest::from_bytes(*hasher.finalize().as_bytes()))
    }

    /// Compares the last entry, of `len` bytes, with the checksum of the bytes before it. Only the end of the archive
    /// may follow.
    fn check(&mut self, len: u64) -> Result<(), String> {
        let expected = format!("{}\n", self.hasher.finalize().to_hex());
        if len != expected.len() as u64 {
            return Err(format!("has {len} bytes instead of {}", expected.len()));
        }
        let block = self.block()?;
        let (found, fill) = block.split_at(expected.len());
        if found != expected.as_bytes() {
            return Err("does not match: the file was damaged or changed".to_owned());
        }
        let is_end = fill.iter().chain(&self.block()?).chain(&self.block()?).all(|byte| *byte == 0);
        if !is_end || self.at != self.len {
            return Err("is not the end of the archive".to_owned());
        }
        Ok(())
    }
}

/// Name and size in a header, which must be exactly the header that this program writes for them.
fn parse(block: &[u8; BLOCK]) -> Result<(String, u64), String> {
    let of_another = || "has a header that etude does not write".to_owned();
    let end = block[..MAX_NAME].iter().position(|byte| *byte == 0).unwrap_or(MAX_NAME);
    let name = std::str::from_utf8(&block[..end]).map_err(|_| of_another())?;
    let size = std::str::from_utf8(&block[124..135]).map_err(|_| of_another())?;
    let is_octal = size.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let size = u64::from_str_radix(size, 8).ok().filter(|_| is_octal).ok_or_else(of_another)?;
    if name.is_empty() || header(name, size, 0) != *block {
        return Err(of_another());
    }
    Ok((name.to_owned(), size))
}
