%% The start of the distribution with this carrier, and the options of the links that follow.
-module(inet_rdma_dist_start).

-export([await_ends/1, start/0, security/0, config/1]).

-include_lib("kernel/include/dist_util.hrl").
-include_lib("kernel/include/logger.hrl").

%% The option security when the distribution started: a link that is made later is no weaker.
%% unknown: the options were wrong. A node that does not listen starts all the same, and makes no
%% link until it starts again.
-define(SECURITY, {?MODULE, security}).

%% How long a start waits for the end of each of them.
-define(ENDS_MS, 5000).

%% Waits for the ends of these processes, by their names. net_kernel:stop/0 waits for the
%% supervisors of the distribution for a second, and kills their supervisor then: they may end
%% later, and keep their names until then.
-spec await_ends([atom()]) -> ok.
await_ends(Names) -> lists:foreach(fun await_end/1, Names).

await_end(Name) ->
    Ref = monitor(process, Name),
    receive
        {'DOWN', Ref, process, _, _} -> true
    after ?ENDS_MS -> demonitor(Ref, [flush])
    end.

%% In net_kernel's process. A wrong option is an error of the node's start, and so is a module that
%% cannot be loaded. A native library that cannot be loaded is not: then all links stay on TCP, and
%% the log says so.
-spec start() -> ok | {error, term()}.
start() ->
    case inet_rdma_modules:load() of
        ok ->
            configure();
        {error, Why} ->
            ?LOG_ERROR(
                "inet_rdma: the distribution cannot start without all modules of inet_rdma: ~ts", [
                    Why
                ]
            ),
            {error, {modules, Why}}
    end.

configure() ->
    case inet_rdma_options:node() of
        {ok, #{security := Security}} ->
            persistent_term:put(?SECURITY, Security),
            load(check_security(Security));
        {error, Reason} ->
            persistent_term:put(?SECURITY, unknown),
            ?LOG_ERROR("~ts", [inet_rdma_options:format_error(Reason)]),
            {error, Reason}
    end.

load(ok) ->
    case inet_rdma_nif:load() of
        ok ->
            inet_rdma_neighbours:start();
        {error, Reason} ->
            ?LOG_ERROR("inet_rdma: all links stay on TCP: ~ts", [inet_rdma_error:format(Reason)])
    end;
load(Error) ->
    Error.

check_security(none) ->
    ok;
check_security(tls) ->
    ok = inet_rdma_modules:load_all(),
    case inet_rdma_tls:check() of
        ok ->
            ok;
        {error, Why} ->
            ?LOG_ERROR("inet_rdma: the option security is tls, and ~ts", [Why]),
            {error, {security, Why}}
    end.

-spec security() -> none | tls.
security() ->
    case persistent_term:get(?SECURITY, none) of
        unknown -> tls;
        Security -> Security
    end.

%% The options for a new link. There is no link, and the caller exits, if the option security now
%% asks for TLS and the distribution was started without, or with wrong options.
-spec config(node() | no_node) -> inet_rdma_options:config().
config(Node) ->
    Started = persistent_term:get(?SECURITY, none),
    case inet_rdma_options:node() of
        {ok, _} when Started =:= unknown ->
            ?LOG_ERROR(
                "inet_rdma: no link: the options were wrong when the distribution of this node was "
                "started; start it again, by net_kernel:stop/0 and net_kernel:start/2, or restart "
                "the node"
            ),
            ?shutdown2(Node, {options, started_with_wrong_ones});
        {ok, #{security := tls}} when Started =:= none ->
            ?LOG_ERROR(
                "inet_rdma: no link: the option security is tls, and the distribution of this node "
                "was started with none; restart the node, with the option in the command line or "
                "in the configuration that the VM starts with"
            ),
            ?shutdown2(Node, {security, started_without_tls});
        {ok, Config} ->
            Config;
        {error, Reason} ->
            ?LOG_ERROR("~ts", [inet_rdma_options:format_error(Reason)]),
            ?shutdown2(Node, Reason)
    end.
