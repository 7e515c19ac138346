//! Why a name or an expression in a path is not understood. It stands beside the times because they are the lowest part of the grammar.

use std::borrow::Cow;
use std::fmt;

/// Why a name is none of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such name; the reason is one sentence for the operator.
    NotFound(Cow<'static, str>),
    /// The name stands where an expression is expected and cannot be read as one, as an unreadable time; the reason is one sentence.
    Invalid(Cow<'static, str>),
}

impl Refusal {
    /// A [`Refusal::NotFound`].
    pub fn not_found(reason: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::NotFound(reason.into())
    }

    /// A [`Refusal::Invalid`].
    pub fn invalid(reason: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::Invalid(reason.into())
    }

    /// The reason, one sentence without a final stop.
    pub fn reason(&self) -> &str {
        match self {
            Refusal::NotFound(reason) | Refusal::Invalid(reason) => reason,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for Refusal {}
