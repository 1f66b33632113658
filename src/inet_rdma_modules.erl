%% The modules that the links of a node need. The start of the distribution loads what it calls itself, and what a link
%% calls until it is up. All others follow some seconds later: a program that starts a node, connects, asks and ends
%% does not load them.
%%
%% A node in interactive mode loads a module at its first call. The first call of what makes a lost connection anew
%% comes with the loss, and then it may be too late: the package is removed or upgraded under the running node, so that
%% the file is gone, or is of another version than the modules in use; or the node has no descriptor left to open it.
-module(inet_rdma_modules).

-export([load/0, load_all/1, is_complete/0, load_tls/0]).
%% Spawned.
-export([load_all_now/1, load_tls_now/0]).
%% For the tests.
-export([of_start/0]).

-include_lib("kernel/include/logger.hrl").

%% What the start of the distribution calls, and a node that connects. What a node has loaded then was compared
%% (code:all_loaded/0); a module that is missing here is loaded at its first call.
-define(START, [inet_rdma_bounded, inet_rdma_detour, inet_rdma_detour_return, inet_rdma_detours, inet_rdma_dist,
                inet_rdma_dist_start, inet_rdma_guard, inet_rdma_keeper, inet_rdma_library, inet_rdma_link_event,
                inet_rdma_link_log, inet_rdma_links, inet_rdma_lookup, inet_rdma_modules, inet_rdma_neighbours,
                inet_rdma_nif, inet_rdma_node_watch, inet_rdma_nodeup, inet_rdma_offer, inet_rdma_options,
                inet_rdma_own_offer, inet_rdma_port, inet_rdma_recorder, inet_rdma_session, inet_rdma_session_data,
                inet_rdma_session_events, inet_rdma_session_guard, inet_rdma_session_idle, inet_rdma_session_keys,
                inet_rdma_session_mover, inet_rdma_settlement_policy, inet_rdma_setup, inet_rdma_sup, inet_rdma_tcp,
                inet_rdma_told, inet_rdma_transport, inet_rdma_wakeup]).

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
loaded({error, [{Module, Why} | _]}) -> cannot_load("its module ~s: ~0tp", [Module, Why]).

cannot_load(Format, Arguments) ->
    {error, unicode:characters_to_binary(io_lib:format(Format, Arguments))}.

%% Whether all are loaded: that no loss needs a file any more.
-spec is_complete() -> boolean().
is_complete() -> persistent_term:get(?HAS_OWN, false) orelse code:get_mode() =:= embedded.

%% Loads what is missing of all modules of this library but its tools, and those of OTP, in a process of its own. If
%% that fails the caller gets the message {modules, incomplete}, and the log the first failure.
-spec load_all(Attempt :: non_neg_integer()) -> ok.
load_all(Attempt) ->
    _ = [spawn_opt(?MODULE, load_all_now, [{self(), Attempt}], [{priority, low}]) || not is_complete()],
    ok.

-spec load_all_now({pid(), Attempt :: non_neg_integer()}) -> ok.
load_all_now({Caller, Attempt}) ->
    case load_own() of
        ok ->
            _ = code:ensure_modules_loaded(?OTP),
            persistent_term:put(?HAS_OWN, true);
        {error, Why} ->
            _ = [?LOG_ERROR("inet_rdma: a lost connection may not be made anew, as not all modules of inet_rdma can be "
                            "loaded: ~ts; this node tries again", [Why]) || Attempt =:= 0],
            Caller ! {modules, incomplete},
            ok
    end.

%% Those of Elixir and the tools run beside links, not in them.
load_own() ->
    Directory = filename:dirname(code:which(?MODULE)),
    case in(Directory) of
        {ok, Modules} ->
            Own = [Module || Module <- Modules, is_of_links(atom_to_list(Module))],
            loaded(code:ensure_modules_loaded(missing(Own)));
        error ->
            cannot_load("its directory ~ts cannot be read", [Directory])
    end.

is_of_links("inet6_rdma" ++ _) -> true;
is_of_links("inet_rdma_certify" ++ _) -> false;
is_of_links("inet_rdma_doctor" ++ _) -> false;
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
