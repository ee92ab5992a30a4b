//! Scripted transcripts: one text file tells a scenario, and plays against the core in virtual time
//! and against a program with real pipes and sockets, by the same steps.
//!
//! The format is written down in `docs/TRANSCRIPTS.md`, for people, and in
//! `schemas/transcript.schema.json`, a line at a time. A file is read by [`mod@format`]; what a step means
//! is decided once, in [`player`], on a [`Stage`](player::Stage): the world as a player has it.
//!
//! | file | decides |
//! |---|---|
//! | [`mod@format`] | what a file says, or why it is none |
//! | [`player`] | what a step means, and whether it holds |
//! | [`json`] | where two messages differ |
//! | [`virtual_player`] | how the core alone is a world, with a clock that jumps |
//! | [`live_player`] | how a program is one, and which files it cannot be asked |
//! | `frames` | nothing: the frames of a scripted socket |
//! | [`remote`] | nothing: the scripted remote of the live player |
//! | [`recording`] | which steps a conversation becomes, as it happens |
//! | [`redact`] | what of a message a recording shows |

pub mod format;
mod frames;
pub mod json;
pub mod live_player;
pub mod player;
pub mod recording;
pub mod redact;
pub mod remote;
pub mod virtual_player;
