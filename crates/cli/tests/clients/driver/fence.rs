//! A fence that does what a scenario says: it accepts the token, refuses it, or waits until the client no longer does.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use tenure::{Fence, FenceError, Guard, Token};

/// The fence of one request.
pub(super) struct PlayedFence {
    /// `accepts`, `refuses` or `waits`.
    pub(super) does: String,
    /// The token that it accepted.
    pub(super) raised: Arc<Mutex<Option<Token>>>,
}

impl Fence for PlayedFence {
    fn raise<'a>(
        &'a self,
        guard: &'a Guard,
    ) -> Pin<Box<dyn Future<Output = Result<(), FenceError>> + Send + 'a>> {
        Box::pin(async move {
            match self.does.as_str() {
                "accepts" => {
                    *self.raised.lock().unwrap() = Some(guard.token());
                    Ok(())
                }
                "waits" => std::future::pending().await,
                _ => Err("a larger token was seen".into()),
            }
        })
    }
}
