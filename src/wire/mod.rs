//! Pure codecs between bytes and messages. They know nothing of the rest of the crate.
