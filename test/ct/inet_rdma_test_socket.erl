%% What the socket cases do inside a node. Runs in the nodes under test.
-module(inet_rdma_test_socket).

-export([serve_reasons/1, last_reason/0, say_and_close/2]).

-define(TIMEOUT_MS, 20000).

%% Listens and reads each connection to its end; the port.
-spec serve_reasons([term()]) -> inet:port_number().
serve_reasons(Options) ->
    Caller = self(),
    Server = spawn(fun() ->
        true = register(?MODULE, self()),
        {ok, Listener} = inet_rdma:listen(0, Options),
        {ok, Port} = inet_rdma:port(Listener),
        Caller ! {self(), Port},
        Self = self(),
        spawn_link(fun() -> accept_loop(Self, Listener) end),
        answer_loop(none)
    end),
    receive {Server, Port} -> Port after ?TIMEOUT_MS -> error(no_listener) end.

%% Any process may accept, though another owns the listener. More is sent than the peer's ring takes, so that its
%% advertisements are used.
accept_loop(Server, Listener) ->
    {ok, Socket} = inet_rdma:accept(Listener),
    _ = spawn(fun() -> inet_rdma:send(Socket, binary:copy(<<7>>, 300000)) end),
    Server ! {reason, read_to_the_end(Socket)},
    ok = inet_rdma:close(Socket),
    accept_loop(Server, Listener).

read_to_the_end(Socket) ->
    case inet_rdma:recv(Socket, 0, ?TIMEOUT_MS) of
        {ok, _} -> read_to_the_end(Socket);
        {error, Reason} -> Reason
    end.

answer_loop(Last) ->
    receive
        {reason, Reason} ->
            answer_loop(Reason);
        {last_reason, From, Ref} ->
            From ! {Ref, Last},
            answer_loop(none)
    end.

%% Why the connection before ended; `none' when it has not or has been told.
-spec last_reason() -> term().
last_reason() ->
    Ref = make_ref(),
    ?MODULE ! {last_reason, self(), Ref},
    receive {Ref, Reason} -> Reason after ?TIMEOUT_MS -> error(no_server) end.

%% Connects, says this, ends the own side and waits for the other to end.
-spec say_and_close([term()], binary()) -> {closed, term()}.
say_and_close(Address, Words) ->
    case apply(inet_rdma, connect, Address) of
        {ok, Socket} ->
            ok = inet_rdma:send(Socket, Words),
            ok = inet_rdma:shutdown(Socket, write),
            {closed, read_to_the_end(Socket)};
        {error, Reason} ->
            {closed, Reason}
    end.
