%% Profiles of RDMA providers: what their public sources say, as data. Nothing here was measured.
%%
%% docs/HARDWARE.md shows markdown/0, and the doctor names the profile of each device. The files are
%% those of sources/0: providers/* of rdma-core; hw/*, sw/* and core/* below drivers/infiniband of
%% Linux, uapi/* below include, all others below drivers/net/ethernet.
-module(inet_rdma_providers).

-export([list/0, sources/0, of_device/2, markdown/0, emulations/0, emulations_text/0, answers/1]).
-export_type([profile/0, fact/0, key/0, grade/0, emulation/0, answers/0]).

%% confirmed: the files say so. inferred: a conclusion from them. unknown: none of them says it.
-type grade() :: confirmed | inferred | unknown.
%% inline: bytes granted when a queue pair is made. inline_sent: whether post_send looks at
%% IBV_SEND_INLINE. modify_qp: what ibv_modify_qp(3) refuses. fatal: events of the device's end, and
%% whether it comes back. other: further answers that the verbs manuals do not lead to expect.
-type key() ::
    rc
    | rdma_cm
    | transport
    | write_with_imm
    | inline
    | inline_sent
    | max_sge
    | max_qp_wr
    | max_cqe
    | max_rd_atomic
    | windows
    | modify_qp
    | fatal
    | gid_pkey
    | other.
-type fact() :: {key(), grade(), Says :: string(), Files :: [string()]}.

%% drivers: the driver of the hardware below the device, as /sys/class/infiniband/*/device/driver
%% names it. name: how the names begin that the kernel gives; udev may give others. vendor: of PCI.
%% identified: the files that say these three. carries: a link can have a queue pair of it. follows:
%% the facts that decide what inet_rdma does there. fix: what to do about them.
-type profile() :: #{
    provider := atom(),
    drivers := [string()],
    name := string(),
    vendor := non_neg_integer() | none,
    identified := [string()],
    carries := boolean(),
    follows := string(),
    fix := string() | undefined,
    facts := [fact()]
}.

-spec list() -> [profile()].
list() ->
    [
        profile(Provider)
     || Provider <- [
            mlx5,
            mlx4,
            mana,
            irdma,
            erdma,
            bnxt_re,
            ionic,
            hns,
            qedr,
            cxgb4,
            vmw_pvrdma,
            efa,
            rxe,
            siw
        ]
    ].

%% The sources that were read, each with the commit or the release.
-spec sources() -> [{Source :: string(), Version :: string()}].
sources() ->
    [
        {"linux-rdma/rdma-core", "commit 691953d8d502f54088f776c5ba2aeed0a5ac945d"},
        {"Linux", "release 7.2.12, as Debian's linux-source-7.2 7.2.12-1 has it"}
    ].

%% The profile of a device by its driver; by its name where the driver is not known. The driver of a
%% function without a PCI address of its own is MODULE.PART.
-spec of_device(Driver :: binary() | undefined, Name :: binary()) -> profile() | undefined.
of_device(undefined, Name) ->
    first([Profile || #{name := Begin} = Profile <- list(), begins(Name, Begin)]);
of_device(Driver, _Name) ->
    [Module | _] = binary:split(Driver, <<".">>),
    first([
        Profile
     || #{drivers := Drivers} = Profile <- list(), lists:member(binary_to_list(Module), Drivers)
    ]).

%% A digit follows.
begins(Name, Begin) ->
    re:run(Name, ["^", Begin, "[0-9]"]) =/= nomatch.

first([Profile | _]) -> Profile;
first([]) -> undefined.

%% A software device that grants, refuses and leaves out what devices of a provider do. words: those of
%% native/core/verbs/examples/lying_device/profile.rs; what they do not name is as the software device
%% has it. finds: what the self-test of the first queue pair has to find.
-type emulation() :: #{
    name := string(),
    provider := atom() | none,
    over := rxe | siw,
    words := [string()],
    finds := none | inline | no_rc
}.

%% Where a fact is that of the device or of its firmware, the words leave it as it is, but for hns:
%% its devices may have as few inline bytes.
-spec emulations() -> [emulation()].
emulations() ->
    [
        emulation("mlx5", mlx5, rxe, []),
        emulation("mlx4", mlx4, rxe, []),
        emulation("mana", mana, rxe, [
            "inline=ignored", "windows=unbindable", "modify_qp=whole", "query_qp=none"
        ]),
        %% The kernel does not name the driver, so that only the self-test can find the fault.
        (emulation("mana_unnamed", mana, rxe, []))#{
            words := ["inline=ignored", "windows=unbindable", "query_qp=none"],
            finds := inline
        },
        emulation("irdma", irdma, rxe, [
            "inline=refused:101", "max_sge=13", "max_qp_wr=4063", "windows=none"
        ]),
        (emulation("irdma_idpf", irdma, rxe, []))#{
            words := [
                "driver=idpf", "vendor=8086", "inline=refused:216", "max_sge=14", "max_qp_wr=4063"
            ]
        },
        (emulation("irdma_i40e", irdma, siw, []))#{
            words := [
                "driver=i40e",
                "vendor=8086",
                "inline=refused:48",
                "max_sge=3",
                "max_qp_wr=895",
                "windows=none"
            ]
        },
        emulation("erdma", erdma, siw, [
            "inline=refused:96", "max_sge=6", "max_qp_wr=8192", "windows=none", "errors=negative"
        ]),
        emulation("erdma_roce", erdma, rxe, [
            "inline=refused:96", "max_sge=6", "max_qp_wr=8192", "windows=none", "errors=negative"
        ]),
        emulation("bnxt_re", bnxt_re, rxe, [
            "inline=refused:96", "max_sge=6", "max_qp_wr=4351", "windows=claimed"
        ]),
        emulation("ionic", ionic, rxe, ["max_sge=8", "max_qp_wr=65535"]),
        emulation("hns", hns, rxe, ["inline=fewer:32", "windows=none"]),
        emulation("qedr", qedr, rxe, [
            "inline=refused:256", "max_sge=4", "windows=none", "errors=negative"
        ]),
        emulation("cxgb4", cxgb4, siw, ["max_sge=17", "windows=none", "errors=negative"]),
        emulation("vmw_pvrdma", vmw_pvrdma, rxe, ["inline=fewer:0", "windows=none"]),
        (emulation("efa", efa, rxe, ["rc=none", "windows=none"]))#{finds := no_rc},
        #{
            name => "least",
            provider => none,
            over => rxe,
            words => [
                "inline=fewer:0",
                "max_sge=1",
                "max_qp_wr=300",
                "max_cqe=300",
                "windows=none",
                "query_qp=none",
                "errors=negative",
                "poll=1",
                "late=2"
            ],
            finds => none
        },
        #{
            name => "faulty",
            provider => none,
            over => rxe,
            words => ["late=5", "failed=vague", "modify=20", "cm=late:20", "cm=twice"],
            finds => none
        }
    ].

emulation(Name, Provider, Over, Words) ->
    #{drivers := [Driver | _], vendor := Vendor} = profile(Provider),
    #{
        name => Name,
        provider => Provider,
        over => Over,
        words => ["driver=" ++ Driver, "vendor=" ++ lists:flatten(vendor(Vendor)) | Words],
        finds => none
    }.

%% What a device of the provider answers, as inet_rdma_nif:verbs_devices/0 gives it: the limits that
%% its sources name as numbers; without: what the self-test does not let connections use.
-type answers() :: #{
    sges => pos_integer(),
    queue_entries => pos_integer(),
    completion_entries => pos_integer(),
    without := [inet_rdma_error:tried()]
}.

%% One for each kind of device of the provider.
-spec answers(atom()) -> [answers()].
answers(Provider) ->
    lists:usort([
        answers_of(Words)
     || #{provider := Of, words := Words} <- emulations(), Of =:= Provider
    ]).

answers_of(Words) ->
    Without = [inline || "inline=ignored" <- Words],
    lists:foldl(
        fun(Word, Answers) ->
            case string:split(Word, "=") of
                ["max_sge", Most] -> Answers#{sges => list_to_integer(Most)};
                ["max_qp_wr", Most] -> Answers#{queue_entries => list_to_integer(Most)};
                ["max_cqe", Most] -> Answers#{completion_entries => list_to_integer(Most)};
                _ -> Answers
            end
        end,
        #{without => Without},
        Words
    ).

%% For scripts: a line each, with name, software device, what is found, words. They are for devices
%% whose names begin as those of the software device; without queue pairs for all, as links would go
%% over another one.
-spec emulations_text() -> iolist().
emulations_text() ->
    [
        lists:join(" ", [
            Name,
            atom_to_list(Over),
            atom_to_list(Finds),
            lists:join(",", devices(Finds, Over) ++ Words)
        ]) ++ "\n"
     || #{name := Name, over := Over, finds := Finds, words := Words} <- emulations()
    ].

devices(no_rc, _Over) -> [];
devices(_Finds, Over) -> ["device=" ++ atom_to_list(Over)].

%% The rows of the two tables of docs/HARDWARE.md, one line each: profiles, and facts.
-spec markdown() -> {Profiles :: [binary()], Facts :: [binary()]}.
markdown() ->
    {
        [
            row([
                code(Provider),
                lists:join(", ", [code(Driver) || Driver <- Drivers]),
                vendor(Vendor),
                Follows
            ])
         || #{provider := Provider, drivers := Drivers, vendor := Vendor, follows := Follows} <-
                list()
        ],
        [
            row([code(Provider), code(Key), Says, atom_to_list(Grade), lists:join(", ", Files)])
         || #{provider := Provider, facts := Facts} <- list(), {Key, Grade, Says, Files} <- Facts
        ]
    }.

row(Cells) -> iolist_to_binary(["| ", lists:join(" | ", Cells), " |"]).

code(Word) -> io_lib:format("`~s`", [Word]).

vendor(none) -> "none";
vendor(Vendor) -> io_lib:format("~4.16.0b", [Vendor]).

-spec profile(atom()) -> profile().
profile(mlx5) ->
    #{
        provider => mlx5,
        drivers => ["mlx5_core"],
        name => "mlx5_",
        vendor => 16#15b3,
        identified => ["providers/mlx5/mlx5.c", "mellanox/mlx5/core/main.c", "hw/mlx5/main.c"],
        carries => true,
        follows => "RC with immediates; inline as granted; windows where the firmware has them",
        fix => undefined,
        facts => [
            {rc, confirmed, "yes", ["providers/mlx5/qp.c", "hw/mlx5/qp.c"]},
            {rdma_cm, confirmed, "yes; over RoCE if the device has it for IPv4 and IPv6", [
                "hw/mlx5/main.c"
            ]},
            {transport, confirmed, "InfiniBand, RoCE v1, RoCE v2", ["hw/mlx5/main.c"]},
            {write_with_imm, confirmed, "yes", ["providers/mlx5/qp.c"]},
            {
                inline,
                confirmed,
                "as asked or more, up to the entry; refused if the device's entries are too small",
                ["providers/mlx5/verbs.c"]
            },
            {inline_sent, confirmed, "yes; ENOMEM above the grant", ["providers/mlx5/qp.c"]},
            {max_sge, confirmed, "the device's, by its largest send entry, of which 512 B count", [
                "hw/mlx5/main.c"
            ]},
            {max_qp_wr, confirmed, "the device's", ["hw/mlx5/main.c"]},
            {max_cqe, confirmed, "the device's, a power of two less 1", ["hw/mlx5/main.c"]},
            {max_rd_atomic, confirmed, "the device's, a power of two", ["hw/mlx5/main.c"]},
            {
                windows,
                confirmed,
                "types 1 and 2B if the firmware has imaicl; bind and local invalidate by work "
                "request, send with invalidate",
                ["providers/mlx5/qp.c", "hw/mlx5/main.c"]
            },
            {
                modify_qp,
                confirmed,
                "attributes beyond the standard ones (EOPNOTSUPP), and steps that the state "
                "machine forbids (EINVAL)",
                ["hw/mlx5/qp.c"]
            },
            {
                fatal,
                confirmed,
                "DEVICE_FATAL on an internal error; PCI recovery loads the device again; its "
                "removal cuts processes off with DEVICE_FATAL",
                ["hw/mlx5/main.c", "mellanox/mlx5/core/main.c", "core/uverbs_std_types_async_fd.c"]
            },
            {gid_pkey, confirmed, "RoCE: one PKey; InfiniBand: the port's tables", [
                "hw/mlx5/main.c"
            ]}
        ]
    };
profile(mlx4) ->
    #{
        provider => mlx4,
        drivers => ["mlx4_core"],
        name => "mlx4_",
        vendor => 16#15b3,
        identified => ["providers/mlx4/mlx4.c", "hw/mlx4/main.c"],
        carries => true,
        follows => "RC with immediates; inline as granted; windows where the firmware has them",
        fix => undefined,
        facts => [
            {rc, confirmed, "yes", ["providers/mlx4/qp.c", "hw/mlx4/qp.c"]},
            {rdma_cm, confirmed, "yes", ["hw/mlx4/main.c"]},
            {transport, confirmed, "InfiniBand, RoCE v1, RoCE v2 if the firmware has it", [
                "hw/mlx4/main.c"
            ]},
            {write_with_imm, confirmed, "yes", ["providers/mlx4/qp.c"]},
            {inline, confirmed, "as asked or more, up to the entry; more than 1,024 is refused", [
                "providers/mlx4/verbs.c",
                "providers/mlx4/qp.c"
            ]},
            {inline_sent, confirmed, "yes; ENOMEM above the grant", ["providers/mlx4/qp.c"]},
            {max_sge, confirmed, "the device's, the lesser of send and receive", [
                "hw/mlx4/main.c"
            ]},
            {max_qp_wr, confirmed, "the device's, less a spare", ["hw/mlx4/main.c"]},
            {max_cqe, confirmed, "the device's", ["hw/mlx4/main.c"]},
            {max_rd_atomic, confirmed, "the device's", ["hw/mlx4/main.c"]},
            {
                windows,
                confirmed,
                "types 1, and 2A or 2B, by the firmware's flags; bind and local invalidate by "
                "work request, send with invalidate",
                ["providers/mlx4/qp.c", "hw/mlx4/main.c"]
            },
            {
                modify_qp,
                confirmed,
                "attributes beyond the standard ones (EOPNOTSUPP), and steps that the state "
                "machine forbids (EINVAL)",
                ["hw/mlx4/qp.c"]
            },
            {
                fatal,
                confirmed,
                "DEVICE_FATAL on a catastrophic error; its removal cuts processes off with "
                "DEVICE_FATAL",
                ["hw/mlx4/main.c", "core/uverbs_std_types_async_fd.c"]
            },
            {gid_pkey, confirmed, "RoCE: one PKey; InfiniBand: the port's tables", [
                "hw/mlx4/main.c"
            ]}
        ]
    };
profile(mana) ->
    #{
        provider => mana,
        drivers => ["mana"],
        name => "mana_",
        vendor => 16#1414,
        identified => ["providers/mana/mana.c", "microsoft/mana/gdma_main.c", "hw/mana/device.c"],
        carries => true,
        follows => "RC with immediates; inline is not honoured, and not used here; no windows",
        fix =>
            "until `certify` has passed here: the option fabric shm keeps links to other hosts on"
            " TCP",
        facts => [
            {rc, confirmed, "yes", ["providers/mana/qp.c", "hw/mana/qp.c"]},
            {rdma_cm, confirmed, "yes on port 1; further ports have no management datagrams", [
                "hw/mana/main.c"
            ]},
            {transport, confirmed, "RoCE v2", ["hw/mana/main.c"]},
            {
                write_with_imm,
                confirmed,
                "yes; it takes one element more of the send queue, for which the provider has room",
                ["providers/mana/wr.c", "providers/mana/qp.c"]
            },
            {
                inline,
                confirmed,
                "as asked, whatever that is: neither provider nor driver changes or checks it; "
                "the limit that the firmware tells is kept and not used",
                ["providers/mana/qp.c", "hw/mana/qp.c", "hw/mana/main.c", "core/uverbs_cmd.c"]
            },
            {
                inline_sent,
                confirmed,
                "no: no line of the provider reads the flag; address, length and lkey of each "
                "element go to the device",
                ["providers/mana/wr.c"]
            },
            {
                max_sge,
                confirmed,
                "the firmware's, for sends and receives; post_send does not check it",
                ["hw/mana/main.c", "providers/mana/wr.c"]
            },
            {max_qp_wr, confirmed, "the firmware's queue sizes by the largest entry", [
                "hw/mana/main.c"
            ]},
            {max_cqe, confirmed, "told as max_qp_wr; not checked when a queue is made", [
                "hw/mana/main.c",
                "hw/mana/cq.c"
            ]},
            {max_rd_atomic, confirmed, "the firmware's; no atomics", ["hw/mana/main.c"]},
            {
                windows,
                confirmed,
                "both types can be allocated (rdma-core of 2026-03 and later); bind, local "
                "invalidate and send with invalidate are EINVAL; no flag says windows",
                ["providers/mana/mana.c", "providers/mana/wr.c", "hw/mana/mr.c", "hw/mana/main.c"]
            },
            {
                modify_qp,
                confirmed,
                "nothing by itself: all goes to the firmware, and without IBV_QP_STATE the state "
                "in that message is RESET, which only the mask takes back",
                ["hw/mana/qp.c"]
            },
            {
                fatal,
                confirmed,
                "QP_FATAL moves the queue pair to ERR; servicing removes the device and adds it "
                "again; its removal cuts processes off with DEVICE_FATAL",
                [
                    "hw/mana/main.c",
                    "providers/mana/mana.c",
                    "microsoft/mana/mana_en.c",
                    "microsoft/mana/gdma_main.c",
                    "core/uverbs_std_types_async_fd.c"
                ]
            },
            {gid_pkey, confirmed, "16 GIDs, of IPv4 and IPv6 alone; one PKey, the default", [
                "hw/mana/main.c"
            ]},
            {
                other,
                confirmed,
                "post_send: EINVAL for a full send queue (ENOMEM only from its own list), and "
                "before RTS; flushes by itself only behind an error completion of that queue; no "
                "query_qp; arming for solicited events alone fails",
                ["providers/mana/wr.c", "providers/mana/cq.c", "providers/mana/mana.c"]
            }
        ]
    };
profile(irdma) ->
    #{
        provider => irdma,
        drivers => ["ice", "i40e", "idpf"],
        name => "irdma",
        vendor => 16#8086,
        identified => [
            "providers/irdma/umain.c",
            "hw/irdma/icrdma_if.c",
            "hw/irdma/i40iw_if.c",
            "hw/irdma/main.c"
        ],
        carries => true,
        follows =>
            "RoCE: RC with immediates; iWARP: sends in their place; at most 48 (X722), 101 (E810)"
            " or 216 bytes inline",
        fix => undefined,
        facts => [
            {rc, confirmed, "yes", ["providers/irdma/uverbs.c", "hw/irdma/verbs.c"]},
            {rdma_cm, confirmed, "yes, of RoCE or of iWARP", ["hw/irdma/verbs.c"]},
            {
                transport,
                confirmed,
                "X722: iWARP; E810: RoCE v2 or iWARP, as ice says; third generation (idpf): RoCE "
                "v2",
                ["hw/irdma/i40iw_if.c", "hw/irdma/icrdma_if.c", "hw/irdma/ig3rdma_if.c"]
            },
            {
                write_with_imm,
                confirmed,
                "yes, by the capabilities that the driver gives each queue pair, iWARP too",
                ["providers/irdma/uverbs.c", "hw/irdma/verbs.c"]
            },
            {
                inline,
                confirmed,
                "as asked up to 48 (X722), 101 (E810), 216 (third generation); more is EINVAL",
                [
                    "providers/irdma/uverbs.c",
                    "hw/irdma/i40iw_hw.h",
                    "hw/irdma/user.h",
                    "hw/irdma/ig3rdma_hw.h"
                ]
            },
            {inline_sent, confirmed, "yes; EINVAL above the grant", [
                "providers/irdma/uverbs.c",
                "providers/irdma/uk.c"
            ]},
            {max_sge, confirmed, "3 (X722), 13 (E810), 14 (third generation)", [
                "hw/irdma/i40iw_hw.h",
                "hw/irdma/user.h",
                "hw/irdma/ig3rdma_hw.h"
            ]},
            {max_qp_wr, confirmed, "895 (X722), else 4,063", [
                "hw/irdma/i40iw_hw.h",
                "hw/irdma/defs.h",
                "hw/irdma/ctrl.c"
            ]},
            {max_cqe, confirmed, "the device's, less 1", ["hw/irdma/verbs.c"]},
            {
                max_rd_atomic,
                confirmed,
                "63 in and 127 out (X722), 127 and 255 (E810), 64 or the firmware's (third "
                "generation)",
                [
                    "hw/irdma/i40iw_hw.h",
                    "hw/irdma/icrdma_hw.h",
                    "hw/irdma/ig3rdma_hw.h",
                    "hw/irdma/ctrl.c"
                ]
            },
            {
                windows,
                confirmed,
                "third generation: types 1 and 2B, bind and local invalidate by work request, "
                "send with invalidate; earlier ones cannot allocate one, though they have the "
                "flag of type 1",
                ["providers/irdma/uverbs.c", "hw/irdma/verbs.c"]
            },
            {
                modify_qp,
                confirmed,
                "attributes beyond the standard ones (EOPNOTSUPP), and steps that the state "
                "machine forbids (EINVAL); the RNR timer counts on the third generation alone, "
                "and these reach the device only with the next state",
                ["hw/irdma/verbs.c"]
            },
            {
                fatal,
                inferred,
                "a critical error asks ice for a reset, which may unplug the device and plug it "
                "in again; its removal cuts processes off with DEVICE_FATAL",
                ["hw/irdma/icrdma_if.c", "intel/ice/ice_main.c", "core/uverbs_std_types_async_fd.c"]
            },
            {gid_pkey, confirmed, "RoCE: 32 GIDs, one PKey; iWARP: one GID, no PKey", [
                "hw/irdma/verbs.c"
            ]}
        ]
    };
profile(erdma) ->
    #{
        provider => erdma,
        drivers => ["erdma"],
        name => "erdma_",
        vendor => 16#1ded,
        identified => ["providers/erdma/erdma.c", "hw/erdma/erdma_main.c"],
        carries => true,
        follows =>
            "iWARP: sends in place of immediates; RoCE: immediates; at most 96 bytes inline; no "
            "windows",
        fix => undefined,
        facts => [
            {rc, confirmed, "yes", ["hw/erdma/erdma_verbs.c"]},
            {rdma_cm, confirmed, "yes, of iWARP or of RoCE", [
                "hw/erdma/erdma_main.c",
                "hw/erdma/erdma_verbs.c"
            ]},
            {transport, confirmed, "iWARP or RoCE v2, as the device says", [
                "hw/erdma/erdma_verbs.c"
            ]},
            {write_with_imm, confirmed, "yes, iWARP too", ["providers/erdma/erdma_verbs.c"]},
            {inline, confirmed, "as asked up to 96; more is EINVAL", [
                "hw/erdma/erdma_verbs.c",
                "hw/erdma/erdma_verbs.h"
            ]},
            {inline_sent, confirmed, "yes; -EINVAL above 96", ["providers/erdma/erdma_verbs.c"]},
            {max_sge, confirmed, "6 of a send, 1 of a receive", ["hw/erdma/erdma_verbs.h"]},
            {
                max_qp_wr,
                confirmed,
                "8,192, or fewer receives as the device says; at least 1 of each",
                ["hw/erdma/erdma_main.c", "hw/erdma/erdma_verbs.c"]
            },
            {max_cqe, confirmed, "the device's", ["hw/erdma/erdma_main.c"]},
            {max_rd_atomic, confirmed, "128", ["hw/erdma/erdma_verbs.h"]},
            {windows, confirmed, "none, though max_mw is not 0; send with invalidate", [
                "hw/erdma/erdma_main.c",
                "providers/erdma/erdma.c",
                "providers/erdma/erdma_verbs.c"
            ]},
            {
                modify_qp,
                confirmed,
                "attributes beyond the standard ones (EOPNOTSUPP); over RoCE forbidden steps "
                "(EINVAL); over iWARP all but the state is ignored",
                ["hw/erdma/erdma_verbs.c"]
            },
            {
                fatal,
                confirmed,
                "QP_FATAL; no DEVICE_FATAL of its own; its removal cuts processes off with "
                "DEVICE_FATAL",
                ["hw/erdma/erdma_eq.c", "hw/erdma/erdma_main.c", "core/uverbs_std_types_async_fd.c"]
            },
            {gid_pkey, confirmed, "RoCE: the device's GIDs, one PKey; iWARP: one GID", [
                "hw/erdma/erdma_verbs.c"
            ]},
            {
                other,
                confirmed,
                "post_send returns negative error numbers, and -EIO in ERR; no shared receive "
                "queue",
                ["providers/erdma/erdma_verbs.c", "hw/erdma/erdma_verbs.c"]
            }
        ]
    };
profile(bnxt_re) ->
    #{
        provider => bnxt_re,
        drivers => ["bnxt_en"],
        name => "bnxt_re",
        vendor => 16#14e4,
        identified => ["providers/bnxt_re/main.c", "broadcom/bnxt/bnxt.h", "hw/bnxt_re/main.c"],
        carries => true,
        follows =>
            "RC with immediates; at most 96 or 208 bytes inline; it says that it has windows, and"
            " has none",
        fix => undefined,
        facts => [
            {rc, confirmed, "yes", ["providers/bnxt_re/verbs.c", "hw/bnxt_re/ib_verbs.c"]},
            {rdma_cm, confirmed, "yes", ["hw/bnxt_re/ib_verbs.c"]},
            {transport, confirmed, "RoCE v1, RoCE v2", ["hw/bnxt_re/ib_verbs.c"]},
            {write_with_imm, confirmed, "yes", ["providers/bnxt_re/verbs.c"]},
            {
                inline,
                confirmed,
                "entries of fixed size: 96, more is EINVAL; of variable size: as asked up to 16 "
                "times max_sge (208)",
                ["hw/bnxt_re/ib_verbs.c", "hw/bnxt_re/qplib_sp.c", "hw/bnxt_re/qplib_sp.h"]
            },
            {inline_sent, confirmed, "yes", ["providers/bnxt_re/verbs.c"]},
            {
                max_sge,
                confirmed,
                "6 with entries of fixed size, else the device's, at most 13; more of a send is "
                "ENOMEM",
                ["hw/bnxt_re/qplib_sp.c", "hw/bnxt_re/qplib_sp.h", "providers/bnxt_re/verbs.c"]
            },
            {
                max_qp_wr,
                confirmed,
                "the device's less a reserve, or 4,351 with entries of variable size",
                ["hw/bnxt_re/qplib_sp.c", "hw/bnxt_re/qplib_sp.h"]
            },
            {max_cqe, confirmed, "the device's", ["hw/bnxt_re/qplib_sp.c"]},
            {max_rd_atomic, confirmed, "the device's, at most 126", [
                "hw/bnxt_re/qplib_sp.c",
                "hw/bnxt_re/qplib_sp.h"
            ]},
            {
                windows,
                confirmed,
                "none for processes: the flags say types 1 and 2B, and neither provider nor "
                "driver allocates one; bind and local invalidate are EINVAL; send with invalidate",
                [
                    "hw/bnxt_re/ib_verbs.c",
                    "hw/bnxt_re/main.c",
                    "providers/bnxt_re/main.c",
                    "providers/bnxt_re/verbs.c"
                ]
            },
            {
                modify_qp,
                confirmed,
                "attributes beyond the standard ones (EOPNOTSUPP), and steps that the state "
                "machine forbids (EINVAL)",
                ["hw/bnxt_re/ib_verbs.c"]
            },
            {
                fatal,
                confirmed,
                "DEVICE_FATAL before a reset; the device is removed, and added again behind it; "
                "its removal cuts processes off with DEVICE_FATAL",
                ["hw/bnxt_re/main.c", "core/uverbs_std_types_async_fd.c"]
            },
            {gid_pkey, confirmed, "at most 256 GIDs, of IP addresses; one PKey", [
                "hw/bnxt_re/ib_verbs.c",
                "hw/bnxt_re/qplib_sp.c"
            ]}
        ]
    };
profile(ionic) ->
    #{
        provider => ionic,
        drivers => ["ionic"],
        name => "ionic_",
        vendor => 16#1dd8,
        identified => ["hw/ionic/ionic_ibdev.c", "pensando/ionic/ionic.h"],
        carries => true,
        follows => "RC with immediates; inline as granted; windows of type 2B",
        fix => undefined,
        facts => [
            {rc, confirmed, "yes", ["hw/ionic/ionic_controlpath.c"]},
            {rdma_cm, confirmed, "yes", ["hw/ionic/ionic_ibdev.c"]},
            {transport, confirmed, "RoCE v2", ["hw/ionic/ionic_ibdev.c"]},
            {write_with_imm, confirmed, "yes", ["providers/ionic/ionic_verbs.c"]},
            {inline, confirmed, "what an entry holds that is sized for the request", [
                "hw/ionic/ionic_controlpath.c",
                "hw/ionic/ionic_fw.h"
            ]},
            {inline_sent, confirmed, "yes; an error above the entry", [
                "providers/ionic/ionic_verbs.c"
            ]},
            {max_sge, confirmed, "the device's, at most 8", [
                "hw/ionic/ionic_ibdev.c",
                "hw/ionic/ionic_ibdev.h"
            ]},
            {max_qp_wr, confirmed, "65,535", ["hw/ionic/ionic_ibdev.c", "hw/ionic/ionic_queue.h"]},
            {max_cqe, confirmed, "65,435", [
                "hw/ionic/ionic_ibdev.c",
                "hw/ionic/ionic_ibdev.h",
                "hw/ionic/ionic_queue.h"
            ]},
            {max_rd_atomic, confirmed, "16", ["hw/ionic/ionic_ibdev.h"]},
            {
                windows,
                confirmed,
                "types 1 and 2B; type 2 by work request alone, type 1 by ibv_bind_mw alone; local"
                " invalidate, send with invalidate",
                [
                    "providers/ionic/ionic_verbs.c",
                    "hw/ionic/ionic_controlpath.c",
                    "hw/ionic/ionic_ibdev.c"
                ]
            },
            {
                modify_qp,
                confirmed,
                "changes of the capacity, and steps that the state machine forbids (EINVAL)",
                ["hw/ionic/ionic_controlpath.c"]
            },
            {
                fatal,
                confirmed,
                "DEVICE_FATAL if the admin queue fails; queue pairs are flushed; its removal cuts"
                " processes off with DEVICE_FATAL",
                [
                    "hw/ionic/ionic_admin.c",
                    "hw/ionic/ionic_ibdev.c",
                    "core/uverbs_std_types_async_fd.c"
                ]
            },
            {gid_pkey, confirmed, "256 GIDs; one PKey", ["hw/ionic/ionic_ibdev.h"]}
        ]
    };
profile(hns) ->
    #{
        provider => hns,
        drivers => ["hns3"],
        name => "hns_",
        vendor => 16#19e5,
        identified => [
            "providers/hns/hns_roce_u.c",
            "hisilicon/hns3/hns3_enet.c",
            "hw/hns/hns_roce_main.c"
        ],
        carries => true,
        follows => "RC with immediates; inline as granted; no windows",
        fix => undefined,
        facts => [
            {rc, confirmed, "yes", ["providers/hns/hns_roce_u_hw_v2.c", "hw/hns/hns_roce_hw_v2.c"]},
            {rdma_cm, confirmed, "yes", ["hw/hns/hns_roce_main.c"]},
            {transport, confirmed, "RoCE v1, RoCE v2 if the device has it", [
                "hw/hns/hns_roce_main.c"
            ]},
            {write_with_imm, confirmed, "yes", ["providers/hns/hns_roce_u_hw_v2.c"]},
            {
                inline,
                confirmed,
                "the next power of two, at most the device's; more is granted less, without an "
                "error",
                ["providers/hns/hns_roce_u_verbs.c", "hw/hns/hns_roce_qp.c"]
            },
            {inline_sent, confirmed, "yes; EINVAL above the grant, or above the path's MTU", [
                "providers/hns/hns_roce_u_hw_v2.c"
            ]},
            {max_sge, confirmed, "the device's", ["hw/hns/hns_roce_main.c"]},
            {max_qp_wr, confirmed, "the device's", ["hw/hns/hns_roce_main.c"]},
            {max_cqe, confirmed, "the device's", ["hw/hns/hns_roce_main.c"]},
            {max_rd_atomic, confirmed, "the device's", ["hw/hns/hns_roce_main.c"]},
            {windows, confirmed, "none; send with invalidate", [
                "hw/hns/hns_roce_main.c",
                "providers/hns/hns_roce_u_hw_v2.c"
            ]},
            {
                modify_qp,
                confirmed,
                "steps that the state machine forbids, an MTU above the port's, a PKey index or "
                "read depth above the device's (EINVAL)",
                ["hw/hns/hns_roce_qp.c"]
            },
            {
                fatal,
                confirmed,
                "a reset of the interface takes the device down and makes it again; its removal "
                "cuts processes off with DEVICE_FATAL",
                [
                    "hw/hns/hns_roce_hw_v2.c",
                    "hw/hns/hns_roce_main.c",
                    "core/uverbs_std_types_async_fd.c"
                ]
            },
            {gid_pkey, confirmed, "the device's GIDs; one PKey", ["hw/hns/hns_roce_main.c"]}
        ]
    };
profile(qedr) ->
    #{
        provider => qedr,
        drivers => ["qede"],
        name => "qedr",
        vendor => 16#1077,
        identified => ["providers/qedr/qelr_main.c", "qlogic/qede/qede_main.c", "hw/qedr/main.c"],
        carries => true,
        follows =>
            "RoCE: RC with immediates; iWARP: sends in their place; at most 256 bytes inline; no "
            "windows",
        fix => undefined,
        facts => [
            {rc, confirmed, "yes", ["providers/qedr/qelr_verbs.c", "hw/qedr/verbs.c"]},
            {rdma_cm, confirmed, "yes, of RoCE or of iWARP", ["hw/qedr/main.c"]},
            {transport, confirmed, "RoCE v1, RoCE v2, or iWARP", ["hw/qedr/main.c"]},
            {
                write_with_imm,
                inferred,
                "RoCE: yes; iWARP: the provider posts it, the device's answer is not known",
                ["providers/qedr/qelr_verbs.c"]
            },
            {inline, confirmed, "as asked up to 256; more is EINVAL", [
                "hw/qedr/verbs.c",
                "qlogic/qed/qed_rdma.c",
                "providers/qedr/roce_common.h"
            ]},
            {inline_sent, confirmed, "yes; -EINVAL above 256", ["providers/qedr/qelr_verbs.c"]},
            {max_sge, confirmed, "the device's, at most 4", [
                "qlogic/qed/qed_rdma.c",
                "providers/qedr/rdma_common.h"
            ]},
            {
                max_qp_wr,
                confirmed,
                "the greater of the device's send and receive limits: a send queue may hold fewer",
                ["hw/qedr/verbs.c"]
            },
            {max_cqe, confirmed, "the device's", ["hw/qedr/verbs.c"]},
            {max_rd_atomic, confirmed, "the device's, rounded down to a power of two", [
                "hw/qedr/verbs.c"
            ]},
            {windows, confirmed, "none, though max_mw may not be 0; send with invalidate", [
                "hw/qedr/main.c",
                "providers/qedr/qelr_main.c",
                "providers/qedr/qelr_verbs.c"
            ]},
            {
                modify_qp,
                confirmed,
                "attributes beyond the standard ones (EOPNOTSUPP), and steps that the state "
                "machine forbids (EINVAL); over iWARP an address or MTU is EINVAL",
                ["hw/qedr/verbs.c"]
            },
            {
                fatal,
                confirmed,
                "QP_FATAL; no DEVICE_FATAL of its own; a recovery removes the device and does not"
                " add it again; its removal waits until processes close it",
                ["hw/qedr/main.c", "qlogic/qede/qede_rdma.c", "core/uverbs_main.c"]
            },
            {gid_pkey, confirmed, "RoCE: 128 GIDs, one PKey; iWARP: one GID", [
                "hw/qedr/verbs.c",
                "hw/qedr/qedr.h"
            ]},
            {other, confirmed, "post_send returns negative error numbers", [
                "providers/qedr/qelr_verbs.c"
            ]}
        ]
    };
profile(cxgb4) ->
    #{
        provider => cxgb4,
        drivers => ["cxgb4"],
        name => "cxgb4_",
        vendor => 16#1425,
        identified => ["providers/cxgb4/dev.c", "hw/cxgb4/provider.c"],
        carries => true,
        follows => "RC with sends in place of immediates; 280 bytes inline; no windows",
        fix => undefined,
        facts => [
            {rc, confirmed, "yes", ["hw/cxgb4/qp.c"]},
            {rdma_cm, confirmed, "yes, of iWARP", ["hw/cxgb4/provider.c"]},
            {transport, confirmed, "iWARP", ["hw/cxgb4/provider.c"]},
            {write_with_imm, confirmed, "if the driver sets the queue's flag, else EINVAL", [
                "providers/cxgb4/qp.c",
                "providers/cxgb4/verbs.c"
            ]},
            {inline, confirmed, "280 whatever is asked; more is EINVAL", [
                "hw/cxgb4/qp.c",
                "hw/cxgb4/t4.h"
            ]},
            {inline_sent, confirmed, "yes; sends and writes hold 280 each", [
                "providers/cxgb4/qp.c",
                "providers/cxgb4/t4.h"
            ]},
            {max_sge, confirmed, "17 of a send, 4 of a receive", [
                "hw/cxgb4/provider.c",
                "hw/cxgb4/t4.h"
            ]},
            {max_qp_wr, confirmed, "the device's", ["hw/cxgb4/provider.c"]},
            {max_cqe, confirmed, "the device's", ["hw/cxgb4/provider.c"]},
            {max_rd_atomic, confirmed, "the device's, at most a parameter of the module (32)", [
                "hw/cxgb4/provider.c",
                "hw/cxgb4/cm.c"
            ]},
            {windows, confirmed, "none, though the flag of type 1 is set; send with invalidate", [
                "hw/cxgb4/provider.c",
                "providers/cxgb4/dev.c",
                "providers/cxgb4/qp.c"
            ]},
            {
                modify_qp,
                confirmed,
                "attributes beyond the standard ones (EOPNOTSUPP); a PSN is EINVAL except on T4; "
                "else all but state and access is ignored, and RTR too",
                ["hw/cxgb4/qp.c"]
            },
            {
                fatal,
                confirmed,
                "DEVICE_FATAL, then the device is removed; its removal waits until processes "
                "close it",
                ["hw/cxgb4/device.c", "core/uverbs_main.c"]
            },
            {gid_pkey, confirmed, "one GID, no PKey", ["hw/cxgb4/provider.c"]},
            {
                other,
                confirmed,
                "post_send returns negative error numbers, and -EINVAL once the queue is in error",
                ["providers/cxgb4/qp.c"]
            }
        ]
    };
profile(vmw_pvrdma) ->
    #{
        provider => vmw_pvrdma,
        drivers => ["vmw_pvrdma"],
        name => "vmw_pvrdma",
        vendor => 16#15ad,
        identified => ["providers/vmw_pvrdma/pvrdma_main.c", "hw/vmw_pvrdma/pvrdma_main.c"],
        carries => true,
        follows => "RC with immediates; nothing inline; no windows",
        fix => undefined,
        facts => [
            {rc, confirmed, "yes", ["providers/vmw_pvrdma/qp.c", "hw/vmw_pvrdma/pvrdma_qp.c"]},
            {rdma_cm, confirmed, "yes, of RoCE", ["hw/vmw_pvrdma/pvrdma_main.c"]},
            {transport, confirmed, "RoCE v1 or RoCE v2, as the host says", [
                "hw/vmw_pvrdma/pvrdma_main.c"
            ]},
            {write_with_imm, confirmed, "yes", ["providers/vmw_pvrdma/qp.c"]},
            {inline, confirmed, "0 whatever is asked", ["hw/vmw_pvrdma/pvrdma_qp.c"]},
            {inline_sent, confirmed, "no: the elements go to the device; the grant is 0", [
                "providers/vmw_pvrdma/qp.c",
                "hw/vmw_pvrdma/pvrdma_qp.c"
            ]},
            {max_sge, confirmed, "the host's", ["hw/vmw_pvrdma/pvrdma_verbs.c"]},
            {max_qp_wr, confirmed, "the host's", ["hw/vmw_pvrdma/pvrdma_verbs.c"]},
            {max_cqe, confirmed, "the host's", ["hw/vmw_pvrdma/pvrdma_verbs.c"]},
            {max_rd_atomic, confirmed, "the host's", ["hw/vmw_pvrdma/pvrdma_verbs.c"]},
            {windows, confirmed, "none: nothing allocates one", [
                "providers/vmw_pvrdma/pvrdma_main.c",
                "hw/vmw_pvrdma/pvrdma_main.c"
            ]},
            {
                modify_qp,
                confirmed,
                "attributes beyond the standard ones (EOPNOTSUPP), and steps that the state "
                "machine forbids (EINVAL)",
                ["hw/vmw_pvrdma/pvrdma_qp.c"]
            },
            {
                fatal,
                confirmed,
                "DEVICE_FATAL of the host is passed on; its removal waits until processes close it",
                ["hw/vmw_pvrdma/pvrdma_main.c", "core/uverbs_main.c"]
            },
            {gid_pkey, confirmed, "the host's tables", ["hw/vmw_pvrdma/pvrdma_verbs.c"]}
        ]
    };
profile(efa) ->
    #{
        provider => efa,
        drivers => ["efa"],
        name => "efa_",
        vendor => 16#1d0f,
        identified => ["hw/efa/efa_main.c"],
        carries => false,
        follows => "no RC queue pairs: links to other hosts stay on TCP",
        fix => "ENA Express, or the option mptcp over several interfaces (docs/DEPLOY.md)",
        facts => [
            {rc, confirmed, "no: EOPNOTSUPP, there are UD and SRD alone", [
                "providers/efa/verbs.c",
                "hw/efa/efa_verbs.c"
            ]},
            {rdma_cm, confirmed, "no: the port has no connection manager of the kernel", [
                "hw/efa/efa_verbs.c"
            ]},
            {transport, confirmed, "its own", ["hw/efa/efa_verbs.c"]},
            {
                write_with_imm,
                confirmed,
                "SRD by the extended interface if the device has it; post_send: no",
                ["providers/efa/verbs.c"]
            },
            {inline, confirmed, "as asked up to the device's; more is EINVAL", [
                "providers/efa/verbs.c",
                "hw/efa/efa_verbs.c"
            ]},
            {inline_sent, confirmed, "yes; EINVAL above the grant", ["providers/efa/verbs.c"]},
            {max_sge, confirmed, "the device's", ["hw/efa/efa_verbs.c"]},
            {max_qp_wr, confirmed, "the device's, the lesser of send and receive", [
                "hw/efa/efa_verbs.c"
            ]},
            {max_cqe, confirmed, "the device's", ["hw/efa/efa_verbs.c"]},
            {max_rd_atomic, unknown, "", []},
            {windows, confirmed, "none", ["hw/efa/efa_main.c", "providers/efa/efa.c"]},
            {modify_qp, confirmed, "attributes beyond eight of them (EOPNOTSUPP)", [
                "hw/efa/efa_verbs.c"
            ]},
            {
                fatal,
                confirmed,
                "no DEVICE_FATAL of its own; its removal waits until processes close it",
                ["hw/efa/efa_main.c", "core/uverbs_main.c"]
            },
            {gid_pkey, confirmed, "one GID, one PKey", ["hw/efa/efa_verbs.c"]},
            {other, confirmed, "post_send refuses requests without a completion", [
                "providers/efa/verbs.c"
            ]}
        ]
    };
profile(rxe) ->
    #{
        provider => rxe,
        drivers => ["rxe"],
        name => "rxe",
        vendor => none,
        identified => ["providers/rxe/rxe.c"],
        carries => true,
        follows => "RC with immediates; at most 512 bytes inline; windows, not as a safeguard",
        fix => undefined,
        facts => [
            {rc, confirmed, "yes", ["providers/rxe/rxe.c", "sw/rxe/rxe_qp.c"]},
            {rdma_cm, confirmed, "yes, of RoCE", ["sw/rxe/rxe_verbs.c"]},
            {transport, confirmed, "RoCE v2", ["sw/rxe/rxe_verbs.c"]},
            {write_with_imm, confirmed, "yes", ["providers/rxe/rxe.c"]},
            {
                inline,
                confirmed,
                "as asked, at least 16 for each element, up to 512; more is EINVAL",
                ["sw/rxe/rxe_qp.c", "sw/rxe/rxe_param.h"]
            },
            {inline_sent, confirmed, "yes; EINVAL above the grant", ["providers/rxe/rxe.c"]},
            {max_sge, confirmed, "32", ["sw/rxe/rxe_param.h"]},
            {max_qp_wr, confirmed, "1,048,576", ["sw/rxe/rxe_param.h"]},
            {max_cqe, confirmed, "32,767", ["sw/rxe/rxe_param.h", "sw/rxe/rxe.c"]},
            {max_rd_atomic, confirmed, "128", ["sw/rxe/rxe_param.h"]},
            {
                windows,
                confirmed,
                "types 1 and 2B; bind and local invalidate by work request, send with invalidate",
                ["providers/rxe/rxe.c", "sw/rxe/rxe_param.h", "sw/rxe/rxe_mw.c"]
            },
            {
                modify_qp,
                confirmed,
                "attributes beyond the standard ones (EOPNOTSUPP), and steps that the state "
                "machine forbids (EINVAL)",
                ["sw/rxe/rxe_verbs.c", "sw/rxe/rxe_qp.c"]
            },
            {
                fatal,
                confirmed,
                "no DEVICE_FATAL; it goes with its interface, and does not come back by itself; "
                "its removal waits until processes close it",
                ["sw/rxe/rxe_net.c", "core/uverbs_main.c"]
            },
            {gid_pkey, confirmed, "1,024 GIDs; one PKey", ["sw/rxe/rxe_param.h"]}
        ]
    };
profile(siw) ->
    #{
        provider => siw,
        drivers => ["siw"],
        name => "siw",
        vendor => none,
        identified => ["providers/siw/siw.c"],
        carries => true,
        follows => "RC with sends in place of immediates; at most 80 bytes inline; no windows",
        fix => undefined,
        facts => [
            {rc, confirmed, "yes, nothing else", ["sw/siw/siw_verbs.c"]},
            {rdma_cm, confirmed, "yes, of iWARP", ["sw/siw/siw_main.c", "sw/siw/siw_verbs.c"]},
            {transport, confirmed, "iWARP", ["sw/siw/siw_verbs.c"]},
            {write_with_imm, confirmed, "no: -EINVAL", ["providers/siw/siw.c"]},
            {inline, confirmed, "as asked up to 80; more is EINVAL", [
                "sw/siw/siw_verbs.c",
                "uapi/rdma/siw-abi.h"
            ]},
            {inline_sent, confirmed, "yes; -EINVAL above 80", ["providers/siw/siw.c"]},
            {max_sge, confirmed, "6; 1 of a read", ["sw/siw/siw.h", "uapi/rdma/siw-abi.h"]},
            {max_qp_wr, confirmed, "32,768", ["sw/siw/siw.h"]},
            {max_cqe, confirmed, "3,276,800", ["sw/siw/siw.h"]},
            {max_rd_atomic, confirmed, "128", ["sw/siw/siw.h"]},
            {windows, confirmed, "none; send with invalidate", [
                "providers/siw/siw.c",
                "sw/siw/siw.h"
            ]},
            {
                modify_qp,
                confirmed,
                "attributes beyond the standard ones (EOPNOTSUPP); all but state and access is "
                "ignored",
                ["sw/siw/siw_verbs.c"]
            },
            {
                fatal,
                confirmed,
                "no DEVICE_FATAL; it goes with its interface, and does not come back by itself; "
                "its removal waits until processes close it",
                ["sw/siw/siw_main.c", "core/uverbs_main.c"]
            },
            {gid_pkey, confirmed, "one GID, the hardware address; no PKey", ["sw/siw/siw_verbs.c"]},
            {other, confirmed, "post_send returns negative error numbers", ["providers/siw/siw.c"]}
        ]
    }.
