//! The scripted editor: what it writes for each deed, and what it does about what it sees.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::chance::Chance;
use super::checks::{Request, Seen};
use super::faults::Deed;

/// See the module's page.
#[derive(Debug)]
pub struct Editor {
    chance: Chance,
    version: u8,
    /// Its messages so far: the next has this number `_k`.
    written: u64,
    /// The sessions that it learnt of, oldest first.
    pub sessions: Vec<String>,
    /// The questions before the person: our ids, raw, and what is asked.
    questions: BTreeMap<String, u64>,
    /// The questions that have been before the person.
    past: BTreeMap<String, u64>,
    /// The ids of its open requests, the newest last.
    open: Vec<String>,
    /// Every id so far.
    used: BTreeSet<String>,
    /// The newest id of the core's own.
    pub own: Option<String>,
    /// `initialize` was answered with a result.
    pub is_up: bool,
    asks_for_link: bool,
    /// Sessions whose last request was answered with a result.
    pub sound: BTreeSet<String>,
    /// Which round of probes runs in the calm; 0 before the first.
    pub probed: u8,
    /// Its messages before the first probe.
    pub first_probe: u64,
}

/// What it writes.
#[derive(Clone, Debug)]
pub enum Written {
    /// A request.
    Request(Rc<Request>),
    /// A notification, or an answer to a question; by its number `_k`.
    Other(u64, String),
    /// A line that is refused with this code under this id, raw.
    Refused(String, i64, String),
    /// It ends.
    End,
}

/// What it does later about what it saw.
#[derive(Clone, Debug)]
pub enum Later {
    /// It answers this question.
    Answer(String),
    /// It does this.
    Deed(Deed),
}

impl Editor {
    /// An editor that has written nothing yet.
    pub fn new(seed: u64, version: u8) -> Self {
        Self {
            chance: Chance::new(seed, 4),
            version,
            written: 0,
            sessions: Vec::new(),
            questions: BTreeMap::new(),
            past: BTreeMap::new(),
            open: Vec::new(),
            used: BTreeSet::new(),
            own: None,
            is_up: false,
            asks_for_link: false,
            sound: BTreeSet::new(),
            probed: 0,
            first_probe: 0,
        }
    }

    /// A round of probes begins.
    pub fn probes(&mut self, round: u8) {
        if self.probed == 0 {
            self.first_probe = self.written;
        }
        self.probed = round;
    }

    /// What it writes for a deed; `None` where the deed makes no sense at present.
    pub fn does(&mut self, deed: Deed) -> Option<Written> {
        let session = |editor: &Self, number: u8| {
            let count = editor.sessions.len();
            (count > 0).then(|| editor.sessions[usize::from(number) % count].clone())
        };
        let setup = r#""cwd":"/w","mcpServers":[]"#;
        match deed {
            Deed::Initialize => {
                if !self.is_up {
                    self.asks_for_link = true;
                }
                let params = format!(r#"{{"protocolVersion":{}}}"#, self.version);
                Some(self.request("initialize", None, &params))
            }
            Deed::SignIn => {
                let method = if self.version == 2 { "auth/login" } else { "authenticate" };
                Some(self.request(method, None, r#"{"methodId":"m"}"#))
            }
            Deed::New => Some(self.request("session/new", None, &format!("{{{setup}}}"))),
            Deed::Prompt(number) => self.of_session("session/prompt", session(self, number)?, ""),
            Deed::SetMode(number) => {
                self.of_session("session/set_mode", session(self, number)?, r#","modeId":"m""#)
            }
            Deed::Load(number) => {
                self.of_session("session/load", session(self, number)?, &format!(",{setup}"))
            }
            Deed::Resume(number) => {
                let replay = self.version == 2 && self.chance.one_in(4);
                let replay = if replay { r#","replayFrom":{"type":"start"}"# } else { "" };
                let session = session(self, number)?;
                self.of_session("session/resume", session, &format!(",{setup}{replay}"))
            }
            Deed::Close(number) => self.of_session("session/close", session(self, number)?, ""),
            Deed::Other(number) => self.of_session("_x/other", session(self, number)?, ""),
            Deed::List => Some(self.request("session/list", None, "{}")),
            Deed::Cancel(number) => {
                let session = session(self, number)?;
                Some(self.other(&format!(
                    r#""method":"session/cancel","params":{{"sessionId":"{session}"}}"#
                )))
            }
            Deed::CancelRequest => {
                let id = self.open.last()?;
                Some(self.other(&format!(
                    r#""method":"$/cancel_request","params":{{"requestId":{id}}}"#
                )))
            }
            Deed::Bad(which) => Some(bad(which)),
            Deed::SameId => {
                let id = self.open.last()?.clone();
                let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"session/list"}}"#);
                Some(Written::Refused(id, -32600, line))
            }
            Deed::AnswerAgain => {
                let (id, ask) = self.past.iter().next_back()?;
                let text = format!(r#""id":{id},"result":{{"ask":{ask}}}"#);
                Some(self.other(&text))
            }
            Deed::AnswerNobody => Some(self.other(r#""id":"acp-tether-77777","result":{"ask":0}"#)),
            Deed::End => Some(Written::End),
        }
    }

    /// The answer to a question, if it is still before the person.
    pub fn answers(&mut self, id: &str) -> Option<Written> {
        let ask = self.questions.remove(id)?;
        self.past.insert(id.to_owned(), ask);
        Some(self.other(&format!(r#""id":{id},"result":{{"ask":{ask}}}"#)))
    }

    /// The questions before the person.
    pub fn questions(&self) -> impl ExactSizeIterator<Item = &String> {
        self.questions.keys()
    }

    /// It sees a line. What it does about it, and in how many milliseconds.
    pub fn sees(&mut self, seen: &Seen, is_calm: bool) -> Option<(u64, Later)> {
        match seen {
            Seen::Answer { request, result } => self.answered(request, result.as_deref(), is_calm),
            Seen::Question { id, ask } => {
                self.questions.insert(id.clone(), *ask);
                let delay = match self.chance.below(8) {
                    _ if is_calm => 10,
                    0 => return None,
                    1 | 2 => self.chance.between(1_000, 60_000),
                    _ => self.chance.between(1, 500),
                };
                Some((delay, Later::Answer(id.clone())))
            }
            Seen::Withdrawn { id } => {
                if let Some(ask) = self.questions.remove(id) {
                    self.past.insert(id.clone(), ask);
                }
                None
            }
            Seen::Other => None,
        }
    }

    fn answered(
        &mut self,
        request: &Request,
        result: Option<&str>,
        is_calm: bool,
    ) -> Option<(u64, Later)> {
        self.open.retain(|id| *id != request.id);
        if let Some(session) = &request.session {
            match result {
                Some(_) if request.method != "session/close" => self.sound.insert(session.clone()),
                _ => self.sound.remove(session),
            };
        }
        match (request.method.as_str(), result) {
            ("initialize", Some(_)) => {
                self.is_up = true;
                self.asks_for_link = false;
                None
            }
            ("initialize", None) if !self.is_up => {
                self.asks_for_link = false;
                Some((1_000, Later::Deed(Deed::Initialize)))
            }
            ("session/new", Some(result)) => {
                let named = result.split("\"sessionId\":\"").nth(1)?;
                let session = named.split('"').next()?.to_owned();
                self.sound.insert(session.clone());
                if !self.sessions.contains(&session) {
                    self.sessions.push(session);
                }
                None
            }
            // A person tries again: mostly another prompt, at times a load.
            ("session/prompt", None) if !is_calm && self.chance.one_in(3) => {
                let session = request.session.as_ref()?;
                let number = self.sessions.iter().position(|known| known == session)?;
                let deed = if self.chance.one_in(2) { Deed::Load } else { Deed::Resume };
                Some((self.chance.between(1, 2_000), Later::Deed(deed(number as u8))))
            }
            _ => None,
        }
    }

    /// Whether the core may refuse requests because the link was never up.
    pub fn may_be_idle(&self) -> bool {
        !self.is_up
    }

    fn of_session(&mut self, method: &str, session: String, more: &str) -> Option<Written> {
        let params = format!(r#"{{"sessionId":"{session}"{more}}}"#);
        Some(self.request(method, Some(session), &params))
    }

    fn request(&mut self, method: &str, session: Option<String>, params: &str) -> Written {
        self.written += 1;
        let number = self.written;
        let id = match self.chance.below(12) {
            0 => format!("\"e-{number}\""),
            1 => format!("{number}.0"),
            2 => format!("\"{number}\""),
            // An id that the core may be about to take.
            3 => {
                let ahead = self.chance.between(1, 4);
                let own = self.own.as_deref().and_then(|own| own.rsplit_once('-'));
                let next = |(run, last): (&str, &str)| {
                    Some((run.to_owned(), last.parse::<u64>().ok()? + ahead))
                };
                match own.and_then(next) {
                    Some((run, next)) => format!("\"{run}-{next}\""),
                    None => number.to_string(),
                }
            }
            _ => number.to_string(),
        };
        let id = if self.used.insert(id.clone()) { id } else { number.to_string() };
        let line = if self.chance.one_in(4) {
            format!(
                "{{ \"_k\":{number}, \"method\":\"{method}\",\"params\":{params} ,\"id\": {id},\"jsonrpc\":\"2.0\"}}"
            )
        } else {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params},"_k":{number}}}"#
            )
        };
        self.open.push(id.clone());
        let method = method.to_owned();
        Written::Request(Rc::new(Request { number, id, method, session, line }))
    }

    fn other(&mut self, text: &str) -> Written {
        self.written += 1;
        let number = self.written;
        Written::Other(number, format!(r#"{{"jsonrpc":"2.0",{text},"_k":{number}}}"#))
    }
}

/// Lines that are no message, and what each is refused with (S2, S3).
fn bad(which: u8) -> Written {
    let (id, code, line) = match which {
        0 => ("null", -32700, "{"),
        1 => ("null", -32700, "hello"),
        2 => ("null", -32600, "[]"),
        3 => ("null", -32600, r#"[{"jsonrpc":"2.0","id":1,"method":"x"}]"#),
        4 => ("\"bad\"", -32600, r#"{"jsonrpc":"2.0","id":"bad"}"#),
        5 => ("\"bad\"", -32600, r#"{"jsonrpc":"1.0","id":"bad","method":"x"}"#),
        6 => ("null", -32600, r#"{"jsonrpc":"2.0","id":[1],"method":"x"}"#),
        _ => ("null", -32600, "7"),
    };
    Written::Refused(id.to_owned(), code, line.to_owned())
}
