%% Streams of inet_rdma's own interface, one after the other to each node: numbered packets with
%% hashes there, numbers and hashes back. Only a close, or the end of a node, may break one. Runs in
%% the nodes under test.
-module(inet_rdma_soak_streams).

-export([listen/1, port/0, work/2, close_one/0]).

-define(PACKETS, 200).
-define(WINDOW, 8).
-define(CONNECT_MS, 5000).
%% Longer than any stop of a node.
-define(TIMEOUT_MS, 240000).
-define(FRAMINGS, [packet, active, once, raw]).

%% `{packet, 4}' and a length written by hand are the same on the wire; each end chooses its own
%% way.
-type framing() :: packet | active | once | raw.
-type id() :: {node(), integer()}.

%% A process that listens, and others that serve.
-spec listen(file:filename_all()) -> ok.
listen(File) ->
    Caller = self(),
    Pid = spawn(fun() ->
        {ok, Listener} = inet_rdma:listen(0, [{packet, raw}]),
        {ok, Port} = inet_rdma:port(Listener),
        ok = persistent_term:put(?MODULE, Port),
        Caller ! {self(), ready},
        spawn(fun() -> inet_rdma_soak_node:guarded({File, fun() -> accept(Listener, File) end}) end),
        receive
            stop -> ok
        end
    end),
    receive
        {Pid, ready} -> ok
    after ?TIMEOUT_MS -> error(no_listener)
    end.

-spec port() -> inet:port_number() | none.
port() -> persistent_term:get(?MODULE, none).

accept(Listener, File) ->
    {ok, Socket} = inet_rdma:accept(Listener),
    spawn(fun() -> inet_rdma_soak_node:guarded({File, fun() -> accept(Listener, File) end}) end),
    serve(Socket).

serve(Socket) ->
    Framing = any_framing(),
    _ = inet_rdma:setopts(Socket, options(Framing)),
    case recv(Framing, Socket) of
        {ok, Hello} ->
            {Peer, _} = Id = binary_to_term(Hello),
            ok = told(Peer, Id, opened(Socket, Peer, Id, fun() -> answers(Framing, Socket, 0) end));
        {error, _} ->
            %% The client knows which stream it was and tells.
            ok
    end,
    inet_rdma:close(Socket).

answers(Framing, Socket, Due) ->
    case recv(Framing, Socket) of
        {ok, <<Due:64, Last:8, Hash:16/binary, Payload/binary>>} ->
            Hash = erlang:md5(Payload),
            case {inet_rdma:send(Socket, framed(Framing, <<Due:64, Hash/binary>>)), Last} of
                {ok, 0} -> answers(Framing, Socket, Due + 1);
                {ok, 1} -> done;
                {{error, Reason}, _} -> {broken, {send, Reason}}
            end;
        {ok, <<Other:64, _/binary>>} ->
            error({stream_out_of_order, {due, Due}, {got, Other}});
        {error, Reason} ->
            {broken, {recv, Reason}}
    end.

-spec work(node(), file:filename_all()) -> no_return().
work(Peer, File) ->
    ok = inet_rdma_soak_node:wait_turn(),
    ok = forget_messages(),
    case rpc:call(Peer, ?MODULE, port, [], ?TIMEOUT_MS) of
        Port when is_integer(Port) -> client(Peer, Port, any_framing());
        _NotThereYet -> receive
            after 100 -> ok
            end
    end,
    work(Peer, File).

client(Peer, Port, Framing) ->
    case inet_rdma:connect("localhost", Port, options(Framing), ?CONNECT_MS) of
        {ok, Socket} ->
            Id = {node(), erlang:unique_integer([positive])},
            Packets = rand:uniform(?PACKETS),
            Outcome =
                case inet_rdma:send(Socket, framed(Framing, term_to_binary(Id))) of
                    ok ->
                        opened(Socket, Peer, Id, fun() ->
                            exchange(Peer, Framing, Socket, Packets, 0, [])
                        end);
                    {error, Reason} ->
                        {broken, {hello, Reason}}
                end,
            ok = told(Peer, Id, Outcome),
            inet_rdma:close(Socket);
        {error, Reason} ->
            ok = inet_rdma_soak_node:tell(Peer, connect, Reason),
            receive
            after 100 -> ok
            end
    end.

%% `Waiting' are the numbers and hashes that were sent and have not come back, oldest first.
exchange(_Peer, Framing, Socket, 0, _Next, []) ->
    %% All is read, the other side closes: nothing but the end may come now.
    case recv(Framing, Socket) of
        {error, closed} -> done;
        {error, Reason} -> {broken, {finish, Reason}};
        {ok, More} -> error({more_than_was_sent, byte_size(More)})
    end;
exchange(Peer, Framing, Socket, Left, Next, Waiting) when Left =:= 0; length(Waiting) =:= ?WINDOW ->
    [Wanted | Others] = Waiting,
    case recv(Framing, Socket) of
        {ok, Wanted} ->
            _ = inet_rdma_soak_node:add(packets, 1),
            _ = inet_rdma_soak_node:moved(streams, Peer),
            exchange(Peer, Framing, Socket, Left, Next, Others);
        {ok, <<Number:64, _/binary>>} ->
            error({wrong_answer, stream, Peer, {due, Next - length(Waiting)}, {got, Number}});
        {error, Reason} ->
            {broken, {recv, Reason}}
    end;
exchange(Peer, Framing, Socket, Left, Next, Waiting) ->
    IsLast = Left =:= 1 orelse inet_rdma_soak_node:is_paused(),
    Payload = inet_rdma_soak_payload:binary(packet),
    Hash = erlang:md5(Payload),
    Last =
        case IsLast of
            true -> 1;
            false -> 0
        end,
    case inet_rdma:send(Socket, framed(Framing, [<<Next:64, Last:8, Hash/binary>>, Payload])) of
        ok ->
            _ = inet_rdma_soak_node:add(stream_bytes, byte_size(Payload)),
            Rest =
                case IsLast of
                    true -> 0;
                    false -> Left - 1
                end,
            exchange(Peer, Framing, Socket, Rest, Next + 1, Waiting ++ [<<Next:64, Hash/binary>>]);
        {error, Reason} ->
            {broken, {send, Reason}}
    end.

%% While the stream is open, close_one/0 finds it.
opened(Socket, Peer, Id, Fun) ->
    true = ets:insert(inet_rdma_soak_node, {{stream, self()}, Socket, Peer, Id}),
    Outcome = Fun(),
    true = ets:delete(inet_rdma_soak_node, {stream, self()}),
    Outcome.

told(Peer, Id, done) ->
    _ = inet_rdma_soak_node:add(streams, 1),
    inet_rdma_soak_node:tell(Peer, stream_done, Id);
told(Peer, Id, {broken, Reason}) ->
    inet_rdma_soak_node:tell(Peer, stream, {Id, Reason}).

%% Closes one of the open streams, whichever it is and whatever it is doing.
-spec close_one() -> {node(), id()} | none.
close_one() ->
    case ets:match_object(inet_rdma_soak_node, {{stream, '_'}, '_', '_', '_'}) of
        [] ->
            none;
        Streams ->
            {{stream, Owner}, Socket, Peer, Id} = lists:nth(rand:uniform(length(Streams)), Streams),
            ok = inet_rdma:close(Socket),
            %% In active mode the owner gets no message for a close on its own side.
            Owner ! {inet_rdma_closed, Socket},
            {Peer, Id}
    end.

-spec any_framing() -> framing().
any_framing() -> lists:nth(rand:uniform(length(?FRAMINGS)), ?FRAMINGS).

options(raw) -> [{packet, raw}];
options(active) -> [{packet, 4}, {active, true}];
options(_) -> [{packet, 4}].

framed(raw, Data) -> [<<(iolist_size(Data)):32>>, Data];
framed(_, Data) -> Data.

recv(packet, Socket) ->
    within(inet_rdma:recv(Socket, 0, ?TIMEOUT_MS));
recv(raw, Socket) ->
    case within(inet_rdma:recv(Socket, 4, ?TIMEOUT_MS)) of
        {ok, <<Size:32>>} -> within(inet_rdma:recv(Socket, Size, ?TIMEOUT_MS));
        Error -> Error
    end;
recv(once, Socket) ->
    case inet_rdma:setopts(Socket, [{active, once}]) of
        ok -> recv(active, Socket);
        Error -> Error
    end;
recv(active, Socket) ->
    receive
        {inet_rdma, Socket, Data} ->
            {ok, Data};
        {inet_rdma_error, Socket, Reason} ->
            receive
                {inet_rdma_closed, Socket} -> {error, Reason}
            end;
        {inet_rdma_closed, Socket} ->
            {error, closed}
    after ?TIMEOUT_MS -> error(stream_stalled)
    end.

within({error, timeout}) -> error(stream_stalled);
within(Other) -> Other.

%% Those to a stream that has been closed.
forget_messages() ->
    receive
        _ -> forget_messages()
    after 0 -> ok
    end.
