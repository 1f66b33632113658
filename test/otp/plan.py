"""Suites of Erlang/OTP that run, cases of them that do not, each with its reason, and changes of their sources."""

import shutil
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Suite:
    """A suite: the folder of its sources, its module; its cases with other nodes, `only` these, or all but those
    `left_out`."""

    folder: str
    name: str
    only: tuple[str, ...] = ()
    left_out: dict[str, tuple[str, ...]] = field(default_factory=dict, hash=False)  # reasons to names of cases
    other_drivers: tuple[str, ...] = ()  # of links of the test node to what is no node of the carrier
    nodenames: int = 0  # of other nodes that its cases expect, where the suite does not ask for them itself


@dataclass(frozen=True)
class Patch:
    """In a file `old` becomes `new`. It is there to the letter in this and later releases of OTP, up to 29."""

    file: str
    old: str
    new: str
    since: int = 25


KERNEL, EMULATOR, STDLIB, MNESIA = "lib/kernel/test", "erts/emulator/test", "lib/stdlib/test", "lib/mnesia/test"

# Modules that the suites call, beside them.
HELPERS = {
    KERNEL: ("kernel_test_lib", "kernel_test_global_sys_monitor", "kernel_test_sys_monitor"),
    EMULATOR: ("erts_test_utils", "erts_test_destructor", "literal_area_collector_test"),
    STDLIB: (),
    MNESIA: ("mnesia_test_lib", "ext_test", "ext_test_server"),
}

CARRIER_BY_NAME = "starts nodes with a carrier of its own, gen_tcp, erl_uds or block_select"
ONE_NODE = "needs no other node"

C_COMPILER = shutil.which("cc")

# Since OTP 26 prim_inet:send/2 puts a reference before the data, which only TCP's driver takes off again, and waits for
# the answer. ERL_AFLAGS has the carrier.
SEND = ("prim_inet:send(DPrt, Data)", """
        case os:getenv("ERL_AFLAGS") of
            "" -> prim_inet:send(DPrt, Data);
            _ -> port_command(DPrt, Data), ok
        end""")
SENDING = ("{DPrt, {status, waiting}} when is_port(DPrt)",
           "{DPrt, {status, Status}} when is_port(DPrt), Status =:= waiting orelse Status =:= suspended")

PATCHES = (
    # Each case runs a second time with -proto_dist gen_tcp, an example of OTP's.
    Patch(f"{KERNEL}/erl_distribution_SUITE.erl", '[{"default", ""}, GenTcpDistTest]', '[{"default", ""}]'),
    # 10 GB in all: minutes on a busy machine.
    Patch(f"{EMULATOR}/distribution_SUITE.erl", "exit_suspend(RemoteNode, 100).", "exit_suspend(RemoteNode, 20)."),
    # The case takes processes for lost when none has started or ended for this time.
    Patch(f"{EMULATOR}/distribution_SUITE.erl", "after 1000 ->\n            MissingPids",
          "after 20000 ->\n            MissingPids"),
    *(Patch(f"{EMULATOR}/{suite}.erl", *change, since=27)
      for suite in ("distribution_SUITE", "erl_link_SUITE") for change in (SEND, SENDING)),
    # How long EPMD, a process of its own, may take to see that a node has ended.
    Patch(f"{EMULATOR}/distribution_SUITE_data/run.erl", "timer:sleep(2)", "timer:sleep(500)"),
)

SUITES = (
    Suite(KERNEL, "erl_distribution_SUITE", left_out={
        CARRIER_BY_NAME: (
            "blocking_dist_select", "dist_ctrl_proc_smoke", "dist_ctrl_proc_reject", "erl_uds_dist_smoke_test",
        ),
    }),
    Suite(EMULATOR, "distribution_SUITE", left_out={
        CARRIER_BY_NAME: ("async_dist_proc_dctrlr",),
        "expects that a node without EPMD and without -proto_dist does not start": ("no_epmd",),
    }),
    Suite(KERNEL, "global_SUITE"),
    Suite(KERNEL, "global_group_SUITE"),
    Suite(KERNEL, "rpc_SUITE"),
    Suite(KERNEL, "erpc_SUITE", other_drivers=("tcp_inet",), left_out={} if C_COMPILER else {
        "no C compiler for its node in C": (
            "call_against_ei_node", "cast", "multicall", "multicast", "send_request", "send_request_against_ei_node",
            "send_request_fun",
        ),
    }),
    Suite(KERNEL, "pg_SUITE"),
    Suite(KERNEL, "bif_SUITE"),
    Suite(KERNEL, "init_SUITE", only=("many_restarts", "restart")),
    Suite(KERNEL, "seq_trace_SUITE", only=(
        "distributed_send", "distributed_recv", "distributed_exit", "gc_seq_token", "inherit_on_dist_spawn",
        "dist_spawn_error",
    )),
    Suite(EMULATOR, "erl_link_SUITE", left_out={
        ONE_NODE: (
            "links", "process_monitors", "otp_5772_link", "otp_5772_monitor", "otp_17127_local_random",
            "otp_17127_local_link_with_simultaneous_link_unlink",
        ),
    }),
    Suite(EMULATOR, "monitor_SUITE", only=(
        "mon_e_1", "demon_e_1", "mon_1", "mon_2", "demon_1", "demon_2", "demon_3", "remote_remove_monitor",
        "large_exit", "named_down", "mixer",
    )),
    Suite(EMULATOR, "node_container_SUITE", left_out={
        ONE_NODE: ("iter_max_procs", "pid_wrap", "port_wrap", "persistent_term"),
    }),
    Suite(EMULATOR, "process_SUITE", only=(
        "alias_bif", "dist_spawn_monitor", "dist_unlink_ack_exit_leak", "monitor_alias", "monitor_tag",
        "process_info_other_dist_msg", "spawn_against_new_node", "spawn_huge_arglist", "spawn_monitor_alias",
        "spawn_request_abandon_bif", "spawn_request_bif", "spawn_request_link_child_exit",
        "spawn_request_link_parent_exit_nodedown", "spawn_request_monitor_child_exit",
        "spawn_request_monitor_demonitor", "spawn_request_reply_option",
    )),
    Suite(EMULATOR, "signal_SUITE", only=(
        "kill2killed", "monitor_named_order_remote", "monitor_nodes_order", "monitor_order", "unlink_exit",
        "xm_sig_order",
    ), left_out={
        CARRIER_BY_NAME: (
            "busy_dist_demonitor_signal", "busy_dist_down_signal", "busy_dist_exit_signal",
            "busy_dist_spawn_reply_signal", "busy_dist_unlink_ack_signal",
        ),
    }),
    Suite(STDLIB, "gen_server_SUITE", only=(
        "abcast", "call_remote1", "call_remote2", "call_remote3", "call_remote_n1", "call_remote_n2",
        "call_remote_n3", "cast_fast", "multicall", "stop8", "stop9", "stop10",
    )),
    Suite(STDLIB, "peer_SUITE"),
    Suite(STDLIB, "slave_SUITE"),
    Suite(MNESIA, "mnesia_durability_test", nodenames=3),
    Suite(MNESIA, "mnesia_majority_test", nodenames=3),
)
