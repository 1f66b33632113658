%% OTP's distribution over TLS under this carrier: the option `security tls`.
%%
%% inet_tls_dist listens, and its options, certificates, revocation and verify functions are in
%% force as with `-proto_dist inet_tls`. Its set-up has no place for a settlement, and its
%% handshakes give a place to connections that say nothing (inet_rdma_acceptor). So this carrier
%% does both parts of TLS itself, and has its own #hs_data{}. This module uses functions that no
%% release documents:
%%
%%     all releases         those that check/0 looks for; the option erl_dist of ssl, which process of a socket is its
%%                          sender, and close/2; the message `tick` of tls_sender
%%     OTP 28 and later     inet_tls_dist:get_ssl_client_options/0 and get_ssl_server_options/1 (before:
%%                          inet_rdma_tls_options)
%%
%% If a release lacks one of them, the node does not start, and the log names it.
-module(inet_rdma_tls).

-export([check/0, childspecs/0, listen/3, select/2, address/1]).
-export([accept_over/2, accepted/1, allowed/2, connect/5, connect_over/4, give_back/1, is_refusal/1]).

-include_lib("kernel/include/dist_util.hrl").
-include_lib("kernel/include/logger.hrl").

%% Pause between two checks for the code server, which starts after the distribution.
-define(CODE_SERVER_MS, 10).

-define(USED, [
    {inet_tls_dist, [{childspecs, 0}, {listen, 2}, {select, 1}, {address, 0}, {verify_client, 3}]},
    {inet6_tls_dist, [{listen, 2}, {select, 1}, {address, 0}]},
    {tls_sender, [{dist_handshake_complete, 3}]}
]).

%% Whether OTP has the functions that this module uses, and this module supports the options.
-spec check() -> ok | {error, Why :: string()}.
check() ->
    case lists:append([missing(Module, Functions) || {Module, Functions} <- ?USED]) of
        [] ->
            check_options();
        [{Module, module} | _] ->
            {error,
                io(
                    "the module ~s of the application ssl is not found; start erl with `-pa` and "
                    "the ebin directory of ssl, or with a boot file that has ssl",
                    [Module]
                )};
        [{Module, {Function, Arity}} | _] ->
            {error,
                io(
                    "OTP ~s has no function ~s:~s/~b, by which a link can begin inside TLS; "
                    "releases 25 to 29 have it",
                    [erlang:system_info(otp_release), Module, Function, Arity]
                )}
    end.

missing(Module, Functions) ->
    try Module:module_info(exports) of
        Exports ->
            [{Module, Function} || Function <- Functions, not lists:member(Function, Exports)]
    catch
        error:undef -> [{Module, module}]
    end.

%% Refuses kernel TLS: it takes the socket away from ssl, over which the settlement goes.
check_options() ->
    try
        [
            Side
         || Side <- [client, server],
            proplists:get_value(ktls, inet_rdma_tls_options:all(Side), false) =:= true
        ]
    of
        [] ->
            ok;
        [Side | _] ->
            {error, io("the option ktls of the TLS ~s cannot be combined with inet_rdma", [Side])}
    catch
        error:Reason -> {error, io("the options of TLS cannot be read: ~0tp", [Reason])}
    end.

io(Format, Arguments) -> lists:flatten(io_lib:format(Format, Arguments)).

%% The supervisors of ssl's processes, to be started with the distribution.
-spec childspecs() -> {ok, [supervisor:child_spec()]}.
childspecs() -> inet_tls_dist:childspecs().

listen(Driver, Name, Host) -> (dist_module(Driver)):listen(Name, Host).
select(Driver, Node) -> (dist_module(Driver)):select(Node).
address(Driver) -> (dist_module(Driver)):address().

dist_module(inet_tcp) -> inet_tls_dist;
dist_module(inet6_tcp) -> inet6_tls_dist.

%% The server's part of TLS over a TCP connection, which the caller owns. The caller then owns the
%% TLS connection.
-spec accept_over(inet_rdma_transport:tcp(), TimeoutMs :: pos_integer()) ->
    {ok, ssl:sslsocket()} | {error, term()}.
accept_over(Connection, TimeoutMs) ->
    {_Driver, Tcp} = inet_rdma_transport:socket(Connection),
    case inet_rdma_transport:ends(Connection) of
        {ok, {_Own, {Ip, _Port}}} ->
            ok = await_code_server(),
            %% The type of ssl's options has none of sockets.
            Options = lists:append(
                [{active, false}, {packet, 4}], inet_rdma_tls_options:server(Ip)
            ),
            case ssl:handshake(Tcp, Options, TimeoutMs) of
                {error, {options, _}} = Error ->
                    ?LOG_ERROR("Cannot accept TLS distribution connection: ~ts", [
                        ssl:format_error(Error)
                    ]),
                    Error;
                Result ->
                    Result
            end;
        Error ->
            Error
    end.

%% A peer may connect while this node boots.
await_code_server() ->
    case whereis(code_server) of
        undefined -> receive
            after ?CODE_SERVER_MS -> await_code_server()
            end;
        _ -> ok
    end.

%% A connection of accept_over/2. The caller, its owner, is linked to it.
-spec accepted(ssl:sslsocket()) -> inet_rdma_transport:t().
accepted(Socket) -> connection(Socket, sender(Socket)).

connection(Socket, Sender) ->
    link(Sender),
    ok = inet_rdma_modules:load_tls(),
    inet_rdma_transport:tls(Socket, Sender).

%% #sslsocket{} is ssl's own, and has another shape in each release. It names the two processes of
%% its connection.
sender(Socket) ->
    Pids = [Pid || Pid <- lists:flatten(tuple_to_list(Socket)), is_pid(Pid)],
    case [Pid || Pid <- Pids, is_sender(proc_lib:initial_call(Pid))] of
        [Sender | _] ->
            Sender;
        [] ->
            ?LOG_ERROR(
                "inet_rdma: no link: the TLS socket of OTP ~s names no process tls_sender",
                [erlang:system_info(otp_release)]
            ),
            ?shutdown2(no_node, no_tls_sender)
    end.

is_sender({tls_sender, _Function, _Arguments}) -> true;
is_sender(_) -> false.

%% The nodes of net_kernel:allow/1 whose hosts the peer's certificate names, as in inet_tls_dist.
%% Exits if there are none. If the peer has no certificate, all allowed nodes.
-spec allowed(inet_rdma_transport:t(), [atom() | string()]) -> [atom() | string()].
allowed(_Connection, []) ->
    [];
allowed(Connection, Allowed) ->
    case {inet_rdma_transport:peer_certificate(Connection), inet_rdma_transport:ends(Connection)} of
        {{ok, Der}, {ok, {_Own, {Ip, _Port}}}} ->
            Certificate = public_key:pkix_decode_cert(Der, otp),
            Hosts = [
                Host
             || Host <- lists:usort(lists:append([hosts(Node) || Node <- Allowed])),
                public_key:pkix_verify_hostname(Certificate, [{dns_id, Host}])
            ],
            case
                Hosts ++ [inet:ntoa(Ip) || public_key:pkix_verify_hostname(Certificate, [{ip, Ip}])]
            of
                [] ->
                    ?LOG_ERROR("** Connection attempt from disallowed node(s) ~p ** ~n", [Ip]),
                    ?shutdown2(Ip, {is_allowed, not_allowed});
                Named ->
                    Named
            end;
        {{error, no_peercert}, _} ->
            Allowed;
        {_, Error} ->
            ?shutdown2(no_peer_cert, Error)
    end.

%% How long this side waits for the peer to end TLS.
-define(GIVE_BACK_MS, 3000).
%% Sent when this side has left TLS.
-define(OUTSIDE, $o).
%% Sent when this side knows that the peer has left TLS.
-define(BEGIN, $b).
%% How long this side waits for an answer to each OUTSIDE.
-define(OUTSIDE_MS, [20, 200, 1000, 2000]).

%% Ends TLS on both sides at the same time, and gives the TCP socket. The caller owns the
%% connection, and then the socket.
%%
%% The peer's TLS may read beyond this side's last record, and lose those bytes. So each side sends
%% one byte, OUTSIDE, and repeats it if there is no answer: four times at most, which is less than a
%% header of TLS. Once a side has received the peer's OUTSIDE, or BEGIN, it sends BEGIN. The bytes
%% after BEGIN belong to the session.
%%
%% A side counts only the bytes that it receives by a call of its own. A socket of the module socket
%% may still execute the last read of TLS, which takes all bytes that there are: the first such byte
%% shows that this read has ended. An OUTSIDE that TLS has read needs no answer: the peer has left
%% TLS, and answers this side's OUTSIDE.
-spec give_back(ssl:sslsocket()) -> {ok, inet:socket()} | {error, Why :: binary()}.
give_back(Socket) ->
    try ssl:close(Socket, {self(), ?GIVE_BACK_MS}) of
        {ok, Tcp} -> outside(Tcp);
        {ok, Tcp, _Read} -> outside(Tcp);
        ok -> {error, <<"the connection was closed">>};
        {error, Reason} -> not_given_back(Reason)
    catch
        exit:Reason -> not_given_back(Reason)
    end.

outside(Tcp) ->
    Begun =
        case inet:setopts(Tcp, [{active, false}, {packet, raw}, {mode, binary}, {nodelay, true}]) of
            ok ->
                drop_delivered(Tcp),
                say_outside(Tcp, ?OUTSIDE_MS);
            Error ->
                Error
        end,
    case Begun of
        ok ->
            {ok, Tcp};
        {error, Reason} ->
            gen_tcp:close(Tcp),
            not_given_back(Reason)
    end.

%% Bytes that came while the socket changed its owner: ssl reads it actively, and its messages move
%% to the new owner.
drop_delivered(Tcp) ->
    receive
        {tcp, Tcp, _Bytes} -> drop_delivered(Tcp);
        {tcp_passive, Tcp} -> drop_delivered(Tcp)
    after 0 ->
        ok
    end.

say_outside(_Tcp, []) ->
    {error, timeout};
say_outside(Tcp, [WaitMs | Longer]) ->
    case gen_tcp:send(Tcp, <<?OUTSIDE>>) of
        ok ->
            case hear(Tcp, WaitMs) of
                {ok, Byte} when Byte =:= ?OUTSIDE; Byte =:= ?BEGIN -> begin_outside(Tcp, Byte);
                {ok, _} -> {error, unexpected_byte};
                {error, timeout} -> say_outside(Tcp, Longer);
                Error -> Error
            end;
        Error ->
            Error
    end.

hear(Tcp, WaitMs) ->
    case gen_tcp:recv(Tcp, 1, WaitMs) of
        {ok, <<Byte>>} -> {ok, Byte};
        Error -> Error
    end.

begin_outside(Tcp, Heard) ->
    case gen_tcp:send(Tcp, <<?BEGIN>>) of
        ok -> await_begin(Tcp, Heard);
        Error -> Error
    end.

await_begin(_Tcp, ?BEGIN) ->
    ok;
await_begin(Tcp, ?OUTSIDE) ->
    case hear(Tcp, ?GIVE_BACK_MS) of
        {ok, Byte} -> await_begin(Tcp, Byte);
        Error -> Error
    end;
await_begin(_Tcp, _Byte) ->
    {error, unexpected_byte}.

not_given_back(Reason) -> {error, unicode:characters_to_binary(io("~0tp", [Reason]))}.

%% Tells whether an error of TLS means that the other side has refused the handshake, or that one
%% side has rejected the other's identity. Other alerts may come from a shortage of this node.
-spec is_refusal(term()) -> boolean().
is_refusal({tls_alert, {Alert, Text}}) ->
    Rejections = [
        certificate_revoked,
        certificate_expired,
        certificate_unknown,
        certificate_required,
        bad_certificate,
        unsupported_certificate,
        unknown_ca,
        access_denied,
        handshake_failure,
        bad_certificate_status_response
    ],
    lists:member(Alert, Rejections) orelse string:find(Text, "received SERVER ALERT") =/= nomatch;
is_refusal(_) ->
    false.

hosts(Node) ->
    case dist_util:split_node(Node) of
        {node, _Name, Host} -> [Host];
        {host, Host} -> [Host];
        _ -> []
    end.

%% The client's part of TLS. The caller owns the connection and is linked to it. Options: of the TCP
%% socket.
-spec connect(
    inet_rdma_transport:driver(),
    {inet:ip_address(), inet:port_number()},
    Host :: string(),
    [term()],
    timeout()
) -> {ok, inet_rdma_transport:t()} | {error, term()}.
connect(Driver, Address, Host, [mptcp | _] = Options, TimeoutMs) ->
    Deadline = inet_rdma_clock:deadline(TimeoutMs),
    case inet_rdma_transport:open(Driver, Address, Options, TimeoutMs) of
        {ok, Tcp} ->
            Connection = inet_rdma_transport:tcp(Driver, Tcp),
            connect_over(Connection, Host, [], inet_rdma_clock:left(Deadline));
        Error ->
            Error
    end;
connect(Driver, {Ip, Port}, Host, Options, TimeoutMs) ->
    Tls = client_options(Host),
    Forced = [binary, Driver:family(), {active, false}, {packet, 4}, {nodelay, true}],
    %% All raw options have the same key.
    {Raw, Named} = lists:partition(
        fun(Option) -> element(1, Option) =:= raw end, proplists:unfold(Options)
    ),
    connected(ssl:connect(Ip, Port, Forced ++ Raw ++ lists:ukeysort(1, Named ++ Tls), TimeoutMs)).

%% The same over a TCP connection, which the caller owns. Options: of TLS.
-spec connect_over(inet_rdma_transport:tcp(), Host :: string(), [term()], timeout()) ->
    {ok, inet_rdma_transport:t()} | {error, term()}.
connect_over(Connection, Host, Options, TimeoutMs) ->
    {_Driver, Tcp} = inet_rdma_transport:socket(Connection),
    %% ssl takes over how the socket reads.
    case inet:setopts(Tcp, [binary, {active, false}, {packet, 4}, {nodelay, true}]) of
        ok ->
            connected(
                ssl:connect(Tcp, lists:ukeysort(1, Options ++ client_options(Host)), TimeoutMs)
            );
        Error ->
            Error
    end.

client_options(Host) ->
    Tls = inet_rdma_tls_options:all(client),
    [{server_name_indication, Host} || not lists:keymember(server_name_indication, 1, Tls)] ++ Tls.

connected({ok, Socket}) -> {ok, connection(Socket, sender(Socket))};
connected(Error) -> Error.
