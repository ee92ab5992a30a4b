//! Takes a lock, whatever became of who held it before.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the locks of this program guard is whole after every statement, so a panic elsewhere spoils nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
