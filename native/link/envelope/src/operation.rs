//! The operations of the distribution.

/// The operation of a control message, by its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names and numbers are the protocol's")]
pub enum Operation {
    /// Nothing of the others: an operation, a term or a fragment that the reader does not know.
    Other = 0,
    Link = 1,
    Send = 2,
    Exit = 3,
    Unlink = 4,
    NodeLink = 5,
    RegSend = 6,
    GroupLeader = 7,
    Exit2 = 8,
    SendTt = 12,
    ExitTt = 13,
    RegSendTt = 16,
    Exit2Tt = 18,
    MonitorP = 19,
    DemonitorP = 20,
    MonitorPExit = 21,
    SendSender = 22,
    SendSenderTt = 23,
    PayloadExit = 24,
    PayloadExitTt = 25,
    PayloadExit2 = 26,
    PayloadExit2Tt = 27,
    PayloadMonitorPExit = 28,
    SpawnRequest = 29,
    SpawnRequestTt = 30,
    SpawnReply = 31,
    SpawnReplyTt = 32,
    AliasSend = 33,
    AliasSendTt = 34,
    UnlinkId = 35,
    UnlinkIdAck = 36,
    AltactSigSend = 37,
    /// An empty packet. The protocol has no operation of this number, nor of the next one.
    Tick = 38,
    /// ALTACT_SIG_SEND with the flag EXIT: an exit signal.
    AltactSigExit = 39,
}

/// One more than the largest number.
pub(crate) const OPERATIONS: usize = 40;

impl Operation {
    /// All of them, by their numbers.
    pub const ALL: [Operation; 34] = {
        use Operation::*;
        [
            Other,
            Link,
            Send,
            Exit,
            Unlink,
            NodeLink,
            RegSend,
            GroupLeader,
            Exit2,
            SendTt,
            ExitTt,
            RegSendTt,
            Exit2Tt,
            MonitorP,
            DemonitorP,
            MonitorPExit,
            SendSender,
            SendSenderTt,
            PayloadExit,
            PayloadExitTt,
            PayloadExit2,
            PayloadExit2Tt,
            PayloadMonitorPExit,
            SpawnRequest,
            SpawnRequestTt,
            SpawnReply,
            SpawnReplyTt,
            AliasSend,
            AliasSendTt,
            UnlinkId,
            UnlinkIdAck,
            AltactSigSend,
            Tick,
            AltactSigExit,
        ]
    };

    /// Its name in the protocol, in small letters: "reg_send".
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Other => "other",
            Operation::Link => "link",
            Operation::Send => "send",
            Operation::Exit => "exit",
            Operation::Unlink => "unlink",
            Operation::NodeLink => "node_link",
            Operation::RegSend => "reg_send",
            Operation::GroupLeader => "group_leader",
            Operation::Exit2 => "exit2",
            Operation::SendTt => "send_tt",
            Operation::ExitTt => "exit_tt",
            Operation::RegSendTt => "reg_send_tt",
            Operation::Exit2Tt => "exit2_tt",
            Operation::MonitorP => "monitor_p",
            Operation::DemonitorP => "demonitor_p",
            Operation::MonitorPExit => "monitor_p_exit",
            Operation::SendSender => "send_sender",
            Operation::SendSenderTt => "send_sender_tt",
            Operation::PayloadExit => "payload_exit",
            Operation::PayloadExitTt => "payload_exit_tt",
            Operation::PayloadExit2 => "payload_exit2",
            Operation::PayloadExit2Tt => "payload_exit2_tt",
            Operation::PayloadMonitorPExit => "payload_monitor_p_exit",
            Operation::SpawnRequest => "spawn_request",
            Operation::SpawnRequestTt => "spawn_request_tt",
            Operation::SpawnReply => "spawn_reply",
            Operation::SpawnReplyTt => "spawn_reply_tt",
            Operation::AliasSend => "alias_send",
            Operation::AliasSendTt => "alias_send_tt",
            Operation::UnlinkId => "unlink_id",
            Operation::UnlinkIdAck => "unlink_id_ack",
            Operation::AltactSigSend => "altact_sig_send",
            Operation::Tick => "tick",
            Operation::AltactSigExit => "altact_sig_exit",
        }
    }
}
