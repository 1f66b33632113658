%% @doc Stream sockets over RDMA queue pairs, in the manner of gen_tcp.
%%
%% Options of listen/2 and connect/3,4: those of docs/OPTIONS.md, also those that only sockets have.
%% Reasons of errors: inet_rdma_error:reason/0 lists them, docs/TROUBLESHOOTING.md says what to do,
%% and format_error/1 makes a text of one.
-module(inet_rdma).

-export([listen/2, accept/1, accept/2, connect/3, connect/4, controlling_process/2]).
-export([send/2, recv/2, recv/3, shutdown/2, close/1]).
-export([post_send/2, post_recv/2, cancel/2, sendfile/2, sendfile/5]).
-export([peername/1, sockname/1, port/1, setopts/2, getopts/2, getstat/1, getstat/2, info/0, info/1]).
-export([is_local/1, format_error/1, load_tools/0, i/0, i/1, top/0, top/1, history/1]).
-export([flight_file/0]).
-export_type([socket/0, listener/0, address/0, option/0, reason/0, info/0, top/0]).

%% The largest length that a receive can ask for.
-define(LENGTH_MAX, 16#7fffffff).

%% Every message of the socket copies this term, so it is small: the native side keeps everything
%% else.
-record(inet_rdma_socket, {
    conn :: inet_rdma_nif:conn(),
    id :: pos_integer()
}).

-opaque socket() :: #inet_rdma_socket{}.
-type listener() :: inet_rdma_listener:t().
-type address() ::
    {shm, inet:port_number()} | {verbs | tcp | tls, inet:ip_address(), inet:port_number()}.
%% The side that connected over shm has port 0.
-type option() ::
    {active, boolean() | once | -32768..32767}
    | {packet, raw | 0 | 1 | 2 | 4 | line}
    | {packet_size, non_neg_integer()}
    | {buffer, pos_integer()}
    | {send_timeout, timeout()}
    | {send_timeout_close, boolean()}
    | {ip | ifaddr, inet:ip_address() | any | loopback}
    | inet
    | inet6
    | binary
    | {tls, [atom() | tuple()]}
    | {atom(), term()}.
-type reason() :: inet_rdma_error:reason().
-type info() :: #{atom() => term()}.
-type top() :: inet_rdma_top:t().

%% @doc Listens at a port of this host. Port 0: a free one, see port/1. The caller owns the
%% listener: its death closes the port, not the connections. {ip, Ip} chooses the RDMA devices and
%% the TCP address at which peers reach the listener; shared memory has no addresses. {error,
%% eaddrnotavail}: Ip is no address of this host.
%%
%% {tls, Options}: Port is a TCP port, on which streams begin inside TLS, with these options of
%% ssl:listen/2. A stream leaves TLS only for a path that is as well protected. docs/STREAMS.md has
%% an example.
-spec listen(inet:port_number(), [option()]) -> {ok, listener()} | {error, reason()}.
listen(Port, Options) when is_integer(Port), Port >= 0, Port =< 65535, is_list(Options) ->
    case inet_rdma_socket:settings(Port, Options) of
        {ok, Settings} -> inet_rdma_listener:listen(Settings);
        Error -> Error
    end.

%% @doc accept/2 without a time limit.
-spec accept(listener()) -> {ok, socket()} | {error, reason()}.
accept(Listener) ->
    accept(Listener, infinity).

%% @doc Waits for a connection. The caller owns the new socket: its death closes it.
-spec accept(listener(), timeout()) -> {ok, socket()} | {error, reason()}.
accept(Listener, Timeout) ->
    Accepted = inet_rdma_listener:accept(Listener, inet_rdma_clock:deadline(Timeout)),
    opened(Accepted, accepted, inet_rdma_listener:settings(Listener)).

%% @doc connect/4 with the option connect_timeout_ms as the only time limit.
-spec connect(inet:hostname() | inet:ip_address(), inet:port_number(), [option()]) ->
    {ok, socket()} | {error, reason()}.
connect(Host, Port, Options) ->
    connect(Host, Port, Options, infinity).

%% @doc Connects to a listener of this host or another. Gives up with timeout after Timeout, or with
%% etimedout after the option connect_timeout_ms, whichever is shorter. The caller owns the socket.
%% {ip, Ip} is the address of this side: over verbs that of an RDMA device; shared memory has none.
%% {error, eaddrnotavail}: Ip is no address of this host.
%%
%% {tls, Options}: connects to a listener with the option tls, with these options of ssl:connect/4.
%% Both time limits include the handshake of TLS. {ip, Ip} is this side's address of the TCP
%% connection.
-spec connect(inet:hostname() | inet:ip_address(), inet:port_number(), [option()], timeout()) ->
    {ok, socket()} | {error, reason()}.
connect(Host, Port, Options, Timeout) when
    is_integer(Port), Port > 0, Port =< 65535, is_list(Options)
->
    case inet_rdma_socket:settings(Port, Options) of
        {ok, Settings} ->
            opened(inet_rdma_connect:connect(Host, Settings, Timeout), connected, Settings);
        Error ->
            Error
    end.

%% @doc A reason in words.
-spec format_error(reason()) -> string().
format_error(Reason) -> inet_rdma_error:format(Reason).

%% @doc Whether a host is this host, which is the only one that shm reaches. The choice of a
%% stream's fabric depends on it.
-spec is_local(inet:hostname() | inet:ip_address()) -> {ok, boolean()} | {error, inet:posix()}.
is_local(Host) ->
    inet_rdma_connect:is_local(Host).

%% @doc Makes a process the owner of a socket. Only the owner may do so. Messages of the socket that
%% are in the caller's message queue go to the new owner, before all that arrive later. {error,
%% badarg}: Pid is no living process of this node, and the caller stays the owner.
-spec controlling_process(socket(), pid()) -> ok | {error, reason()}.
controlling_process(#inet_rdma_socket{conn = Conn} = Socket, Pid) when is_pid(Pid) ->
    case inet_rdma_nif:owner(Conn) of
        closed -> {error, closed};
        Pid -> ok;
        Owner when Owner =/= self() -> {error, not_owner};
        _ when node(Pid) =/= node() -> {error, badarg};
        _ -> give(Socket, Pid)
    end.

%% Makes the socket passive first, so that messages that arrive later stay behind those that are
%% forwarded.
give(#inet_rdma_socket{conn = Conn} = Socket, Pid) ->
    Active = inet_rdma_nif:make_passive(Conn),
    case inet_rdma_nif:own(Conn, Pid) of
        ok ->
            forward(Socket, Pid),
            activate(Socket, Active);
        Error ->
            _ = activate(Socket, Active),
            Error
    end.

%% A socket that was passive stays as it is: the new owner may have switched it already.
activate(_Socket, passive) ->
    ok;
activate(#inet_rdma_socket{conn = Conn} = Socket, Active) ->
    inet_rdma_nif:active(Conn, Socket, Active).

forward(Socket, Pid) ->
    receive
        {inet_rdma, Socket, _} = Message ->
            Pid ! Message,
            forward(Socket, Pid);
        {inet_rdma_passive, Socket} = Message ->
            Pid ! Message,
            forward(Socket, Pid);
        {inet_rdma_error, Socket, _} = Message ->
            Pid ! Message,
            forward(Socket, Pid);
        {inet_rdma_closed, Socket} = Message ->
            Pid ! Message,
            forward(Socket, Pid)
    after 0 -> ok
    end.

%% @doc Sends data. Waits while the peer has no room, for up to send_timeout, then {error, timeout}.
%% Data of one call stays together, also while other processes send. If a part was sent before the
%% timeout, the rest is sent later without the caller, as with gen_tcp, so that the peer's stream
%% stays whole; unless the socket is closed before (send_timeout_close, close/1).
-spec send(socket(), iodata()) -> ok | {error, reason()}.
send(#inet_rdma_socket{conn = Conn, id = Id}, Data) ->
    inet_rdma_transfer:send(Conn, Id, erlang:iolist_to_iovec(Data)).

%% @doc recv/3 without a time limit.
-spec recv(socket(), non_neg_integer()) -> {ok, binary()} | {error, reason()}.
recv(Socket, Length) ->
    recv(Socket, Length, infinity).

%% @doc Receives data of a socket in passive mode. Length 0: the bytes that are there ({packet,
%% raw}), or the next packet or line. Another Length: exactly that many bytes; {error, einval} with
%% packets or lines. After a timeout nothing is lost. Data that came before the end is handed over
%% first, then {error, Reason}. {error, enomem}: Length is 2 GiB or more.
-spec recv(socket(), non_neg_integer(), timeout()) -> {ok, binary()} | {error, reason()}.
recv(#inet_rdma_socket{}, Length, _Timeout) when is_integer(Length), Length > ?LENGTH_MAX ->
    {error, enomem};
recv(#inet_rdma_socket{conn = Conn, id = Id}, Length, Timeout) when
    is_integer(Length), Length >= 0
->
    inet_rdma_transfer:recv(Conn, Id, Length, Timeout).

%% @doc Sends without waiting. When the last byte is on its way the caller gets
%%   {inet_rdma_sent, Socket, Ref, {ok, Bytes} | {error, Reason}}
%% There is one message for each send. Sends and their messages go in the order in which the sends
%% were posted. The data is not copied: its binaries are kept until the message. {error, enobufs}:
%% sends_max sends are posted already, and this one is not posted. Data of send/2 goes after all
%% posted sends. shutdown/2 and close/1 do not wait: sends with unsent bytes end with {error,
%% closed}.
-spec post_send(socket(), iodata()) -> {ok, reference()} | {error, reason()}.
post_send(#inet_rdma_socket{conn = Conn} = Socket, Data) ->
    Ref = make_ref(),
    posted(inet_rdma_nif:post_send(Conn, Socket, Ref, erlang:iolist_to_iovec(Data)), Ref).

posted(ok, Ref) -> {ok, Ref};
posted(Error, _Ref) -> Error.

%% @doc Receives without waiting. Length as in recv/2. The caller gets
%%   {inet_rdma_received, Socket, Ref, {ok, Data} | {error, Reason}}
%% for each receive, in order. The peer learns of the receive before it sends. A send that fills a
%% receive of up to landing_bytes is written straight into a landing buffer, and Data is that
%% buffer, without a copy at any size (over verbs and TCP from direct_bytes on, and only if
%% safeguard of info/1 is not none); the buffer is free again when the binary is collected. Longer
%% receives are copied together from several landing buffers. {error, enomem}: as for recv/3.
%% {error, enobufs}: receives_max receives are posted already. While receives are posted, recv/2,3,
%% {active, true | once | N} and {packet, _} give {error, einval}; in active mode post_recv/2 does.
%% At the end of the stream all receives end with {error, Reason}; then recv(Socket, 0) gives the
%% bytes of a receive that was not full.
-spec post_recv(socket(), non_neg_integer()) -> {ok, reference()} | {error, reason()}.
post_recv(#inet_rdma_socket{}, Length) when is_integer(Length), Length > ?LENGTH_MAX ->
    {error, enomem};
post_recv(#inet_rdma_socket{conn = Conn} = Socket, Length) when is_integer(Length), Length >= 0 ->
    Ref = make_ref(),
    posted(inet_rdma_nif:post_recv(Conn, Socket, Ref, Length), Ref).

%% @doc Takes back a posted send or receive. ok: there is no message for it. {error, too_late}:
%% bytes of the send have been sent, or the operation is done and its message is sent. A receive can
%% be taken back until it is done: the next read gets the bytes that have come for it.
-spec cancel(socket(), reference()) -> ok | {error, too_late | closed}.
cancel(#inet_rdma_socket{conn = Conn}, Ref) when is_reference(Ref) ->
    inet_rdma_nif:cancel(Conn, Ref).

%% @doc Sends a file: file:sendfile/2.
-spec sendfile(file:name_all(), socket()) -> {ok, non_neg_integer()} | {error, reason()}.
sendfile(Filename, #inet_rdma_socket{} = Socket) ->
    sendfile(Filename, Socket, 0, 0, []).

%% @doc Sends Bytes (0: to the end) of a file, given by name or open for reading, from Offset on, as
%% file:sendfile/5. Gives the number of bytes sent, which is smaller if the file has become shorter.
%% Reads ahead while it sends, and keeps four times {chunk_size, Bytes} in memory (default 262144).
%% {error, einval}: the socket has framing, or an option is unknown.
-spec sendfile(
    file:name_all() | file:fd(),
    socket(),
    non_neg_integer(),
    non_neg_integer(),
    [{chunk_size, pos_integer()}]
) -> {ok, non_neg_integer()} | {error, reason()}.
sendfile(File, #inet_rdma_socket{conn = Conn, id = Id} = Socket, Offset, Bytes, Options) ->
    inet_rdma_sendfile:send(File, {Socket, Conn, Id}, Offset, Bytes, Options).

%% @doc Ends one direction or both. write: the peer reads all data that was sent, then closed. read:
%% this side gets no data any longer.
-spec shutdown(socket(), read | write | read_write) -> ok | {error, reason()}.
shutdown(#inet_rdma_socket{conn = Conn}, write) ->
    inet_rdma_nif:finish(Conn);
shutdown(#inet_rdma_socket{conn = Conn}, read) ->
    inet_rdma_nif:stop_reading(Conn);
shutdown(Socket, read_write) ->
    ok = shutdown(Socket, read),
    shutdown(Socket, write).

%% @doc Closes a socket or a listener. The peer of a socket reads all data that was sent. Closing a
%% listener frees its port; its connections live on (with the option tls, the accepted ones).
%% Idempotent.
-spec close(socket() | listener()) -> ok.
close(#inet_rdma_socket{conn = Conn}) ->
    inet_rdma_nif:close(Conn);
close(Listener) ->
    inet_rdma_listener:close(Listener).

%% @doc The address of the peer.
-spec peername(socket()) -> {ok, address()} | {error, reason()}.
peername(#inet_rdma_socket{conn = Conn}) ->
    inet_rdma_socket:peername(Conn).

%% @doc The own address.
-spec sockname(socket() | listener()) -> {ok, address()} | {error, reason()}.
sockname(#inet_rdma_socket{conn = Conn}) ->
    inet_rdma_socket:sockname(Conn);
sockname(Listener) ->
    inet_rdma_listener:sockname(Listener).

%% @doc The port of a listener.
-spec port(listener()) -> {ok, inet:port_number()}.
port(Listener) ->
    {ok, inet_rdma_listener:port(Listener)}.

%% @doc Sets options: active, packet, packet_size, buffer, send_timeout and send_timeout_close.
%% Options of gen_tcp without effect are taken with the value that a stream has; the others cannot
%% change after the socket is made. If two processes set options at the same time, the later one may
%% undo the other's.
%%
%% {active, N} adds N to the count that is left. The owner gets {inet_rdma_passive, Socket} if the
%% sum is 0 or less; {error, einval}: the sum is more than 32767. The option packet gives {error,
%% einval} while a part of a packet has been read, or a part of the data of a recv with a length
%% that timed out. It can change from line to raw: the next read then gets the part of the line
%% first. Both options give {error, einval} while receives are posted.
-spec setopts(socket(), [option()]) -> ok | {error, reason()}.
setopts(#inet_rdma_socket{conn = Conn} = Socket, Options) ->
    inet_rdma_socket:setopts(Conn, Socket, Options).

%% @doc The values of options: active, packet, packet_size, buffer, send_timeout,
%% send_timeout_close, and every key of docs/OPTIONS.md; of the options of gen_tcp that have no
%% effect the value that holds.
-spec getopts(socket(), [atom()]) -> {ok, [{atom(), term()}]} | {error, reason()}.
getopts(#inet_rdma_socket{conn = Conn}, Keys) ->
    inet_rdma_socket:getopts(Conn, Keys).

%% @doc All counts of getstat/2.
-spec getstat(socket()) -> {ok, [{atom(), non_neg_integer()}]} | {error, einval}.
getstat(Socket) ->
    getstat(Socket, inet_rdma_info:keys()).

%% @doc Counts under the names of inet:getstat/2: packets (cnt), bytes (oct), and size of packets on
%% the average (avg) and at most (max), each way since the start, with headers. recv_ counts what
%% was read, or came as a message; recv_dvi: the standard deviation of the sizes; send_pend: bytes
%% of posted sends that have not gone. In the order of Keys. {error, einval}: the socket is closed,
%% or a key is unknown.
-spec getstat(socket(), [atom()]) -> {ok, [{atom(), non_neg_integer()}]} | {error, einval}.
getstat(#inet_rdma_socket{conn = Conn}, Keys) ->
    inet_rdma_info:counts(Conn, Keys).

%% @doc Facts and counts of every connection of this node, oldest first, then of the links that
%% stayed on TCP.
-spec info() -> [info()].
info() ->
    inet_rdma_info:all().

%% @doc Prints a table of info/0, as inet:i/0 does: node, fabric, state (suspended: no path carries
%% the link; suspected: its path does not answer), user bytes and packets each way, share of direct
%% bytes, bytes that wait, how often a link lost its connection, resumed over another one and moved,
%% the node over which it goes, why. "-" where a number is unknown. Prints nothing where there is no
%% connection, but for the reason if the VM does not run the carrier that its flags name.
-spec i() -> ok.
i() ->
    _ = [io:put_chars([Why, "; ", Fix, $\n]) || {Why, Fix} <- [inet_rdma_proto_dist:ignored()]],
    io:put_chars(inet_rdma_info:table(info())).

%% @doc Prints the row of i/0 of the link to a node, and who fills it, in bytes per second of about
%% the last ten seconds: the ten heaviest of top/1 in each direction.
-spec i(node()) -> ok.
i(Node) when is_atom(Node) ->
    io:put_chars([
        inet_rdma_info:table([Info || Info <- [info(Node)], Info =/= undefined]),
        inet_rdma_top:table([{Node, top(Node)}], 10)
    ]).

%% @doc Facts and counts of one connection, or of that to a node. undefined: closed here, or there
%% is none. inet_rdma_counts:list/0 has each key with its unit, meaning and the connections that
%% have it; on others it is absent. Bytes, packets and sizes of packets of a link are counted over
%% all paths that it had. A link over TCP has sizes of packets; one over TLS has not.
-spec info(socket() | node()) -> info() | undefined.
info(#inet_rdma_socket{conn = Conn}) -> inet_rdma_info:of_connection(Conn);
info(Node) when is_atom(Node) -> inet_rdma_info:of_node(Node).

%% @doc Who fills the link to a node, in both directions: exact counts by operation, and the heaviest
%% by operation, sender and target, of late (in bytes per second) and since the link came up (in
%% bytes). docs/MONITORING.md has an example. {error, attribution_off}: the option attribution was
%% off when the link came up; other_carrier: OTP's driver carries the link, or OTP's TLS; no_link:
%% there is none.
-spec top(node()) -> {ok, top()} | {error, no_link | other_carrier | attribution_off}.
top(Node) when is_atom(Node) -> inet_rdma_top:of_node(Node).

%% @doc top/1 of each link of this node.
-spec top() -> [{node(), {ok, top()} | {error, no_link | other_carrier | attribution_off}}].
top() -> inet_rdma_top:all().

%% @doc Makes the modules of the application inet_rdma_tools callable (the doctor, certify, the
%% reader of the flight recorder's files), which lie in the directory of this application, or in
%% lib/inet_rdma_tools of a release; in embedded mode it loads them. The loaded applications stay as
%% they are. {error, not_found}: this is a release without the tools.
-spec load_tools() -> ok | {error, not_found}.
load_tools() ->
    Beside = filename:join(filename:absname(filename:dirname(code:which(?MODULE))), ".."),
    load_tools([
        filename:join([Directory, "inet_rdma_tools", "ebin"])
     || Directory <- [Beside, code:lib_dir()]
    ]).

load_tools([Ebin | Others]) ->
    case file:consult(filename:join(Ebin, "inet_rdma_tools.app")) of
        {ok, [{application, inet_rdma_tools, Keys}]} ->
            true = code:add_pathz(Ebin),
            {modules, Modules} = lists:keyfind(modules, 1, Keys),
            _ = [
                {module, _} = code:load_file(Module)
             || code:get_mode() =:= embedded,
                Module <- Modules,
                not erlang:module_loaded(Module)
            ],
            ok;
        _ ->
            load_tools(Others)
    end;
load_tools([]) ->
    {error, not_found}.

%% @doc The file of this node's flight recorder. It is made at the first event of a link, and has
%% the node's name, also if the distribution is started again with another one. none: there is no
%% file yet, or the recorder is off.
-spec flight_file() -> {ok, Path :: binary()} | none.
flight_file() ->
    inet_rdma_recorder:file().

%% @doc The last 50 events of this node's links to another node, oldest first, from the flight
%% recorder; also when that node is down. Empty if the recorder is off. docs/FLIGHT.md lists the
%% events.
-spec history(node()) -> [inet_rdma_recorder:event()].
history(Node) when is_atom(Node) ->
    inet_rdma_recorder:history(Node, 50).

opened({ok, Conn, Id}, Role, Settings) ->
    Socket = #inet_rdma_socket{conn = Conn, id = Id},
    case inet_rdma_socket:open(Conn, Socket, Role, Settings) of
        ok -> {ok, Socket};
        Error -> Error
    end;
opened(Error, _Role, _Settings) ->
    Error.
