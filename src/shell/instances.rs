//! Decides where the processes of one user find each other (A2): one record a process, in a directory
//! that nobody else can read or write.

use super::clock;
use super::token::Token;
use crate::config::{self, Remote};
use crate::core::methods::Editor;
use crate::lock::lock;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, FileTimes, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::task::{JoinHandle, spawn_blocking};

/// The variable that names the user's runtime directory.
const RUNTIME_DIRECTORY: &str = "XDG_RUNTIME_DIR";
const RECORD: &str = "json";
const DRAFT: &str = "draft";
/// A draft that is so old was left by a process that was killed.
const DRAFT_LEFT: Duration = Duration::from_secs(60);
/// A record is smaller than this. A larger file is none.
const RECORD_BYTES: u64 = 64 * 1024;

/// What a process is, whatever happens to its session (A3).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    /// Names it; unique.
    pub id: String,
    /// Its process id.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// When it started, in milliseconds since 1970.
    pub started_at: u64,
    /// The URL of its remote, redacted (X1).
    pub remote: String,
}

impl Process {
    /// This one, with its remote.
    pub(super) fn new(remote: Option<&Remote>) -> Self {
        Self {
            id: format!("{:016x}", RandomState::new().build_hasher().finish()),
            pid: process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: clock::now(),
            remote: remote.map(|remote| config::redacted(&remote.url)).unwrap_or_default(),
        }
    }
}

/// What a process tells of itself. Whoever can read it may call its API.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The process.
    #[serde(flatten)]
    pub process: Process,
    /// The port of its API at 127.0.0.1.
    pub port: u16,
    /// What its API asks for.
    pub token: Token,
    /// Its editor, once that has said who it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub editor: Option<Editor>,
}

/// The directory of the records.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// The directory below `given` (`--runtime-dir`), else below that of the system for this user,
    /// made where it is not there.
    ///
    /// # Errors
    /// It cannot be made, or it is somebody else's, or open to others.
    pub fn open(given: Option<&Path>) -> io::Result<Self> {
        let parent = match given {
            Some(given) => {
                fs::create_dir_all(given)?;
                given.to_owned()
            }
            None => runtime_directory()?,
        };
        let directory = Self(parent.join("acp-tether").join("instances"));
        directory.make()?;
        Ok(directory)
    }

    fn make(&self) -> io::Result<()> {
        self.0.parent().map_or(Ok(()), make_private)?;
        make_private(&self.0)
    }

    /// Puts a record there. It is there whole, or not at all.
    fn put(&self, record: &Record) -> io::Result<()> {
        let draft = self.path(&record.process.id, DRAFT);
        let written = create_private(&draft)
            .and_then(|mut file| file.write_all(&serde_json::to_vec(record)?))
            .and_then(|()| fs::rename(&draft, self.path(&record.process.id, RECORD)));
        if written.is_err() {
            // There may be none.
            let _ = fs::remove_file(&draft);
        }
        written
    }

    /// Keeps a record there: it is put back where it is missing, and touched, because those who clean
    /// such directories take what nobody touches for hours.
    fn keep(&self, record: &Record) -> io::Result<()> {
        let now = SystemTime::now();
        let times = FileTimes::new().set_accessed(now).set_modified(now);
        match OpenOptions::new().write(true).open(self.path(&record.process.id, RECORD)) {
            Ok(file) => file.set_times(times),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.make()?;
                self.put(record)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes the record of a process; it may be gone already.
    pub fn remove(&self, id: &str) {
        let _ = fs::remove_file(self.path(id, RECORD));
    }

    /// All records that can be read, by file name. Files that are none are left alone, but for drafts
    /// that nobody will finish.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn records(&self) -> io::Result<Vec<Record>> {
        let mut paths: Vec<_> =
            fs::read_dir(&self.0)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        paths.sort();
        for path in paths.iter().filter(|path| has_extension(path, DRAFT) && is_left(path)) {
            let _ = fs::remove_file(path);
        }
        let records = paths.iter().filter(|path| has_extension(path, RECORD));
        // What is named otherwise than its id cannot be one of ours.
        Ok(records
            .filter_map(|path| {
                read(path).filter(|record| *path == self.path(&record.process.id, RECORD))
            })
            .collect())
    }

    fn path(&self, id: &str, extension: &str) -> PathBuf {
        self.0.join(id).with_extension(extension)
    }
}

/// The record of this process, in the directory for as long as this lives. It is written where it
/// holds up nobody's messages.
#[derive(Debug)]
pub(super) struct Entry {
    kept: Arc<Kept>,
    /// There is nothing more to learn of the editor.
    is_final: bool,
}

#[derive(Debug)]
struct Kept {
    directory: Directory,
    /// `None` once nothing is to be written any more.
    record: Mutex<Option<Record>>,
}

impl Entry {
    pub(super) fn new(directory: Directory, record: Record) -> io::Result<Self> {
        directory.put(&record)?;
        let kept = Arc::new(Kept { directory, record: Mutex::new(Some(record)) });
        Ok(Self { kept, is_final: false })
    }

    /// Tells who the editor is: it has said so, or never will. The task ends when that is written.
    pub(super) fn name_editor(&mut self, editor: Option<&Editor>) -> Option<JoinHandle<()>> {
        if std::mem::replace(&mut self.is_final, true) {
            return None;
        }
        let editor = editor?.clone();
        Some(self.write(move |directory, record| {
            record.editor = Some(editor);
            directory.put(record)
        }))
    }

    /// Sees to it that the record is there, and stays.
    pub(super) fn tend(&self) -> JoinHandle<()> {
        self.write(|directory, record| directory.keep(record))
    }

    /// Whether the editor has not said yet who it is.
    pub(super) fn lacks_editor(&self) -> bool {
        !self.is_final
    }

    fn write(
        &self,
        write: impl FnOnce(&Directory, &mut Record) -> io::Result<()> + Send + 'static,
    ) -> JoinHandle<()> {
        let kept = Arc::clone(&self.kept);
        spawn_blocking(move || {
            let mut record = lock(&kept.record);
            let written = record.as_mut().map(|record| write(&kept.directory, record));
            if let Some(Err(error)) = written {
                // Each minute, perhaps: others do not find this process, and its editor notices nothing.
                tracing::info!("the record of this process cannot be written again: {error}");
            }
        })
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(record) = lock(&self.kept.record).take() {
            self.kept.directory.remove(&record.process.id);
        }
    }
}

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|extension| extension == wanted)
}

fn is_left(draft: &Path) -> bool {
    let written = fs::symlink_metadata(draft).and_then(|about| about.modified());
    written.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > DRAFT_LEFT))
}

fn read(path: &Path) -> Option<Record> {
    let about = fs::symlink_metadata(path).ok()?;
    if !about.is_file() || about.len() > RECORD_BYTES {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// The user's runtime directory; where the system names none, one that we keep in the directory for
/// temporary files. On macOS and Windows that is the user's own, elsewhere everybody's.
fn runtime_directory() -> io::Result<PathBuf> {
    let named = std::env::var_os(RUNTIME_DIRECTORY).map(PathBuf::from);
    if let Some(named) = named.filter(|path| is_usable(path)) {
        return Ok(named);
    }
    let directory = std::env::temp_dir().join(format!("acp-tether-{}", user()));
    make_private(&directory)?;
    Ok(directory)
}

/// The specification of the variable: a relative path is to be ignored, and the directory is the
/// user's own; under `sudo` it is another's.
fn is_usable(named: &Path) -> bool {
    #[cfg(unix)]
    let is_own = |about: &fs::Metadata| std::os::unix::fs::MetadataExt::uid(about) == user();
    #[cfg(not(unix))]
    let is_own = |_: &fs::Metadata| true;
    let about = fs::metadata(named);
    named.is_absolute() && about.is_ok_and(|about| about.is_dir() && is_own(&about))
}

#[cfg(unix)]
fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(not(unix))]
fn user() -> String {
    std::env::var("USERNAME").unwrap_or_default()
}

/// Makes a directory that is this user's alone. One that is there must be that already: whoever else
/// could write to it could give us false records, or read our tokens.
#[cfg(unix)]
fn make_private(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Not through a link, which could lead anywhere.
    let about = fs::symlink_metadata(directory)?;
    let refuse = |why| {
        let text = format!("{} {why}: remove it, or use --runtime-dir", directory.display());
        Err(io::Error::new(ErrorKind::PermissionDenied, text))
    };
    match () {
        () if !about.is_dir() => refuse("is no directory"),
        () if about.uid() != user() => refuse("belongs to another user"),
        () if about.mode() & 0o077 != 0 => refuse("is open to other users"),
        () => Ok(()),
    }
}

#[cfg(not(unix))]
fn make_private(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Makes a file that is this user's alone, and was not there before.
pub(super) fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn record(id: &str) -> Record {
        Record {
            process: Process { id: id.to_owned(), ..Process::new(None) },
            port: 1,
            token: Token::fresh().unwrap(),
            editor: None,
        }
    }

    fn names(directory: &Directory) -> Vec<String> {
        directory.records().unwrap().into_iter().map(|record| record.process.id).collect()
    }

    #[tokio::test]
    async fn a2_a_record_is_0600_in_a_directory_0700_and_is_removed_with_its_process() {
        let runtime = tempfile::tempdir().unwrap();
        let directory = Directory::open(Some(runtime.path())).unwrap();
        let mut entry = Entry::new(directory.clone(), record("a")).unwrap();
        let editor = Editor { name: "an editor".to_owned(), version: None };
        entry.name_editor(Some(&editor)).unwrap().await.unwrap();
        assert_eq!(directory.records().unwrap()[0].editor, Some(editor));
        let path = runtime.path().join("acp-tether/instances/a.json");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!(mode(path.ancestors().nth(2).unwrap()), 0o700);
        drop(entry);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a2_a_record_that_is_missing_is_put_back_and_one_that_is_there_is_touched() {
        let runtime = tempfile::tempdir().unwrap();
        let directory = Directory::open(Some(runtime.path())).unwrap();
        let entry = Entry::new(directory.clone(), record("a")).unwrap();
        let path = directory.path("a", RECORD);
        let long_ago = SystemTime::now() - Duration::from_secs(6 * 3_600);
        let times = FileTimes::new().set_accessed(long_ago).set_modified(long_ago);
        File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        entry.tend().await.unwrap();
        let about = fs::metadata(&path).unwrap();
        for time in [about.accessed().unwrap(), about.modified().unwrap()] {
            assert!(time.elapsed().unwrap() < Duration::from_secs(3_600));
        }
        fs::remove_dir_all(runtime.path().join("acp-tether")).unwrap();
        entry.tend().await.unwrap();
        assert_eq!(names(&directory), ["a"]);
    }

    #[test]
    fn a2_a_record_is_not_put_back_once_its_process_ends() {
        let runtime = tempfile::tempdir().unwrap();
        let directory = Directory::open(Some(runtime.path())).unwrap();
        let entry = Entry::new(directory.clone(), record("a")).unwrap();
        // One thing after another, so that the record is seen to when its process has ended.
        let tokio = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build();
        tokio.unwrap().block_on(async {
            let (go_on, wait) = std::sync::mpsc::channel::<()>();
            let before = spawn_blocking(move || wait.recv());
            let tending = entry.tend();
            drop(entry);
            drop(go_on);
            before.await.unwrap().unwrap_err();
            tending.await.unwrap();
        });
        assert!(names(&directory).is_empty());
    }

    /// K147.
    #[test]
    fn a2_a_process_removes_its_own_record_only() {
        let runtime = tempfile::tempdir().unwrap();
        let directory = Directory::open(Some(runtime.path())).unwrap();
        let one = Entry::new(directory.clone(), record("a")).unwrap();
        let other = Entry::new(directory.clone(), record("b")).unwrap();
        drop(one);
        assert_eq!(names(&directory), ["b"]);
        drop(other);
        assert!(names(&directory).is_empty());
    }

    #[test]
    fn a2_what_is_no_record_is_not_read_and_a_draft_is_not_taken_from_its_writer() {
        let runtime = tempfile::tempdir().unwrap();
        let directory = Directory::open(Some(runtime.path())).unwrap();
        let put = |name: &str, text: &[u8]| fs::write(directory.0.join(name), text).unwrap();
        let whole = serde_json::to_vec(&record("a")).unwrap();
        put("half.json", &whole[..whole.len() / 2]);
        put("named-otherwise.json", &whole);
        put("new.draft", b"{");
        put("left.draft", b"{");
        let long_ago = std::time::SystemTime::now() - 2 * DRAFT_LEFT;
        let left = File::options().write(true).open(directory.0.join("left.draft")).unwrap();
        left.set_modified(long_ago).unwrap();
        fs::write(runtime.path().join("elsewhere"), serde_json::to_vec(&record("b")).unwrap())
            .unwrap();
        symlink(runtime.path().join("elsewhere"), directory.0.join("b.json")).unwrap();
        assert!(names(&directory).is_empty());
        assert!(directory.0.join("new.draft").exists());
        assert!(directory.0.join("half.json").exists());
        assert!(!directory.0.join("left.draft").exists());
    }

    /// K143.
    #[test]
    fn a2_a_directory_that_others_can_write_to_or_that_is_a_link_is_refused() {
        let runtime = tempfile::tempdir().unwrap();
        let path = runtime.path().join("acp-tether");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let refused = Directory::open(Some(runtime.path())).unwrap_err();
        assert!(refused.to_string().contains("open to other users"), "{refused}");
        fs::remove_dir(&path).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), &path).unwrap();
        let refused = Directory::open(Some(runtime.path())).unwrap_err();
        assert!(refused.to_string().contains("no directory"), "{refused}");
    }
}
