//! Blocks of tar archives in the form `ustar`, the form of backups and of exports of runs.

/// Bytes of a block.
pub const BLOCK: usize = 512;

/// The largest size that a header can state in octal digits: 8 GiB less one byte.
pub const MAX_SIZE: u64 = 0o77_777_777_777;

/// The header of a file of `len` bytes, at most [`MAX_SIZE`], changed at `at_s` seconds since 1970. Owner and group are 0, and only the
/// owner may read it. `name` has at most 100 bytes.
pub fn header(name: &str, len: u64, at_s: u64) -> [u8; BLOCK] {
    let mut header = [0_u8; BLOCK];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000600\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{len:011o}\0"));
    put(136, &format!("{:011o}\0", at_s.min(MAX_SIZE)));
    // The sum is taken with spaces in its own place.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\0");
    put(263, "00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// Bytes from the end of a file to the end of its last block.
pub fn padding(len: u64) -> usize {
    let rest = (len % BLOCK as u64) as usize;
    if rest == 0 { 0 } else { BLOCK - rest }
}
