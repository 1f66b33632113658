%% What the socket cases do inside a node. Runs in the nodes under test.
-module(inet_rdma_test_socket).

-export([serve_reasons/1, last_reason/0, say_and_close/2]).
-export([start_connects/3, results/1, within/2, meet/0, connect_and_look/2, do_connect_and_look/2]).

-define(TIMEOUT_MS, 20000).

%% Starts a process that listens, and reads each connection to its end. Returns the port.
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
    receive
        {Server, Port} -> Port
    after ?TIMEOUT_MS -> error(no_listener)
    end.

%% Any process may accept, though another owns the listener. More is sent than the peer's ring
%% takes, so that its advertisements are used.
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

%% Why the last connection ended; none: it has not ended, or this function has returned the reason
%% before.
-spec last_reason() -> term().
last_reason() ->
    Ref = make_ref(),
    ?MODULE ! {last_reason, self(), Ref},
    receive
        {Ref, Reason} -> Reason
    after ?TIMEOUT_MS -> error(no_server)
    end.

%% Connects, sends these bytes, shuts its side down and waits for the end of the other.
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

%% Processes that connect to a port of this host, each once.
-spec start_connects(inet:port_number(), pos_integer(), pos_integer()) -> [pid()].
start_connects(Port, Count, TimeoutMs) ->
    [
        spawn(fun() ->
            Self = self(),
            _ = spawn_link(fun() ->
                Self !
                    {result,
                        inet_rdma:connect("localhost", Port, [{connect_timeout_ms, TimeoutMs}])}
            end),
            result_loop(waiting)
        end)
     || _ <- lists:seq(1, Count)
    ].

result_loop(Result) ->
    receive
        {result, Came} ->
            result_loop(Came);
        {tell, From, Ref} ->
            From ! {Ref, Result},
            result_loop(Result)
    end.

%% The result of each connect so far; waiting: it has none yet.
-spec results([pid()]) -> [term()].
results(Pids) ->
    [
        begin
            Ref = make_ref(),
            Pid ! {tell, self(), Ref},
            receive
                {Ref, Result} -> Result
            after ?TIMEOUT_MS -> error(no_answer)
            end
        end
     || Pid <- Pids
    ].

%% The result of a call in a process of its own; too_late: none within the time limit.
-spec within(pos_integer(), {module(), atom(), [term()]}) -> term() | too_late.
within(TimeoutMs, {Module, Function, Args}) ->
    Self = self(),
    Ref = make_ref(),
    _ = spawn(fun() -> Self ! {Ref, apply(Module, Function, Args)} end),
    receive
        {Ref, Result} -> Result
    after TimeoutMs -> too_late
    end.

%% A connection of this node to itself.
-spec meet() -> ok.
meet() ->
    {ok, Listener} = inet_rdma:listen(0, []),
    {ok, Port} = inet_rdma:port(Listener),
    {ok, Socket} = inet_rdma:connect("localhost", Port, []),
    {ok, Accepted} = inet_rdma:accept(Listener, ?TIMEOUT_MS),
    ok = inet_rdma:send(Socket, <<"hello">>),
    {ok, <<"hello">>} = inet_rdma:recv(Accepted, 5, ?TIMEOUT_MS),
    lists:foreach(fun inet_rdma:close/1, [Socket, Accepted, Listener]).

%% The result of a connect, and the messages in the mailbox of its process afterwards.
-spec connect_and_look(inet:port_number(), pos_integer()) -> {term(), [term()]}.
connect_and_look(Port, TimeoutMs) ->
    within(?TIMEOUT_MS, {?MODULE, do_connect_and_look, [Port, TimeoutMs]}).

do_connect_and_look(Port, TimeoutMs) ->
    Result = inet_rdma:connect("localhost", Port, [], TimeoutMs),
    {messages, Messages} = process_info(self(), messages),
    {Result, Messages}.
