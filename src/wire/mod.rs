//! Pure codecs between bytes and messages. They know nothing of the rest of the crate.
//!
//! [`lines`] cuts the editor's standard input into lines, [`sse`] reads the remote's event
//! streams, [`websocket`] the frames of a socket. All take bytes in whatever pieces they come, hold no
//! more than their limit, and pass on slices of what they were given wherever a message lies whole in one piece.

pub mod lines;
pub mod sse;
pub mod websocket;

/// Appends `piece` to `buffer` in amortised constant time for each byte, but never lets doubling
/// ask for more than `most` bytes as long as the content fits there.
fn gather(buffer: &mut Vec<u8>, piece: &[u8], most: usize) {
    let needed = buffer.len() + piece.len();
    if needed > buffer.capacity() {
        let doubled = buffer.capacity().saturating_mul(2).min(most);
        buffer.reserve_exact(needed.max(doubled) - buffer.len());
    }
    buffer.extend_from_slice(piece);
}
