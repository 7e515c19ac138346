//! The tree of one partition: names to nodes to bytes. It knows no kernel; a mount and the command line ask it the same questions.
//!
//! [`View`] answers `lookup`, `attr`, `list`, `open`, `read` and `append` over whatever [`crate::source::Source`] it was given. Each question carries
//! whether the caller can wait. Refusals go to the journal behind the file `errors` with their reason.

pub mod appender;
mod checking;
mod ctl;
mod decoded;
pub mod drafts;
pub mod envelope;
pub mod error;
pub mod forest;
pub mod journal;
pub mod lines;
pub mod merge;
pub mod metrics;
pub mod node;
pub mod options;
mod overview;
pub mod partition;
pub mod path;
mod render;
pub mod stream;
pub mod time;
pub mod tree;

pub use appender::{Appender, Finished};
pub use drafts::{Draft, Opening};
pub use error::{Error, ErrorKind};
pub use lines::Framing;
pub use metrics::{Outcome, Request, RequestCounters};
pub use node::{Attr, FileKind, Lifetime, Node, Place, Sink, Span, TextFile, Time};
pub use options::{Keyed, Options};
pub use partition::View;
pub use path::{Face, KeyFace};
pub use stream::Reader;
pub use tree::Tree;
