%% Connections to the port of a node by a peer that is no node. Runs in the node that runs the
%% tests.
-module(inet_rdma_test_stranger).

-export([say/3, crowd/3, crowd/4, left/1, leave/1]).
-export_type([crowd/0]).

-opaque crowd() :: pid().

-define(OPTIONS, [binary, {active, false}, {nodelay, true}]).

%% Sends these bytes on a connection of its own. Returns what comes back until the node closes the
%% connection, or sends nothing for TimeoutMs.
-spec say(inet:port_number(), iodata(), timeout()) -> {closed | open, Answer :: binary()}.
say(Port, Bytes, TimeoutMs) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, ?OPTIONS),
    _ = gen_tcp:send(Socket, Bytes),
    Heard = hear(Socket, TimeoutMs, <<>>),
    gen_tcp:close(Socket),
    Heard.

hear(Socket, TimeoutMs, Before) ->
    case gen_tcp:recv(Socket, 0, TimeoutMs) of
        {ok, Bytes} -> hear(Socket, TimeoutMs, <<Before/binary, Bytes/binary>>);
        {error, timeout} -> {open, Before};
        {error, _} -> {closed, Before}
    end.

%% Opens Count connections. Each sends the bytes that the function returns for its number, and stays
%% open.
-spec crowd(inet:port_number(), pos_integer(), fun((pos_integer()) -> iodata())) -> crowd().
crowd(Port, Count, Words) -> crowd({127, 0, 0, 1}, Port, Count, Words).

%% The same, of connections that come from this address of the host.
-spec crowd(inet:ip_address(), inet:port_number(), pos_integer(), fun((pos_integer()) -> iodata())) ->
    crowd().
crowd(From, Port, Count, Words) ->
    Caller = self(),
    {Crowd, ok} = inet_rdma_test_ask:start(fun() ->
        Ref = monitor(process, Caller),
        Sockets = [enter(From, Port, Words(Number)) || Number <- lists:seq(1, Count)],
        {ok, fun() -> stay(Ref, lists:append(Sockets)) end}
    end),
    Crowd.

%% The node's backlog may be full.
enter(From, Port, Words) ->
    Options = [{active, true}, {ip, From} | lists:keydelete(active, 1, ?OPTIONS)],
    case gen_tcp:connect({127, 0, 0, 1}, Port, Options, 10000) of
        {ok, Socket} ->
            _ = gen_tcp:send(Socket, Words),
            [Socket];
        {error, _} ->
            []
    end.

%% Number of connections of the crowd that the node has not closed.
-spec left(crowd()) -> non_neg_integer().
left(Crowd) -> inet_rdma_test_ask:ask(Crowd, left).

-spec leave(crowd()) -> ok.
leave(Crowd) -> inet_rdma_test_ask:ask(Crowd, leave).

stay(Caller, Sockets) ->
    receive
        {tcp, _, _} ->
            stay(Caller, Sockets);
        {tcp_closed, Socket} ->
            stay(Caller, lists:delete(Socket, Sockets));
        {tcp_error, _, _} ->
            stay(Caller, Sockets);
        {left, From, Ref} ->
            From ! {Ref, length(Sockets)},
            stay(Caller, Sockets);
        {leave, From, Ref} ->
            [gen_tcp:close(Socket) || Socket <- Sockets],
            From ! {Ref, ok};
        {'DOWN', Caller, process, _, _} ->
            ok
    end.
