%% Judges the facts of inet_rdma_doctor_facts.
-module(inet_rdma_doctor_findings).

-export([judge/1]).
-export_type([finding/0, severity/0, locked_memory/0]).

%% ok: as it should be. note: worth to know, and harmless under the option fabric. problem: it keeps
%% links on TCP, or the node from starting.
-type severity() :: ok | note | problem.
-type finding() :: #{
    severity := severity(), about := atom(), text := binary(), fix := binary() | undefined
}.

%% limit_bytes: what binds this process. link_bytes, stream_bytes: what a link and a stream over
%% verbs need. links: at the same time, at most.
-type locked_memory() :: #{
    limit_bytes := non_neg_integer() | unlimited | undefined,
    link_bytes := pos_integer(),
    stream_bytes := pos_integer(),
    links := non_neg_integer() | unlimited | undefined
}.

%% The size of a control message: receive slots and send entries have one each.
-define(CONTROL_BYTES, 40).
-define(FIRST_RING_BYTES, 65536).
%% Receives beside the receive slots: SELF_TEST_RECEIVES of the native library.
-define(SELF_TEST_RECEIVES, 8).
-define(PAGE_BYTES, 4096).

-define(MEMLOCK_FIX,
    "`ulimit -l unlimited`, LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for a "
    "container; or lower receive_slots, or ring_bytes below 65536"
).

%% The fields of inet_rdma_doctor:report() that judge the facts.
-spec judge(inet_rdma_doctor_facts:facts()) -> #{atom() => term()}.
judge(#{live := #{config := Checked, shm := Shm, tls := Tls, proto_dist := ProtoDist}} = Facts) ->
    Config = #{fabric := Fabric} = config(Checked),
    Memory = locked_memory(Config, Facts),
    IsCarrier = ProtoDist =:= none,
    Takes = fun(Wanted) -> IsCarrier andalso (Fabric =:= auto orelse Fabric =:= Wanted) end,
    CanVerbs = Takes(verbs) andalso can_verbs(Config, Memory, Facts),
    %% The protocol that carries a link that does not move.
    Stays =
        case Config of
            #{security := tls} when IsCarrier -> tls;
            #{} -> tcp
        end,
    Others =
        case CanVerbs of
            true -> verbs;
            false -> Stays
        end,
    This =
        case Takes(shm) andalso Shm =:= ok of
            true -> shm;
            false -> Others
        end,
    Starts = [] =:= [Why || {error, Why} <- [Checked, Tls]],
    #{
        starts => Starts,
        leaves_tcp => Starts andalso This =/= Stays,
        fabric => Fabric,
        this_host => This,
        other_hosts => Others,
        locked_memory => Memory,
        findings => findings(Checked, Memory, CanVerbs, in_the_way(CanVerbs, Fabric, Facts), Facts)
    }.

%% A node with wrong options does not start; the rest is judged with the defaults.
config({ok, Config}) ->
    Config;
config({error, _}) ->
    maps:from_list([{Key, Default} || {Key, _, _, Default} <- inet_rdma_options:list()]).

%% Severity of a missing part of verbs. It is a problem only if no device works, and the option
%% fabric is verbs, or auto on a machine that has a device that can carry links.
in_the_way(true, _Fabric, _Facts) ->
    note;
in_the_way(false, verbs, _Facts) ->
    problem;
in_the_way(false, auto, #{devices := Devices}) ->
    case lists:any(fun carries/1, Devices) of
        true -> problem;
        false -> note
    end;
in_the_way(false, _Fabric, _Facts) ->
    note.

can_verbs(_Config, #{links := 0}, _Facts) ->
    false;
can_verbs(Config, _Memory, #{live := #{verbs := Verbs}, devices := Devices}) ->
    Verbs =:= ok andalso lists:any(fun(Device) -> is_usable(Config, Device) end, Devices).

is_usable(Config, #{usable := Usable, limits := Limits, ports := Ports} = Device) ->
    Usable =:= ok andalso carries(Device) andalso holds(Config, Limits) andalso
        lists:any(fun is_reachable/1, Ports).

%% A device without a profile may carry links.
carries(Device) ->
    case of_provider(Device) of
        #{carries := Carries} -> Carries;
        undefined -> true
    end.

of_provider(#{driver := Driver, name := Name}) ->
    inet_rdma_providers:of_device(Driver, Name).

%% The same condition as that of inet_rdma_fabric_verbs when it makes a connection.
holds(#{receive_slots := Slots}, #{queue_entries := Queue, completion_entries := Completions}) ->
    Slots + ?SELF_TEST_RECEIVES =< Queue andalso Slots + ?SELF_TEST_RECEIVES < Completions;
holds(_Config, #{}) ->
    true.

is_active(#{state := State}) -> State =:= <<"ACTIVE">>.

%% The connection manager finds a device by the address of its interface; where that is not known,
%% it may have one.
is_reachable(#{interface := undefined} = Port) ->
    is_active(Port);
is_reachable(#{addresses := Addresses} = Port) ->
    is_active(Port) andalso lists:any(fun is_routable/1, Addresses).

is_routable(<<"fe80:", _/binary>>) -> false;
is_routable(_) -> true.

%% As inet_rdma_fabric_verbs registers it when a connection is made: the first ring, as much staging
%% memory, and slots; for streams with bulk the landing buffers, too. Whole pages each.
locked_memory(Config, #{memlock := #{limit_bytes := Limit, exempt := IsExempt}, devices := Devices}) ->
    #{
        ring_bytes := Ring,
        landing_buffers := Buffers,
        landing_bytes := Landing,
        receive_slots := Slots
    } = Config,
    %% Receives, and twice as many sends; iWARP has two sends for each transfer.
    PerSlot =
        case [iwarp || #{transport := iwarp} <- Devices] of
            [] -> 3;
            _ -> 5
        end,
    First = pages(min(Ring, ?FIRST_RING_BYTES)),
    Link = 2 * First + pages((Slots * PerSlot + ?SELF_TEST_RECEIVES) * ?CONTROL_BYTES),
    Bound =
        case IsExempt of
            true -> unlimited;
            false -> Limit
        end,
    #{
        limit_bytes => Bound,
        link_bytes => Link,
        stream_bytes => Link + pages(Buffers * Landing),
        links =>
            case is_integer(Bound) of
                true -> Bound div Link;
                false -> Bound
            end
    }.

pages(Bytes) -> (Bytes + ?PAGE_BYTES - 1) div ?PAGE_BYTES * ?PAGE_BYTES.

findings(Checked, Memory, CanVerbs, InTheWay, Facts) ->
    Config = config(Checked),
    #{live := #{tls := Tls, links := Links, listeners := Listeners} = Live, devices := Devices} =
        Facts,
    Pieces =
        case Live of
            #{verbs := left_out} ->
                [];
            _ ->
                place(Facts) ++ libraries(InTheWay, Facts) ++ node_files(InTheWay, Facts) ++
                    no_device(InTheWay, Facts) ++
                    [Finding || Device <- Devices, Finding <- device(InTheWay, Config, Device)] ++
                    memory(InTheWay, Memory, Devices)
        end,
    Of = fun(About, Found) ->
        [finding(Severity, About, "~ts", [Text], Fix) || {Severity, Text, Fix} <- Found]
    end,
    carrier(Live) ++ options(Checked) ++ not_terms(Live) ++
        Of(tls, inet_rdma_doctor_tls:findings(Tls)) ++ native(Live) ++
        shm(Config, Live) ++ shm_directory(Config, Live) ++ verbs(InTheWay, CanVerbs, Pieces, Live) ++
        Pieces ++
        mptcp(Live) ++ schedulers(Live) ++
        Of(links, inet_rdma_doctor_links:findings(Config, Links, Listeners)) ++
        flight_recorder(Live).

mptcp(#{mptcp := off}) ->
    [];
mptcp(#{mptcp := ok}) ->
    [
        ok(
            mptcp,
            "the kernel gives this node sockets of MPTCP; `ip mptcp endpoint` says over which "
            "addresses",
            []
        )
    ];
mptcp(#{mptcp := {error, Why}}) ->
    [
        finding(
            note,
            mptcp,
            "the option mptcp is auto, and links have plain TCP: ~ts",
            [Why],
            "`sysctl net.mptcp.enabled=1` in the network namespace of the node; Linux 5.16 or "
            "later with CONFIG_MPTCP"
        )
    ].

flight_recorder(#{flight_file := {ok, Path}}) ->
    [
        finding(
            ok,
            flight_recorder,
            "the last events of links are in ~ts",
            [inet_rdma_recorder:text(Path)],
            undefined
        )
    ];
flight_recorder(#{flight_file := none}) ->
    [].

carrier(#{proto_dist := none}) -> [];
carrier(#{proto_dist := {Why, Fix}}) -> [finding(problem, carrier, "~ts", [Why], Fix)].

options({ok, #{fabric := Fabric, required := Required}}) ->
    [ok(options, "the option fabric is ~s", [Fabric])] ++
        [
            finding(
                note,
                options,
                "the option required refuses links that could only stay on TCP",
                [],
                undefined
            )
         || Required
        ];
options({error, Error}) ->
    [
        finding(
            problem,
            options,
            "~ts",
            [inet_rdma_options:format_error(Error)],
            "a node does not start with it: see docs/OPTIONS.md; look in flags, vm.args, ERL_FLAGS "
            "and sys.config"
        )
    ].

not_terms(#{not_terms := Flags}) ->
    [
        finding(
            note,
            options,
            "-inet_rdma ~ts ~ts is not an Erlang term: a release does not start with it",
            [Key, Value],
            "as -inet_rdma flight_directory '\"/var/log\"', -inet_rdma shm_allowed_uids "
            "'[1000,1001]'"
        )
     || {Key, Value} <- Flags
    ].

native(#{native := ok}) ->
    [];
native(#{native := {error, Why}}) ->
    [
        finding(
            problem,
            native,
            "~ts: all links stay on TCP",
            [Why],
            "on Linux `make build`, `mix compile` or `rebar3 compile` make it, or say what is "
            "missing (docs/DEPLOY.md); priv/inet_rdma_nif.so must lie beside ebin"
        )
    ].

shm(_Config, #{native := {error, _}}) ->
    [];
shm(_Config, #{shm := ok}) ->
    [ok(shm, "shared memory works: this node has connected to itself", [])];
shm(#{fabric := Fabric}, #{shm := {error, Why}}) ->
    [
        finding(
            shm_severity(Fabric),
            shm,
            "shared memory does not work: ~ts",
            [Why],
            "the system must allow memfd_create, eventfd and abstract Unix sockets (look at "
            "seccomp profiles), and `ulimit -n` descriptors; without it links within this host "
            "take an RDMA device, or stay on TCP"
        )
    ].

%% What does not work of shm, by the option fabric.
shm_severity(auto) -> problem;
shm_severity(shm) -> problem;
shm_severity(_) -> note.

%% An option asks for the directory. If it cannot be used, that is a problem, unless the option
%% fabric leaves shm out.
shm_directory(#{shm_directory := Directory, shm_allowed_uids := Users}, #{shm_directory := ok}) ->
    [
        ok(shm_directory, "nodes of other containers find this one in ~ts~ts", [
            Directory, allowed(Users)
        ])
    ];
shm_directory(#{fabric := Fabric}, #{shm_directory := {error, Why}}) ->
    [
        finding(
            shm_severity(Fabric),
            shm_directory,
            "~ts: links to other containers of this host stay on TCP",
            [Why],
            "docs/DEPLOY.md has the rules for the directory; `ls -ld` shows its owner and mode as "
            "this node sees them"
        )
    ];
shm_directory(_Config, #{shm_directory := none}) ->
    [].

allowed([]) ->
    "";
allowed(Users) ->
    [", also those of users ", lists:join(", ", [integer_to_list(User) || User <- Users])].

%% Reports the reason of verbs only if no finding about a single part has reported it.
verbs(_InTheWay, true, _Pieces, _Live) ->
    [ok(verbs, "the connection manager answers, and a device has an active port", [])];
verbs(InTheWay, false, _Pieces, #{verbs := left_out}) ->
    [
        finding(
            InTheWay,
            verbs,
            "this build has no verbs fabric: links to other hosts stay on TCP",
            [],
            "build the native library again without the environment variable INET_RDMA_FEATURES"
        )
    ];
verbs(InTheWay, false, Pieces, #{verbs := {error, Why}, native := ok}) ->
    case [Finding || #{severity := Severity} = Finding <- Pieces, Severity =/= ok] of
        [] -> [finding(InTheWay, verbs, "~ts", [Why], undefined)];
        _ -> []
    end;
verbs(_InTheWay, false, _Pieces, _Live) ->
    [].

%% Says nothing where the machine's firmware names no place that is known.
place(#{place := Words, devices := Devices}) ->
    case inet_rdma_places:of_machine(Words) of
        undefined ->
            [];
        #{name := Name, offers := Offers, step := Step} ->
            Fix =
                case {Devices, Step} of
                    {[], none} -> undefined;
                    {[], _} -> ["for RDMA between hosts: ", Step, " (docs/HARDWARE.md)"];
                    {[_ | _], _} -> undefined
                end,
            Severity =
                case Fix of
                    undefined -> ok;
                    _ -> note
                end,
            [finding(Severity, place, "this machine is of ~s: ~s", [Name, Offers], Fix)]
    end.

libraries(_InTheWay, #{live := #{native := {error, _}}}) ->
    [];
libraries(InTheWay, #{libraries := Libraries}) ->
    case [Name || #{name := Name, file := undefined} <- Libraries] of
        [] ->
            [
                ok(libraries, "~ts: ~ts, ~ts", [Name, File, version(Version)])
             || #{name := Name, file := File, version := Version} <- Libraries
            ];
        Missing ->
            [
                finding(
                    InTheWay,
                    libraries,
                    "not installed: ~ts",
                    [lists:join(", ", Missing)],
                    "install rdma-core (Debian: apt-get install librdmacm1 ibverbs-providers)"
                )
            ]
    end.

version(undefined) -> "version unknown";
version(Version) -> ["rdma-core ", Version].

node_files(InTheWay, #{node_files := Files} = Facts) ->
    Paths = fun(Kinds) ->
        [Path || #{path := Path, access := Access} <- Files, lists:member(Access, Kinds)]
    end,
    {Usable, Forbidden} = {Paths([read_write]), Paths([read, write, none])},
    missing(InTheWay, Paths([missing]), Facts) ++
        [
            finding(
                InTheWay,
                node_files,
                "this user may not read and write ~ts",
                [lists:join(", ", Forbidden)],
                "mode 0666 is usual, as the kernel checks rights itself; else the group that `ls "
                "-l` names (Debian: rdma): `usermod -aG GROUP USER`"
            )
         || Forbidden =/= []
        ] ++
        [
            ok(node_files, "this user may read and write ~ts", [lists:join(", ", Usable)])
         || Usable =/= []
        ] ++
        uverbs(InTheWay, Facts).

%% Without a device it is not needed.
missing(_InTheWay, _Paths, #{devices := []}) ->
    [];
missing(InTheWay, Paths, #{modules := Modules}) ->
    Fix =
        case lists:member(<<"rdma_ucm">>, Modules) of
            true ->
                "the kernel's module is loaded: give the container --device=/dev/infiniband, or "
                "look at udev";
            false ->
                "`modprobe rdma_ucm`; to have it at each start: a line rdma_ucm in "
                "/etc/modules-load.d/rdma.conf"
        end,
    [finding(InTheWay, node_files, "~ts is missing", [Path], Fix) || Path <- Paths].

uverbs(InTheWay, #{devices := [_ | _], node_files := [_RdmaCm]}) ->
    [
        finding(
            InTheWay,
            node_files,
            "/dev/infiniband/uverbs* are missing",
            [],
            "`modprobe ib_uverbs`; a container needs --device=/dev/infiniband"
        )
    ];
uverbs(_InTheWay, _Facts) ->
    [].

no_device(InTheWay, #{devices := []}) ->
    [
        finding(
            InTheWay,
            devices,
            "this machine has no RDMA device: links to other hosts stay on TCP",
            [],
            "with an RDMA card: load its driver; in a container: share the host's network; to try "
            "things without one: `modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0`"
        )
    ];
no_device(_InTheWay, _Facts) ->
    [].

device(InTheWay, Config, #{name := Name, ports := Ports} = Device) ->
    software(Device) ++ profile(InTheWay, Device) ++ without(Device) ++ opened(InTheWay, Device) ++
        limits(InTheWay, Config, Device) ++
        [Finding || Port <- Ports, Finding <- port(down(InTheWay, Ports), Name, Device, Port)].

software(#{name := Name, software := true, driver := Driver}) ->
    Which =
        case Driver of
            undefined -> "";
            _ -> [" (", Driver, ")"]
        end,
    [
        finding(
            note,
            devices,
            "~ts is a software device~ts: good for tests, slower than TCP",
            [Name, Which],
            "to keep links to other hosts on TCP: the option fabric shm"
        )
    ];
software(_Device) ->
    [].

%% What the sources of the device's provider say, not what was seen here.
profile(InTheWay, #{name := Name, driver := Driver} = Device) ->
    case of_provider(Device) of
        #{provider := Provider, follows := Follows, fix := Fix, carries := Carries} ->
            Severity =
                case {Carries, Fix} of
                    {false, _} -> InTheWay;
                    {true, undefined} -> ok;
                    {true, _} -> note
                end,
            [finding(Severity, profile, "~ts, provider ~s: ~ts", [Name, Provider, Follows], Fix)];
        undefined ->
            [
                finding(
                    note,
                    profile,
                    "~ts: no profile of the driver ~ts is known",
                    [Name, inet_rdma_doctor_text:word(Driver)],
                    "`certify` tests it; send its report (docs/HARDWARE.md)"
                )
            ]
    end.

without(#{without := []}) ->
    [];
without(#{name := Name, without := Without}) ->
    [
        finding(
            note,
            self_test,
            "~ts: connections of this node do without ~ts, as the device has failed the self-test",
            [Name, lists:join(", ", [inet_rdma_error:tried(One) || One <- Without])],
            "please report it with the device and its driver; a later driver or firmware may pass"
        )
    ].

opened(InTheWay, #{name := Name, usable := no_provider}) ->
    [
        finding(
            InTheWay,
            devices,
            "~ts is known to the kernel, and libibverbs does not list it",
            [Name],
            "install its provider (Debian: apt-get install ibverbs-providers), and see that "
            "/dev/infiniband/uverbs* are there"
        )
    ];
opened(InTheWay, #{name := Name, usable := {refused, Why}}) ->
    [
        finding(
            InTheWay,
            devices,
            "~ts cannot be used: ~ts",
            [Name, Why],
            "/dev/infiniband/uverbs* must be there, and this user be able to read and write them; "
            "else see `dmesg`"
        )
    ];
opened(_InTheWay, _Device) ->
    [].

limits(InTheWay, #{receive_slots := Slots} = Config, #{name := Name, limits := Limits}) ->
    case holds(Config, Limits) of
        true ->
            [];
        false ->
            #{queue_entries := Queue, completion_entries := Completions} = Limits,
            [
                finding(
                    InTheWay,
                    devices,
                    "~ts holds ~b receives and ~b completions in a queue, and receive_slots is ~b",
                    [Name, Queue, Completions, Slots],
                    "lower receive_slots"
                )
            ]
    end.

%% A port without a cable is no problem if another port works.
down(InTheWay, Ports) ->
    case lists:any(fun is_reachable/1, Ports) of
        true -> note;
        false -> InTheWay
    end.

port(Down, Name, Device, #{number := Number, state := State} = Port) ->
    Where = [Name, " port ", integer_to_binary(Number)],
    Found =
        case {is_active(Port), is_reachable(Port)} of
            {true, true} ->
                ok(ports, "~ts is active~ts", [Where, at(Port)]);
            {true, false} ->
                no_address(Down, Where, Port);
            {false, _} ->
                finding(
                    Down,
                    ports,
                    "~ts is ~ts~ts",
                    [Where, word(State), physical(Port)],
                    down_fix(Port)
                )
        end,
    [Found] ++ unknown_interface(Where, Device, Port) ++ counters(Where, Port).

word(undefined) -> "in an unknown state";
word(State) -> State.

physical(#{physical_state := undefined}) -> "";
physical(#{physical_state := State}) -> [" (", State, ")"].

at(#{interface := undefined}) ->
    "";
at(#{interface := Interface, addresses := Addresses}) ->
    [" on ", Interface, ", ", lists:join(", ", lists:filter(fun is_routable/1, Addresses))].

no_address(Down, Where, #{interface := Interface}) ->
    finding(
        Down,
        ports,
        "~ts is active, and its interface ~ts has no IP address",
        [Where, Interface],
        ["`ip addr add ADDRESS/BITS dev ", Interface, "`: connections are made to IP addresses"]
    ).

down_fix(#{link_layer := <<"InfiniBand">>, physical_state := <<"LinkUp">>}) ->
    "the cable is good, and no subnet manager has set up the port: run one (opensm) in this "
    "network";
down_fix(#{interface := Interface}) when Interface =/= undefined ->
    ["look at the cable and the switch; `ip link set ", Interface, " up`"];
down_fix(_Port) ->
    "look at the cable and the switch".

%% InfiniBand without IPoIB is a note only: the interface may be of a kind that this function does
%% not recognise.
unknown_interface(Where, #{transport := infiniband}, #{
    link_layer := <<"InfiniBand">>,
    interface := undefined,
    state := <<"ACTIVE">>
}) ->
    [
        finding(
            note,
            ports,
            "~ts has no IPoIB interface",
            [Where],
            "`modprobe ib_ipoib`, then give the interface an IP address: connections are made to "
            "IP addresses"
        )
    ];
unknown_interface(_Where, _Device, _Port) ->
    [].

counters(_Where, #{counters := []}) ->
    [];
counters(Where, #{counters := Counters}) ->
    Text = lists:join(", ", [
        io_lib:format("~ts ~b", [Name, Value])
     || #{name := Name, value := Value} <- Counters
    ]),
    [
        finding(
            note,
            counters,
            "~ts has counted errors: ~ts",
            [Where, Text],
            "look again later: those that grow point to a cable, a switch without flow control, or "
            "a peer that is gone"
        )
    ].

memory(_InTheWay, _Memory, []) ->
    [];
memory(_InTheWay, #{links := unlimited} = Memory, _Devices) ->
    [ok(locked_memory, "not limited; ~ts", [needs(Memory)])];
memory(_InTheWay, #{links := undefined}, _Devices) ->
    [finding(note, locked_memory, "the limit on locked memory is not known", [], undefined)];
memory(InTheWay, #{links := 0, limit_bytes := Limit} = Memory, _Devices) ->
    [
        finding(
            InTheWay,
            locked_memory,
            "the limit on locked memory is ~ts; ~ts",
            [bytes(Limit), needs(Memory)],
            ?MEMLOCK_FIX
        )
    ];
memory(_InTheWay, #{links := Count, limit_bytes := Limit} = Memory, _Devices) ->
    [
        finding(
            note,
            locked_memory,
            "the limit on locked memory is ~ts; ~ts: enough for ~b links",
            [bytes(Limit), needs(Memory), Count],
            ["for more: ", ?MEMLOCK_FIX]
        )
    ].

needs(#{link_bytes := Link, stream_bytes := Stream}) ->
    io_lib:format("over verbs a link needs ~ts, a stream ~ts", [bytes(Link), bytes(Stream)]).

bytes(Bytes) when Bytes < 1 bsl 20 -> io_lib:format("~b KiB", [Bytes bsr 10]);
bytes(Bytes) -> io_lib:format("~.1f MiB", [Bytes / (1 bsl 20)]).

schedulers(#{schedulers := Schedulers, cores := Cores}) when
    is_integer(Cores), 2 * Schedulers > Cores
->
    [
        finding(
            note,
            schedulers,
            "two nodes like this one share cores (schedulers: ~b, cores: ~b)",
            [Schedulers, Cores],
            "with several nodes on this host: +sbwt none +sbwtdcpu none +sbwtdio none, see "
            "docs/TUNING.md"
        )
    ];
schedulers(_Live) ->
    [].

ok(About, Format, Arguments) ->
    finding(ok, About, Format, Arguments, undefined).

finding(Severity, About, Format, Arguments, Fix) ->
    #{
        severity => Severity,
        about => About,
        text => unicode:characters_to_binary(io_lib:format(Format, Arguments)),
        fix =>
            case Fix of
                undefined -> undefined;
                _ -> unicode:characters_to_binary(Fix)
            end
    }.
