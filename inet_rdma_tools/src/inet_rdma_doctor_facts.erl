%% Facts about this machine, without judging them: from the files of the kernel, below a root
%% directory, and from inet_rdma_doctor_live. Texts and names are binaries; undefined: not known.
-module(inet_rdma_doctor_facts).

-include_lib("kernel/include/file.hrl").

-export([read/2]).
-export_type([facts/0, device/0, port_facts/0, gid/0, counter/0, node_file/0, memlock/0, library/0]).

-type facts() :: #{
    live := inet_rdma_doctor_live:live(),
    kernel := binary() | undefined,
    place := inet_rdma_places:words(),
    modules := [binary()],
    libraries := [library()],
    node_files := [node_file()],
    memlock := memlock(),
    devices := [device()]
}.

%% file: what the loader took; undefined: it is not loaded. version: rdma-core's.
-type library() :: #{
    name := binary(), file := binary() | undefined, version := binary() | undefined
}.

-type node_file() :: #{path := binary(), access := read_write | read | write | none | missing}.

%% exempt: the process has CAP_IPC_LOCK, so the limit does not bind it.
-type memlock() :: #{limit_bytes := non_neg_integer() | unlimited | undefined, exempt := boolean()}.

%% software: a device that the kernel emulates on an Ethernet interface. refused: why it cannot be
%% opened; no_provider: libibverbs does not list it. iwarp or infiniband is the verbs transport:
%% RoCE is infiniband. without: what connections of this node do without, as the device has failed
%% the self-test.
-type device() :: #{
    name := binary(),
    driver := binary() | undefined,
    software := boolean(),
    description := binary() | undefined,
    transport := infiniband | iwarp,
    firmware := binary() | undefined,
    usable := ok | no_provider | unknown | {refused, binary()},
    limits := #{atom() => non_neg_integer()},
    without := [inet_rdma_error:tried()],
    ports := [port_facts()]
}.

%% link_layer, state, physical_state and rate in the kernel's words; addresses are those of
%% interface.
-type port_facts() :: #{
    number := pos_integer(),
    state := binary() | undefined,
    physical_state := binary() | undefined,
    rate := binary() | undefined,
    link_layer := binary() | undefined,
    active_mtu := pos_integer() | undefined,
    max_mtu := pos_integer() | undefined,
    interface := binary() | undefined,
    addresses := [binary()],
    gids := [gid()],
    counters := [counter()]
}.

-type gid() :: #{
    index := non_neg_integer(),
    type := binary(),
    address := binary(),
    interface := binary() | undefined
}.
-type counter() :: #{name := binary(), value := pos_integer()}.

%% Bit of CAP_IPC_LOCK in the capability masks of /proc/self/status.
-define(CAP_IPC_LOCK, 14).

-define(MODULES, ["ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm", "rdma_rxe", "siw"]).

%% Counters that stay at 0 on a healthy link. Flush errors are not among them: each close of a
%% connection makes some.
-define(ERROR_LIKE,
    "(err|retry|retries|rnr|out_of_seq|out_of_buffer|link_downed|discard|overrun|drop|timeout)"
).
-define(NO_ERROR, "flush").

%% Root: "/", or where a recorded tree begins.
-spec read(file:filename(), inet_rdma_doctor_live:live()) -> facts().
read(Root, Live) ->
    Status = lines(Root, "proc/self/status"),
    #{
        live => Live,
        kernel => line(Root, "proc/sys/kernel/osrelease"),
        place => maps:from_list([
            {File, line(Root, "sys/class/dmi/id/" ++ File)}
         || File <- inet_rdma_places:files()
        ]),
        modules => [
            list_to_binary(Name)
         || Name <- ?MODULES, filelib:is_dir(join(Root, "sys/module/" ++ Name))
        ],
        libraries => libraries(lines(Root, "proc/self/maps")),
        node_files => node_files(Root),
        memlock => #{
            limit_bytes => memlock_limit(lines(Root, "proc/self/limits")),
            exempt => may_lock(Status) andalso
                is_initial_namespace(lines(Root, "proc/self/uid_map"))
        },
        devices => [device(Root, Name, Live) || Name <- list(Root, "sys/class/infiniband")]
    }.

%% The loader's choice shows in the memory map, as soon as the native library has loaded them.
libraries(Maps) ->
    [library(Name, Maps) || Name <- ["libibverbs", "librdmacm"]].

library(Name, Maps) ->
    %% ADDRESS PERMISSIONS OFFSET DEVICE INODE FILE; rdma-core's version is what follows the ABI's
    %% two numbers.
    Pattern = "(/.*/" ++ Name ++ "\\.so[.0-9]*)",
    File = first_of(
        [Mapped || Line <- Maps, {match, [Mapped]} <- [re:run(Line, Pattern, first())]], undefined
    ),
    Version = [
        Number
     || File =/= undefined,
        {match, [Number]} <- [re:run(File, "\\.so\\.\\d+\\.\\d+\\.(\\d+\\.\\d+)$", first())]
    ],
    #{name => list_to_binary(Name), file => File, version => first_of(Version, undefined)}.

node_files(Root) ->
    Uverbs = [Name || <<"uverbs", _/binary>> = Name <- list(Root, "dev/infiniband")],
    [node_file(Root, <<"dev/infiniband/", Name/binary>>) || Name <- [<<"rdma_cm">> | Uverbs]].

node_file(Root, Path) ->
    #{
        path => <<"/", Path/binary>>,
        access =>
            case file:read_file_info(join(Root, Path)) of
                {ok, #file_info{access = Access}} -> Access;
                {error, _} -> missing
            end
    }.

memlock_limit(Limits) ->
    case
        [
            Soft
         || Line <- Limits,
            {match, [Soft]} <- [re:run(Line, "^Max locked memory +([^ ]+)", first())]
        ]
    of
        [<<"unlimited">>] -> unlimited;
        [Bytes] -> binary_to_integer(Bytes);
        [] -> undefined
    end.

may_lock(Status) ->
    case [Mask || <<"CapEff:", Mask/binary>> <- Status] of
        [Mask] -> binary_to_integer(string:trim(Mask), 16) band (1 bsl ?CAP_IPC_LOCK) =/= 0;
        [] -> false
    end.

%% The capabilities of root in a user namespace of its own do not count for memory.
is_initial_namespace([Line]) -> string:lexemes(Line, " ") =:= [<<"0">>, <<"0">>, <<"4294967295">>];
is_initial_namespace(_) -> false.

device(Root, Name, #{verbs_devices := All} = Live) ->
    Dir = <<"sys/class/infiniband/", Name/binary>>,
    Verbs = asked(Name, All),
    Transport = maps:get(transport, Verbs, transport(line(Root, [Dir, "/node_type"]))),
    {Driver, IsSoftware} = driver(Root, Dir),
    #{
        name => Name,
        driver => Driver,
        software => IsSoftware,
        description => line(Root, [Dir, "/node_desc"]),
        transport => Transport,
        firmware => line(Root, [Dir, "/fw_ver"]),
        usable => usable(Verbs),
        limits => maps:get(limits, Verbs, #{}),
        without => maps:get(without, Verbs, []),
        ports => [
            port(Root, Dir, binary_to_integer(Number), maps:get(ports, Verbs, []), Transport, Live)
         || Number <- list(Root, [Dir, "/ports"])
        ]
    }.

asked(_Name, unknown) -> #{unknown => true};
asked(Name, All) -> first_of([Map || #{name := Known} = Map <- All, Known =:= Name], #{}).

usable(#{unknown := true}) -> unknown;
usable(#{refused := Why}) -> {refused, Why};
usable(#{ports := _}) -> ok;
usable(#{}) -> no_provider.

transport(<<"4:", _/binary>>) -> iwarp;
transport(_) -> infiniband.

%% An emulated device has no hardware below it. rxe says which interface it is on; siw has a
%% description, which rdma-ndd may change.
driver(Root, Dir) ->
    case file:read_link(join(Root, [Dir, "/device/driver"])) of
        {ok, Target} -> {unicode:characters_to_binary(filename:basename(Target)), false};
        {error, _} -> software_driver(Root, Dir, filelib:is_dir(join(Root, [Dir, "/device"])))
    end.

software_driver(Root, Dir, HasHardware) ->
    IsIwarp = transport(line(Root, [Dir, "/node_type"])) =:= iwarp,
    case {line(Root, [Dir, "/parent"]), line(Root, [Dir, "/node_desc"])} of
        {<<_, _/binary>>, _} -> {<<"rxe">>, true};
        {_, <<"Software iWARP stack">>} -> {<<"siw">>, true};
        _ when HasHardware -> {undefined, false};
        _ when IsIwarp -> {<<"siw">>, true};
        _ -> {undefined, true}
    end.

port(Root, Device, Number, Asked, Transport, #{addresses := Addresses}) ->
    Dir = [Device, "/ports/", integer_to_binary(Number)],
    Mtu = first_of([Map || #{number := Known} = Map <- Asked, Known =:= Number], #{}),
    LinkLayer = line(Root, [Dir, "/link_layer"]),
    Gids = gids(Root, Dir, LinkLayer, Transport),
    Interface = first_of([Name || #{interface := Name} <- Gids], undefined),
    #{
        number => Number,
        state => word(line(Root, [Dir, "/state"])),
        physical_state => word(line(Root, [Dir, "/phys_state"])),
        rate => line(Root, [Dir, "/rate"]),
        link_layer => LinkLayer,
        active_mtu => maps:get(active_mtu, Mtu, undefined),
        max_mtu => maps:get(max_mtu, Mtu, undefined),
        interface => Interface,
        addresses => proplists:get_value(Interface, Addresses, []),
        gids => Gids,
        counters => counters(Root, [Dir, "/counters"]) ++ counters(Root, [Dir, "/hw_counters"])
    }.

%% "4: ACTIVE"
word(undefined) -> undefined;
word(Text) -> lists:last(binary:split(Text, <<": ">>)).

gids(Root, Dir, LinkLayer, Transport) ->
    Indices = lists:sort([binary_to_integer(Index) || Index <- list(Root, [Dir, "/gids"])]),
    [
        gid(Root, Dir, Index, Raw, LinkLayer, Transport)
     || Index <- Indices,
        Raw <- [groups(line(Root, [Dir, "/gids/", integer_to_binary(Index)], <<>>), 16)],
        Raw =/= <<>>,
        Raw =/= <<0:128>>
    ].

gid(Root, Dir, Index, Raw, LinkLayer, Transport) ->
    Number = integer_to_binary(Index),
    {Type, Address} =
        case {Transport, LinkLayer} of
            {iwarp, _} -> {<<"iWARP">>, mac(Raw)};
            {_, <<"InfiniBand">>} -> {<<"InfiniBand">>, ip(Raw)};
            _ -> {line(Root, [Dir, "/gid_attrs/types/", Number], <<"RoCE">>), ip(Raw)}
        end,
    #{
        index => Index,
        type => Type,
        address => Address,
        interface =>
            case line(Root, [Dir, "/gid_attrs/ndevs/", Number]) of
                undefined -> interface_of(Root, Raw);
                Name -> Name
            end
    }.

ip(<<0:80, 16#ffff:16, A, B, C, D>>) -> inet_rdma_ip:text({A, B, C, D});
ip(Raw) -> inet_rdma_ip:text(list_to_tuple([Group || <<Group:16>> <= Raw])).

%% iWARP has no GIDs; drivers fill in the hardware address.
mac(<<Mac:6/binary, _/binary>>) ->
    list_to_binary(lists:join(":", [io_lib:format("~2.16.0b", [Byte]) || <<Byte>> <= Mac])).

%% iWARP: the interface with that hardware address. InfiniBand: the IPoIB interface, whose 20 bytes
%% end with the GID.
interface_of(Root, Raw) ->
    Names = list(Root, "sys/class/net"),
    Found = [
        Name
     || Name <- Names, is_of(groups(line(Root, ["sys/class/net/", Name, "/address"], <<>>), 8), Raw)
    ],
    first_of(Found, undefined).

is_of(<<Mac:6/binary>>, Raw) -> Raw =:= <<Mac/binary, 0:80>>;
is_of(<<_QueuePair:4/binary, Gid:16/binary>>, Raw) -> Gid =:= Raw;
is_of(_, _Raw) -> false.

%% Numbers in hexadecimal, of Bits each, with colons between.
groups(Text, Bits) ->
    <<
        <<(binary_to_integer(Group, 16)):Bits>>
     || Group <- binary:split(Text, <<":">>, [global, trim])
    >>.

%% The counters of errors that are not 0.
counters(Root, Dir) ->
    [
        #{name => Name, value => Value}
     || Name <- list(Root, Dir),
        re:run(Name, ?ERROR_LIKE) =/= nomatch,
        re:run(Name, ?NO_ERROR) =:= nomatch,
        Value <- [number(line(Root, [Dir, "/", Name]))],
        Value > 0
    ].

number(Text) ->
    try
        binary_to_integer(Text)
    catch
        error:badarg -> 0
    end.

first() -> [{capture, all_but_first, binary}].

first_of([First | _], _Default) -> First;
first_of([], Default) -> Default.

lines(Root, Path) ->
    case file:read_file(join(Root, Path)) of
        {ok, Bytes} -> binary:split(Bytes, <<"\n">>, [global, trim]);
        {error, _} -> []
    end.

line(Root, Path) -> line(Root, Path, undefined).

%% Default also where the file is empty: the kernel says nothing.
line(Root, Path, Default) ->
    case [string:trim(utf8(First)) || First <- lists:sublist(lines(Root, Path), 1)] of
        [<<_, _/binary>> = Text] -> Text;
        _ -> Default
    end.

%% Texts from a device may be any bytes.
utf8(Bytes) ->
    case unicode:characters_to_binary(Bytes) of
        Text when is_binary(Text) -> Text;
        _ -> unicode:characters_to_binary(Bytes, latin1)
    end.

list(Root, Path) ->
    case file:list_dir_all(join(Root, Path)) of
        {ok, Names} ->
            lists:sort([unicode:characters_to_binary(Name) || Name <- Names, is_list(Name)]);
        {error, _} ->
            []
    end.

join(Root, Path) ->
    filename:join(Root, unicode:characters_to_list(Path)).
