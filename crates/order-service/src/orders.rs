//! Orders: one command or read per file.

mod cancel;
pub(crate) mod create;
pub(crate) mod read;
pub(crate) mod rejections;
mod view;

pub(crate) use cancel::CancelOrder;
pub(crate) use create::CreateOrder;
