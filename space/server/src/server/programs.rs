//! The program files of the running tasks, which nobody may write to ([`Placeholder`]).

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::rc::{Rc, Weak};

use pvas::placeholder::Placeholder;

use crate::Failure;

/// The programs, by device and inode. All tasks of a program share its placeholder.
#[derive(Debug, Default)]
pub struct Programs {
    placeholders: HashMap<(u64, u64), Weak<Placeholder>>,
}

impl Programs {
    /// Protects the file at `path` until the result is dropped. Returns `None` if this is not
    /// possible here; the loader then reports a file that is no program.
    ///
    /// # Errors
    /// A process has the file open for writing. execve(2) refuses such a program, too.
    pub fn protect(&mut self, path: &Path) -> Result<Option<Rc<Placeholder>>, Failure> {
        let Ok(data) = std::fs::metadata(path) else { return Ok(None) };
        let key = (data.dev(), data.ino());
        if let Some(placeholder) = self.placeholders.get(&key).and_then(Weak::upgrade) {
            return Ok(Some(placeholder));
        }
        self.placeholders.retain(|_, placeholder| placeholder.strong_count() > 0);
        let busy = |_| Failure {
            message: format!(
                "{}: a process has it open for writing (Text file busy); start it when that has \
                 ended",
                path.display()
            ),
            status: 126,
        };
        let placeholder = Placeholder::new(path).map_err(busy)?.map(Rc::new);
        if let Some(placeholder) = &placeholder {
            self.placeholders.insert(key, Rc::downgrade(placeholder));
        }
        Ok(placeholder)
    }
}
