%% The modules that the links of a node need. The start of the distribution loads what it calls itself, and what a link
%% calls until it is up. All others follow some seconds later: a program that starts a node, connects, asks and ends
%% does not load them.
%%
%% A node in interactive mode loads a module at its first call. The first call of what makes a lost connection anew
%% comes with the loss, and then it may be too late: the package is removed or upgraded under the running node, so that
%% the file is gone, or is of another version than the modules in use; or the node has no descriptor left to open it.
-module(inet_rdma_modules).

-export([load/0, load_all/0, load_all_now/0, is_complete/0, load_tls/0]).
%% Spawned.
-export([load_all_or_exit/0, load_tls_now/0]).
%% For the tests.
-export([of_start/0]).

%% What the start of the distribution calls, and a node that connects. What a node has loaded then was compared
%% (code:all_loaded/0); a module that is missing here is loaded at its first call. inet_rdma_crash keeps keys out of
%% crash reports, also where no file can be read.
-define(START, [inet_rdma_bounded, inet_rdma_crash, inet_rdma_detour, inet_rdma_detour_return, inet_rdma_detours,
                inet_rdma_dist, inet_rdma_dist_start, inet_rdma_guard, inet_rdma_keeper, inet_rdma_library,
                inet_rdma_link_event, inet_rdma_link_log, inet_rdma_links, inet_rdma_lookup, inet_rdma_modules,
                inet_rdma_neighbours, inet_rdma_nif, inet_rdma_node_watch, inet_rdma_nodeup, inet_rdma_offer,
                inet_rdma_options, inet_rdma_own_offer, inet_rdma_port, inet_rdma_recorder, inet_rdma_session,
                inet_rdma_session_data, inet_rdma_session_events, inet_rdma_session_guard, inet_rdma_session_idle,
                inet_rdma_session_keys, inet_rdma_session_mover, inet_rdma_settlement_policy, inet_rdma_setup,
                inet_rdma_sup, inet_rdma_tcp, inet_rdma_told, inet_rdma_transport, inet_rdma_wakeup]).

%% What a loss, an attempt to resume, a move, a detour, a stream or a query calls. Tools are no part of it.
-define(REST, [inet6_rdma_dist, inet_rdma, inet_rdma_candidates, inet_rdma_connect, inet_rdma_counts, inet_rdma_death,
               inet_rdma_detour_relay, inet_rdma_dialer, inet_rdma_error, inet_rdma_flight, inet_rdma_info,
               inet_rdma_keys, inet_rdma_link, inet_rdma_listener, inet_rdma_prometheus_collector, inet_rdma_queue,
               inet_rdma_resume, inet_rdma_sendfile, inet_rdma_session_log, inet_rdma_session_loss,
               inet_rdma_session_suspicion, inet_rdma_settlement, inet_rdma_settlement_acceptor,
               inet_rdma_settlement_message, inet_rdma_settlement_way, inet_rdma_socket, inet_rdma_socket_options,
               inet_rdma_stream, inet_rdma_stream_guard, inet_rdma_stream_listener, inet_rdma_stream_tls,
               inet_rdma_tls, inet_rdma_tls_options, inet_rdma_transfer]).

%% Modules of kernel and stdlib that a loss, an attempt to resume or the log lines about them call. What a node has
%% loaded behind its first link, and behind a loss, was compared (code:all_loaded/0).
-define(OTP, [calendar, dist_util, epp, erl_posix_msg, gen_statem, inet_gethost_native, io, io_lib, io_lib_format,
              io_lib_pretty, ordsets, rand, re, string, unicode_util]).

%% Applications of TLS, and what they call of others.
-define(TLS_APPLICATIONS, [ssl, public_key, crypto]).
-define(TLS_OTP, [asn1rt_nif, base64, sets]).

%% Set when this node has loaded this library's modules.
-define(HAS_OWN, {?MODULE, has_own}).
%% Set when this node has begun to load those of TLS.
-define(HAS_TLS, {?MODULE, has_tls}).

-spec of_start() -> [module()].
of_start() -> ?START.

%% Loads the first part, or nothing of it. In net_kernel's process; 54 modules take about as long in one call as 15 one
%% by one.
-spec load() -> ok | {error, Why :: binary()}.
load() ->
    %% Another start of the distribution may find other files.
    case is_complete() orelse code:atomic_load(missing(?START)) of
        true -> ok;
        Loaded -> loaded(Loaded)
    end.

missing(Modules) -> [Module || Module <- Modules, not erlang:module_loaded(Module)].

loaded(ok) -> ok;
loaded({error, [{Module, Why} | _]}) ->
    {error, unicode:characters_to_binary(io_lib:format("its module ~s: ~0tp", [Module, Why]))}.

%% Whether all are loaded: that no loss needs a file any more.
-spec is_complete() -> boolean().
is_complete() -> persistent_term:get(?HAS_OWN, false) orelse code:get_mode() =:= embedded.

%% Begins to load what is missing, in a process of its own. The caller gets its 'DOWN' with this reference: with the
%% reason normal, or {incomplete, Why}. complete: there is nothing to do. busy: the node has no room for a process.
-spec load_all() -> reference() | complete | busy.
load_all() ->
    case is_complete() of
        true ->
            complete;
        false ->
            try spawn_opt(?MODULE, load_all_or_exit, [], [monitor, {priority, low}]) of
                {_Pid, Ref} -> Ref
            catch
                error:system_limit -> busy
            end
    end.

-spec load_all_or_exit() -> ok.
load_all_or_exit() ->
    case load_all_now() of
        ok -> ok;
        {error, Why} -> exit({incomplete, Why})
    end.

%% Loads what is missing of all modules of this library but its tools, and those of OTP.
-spec load_all_now() -> ok | {error, Why :: binary()}.
load_all_now() ->
    case loaded(code:ensure_modules_loaded(missing(?START ++ ?REST))) of
        ok ->
            _ = code:ensure_modules_loaded(?OTP),
            persistent_term:put(?HAS_OWN, true);
        Error ->
            Error
    end.

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
    Modules = [Module || Application <- ?TLS_APPLICATIONS, Module <- of_application(code:lib_dir(Application)),
                         not lists:prefix("dtls", atom_to_list(Module))],
    code:ensure_modules_loaded(?TLS_OTP ++ Modules).

of_application({error, bad_name}) ->
    [];
of_application(Directory) ->
    case in(filename:join(Directory, "ebin")) of
        {ok, Modules} -> Modules;
        error -> []
    end.
