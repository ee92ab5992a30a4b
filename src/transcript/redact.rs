//! Decides what of a message a recording may show: what the protocol gives meaning to stays, what a
//! person or an agent wrote becomes a placeholder of the same length.
//!
//! Everything between the strings of a message stays byte for byte, so that limits and framing act on
//! a recording as they did on what was recorded. A placeholder follows from its string and a key that
//! lives as long as the process: equal strings have equal ones, and nobody guesses a string from it.

use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// Members whose strings name something that messages refer to. They stay as they are.
const IDS: &str = "\
    sessionId requestId toolCallId terminalId messageId optionId modeId currentModeId modelId \
    currentModelId methodId configId elicitationId planId compactionId";

/// Those that do so at the top of a message only.
const OF_A_MESSAGE: &str = "jsonrpc id method";

/// Lists of the protocol whose entries have an `id` that messages refer to.
const LISTS: &str = "\
    authMethods availableModes availableModels configOptions models options";

/// Members whose strings say of which kind something is. They stay where they are [`VALUES`].
const WORDS: &str = "\
    sessionUpdate type kind status state stopReason outcome action role priority delivery mode \
    category";

/// What the protocol, in its versions 1 and 2, and our own errors have such members say.
const VALUES: &str = "\
    user_message_chunk user_message agent_message_chunk agent_message agent_thought_chunk \
    agent_thought session_message session_message_chunk state_update tool_call tool_call_update \
    tool_call_content_chunk terminal_update terminal_output_chunk plan plan_update plan_removed \
    available_commands_update current_mode_update config_option_update session_info_update \
    usage_update notice compaction_update compaction_summary_chunk subagent_update text image \
    audio resource_link resource content diff terminal session items file markdown start object \
    string number integer boolean array select value_id id command subagent agent http sse acp \
    stdio read edit delete move search execute think fetch switch_mode other pending \
    in_progress paused completed failed cancelled running idle requires_action open saved \
    waiting end_turn max_tokens max_turn_requests refusal error selected allow_once \
    allow_always reject_once reject_always accept decline cancel form url assistant user high \
    medium low mode model model_config thought_level connect auth conflict stream_lost \
    connection_lost session_lost too_large overloaded config unsent refused accepted unknown up \
    down connecting reconnecting";

/// Members that the protocol has too. What they hold is looked into; their strings are content.
const MEMBERS: &str = "\
    params result error code signal protocolVersion message data body update content text title prompt cwd mcpServers \
    additionalDirectories replayFrom name description command args url uri mimeType blob \
    resource annotations audience lastModified size path line limit oldText newText diff \
    locations entries plan toolCall options availableCommands input hint exitStatus exitCode \
    output truncated outputByteLimit timeout modes availableModes models availableModels \
    configOptions value currentValue groups group cost used usage inputTokens outputTokens \
    totalTokens amount currency clientCapabilities agentCapabilities capabilities clientInfo \
    agentInfo info version authMethods loadSession promptCapabilities image audio \
    embeddedContext mcpCapabilities mcp http sse sessionCapabilities session sessions list \
    resume fork close delete auth logout fs readTextFile writeTextFile terminal";

/// What is asked for by name in a body (C2); it stays wherever it stands.
const RELOAD: &str = "session_reload_required";
/// What a refusing body says of the connection (L10), between bars; these stay in text that is no JSON,
/// and in the strings of a refusal.
const TELLING: &str = "\
    connection-id|connection id|connectionid|connection|not initialized|uninitialized|unknown|\
    not found|no such|not exist|invalid|missing|required|expired|closed|lost|gone";
/// Placeholders with at most so many letters are told apart by a table, longer ones by their length.
const SHORT: usize = 8;
const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
/// Letters that one number gives.
const LETTERS_A_NUMBER: usize = 10;

fn is_one_of(words: &str, word: &str) -> bool {
    words.split(' ').any(|one| one == word)
}

/// What a member is to a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// Its string names something.
    Id,
    /// Its string says of which kind something is.
    Word,
    /// The protocol has it; its strings are content.
    Content,
    /// Nobody knows what it holds: its strings are content, and so are the names of members in it.
    Opaque,
    /// It holds secrets, which stay hidden where content is shown.
    Secret,
}

impl Member {
    /// A member of an object that stands so deep, in the member `holder`.
    fn named(name: &str, holder: &str, depth: usize) -> Self {
        match name {
            // Of MCP servers and of terminals.
            "env" | "headers" => Self::Secret,
            _ if is_one_of(IDS, name) => Self::Id,
            _ if is_one_of(WORDS, name) => Self::Word,
            _ if is_one_of(OF_A_MESSAGE, name) && depth == 1 => Self::Id,
            "id" if is_one_of(LISTS, holder) => Self::Id,
            _ if is_one_of(OF_A_MESSAGE, name) || is_one_of(MEMBERS, name) => Self::Content,
            _ => Self::Opaque,
        }
    }
}

/// A string of a JSON text.
#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    /// What is between its quotes, as it is written.
    pub raw: &'a str,
    /// It is the name of a member.
    pub is_name: bool,
    /// What the member is that it names, or that holds it.
    pub member: Member,
}

impl Token<'_> {
    /// Whether a recording shows it.
    pub fn may_stay(&self) -> bool {
        match (self.member, self.is_name) {
            (Member::Opaque | Member::Secret, _) => false,
            (_, true) | (Member::Id, _) => true,
            (Member::Word, _) => is_one_of(VALUES, self.raw),
            (Member::Content, _) => false,
        }
    }
}

/// Writes a valid JSON text anew, with `replace` for each string, quotes included; where it gives
/// nothing the string stays. Everything else stays byte for byte.
pub fn each_string(json: &str, mut replace: impl FnMut(Token<'_>) -> Option<String>) -> String {
    let mut written = String::with_capacity(json.len());
    let mut stack: Vec<Inside<'_>> = Vec::new();
    let mut rest = json;
    while let Some(at) = rest.find(['"', '{', '[', '}', ']', ',']) {
        let (before, from) = rest.split_at(at);
        written.push_str(before);
        if !from.starts_with('"') {
            let (mark, after) = from.split_at(1);
            written.push_str(mark);
            match (mark, stack.last_mut()) {
                ("{" | "[", around) => {
                    let inside = Inside::within(around.as_deref(), from);
                    stack.push(inside);
                }
                (",", Some(inside)) => inside.expects_name = inside.is_object,
                (",", None) => {}
                _ => drop(stack.pop()),
            }
            rest = after;
            continue;
        }
        let length = string_length(from);
        let (token, after) = from.split_at(length);
        let raw = token.get(1..length.saturating_sub(1)).unwrap_or_default();
        let depth = stack.len();
        let token = match stack.last_mut() {
            Some(inside) => {
                let is_name = std::mem::take(&mut inside.expects_name);
                if is_name {
                    inside.name = raw;
                    let named = || Member::named(&decoded(raw), inside.holder, depth);
                    inside.member = inside.hidden.unwrap_or_else(named);
                }
                Token { raw, is_name, member: inside.member }
            }
            None => Token { raw, is_name: false, member: Member::Content },
        };
        match replace(token) {
            Some(other) => written.push_str(&other),
            None => written.push_str(&from[..length]),
        }
        rest = after;
    }
    written.push_str(rest);
    written
}

/// An object or an array that is being read.
struct Inside<'a> {
    is_object: bool,
    /// All in it is hidden, for this reason.
    hidden: Option<Member>,
    /// The member that it is in.
    holder: &'a str,
    /// The member of it that is being read; in an array, the one that the array is in.
    name: &'a str,
    member: Member,
    expects_name: bool,
}

impl<'a> Inside<'a> {
    /// What begins with `text`.
    fn within(around: Option<&Inside<'a>>, text: &str) -> Self {
        let is_object = text.starts_with('{');
        let holder = around.map_or("", |around| around.name);
        let hidden = around.and_then(|around| {
            let is_answer = around.is_object && around.holder == "result";
            let is_unknown = is_object && holder == "content" && (is_answer || !has_type(text));
            let inherited = matches!(around.member, Member::Opaque | Member::Secret);
            let own = inherited.then_some(around.member);
            around.hidden.or(own).or(is_unknown.then_some(Member::Opaque))
        });
        // Of a member that is a name or a word itself, nobody knows what a list of them is.
        let member = hidden.unwrap_or(Member::Content);
        Self { is_object, hidden, holder, name: holder, member, expects_name: is_object }
    }
}

/// Whether a text begins with an object whose `type` is one of the protocol.
fn has_type(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Typed<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
    }
    let mut objects = serde_json::Deserializer::from_str(text).into_iter::<Typed<'_>>();
    matches!(objects.next(), Some(Ok(Typed { kind })) if is_one_of(VALUES, &kind))
}

/// What a recording shows of a JSON text where it shows content.
pub fn without_secrets(text: &str) -> String {
    each_string(text, |token| {
        let is_secret = token.member == Member::Secret && !token.is_name;
        is_secret.then(|| format!("\"{}\"", "x".repeat(token.raw.len())))
    })
}

/// The length of the string that a text begins with, its quotes included.
fn string_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while let Some(next) = memchr::memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
        at += next;
        if bytes.get(at) == Some(&b'"') {
            return at + 1;
        }
        at += 2;
    }
    text.len()
}

/// Makes placeholders.
#[derive(Debug, Default)]
pub struct Placeholders {
    key: RandomState,
    /// The short placeholders that are given, and to what.
    short: BTreeMap<String, u64>,
}

impl Placeholders {
    /// What stands for what is between the quotes of a JSON string: letters, digits, `-` and `_`, as many bytes
    /// as there were. Half of a character's escape stays, and so do the line separators, because the
    /// program treats them in their own way (S2, S5); so do, in a
    /// refusal, the words that tell of the connection.
    pub fn of(&mut self, raw: &str, is_refusal: bool) -> String {
        let digest = self.key.hash_one(decoded(raw));
        let stays = stays(raw, is_refusal);
        let letters = raw.len() - stays.iter().map(Range::len).sum::<usize>();
        let mut attempt = 0;
        loop {
            let placeholder = self.letters(digest, attempt, raw, &stays);
            // Where all short ones are given, two strings have the same one.
            if letters > SHORT || attempt == 256 {
                return placeholder;
            }
            if *self.short.entry(placeholder.clone()).or_insert(digest) == digest {
                return placeholder;
            }
            attempt += 1;
        }
    }

    /// The letters in which a string is written, but for the parts that stay.
    fn letters(&self, digest: u64, attempt: u64, raw: &str, stays: &[Range<usize>]) -> String {
        let mut written = raw.as_bytes().to_vec();
        let (mut at, end, mut block) = (0, raw.len(), 0_u64);
        for stay in stays.iter().cloned().chain(std::iter::once(end..end)) {
            for letters in written[at..stay.start].chunks_mut(LETTERS_A_NUMBER) {
                let mut number = self.key.hash_one((digest, attempt, block));
                for letter in letters {
                    *letter = LETTERS[usize::from(number.to_le_bytes()[0] % 64)];
                    number >>= 6;
                }
                block += 1;
            }
            at = stay.end;
        }
        // What stays is whole characters.
        String::from_utf8(written).unwrap_or_default()
    }
}

/// What a string says, for the purpose of telling strings apart.
fn decoded(raw: &str) -> Cow<'_, str> {
    if memchr::memchr(b'\\', raw.as_bytes()).is_none() {
        return raw.into();
    }
    serde_json::from_str::<String>(&format!("\"{raw}\"")).map_or(raw.into(), Into::into)
}

/// The parts of a string that stay, in order.
fn stays(raw: &str, is_refusal: bool) -> Vec<Range<usize>> {
    let mut stays = Vec::new();
    if !is_refusal && memchr::memchr2(b'\\', 0xE2, raw.as_bytes()).is_none() {
        return stays;
    }
    let mut at = 0;
    while let Some(next) = raw[at..].chars().next() {
        let (length, is_kept) = match (next, word_at(&raw[at..], is_refusal)) {
            (_, Some(length)) => (length, true),
            ('\u{2028}' | '\u{2029}', _) => (next.len_utf8(), true),
            ('\\', _) => escape(&raw[at..]),
            _ => (next.len_utf8(), false),
        };
        if is_kept {
            stays.push(at..at + length);
        }
        at += length;
    }
    stays
}

/// The length of the telling word that a text of a refusal begins with.
fn word_at(text: &str, is_refusal: bool) -> Option<usize> {
    let begins =
        |word: &&str| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    TELLING.split('|').filter(|_| is_refusal).find(begins).map(str::len)
}

/// The length of the escape that a text begins with, and whether it stays.
fn escape(text: &str) -> (usize, bool) {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u32::from_str_radix(digits, 16).ok()
    };
    match (unit(0), unit(6)) {
        (Some(0xD800..0xDC00), Some(0xDC00..0xE000)) => (12, false),
        (Some(0xD800..0xE000 | 0x2028 | 0x2029), _) => (6, true),
        (Some(_), _) => (6, false),
        // The backslash and what follows it; the words of others need not be JSON.
        (None, _) => (text.chars().take(2).map(char::len_utf8).sum(), false),
    }
}

/// What a recording shows of a JSON text.
pub fn json(text: &str, placeholders: &mut Placeholders, is_refusal: bool) -> String {
    each_string(text, |token| {
        let stays = token.may_stay() || token.raw == RELOAD;
        (!stays).then(|| format!("\"{}\"", placeholders.of(token.raw, is_refusal)))
    })
}

/// What a recording shows of bytes that are no JSON. What holds JSON together and what no text has
/// stays, so that they are wrong for the same reason.
pub fn bytes(bytes: &[u8], is_refusal: bool) -> Vec<u8> {
    let mut shown = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(next) = rest.chars().next() {
            let word = word_at(rest, is_refusal);
            let (part, after) = rest.split_at(word.unwrap_or(next.len_utf8()));
            shown.extend(part.bytes().map(|byte| match byte {
                _ if word.is_some() => byte,
                b'0'..=b'9' => b'0',
                b'a'..=b'z' | b'A'..=b'Z' | 0x80.. => b'x',
                mark => mark,
            }));
            rest = after;
        }
        shown.extend(chunk.invalid().iter().map(|_| 0xFF));
    }
    shown
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let shown = json(text, &mut Placeholders::default(), false);
        assert_eq!(shown.len(), text.len(), "{text}\n{shown}");
        shown
    }

    #[test]
    fn what_the_protocol_gives_meaning_to_stays() {
        for text in [
            r#"{"jsonrpc":"2.0","id":"a b","method":"session/update","params":{"sessionId":"s ü"}}"#,
            r#"{"params":{"update":{"sessionUpdate":"tool_call","kind":"edit","status":"pending"}}}"#,
            r#"{"params":{"update":{"content":[{"content":{"type":"audio"},"type":"content"}]}}}"#,
            r#"{"result":{"stopReason":"end_turn","used":[1e400,true,null]}}"#,
            r#"{"result":{"authMethods":[{"id":"a b"}],"modes":{"availableModes":[{"id":"m"}]}}}"#,
            r#"{"params":{"options":[{"optionId":"yes!","kind":"allow_once"}]}}"#,
            r#"{"error":{"code":"session_reload_required"}}"#,
        ] {
            assert_eq!(shown(text), text);
        }
    }

    #[test]
    fn x1_words_that_are_no_json_are_replaced_as_others_are() {
        for words in ["\\é", "é\\", r"\u12é", r"\ud83d\é"] {
            let shown = Placeholders::default().of(words, false);
            assert!(!shown.contains('é'), "{words} {shown}");
        }
    }

    #[test]
    fn a_member_is_known_however_its_name_is_written() {
        let text = r#"{"params":{"session\u0049d":"demo-5"}}"#;
        assert_eq!(shown(text), text);
    }

    #[test]
    fn what_somebody_wrote_does_not() {
        for text in [
            r#"{"params":{"prompt":[{"type":"text","text":"SECRET"}]}}"#,
            r#"{"params":{"update":{"rawInput":{"SECRET":1,"kind":"SECRET","id":["SECRET"]}}}}"#,
            r#"{"params":{"mcpServers":[{"env":[{"name":"SECRET","value":"SECRET"}],"name":"SECRET"}]}}"#,
            r#"{"params":{"_meta":{"sessionId":"SECRET"},"vendor":"SECRET"}}"#,
            r#"{"error":{"message":"SECRET","data":{"SECRET":{"id":"SECRET"}}}}"#,
            r#"{"params":{"update":{"kind":"SECRET"}}}"#,
            r#"{"result":{"action":"accept","content":{"code":"SECRET","state":"SECRET","id":"SECRET"}}}"#,
            r#"{"result":{"content":{"type":"text","sessionId":"SECRET","SECRET":1}}}"#,
            r#"{"params":{"update":{"content":{"sessionId":"SECRET","SECRET":1}}}}"#,
            r#"{"params":{"content":[{"type":"SECRET","sessionId":"SECRET"}]}}"#,
            r#"{"params":{"methodId":"oauth","code":"SECRET","id":"SECRET","method":"SECRET"}}"#,
            r#"{"id":["SECRET"],"params":{"sessionId":["SECRET"],"options":[{"id":{"id":"SECRET"}}]}}"#,
            r#""SECRET""#,
            r#"["SECRET",["SECRET"]]"#,
        ] {
            assert!(!shown(text).contains("SECRET"), "{text}\n{}", shown(text));
        }
    }

    #[test]
    fn equal_strings_have_equal_placeholders_and_others_have_others() {
        let mut placeholders = Placeholders::default();
        let mut of = |text: &str| placeholders.of(text, false);
        let words: Vec<String> = (0..2_000).map(|number| format!("{number:x}")).collect();
        let first: Vec<String> = words.iter().map(|word| of(word)).collect();
        let again: Vec<String> = words.iter().map(|word| of(word)).collect();
        assert_eq!(first, again);
        let different: std::collections::BTreeSet<_> = first.iter().collect();
        assert_eq!(different.len(), words.len());
        assert_ne!(Placeholders::default().of("a secret", false), of("a secret"));
    }

    #[test]
    fn the_raw_length_stays_with_escapes_and_long_characters() {
        for text in [r#"{"text":"a\n\"\\ ü€𝄞\u00e9\ud834\udd1e end"}"#, r#"["\\"]"#, r#"{"":""}"#]
        {
            assert!(shown(text).is_ascii(), "{text}");
        }
    }

    #[test]
    fn s5_line_separators_stay_and_change_nothing_else() {
        let mut placeholders = Placeholders::default();
        let raw = placeholders.of("one\u{2028}two", false);
        let escaped = placeholders.of("one\\u2028two", false);
        assert_eq!(raw.replace('\u{2028}', "\\u2028"), escaped);
        assert_eq!(&placeholders.of(r"\ud800", false), r"\ud800");
    }

    #[test]
    fn between_the_strings_nothing_changes() {
        let text = "{ \"text\" :\t\"abc\" ,\"x\":[ \"d\" , 1.0e+5 ]\r}";
        let shown = shown(text);
        assert!(shown.starts_with("{ \"text\" :\t\"") && shown.contains("\" ,\""), "{shown}");
        assert!(shown.ends_with(" , 1.0e+5 ]\r}"), "{shown}");
    }

    #[test]
    fn bytes_that_are_no_json_stay_so() {
        for wrong in [&b"{\"a\":tru"[..], b"{\"key\":01}", b"secret", b"{\"t\":\"\xFF\"}", b"1 2"] {
            let shown = bytes(wrong, false);
            assert_eq!(shown.len(), wrong.len());
            let is_json = serde_json::from_slice::<&serde_json::value::RawValue>(&shown).is_ok();
            assert!(!is_json, "{}", String::from_utf8_lossy(&shown));
        }
        assert_eq!(bytes(b"my secret 42", false), b"xx xxxxxx 00");
    }

    #[test]
    fn l10_a_refusal_still_speaks_of_the_connection() {
        let text = "No such Connection: abc";
        assert_eq!(bytes(text.as_bytes(), true), b"No such Connection: xxx");
        let body =
            json(r#"{"error":"unknown connection abc"}"#, &mut Placeholders::default(), true);
        assert!(body.contains("unknown") && body.contains("connection"), "{body}");
        assert!(!body.contains("abc"), "{body}");
    }
}
