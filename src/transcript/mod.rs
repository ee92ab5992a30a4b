//! Scripted transcripts: one text file tells a scenario, and plays against the core in virtual time
//! and against a program with real pipes and sockets, by the same steps.
//!
//! A file holds one JSON object a line; blank lines and lines that begin with `//` are comments.
//! The first object is the [header](format::Header):
//!
//! ```text
//! {"transcript":1,"name":"a prompt is answered on its session's stream","rules":["S6","P1"],"start":"session"}
//! ```
//!
//! `start` plays a silent prelude: `initialized` is a connection `c1` whose stream is open, `session`
//! has a session `s1` and its stream too; the agent offers `capabilities` (`{"loadSession":true}`). Each further object is a step, named by one of its keys:
//!
//! | step | what happens, or what must be |
//! |---|---|
//! | `{"editor":MESSAGE}` | the editor writes these bytes and an LF |
//! | `{"editor_raw":"…","times":2,"lf":false}`, `{"editor_hex":"ff fe"}` | it writes any bytes |
//! | `{"editor_end":true}`, `{"editor_deaf":true}` | it closes the end it writes to, or reads from |
//! | `{"sees":MESSAGE}` | its next line equals this: as JSON, numbers by their text; with `"bytes":true` byte for byte |
//! | `{"sees_like":MESSAGE}` | its next line has at least these keys; the string `*` stands for anything |
//! | `{"sees_any_order":[MESSAGE,…]}` | the next lines are like these, in any order |
//! | `{"gets":{"method":"POST","session":"s1","headers":{…},"body":MESSAGE}}` | the remote got this request; see below |
//! | `{"answers":"p1","status":409,…}` | it answers the request that was named `p1` |
//! | `{"stream":"s1","event":MESSAGE,"id":"7"}` | it sends an event on a session's stream, `null` for the connection's |
//! | `{"stream":"s1","data":"…"}`, `"raw"`, `"hex"`, `"comment"` | any data, bytes, or a comment |
//! | `{"stream":"s1","end":"clean"}`, `"reset"` | the stream ends, as HTTP has it or cut |
//! | `{"remote":"down"}`, `"up"` | it refuses connections and cuts those it has; it is back |
//! | `{"api":"status","expect":{…}}` | a person asks through the API, and the answer has at least this |
//! | `{"api":{"close":"s1"},"expect":"busy"}` | they close a session: `closed`, `unknown` or `busy` |
//! | `{"api":"reconnect"}` | they ask for every stream to be opened again |
//! | `{"pass":"500ms"}` | time passes |
//! | `{"quiet":true}` | nothing came out that no step has taken |
//! | `{"log_has":"…"}`, `{"log_lacks":"…"}` | a line of the log so far holds this text, or none does |
//! | `{"signal":"TERM"}`, `"INT"`, `"HUP"` | the program gets a signal |
//! | `{"exit":0}` | the program ends with this code |
//!
//! **What may wait.** `sees`, `gets`, `stream` and `exit` wait for what they name, for `within`
//! ([`player::WITHIN`] where it is not given). In virtual time that is exact; a live player adds
//! [`live_player::SLACK`] for the machine.
//!
//! **Requests.** `gets` takes the oldest request that no step has taken, of its method and, where it
//! names one, of its `session` (`null`: no session header); that one must match. A header is matched
//! by its value, by `*`, or must not be there (`null`). `body_like` matches as `sees_like` does.
//! `path` and `http` (`1.1` or `2`) are seen by the live player only, as signals and a deaf editor
//! are its own. A POST is answered by its `answer`, later under its `as` name, or else with 202 at
//! once. An answer has a `status`, `headers`, and a `body` or a `text`; or a `how`: `broken` is a
//! connection cut before it, `cut` one in the middle of its body, `hang` never comes. Streams are
//! accepted and DELETEs answered without a step, unless the header says `"streams":"manual"`; an
//! earlier opening of a stream is named by the `as` of its GET: `{"stream":null,"of":"g1",…}`.
//!
//! **The API.** Only the virtual player asks, so far. Its clock begins at second 1 of 1970, and a
//! method of our own that the editor calls (E1) is answered with its name.
//!
//! **Names.** `"save":"q"` keeps the `id` of the message that a step took; `{"$ref":"q"}` stands for
//! it in later messages.
//!
//! At the end nothing may be left over: no line, no POST. A file that is wrong is refused with its
//! line and a reason, one that checks nothing too.

pub mod format;
pub mod json;
pub mod live_player;
pub mod player;
pub mod recording;
pub mod redact;
pub mod remote;
pub mod virtual_player;
