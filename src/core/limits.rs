//! Every number, in one table.

use super::Millis;

/// Default of `--hold`: how long a message waits for the link or its stream (R1, V1).
pub const HOLD: Millis = Millis(30_000);
/// Default of `--connect-timeout`: how long `initialize` is tried (L3). Below the 10 s after which
/// the first editors give up.
pub const CONNECT_TIMEOUT: Millis = Millis(9_000);
/// Default of `--post-timeout`: how long a POST may stay unanswered (L5).
pub const POST_TIMEOUT: Millis = Millis(60_000);
/// Default of `--max-message-bytes`: the size limit of one message, in both directions.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;
/// The smallest `--max-message-bytes`: below it not even `initialize` passes.
pub const LEAST_MESSAGE_BYTES: usize = 1024;

/// First delay of a backoff; it doubles from here (L12).
pub const BACKOFF_FIRST: Millis = Millis(250);
/// Cap of a backoff (L12).
pub const BACKOFF_CAP: Millis = Millis(15_000);
/// A stream that stayed up this long is healthy: its backoff starts anew (L12).
pub const HEALTHY_AFTER: Millis = Millis(10_000);
/// A stream that lived shorter is hasty; after so many in a row a reconnect is never at once, whatever
/// they delivered (I18).
pub const HASTY: Millis = Millis(1_000);
/// See [`HASTY`].
pub const HASTY_STREAMS: u32 = 3;
/// The longest `Retry-After` that is obeyed.
pub const RETRY_AFTER_CAP: Millis = Millis(300_000);

/// Default of `--orphan-timeout`: how long a reopened stream may be silent before a request whose
/// answer may be lost is given up (R10).
pub const ORPHAN_TIMEOUT: Millis = Millis(600_000);
/// How long after a cancel the agent may confirm it, where the confirmation may be lost (R10).
pub const CANCEL_GRACE: Millis = Millis(5_000);
/// How long 409 to a stream may mean our own old stream (R7).
pub const OLD_STREAM: Millis = Millis(30_000);
/// How long the connection's stream is read that our question replaced (R8).
pub const REPLACED: Millis = Millis(1_000);
/// The silence after which a replay is at its end, and how long it is waited for (R12).
pub const REPLAY_QUIET: Millis = Millis(50);
/// See [`REPLAY_QUIET`].
pub const REPLAY_WAIT: Millis = Millis(2_000);
/// The same where the replay is that of our own restore (V3).
pub const OWN_REPLAY_WAIT: Millis = Millis(20_000);
/// How long after the restore a question of the lost connection is kept (V6).
pub const QUESTION_KEPT: Millis = Millis(2_000);
/// How long one step of our own restore may go unanswered.
pub const RESTORE_TIMEOUT: Millis = Millis(60_000);
/// How often a restore is tried again whose fate is unknown, or during which the connection was lost.
pub const BROKEN_RESTORES: u32 = 5;
/// How long a restore may be what ends the connection: it is known by then (V2).
pub const SUSPECT: Millis = Millis(5_000);
/// Events in which a repeat is looked for (R5).
pub const SEEN_EVENTS: usize = 1_024;
/// Silence is not death before this, whatever the heartbeats (L11).
pub const SILENCE_LEAST: Millis = Millis(10_000);
/// How long after a sleep what had come before it is read (L11).
pub const WAKING: Millis = Millis(250);
/// A timer that comes so late comes after a sleep, or a stop of the process (L11).
pub const LATE: Millis = Millis(1_000);
/// How long the remote gets after such a time before anything is given up because it did not come (L11).
pub const CATCHING_UP: Millis = Millis(5_000);
/// Where streams were not read for so long, they are read for as long before what did not come says anything
/// (L11).
pub const READING: Millis = Millis(1_000);
/// Heartbeats that are learnt from (L11).
pub const HEARTBEATS: usize = 3;

/// How often a socket is asked whether it lives (W3).
pub const PING: Millis = Millis(20_000);
/// The silence after which a socket is dead (W3).
pub const SOCKET_SILENCE: Millis = Millis(30_000);
/// The same where there is reason to doubt it.
pub const PONG: Millis = Millis(5_000);

/// How long open requests get for their answers after the end of input (S7).
pub const GRACE: Millis = Millis(500);
/// How long after the end of input the DELETE is sent at the latest (S7).
pub const FLUSH: Millis = Millis(1_500);
/// How long after the end of input the process is gone at the latest (S7).
pub const EXIT: Millis = Millis(1_900);

/// Bytes of messages that wait for the remote (P6). One message is always taken.
pub const REMOTE_QUEUE_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of lines that wait for the editor; past it the remote is not read (P6).
pub const EDITOR_QUEUE_BYTES: usize = 4 * 1024 * 1024;
/// POSTs under way at once; each may cost a connection where the server speaks HTTP/1.1 only.
/// Answers to the agent's questions do not wait for it.
pub const POSTS_AT_ONCE: usize = 64;
/// Sessions that are summarised. Past it the one is forgotten that was quiet for longest and of which
/// nothing else is kept.
pub const SUMMARIES: usize = 1_000;
/// Bytes of a title, of a reason or of a name that are kept for the roster.
pub const SUMMARY_TEXT: usize = 1_024;
/// Bytes of a refusing body that are shown in `data.body` (L10).
pub const ERROR_BODY_BYTES: usize = 8 * 1024;
/// How far behind "connection" a 400 may say what is wrong with it, in words: "connection with id c1 does
/// not exist" (L10).
pub const WORDS_APART: usize = 5;
/// Redirects followed for one request (L8).
pub const REDIRECTS: usize = 5;
