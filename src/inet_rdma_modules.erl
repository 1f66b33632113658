%% The modules that the links of a node need: all are loaded when the distribution starts.
%%
%% A node in interactive mode loads a module at its first call. The first call of what makes a lost connection anew
%% comes with the loss, and then it may be too late: the package is removed or upgraded under the running node, so that
%% the file is gone, or is of another version than the modules in use; or the node has no descriptor left to open it.
-module(inet_rdma_modules).

-export([load/0, load_tls/0]).
%% Spawned.
-export([load_tls_now/0]).

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

%% Loads all modules of this library but its tools, or none of them, and those of OTP. In net_kernel's process; 54
%% modules take about as long in one call as 15 that are loaded one by one.
-spec load() -> ok | {error, Why :: binary()}.
load() ->
    case persistent_term:get(?HAS_OWN, false) orelse code:get_mode() =:= embedded of
        %% Another start of the distribution may find other files; or all modules of the system are loaded.
        true -> ok;
        false -> load(own())
    end.

load({ok, Modules}) ->
    case code:atomic_load(Modules) of
        ok ->
            _ = code:ensure_modules_loaded(?OTP),
            persistent_term:put(?HAS_OWN, true);
        {error, [{Module, Why} | _]} ->
            cannot_load("its module ~s: ~0tp", [Module, Why])
    end;
load({error, Directory}) ->
    cannot_load("its directory ~ts cannot be read", [Directory]).

cannot_load(Format, Arguments) ->
    {error, unicode:characters_to_binary(io_lib:format(Format, Arguments))}.

%% This library's modules that are not loaded yet. Those of Elixir and the tools run beside links, not in them.
own() ->
    Directory = filename:dirname(code:which(?MODULE)),
    case in(Directory) of
        {ok, Modules} -> {ok, [Module || Module <- Modules, is_of_links(atom_to_list(Module)), not is_loaded(Module)]};
        error -> {error, Directory}
    end.

is_of_links("inet6_rdma" ++ _) -> true;
is_of_links("inet_rdma_certify" ++ _) -> false;
is_of_links("inet_rdma_doctor" ++ _) -> false;
is_of_links(Name) -> lists:prefix("inet_rdma", Name).

is_loaded(Module) -> erlang:module_loaded(Module).

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
