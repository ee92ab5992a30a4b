//! Decides when the core is asked how everything stands: for each who asks, and for all who watch
//! together, once a change and not more often than they need it.

use super::clock::Clock;
use super::instances::{Entry, Process};
use crate::core::methods::Editor;
use crate::core::roster::{self, Inquiry, Reply, SessionDocument, Status, Ticket};
use crate::core::{Epoch, Event};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

/// Inquiries that may wait for the core; who comes later waits in turn.
const WAITING: usize = 64;
/// Watchers at once. Each holds one report at the most.
const WATCHERS: usize = 32;
/// The time between two documents for those who watch: ten a second are as good as all.
const PAUSE: Duration = Duration::from_millis(100);

/// How everything stands. It is written out by who asked, and not where the editor's messages pass.
#[derive(Debug)]
pub(super) struct Report {
    process: Arc<Process>,
    status: Status,
    clock: Clock,
    written: OnceLock<Arc<str>>,
}

impl Report {
    /// The document of `GET /status` (A3).
    pub(super) fn document(&self) -> Arc<str> {
        #[derive(Serialize)]
        struct Document<'a> {
            instance: Named<'a>,
            #[serde(flatten)]
            status: roster::Document<'a>,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Named<'a> {
            #[serde(flatten)]
            process: &'a Process,
            #[serde(skip_serializing_if = "Option::is_none")]
            editor: Option<&'a Editor>,
            #[serde(skip_serializing_if = "Option::is_none")]
            protocol_version: Option<u64>,
        }
        let write = || {
            let status = self.told();
            let (editor, protocol_version) =
                (self.status.editor.as_ref(), self.status.protocol_version);
            let instance = Named { process: &self.process, editor, protocol_version };
            written(&Document { instance, status }).into()
        };
        Arc::clone(self.written.get_or_init(write))
    }

    /// The sessions alone: `{"sessions": […]}`.
    pub(super) fn sessions(&self) -> String {
        #[derive(Serialize)]
        struct Sessions<'a> {
            sessions: &'a [SessionDocument<'a>],
        }
        written(&Sessions { sessions: &self.told().sessions })
    }

    fn told(&self) -> roster::Document<'_> {
        self.status.document(|time| self.clock.since_1970(time))
    }
}

/// As JSON, which any of the above can be.
fn written(document: &impl Serialize) -> String {
    serde_json::to_string(document).unwrap_or_default()
}

/// The answer to an inquiry.
#[derive(Debug)]
pub(super) enum Answer {
    Status(Arc<Report>),
    Closed,
    Unknown,
    Busy,
    Reconnecting,
}

/// Asks.
#[derive(Clone, Debug)]
pub(super) struct Asking(mpsc::Sender<Asked>);

/// What those who watch are told; holds the last.
pub(super) type Reports = watch::Receiver<Option<Arc<Report>>>;

#[derive(Debug)]
enum Asked {
    Inquiry(Inquiry, oneshot::Sender<Answer>),
    Watch(oneshot::Sender<Reports>),
}

impl Asking {
    /// Asks the core. `None` if the process is about to end.
    pub(super) async fn ask(&self, inquiry: Inquiry) -> Option<Answer> {
        let (sender, answer) = oneshot::channel();
        self.0.send(Asked::Inquiry(inquiry, sender)).await.ok()?;
        answer.await.ok()
    }

    /// Watches: the document that is there is of now. `None` if too many do.
    pub(super) async fn watch(&self) -> Option<Reports> {
        let (sender, documents) = oneshot::channel();
        self.0.send(Asked::Watch(sender)).await.ok()?;
        documents.await.ok()
    }
}

/// Who waits for a reply of the core.
#[derive(Debug)]
enum Asker {
    One(oneshot::Sender<Answer>),
    Watcher(oneshot::Sender<Reports>),
    /// All who watch, and the record of this process.
    All,
}

/// What was asked of the core, and who is to be told of changes.
#[derive(Debug)]
pub(super) struct Inquiries {
    pub(super) process: Arc<Process>,
    pub(super) clock: Clock,
    /// Our record, if others can find us.
    pub(super) entry: Option<Entry>,
    asking: mpsc::Sender<Asked>,
    asked: mpsc::Receiver<Asked>,
    askers: BTreeMap<Ticket, Asker>,
    tickets: u64,
    reports: watch::Sender<Option<Arc<Report>>>,
    /// Those who watch have not been told of the last change.
    has_changed: bool,
    /// When those who watch may have the next document.
    due: Instant,
}

impl Inquiries {
    pub(super) fn new(process: Process) -> Self {
        let (asking, asked) = mpsc::channel(WAITING);
        Self {
            process: Arc::new(process),
            clock: Clock::start(),
            entry: None,
            asking,
            asked,
            askers: BTreeMap::new(),
            tickets: 0,
            reports: watch::Sender::new(None),
            has_changed: false,
            due: Instant::now(),
        }
    }

    pub(super) fn asking(&self) -> Asking {
        Asking(self.asking.clone())
    }

    /// Waits for the next question to the core. Nothing is lost where this is dropped.
    pub(super) async fn next(&mut self) -> Event {
        let (inquiry, asker) = loop {
            tokio::select! {
                Some(asked) = self.asked.recv() => match asked {
                    // Who waited too long has gone, and does not want it done any more.
                    Asked::Inquiry(_, answer) if answer.is_closed() => {}
                    Asked::Watch(reports) if reports.is_closed() => {}
                    Asked::Inquiry(inquiry, answer) => break (inquiry, Asker::One(answer)),
                    Asked::Watch(reports) => break (Inquiry::Status, Asker::Watcher(reports)),
                },
                () = sleep_until(self.due), if self.has_changed && self.tells_of_changes() => {
                    self.has_changed = false;
                    self.due = Instant::now() + PAUSE;
                    break (Inquiry::Status, Asker::All);
                }
            }
        };
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.askers.insert(ticket, asker);
        Event::Inquiry(ticket, inquiry)
    }

    /// The core says that its status has changed.
    pub(super) fn changed(&mut self) {
        self.has_changed = true;
    }

    /// The core replied. Who asked may have gone.
    pub(super) fn replied(&mut self, ticket: Ticket, reply: Reply) {
        let answer = match reply {
            Reply::Status(status) => Answer::Status(self.report(status)),
            Reply::Closed => Answer::Closed,
            Reply::Unknown => Answer::Unknown,
            Reply::Busy => Answer::Busy,
            Reply::Reconnecting => Answer::Reconnecting,
        };
        match (self.askers.remove(&ticket), answer) {
            (Some(Asker::One(asker)), answer) => drop(asker.send(answer)),
            (Some(Asker::All), Answer::Status(report)) => self.publish(report),
            (Some(Asker::Watcher(asker)), Answer::Status(report))
                if self.reports.receiver_count() < WATCHERS =>
            {
                self.publish(report);
                drop(asker.send(self.reports.subscribe()));
            }
            _ => {}
        }
    }

    fn tells_of_changes(&self) -> bool {
        let lacks_editor = self.entry.as_ref().is_some_and(Entry::lacks_editor);
        lacks_editor || self.reports.receiver_count() > 0
    }

    fn publish(&self, report: Arc<Report>) {
        self.reports.send_if_modified(|last| {
            let is_new =
                last.as_ref().is_none_or(|last| !last.status.says_the_same(&report.status));
            if is_new {
                *last = Some(report);
            }
            is_new
        });
    }

    fn report(&mut self, status: Status) -> Arc<Report> {
        // With the first connection there is an `initialize`, and the only one.
        if let Some(entry) = self.entry.as_mut().filter(|_| status.link.epoch > Epoch(0)) {
            drop(entry.name_editor(status.editor.as_ref()));
        }
        let (process, clock) = (Arc::clone(&self.process), self.clock.clone());
        Arc::new(Report { process, status, clock, written: OnceLock::new() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use crate::core::{Core, Effect, Millis, Settings};
    use tokio::time::timeout;

    /// The inquiries of an instance, and the core that they are put to.
    struct Desk {
        inquiries: Inquiries,
        core: Core,
    }

    impl Desk {
        fn new() -> Self {
            let core = Core::new(Settings::default());
            Self { inquiries: Inquiries::new(Process::new(None)), core }
        }

        /// Puts the next inquiry to the core; `false` where there is none for an hour.
        async fn serve(&mut self) -> bool {
            let hour = Duration::from_secs(3_600);
            let Ok(inquiry) = timeout(hour, self.inquiries.next()).await else { return false };
            let mut effects = Vec::new();
            self.core.step(Millis(0), inquiry, &mut effects);
            for effect in effects {
                match effect {
                    Effect::Reply(ticket, reply) => self.inquiries.replied(ticket, reply),
                    other => panic!("{other:?}"),
                }
            }
            true
        }

        async fn watch(&mut self) -> Reports {
            let asking = self.inquiries.asking();
            let (documents, _) = tokio::join!(asking.watch(), self.serve());
            documents.unwrap()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a3_the_core_is_asked_once_a_change_for_all_who_watch_and_not_where_nobody_does() {
        let mut desk = Desk::new();
        desk.inquiries.changed();
        assert!(!desk.serve().await, "nobody watches");
        let first = desk.watch().await;
        assert!(first.borrow().as_ref().unwrap().document().contains("\"link\""));
        assert!(desk.serve().await, "it changed before somebody watched");
        let watching = [first, desk.watch().await, desk.watch().await];
        assert!(!desk.serve().await, "nothing changed");
        for _ in 0..5 {
            desk.inquiries.changed();
        }
        let start = Instant::now();
        assert!(desk.serve().await);
        assert!(!desk.serve().await, "five changes at once are told once");
        desk.inquiries.changed();
        desk.serve().await;
        desk.inquiries.changed();
        desk.serve().await;
        assert!(start.elapsed() >= PAUSE);
        drop(watching);
        desk.inquiries.changed();
        assert!(!desk.serve().await, "nobody watches any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a4_who_has_gone_is_not_asked_for() {
        let mut desk = Desk::new();
        let asking = desk.inquiries.asking();
        for inquiry in [Inquiry::Status, Inquiry::Reconnect] {
            assert!(timeout(Duration::from_secs(1), asking.ask(inquiry)).await.is_err());
        }
        assert!(timeout(Duration::from_secs(1), asking.watch()).await.is_err());
        assert!(!desk.serve().await);
    }

    #[tokio::test]
    async fn a3_a_document_that_says_the_same_is_not_told_again() {
        let mut desk = Desk::new();
        let mut watching = desk.watch().await;
        watching.borrow_and_update();
        desk.inquiries.changed();
        assert!(desk.serve().await);
        assert!(!watching.has_changed().unwrap());
    }
}
