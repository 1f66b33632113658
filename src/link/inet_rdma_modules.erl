%% The modules that the links of a node need: all are in memory when the distribution starts.
%%
%% A node in interactive mode loads a module at its first call. That of what makes a lost connection anew comes with the
%% loss, and may be too late: the package was removed or upgraded under the running node, or the node has no descriptor
%% left. To compile the modules for the processor is most of the time that a load takes. So the start loads what it
%% needs itself, and reads the files of the others, which are loaded half a second later, from memory. A link that comes
%% up earlier loads what it needs until it is up, and the rest when it first needs that (load_all/0): a program that
%% starts, asks another node and ends does without.
-module(inet_rdma_modules).

-export([new/0, load/0, start_load/0, load_for_link/0, load_all/0, load_tls/0]).
%% Spawned.
-export([load_part/1, load_tls_now/0]).
-export_type([part/0]).

-include_lib("kernel/include/logger.hrl").

%% What the start of the distribution calls: code:all_loaded/0 behind it.
-define(START, [inet_rdma_bounded, inet_rdma_detours, inet_rdma_dist, inet_rdma_dist_start, inet_rdma_guard,
                inet_rdma_keeper, inet_rdma_library, inet_rdma_links, inet_rdma_modules, inet_rdma_neighbours,
                inet_rdma_nif, inet_rdma_node_watch, inet_rdma_options, inet_rdma_recorder, inet_rdma_sup,
                inet_rdma_tcp, inet_rdma_wakeup]).

%% What a link calls further until it is up, on either side, and when it ends in order. inet_rdma_crash keeps keys out
%% of crash reports. Another module of this library is called only behind load_all/0.
-define(LINK, [inet_rdma_clock, inet_rdma_controller, inet_rdma_crash, inet_rdma_detour, inet_rdma_detour_return,
               inet_rdma_ip, inet_rdma_link_event, inet_rdma_link_log, inet_rdma_nodeup, inet_rdma_offer,
               inet_rdma_own_offer, inet_rdma_port, inet_rdma_resume, inet_rdma_session, inet_rdma_session_data,
               inet_rdma_session_events, inet_rdma_session_guard, inet_rdma_session_idle, inet_rdma_session_keys,
               inet_rdma_session_loss, inet_rdma_session_mover, inet_rdma_settlement_message,
               inet_rdma_settlement_policy, inet_rdma_setup, inet_rdma_told, inet_rdma_transport]).

%% Modules of OTP that a link calls until it is up, and those that a loss, an attempt to resume or the log lines about
%% them call. What a node has loaded behind its first link, and behind a loss, was compared.
-define(OTP_LINK, [{kernel, [dist_util]}, {stdlib, [gen_statem]}]).
-define(OTP_REST, [{kernel, [inet_gethost_native]},
                   {stdlib, [calendar, epp, erl_posix_msg, io, io_lib, io_lib_format, io_lib_pretty, ordsets, rand, re,
                             string, unicode_util]}]).

%% Applications of TLS, and what they call of others.
-define(TLS_APPLICATIONS, [ssl, public_key, crypto]).
-define(TLS_OTP, [asn1rt_nif, base64, sets]).

-define(LOADED, {?MODULE, loaded}).
%% Set when this node has begun to load those of TLS.
-define(HAS_TLS, {?MODULE, has_tls}).

%% {Part, [{Module, File, Code}]}: what is read and not loaded. A table, as it goes soon, and the end of a persistent
%% term costs all processes a garbage collection.
-define(HELD, ?MODULE).
-type part() :: link | all.

-define(LOADER, inet_rdma_loader).
-define(LOAD_MS, 5000).
%% From the start to the load of all.
-define(ALL_MS, 500).

%% Makes the table; the caller owns it.
-spec new() -> ok.
new() ->
    ?HELD = ets:new(?HELD, [named_table, public]),
    ok.

%% Loads what a start calls, and reads the other modules of this library but its tools, and those of OTP. In
%% net_kernel's process.
-spec load() -> ok | {error, Why :: binary()}.
load() ->
    _ = [persistent_term:put(?LOADED, all) || not has(all), code:get_mode() =:= embedded],
    case has(all) of
        %% Another start of the distribution may find other files.
        true -> ok;
        false -> load(own())
    end.

load({ok, Directory, Modules}) ->
    {Start, Others} = lists:partition(fun(Module) -> lists:member(Module, ?START) end, Modules),
    {Link, Rest} = lists:partition(fun(Module) -> lists:member(Module, ?LINK) end, Others),
    case code:atomic_load(Start) of
        ok -> held(read(Directory, Link), read(Directory, Rest));
        {error, [{Module, Why} | _]} -> cannot_load(Module, Why)
    end;
load({error, Directory}) ->
    says("its directory ~ts cannot be read", [Directory]).

%% Those of OTP may be elsewhere in another release. Without inet_rdma_sup there is no table.
held({Link, []}, {Rest, []}) ->
    Parts = [{link, of_otp(?OTP_LINK) ++ Link}, {rest, of_otp(?OTP_REST) ++ Rest}],
    case ets:whereis(?HELD) of
        undefined ->
            lists:foreach(fun({_Part, Codes}) -> load_codes(Codes) end, Parts);
        _ ->
            true = ets:insert(?HELD, Parts),
            _ = erlang:send_after(?ALL_MS, inet_rdma_keeper, load_modules),
            ok
    end;
held({_, LinkErrors}, {_, RestErrors}) ->
    [{Module, Why} | _] = LinkErrors ++ RestErrors,
    cannot_load(Module, Why).

of_otp(Applications) ->
    lists:append([element(1, read(filename:join(Directory, "ebin"), Modules))
                  || {Application, Modules} <- Applications, [_ | _] = Directory <- [code:lib_dir(Application)]]).

read(Directory, Modules) ->
    Read = [{Module, code_of(File)} || Module <- Modules, not erlang:module_loaded(Module),
                                       File <- [filename:join(Directory, atom_to_list(Module) ++ ".beam")]],
    {[{Module, File, Code} || {Module, {ok, File, Code}} <- Read], [{Module, Why} || {Module, {error, Why}} <- Read]}.

%% A file that is being written is too short for its own header.
code_of(File) ->
    case erl_prim_loader:get_file(File) of
        {ok, <<"FOR1", Bytes:32, _/binary>> = Code, _} when byte_size(Code) >= Bytes + 8 -> {ok, File, Code};
        %% Compressed.
        {ok, <<31, 139, _/binary>> = Code, _} -> {ok, File, Code};
        {ok, _, _} -> {error, badfile};
        error -> {error, nofile}
    end.

cannot_load(Module, Why) -> says("its module ~s: ~0tp", [Module, Why]).

says(Format, Arguments) -> {error, unicode:characters_to_binary(io_lib:format(Format, Arguments))}.

%% Waits until what a link calls before it is up is loaded.
-spec load_for_link() -> ok.
load_for_link() -> has(link) orelse await(link), ok.

-spec load_all() -> ok.
load_all() -> has(all) orelse await(all), ok.

has(Part) ->
    case persistent_term:get(?LOADED, none) of
        all -> true;
        Loaded -> Loaded =:= Part
    end.

%% Loads all, beside the caller. none: the node has no room for a process.
-spec start_load() -> pid() | none.
start_load() ->
    try spawn(?MODULE, load_part, [all])
    catch error:system_limit -> none
    end.

%% A module that is not loaded in time is loaded at its first call.
await(Part) ->
    try spawn_monitor(?MODULE, load_part, [Part]) of
        {_Pid, Ref} ->
            receive {'DOWN', Ref, process, _, _} -> true
            after ?LOAD_MS -> demonitor(Ref, [flush])
            end
    catch
        %% The node has no room for a process.
        error:system_limit -> false
    end.

%% One process at a time: a module that is loaded twice has old code, and a purge kills the processes that run it.
-spec load_part(part()) -> ok.
load_part(Part) ->
    try register(?LOADER, self()) of
        true -> load_held(Part)
    catch
        error:badarg ->
            Ref = monitor(process, ?LOADER),
            receive {'DOWN', Ref, process, _, _} -> load_part(Part) end
    end.

load_held(link) -> has(link) orelse load_held(link, link), ok;
load_held(all) ->
    ok = load_held(link),
    has(all) orelse load_held(rest, all),
    ok.

%% The table ends with the distribution, whose next start reads the files again.
load_held(Held, Loaded) ->
    try
        ok = load_codes(lists:append([Codes || {_, Codes} <- ets:lookup(?HELD, Held)])),
        persistent_term:put(?LOADED, Loaded),
        ets:delete(?HELD, Held)
    catch
        error:badarg -> false
    end.

%% Those of OTP first, from their files: another process may load one meanwhile, and the code server logs an error when
%% its code is then loaded from memory. All others at once, or else one by one.
load_codes(Codes) ->
    _ = code:ensure_modules_loaded([Module || {Module, _, _} <- Codes, not is_of_links(atom_to_list(Module))]),
    _ = ok =:= code:atomic_load(missing(Codes)) orelse
        [?LOG_ERROR("inet_rdma: a lost connection may not be made anew, as module ~s cannot be loaded: ~0tp",
                    [Module, Why])
         || {Module, File, Code} <- missing(Codes),
            {error, Why} <- [code:load_binary(Module, File, Code)], not erlang:module_loaded(Module)],
    ok.

missing(Codes) -> [Each || {Module, _, _} = Each <- Codes, not erlang:module_loaded(Module)].

%% This library's modules that are not loaded yet. Those of Elixir run beside links, not in them.
own() ->
    Directory = filename:dirname(code:which(?MODULE)),
    case in(Directory) of
        {ok, Modules} ->
            {ok, Directory, [Module || Module <- Modules, is_of_links(atom_to_list(Module)),
                                       not erlang:module_loaded(Module)]};
        error ->
            {error, Directory}
    end.

is_of_links("inet6_rdma" ++ _) -> true;
is_of_links(Name) -> lists:prefix("inet_rdma", Name).

in(Directory) ->
    case erl_prim_loader:list_dir(Directory) of
        {ok, Files} ->
            {ok, [list_to_atom(filename:rootname(File)) || File <- Files, filename:extension(File) =:= ".beam"]};
        error ->
            error
    end.

%% Loads the modules of TLS, of which a node may have used those of one role and one version, beside the handshake of
%% its first link: a node without links need not have them.
-spec load_tls() -> ok.
load_tls() ->
    case persistent_term:get(?HAS_TLS, false) of
        true ->
            ok;
        false ->
            persistent_term:put(?HAS_TLS, true),
            _ = spawn(?MODULE, load_tls_now, []),
            ok
    end.

-spec load_tls_now() -> ok | {error, term()}.
load_tls_now() ->
    Modules = [Module || Application <- ?TLS_APPLICATIONS, [_ | _] = Directory <- [code:lib_dir(Application)],
                         {ok, Found} <- [in(filename:join(Directory, "ebin"))], Module <- Found,
                         not lists:prefix("dtls", atom_to_list(Module))],
    code:ensure_modules_loaded(?TLS_OTP ++ Modules).
