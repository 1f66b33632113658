%% Stream sockets over RDMA queue pairs, in the manner of gen_tcp.
%%
%% Options of listen/2 and connect/3,4: those of docs/OPTIONS.md, and {active, false | true | once | N} and
%% {packet, raw | 4}. Reasons: closed (in order, by either side), timeout, einval (a call that does not fit the socket's
%% mode), enobufs (so many are posted already), too_late (cancel/2), not_owner, econnrefused (nobody listens), etimedout
%% (connect), eaddrinuse, peer_gone (its process ended), {peer_misbehaved, Text}, {wrong_user, Theirs, Ours},
%% {version_mismatch, Theirs, Ours}, {bad_hello, Text}, {wrong_token, Text}, {no_route, Text} (no fabric leads there),
%% {rejected, Text}, {no_memory, Text}, {system, Doing, Text}, {fabric, Text}, {unknown_option, Key}, {bad_option, Key,
%% Value, Expected}, and inet's for names that do not resolve.
-module(inet_rdma).

-export([listen/2, accept/1, accept/2, connect/3, connect/4, controlling_process/2]).
-export([send/2, recv/2, recv/3, shutdown/2, close/1]).
-export([post_send/2, post_recv/2, cancel/2, sendfile/2, sendfile/5]).
-export([peername/1, sockname/1, port/1, setopts/2, getopts/2, getstat/1, getstat/2, info/0, info/1]).
-export([is_local/1, format_error/1, doctor/0]).
-export_type([socket/0, listener/0, address/0, option/0, reason/0, info/0]).

-record(inet_rdma_socket, {
    conn :: inet_rdma_nif:conn(),
    id :: pos_integer(),
    %% The listener's port, of either side.
    port :: inet:port_number(),
    role :: connected | accepted,
    config :: inet_rdma_options:config()
}).

-record(inet_rdma_listener, {
    listener :: inet_rdma_nif:listener(),
    id :: pos_integer(),
    port :: inet:port_number(),
    config :: inet_rdma_options:config(),
    socket_options :: [{active | packet, term()}]
}).

-opaque socket() :: #inet_rdma_socket{}.
-opaque listener() :: #inet_rdma_listener{}.
%% The side that connected over shm has port 0.
-type address() :: {shm, inet:port_number()} | {verbs, inet:ip_address(), inet:port_number()}.
-type option() :: {active, boolean() | once | -32768..32767} | {packet, raw | 0 | 4} | {atom(), term()}.
-type reason() :: term().
-type info() :: #{atom() => term()}.

%% Port 0: a free one, see port/1. The caller owns the listener: its death closes the port, not the connections.
-spec listen(inet:port_number(), [option()]) -> {ok, listener()} | {error, reason()}.
listen(Port, Options) when is_integer(Port), Port >= 0, Port =< 65535, is_list(Options) ->
    case config(Options) of
        {ok, Config, SocketOptions} ->
            case inet_rdma_nif:listen(<<>>, Port, Port, Config) of
                {ok, Listener, Id, Bound, _Over} ->
                    {ok, #inet_rdma_listener{listener = Listener, id = Id, port = Bound, config = Config,
                                             socket_options = SocketOptions}};
                Error ->
                    Error
            end;
        Error ->
            Error
    end.

-spec accept(listener()) -> {ok, socket()} | {error, reason()}.
accept(Listener) ->
    accept(Listener, infinity).

%% The caller owns the new socket: its death closes it.
-spec accept(listener(), timeout()) -> {ok, socket()} | {error, reason()}.
accept(#inet_rdma_listener{} = Listener, Timeout) ->
    accept_until(Listener, deadline(Timeout)).

accept_until(#inet_rdma_listener{listener = Ref, id = Id, port = Port, config = Config} = Listener, Deadline) ->
    case inet_rdma_nif:accept(Ref, Config) of
        {ok, Conn, ConnId} ->
            Socket = #inet_rdma_socket{conn = Conn, id = ConnId, port = Port, role = accepted, config = Config},
            opened(Socket, Listener#inet_rdma_listener.socket_options);
        empty ->
            receive
                {'$inet_rdma', Id, acceptable} -> accept_until(Listener, Deadline)
            after left(Deadline) ->
                {error, timeout}
            end;
        Error ->
            Error
    end.

-spec connect(inet:hostname() | inet:ip_address(), inet:port_number(), [option()]) ->
          {ok, socket()} | {error, reason()}.
connect(Host, Port, Options) ->
    connect(Host, Port, Options, infinity).

%% Gives up after Timeout or the option connect_timeout_ms, whichever is shorter. The caller owns the socket.
-spec connect(inet:hostname() | inet:ip_address(), inet:port_number(), [option()], timeout()) ->
          {ok, socket()} | {error, reason()}.
connect(Host, Port, Options, Timeout) when is_integer(Port), Port > 0, Port =< 65535, is_list(Options) ->
    case resolve(Host) of
        {ok, Ip} -> connect_to(Ip, Port, config(Options), Timeout);
        Error -> Error
    end.

connect_to(Ip, Port, {ok, Config, SocketOptions}, Timeout) ->
    Limit = maps:get(connect_timeout_ms, Config),
    Bound = min(Limit, max(1, finite(Timeout, Limit))),
    Address = list_to_binary(inet:ntoa(Ip)),
    case inet_rdma_nif:connect(maps:get(fabric, Config), Address, Port, 0, Bound, Config) of
        {ok, Attempt, Id} ->
            %% The message comes once, whatever the outcome, and what waits for the peer keeps to Bound: no `after` here, so no
            %% message is left behind.
            receive {'$inet_rdma', Id, connected} -> ok end,
            connected(inet_rdma_nif:stream(Attempt), Id, Port, Config, SocketOptions);
        Error ->
            Error
    end;
connect_to(_Ip, _Port, Error, _Timeout) ->
    Error.

connected({ok, Conn}, Id, Port, Config, SocketOptions) ->
    opened(#inet_rdma_socket{conn = Conn, id = Id, port = Port, role = connected, config = Config}, SocketOptions);
connected(Error, _Id, _Port, _Config, _SocketOptions) ->
    Error.

finite(infinity, Limit) -> Limit;
finite(Timeout, _Limit) -> Timeout.

%% A reason in words, where it has some.
-spec format_error(reason()) -> string().
format_error({Kind, Text}) when is_atom(Kind), is_binary(Text) -> lists:flatten(io_lib:format("~ts", [Text]));
format_error({system, Doing, Text}) -> lists:flatten(io_lib:format("~ts: ~ts", [Doing, Text]));
format_error(econnrefused) -> "nobody listens there";
format_error(etimedout) -> "timed out";
format_error(Reason) -> lists:flatten(io_lib:format("~tp", [Reason])).

%% Whether a host is this one: the only one that the shm fabric reaches.
-spec is_local(inet:hostname() | inet:ip_address()) -> {ok, boolean()} | {error, inet:posix()}.
is_local(Host) ->
    case resolve(Host) of
        {ok, {127, _, _, _}} -> {ok, true};
        {ok, {0, 0, 0, 0, 0, 0, 0, 1}} -> {ok, true};
        {ok, Address} -> {ok, lists:member(Address, own_addresses())};
        Error -> Error
    end.

resolve(Host) ->
    case inet:getaddr(Host, inet) of
        {ok, Address} -> {ok, Address};
        {error, _} -> inet:getaddr(Host, inet6)
    end.

own_addresses() ->
    case inet:getifaddrs() of
        {ok, Interfaces} -> [Address || {_, Properties} <- Interfaces, {addr, Address} <- Properties];
        {error, _} -> []
    end.

%% Only the owner may do so. In active mode messages that are under way still reach the old owner.
-spec controlling_process(socket(), pid()) -> ok | {error, reason()}.
controlling_process(#inet_rdma_socket{conn = Conn} = Socket, Pid) when is_pid(Pid) ->
    case inet_rdma_nif:owner(Conn) of
        Owner when Owner =:= self() ->
            Active = inet_rdma_nif:active_left(Conn),
            ok = inet_rdma_nif:active(Conn, Socket, 0),
            ok = inet_rdma_nif:own(Conn, Pid),
            set_active(Socket, Active);
        closed ->
            {error, closed};
        _ ->
            {error, not_owner}
    end.

%% Waits while the peer has no room. Data of one call stays together, whoever else sends.
-spec send(socket(), iodata()) -> ok | {error, reason()}.
send(#inet_rdma_socket{conn = Conn, id = Id, config = #{call_bytes := Max}}, Data) ->
    send_on(Conn, Id, [erlang:iolist_to_iovec(Data)], 0, Max).

send_on(Conn, Id, Packets, Offset, Max) ->
    case inet_rdma_nif:send(Conn, Packets, Offset, Max) of
        ok ->
            ok;
        {more, Rest, Sent} ->
            send_on(Conn, Id, Rest, Sent, Max);
        {blocked, Rest, Sent} ->
            await_writable(Conn, Id),
            send_on(Conn, Id, Rest, Sent, Max);
        Error ->
            Error
    end.

%% Another process may have died in the middle of its bytes: somebody has to look for that now and then.
await_writable(Conn, Id) ->
    case inet_rdma_nif:arm_writer(Conn) of
        true -> receive {'$inet_rdma', Id, writable} -> ok after 1000 -> disarm(Conn, Id, writable) end;
        false -> ok
    end.

%% Not woken: takes its name off the list, and the message that may be under way out of the queue.
disarm(Conn, Id, What) ->
    ok = inet_rdma_nif:disarm(Conn),
    receive {'$inet_rdma', Id, What} -> ok after 0 -> ok end.

-spec recv(socket(), non_neg_integer()) -> {ok, binary()} | {error, reason()}.
recv(Socket, Length) ->
    recv(Socket, Length, infinity).

%% Length 0: whatever is there ({packet, raw}) or the next packet ({packet, 4}); else exactly so many bytes (raw only).
%% After a timeout nothing is lost. What came before the end is handed over first, then {error, Reason}.
-spec recv(socket(), non_neg_integer(), timeout()) -> {ok, binary()} | {error, reason()}.
recv(#inet_rdma_socket{conn = Conn} = Socket, Length, Timeout) when is_integer(Length), Length >= 0 ->
    case inet_rdma_nif:active_left(Conn) of
        passive -> recv_until(Socket, Length, deadline(Timeout));
        _ -> {error, einval}
    end.

recv_until(#inet_rdma_socket{conn = Conn, config = #{call_bytes := Max}} = Socket, Length, Deadline) ->
    case inet_rdma_nif:recv(Conn, Max, 1, Length) of
        {_, [Packet]} -> {ok, Packet};
        {error, _, [Packet]} -> {ok, Packet};
        {error, Reason, []} -> {error, Reason};
        {more, []} -> recv_until(Socket, Length, Deadline);
        _Nothing -> await_readable(Socket, Length, Deadline)
    end.

await_readable(#inet_rdma_socket{conn = Conn, id = Id} = Socket, Length, Deadline) ->
    case inet_rdma_nif:arm(Conn) of
        false ->
            recv_until(Socket, Length, Deadline);
        true ->
            receive
                {'$inet_rdma', Id, readable} -> recv_until(Socket, Length, Deadline)
            after left(Deadline) ->
                ok = disarm(Conn, Id, readable),
                {error, timeout}
            end
    end.

%% Sends without waiting. When the last byte is on its way the caller gets
%%   {inet_rdma_sent, Socket, Ref, {ok, Bytes} | {error, Reason}}
%% Sends go in the order in which they were posted, and so do these messages, one for each. The data is not copied: its
%% binaries are kept until then. {error, enobufs}: sends_max are posted already; this one is not. send/2 goes behind all
%% that is posted. shutdown/2 and close/1 do not wait: what has not gone ends with {error, closed}.
-spec post_send(socket(), iodata()) -> {ok, reference()} | {error, reason()}.
post_send(#inet_rdma_socket{conn = Conn} = Socket, Data) ->
    Ref = make_ref(),
    case inet_rdma_nif:post_send(Conn, Socket, Ref, erlang:iolist_to_iovec(Data)) of
        ok -> {ok, Ref};
        Error -> Error
    end.

%% Receives without waiting. Length as in recv/2. The caller gets
%%   {inet_rdma_received, Socket, Ref, {ok, Data} | {error, Reason}}
%% for each, in order. The peer is told of the receive before it sends: a send that fills one of up to landing_bytes is
%% written straight into a landing buffer, and Data is that buffer, without a copy, whatever its size; it is free
%% again when the binary is collected. Longer ones are put together from several landing buffers by a copy.
%% {error, enobufs}: receives_max are posted already. While receives are posted, recv/2,3, {active, true | once | N} and
%% {packet, _} give {error, einval}; so does this in active mode. At the end of the stream all end with {error, Reason};
%% what had come for one that is not full is left for recv(Socket, 0).
-spec post_recv(socket(), non_neg_integer()) -> {ok, reference()} | {error, reason()}.
post_recv(#inet_rdma_socket{conn = Conn} = Socket, Length) when is_integer(Length), Length >= 0 ->
    Ref = make_ref(),
    case inet_rdma_nif:post_recv(Conn, Socket, Ref, Length) of
        ok -> {ok, Ref};
        Error -> Error
    end.

%% Takes back what was posted: ok, and there will be no message. {error, too_late}: bytes of the send have gone, or it is
%% done and its message is there or has been. A receive can be taken back at any time before: what has come
%% for it is for whoever reads next.
-spec cancel(socket(), reference()) -> ok | {error, too_late | closed}.
cancel(#inet_rdma_socket{conn = Conn}, Ref) when is_reference(Ref) ->
    inet_rdma_nif:cancel(Conn, Ref).

%% Sends a file: file:sendfile/2.
-spec sendfile(file:name_all(), socket()) -> {ok, non_neg_integer()} | {error, reason()}.
sendfile(Filename, #inet_rdma_socket{} = Socket) ->
    inet_rdma_sendfile:send(Filename, Socket, 0, 0, []).

%% Sends Bytes (0: to the end) of a file, or of one that is open for reading, from Offset on: file:sendfile/5. How many
%% were there, which are fewer if the file has become shorter. Reads ahead while it sends, and keeps four times
%% {chunk_size, Bytes} in memory (default 262144). {error, einval}: with {packet, 4}, or an option that it does not know.
-spec sendfile(file:name_all() | file:fd(), socket(), non_neg_integer(), non_neg_integer(),
               [{chunk_size, pos_integer()}]) -> {ok, non_neg_integer()} | {error, reason()}.
sendfile(File, #inet_rdma_socket{} = Socket, Offset, Bytes, Options) ->
    inet_rdma_sendfile:send(File, Socket, Offset, Bytes, Options).

%% write: the peer reads to the end of what was sent, then closed. read: nothing more is handed over here.
-spec shutdown(socket(), read | write | read_write) -> ok | {error, reason()}.
shutdown(#inet_rdma_socket{conn = Conn}, write) ->
    inet_rdma_nif:finish(Conn);
shutdown(#inet_rdma_socket{conn = Conn}, read) ->
    inet_rdma_nif:stop_reading(Conn);
shutdown(Socket, read_write) ->
    ok = shutdown(Socket, read),
    shutdown(Socket, write).

%% The peer reads to the end of what was sent. A listener: the port is free, its connections live on. Idempotent.
-spec close(socket() | listener()) -> ok.
close(#inet_rdma_socket{conn = Conn}) ->
    inet_rdma_nif:close(Conn);
close(#inet_rdma_listener{listener = Listener}) ->
    inet_rdma_nif:close_listener(Listener).

-spec peername(socket()) -> {ok, address()} | {error, reason()}.
peername(#inet_rdma_socket{conn = Conn, port = Port, role = Role}) ->
    case inet_rdma_nif:addresses(Conn) of
        {_, _, {Address, PeerPort}} -> {ok, verbs_address(Address, PeerPort)};
        {_, none, none} when Role =:= connected -> {ok, {shm, Port}};
        {_, none, none} -> {ok, {shm, 0}};
        closed -> {error, closed}
    end.

-spec sockname(socket() | listener()) -> {ok, address()} | {error, reason()}.
sockname(#inet_rdma_socket{conn = Conn, port = Port, role = Role}) ->
    case inet_rdma_nif:addresses(Conn) of
        {_, {Address, OwnPort}, _} -> {ok, verbs_address(Address, OwnPort)};
        {_, none, none} when Role =:= accepted -> {ok, {shm, Port}};
        {_, none, none} -> {ok, {shm, 0}};
        closed -> {error, closed}
    end;
sockname(#inet_rdma_listener{port = Port, config = #{fabric := verbs}}) ->
    {ok, {verbs, {0, 0, 0, 0}, Port}};
sockname(#inet_rdma_listener{port = Port}) ->
    {ok, {shm, Port}}.

verbs_address(Address, Port) ->
    {ok, Ip} = inet:parse_address(binary_to_list(Address)),
    {verbs, Ip, Port}.

-spec port(listener()) -> {ok, inet:port_number()}.
port(#inet_rdma_listener{port = Port}) ->
    {ok, Port}.

%% {active, Mode} and {packet, raw | 4}; the others are set for good when the socket is made. {error, einval}: packet cannot
%% change while a part of a packet, or of what a recv with a length timed out on, has been taken in; nor can either
%% while receives are posted.
-spec setopts(socket(), [option()]) -> ok | {error, reason()}.
setopts(#inet_rdma_socket{conn = Conn} = Socket, Options) ->
    case inet_rdma_nif:owner(Conn) of
        closed -> {error, closed};
        _ -> setopt(Socket, Options)
    end.

setopt(Socket, [{active, Mode} | Rest]) ->
    case active_count(Mode) of
        error ->
            {error, {bad_option, active, Mode, "true, false, once or an integer from -32768 to 32767"}};
        Count ->
            case set_active(Socket, Count) of
                ok -> setopt(Socket, Rest);
                Error -> Error
            end
    end;
setopt(#inet_rdma_socket{conn = Conn, config = #{packet_max_bytes := Max}} = Socket, [{packet, Packet} | Rest]) ->
    case framing(Packet) of
        error ->
            {error, {bad_option, packet, Packet, "raw or 4"}};
        Framing ->
            case inet_rdma_nif:framing(Conn, Framing, Max) of
                ok -> setopt(Socket, Rest);
                Error -> Error
            end
    end;
setopt(_Socket, [Other | _]) ->
    {error, {unknown_option, Other}};
setopt(_Socket, []) ->
    ok.

%% A negative count takes from what is left, as in inet; the native side adds counts up.
set_active(#inet_rdma_socket{conn = Conn} = Socket, Count) when is_integer(Count), Count < 0 ->
    Left = case inet_rdma_nif:active_left(Conn) of
               Number when is_integer(Number) -> Number + Count;
               _ -> 0
           end,
    ok = inet_rdma_nif:active(Conn, Socket, 0),
    case Left > 0 of
        true -> inet_rdma_nif:active(Conn, Socket, Left);
        false -> self() ! {inet_rdma_passive, Socket}, ok
    end;
set_active(#inet_rdma_socket{conn = Conn} = Socket, passive) ->
    inet_rdma_nif:active(Conn, Socket, 0);
set_active(#inet_rdma_socket{conn = Conn} = Socket, Count) ->
    inet_rdma_nif:active(Conn, Socket, Count).

active_count(true) -> infinity;
active_count(false) -> passive;
active_count(once) -> once;
active_count(Count) when is_integer(Count), Count >= -32768, Count =< 32767 -> Count;
active_count(_) -> error.

framing(raw) -> raw;
framing(0) -> raw;
framing(4) -> length4;
framing(_) -> error.

%% active, packet, and every key of docs/OPTIONS.md.
-spec getopts(socket(), [atom()]) -> {ok, [{atom(), term()}]} | {error, reason()}.
getopts(#inet_rdma_socket{conn = Conn, config = Config}, Keys) ->
    Own = #{active => active_option(inet_rdma_nif:active_left(Conn)),
            packet => packet_option(inet_rdma_nif:framing(Conn))},
    case inet_rdma_nif:owner(Conn) of
        closed -> {error, closed};
        _ -> inet_rdma_options:values(maps:merge(Config, Own), Keys)
    end.

active_option(passive) -> false;
active_option(infinity) -> true;
active_option(Other) -> Other.

packet_option(raw) -> raw;
packet_option(length4) -> 4.

-spec getstat(socket()) -> {ok, [{atom(), non_neg_integer()}]} | {error, closed}.
getstat(Socket) ->
    getstat(Socket, [recv_cnt, recv_oct, send_cnt, send_oct, send_pend]).

%% Packets (cnt) and bytes (oct) each way since the start; send_pend: bytes of posted sends that have not gone.
-spec getstat(socket(), [atom()]) -> {ok, [{atom(), non_neg_integer()}]} | {error, closed}.
getstat(#inet_rdma_socket{conn = Conn}, Keys) ->
    case {inet_rdma_nif:statistics(Conn), inet_rdma_nif:posted(Conn)} of
        {#{packets_received := ReceivedCount, bytes_received := Received,
           packets_sent := SentCount, bytes_sent := Sent}, {_Sends, Pending, _Receives}} ->
            All = [{recv_cnt, ReceivedCount}, {recv_oct, Received},
                   {send_cnt, SentCount}, {send_oct, Sent}, {send_pend, Pending}],
            {ok, [Pair || {Key, _} = Pair <- All, lists:member(Key, Keys)]};
        _ ->
            {error, closed}
    end.

%% Every connection of this node, oldest first, and behind them the links that stayed on TCP.
-spec info() -> [info()].
info() ->
    Native = case inet_rdma_nif:load() of
                 ok -> inet_rdma_nif:all_statistics();
                 {error, _} -> []
             end,
    [complete(Statistics) || Statistics <- Native] ++ lists:append([stayed(Link) || Link <- inet_rdma_links:stayed()]).

%% A link that stayed on TCP: its socket's counts.
stayed({Node, Socket, Why}) ->
    case inet:getstat(Socket, [recv_cnt, recv_oct, send_cnt, send_oct, send_pend]) of
        {ok, [{_, ReceivedCount}, {_, Received}, {_, SentCount}, {_, Sent}, {_, Pending}]} ->
            [#{node => binary_to_atom(Node), fabric => tcp, why => unicode:characters_to_list(Why), state => up,
               packets_received => ReceivedCount, bytes_received => Received,
               packets_sent => SentCount, bytes_sent => Sent, bytes_pending => Pending}];
        {error, _} ->
            []
    end.

%% One connection, or that of a node; undefined: closed here, or there is none:
%%   id (its number on this node), node (undefined: not distribution), fabric, why (it is over that fabric, in words), state (up |
%%   closed), peer (its number at the peer), bytes_* and packets_* (_sent, _received; packets count ticks), direct_* and indirect_* transfers and bytes,
%%   percent_direct_* (of bytes), phase_switches, credit_stalls (transfers that waited for a free receive slot of the
%%   peer), adverts_*, controls_*, wakeups_* (events that cost a system call), polls (looks at the receive queue),
%%   sends_posted, receives_posted, completions and events_armed (of the verbs fabric: what it asks of the device),
%%   ring_bytes and ring_used, landing_buffers and landing_used (advertised or held by the user).
%% A link that stayed on TCP: node, fabric (tcp), why, state, bytes_* and packets_* of its socket, bytes_pending (not sent yet).
-spec info(socket() | node()) -> info() | undefined.
info(#inet_rdma_socket{conn = Conn}) ->
    case inet_rdma_nif:statistics(Conn) of
        closed -> undefined;
        Statistics -> complete(Statistics)
    end;
info(Node) when is_atom(Node) ->
    case [Info || #{node := Name, state := up} = Info <- info(), Name =:= Node] of
        [Info | _] -> Info;
        [] -> undefined
    end.

complete(#{node := Node, fabric := Fabric, why := Why, state := State} = Statistics) ->
    #{direct_bytes_sent := DirectSent, bytes_sent := Sent,
      direct_bytes_received := DirectReceived, bytes_received := Received} = Statistics,
    Statistics#{node := case Node of <<>> -> undefined; _ -> binary_to_atom(Node) end,
                fabric := binary_to_atom(Fabric),
                why := unicode:characters_to_list(Why),
                state := binary_to_atom(State),
                percent_direct_sent => percent(DirectSent, Sent),
                percent_direct_received => percent(DirectReceived, Received)}.

percent(_Part, 0) -> 0.0;
percent(Part, Whole) -> 100 * Part / Whole.

%% What this machine offers, what carries the links of a node here, and what keeps them on TCP. Opens each RDMA device, and
%% a connection of this node to itself; inet_rdma_doctor prints it.
-spec doctor() -> inet_rdma_doctor:report().
doctor() ->
    inet_rdma_doctor:doctor().

%% Splits what is the socket's from what is the connection's, and checks both.
config(Options) ->
    {SocketOptions, Others} = lists:partition(fun({Key, _}) -> Key =:= active orelse Key =:= packet;
                                                 (_) -> false
                                              end, Options),
    case loaded_options(Others) of
        {ok, Node} ->
            case inet_rdma_options:merge(Others, Node) of
                %% A node whose links stay on TCP may have sockets over whichever fabric leads there.
                {ok, #{fabric := tcp} = Config} -> check_socket_options(SocketOptions, Config#{fabric := auto});
                {ok, Config} -> check_socket_options(SocketOptions, Config);
                Error -> Error
            end;
        Error ->
            Error
    end.

loaded_options(Options) ->
    case {inet_rdma_nif:load(), lists:member({fabric, tcp}, Options)} of
        {ok, false} -> inet_rdma_options:node();
        {ok, true} -> {error, {bad_option, fabric, tcp, "auto, shm or verbs for a socket"}};
        {Error, _} -> Error
    end.

check_socket_options(SocketOptions, Config) ->
    Bad = [{Key, Value} || {Key, Value} <- SocketOptions,
                           (Key =:= active andalso active_count(Value) =:= error)
                               orelse (Key =:= packet andalso framing(Value) =:= error)],
    case Bad of
        [] -> {ok, Config, SocketOptions};
        [{active, Value} | _] -> {error, {bad_option, active, Value, "true, false, once or a count"}};
        [{packet, Value} | _] -> {error, {bad_option, packet, Value, "raw or 4"}}
    end.

%% Framing first: in active mode what has arrived already is cut at once.
opened(Socket, SocketOptions) ->
    Active = proplists:get_value(active, SocketOptions, false),
    Packet = proplists:get_value(packet, SocketOptions, raw),
    case setopt(Socket, [{packet, Packet}, {active, Active}]) of
        ok -> {ok, Socket};
        Error -> Error
    end.

deadline(infinity) -> infinity;
deadline(Timeout) -> erlang:monotonic_time(millisecond) + Timeout.

left(infinity) -> infinity;
left(Deadline) -> max(0, Deadline - erlang:monotonic_time(millisecond)).
