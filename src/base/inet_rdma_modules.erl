%% The modules that the links of a node need, and when they are loaded.
%%
%% A node in interactive mode loads a module at its first call. That of what replaces a lost
%% connection comes with the loss, and may be too late: the package was removed or upgraded under
%% the running node, or the node has no descriptor left. To compile the modules for the processor is
%% most of the time that a load takes, and each load that the code server does alone costs about a
%% millisecond. So:
%%
%% * the start loads what it calls, at once, and reads nothing else;
%% * two seconds later a node loads what a link needs until it is up, so that the first link waits
%%   for nothing, and reads the files of the rest. A link that begins before loads what it needs:
%%   the initiator connects first, and the acceptor's node loads its own modules beside those of
%%   OTP;
%% * the rest is loaded, from memory, when a link first needs it (load_all/0), and at the latest ten
%%   to twenty seconds after a link has come up, when the nodes that start with this one have their
%%   links (load_later/0).
%%
%% So a node that starts, asks another node and ends does without the rest.
-module(inet_rdma_modules).

-export([
    own/0,
    load_start/0,
    new/0,
    load/0,
    prepare/0,
    start_load/1,
    await_load/1,
    load_later/0,
    load_all/0,
    has/1,
    load_tls/0
]).
%% Spawned.
-export([load_and_hold/0, load_part/1, load_of_otp/1, load_tls_now/0]).
-export_type([part/0]).

-include_lib("kernel/include/logger.hrl").

%% The modules of this library by the part that calls them first. The only list of them: a module that
%% is not here is called only after load_all/0. What a node has loaded at each stage was compared, as
%% neither folders nor calls by name say it; code_SUITE fails when the list lacks a module,
%% scripts/layers when it has one that is not there, or one twice.
-define(OWN, [
    %% The start of the distribution.
    {start, [
        inet_rdma_acceptor,
        inet_rdma_bounded,
        inet_rdma_counts,
        inet_rdma_detours,
        inet_rdma_dist,
        inet_rdma_dist_start,
        inet_rdma_interface,
        inet_rdma_keeper,
        inet_rdma_library,
        inet_rdma_links,
        inet_rdma_modules,
        inet_rdma_neighbours,
        inet_rdma_nif,
        inet_rdma_node_watch,
        inet_rdma_options,
        inet_rdma_recorder,
        inet_rdma_sleeper,
        inet_rdma_sup,
        inet_rdma_tcp,
        inet_rdma_transport,
        inet_rdma_wakeup
    ]},
    %% An initiator, until it has a connection. The acceptor's node loads its modules from then
    %% on, beside the initiator's node.
    {connect, [
        inet_rdma_clock,
        inet_rdma_setup
    ]},
    %% A link, on either side, until it is up, while it is at rest, and when it ends in order.
    %% inet_rdma_crash keeps keys out of crash reports.
    {link, [
        inet_rdma_candidates,
        inet_rdma_controller,
        inet_rdma_crash,
        inet_rdma_detour,
        inet_rdma_detour_return,
        inet_rdma_ip,
        inet_rdma_link_event,
        inet_rdma_link_log,
        inet_rdma_nodeup,
        inet_rdma_offer,
        inet_rdma_own_offer,
        inet_rdma_peer_node,
        inet_rdma_port,
        inet_rdma_resume,
        inet_rdma_session,
        inet_rdma_session_data,
        inet_rdma_session_events,
        inet_rdma_session_guard,
        inet_rdma_session_idle,
        inet_rdma_session_loss,
        inet_rdma_session_mover,
        inet_rdma_session_suspicion,
        inet_rdma_settlement_message,
        inet_rdma_settlement_policy,
        inet_rdma_witness
    ]}
]).

%% Modules of OTP that a link calls until it is up, and those that a loss, an attempt to resume or
%% the log lines about them call. What a node has loaded after its first link, and after a loss, was
%% compared.
-define(OTP_CONNECT, [{kernel, [dist_util]}]).
-define(OTP_LINK, [{stdlib, [gen_statem]}]).
%% dist_util calls them on the acceptor's side. Most of the time that OTP needs for a first link.
-define(OTP_ACCEPT, [{stdlib, [string, unicode_util]}]).
-define(OTP_REST, [
    {kernel, [inet_gethost_native]},
    {stdlib, [
        calendar,
        epp,
        erl_posix_msg,
        io,
        io_lib,
        io_lib_format,
        io_lib_pretty,
        ordsets,
        rand,
        re
    ]}
]).

%% Applications of TLS, and what they call of others.
-define(TLS_APPLICATIONS, [ssl, public_key, crypto]).
-define(TLS_OTP, [asn1rt_nif, base64, sets]).

-define(LOADED, {?MODULE, loaded}).
%% Set when this node has begun to load those of TLS.
-define(HAS_TLS, {?MODULE, has_tls}).

%% {all, [{Module, File, Code}]}: what is read and not loaded. {is_due, true}: it will be. A table,
%% as it goes soon, and the end of a persistent term costs all processes a garbage collection.
-define(HELD, ?MODULE).
%% Each has those before it. connect: what an initiator calls until it has a connection. link: what
%% it calls until the link is up. accept: what an acceptor calls until then.
-define(PARTS, [connect, link, accept, all]).
-type part() :: connect | link | accept | all.

-define(LOADER, inet_rdma_loader).
-define(LOAD_MS, 5000).
%% From the start to prepare/0.
-define(PREPARE_MS, 2000).
%% From the first load_later/0 to the load, at least, and at most twice that.
-define(LATER_MS, 10000).

%% Loads what a start calls, before the carrier does anything else. An error is load/0's to report.
-spec load_start() -> ok.
load_start() ->
    _ = load_missing(own(start)),
    ok.

own(Part) ->
    {Part, Modules} = lists:keyfind(Part, 1, own()),
    Modules.

%% For scripts/layers, too.
-spec own() -> [{start | part(), [module()]}].
own() -> ?OWN.

load_missing(Modules) ->
    code:atomic_load([Module || Module <- Modules, not erlang:module_loaded(Module)]).

%% Makes the table; the caller owns it.
-spec new() -> ok.
new() ->
    ?HELD = ets:new(?HELD, [named_table, public]),
    ok.

%% Whether what a start calls is loaded. In net_kernel's process.
-spec load() -> ok | {error, Why :: binary()}.
load() ->
    _ =
        case not has(all) andalso code:get_mode() of
            false -> ok;
            embedded -> persistent_term:put(?LOADED, all);
            interactive -> erlang:send_after(?PREPARE_MS, inet_rdma_keeper, prepare_modules)
        end,
    case load_missing(own(start)) of
        ok ->
            ok;
        {error, [{Module, Why} | _]} ->
            {error, unicode:characters_to_binary(io_lib:format("module ~s: ~0tp", [Module, Why]))}
    end.

%% Loads what a link needs until it is up, and reads the rest, beside the caller. A node without
%% room for a process reads it later, when it loads it.
-spec prepare() -> ok.
prepare() ->
    _ = has(all) orelse inet_rdma_bounded:start(?MODULE, load_and_hold, []),
    ok.

-spec load_and_hold() -> ok.
load_and_hold() ->
    ok = load_part(link),
    _ =
        has(all) orelse
            begin
                Codes = read_part(all),
                with_table(fun() -> ets:insert(?HELD, {all, Codes}) end, false)
            end,
    ok.

%% The table ends with the distribution.
with_table(Function, WithoutTable) ->
    try
        Function()
    catch
        error:badarg -> WithoutTable
    end.

%% What can be read of a part and is not loaded; the log names what cannot. Those of OTP may be
%% elsewhere in another release.
read_part(Part) ->
    Directory = filename:dirname(code:which(?MODULE)),
    {Own, Applications} = modules(Part, Directory),
    {OwnCodes, Errors} = read(Directory, Own),
    _ = [cannot_load(Module, Why) || {Module, Why} <- Errors],
    OwnCodes ++
        lists:append([
            element(1, read(filename:join(OfOtp, "ebin"), Modules))
         || {Application, Modules} <- Applications, [_ | _] = OfOtp <- [code:lib_dir(Application)]
        ]).

%% {Own, OfOtp}. all: each module of this library's directory that is not loaded.
modules(connect, _Directory) ->
    {own(connect), ?OTP_CONNECT};
modules(link, _Directory) ->
    {own(link), ?OTP_LINK};
modules(accept, _Directory) ->
    {[], ?OTP_ACCEPT};
modules(all, Directory) ->
    {[Module || {ok, Found} <- [in(Directory)], Module <- Found, is_of_links(Module)], ?OTP_REST}.

read(Directory, Modules) ->
    Read = [
        {Module, code_of(File)}
     || Module <- Modules,
        not erlang:module_loaded(Module),
        File <- [filename:join(Directory, atom_to_list(Module) ++ ".beam")]
    ],
    {[{Module, File, Code} || {Module, {ok, File, Code}} <- Read], [
        {Module, Why}
     || {Module, {error, Why}} <- Read
    ]}.

%% A file that is being written is too short for its own header.
code_of(File) ->
    case erl_prim_loader:get_file(File) of
        {ok, <<"FOR1", Bytes:32, _/binary>> = Code, _} when byte_size(Code) >= Bytes + 8 ->
            {ok, File, Code};
        %% Compressed.
        {ok, <<31, 139, _/binary>> = Code, _} ->
            {ok, File, Code};
        {ok, _, _} ->
            {error, badfile};
        error ->
            {error, nofile}
    end.

cannot_load(Module, Why) ->
    ?LOG_ERROR(
        "inet_rdma: links may fail to come up or to reconnect after a loss: module ~s cannot be "
        "loaded: ~0tp",
        [Module, Why]
    ).

%% Waits until a part is loaded.
-spec await_load(part()) -> ok.
await_load(Part) ->
    has(Part) orelse await(Part),
    ok.

%% Has the rest loaded in a while.
-spec load_later() -> ok.
load_later() ->
    _ =
        (has(all) orelse is_due()) orelse
            erlang:send_after(
                ?LATER_MS + erlang:phash2(erlang:unique_integer(), ?LATER_MS),
                inet_rdma_keeper,
                load_modules
            ),
    ok.

%% Not the first to ask.
is_due() -> with_table(fun() -> not ets:insert_new(?HELD, {is_due, true}) end, true).

-spec load_all() -> ok.
load_all() -> await_load(all).

%% Whether a part is loaded.
-spec has(part()) -> boolean().
has(Part) ->
    Loaded = persistent_term:get(?LOADED, none),
    Loaded =:= Part orelse lists:member(Loaded, behind(Part)).

behind(Part) -> tl(lists:dropwhile(fun(Each) -> Each =/= Part end, ?PARTS)).

%% Loads a part, beside the caller. A node without room for a process loads it later.
-spec start_load(part()) -> ok.
start_load(Part) ->
    _ = has(Part) orelse inet_rdma_bounded:start(?MODULE, load_part, [Part]),
    ok.

%% A module that is not loaded in time is loaded at its first call.
await(Part) ->
    case inet_rdma_bounded:start_monitored(?MODULE, load_part, [Part]) of
        {ok, {_Pid, Ref}} ->
            receive
                {'DOWN', Ref, process, _, _} -> true
            after ?LOAD_MS -> demonitor(Ref, [flush])
            end;
        %% The node has no room for a process.
        {error, system_limit} ->
            false
    end.

%% One process at a time: a module that is loaded twice has old code, and a purge kills the
%% processes that run it.
-spec load_part(part()) -> ok.
load_part(Part) ->
    try register(?LOADER, self()) of
        true -> load_now(Part)
    catch
        error:badarg ->
            Ref = monitor(process, ?LOADER),
            receive
                {'DOWN', Ref, process, _, _} -> load_part(Part)
            end
    end.

load_now(Part) ->
    _ =
        has(Part) orelse
            begin
                ok = load_codes(lists:append([codes(Each) || Each <- ?PARTS -- behind(Part)])),
                persistent_term:put(?LOADED, Part),
                Part =:= all andalso with_table(fun() -> ets:delete(?HELD, all) end, true)
            end,
    ok.

codes(Part) ->
    case with_table(fun() -> ets:lookup(?HELD, Part) end, []) of
        [{Part, Codes}] -> Codes;
        [] -> read_part(Part)
    end.

%% This library's modules at once, beside those of OTP. If that fails: one by one.
load_codes(Codes) ->
    {Own, Otp} = lists:partition(
        fun({Module, _, _}) -> is_of_links(Module) end, missing(Codes)
    ),
    OfOtp = inet_rdma_bounded:start_monitored(?MODULE, load_of_otp, [Otp]),
    _ = load_at_once(Own),
    case OfOtp of
        {ok, {Pid, Ref}} ->
            receive
                {'DOWN', Ref, process, Pid, _} -> ok
            end;
        {error, system_limit} ->
            load_of_otp(Otp)
    end,
    _ = [
        cannot_load(Module, Why)
     || {Module, File, Code} <- missing(Codes),
        {error, Why} <- [code:load_binary(Module, File, Code)],
        not erlang:module_loaded(Module)
    ],
    ok.

%% From memory, on more than one scheduler. If another process has loaded one meanwhile, that is
%% refused, without a log line. Then from the files, one by one: what loads many spawns processes,
%% and where the process table is full OTP's loader ends, and the node with it.
-spec load_of_otp([{module(), file:filename(), binary()}]) -> ok.
load_of_otp(Codes) ->
    _ = load_at_once(Codes),
    lists:foreach(fun({Module, _, _}) -> code:ensure_loaded(Module) end, missing(Codes)).

%% An error where the process table is full: OTP spawns processes for it.
load_at_once([]) ->
    ok;
load_at_once(Codes) ->
    try
        code:atomic_load(Codes)
    catch
        error:_ -> error
    end.

missing(Codes) -> [Each || {Module, _, _} = Each <- Codes, not erlang:module_loaded(Module)].

%% Those of Elixir run beside links, not in them.
is_of_links(Module) ->
    case atom_to_list(Module) of
        "inet_rdma" ++ _ -> true;
        "inet6_rdma" ++ _ -> true;
        _ -> false
    end.

in(Directory) ->
    case erl_prim_loader:list_dir(Directory) of
        {ok, Files} ->
            {ok, [
                list_to_atom(filename:rootname(File))
             || File <- Files, filename:extension(File) =:= ".beam"
            ]};
        error ->
            error
    end.

%% Loads the modules of TLS, of which a node may have used those of one role and one version, beside
%% the handshake of its first link: a node without links need not have them.
-spec load_tls() -> ok.
load_tls() ->
    case persistent_term:get(?HAS_TLS, false) of
        true ->
            ok;
        false ->
            persistent_term:put(?HAS_TLS, true),
            case inet_rdma_bounded:start(?MODULE, load_tls_now, []) of
                {ok, _} -> ok;
                %% The next connection loads them.
                {error, system_limit} -> persistent_term:put(?HAS_TLS, false)
            end
    end.

-spec load_tls_now() -> ok | {error, term()}.
load_tls_now() ->
    Modules = [
        Module
     || Application <- ?TLS_APPLICATIONS,
        [_ | _] = Directory <- [code:lib_dir(Application)],
        {ok, Found} <- [in(filename:join(Directory, "ebin"))],
        Module <- Found,
        not lists:prefix("dtls", atom_to_list(Module))
    ],
    Needed = [Module || Module <- ?TLS_OTP ++ Modules, not erlang:module_loaded(Module)],
    load_beside_each_other(Needed, has_room_for(length(Needed))).

%% OTP spawns a process for each, and OTP's loader ends, and so does the node, if the process table
%% is full.
load_beside_each_other(Modules, true) ->
    code:ensure_modules_loaded(Modules);
load_beside_each_other(Modules, false) ->
    lists:foreach(fun code:ensure_loaded/1, Modules).

%% As many to spare, for others that spawn meanwhile.
has_room_for(Processes) ->
    erlang:system_info(process_count) + 2 * Processes < erlang:system_info(process_limit).
