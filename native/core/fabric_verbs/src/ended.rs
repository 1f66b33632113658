//! The mailbox of ends: a thread that learns of a connection's end reports it here. The teardown thread, which holds
//! connections, reads it.

use std::sync::{Arc, OnceLock};

use inet_rdma_fabric::FabricError;

use crate::connection_end::ConnectionEnd;
use crate::mailbox::Mailbox;

/// A task of the teardown thread.
pub(crate) enum Ended {
    /// Call [`ConnectionEnd::carry_out`] on behalf of a user that found the end and must not wait for the kernel.
    CarryOut(Arc<ConnectionEnd>),
    /// Look at the connection with this token: its end is carried out.
    Look(usize),
}

static MAILBOX: OnceLock<Mailbox<Ended>> = OnceLock::new();

/// The mailbox, made at the first call.
pub(crate) fn mailbox() -> Result<&'static Mailbox<Ended>, FabricError> {
    if let Some(mailbox) = MAILBOX.get() {
        return Ok(mailbox);
    }
    let mailbox = Mailbox::new()?;
    Ok(MAILBOX.get_or_init(|| mailbox))
}

/// Has the teardown thread carry out an end that is set.
pub(crate) fn have_carried_out(end: Arc<ConnectionEnd>) {
    send(Ended::CarryOut(end));
}

/// Carries out an end that is set, on this thread, and tells the teardown thread.
pub(crate) fn carry_out_and_report(end: &ConnectionEnd) {
    end.carry_out();
    send(Ended::Look(end.token()));
}

fn send(ended: Ended) {
    // The mailbox is made before the first connection.
    if let Some(mailbox) = MAILBOX.get() {
        mailbox.send(ended);
    }
}
